local fault = require "zcc.error"
local zffi = require "zcc.ffi"

local function line_here()
	return debug.getinfo(2, "l").currentline
end

describe("error", function()
	it("reads_as_one_line_with_both_places", function()
		local object = fault.new{
			status = "ZCC_EMAP", message = "piece 3 lies outside", place = "recipe.lua:12", c_file = "layout.c", c_line = 88,
		}
		assert.are.equal("recipe.lua:12: piece 3 lies outside (ZCC_EMAP, layout.c:88)", tostring(object))
		object.process = 2
		assert.are.equal("recipe.lua:12: piece 3 lies outside (ZCC_EMAP, layout.c:88, process 2)", tostring(object))
	end)

	it("misuse_reads_as_its_message", function()
		local ok, object = pcall(fault.misuse, "no recipe %s", "x.lua")
		assert.is_false(ok)
		assert.is_true(fault.is(object))
		assert.is_true(object.misuse)
		assert.are.equal("no recipe x.lua", tostring(object))
	end)

	it("an_engine_fault_carries_everything_the_engine_said_and_the_callers_line", function()
		local err = zffi.new_error()
		local out = zffi.ffi.new("void *[1]")
		local status = zffi.lib.zcc_memory_create(-5, out, err)
		local line
		local ok, object = pcall(function()
			line = line_here() + 1
			zffi.check(status, err)
		end)
		assert.is_false(ok)
		assert.are.equal("ZCC_EINVAL", object.status)
		assert.are.equal("-5 bytes asked for", object.message)
		assert.are.equal("memory create", object.operation)
		assert.are.equal("memory.c", object.c_file)
		assert.is_true(object.c_line > 0)
		assert.is_nil(object.process)
		assert.is_truthy(object.place:find("error_spec.lua:" .. line, 1, true), object.place)
	end)

	it("success_raises_nothing", function()
		zffi.check(0, zffi.new_error())
		zffi.check(0)
	end)
end)

describe("ffi", function()
	local ffi = zffi.ffi

	it("64_bit_integers_become_numbers_exactly_or_not_at_all", function()
		assert.are.equal(2^53, zffi.number(9007199254740992LL))
		assert.are.equal(-7, zffi.number(-7LL))
		local ok, object = pcall(zffi.number, 9007199254740993LL, "the size")
		assert.is_false(ok)
		assert.are.equal("ZCC_EOVERFLOW", object.status)
		assert.is_truthy(object.message:find("the size is 9007199254740993", 1, true))
		assert.is_false(pcall(zffi.number, 0xffffffffffffffffULL))
	end)

	it("numbers_that_are_no_whole_ones_never_reach_the_engine", function()
		assert.are.equal(5LL, zffi.integer(5))
		for _, value in ipairs{ 0.5, 2^54, 0 / 0, 1 / 0, "5", {} } do
			assert.is_false(pcall(zffi.integer, value))
		end
	end)

	it("a_digest_goes_to_hex_and_back", function()
		for _, value in ipairs{ 0LL, -1LL, 0x0123456789abcdefLL, ffi.cast("int64_t", 0xfedcba9876543210ULL) } do
			assert.are.equal(value, zffi.unhex(zffi.hex(value)))
		end
		assert.are.equal("0123456789abcdef", zffi.hex(0x0123456789abcdefLL))
		assert.are.equal("ffffffffffffffff", zffi.hex(-1LL))
		assert.is_false(pcall(zffi.unhex, "12"))
	end)

	it("null_is_nothing", function()
		assert.is_nil(zffi.string(ffi.cast("const char *", nil)))
		assert.is_true(zffi.is_null(ffi.cast("void *", nil)))
		assert.is_false(zffi.is_null(ffi.new("int[1]")))
	end)
end)
