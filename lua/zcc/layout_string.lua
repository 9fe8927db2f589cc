-- Layout strings ("dp=4,tp=2,zero=3") and the tables they stand for.
--
-- The table lists the axes outermost first and carries the options by name:
--   { {"dp", 4}, {"tp", 2}, zero = 3, experts = { {"edp", 2}, {"ep", 4} } }
-- `full = true` alone is the unsharded checkpoint. What the string can say the table can say, and the other way
-- round.
local fault = require "zcc.error"
local words = require "zcc.words"

local M = {}

local MAX_INT = 2147483647
-- A rank costs memory wherever ranks are listed, so a slip of the keyboard must not ask for a thousand million
-- of them.
local MAX_RANKS = 1048576
M.MAX_RANKS = MAX_RANKS

local AXES = { "pp", "dp", "ep", "cp", "tp" }
local EXPERT_AXES = { "pp", "edp", "ep", "tp" }
local STYLES = { "autotp", "megatron" }
-- In the order in which format() prints them.
local OPTIONS = { "zero", "hpz", "mics", "base", "style", "vocab_pad", "layers" }
local NUMBERS = {
	zero = { 0, 3 }, hpz = { 1, MAX_RANKS }, mics = { 1, MAX_RANKS }, base = { 0, MAX_INT }, vocab_pad = { 1, MAX_INT },
}
local DEFAULTS = { zero = 0, base = 0, style = "autotp" }

local function contains(list, word)
	for _, item in ipairs(list) do
		if item == word then return true end
	end
	return false
end

