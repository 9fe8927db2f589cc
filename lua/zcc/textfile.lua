-- Small files of text, read and written whole.

local fault = require "zcc.error"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

-- Raises for what io reported; its messages begin with the path or lack it.
local function fail(path, why)
	if why:sub(1, #path + 2) == path .. ": " then
		why = why:sub(#path + 3)
	end
	fault.raise("ZCC_EIO", "%s: %s", path, why)
end

local function must(path, value, why)
	if not value then
		fail(path, why or "it cannot be read")
	end
	return value
end

--- The bytes of a file.
function M.read(path)
	local file = must(path, io.open(path, "rb"))
	local text, why = file:read("*a")
	file:close()
	return must(path, text, why)
end

local function write_to(path, text)
	local file, why = io.open(path, "wb")
	if not file then
		return nil, why
	end
	local done
	done, why = file:write(text)
	local closed, close_why = file:close()
	return done and closed, why or close_why
end

--- Writes a file under a temporary name and renames it, so that the name never shows a part of it. What is no regular
-- file (a terminal, a pipe) is written directly.
function M.write(path, text)
	local kind, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_path_kind(path, kind, err), err)
	-- /dev/stdout may lead to a regular file; the link itself must stay.
	if kind[0] > 1 or path:find("^/dev/") then
		must(path, write_to(path, text))
		return
	end
	local temporary = ("%s.tmp.%s"):format(path, zffi.hex(lib.zcc_clock_ns()))
	local done, why = write_to(temporary, text)
	if done then
		done, why = os.rename(temporary, path)
	end
	if not done then
		os.remove(temporary)
		fail(path, (why:gsub("^.-%.tmp%.%x+: ", "")))
	end
end

return M
