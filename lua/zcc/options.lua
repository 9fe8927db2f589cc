-- One table of options, checked against a declared schema. FFI constructors ignore unknown fields in silence, so
-- this check comes first.
--
-- A schema is { NAME = { type =, default =, required =, min =, max =, choices = } }. Types: "string", "number",
-- "integer", "boolean", "table", "function", "bytes" (a number, or a text as zcc.bytes reads it), "choice" (one of
-- `choices`), "dtype" (one of `choices`, such as BF16, in upper or lower case; taken in upper case), "any".

local bytes = require "zcc.bytes"
local fault = require "zcc.error"

local M = {}

local function is_integer(value)
	return type(value) == "number" and value % 1 == 0 and value >= -2^53 and value <= 2^53
end

-- What each type accepts: returns the value to take, or nil and what was expected.
local kinds = {
	any = function(value) return value end,
	integer = function(value)
		if is_integer(value) then
			return value
		end
		return nil, "a whole number"
	end,
	bytes = function(value)
		if is_integer(value) and value >= 0 then
			return value
		end
		if type(value) == "string" then
			return bytes.parse(value)
		end
		return nil, "an amount of bytes (a whole number, or a text as 8MiB)"
	end,
	choice = function(value, rule)
		for _, choice in ipairs(rule.choices) do
			if value == choice then
				return value
			end
		end
		return nil, "one of " .. table.concat(rule.choices, ", ")
	end,
}
kinds.dtype = function(value, rule)
	return kinds.choice(type(value) == "string" and value:upper() or value, rule)
end
for name, phrase in pairs{
	string = "a string", number = "a number", boolean = "true or false", table = "a table", ["function"] = "a function",
} do
	kinds[name] = function(value)
		if type(value) == name then
			return value
		end
		return nil, phrase
	end
end

local function show(value)
	if type(value) == "string" then
		return ("%q"):format(value)
	elseif type(value) == "number" or type(value) == "boolean" then
		return tostring(value)
	end
	return "a " .. type(value)
end

local function sorted_keys(map)
	local keys = {}
	for key in pairs(map) do
		keys[#keys + 1] = key
	end
	table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
	return keys
end

local function check_one(what, name, value, rule)
	local taken, expected = kinds[rule.type](value, rule)
	if taken == nil then
		fault.raise("ZCC_EINVAL", "%s: %s must be %s, found %s", what, name, expected, show(value))
	end
	if rule.min and taken < rule.min or rule.max and taken > rule.max then
		fault.raise("ZCC_EINVAL", "%s: %s must be %s, found %s", what, name,
			rule.min and rule.max and ("from %s to %s"):format(rule.min, rule.max)
				or rule.min and ("at least %s"):format(rule.min) or ("at most %s"):format(rule.max), show(taken))
	end
	return taken
end

--- A new table with every option of the schema that was given or has a default. `what` names the options in messages
-- ("transfer"). An unknown key, a wrong type, a value out of range or a missing required one raises at the caller's
-- line.
function M.check(schema, given, what)
	given = given == nil and {} or given
	if type(given) ~= "table" then
		fault.raise("ZCC_EINVAL", "%s: options must be a table, found %s", what, show(given))
	end
	for _, key in ipairs(sorted_keys(given)) do
		if not schema[key] then
			fault.raise("ZCC_EINVAL", "%s: unknown option %s (known: %s)", what,
				type(key) == "string" and key or show(key), table.concat(sorted_keys(schema), ", "))
		end
	end
	local checked = {}
	for _, name in ipairs(sorted_keys(schema)) do
		local rule, value = schema[name], given[name]
		if value ~= nil then
			checked[name] = check_one(what, name, value, rule)
		elseif rule.required then
			fault.raise("ZCC_EINVAL", "%s: option %s is missing", what, name)
		else
			checked[name] = rule.default
		end
	end
	return checked
end

return M
