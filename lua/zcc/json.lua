-- JSON documents as Lua values and back, through the engine's exact parser and writer.
--
-- Decoded: an object is a plain table, an array a table that json.is_array knows (so that [] and {} stay apart),
-- null is json.null. An integer literal of at most 2^53 is a number; a larger one that fits 63 bits is a decimal
-- string ("9007199254740993"), since a Lua number would round it; anything else is the nearest number.
--
-- Encoded: a table from json.array or with the keys 1 … n is an array, {} and a table of string keys an object with
-- its keys sorted bytewise, json.ordered{ {key, value}, … } an object in that order. Numbers that are not finite
-- have no JSON and are refused.

local fault = require "zcc.error"
local textfile = require "zcc.textfile"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local Array = {}
local Ordered = {}

--- The value of a JSON null: a table lookup can tell it from a missing key.
M.null = setmetatable({}, { __tostring = function() return "null" end })

--- Marks a list as an array, so that an empty one is written as [].
function M.array(list)
	return setmetatable(list or {}, Array)
end

--- Whether a table is a decoded array or was marked by json.array.
function M.is_array(value)
	return getmetatable(value) == Array
end

--- An object whose members are written in the order given: json.ordered{ {"name", 1}, {"about", 2} }. A pair without
-- a value is left out.
function M.ordered(pairs_)
	return setmetatable(pairs_, Ordered)
end

-- Node kinds, as plain numbers for comparison in the loop.
local NULL, FALSE, TRUE, NUMBER = lib.ZCC_JSON_NULL, lib.ZCC_JSON_FALSE, lib.ZCC_JSON_TRUE, lib.ZCC_JSON_NUMBER
local STRING, ARRAY = lib.ZCC_JSON_STRING, lib.ZCC_JSON_ARRAY

-- 2^53, compared as an integer.
local EXACT = 9007199254740992LL

local function number_of(node)
	if node.is_integer == 0 then
		return node.number
	end
	if node.integer > EXACT or node.integer < -EXACT then
		return (tostring(node.integer):gsub("LL$", ""))
	end
	return tonumber(node.integer)
end

-- Depth is bounded by the parser.
local function value_of(nodes, index)
	local node = nodes[index]
	local kind = node.kind
	if kind == STRING then
		return ffi.string(node.string, node.string_bytes)
	elseif kind == NUMBER then
		return number_of(node)
	elseif kind == NULL then
		return M.null
	elseif kind == TRUE or kind == FALSE then
		return kind == TRUE
	end
	local result = {}
	local child = node.first_child
	if kind == ARRAY then
		local n = 0
		while child >= 0 do
			n = n + 1
			result[n] = value_of(nodes, child)
			child = nodes[child].next
		end
		return setmetatable(result, Array)
	end
	while child >= 0 do
		local member = nodes[child]
		result[ffi.string(member.key, member.key_bytes)] = value_of(nodes, child)
		child = member.next
	end
	return result
end

