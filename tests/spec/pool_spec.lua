local device = require "zcc.device"
local pool = require "zcc.pool"

local MIB = 2^20

-- Bytes that this process has locked, as the kernel counts them.
local function locked()
	for line in io.lines("/proc/self/status") do
		local kib = line:match("^VmLck:%s*(%d+) kB")
		if kib then
			return tonumber(kib) * 1024
		end
	end
end

local function fault_of(call, ...)
	local ok, why = pcall(call, ...)
	assert.is_false(ok)
	return why
end

describe("pool", function()
	local d

	before_each(function() d = device.open("host") end)
	after_each(function() d:close() end)

	it("locks_what_is_taken_and_returns_it_on_trim", function()
		local base, p = locked(), pool{ device = d }
		local a, b = p:take(MIB), p:take(MIB / 2)
		assert.are.equal(1.5 * MIB, locked() - base)
		assert.are.equal("pinned", d:place(a, MIB - 1))
		a:close()
		assert.are.equal(1.5 * MIB, locked() - base)
		assert.are.equal(MIB, p:trim())
		assert.are.equal(MIB / 2, locked() - base)
		b:close()
		p:close()
		assert.are.equal(base, locked())
	end)

	it("uses_a_buffer_again", function()
		local p = pool{ device = d }
		p:take(MIB):close()
		local again = p:take(MIB)
		local stats = p:stats()
		assert.are.equal(2, stats.takes)
		assert.are.equal(1, stats.hits)
		assert.are.equal(MIB, stats.in_use_bytes)
		assert.are.equal(MIB, stats.peak_bytes)
		assert.is_nil(stats.cap_bytes)
		again:close()
		p:close()
	end)

	it("beyond_the_cap_is_an_error_with_the_numbers_or_unpinned_memory", function()
		local p = pool{ device = d, cap = "1MiB" }
		local first = p:take(MIB)
		local why = fault_of(p.take, p, 4096)
		assert.are.equal("ZCC_ENOMEM", why.status)
		assert.is_truthy(why.message:find("4096 bytes asked", 1, true), why.message)
		assert.is_truthy(why.message:find("1048576 in use", 1, true), why.message)
		assert.is_truthy(why.message:find("a cap of 1048576", 1, true), why.message)
		local second = p:take(4096, { unpinned = true })
		assert.are.equal("pageable", d:place(second))
		assert.are.equal(1, p:stats().unpinned_takes)
		assert.are.equal(MIB, p:stats().cap_bytes)
		first:close()
		second:close()
		p:close()
	end)

	it("buffers_hold_what_is_written", function()
		local p = pool{ device = d }
		local buffer = p:take(100)
		buffer:write("text", 96)
		assert.are.equal("text", buffer:read(96))
		local why = fault_of(buffer.write, buffer, "text", 97)
		assert.is_truthy(why.message:find("4 bytes at 97 of a pool buffer of 100", 1, true), why.message)
		buffer:close()
		assert.are.equal("this pool buffer is closed", fault_of(buffer.read, buffer).message)
		p:close()
	end)

	it("a_buffer_that_nobody_holds_goes_back", function()
		local p = pool{ device = d }
		for _ = 1, 50 do
			p:take(4096)
		end
		collectgarbage()
		collectgarbage()
		assert.are.equal(0, p:stats().in_use_bytes)
		p:close()
	end)

	it("a_buffer_outlives_the_pools_object", function()
		local base, p = locked(), pool{ device = d }
		local buffer = p:take(MIB)
		p:close()
		buffer:write("still there")
		assert.are.equal(MIB, locked() - base)
		buffer:close()
		assert.are.equal(base, locked())
	end)

	it("options_are_checked", function()
		assert.is_truthy(fault_of(pool, {}).message:find("device is missing", 1, true))
		assert.is_truthy(fault_of(pool, { device = d, caps = 1 }).message:find("unknown option caps", 1, true))
		local p = pool{ device = d }
		assert.are.equal("ZCC_EINVAL", fault_of(p.take, p, -1).status)
		assert.are.equal("ZCC_EINVAL", fault_of(p.take, p, 1.5).status)
		p:close()
	end)
end)
