-- Applies rules to a model's parameters under one layout. What comes out is plain data (a *description*) that
-- says of every parameter where it lies, without the rules and the configuration that led there:
--
--   { layout = "dp=2,tp=2,zero=3",
--     meshes = { { base = 0, axes = { {"dp", 2}, {"tp", 2} } } },
--     params = { { name =, dtype = "BF16", shape = {…}, mesh = 1, scale = (1),
--       zero_axes = { "dp" }, zero_group = (all),
--       placements = { { kind = "shard", axis = "tp", dim = 0, parts = { { size =, units =, cut =, padded = } } },
--                      { kind = "shard", …, extents = {…} }, { kind = "owner", axis = "pp", at = 1 } } } } }

local ema = require "zcc.ema"
local facts = require "zcc.facts"
local fault = require "zcc.error"
local layout_string = require "zcc.layout_string"
local words = require "zcc.words"

local M = {}

local function fail(param, format, ...)
	fault.raise("ZCC_ELAYOUT", "parameter '%s': %s", param.name, format:format(...))
end

local function size_of(axes, name)
	for _, axis in ipairs(axes) do
		if axis[1] == name then return axis[2] end
	end
	return 1
end

-- ---- rules to parameters ----

-- The counters that zcc.ema saves beside its averages: no family knows them, and every rank takes them up whole.
local WHOLE = { replicate = true }

