-- Rules: which axis of which parameter tensor parallelism cuts. Families are rules that ship with the library, a
-- rules file is a user's own: a Lua file that returns such a table (README, "Rules").
--
--   { name = "mine",
--     layers = "layers%.(%d+)%.",              where a name carries its layer's number
--     rules = { { PATTERN, …, KEY = VALUE … }, … } }   first match wins; patterns are Lua's, not anchored
--
-- Keys of a rule; axes count from 0, sizes are numbers, keys of config.json ("n_head*head_dim") or functions of
-- those:
--   replicate = true        whole on every rank
--   cut = AXIS              tensor parallelism cuts this axis, into equal shares of
--     units = SIZE          so many indivisible units (heads); every element by itself where left out
--     grouped = true        fewer units than ranks: neighbours share one (key/value heads)
--     uneven = true         shares that differ by one unit at most, the first ranks take more
--     extents = {…}         exactly these shares
--     parts = {{SIZE, units =, grouped =, uneven =, replicate =}, …}   fused parameters, each cut by itself
--   vocab = AXIS            as cut, padded where the layout has vocab_pad
--     input = true          the input embedding: whole on every rank in style autotp
--   expert = true           belongs to the expert whose number the pattern captures
--   expert_axis = AXIS      holds all experts along this axis
--   stage = "first"|"last"  pipeline stage of what is in no layer
--   scale = NUMBER          what is stored is this times the parameter; a function gets the facts and the size of tp

local fault = require "zcc.error"
local sandbox = require "zcc.sandbox"
local textfile = require "zcc.textfile"
local words = require "zcc.words"

local M = {}

M.families = { "bert", "gpt2", "llama", "qwen3", "qwen3_moe" }

local FILE_KEYS = {
	name = "string", layers = "string", rules = "table", default = "string", derive = "table",
	models = "table", recognise = "function",
}
local RULE_KEYS = {
	replicate = "boolean", cut = "axis", vocab = "axis", units = "size", grouped = "boolean",
	uneven = "boolean", extents = "sizes", parts = "table", input = "boolean", expert = "boolean",
	expert_axis = "axis", stage = "stage", scale = "scale",
}
local PART_KEYS = { units = "size", grouped = "boolean", uneven = "boolean", replicate = "boolean" }

