local say = require "zcc.say"

local function speaker(rank, size, terminal)
	local written, time = {}, { now = 0 }
	local speaks = say.new(rank, size, {
		write = function(text) written[#written + 1] = text end,
		terminal = terminal,
		clock = function() return time.now end,
	})
	return speaks, written, time
end

describe("say", function()
	it("process_0_speaks_and_the_others_are_silent", function()
		local first, heard = speaker(0, 4)
		first("moved %d", 7)
		assert.are.same({ "moved 7\n" }, heard)
		local other, nothing = speaker(1, 4)
		other("moved %d", 7)
		other:progress("moving", 1, 2)
		assert.are.same({}, nothing)
	end)

	it("a_process_with_something_of_its_own_gives_its_number", function()
		local other, heard = speaker(3, 4)
		other:own("slow disk")
		assert.are.same({ "process 3: slow disk\n" }, heard)
		local alone, words = speaker(0, 1)
		alone:own("slow disk")
		assert.are.same({ "slow disk\n" }, words)
	end)

	it("progress_is_redrawn_on_a_terminal_and_makes_room_for_a_message", function()
		local speaks, heard, time = speaker(0, 1, true)
		speaks:progress("moving", 0, 10)
		time.now = 0.05
		speaks:progress("moving", 1, 10)
		time.now = 1
		speaks:progress("moving", 5, 10)
		speaks("a word")
		speaks:progress("moving", 10, 10)
		assert.are.same({
			"\r\27[Kmoving  50%, 1.0 s", "\r\27[K", "a word\n", "moving 100%, 1.0 s\n",
		}, heard)
	end)

	it("progress_is_a_plain_line_now_and_then_elsewhere", function()
		local speaks, heard, time = speaker(0, 1, false)
		for second = 0, 24 do
			time.now = second
			speaks:progress("moving", second, 24)
		end
		assert.are.same({ "moving  42%, 10.0 s\n", "moving  83%, 20.0 s\n", "moving 100%, 24.0 s\n" }, heard)
	end)

	it("short_work_is_not_mentioned_and_the_next_of_its_name_counts_from_its_own_start", function()
		for _, terminal in ipairs { true, false } do
			local speaks, heard, time = speaker(0, 1, terminal)
			speaks:progress("moving", 0, 0)
			speaks:progress("moving", 0, 10)
			time.now = 0.05
			speaks:progress("moving", 10, 10)
			assert.are.same({}, heard)
			time.now = 100
			speaks:progress("moving", 0, 10)
			time.now = 120
			speaks:progress("moving", 10, 20)
			assert.are.equal("moving  50%, 20.0 s", heard[1]:match("moving[^\n]*"))
		end
	end)

	it("a_line_in_the_middle_can_be_taken_off_a_terminal", function()
		local speaks, heard, time = speaker(0, 1, true)
		speaks:progress("moving", 0, 10)
		time.now = 1
		speaks:progress("moving", 5, 10)
		speaks:clear()
		speaks:clear()
		assert.are.same({ "\r\27[Kmoving  50%, 1.0 s", "\r\27[K" }, heard)
	end)
end)
