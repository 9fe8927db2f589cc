-- The only file that declares or loads anything foreign: the engine's library, its declarations, and the few
-- conversions between C and Lua values that every wrapper needs. Recipes and policies never see what is in here.

local ffi = require "ffi"
local fault = require "zcc.error"

local M = { ffi = ffi }

-- zccrun leaves { library =, … } in package.loaded["zcc.program"]; other programs name the file in $ZCC_LIBRARY or
-- rely on the installed one.
local function load_library()
	local program = package.loaded["zcc.program"]
	return ffi.load(program and program.library or os.getenv("ZCC_LIBRARY") or "libzcc.so.0")
end

M.lib = load_library()

-- A second Lua module instance in the same state finds the types declared already.
if not pcall(ffi.typeof, "zcc_error") then
	ffi.cdef "const char *zcc_cdef(void);"
	ffi.cdef(ffi.string(M.lib.zcc_cdef()))
end

local lib = M.lib
local error_type = ffi.typeof("zcc_error")

--- A zcc_error for the last argument of a call.
function M.new_error()
	return error_type()
end

--- NULL and nil alike; a NULL pointer is true in a Lua condition.
function M.is_null(pointer)
	return pointer == nil
end

--- The text at a pointer (`bytes` of it, else up to NUL); nil for NULL.
function M.string(pointer, bytes)
	if pointer == nil then
		return nil
	end
	return ffi.string(pointer, bytes)
end

-- 2^53. Compared as an integer: 2^53 + 1 becomes 2^53 when it is made a number.
local EXACT = 9007199254740992LL

--- A 64-bit integer as a Lua number, exact or not at all.
function M.number(value, what)
	if value > EXACT or value < -EXACT then
		fault.raise("ZCC_EOVERFLOW", "%s is %s, beyond the 2^53 that a Lua number holds exactly", what or "a value",
			(tostring(value):gsub("U?LL$", "")))
	end
	return tonumber(value)
end

--- A Lua number as an int64_t; refuses what is no whole number of at most 2^53.
function M.integer(value, what)
	if type(value) ~= "number" or value % 1 ~= 0 or value > 2^53 or value < -2^53 then
		fault.raise("ZCC_EINVAL", "%s must be a whole number of at most 2^53, found %s", what or "a value", tostring(value))
	end
	return ffi.cast("int64_t", value)
end

--- A Lua string as a `const char *` that has to be there and ends in its only NUL.
function M.text(value, what)
	if type(value) ~= "string" or value:find("\0", 1, true) then
		fault.raise("ZCC_EINVAL", "%s must be a string without NUL, found %s", what,
			type(value) == "string" and ("%q"):format(value) or tostring(value))
	end
	return value
end

--- The number of a dtype that is named in upper or lower case, and the bytes of its elements.
function M.dtype(name)
	local number = lib.zcc_dtype_parse(M.text(name, "a dtype"):upper())
	if number == 0 then
		fault.raise("ZCC_EINVAL", "no dtype is named %s", name)
	end
	return number, lib.zcc_dtype_bytes(number)
end

--- A Lua number as an int32_t; refuses what is none.
function M.int32(value, what)
	if type(value) ~= "number" or value % 1 ~= 0 or value >= 2^31 or value < -2^31 then
		fault.raise("ZCC_EINVAL", "%s must be a whole number from -2^31 to 2^31 - 1, found %s", what, tostring(value))
	end
	return value
end

--- A 64-bit digest as 16 hex digits, and back.
function M.hex(value)
	value = ffi.cast("uint64_t", value)
	return ("%08x%08x"):format(tonumber(value / 2^32), tonumber(value % 2^32))
end
function M.unhex(text)
	local high, low = text:match("^(%x%x%x%x%x%x%x%x)(%x%x%x%x%x%x%x%x)$")
	if not high then
		fault.raise("ZCC_EINVAL", "%q is no digest of 16 hex digits", text)
	end
	return ffi.cast("int64_t", tonumber(high, 16) * 4294967296ULL + tonumber(low, 16))
end

--- The error object for a filled zcc_error.
function M.error_object(status, err)
	local object = {
		status = ffi.string(lib.zcc_status_name(status)),
		place = fault.place(),
	}
	if err ~= nil then
		object.message = ffi.string(err.message)
		object.operation = ffi.string(err.operation)
		object.code = err.code
		object.process = err.process >= 0 and err.process or nil
		if err.file[0] ~= 0 then
			object.c_file, object.c_line = ffi.string(err.file), err.line
		end
	else
		object.message = "the engine reports no more than its status"
	end
	return fault.new(object)
end

--- Raises the error object where status is not ZCC_OK.
function M.check(status, err)
	if status ~= 0 then
		error(M.error_object(status, err), 0)
	end
end

return M
