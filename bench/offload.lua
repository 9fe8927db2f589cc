-- What the offload queue costs the trainer: the calling thread's time, and what a small copy on another stream waits.

local zcc = require "zcc"

local N = 1000
local BYTES = 64 * 2 ^ 10
local BIG = 512 * 2 ^ 20
local TIMES = 21

local function median(list)
	table.sort(list)
	return list[math.floor((#list + 1) / 2)]
end

-- Median seconds of start(snapshot), which gives the tickets it deferred; they land and are released in between.
local function calling_thread(queue, start)
	local seconds = {}
	for i = 1, TIMES + 2 do
		local watch = zcc.clock.stopwatch()
		local tickets = start(i)
		local taken = watch()
		queue:fence()
		for _, ticket in ipairs(tickets) do
			queue:release(ticket)
		end
		if i > 2 then
			seconds[#seconds + 1] = taken
		end
	end
	return median(seconds)
end

local function registered(on, queue, n, bytes)
	local buffers, handles = {}, {}
	for i = 1, n do
		buffers[i] = on:malloc(bytes)
		handles[i] = queue:register(("buffer.%d"):format(i), buffers[i])
	end
	return handles, function()
		queue:close()
		for _, buffer in ipairs(buffers) do
			buffer:close()
		end
	end
end

local function one_ticket(queue, handles)
	return function(snapshot)
		local ticket = queue:defer(snapshot, handles)
		queue:flush()
		return { ticket }
	end
end

local function ticket_each(queue, handles)
	local tickets, single = {}, {}
	return function(snapshot)
		for i = 1, #handles do
			single[1] = handles[i]
			tickets[i] = queue:defer(snapshot, single)
		end
		queue:flush()
		return tickets
	end
end

local function calling_case(name, way)
	return {
		name = name,
		run = function()
			local on = zcc.device.chosen()
			local queue = zcc.offload{ device = on }
			local handles, close = registered(on, queue, N, BYTES)
			local seconds = calling_thread(queue, way(queue, handles))
			close()
			return { value = seconds * 1000, unit = "ms", target = 1, at_most = true }
		end,
	}
end

-- Seconds that copies of 4 KiB on the trainer's stream take, one after the other, while busy() is true.
local function small_copies(on, busy)
	local stream, from, to = on:stream(), on:pinned(4096), on:malloc(4096)
	local seconds = {}
	while busy() or #seconds == 0 do
		local watch = zcc.clock.stopwatch()
		stream:copy(to, from)
		stream:wait()
		seconds[#seconds + 1] = watch()
	end
	stream:close()
	return seconds
end

-- Small copies during five offloads of BIG bytes, after one to warm up.
local function disturbed(chunk_bytes)
	local on = zcc.device.chosen()
	local queue = zcc.offload{ device = on, chunk_bytes = chunk_bytes }
	local handles, close = registered(on, queue, 1, BIG)
	local all, worst, whole = {}, 0, {}
	for snapshot = 1, 6 do
		local watch = zcc.clock.stopwatch()
		local ticket = queue:defer(snapshot, handles)
		queue:flush()
		local seconds = small_copies(on, function() return not queue:test(ticket) end)
		whole[#whole + 1] = watch()
		queue:release(ticket)
		for _, s in ipairs(snapshot > 1 and seconds or {}) do
			all[#all + 1], worst = s, math.max(worst, s)
		end
	end
	close()
	return { median = median(all), worst = worst, whole = median(whole) }
end

local function small_case(name, chunk_bytes, what)
	return {
		name = name,
		run = function()
			local found = disturbed(chunk_bytes)
			-- Without deferral the trainer waits for the whole copy before its next small one.
			return { value = found[what] * 1e6, unit = "us", limit = (found.whole + found.median) * 1e6 }
		end,
	}
end

return zcc.bench.recipe {
	name = "offload",
	about = "The calling thread's time in defer and flush, and small copies beside an offload of 512 MiB; the limit of"
		.. " those is what they take when the trainer waits for the whole offload first. $ZCC_DEVICE names the device.",
	cases = {
		calling_case("1000 buffers, defer + flush, one ticket", one_ticket),
		calling_case("1000 buffers, defer + flush, a ticket each", ticket_each),
		small_case("4 KiB beside an offload in 1 MiB chunks, median", 2 ^ 20, "median"),
		small_case("4 KiB beside an offload in 1 MiB chunks, worst", 2 ^ 20, "worst"),
		small_case("4 KiB beside an offload in 64 MiB chunks, worst", 64 * 2 ^ 20, "worst"),
		small_case("4 KiB beside an offload in one copy, median", 0, "median"),
		small_case("4 KiB beside an offload in one copy, worst", 0, "worst"),
	},
}
