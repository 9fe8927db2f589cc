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

-- Whether a path is written directly, as what is no regular file (a terminal, a pipe), and whether it is a folder.
-- /dev/stdout may lead to a regular file; the link itself must stay.
local function is_direct(path)
	local kind, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_path_kind(path, kind, err), err)
	return kind[0] > 1 or path:find("^/dev/") ~= nil, kind[0] == 2
end

-- Writes under a temporary name and returns it.
local function write_temporary(path, text)
	local temporary = ("%s.tmp.%s"):format(path, zffi.hex(lib.zcc_clock_ns()))
	local done, why = write_to(temporary, text)
	if not done then
		os.remove(temporary)
		fail(path, (why:gsub("^.-%.tmp%.%x+: ", "")))
	end
	return temporary
end

--- Writes a file under a temporary name and renames it, so that the name never shows a part of it. What is no regular
-- file (a terminal, a pipe) is written directly.
function M.write(path, text)
	if is_direct(path) then
		must(path, write_to(path, text))
		return
	end
	local temporary = write_temporary(path, text)
	local done, why = os.rename(temporary, path)
	if not done then
		os.remove(temporary)
		fail(path, (why:gsub("^.-%.tmp%.%x+: ", "")))
	end
end

--- Raises where write would fail for its path, without leaving or changing anything.
function M.check_writable(path)
	local direct, folder = is_direct(path)
	if folder then
		fail(path, "Is a directory")
	elseif not direct then
		os.remove(write_temporary(path, ""))
	end
end

return M
