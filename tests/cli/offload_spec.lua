-- recipes/offload.lua from outside: its report, on the host and on the host put off.

local program = assert(os.getenv "ZCCRUN")

package.path = "tests/cli/?.lua;lua/?.lua;lua/?/init.lua;" .. package.path

local slurp = require "outside".slurp

-- Runs the recipe; its output and the text of its report.
local function offload(arguments)
	local report, err = os.tmpname(), os.tmpname()
	local pipe = io.popen(("%s recipes/offload.lua %s --report %s 2>%s; echo $?"):format(program, arguments, report, err))
	local out = pipe:read("*a")
	pipe:close()
	assert.are.equal("0", out:match("(%d+)\n$"), slurp(err))
	local text = slurp(report)
	os.remove(report)
	os.remove(err)
	return text, out
end

local function numbers(text, key)
	local list = {}
	for value in text:gmatch('"' .. key .. '": ([%d.e+-]+)') do
		list[#list + 1] = tonumber(value)
	end
	return list
end

describe("recipes/offload.lua", function()
	for _, device in ipairs{ "host", "late:host", "late:host,eager", "late:host,shuffle=5" } do
		it("reports_the_stall_of_each_way_and_the_same_bits_on_" .. device, function()
			local text, out = offload("--elems 100000 --steps 5 --every 2 --chunk 40000 --device " .. device)
			assert.are.equal("offload", text:match('"recipe": "(.-)"'))
			assert.are.same({ 200000 }, numbers(text, "bytes"))
			assert.are.same({ 64 }, numbers(text, "buffers"))
			assert.are.same({ 2, 2, 2 }, numbers(text, "snapshots"))
			assert.are.same({ 2, 2, 10 }, numbers(text, "chunks"))
			assert.are.equal(3, #numbers(text, "stall"))
			assert.is_truthy(text:find('"bitwise": true', 1, true))
			assert.is_truthy(out:find("every snapshot has the bits of its step", 1, true), out)
		end)
	end

	it("takes_a_models_sizes_cut_over_ranks", function()
		local text = offload("--shapes qwen3-8b --dp 4096 --steps 2 --every 1")
		assert.are.same({ 399 }, numbers(text, "buffers"))
		local bytes = numbers(text, "bytes")[1]
		assert.is_true(bytes >= 16381470720 / 4096 and bytes <= 16381470720 / 4096 + 399)
	end)

	-- With a queue that holds all the buffers, after another has let them go.
	it("fails_and_ends_where_no_memory_may_be_pinned", function()
		local pipe = io.popen(("timeout -k 1 30 %s recipes/offload.lua --elems 500 --cap 0 2>&1; echo $?"):format(program))
		local out = pipe:read("*a")
		pipe:close()
		assert.are.equal("1", out:match("(%d+)\n$"), out)
		assert.is_truthy(out:find("0 in use, 0 kept, a cap of 0", 1, true), out)
	end)

	it("takes_one_step_and_no_bytes", function()
		offload("--elems 0 --steps 1 --every 1")
		local _, out = offload("--elems 1000 --steps 1 --every 3")
		assert.is_truthy(out:find("no snapshot: --every is more than --steps", 1, true), out)
	end)
end)
