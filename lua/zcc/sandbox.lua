-- Runs a user's rules or policy file where it can only compute: no files, no processes, no clock, no chance, no
-- FFI, so that every process gets the same answer from it.

local fault = require "zcc.error"
local textfile = require "zcc.textfile"

local M = {}

local function copy(library, omitted)
	local out = {}
	for key, value in pairs(library) do
		if not omitted[key] then out[key] = value end
	end
	return out
end

-- The order of pairs depends on a table's history and on addresses; here numbers come first, then strings, both
-- ascending.
local function sorted_pairs(object)
	local keys = {}
	for key in next, object do
		if type(key) ~= "number" and type(key) ~= "string" then
			error(("pairs: a key of type %s has no order that is the same on every process"):format(type(key)), 2)
		end
		keys[#keys + 1] = key
	end
	table.sort(keys, function(a, b)
		if type(a) ~= type(b) then return type(a) == "number" end
		return a < b
	end)
	local index = 0
	return function()
		index = index + 1
		local key = keys[index]
		if key ~= nil then return key, object[key] end
	end
end

local function environment()
	local env = {
		assert = assert, error = error, ipairs = ipairs, pairs = sorted_pairs, pcall = pcall, select = select,
		tonumber = tonumber, tostring = tostring, type = type, unpack = unpack, _VERSION = _VERSION,
		bit = copy(require "bit", {}),
		math = copy(math, { random = true, randomseed = true }),
		string = copy(string, { dump = true }),
		table = copy(table, {}),
	}
	env._G = env
	return env
end

--- Loads a Lua file and returns the table that it returns. `kind` ("policy", "rules file") is for messages.
--- Syntax errors and errors while it runs name the file and its line.
function M.load(path, kind)
	return M.run(textfile.read(path), path, kind)
end

--- As load, from the text itself; `path` stands for it in messages.
function M.run(text, path, kind)
	if text:sub(1, 1) == "\27" then
		fault.raise("ZCC_EFORMAT", "%s %s: is compiled code; it has to be Lua text", kind, path)
	end
	local chunk, why = loadstring(text, "@" .. path)
	if not chunk then fault.raise("ZCC_EFORMAT", "%s %s: %s", kind, path, why) end
	setfenv(chunk, environment())
	local ok, result = pcall(chunk)
	if not ok then fault.raise("ZCC_EFORMAT", "%s %s: %s", kind, path, tostring(result)) end
	if type(result) ~= "table" then
		fault.raise("ZCC_EFORMAT", "%s %s: has to return a table, returned %s", kind, path, type(result))
	end
	return result
end

return M