local function concat_lists(a, b)
	local out = {}
	for _, list in ipairs({ a, b }) do
		for _, item in ipairs(list) do out[#out + 1] = item end
	end
	return out
end

local function fail(what, format, ...)
	fault.raise("ZCC_EINVAL", "%s: %s", what, format:format(...))
end

local function fail_unknown(what, word, key, known)
	fail(what, "'%s': unknown key '%s'%s; known are %s", word, key, words.suggestion(key, known),
		table.concat(known, ", "))
end

local function is_integer(value)
	return type(value) == "number" and value == math.floor(value) and math.abs(value) < 2 ^ 53
end

local function check_range(what, key, value, low, high)
	if not is_integer(value) then
		fail(what, "'%s=%s': %s has to be a whole number from %d to %d", key, tostring(value), key, low, high)
	end
	if value < low or value > high then
		fail(what, "'%s=%s': %s is %s, allowed are %d to %d", key, words.number(value), key, words.number(value), low, high)
	end
end

-- Copies and checks one list of axes; returns it with the product of its sizes.
local function check_axes(what, list, known, where)
	local axes, seen, product = {}, {}, 1
	for index, axis in ipairs(list) do
		if type(axis) ~= "table" or type(axis[1]) ~= "string" or #axis ~= 2 then
			fail(what, "axis %d%s has to be a pair such as {\"%s\", 2}", index, where, known[2])
		end
		local name, size = axis[1], axis[2]
		if not contains(known, name) then
			fail(what, "'%s=%s': unknown axis '%s'%s%s; known are %s", name, tostring(size), name, where,
				words.suggestion(name, known), table.concat(known, ", "))
		end
		check_range(what, name, size, 1, MAX_RANKS)
		if seen[name] then
			fail(what, "'%s=%d': axis %s%s is given twice (%s=%d before)", name, size, name, where, name, seen[name])
		end
		seen[name] = size
		product = product * size
		if product > MAX_RANKS then
			fail(what, "'%s=%d': the axes%s make %s ranks or more, allowed are %d", name, size, where,
				words.number(product), MAX_RANKS)
		end
		axes[index] = { name, size }
	end
	return axes, product
end

-- Ranks between two neighbours of an axis, and its size; nil where the axis is missing.
local function stride_of(axes, name)
	local stride = 1
	for index = #axes, 1, -1 do
		if axes[index][1] == name then return stride, axes[index][2] end
		stride = stride * axes[index][2]
	end
end

local function product_of(axes, names)
	local product = 1
	for _, axis in ipairs(axes) do
		if contains(names, axis[1]) then product = product * axis[2] end
	end
	return product
end

local function check_experts(what, layout, product)
	local experts, expert_product = check_axes(what, layout.experts, EXPERT_AXES, " of the experts' mesh")
	if #experts == 0 then fail(what, "the experts' mesh has no axis; known are %s", table.concat(EXPERT_AXES, ", ")) end
	if expert_product ~= product then
		fail(what, "the experts' mesh has %d ranks (%s), the mesh has %d (%s); both have to span the same ranks",
			expert_product, words.axes(experts), product, words.axes(layout))
	end
	if stride_of(layout, "ep") then
		fail(what, "'ep=%d': with an experts' mesh the axis ep belongs there", select(2, stride_of(layout, "ep")))
	end
	local dense_stride, dense_stages = stride_of(layout, "pp")
	local stride, stages = stride_of(experts, "pp")
	-- A layer's experts have to live on the ranks of the layer's stage.
	if dense_stages ~= stages or (stages and stages > 1 and dense_stride ~= stride) then
		fail(what, "the experts' mesh (%s) has to repeat the axis pp of the mesh (%s) in the same place",
			words.axes(experts), words.axes(layout))
	end
	return experts
end

local function check_groups(what, layout)
	if layout.hpz and layout.mics then
		fail(what, "'hpz=%d' and 'mics=%d' exclude each other", layout.hpz, layout.mics)
	end
	local key = layout.hpz and "hpz" or layout.mics and "mics"
	if not key then return end
	local size = layout[key]
	if layout.zero ~= 3 then
		fail(what, "'%s=%d' needs zero=3, found zero=%d", key, size, layout.zero)
	end
	local group = product_of(layout, { "dp", "ep", "cp" })
	if group % size ~= 0 then
		fail(what, "'%s=%d' does not divide the ZeRO group of %d ranks (%s)", key, size, group, words.axes(layout))
	end
	if layout.experts then
		local expert_group = product_of(layout.experts, { "edp" })
		if expert_group % size ~= 0 then
			fail(what, "'%s=%d' does not divide the experts' ZeRO group of %d ranks (%s)", key, size, expert_group,
				words.axes(layout.experts))
		end
	end
end

local function check_layers(what, layout)
	local counts = layout.layers
	local _, stages = stride_of(layout, "pp")
	if type(counts) ~= "table" then fail(what, "layers has to be a list of layer counts, one for each pipeline stage") end
	local copy = {}
	for stage, count in ipairs(counts) do
		check_range(what, "layers", count, 0, MAX_INT)
		copy[stage] = count
	end
	if not stages then fail(what, "'layers=%s' needs the axis pp", table.concat(copy, "+")) end
	if #copy ~= stages then
		fail(what, "'layers=%s' gives %d stages, pp=%d", table.concat(copy, "+"), #copy, stages)
	end
	return copy
end

--- A checked copy of a layout table with the defaults filled in. `what` begins every message.
function M.check(value, what)
	what = what or "layout table"
	if type(value) ~= "table" then
		fail(what, "a layout is a string or a table, found %s", type(value))
	end
	if value.full then
		for key in pairs(value) do
			--- A checked table comes back with its defaults.
			if key ~= "full" and value[key] ~= DEFAULTS[key] then
				fail(what, "'full' stands alone, found '%s' beside it", tostring(key))
			end
		end
		return { full = true, zero = 0, base = 0, style = "autotp" }
	end
	local known = concat_lists(OPTIONS, { "experts", "full" })
	local keys = {}
	for key in pairs(value) do
		if type(key) == "string" then
			keys[#keys + 1] = key
		elseif value[key] ~= nil and not (is_integer(key) and key >= 1 and key <= #value) then
			fail(what, "key %s fits neither the list of axes nor the options", tostring(key))
		end
	end
	table.sort(keys)
	for _, key in ipairs(keys) do
		if not contains(known, key) then
			if contains(AXES, key) then
				fail(what, "axis '%s' has to stand in the list, outermost first: { {\"%s\", %s}, … }", key, key,
					tostring(value[key]))
			end
			fail_unknown(what, key .. "=" .. tostring(value[key]), key, known)
		end
	end
	local layout, product = check_axes(what, value, AXES, "")
	if #layout == 0 then
		fail(what, "no axis; write 'full' or at least one of %s", table.concat(AXES, ", "))
	end
	for _, key in ipairs(OPTIONS) do
		local option = value[key]
		if option == nil then option = DEFAULTS[key] end
		if option ~= nil and NUMBERS[key] then check_range(what, key, option, NUMBERS[key][1], NUMBERS[key][2]) end
		layout[key] = option
	end
	if not contains(STYLES, layout.style) then
		fail(what, "'style=%s': style is one of %s%s", tostring(layout.style), table.concat(STYLES, ", "),
			words.suggestion(tostring(layout.style), STYLES))
	end
	if layout.base + product - 1 > MAX_INT then
		fail(what, "'base=%d': the last of %d ranks would be %s, allowed are ranks up to %d", layout.base, product,
			words.number(layout.base + product - 1), MAX_INT)
	end
	if layout.layers ~= nil then layout.layers = check_layers(what, layout) end
	if value.experts ~= nil then
		if type(value.experts) ~= "table" then
			fail(what, "experts has to be a list of axes, found %s", type(value.experts))
		end
		layout.experts = value.experts
		layout.experts = check_experts(what, layout, product)
	end
	check_groups(what, layout)
	return layout
end

local function split(text, separator)
	local out, from = {}, 1
	while true do
		local at = text:find(separator, from, true)
		out[#out + 1] = text:sub(from, at and at - 1):match("^%s*(.-)%s*$")
		if not at then return out end
		from = at + 1
	end
end

local function parse_number(what, word, key, digits)
	if not digits:match("^%-?%d+$") then
		fail(what, "'%s': %s has to be a whole number, found '%s'", word, key, digits)
	end
	return tonumber(digits)
end

local function parse_words(what, section, known, layout)
	for _, word in ipairs(split(section, ",")) do
		local key, value = word:match("^([^=]*)=(.*)$")
		if not key or key == "" or value == "" then
			fail(what, "'%s' is no key=value; known keys are %s", word, table.concat(known, ", "))
		end
		key, value = key:match("^%s*(.-)%s*$"), value:match("^%s*(.-)%s*$")
		if not contains(known, key) then fail_unknown(what, word, key, known) end
		if contains(OPTIONS, key) then
			if layout[key] ~= nil then fail(what, "'%s': %s is given twice", word, key) end
			if key == "style" then
				layout.style = value
			elseif key == "layers" then
				layout.layers = {}
				for _, count in ipairs(split(value, "+")) do
					layout.layers[#layout.layers + 1] = parse_number(what, word, key, count)
				end
			else
				layout[key] = parse_number(what, word, key, value)
			end
		else
			layout[#layout + 1] = { key, parse_number(what, word, key, value) }
		end
	end
end

--- The checked table of a layout string.
function M.parse(text)
	if type(text) ~= "string" then fail("layout string", "has to be a string, found %s", type(text)) end
	local what = ("layout '%s'"):format(words.shorten(text, 200))
	local known = concat_lists(AXES, OPTIONS)
	if text:match("^%s*full%s*$") then return M.check({ full = true }, what) end
	local layout = {}
	for index, section in ipairs(split(text, ";")) do
		if index == 1 then
			parse_words(what, section, known, layout)
		else
			local name, axes = section:match("^(%w*):(.*)$")
			if name ~= "experts" then
				fail(what, "';%s': after ';' comes the experts' mesh, as in ';experts:edp=2,ep=8'", section)
			end
			if layout.experts then fail(what, "';%s': the experts' mesh is given twice", section) end
			layout.experts = {}
			parse_words(what, axes, EXPERT_AXES, layout.experts)
		end
	end
	return M.check(layout, what)
end

--- A string that parses to the same table; options at their defaults are left out.
function M.format(value)
	local layout = M.check(value)
	if layout.full then return "full" end
	local parts = { words.axes(layout) }
	for _, key in ipairs(OPTIONS) do
		local option = layout[key]
		if option ~= nil and option ~= DEFAULTS[key] then
			if key == "layers" then option = table.concat(option, "+") end
			parts[#parts + 1] = key .. "=" .. option
		end
	end
	local text = table.concat(parts, ",")
	if layout.experts then text = text .. ";experts:" .. words.axes(layout.experts) end
	return text
end

--- A checked table from a string or a table.
function M.of(value)
	if type(value) == "string" then return M.parse(value) end
	return M.check(value)
end

--- First rank and number of ranks of a checked table.
function M.ranks(layout)
	local product = 1
	for _, axis in ipairs(layout) do product = product * axis[2] end
	return layout.base, product
end

return M