--- The value of a JSON text. `what` names the document in messages.
function M.decode(text, what)
	if type(text) ~= "string" then
		fault.raise("ZCC_EINVAL", "json.decode takes a string, found %s", type(text))
	end
	local err = zffi.new_error()
	local out = ffi.new("zcc_json *[1]")
	zffi.check(lib.zcc_json_parse(text, #text, what or "JSON text", out, err), err)
	local document = ffi.gc(out[0], lib.zcc_json_destroy)
	local count = ffi.new("int64_t[1]")
	local value = value_of(lib.zcc_json_nodes(document, count), 0)
	lib.zcc_json_destroy(ffi.gc(document, nil))
	return value
end

--- The value of a JSON file.
function M.decode_file(path)
	return M.decode(textfile.read(path), path)
end

--- The value of a JSON file that has to be an object.
function M.decode_object_file(path)
	local value = M.decode_file(path)
	if type(value) ~= "table" or value == M.null or M.is_array(value) then
		fault.raise("ZCC_EFORMAT", "%s: has to be an object, it is %s", path,
			value == M.null and "null" or type(value) == "table" and "an array" or "a " .. type(value))
	end
	return value
end

local write

local function write_number(writer, value)
	if value % 1 == 0 and value >= -2^53 and value <= 2^53 and (value ~= 0 or 1 / value > 0) then
		lib.zcc_json_write_integer(writer, value)
	elseif value - value == 0 then
		lib.zcc_json_write_number(writer, value)
	else
		fault.raise("ZCC_EINVAL", "json.encode: %s has no JSON", tostring(value))
	end
end

local function write_key(writer, key)
	if type(key) ~= "string" or key:find("\0", 1, true) then
		fault.raise("ZCC_EINVAL", "json.encode: a key must be a string without NUL, found %s", type(key) == "string" and
			("%q"):format(key) or type(key))
	end
	lib.zcc_json_write_key(writer, key)
end

local function write_array(writer, list, count, seen)
	lib.zcc_json_write_begin_array(writer)
	for i = 1, count do
		write(writer, list[i], seen)
	end
	lib.zcc_json_write_end_array(writer)
end

local function write_table(writer, value, seen)
	local meta = getmetatable(value)
	if meta == Ordered then
		lib.zcc_json_write_begin_object(writer)
		for _, pair in ipairs(value) do
			if pair[2] ~= nil then
				write_key(writer, pair[1])
				write(writer, pair[2], seen)
			end
		end
		lib.zcc_json_write_end_object(writer)
		return
	end
	local keys, count = {}, 0
	for key in pairs(value) do
		count = count + 1
		keys[count] = key
	end
	if meta == Array or count > 0 and count == #value then
		if count ~= #value then
			fault.raise("ZCC_EINVAL", "json.encode: an array of %d elements has %d keys", #value, count)
		end
		return write_array(writer, value, count, seen)
	end
	lib.zcc_json_write_begin_object(writer)
	for _, key in ipairs(keys) do
		if type(key) ~= "string" then
			fault.raise("ZCC_EINVAL", "json.encode: a table with the key %s is neither an array nor an object", tostring(key))
		end
	end
	table.sort(keys)
	for _, key in ipairs(keys) do
		write_key(writer, key)
		write(writer, value[key], seen)
	end
	lib.zcc_json_write_end_object(writer)
end

function write(writer, value, seen)
	local kind = type(value)
	if kind == "string" then
		lib.zcc_json_write_string(writer, value, #value)
	elseif kind == "number" then
		write_number(writer, value)
	elseif kind == "boolean" then
		lib.zcc_json_write_bool(writer, value and 1 or 0)
	elseif value == M.null then
		lib.zcc_json_write_null(writer)
	elseif kind == "table" then
		if seen[value] then
			fault.raise("ZCC_EINVAL", "json.encode: a table contains itself")
		end
		seen[value] = true
		write_table(writer, value, seen)
		seen[value] = nil
	else
		fault.raise("ZCC_EINVAL", "json.encode: a %s has no JSON", kind)
	end
end

--- The text that fill(writer, err) writes into a zcc_json_writer; for wrappers of calls that take one. `fill` may
-- return a status.
function M.capture(fill, options)
	local err = zffi.new_error()
	local out = ffi.new("zcc_json_writer *[1]")
	zffi.check(lib.zcc_json_writer_create(options and options.indent or 0, out, err), err)
	local writer = ffi.gc(out[0], lib.zcc_json_writer_destroy)
	zffi.check(fill(writer, err) or 0, err)
	local text, bytes = ffi.new("const char *[1]"), ffi.new("int64_t[1]")
	zffi.check(lib.zcc_json_writer_text(writer, text, bytes, err), err)
	local result = ffi.string(text[0], bytes[0])
	lib.zcc_json_writer_destroy(ffi.gc(writer, nil))
	return result
end

--- The JSON text of a value; options: indent = spaces for each level (0: one line).
function M.encode(value, options)
	return M.capture(function(writer)
		write(writer, value, {})
	end, options)
end

--- Writes a value to a file, whole or not at all.
function M.encode_file(path, value, options)
	textfile.write(path, M.encode(value, options) .. "\n")
end

return M