local function keys_of(map)
	local keys = {}
	for key in pairs(map) do keys[#keys + 1] = key end
	table.sort(keys)
	return keys
end

local accepts = {
	string = function(value) return type(value) == "string" end,
	boolean = function(value) return type(value) == "boolean" end,
	table = function(value) return type(value) == "table" end,
	["function"] = function(value) return type(value) == "function" end,
	axis = function(value) return type(value) == "number" and value % 1 == 0 and value >= 0 and value < 8 end,
	size = function(value) return type(value) == "number" or type(value) == "string" or type(value) == "function" end,
	sizes = function(value) return type(value) == "table" or type(value) == "function" end,
	stage = function(value) return value == "first" or value == "last" end,
	scale = function(value) return type(value) == "number" or type(value) == "function" end,
}
local expected = {
	string = "a string", boolean = "true", table = "a table", ["function"] = "a function", axis = "an axis from 0 to 7",
	size = "a number, a key of config.json or a function", sizes = "a list of numbers or a function",
	stage = "'first' or 'last'", scale = "a number or a function",
}

-- The position after a set "[…]" that begins at `at`; nil where it does not end. Its first character may be "]".
local function skip_set(pattern, at)
	at = at + 1
	if pattern:sub(at, at) == "^" then at = at + 1 end
	repeat
		at = at + (pattern:sub(at, at) == "%" and 2 or 1)
		if at > #pattern then return nil end
	until pattern:sub(at, at) == "]"
	return at + 1
end

-- What is wrong with a Lua pattern, or nil. Lua itself tells only once a name comes as far as the fault.
local function fault_of_pattern(pattern)
	local at, open = 1, 0
	while at <= #pattern do
		local char, after = pattern:sub(at, at), pattern:sub(at + 1, at + 1)
		if char == "%" then
			if after == "" then return "ends with '%'" end
			if after == "b" and #pattern < at + 3 then return "'%b' needs two characters" end
			if after == "f" and pattern:sub(at + 2, at + 2) ~= "[" then return "'%f' needs a set" end
			at = at + (after == "b" and 4 or 2)
		elseif char == "[" then
			at = skip_set(pattern, at)
			if not at then return "a '[' is not closed" end
		else
			open = open + (char == "(" and 1 or char == ")" and -1 or 0)
			if open < 0 then return "a ')' without '('" end
			at = at + 1
		end
	end
	return open > 0 and "a '(' is not closed" or nil
end

-- Checks the named keys of a table; `fail` raises with the place.
local function check_keys(map, known, fail)
	local names = keys_of(known)
	for key, value in pairs(map) do
		if type(key) ~= "number" then
			local kind = known[key]
			if not kind then
				fail("unknown key '%s'%s; known are %s", tostring(key), words.suggestion(tostring(key), names),
					table.concat(names, ", "))
			end
			if not accepts[kind](value) then
				fail("%s has to be %s, found %s", key, expected[kind], type(value) == "table" and "a table" or tostring(value))
			end
		end
	end
end

local function check_parts(parts, fail)
	if #parts == 0 then fail("parts is empty") end
	for index, part in ipairs(parts) do
		local function fail_part(format, ...) fail("part %d: %s", index, format:format(...)) end
		if type(part) ~= "table" or not accepts.size(part[1]) then
			fail_part("begins with its size, as in { 4096, units = 32 }")
		end
		check_keys(part, PART_KEYS, fail_part)
	end
end

local function check_rule(rule, fail)
	if type(rule) ~= "table" then fail("a rule is a table, found %s", type(rule)) end
	if #rule == 0 then fail("a rule begins with a pattern") end
	for _, pattern in ipairs(rule) do
		if type(pattern) ~= "string" then fail("a pattern has to be a string, found %s", type(pattern)) end
		local why = fault_of_pattern(pattern)
		if why then fail("pattern '%s': %s", pattern, why) end
		if rule.expert and not pattern:find("(%", 1, true) then
			fail("pattern '%s': with expert = true it has to capture the expert's number, as in 'experts%%.(%%d+)%%.'", pattern)
		end
	end
	check_keys(rule, RULE_KEYS, fail)
	local actions = (rule.replicate and 1 or 0) + (rule.cut and 1 or 0) + (rule.vocab and 1 or 0)
	if actions > 1 or actions == 0 and not rule.expert and not rule.expert_axis then
		fail("a rule says one of replicate = true, cut = AXIS, vocab = AXIS; found %d of them", actions)
	end
	for _, key in ipairs({ "units", "grouped", "uneven", "extents", "parts" }) do
		if rule[key] and not rule.cut then fail("%s needs cut", key) end
	end
	if rule.input and not rule.vocab then fail("input needs vocab") end
	if rule.expert and rule.expert_axis then fail("expert and expert_axis exclude each other") end
	if (rule.expert or rule.expert_axis) and rule.vocab then fail("an expert has no vocabulary axis") end
	if rule.expert_axis and rule.expert_axis == rule.cut then
		fail("axis %d is both the experts' and the one that is cut", rule.cut)
	end
	local ways = (rule.grouped and 1 or 0) + (rule.uneven and 1 or 0) + (rule.extents and 1 or 0) + (rule.parts and 1 or 0)
	if ways > 1 then fail("grouped, uneven, extents and parts exclude each other") end
	if rule.units and (rule.extents or rule.parts) then fail("units goes with each part, or with no extents") end
	if rule.parts then check_parts(rule.parts, fail) end
end

-- The line of the source text that holds a rule's first pattern; the table itself does not know its lines.
local function line_of(text, rule)
	local pattern = type(rule) == "table" and type(rule[1]) == "string" and rule[1]
	local at = pattern and text and text:find(pattern, 1, true)
	if not at then return nil end
	return 1 + select(2, text:sub(1, at - 1):gsub("\n", ""))
end

--- Checks a rules table and returns it. `path` and `text` (may be nil) give messages their place.
function M.check(rules, path, text)
	path = path or type(rules) == "table" and rules.name and "rules " .. tostring(rules.name) or "rules"
	local function fail(format, ...) fault.raise("ZCC_EFORMAT", "%s: %s", path, format:format(...)) end
	if type(rules) ~= "table" then fail("have to be a table, found %s", type(rules)) end
	check_keys(rules, FILE_KEYS, fail)
	if type(rules.rules) ~= "table" or #rules.rules == 0 then fail("'rules' has to be a list of rules") end
	if rules.default ~= nil and rules.default ~= "replicate" then
		fail("default is '%s', allowed is 'replicate'", tostring(rules.default))
	end
	if rules.layers then
		local why = fault_of_pattern(rules.layers)
		if why then fail("layers: pattern '%s': %s", rules.layers, why) end
		if not rules.layers:find("(%", 1, true) then
			fail("layers: pattern '%s' has to capture the layer's number, as in 'layers%%.(%%d+)%%.'", rules.layers)
		end
	end
	for index, rule in ipairs(rules.rules) do
		check_rule(rule, function(format, ...)
			local line = line_of(text, rule)
			fault.raise("ZCC_EFORMAT", "%s%s: rule %d: %s", path, line and ":" .. line or "", index, format:format(...))
		end)
	end
	return rules
end

--- The rules of a Lua file.
function M.load(path)
	local text = textfile.read(path)
	local rules = M.check(sandbox.run(text, path, "rules file"), path, text)
	rules.name = rules.name or path
	return rules
end

--- The rules of a family by its name.
function M.family(name)
	for _, known in ipairs(M.families) do
		if known == name then return M.check(require("zcc.families." .. name)) end
	end
	fault.raise("ZCC_EINVAL", "family '%s' is not known%s; known are auto, %s", tostring(name),
		words.suggestion(tostring(name), M.families), table.concat(M.families, ", "))
end

local function by_model_type(model_type)
	local known = {}
	for _, name in ipairs(M.families) do
		local family = M.family(name)
		for _, model in ipairs(family.models) do
			if model == model_type then
				return family, ("family %s, because config.json says model_type %s"):format(name, model_type)
			end
			known[#known + 1] = model
		end
	end
	-- The names alone could fit a family of another structure, so an unknown type is not passed on to them.
	fault.raise("ZCC_ELAYOUT", "config.json says model_type '%s', which no family covers (they cover %s); name one with "
		.. "--family or give --rules FILE", model_type, table.concat(known, ", "))
end

local function by_names(params)
	local function has(pattern)
		for _, param in ipairs(params) do
			if param.name:find(pattern) then return true end
		end
		return false
	end
	local found = {}
	for _, name in ipairs(M.families) do
		if M.family(name).recognise(has) then found[#found + 1] = name end
	end
	if #found == 1 then
		return M.family(found[1]), ("family %s, by the parameters' names"):format(found[1])
	end
	local names = {}
	for i, param in ipairs(params) do names[i] = param.name end
	fault.raise("ZCC_ELAYOUT", "the parameters' names fit %s; name the family with --family (%s) or give "
		.. "--rules FILE:\n%s", #found == 0 and "no family" or "several families (" .. table.concat(found, ", ") .. ")",
		table.concat(M.families, ", "), words.listing(names, 10))
end

--- The family that fits a model: by model_type where there is a config.json, else by the names. Returns its rules
--- and the reason in words.
function M.detect(params, config)
	local model_type = config and config.model_type
	if type(model_type) == "string" then return by_model_type(model_type) end
	return by_names(params)
end

--- The rules that were asked for: a file, a family by name, or "auto". Returns them and the reason in words.
function M.choose(family, file, params, config)
	if file then return M.load(file), "rules file " .. file end
	if family and family ~= "auto" then return M.family(family), "family " .. family end
	return M.detect(params, config)
end

return M