-- The rule of every parameter and what its pattern captured; all that no rule matches are named together.
local function match_rules(rules, params, default)
	local matched, captured, missing = {}, {}, {}
	for index, param in ipairs(params) do
		if param.name == ema.COUNTERS then matched[index] = WHOLE end
		for _, rule in ipairs(matched[index] and {} or rules.rules) do
			for i = 1, #rule do
				local from, _, capture = param.name:find(rule[i])
				if from then
					matched[index], captured[index] = rule, capture
					break
				end
			end
			if matched[index] then break end
		end
		if not matched[index] then missing[#missing + 1] = param.name end
	end
	if #missing > 0 and (default or rules.default) ~= "replicate" then
		fault.raise("ZCC_ELAYOUT", "%d of %d parameters match no rule of %s:\n%s\ngive rules for them, or "
			.. "--default replicate to keep them whole on every rank", #missing, #params,
			rules.name or "the rules", words.listing(missing, 10))
	end
	return matched, captured
end

-- ---- pipeline stages ----

local function count_layers(rules, params)
	local layers, count = {}, 0
	for index, param in ipairs(params) do
		local layer = rules.layers and tonumber((param.name:match(rules.layers)))
		layers[index] = layer
		if layer then count = math.max(count, layer + 1) end
	end
	return layers, count
end

-- How many layers each stage has: as even as possible, the first stages one more; or as the layout says.
local function stage_counts(layout, stages, layers)
	if layout.layers then
		local sum = 0
		for _, count in ipairs(layout.layers) do sum = sum + count end
		if sum ~= layers then
			fault.raise("ZCC_ELAYOUT", "layers=%s adds up to %d layers, the model has %d",
				table.concat(layout.layers, "+"), sum, layers)
		end
		return layout.layers
	end
	if stages > layers then
		fault.raise("ZCC_ELAYOUT", "pp=%d has more stages than the model has layers (%d)", stages, layers)
	end
	local counts = {}
	for stage = 1, stages do
		counts[stage] = math.floor(layers / stages) + (stage <= layers % stages and 1 or 0)
	end
	return counts
end

-- A function from a parameter to its pipeline stage; nil where the layout has no pipeline.
local function stage_finder(layout, rules, params)
	local stages = size_of(layout, "pp")
	if stages == 1 then return nil end
	local layers, total = count_layers(rules, params)
	local stage_of_layer = {}
	for stage, count in ipairs(stage_counts(layout, stages, total)) do
		for _ = 1, count do stage_of_layer[#stage_of_layer + 1] = stage - 1 end
	end
	return function(index, rule)
		if layers[index] then return stage_of_layer[layers[index] + 1] end
		local side = rule and (rule.stage or rule.input and "first")
		if not side then
			fail(params[index], "is in no layer, and its rule does not say which pipeline stage has it "
				.. "(stage = \"first\" or \"last\"), which pp=%d needs", stages)
		end
		return side == "first" and 0 or stages - 1
	end
end

-- ---- cuts ----

local function axis_extent(param, axis)
	local extent = param.shape[axis + 1]
	if not extent then
		fail(param, "shape %s has no axis %d, which its rule cuts", words.shape(param.shape), axis)
	end
	return extent
end

-- One part of an axis: its size, units and kind of cut, checked against the number of shares.
local function make_part(context, param, axis, size, rule)
	local tp = context.tp
	local where = ("parameter '%s', axis %d"):format(param.name, axis)
	local units, label = size, ("%s elements"):format(words.number(size))
	if rule.units then
		units, label = facts.evaluate(context.facts, rule.units, where .. ": units")
		label = ("%s units (%s)"):format(words.number(units), label)
		if units == 0 or size % units ~= 0 then
			fail(param, "axis %d has %s elements, which %s do not divide", axis, words.number(size), label)
		end
	end
	if rule.replicate then return { size = size, units = units, cut = "replicate" } end
	if rule.uneven then return { size = size, units = units, cut = "uneven" } end
	if rule.grouped then
		if units % tp ~= 0 and tp % units ~= 0 then
			fail(param, "axis %d has %s; neither does tp=%d divide them nor do they divide it", axis, label, tp)
		end
		return { size = size, units = units, cut = "grouped" }
	end
	if units % tp ~= 0 then fail(param, "axis %d has %s, which tp=%d does not divide", axis, label, tp) end
	return { size = size, units = units, cut = "even" }
end

local function fused_parts(context, param, axis, rule, extent)
	local parts, sum, sizes = {}, 0, {}
	for index, part in ipairs(rule.parts) do
		local size = facts.evaluate(context.facts, part[1],
			("parameter '%s', axis %d: size of part %d"):format(param.name, axis, index))
		parts[index] = make_part(context, param, axis, size, part)
		sum, sizes[index] = sum + size, words.number(size)
	end
	if sum ~= extent then
		fail(param, "the parts of axis %d (%s) add up to %s, the axis has %s", axis,
			table.concat(sizes, " + "), words.number(sum), words.number(extent))
	end
	return parts
end

local function given_extents(context, param, axis, rule, extent)
	local extents = rule.extents
	if type(extents) == "function" then extents = extents(context.facts, context.tp) end
	local sum, copy = 0, {}
	for index, value in ipairs(type(extents) == "table" and extents or {}) do
		copy[index] = facts.evaluate(context.facts, value,
			("parameter '%s', axis %d: extent %d"):format(param.name, axis, index))
		sum = sum + copy[index]
	end
	if #copy ~= context.tp or sum ~= extent then
		fail(param, "the extents %s of axis %d are %d shares of %s elements, needed are tp=%d shares of %s",
			words.shape(copy), axis, #copy, words.number(sum), context.tp, words.number(extent))
	end
	return copy
end

local function vocabulary_part(context, param, axis, extent)
	local tp, multiple = context.tp, context.layout.vocab_pad
	if multiple then
		local step = multiple * tp
		local padded = math.ceil(extent / step) * step
		return { size = extent, units = extent, cut = "even", padded = padded > extent and padded or nil }
	end
	if extent % tp ~= 0 then
		fail(param, "axis %d is a vocabulary of %s, which tp=%d does not divide; vocab_pad=1 in the layout pads it "
			.. "to %s", axis, words.number(extent), tp, words.number(math.ceil(extent / tp) * tp))
	end
	return { size = extent, units = extent, cut = "even" }
end

-- What tensor parallelism does to a parameter: a placement, or nil where every rank has the whole.
local function tensor_placement(context, param, rule)
	local axis = rule.cut or rule.vocab
	if not axis then return nil end
	local extent = axis_extent(param, axis)
	local placement = { kind = "shard", axis = "tp", dim = axis }
	if rule.vocab then
		if rule.input and context.layout.style == "autotp" then return nil end
		local part = vocabulary_part(context, param, axis, extent)
		if context.tp == 1 and not part.padded then return nil end
		placement.parts = { part }
		return placement
	end
	if context.tp == 1 then return nil end
	if rule.extents then
		placement.extents = given_extents(context, param, axis, rule, extent)
	elseif rule.parts then
		placement.parts = fused_parts(context, param, axis, rule, extent)
	else
		placement.parts = { make_part(context, param, axis, extent, rule) }
	end
	return placement
end

-- ---- experts ----

-- nil where no rule speaks of experts.
local function count_experts(model, matched, captured, params)
	local count, present = 0, false
	for index, rule in pairs(matched) do
		if rule.expert then
			local number = tonumber(captured[index])
			if not number then
				fail(params[index], "its rule captured '%s' where an expert's number belongs", tostring(captured[index]))
			end
			present = true
			count = math.max(count, number + 1)
		elseif rule.expert_axis then
			present = true
			count = math.max(count, axis_extent(params[index], rule.expert_axis))
		end
	end
	if not present then return nil end
	-- The names show at least this many; a config.json that says more means that some are missing, which must
	-- not shift the rest.
	local ok, declared = pcall(function() return model.num_experts end)
	return math.max(count, ok and declared or 1)
end

local function expert_placement(context, param, rule, capture)
	local ep = context.ep
	if ep == 1 then return nil end
	if rule.expert_axis then
		local extent = axis_extent(param, rule.expert_axis)
		if extent % ep ~= 0 then
			fail(param, "axis %d has %s experts, which ep=%d does not divide", rule.expert_axis, words.number(extent), ep)
		end
		return { kind = "shard", axis = "ep", dim = rule.expert_axis,
			parts = { { size = extent, units = extent, cut = "even" } } }
	end
	return { kind = "owner", axis = "ep", at = math.floor(tonumber(capture) * ep / context.experts) }
end

-- ---- meshes and ZeRO groups ----

-- What is the same for all parameters of one mesh.
local function make_context(layout, axes, mesh, group_names, model, what)
	local zero_axes, group = {}, 1
	if layout.zero == 3 then
		for _, axis in ipairs(axes) do
			for _, name in ipairs(group_names) do
				if axis[1] == name then
					zero_axes[#zero_axes + 1] = name
					group = group * axis[2]
				end
			end
		end
	end
	local sub_group = layout.hpz or layout.mics
	if sub_group and #zero_axes > 0 and group % sub_group ~= 0 then
		fault.raise("ZCC_ELAYOUT", "%s=%d does not divide the ZeRO group of %d ranks that %s has (%s)",
			layout.hpz and "hpz" or "mics", sub_group, group, what, words.axes(axes))
	end
	return {
		layout = layout, mesh = mesh, facts = model, tp = size_of(axes, "tp"), ep = size_of(axes, "ep"),
		zero_axes = #zero_axes > 0 and zero_axes or nil, zero_group = #zero_axes > 0 and sub_group or nil,
	}
end

local function make_meshes(layout)
	local axes = {}
	for index, axis in ipairs(layout) do axes[index] = { axis[1], axis[2] } end
	if layout.full then axes[1] = { "dp", 1 } end
	-- Padding belongs to the cut of the vocabulary, even into one share.
	if layout.vocab_pad and size_of(axes, "tp") == 1 then
		local has_tp = false
		for _, axis in ipairs(axes) do has_tp = has_tp or axis[1] == "tp" end
		if not has_tp then axes[#axes + 1] = { "tp", 1 } end
	end
	local meshes = { { base = layout.base, axes = axes } }
	if layout.experts then meshes[2] = { base = layout.base, axes = layout.experts } end
	return meshes
end

local function expert_context(layout, meshes, model, experts)
	local ep = size_of(layout.experts or layout, "ep")
	if ep > 1 and not experts then
		fault.raise("ZCC_ELAYOUT", "ep=%d, but by its rules the model has no experts", ep)
	end
	if not experts then return nil end
	if experts % ep ~= 0 then
		fault.raise("ZCC_ELAYOUT", "ep=%d does not divide the model's %d experts", ep, experts)
	end
	local context
	if layout.experts then
		context = make_context(layout, meshes[2].axes, 2, { "edp" }, model, "an expert")
	else
		context = make_context(layout, meshes[1].axes, 1, { "dp", "cp" }, model, "an expert")
	end
	context.experts = experts
	return context
end

-- ---- all together ----

local function stored_scale(context, rule)
	local scale = rule and rule.scale
	if type(scale) == "function" then return scale(context.facts, context.tp) end
	return scale
end

--- The description of a model's parameters under a layout (a string or a table). Options: config = decoded
--- config.json, default = "replicate".
function M.resolve(layout, params, rules, options)
	options = options or {}
	layout = layout_string.of(layout)
	local description = { layout = layout_string.format(layout), meshes = make_meshes(layout), params = {} }
	local model = facts.new(rules, params, options.config)
	local matched, captured = {}, {}
	-- Without a cut nothing is asked of the rules, and any checkpoint can be read or written whole.
	if not layout.full then matched, captured = match_rules(rules, params, options.default) end
	local experts = count_experts(model, matched, captured, params)
	local dense = make_context(layout, description.meshes[1].axes, 1, { "dp", "ep", "cp" }, model, "a parameter")
	local expert = expert_context(layout, description.meshes, model, experts)
	local stage_of = stage_finder(layout, rules, params)
	for index, param in ipairs(params) do
		local rule = matched[index]
		local placements = {}
		local is_expert = rule and (rule.expert or rule.expert_axis)
		local context = is_expert and expert or dense
		local is_cut = rule ~= WHOLE
		if stage_of and is_cut then placements[1] = { kind = "owner", axis = "pp", at = stage_of(index, rule) } end
		if is_expert then placements[#placements + 1] = expert_placement(context, param, rule, captured[index]) end
		if rule then placements[#placements + 1] = tensor_placement(context, param, rule) end
		description.params[index] = {
			name = param.name, dtype = param.dtype, shape = param.shape, mesh = context.mesh,
			scale = stored_scale(context, rule), placements = #placements > 0 and placements or nil,
			zero_axes = is_cut and context.zero_axes or nil, zero_group = is_cut and context.zero_group or nil,
		}
	end
	return description
end

return M
