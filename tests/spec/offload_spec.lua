-- The offload queue as Lua sees it, on the host and on the host put off in every way. $ZCC_SEED gives the order of the
-- shuffle again.

package.path = "tests/spec/?.lua;" .. package.path

local devices = require "devices"
local device = require "zcc.device"
local offload = require "zcc.offload"
local pool = require "zcc.pool"
local store = require "zcc.store"


local function status_of(call, ...)
	local ok, why = pcall(call, ...)
	assert.is_false(ok)
	return why.status, why.message
end

-- Text of so many bytes that says which buffer and step it is.
local function text_of(bytes, buffer, step)
	return (("%d.%d;"):format(buffer, step):rep(bytes)):sub(1, bytes)
end

for _, name in ipairs(devices.names) do
	describe("offload on " .. name, function()
		local d, s, queue

		local function open(given)
			given = given or {}
			given.device = d
			queue = offload(given)
		end

		before_each(function()
			d = device.open(name)
			s = d:stream()
		end)
		after_each(function()
			queue:close()
			s:close()
			d:close()
		end)

		-- Submits the write and waits for nothing.
		local function write(buffer, text)
			local from = d:pinned(#text)
			from:write(text)
			s:copy(buffer, from)
		end

		local function memory(bytes)
			return d:malloc(bytes)
		end

		it("lands_what_the_stream_wrote_before_defer", function()
			open{ chunk_bytes = 1000 }
			local a, b = memory(5000), memory(0)
			local handles = { queue:register("a", a), queue:register("b", b) }
			write(a, text_of(5000, 1, 1))
			local ticket = queue:defer(1, { handles[1], handles[2], { handle = handles[1], offset = 128, bytes = 64 } }, s)
			queue:wait(ticket)
			write(a, text_of(5000, 1, 2))
			s:wait()
			local region = queue:get(ticket, 1)
			assert.are.equal(text_of(5000, 1, 1), region:read())
			assert.are.same({ "a", 5000, 0, 1, 1, 1, 1, "pinned" }, { region.name, region.bytes, region.offset, region.ticket,
				region.index, region.generation, region.snapshot, region.place })
			assert.are.equal("", queue:get(ticket, 2):read())
			assert.are.equal(text_of(5000, 1, 1):sub(129, 192), queue:get(ticket, 3):read())
			assert.is_true(queue:test(ticket))
		end)

		it("cuts_a_snapshot_over_hooks_and_the_fence_does_the_rest", function()
			open{ chunk_bytes = 100 }
			local buffers, handles = {}, {}
			for i = 1, 10 do
				buffers[i] = memory(100)
				handles[i] = queue:register("w" .. i, buffers[i])
				write(buffers[i], text_of(100, i, 1))
			end
			local ticket = queue:defer(1, handles, s)
			for _ = 1, 3 do
				queue:flush(0.25)
			end
			queue:fence()
			local seen = 0
			for region in queue:each(ticket) do
				seen = seen + 1
				assert.are.equal(seen, region.index)
				assert.are.equal(text_of(100, seen, 1), region:read())
				region:release()
				assert.are.equal("ZCC_ESTALE", (status_of(region.read, region)))
				assert.is_true(region:is_closed())
			end
			assert.are.equal(10, seen)
			local stats = queue:stats()
			assert.are.same({ 10, 1000, 0, 0 }, { stats.chunks, stats.copied_bytes, stats.held_bytes, stats.pending_bytes })
			queue:release(ticket)
		end)

		it("does_not_let_a_registered_buffer_be_closed", function()
			open()
			local a = memory(10)
			local handle = queue:register("a", a)
			local status, message = status_of(a.close, a)
			assert.are.equal("ZCC_EBUSY", status)
			assert.are.equal("this device buffer may not be closed: it is registered for offload as 'a'", message)
			queue:unregister(handle)
			a:close()
			local b, c = memory(10), memory(10)
			handle = queue:register("a", b)
			queue:register("a", c)
			b:close()
			assert.are.equal("ZCC_ESTALE", (status_of(queue.defer, queue, 1, { handle })))
			queue:close()
			c:close()
		end)

		it("registers_nothing_of_what_it_refuses", function()
			open()
			local a, gone = memory(64), memory(64)
			local handle = queue:register("a", a)
			gone:close()
			local landed = queue:defer(1, { handle })
			queue:wait(landed)
			local lent = queue:get(landed, 1)
			for _, bad in ipairs { { gone }, { gone, 0, 0 }, { lent }, { {} }, { a, 0 / 0, 4 }, { a, 0, 0 / 0 }, { a, 0.5, 4 },
				{ a, 0, 2.5 }, { a, 0, -5 }, { a, 65, 0 } } do
				assert.are.equal("ZCC_EINVAL", (status_of(queue.register, queue, "a", unpack(bad))))
			end
			assert.are.equal("ZCC_EINVAL", (status_of(queue.register, queue, nil, a)))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.register, queue, "a\0b", a)))
			for _, bad in ipairs { handle + 0.5, 0 / 0, 1e300 } do
				assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 2, { bad })))
				assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 2, { { handle = bad } })))
			end
			-- Still the first registration, and held once.
			queue:wait(queue:defer(2, { handle }))
			queue:unregister(handle)
			a:close()
		end)

		it("names_a_buffer_reallocated_between_defer_and_flush", function()
			open()
			local old = memory(1000)
			local ticket = queue:defer(1, { queue:register("head.weight", old) })
			local fresh = memory(1000)
			local handle = queue:register("head.weight", fresh)
			write(old, ("\xDD"):rep(1000))
			s:wait()
			old:close()
			local status, message = status_of(queue.flush, queue)
			assert.are.equal("ZCC_ESTALE", status)
			assert.is_not_nil(message:find("head.weight", 1, true))
			assert.are.equal("ZCC_ESTALE", (status_of(queue.wait, queue, ticket)))
			queue:release(ticket)
			write(fresh, text_of(1000, 1, 2))
			ticket = queue:defer(2, { handle }, s)
			queue:fence()
			assert.are.equal(text_of(1000, 1, 2), queue:get(ticket, 1):read())
			assert.are.equal(2, queue:get(ticket, 1).generation)
		end)

		it("refuses_or_waits_for_another_snapshot", function()
			open{ busy = "refuse" }
			local handle = queue:register("a", memory(100))
			queue:defer(1, { handle })
			queue:defer(1, { handle })
			assert.are.equal("ZCC_EBUSY", (status_of(queue.defer, queue, 2, { handle })))
			queue:fence()
			assert.are.equal(3, queue:defer(2, { handle }))
		end)

		it("streams_through_slots_and_says_who_has_to_release", function()
			open{ slots = 2, pool = pool{ device = d } }
			local handles, expected = {}, {}
			for i = 1, 9 do
				local buffer = memory(i * 300)
				handles[i], expected[i] = queue:register("w" .. i, buffer), text_of(i * 300, i, 1)
				write(buffer, expected[i])
			end
			local ticket = queue:defer(1, handles, s)
			assert.are.equal("ZCC_EBUSY", (status_of(queue.wait, queue, ticket)))
			for region in queue:each(ticket) do
				assert.are.equal(expected[region.index], region:read())
				region:release()
			end
			queue:release(ticket)
			assert.is_true(queue:stats().held_peak_bytes <= 2700 + 2400)
			assert.are.equal(0, queue:stats().held_bytes)
			queue.pool:trim()
			assert.are.equal(0, queue.pool:stats().pinned_bytes)
		end)

		it("finds_a_write_that_broke_the_fence", function()
			open{ check = true }
			local a = memory(1000)
			local handle = queue:register("a", a)
			write(a, text_of(1000, 1, 1))
			local ticket = queue:defer(7, { handle }, s)
			write(a, text_of(1000, 1, 2))
			s:wait()
			local status, message = status_of(queue.fence, queue)
			assert.are.equal("ZCC_EVERIFY", status)
			assert.is_not_nil(message:find("buffer 'a', ticket 1 of snapshot 7", 1, true))
			queue:fence()
			queue:release(ticket)
		end)

		it("takes_memory_of_the_host_too", function()
			open()
			local state = store.buffer(64)
			state:fill_random(5)
			local ticket = queue:defer(1, { queue:register("state", state, 8, 16) })
			queue:fence()
			local want = d:pinned(64)
			s:copy(want, state)
			s:wait()
			state:fill_random(6)
			assert.are.equal(want:read(8, 16), queue:get(ticket, 1):read())
		end)

		it("refuses_what_is_no_region_ticket_or_option", function()
			open()
			assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 1, { "a" })))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 1, { {} })))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 1, { 5 })))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.defer, queue, 1, { 1.5 })))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.wait, queue, 1)))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.wait, queue, "x")))
			assert.are.equal("ZCC_EINVAL", (status_of(queue.flush, queue, 2)))
			assert.are.equal("ZCC_EINVAL", (status_of(offload, { device = d, chunks = 1 })))
			queue:close()
			queue:close()
			assert.are.equal("ZCC_EINVAL", (status_of(queue.fence, queue)))
		end)

		it("is_collected_with_work_pending_and_lets_its_buffers_go", function()
			open()
			local watch = setmetatable({}, { __mode = "v" })
			do
				local lost = offload{ device = d, chunk_bytes = 100 }
				local buffer = memory(100000)
				watch[1], watch[2] = lost, buffer
				lost:defer(1, { lost:register("a", buffer) }, s)
				lost:flush()
			end
			for _ = 1, 4 do
				collectgarbage()
				device.bury_dead()
			end
			assert.is_nil(watch[1])
			assert.is_nil(watch[2])
		end)
	end)
