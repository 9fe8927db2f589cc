-- What is known of a model when rules ask for sizes: its config.json, what follows from the shapes with
-- certainty, and nothing else.

local fault = require "zcc.error"
local words = require "zcc.words"

local M = {}

-- A config.json that says one thing leaves others to these defaults; they hold only where there is a
-- config.json.
local DEFAULTS = {
	head_dim = function(model) return model.hidden_size / model.num_attention_heads end,
	num_key_value_heads = function(model) return model.num_attention_heads end,
	num_experts = function(_, config) return config.num_local_experts or config.n_routed_experts end,
}

local function is_count(value)
	return type(value) == "number" and value >= 0 and value % 1 == 0 and value < 2 ^ 53
end

-- The keys under which a config.json says a number, sorted.
local function numbers_of(config)
	local keys = {}
	for key, value in pairs(config) do
		if type(value) == "number" then keys[#keys + 1] = key end
	end
	table.sort(keys)
	return keys
end

-- Raises what a derivation may run into where a model has no such tensor: another source is asked then.
local function unknown(format, ...)
	error(fault.new{ status = "ZCC_ELAYOUT", message = format:format(...), place = fault.place(), unknown = true }, 0)
end

--- An object whose fields are the keys of config.json and what follows from them and from the shapes. A field
--- that nobody knows is an error. `extent(pattern, axis)` is a size of the first parameter whose name matches.
function M.new(rules, params, config)
	local known, pending = {}, {}
	local derived = rules and rules.derive or {}

	local function extent(pattern, axis)
		for _, param in ipairs(params) do
			if param.name:find(pattern) then
				if not param.shape[axis + 1] then
					fault.raise("ZCC_ELAYOUT", "parameter '%s' of shape %s has no axis %d", param.name, words.shape(param.shape), axis)
				end
				return param.shape[axis + 1]
			end
		end
		unknown("no parameter matches '%s', from which a size would follow", pattern)
	end

	local function try(model, key, derive)
		-- A size may follow from another, and that one from the first.
		if not derive or pending[key] then return nil end
		pending[key] = true
		local ok, value = pcall(derive, model, config)
		pending[key] = nil
		if ok then return value end
		if not (fault.is(value) and value.unknown) then error(value, 0) end
	end

	local function find(model, key)
		local declared = config and type(config[key]) == "number" and config[key] or nil
		local value = try(model, key, derived[key])
		if declared and value and declared ~= value then
			fault.raise("ZCC_ELAYOUT", "config.json says %s is %s, the shapes say %s: it is not this model's", key,
				tostring(declared), tostring(value))
		end
		value = declared or value
		if value == nil and config then value = try(model, key, DEFAULTS[key]) end
		return value
	end

	local model = { extent = extent }
	return setmetatable(model, {
		__index = function(self, key)
			local value = known[key]
			if value ~= nil then return value end
			value = find(self, key)
			if value == nil then
				if config then
					unknown("%s is not known: config.json does not say it%s", key, words.suggestion(key, numbers_of(config)))
				end
				unknown("%s is not known: there is no config.json and it does not follow from the shapes (give the model's "
					.. "config.json with --config FILE)", key)
			end
			if not is_count(value) then
				fault.raise("ZCC_ELAYOUT", "%s is %s; it has to be a whole number", key, tostring(value))
			end
			known[key] = value
			return value
		end,
	})
end

-- A fault names also what the fact was wanted for.
local function look_up(model, key, what)
	local ok, value = pcall(function() return model[key] end)
	if ok then return value end
	if not fault.is(value) then error(value, 0) end
	fault.raise(value.status, "%s: %s", what, value.message)
end

--- The number that a rule's value stands for: a number, keys of config.json and numbers joined by '*', or a
--- function of the facts. Returns it with words for messages ("num_attention_heads=32").
function M.evaluate(model, value, what)
	local result, label
	if type(value) == "number" then
		result, label = value, words.number(value)
	elseif type(value) == "string" then
		result = 1
		for factor in (value .. "*"):gmatch("%s*([^*]-)%s*%*") do
			if not factor:match("^[%w_]+$") then
				fault.raise("ZCC_EFORMAT", "%s: '%s' is no product of numbers and keys of config.json", what, value)
			end
			result = result * (tonumber(factor) or look_up(model, factor, what))
		end
		label = value .. "=" .. words.number(result)
	elseif type(value) == "function" then
		result = value(model)
		label = words.number(type(result) == "number" and result or 0)
	else
		fault.raise("ZCC_EFORMAT", "%s has to be a number, a key of config.json or a function, found %s", what, type(value))
	end
	if not is_count(result) then
		fault.raise("ZCC_ELAYOUT", "%s is %s; it has to be a whole number", what, tostring(result))
	end
	return result, label
end

return M
