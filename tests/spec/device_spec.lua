-- Devices as Lua sees them, on the host and on the host put off in every way. $ZCC_SEED gives the order of the shuffle
-- again.

package.path = "tests/spec/?.lua;" .. package.path

local devices = require "devices"
local device = require "zcc.device"
local store = require "zcc.store"
local zffi = require "zcc.ffi"


-- f32 values as bytes, written by another library than the engine.
local function floats(...)
	local values = { ... }
	return zffi.ffi.string(zffi.ffi.new("float[?]", #values, values), 4 * #values)
end

local function status_of(call, ...)
	local ok, why = pcall(call, ...)
	assert.is_false(ok)
	return why.status, why.message
end

for _, name in ipairs(devices.names) do
	describe("device " .. name, function()
		local d, s

		before_each(function()
			d = device.open(name)
			s = d:stream()
		end)
		after_each(function()
			s:close()
			d:close()
		end)

		local function fetch(buffer) return devices.fetch(d, s, buffer) end

		local function upload(text)
			local from, to = d:pinned(#text), d:malloc(#text)
			from:write(text)
			s:copy(to, from)
			s:wait()
			from:close()
			return to
		end

		it("is_named_as_it_was_opened", function()
			assert.are.equal(name, d:name())
			assert.are.equal("device", tostring(d))
		end)

		it("tells_the_place_of_every_byte", function()
			local memory, pinned, ordinary = d:malloc(1000), d:pinned(1000), store.buffer(1000)
			for offset = 0, 999, 333 do
				assert.are.equal("device", d:place(memory, offset))
				assert.are.equal("pinned", d:place(pinned, offset))
				assert.are.equal("pageable", d:place(ordinary, offset))
			end
			memory:close()
			pinned:close()
		end)

		it("copies_from_pinned_to_device_and_back", function()
			local memory = upload("0123456789")
			s:copy(memory, upload("abc"), { target_offset = 4 })
			assert.are.equal("0123abc789", fetch(memory))
			s:copy(memory, upload("xyz"), { bytes = 1, target_offset = 9, source_offset = 1 })
			assert.are.equal("0123abc78y", fetch(memory))
		end)

		it("reads_pageable_memory_inside_the_call", function()
			local ordinary, other, memory = store.buffer(4096), store.buffer(4096), d:malloc(4096)
			ordinary:fill_random(1)
			s:copy(memory, ordinary)
			ordinary:fill_random(2)
			other:fill_random(1)
			assert.are.equal(zffi.string(other:pointer(), 4096), fetch(memory))
		end)

		it("copies_rows", function()
			local memory = upload("................")
			s:copy_2d(memory, upload("abcdefghi"),
				{ bytes = 2, rows = 3, target_pitch = 5, source_pitch = 3, target_offset = 1 })
			assert.are.equal(".ab...de...gh...", fetch(memory))
		end)

		it("casts_and_averages", function()
			local source, target = upload(floats(1, -2.5, 3.140625, 0)), d:malloc(8)
			s:cast(target, "BF16", source, "F32", 4)
			-- The upper half of each f32 here.
			assert.are.equal("\128\63\32\192\73\64\0\0", fetch(target))
			local ema = upload(floats(2, 2, 2, 2))
			s:lerp(ema, source, "F32", 0.75, 4)
			assert.are.equal(floats(1.75, 0.875, 2.28515625, 1.5), fetch(ema))
			s:lerp(ema, target, "bf16", 0, 4)
			assert.are.equal(floats(1, -2.5, 3.140625, 0), fetch(ema))
		end)

		it("transposes", function()
			local target = d:malloc(6)
			s:strided(target, upload("abcdef"),
				{ shape = { 3, 2 }, elem_bytes = 1, target_strides = { 2, 1 }, source_strides = { 1, 3 } })
			assert.are.equal("adbecf", fetch(target))
		end)

		it("orders_streams_by_events", function()
			local other, event = d:stream(), d:event()
			local a, b, c = upload("first "), d:malloc(6), d:pinned(6)
			s:copy(b, a)
			event:record(s)
			other:wait_event(event)
			other:copy(c, b)
			event:record(other)
			event:wait()
			assert.is_true(event:test())
			assert.are.equal("first ", c:read())
			other:close()
		end)

		it("gets_there_where_one_only_polls", function()
			local a, b = upload("polled"), d:pinned(6)
			local event = d:event()
			assert.is_true(event:test())
			s:copy(b, a)
			event:record(s)
			while not s:test() do end -- luacheck: ignore 542
			assert.is_true(event:test())
			assert.are.equal("polled", b:read())
		end)

		it("refuses_what_goes_past_a_buffer_or_lies_in_another_place", function()
			local memory, ordinary = d:malloc(16), store.buffer(64)
			assert.are.equal("ZCC_EINVAL", (status_of(s.copy, s, memory, ordinary)))
			local status, why = status_of(s.cast, s, memory, "BF16", ordinary, "F32", 4)
			assert.are.equal("ZCC_EINVAL", status)
			assert.is_truthy(why:find("pageable", 1, true))
			status, why = status_of(s.cast, s, memory, "I32", memory, "F32", 1)
			assert.are.equal("ZCC_EINVAL", status)
			assert.is_truthy(why:find("I32", 1, true))
			assert.are.equal("ZCC_EINVAL", (status_of(s.lerp, s, memory, memory, "F32", 1.5, 1)))
			assert.are.equal("ZCC_EINVAL", (status_of(d.malloc, d, -1)))
			status, why = status_of(d.malloc, d, 2^50)
			assert.are.equal("ZCC_ENOMEM", status)
			assert.is_truthy(why:find("1125899906842624 bytes asked for", 1, true))
		end)

		it("refuses_what_is_no_offset_size_or_name", function()
			local pinned, memory, ordinary, nan = d:pinned(16), d:malloc(16), store.buffer(16), 0 / 0
			for _, bad in ipairs { nan, -1, 0.5, 1 / 0, 17, 2^60, "1" } do
				for _, buffer in ipairs { pinned, memory, ordinary } do
					assert.are.equal("ZCC_EINVAL", (status_of(buffer.at, buffer, bad, 0)))
					assert.are.equal("ZCC_EINVAL", (status_of(buffer.at, buffer, 0, bad)))
				end
				assert.are.equal("ZCC_EINVAL", (status_of(pinned.read, pinned, 0, bad)))
			end
			local status, why = status_of(pinned.read, pinned, nan, 5)
			assert.are.equal("ZCC_EINVAL", status)
			assert.is_truthy(why:match("^5 bytes at %-?nan of a pinned buffer of 16$"), why)
			assert.are.equal("ZCC_EINVAL", (status_of(pinned.write, pinned, "abc", nan)))
			assert.are.equal("ZCC_EINVAL", (status_of(s.cast, s, memory, nil, pinned, "F32", 1)))
			assert.are.equal("ZCC_EINVAL", (status_of(s.cast, s, memory, "F32\0", pinned, "F32", 1)))
			assert.are.equal("ZCC_EINVAL", (status_of(device.open, name .. "\0x")))
			for _, bad in ipairs { nan, -1, 0.5, "x" } do
				assert.are.equal("ZCC_EINVAL", (status_of(store.buffer, bad)))
			end
		end)

		it("a_closed_stream_says_so", function()
			local closed = d:stream()
			closed:close()
			for _, use in ipairs { "wait", "test", "keep" } do
				local status, why = status_of(closed[use], closed, {})
				assert.are.equal("ZCC_EINVAL", status)
				assert.are.equal("this stream is closed", why)
			end
		end)

		it("keeps_the_buffers_of_work_in_flight_whatever_the_collector_does", function()
			local result = d:pinned(64 * 100)
			for i = 1, 100 do
				local text = ("%064d"):format(i)
				local from, middle = d:pinned(64), d:malloc(64)
				from:write(text)
				s:copy(middle, from)
				s:copy(result, middle, { target_offset = 64 * (i - 1) })
				if i % 10 == 0 then
					collectgarbage()
				end
			end
			s:wait()
			for i = 1, 100 do
				assert.are.equal(("%064d"):format(i), result:read(64 * (i - 1), 64))
			end
		end)

		it("a_stream_that_is_collected_with_work_in_flight_takes_no_memory_along", function()
			for _ = 1, 20 do
				local lost = d:stream()
				lost:copy(store.buffer(65536), d:malloc(65536))
			end
			collectgarbage()
			collectgarbage()
			d:malloc(1):close()
		end)

		it("a_closed_buffer_is_stale_and_says_so", function()
			local memory = d:malloc(16)
			memory:close()
			memory:close()
			local status, why = status_of(s.copy, s, memory, memory)
			assert.are.equal("ZCC_EINVAL", status)
			assert.are.equal("this device buffer is closed", why)
		end)
	end)
end

describe("device", function()
	it("takes_its_name_from_the_environment_where_none_is_given", function()
		assert.are.equal(os.getenv "ZCC_DEVICE" or "host", device.open():name())
	end)

	it("that_is_none_is_refused_with_those_that_are", function()
		for _, name in ipairs{ "gpu", "host:1", "host:x", "late:", "late:host,sometimes", "late:host,shuffle=x", "cuda:-1",
			"late:late:host", ("x"):rep(100) } do
			local status, why = status_of(device.open, name)
			assert.is_true(status == "ZCC_EINVAL", name)
			assert.is_truthy(why:find("host", 1, true) or why:find("shuffle", 1, true), why)
		end
	end)

	it("lists_the_host_first", function()
		local list = device.list()
		assert.are.equal("host", list[1].name)
		assert.are.equal("late:host", list[2].name)
		assert.is_true(#list >= 3)
		for _, row in ipairs(list) do
			assert.is_true(#row.about > 0)
		end
	end)
end)