end

-- Case H4.
describe("offload under stress", function()
	it("takes_a_hundred_thousand_events_from_coroutines_while_the_collector_works", function()
		local d = device.open("host")
		local queue = offload{ device = d, chunk_bytes = 64 }
		local s, from, events = d:stream(), d:pinned(100), 0
		local function worker(i)
			local buffer = d:malloc(100)
			from:write(text_of(100, i, 1))
			s:copy(buffer, from)
			s:wait()
			local handle = queue:register("w" .. i, buffer)
			for round = 1, 2500 do
				local ticket = queue:defer(1, { handle, { handle = handle, offset = i, bytes = round % 50 } })
				coroutine.yield()
				if round % 2 == 0 then
					queue:flush()
				elseif round % 3 == 0 then
					queue:flush(0.5)
				end
				coroutine.yield()
				queue:wait(ticket)
				if round % 50 == 0 then
					assert.are.equal(text_of(100, i, 1), queue:get(ticket, 1):read())
					handle = queue:register("w" .. i, buffer)
				end
				if round % 7 > 0 then
					queue:release(ticket)
				else
					for region in queue:each(ticket) do
						region:release()
					end
					queue:release(ticket)
				end
				events = events + 4
			end
		end
		local workers = {}
		for i = 1, 10 do
			workers[i] = coroutine.create(worker)
		end
		collectgarbage("setpause", 50)
		collectgarbage("setstepmul", 400)
		local alive = 10
		while alive > 0 do
			alive = 0
			for i = 1, 10 do
				if coroutine.status(workers[i]) ~= "dead" then
					alive = alive + 1
					local ok, why = coroutine.resume(workers[i], i)
					assert(ok, tostring(why))
				end
			end
			collectgarbage("step")
		end
		collectgarbage("setpause", 200)
		collectgarbage("setstepmul", 200)
		assert.are.equal(100000, events)
		local stats = queue:stats()
		assert.are.same({ 25000, 0, 0 }, { stats.tickets, stats.held_bytes, stats.pending_bytes })
		queue:close()
		s:close()
	end)

	it("survives_the_end_of_the_state_in_mid_copy", function()
		local script = os.tmpname()
		local file = assert(io.open(script, "w"))
		file:write([[
			local device, offload, store = require "zcc.device", require "zcc.offload", require "zcc.store"
			for _, name in ipairs{ "host", "late:host" } do
				for i = 1, 10 do
					local d = device.open(name)
					local queue = offload{ device = d, chunk_bytes = 4096, slots = i % 3 }
					local a, b = d:malloc(2^20), store.buffer(2^20)
					queue:defer(1, { queue:register("a", a), queue:register("b", b) })
					queue:flush()
				end
			end
			-- Walks over many buffers are compiled once some have been let go.
			local d = device.open("host")
			for i = 1, 3 do
				local queue = offload{ device = d }
				for k = 1, 200 do
					queue:register("buffer" .. k, d:malloc(100))
				end
				if i < 3 then
					queue:close()
				end
			end
			print "end"
		]])
		file:close()
		for _ = 1, 5 do
			local pipe = io.popen(("timeout -k 1 30 luajit %s 2>&1; echo $?"):format(script))
			assert.are.equal("end\n0\n", pipe:read("*a"))
			pipe:close()
		end
		os.remove(script)
	end)
end)
