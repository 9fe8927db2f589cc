-- Layouts and plans: objects over zcc/affine.h. Parameters are numbered from 1, axes from 0, ranks are what they
-- are in the layout.

local fault = require "zcc.error"
local json = require "zcc.json"
local layout_string = require "zcc.layout_string"
local object = require "zcc.object"
local placement = require "zcc.placement"
local policies = require "zcc.policy"
local words = require "zcc.words"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local MAX_NDIM = lib.ZCC_MAX_NDIM
local CUTS = {
	even = lib.ZCC_CUT_EVEN, uneven = lib.ZCC_CUT_UNEVEN, replicate = lib.ZCC_CUT_REPLICATE, grouped = lib.ZCC_CUT_GROUPED,
}

local function list_of(values, count)
	local list = {}
	for i = 1, count do list[i] = zffi.number(values[i - 1]) end
	return list
end

-- ---- descriptions to the engine ----

-- A description may come from a file, so nothing in it is taken for granted.
local function expect(condition, what, format, ...)
	if not condition then fault.raise("ZCC_EFORMAT", "%s: %s", what, format:format(...)) end
end

local function is_count(value)
	return type(value) == "number" and value >= 0 and value % 1 == 0 and value <= 2 ^ 53
end

local function is_int32(value)
	return is_count(value) and value <= 2147483647
end

-- Memory for the variable parts of one zcc_param_options, used again for every parameter and grown where it is
-- too small.
local function new_scratch()
	local scratch = {
		options = ffi.new("zcc_param_options"), shape = ffi.new("int64_t[?]", MAX_NDIM),
			zero_axes = ffi.new("int32_t[?]", MAX_NDIM),
		index = ffi.new("int32_t[1]"), err = zffi.new_error(), capacity = 0,
	}
	lib.zcc_param_options_init(scratch.options)
	return scratch
end

local function reserve(scratch, placements, what)
	local needed = #placements
	for i, item in ipairs(placements) do
		expect(type(item) == "table", what, "placement %d is no table", i)
		needed = math.max(needed, type(item.parts) == "table" and #item.parts or 0,
			type(item.extents) == "table" and #item.extents or 0)
	end
	if needed <= scratch.capacity then return end
	scratch.capacity = needed
	scratch.placements = ffi.new("zcc_placement[?]", needed)
	scratch.parts, scratch.extents = {}, {}
	for i = 1, needed do
		scratch.parts[i] = ffi.new("zcc_part[?]", needed)
		scratch.extents[i] = ffi.new("int64_t[?]", needed)
	end
end

local function fill_parts(out, parts, what)
	for i, part in ipairs(parts) do
		expect(type(part) == "table" and is_count(part.size) and is_count(part.units) and CUTS[part.cut], what,
			"part %d needs size, units and cut (even, uneven, replicate, grouped)", i)
		expect(part.padded == nil or is_count(part.padded), what, "part %d: padded is no number of elements", i)
		local slot = out[i - 1]
		slot.size_elems, slot.units, slot.padded_elems, slot.cut = part.size, part.units, part.padded or 0, CUTS[part.cut]
	end
end

local function fill_placement(scratch, i, item, axis, what)
	local slot = scratch.placements[i - 1]
	ffi.fill(slot, ffi.sizeof(slot))
	slot.axis = axis
	if item.kind == "owner" then
		expect(is_int32(item.at), what, "placement %d: the owner's coordinate 'at' is missing", i)
		slot.kind, slot.owner = lib.ZCC_PLACE_OWNER, item.at
		return
	end
	expect(item.kind == "shard" and is_int32(item.dim), what,
		"placement %d is neither an owner nor a shard of an axis 'dim'", i)
	slot.kind, slot.dim = lib.ZCC_PLACE_SHARD, item.dim
	if type(item.extents) == "table" then
		slot.n_extents, slot.extents = #item.extents, scratch.extents[i]
		for k, extent in ipairs(item.extents) do
			expect(is_count(extent), what, "placement %d: extent %d is no number of elements", i, k)
			scratch.extents[i][k - 1] = extent
		end
		return
	end
	expect(type(item.parts) == "table" and #item.parts > 0, what, "placement %d has neither parts nor extents", i)
	fill_parts(scratch.parts[i], item.parts, what)
	slot.n_parts, slot.parts = #item.parts, scratch.parts[i]
end

local function add_param(layout, scratch, param, meshes, what)
	local mesh = meshes[param.mesh]
	expect(type(param.name) == "string" and type(param.shape) == "table" and mesh, what,
		"a name, a shape or a mesh is missing")
	what = ("%s: parameter '%s'"):format(what, param.name)
	local dtype = type(param.dtype) == "string" and lib.zcc_dtype_parse(param.dtype) or 0
	expect(dtype ~= 0, what, "unknown dtype '%s'", tostring(param.dtype))
	expect(#param.shape <= MAX_NDIM, what, "%d axes, allowed are %d", #param.shape, MAX_NDIM)
	local placements, zero_axes = param.placements or {}, param.zero_axes or {}
	expect(type(placements) == "table" and type(zero_axes) == "table" and #zero_axes <= MAX_NDIM, what,
		"placements or zero_axes is no list")
	reserve(scratch, placements, what)
	for axis, extent in ipairs(param.shape) do
		expect(is_count(extent), what, "extent %s of axis %d", tostring(extent), axis - 1)
		scratch.shape[axis - 1] = extent
	end
	for i, item in ipairs(placements) do
		local axis = mesh.axes[item.axis]
		expect(axis, what, "placement %d names no axis of its mesh", i)
		fill_placement(scratch, i, item, axis, what)
	end
	for i, name in ipairs(zero_axes) do
		expect(mesh.axes[name], what, "zero_axes names no axis of its mesh")
		scratch.zero_axes[i - 1] = mesh.axes[name]
	end
	expect(param.zero_group == nil or is_count(param.zero_group), what, "zero_group is no number of ranks")
	expect(param.scale == nil or type(param.scale) == "number", what, "scale is no number")
	local options, name = scratch.options, param.name
	options.name, options.dtype, options.ndim, options.shape_elems = name, dtype, #param.shape, scratch.shape
	options.mesh, options.placements, options.n_placements = mesh.id, scratch.placements, #placements
	options.cut_axes, options.n_cut_axes, options.cut_group = scratch.zero_axes, #zero_axes, param.zero_group or 0
	options.scale = param.scale or 1
	zffi.check(lib.zcc_layout_add_param(layout, options, scratch.index, scratch.err), scratch.err)
end

local function add_mesh(layout, mesh, what)
	expect(type(mesh) == "table" and is_int32(mesh.base) and type(mesh.axes) == "table" and #mesh.axes > 0, what,
		"a mesh needs a base rank and axes")
	local names, sizes, axes, ranks = {}, ffi.new("int64_t[?]", #mesh.axes), {}, 1
	for i, axis in ipairs(mesh.axes) do
		expect(type(axis) == "table" and type(axis[1]) == "string" and is_count(axis[2]), what,
			"axis %d of a mesh is no {name, size}", i)
		names[i], sizes[i - 1], axes[axis[1]] = axis[1], axis[2], i - 1
		ranks = ranks * axis[2]
	end
	expect(ranks <= layout_string.MAX_RANKS, what, "a mesh of %s ranks, allowed are %d", words.number(ranks),
		layout_string.MAX_RANKS)
	local id, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_layout_add_mesh(layout, mesh.base, #names, table.concat(names, ","), sizes, id, err), err)
	return { id = id[0], axes = axes }
end

-- ---- layouts ----

local Layout = object.class("layout", lib.zcc_layout_destroy)

M.Layout = Layout

--- The layout that a description gives (see zcc.placement). `what` names it in messages.
function Layout.from_description(description, what)
	what = what or "layout description"
	expect(type(description) == "table" and type(description.meshes) == "table"
		and type(description.params) == "table", what, "it needs meshes and params")
	local out, err = ffi.new("zcc_layout *[1]"), zffi.new_error()
	zffi.check(lib.zcc_layout_create(out, err), err)
	local self = object.wrap(Layout, out[0])
	local meshes = {}
	for i, mesh in ipairs(description.meshes) do meshes[i] = add_mesh(out[0], mesh, what) end
	local scratch = new_scratch()
	for _, param in ipairs(description.params) do
		expect(type(param) == "table", what, "a parameter is no table")
		add_param(out[0], scratch, param, meshes, what)
	end
	self.description = description
	return self
end

--- The layout of a model's parameters ({ name =, dtype =, shape = } each) by rules (see zcc.rules); `layout` is a
--- layout string or table. Options: config = decoded config.json, default = "replicate" for parameters that no
--- rule matches.
function Layout.build(layout, params, rules, options)
	return Layout.from_description(placement.resolve(layout, params, rules, options))
end

--- The layout of a map document. `what` names it in messages.
function Layout.from_document(text, what)
	local out, err = ffi.new("zcc_layout *[1]"), zffi.new_error()
	zffi.check(lib.zcc_layout_parse(text, #text, what or "map document", out, err), err)
	return object.wrap(Layout, out[0])
end

--- Plain data from which from_description makes the same layout, without the rules.
function Layout:describe()
	if not self.description then
		fault.raise("ZCC_EINVAL", "a layout read from a map document has no description; its document says all")
	end
	return self.description
end

--- All parameters in order: { name =, dtype =, shape =, elems =, bytes = }. Not to be changed.
function Layout:params()
	local handle = self:pointer()
	if self.param_list then return self.param_list end
	local list, info, err = {}, ffi.new("zcc_param_info"), zffi.new_error()
	for i = 1, lib.zcc_layout_params(handle) do
		zffi.check(lib.zcc_layout_param(handle, i - 1, info, err), err)
		local elems = zffi.number(info.elems)
		list[i] = {
			name = ffi.string(info.name), dtype = ffi.string(lib.zcc_dtype_name(info.dtype)),
			shape = list_of(info.shape_elems, info.ndim), elems = elems, bytes = elems * lib.zcc_dtype_bytes(info.dtype),
		}
	end
	self.param_list = list
	return list
end

--- Number of the parameter with that name; nil where there is none.
function Layout:find(name)
	local index = lib.zcc_layout_find(self:pointer(), name)
	return index >= 0 and index + 1 or nil
end

--- All ranks, ascending. Not to be changed.
function Layout:ranks()
	local handle = self:pointer()
	if not self.rank_list then
		local count = ffi.new("int32_t[1]")
		local ranks = lib.zcc_layout_ranks(handle, count)
		self.rank_list = list_of(ranks, count[0])
	end
	return self.rank_list
end

--- What a rank stores of a parameter: { shape =, elems =, bytes =, pieces = (their number) }; nil where it stores
--- nothing. The shape includes padding.
function Layout:shard(param, rank)
	local info, err = ffi.new("zcc_shard_info"), zffi.new_error()
	zffi.check(lib.zcc_layout_shard(self:pointer(), param - 1, rank, info, err), err)
	if info.present == 0 then return nil end
	local elems = zffi.number(info.elems)
	return {
		shape = list_of(info.shape_elems, info.ndim), elems = elems, pieces = zffi.number(info.n_pieces),
		bytes = elems * lib.zcc_dtype_bytes(lib.zcc_dtype_parse(self:params()[param].dtype)),
	}
end

--- Bytes that the fullest rank stores, padding included. Quick also for thousands of ranks and parameters.
function Layout:largest_rank_bytes()
	local handle, info, err, widths = self:pointer(), ffi.new("zcc_shard_info"), zffi.new_error(), {}
	for index, param in ipairs(self:params()) do
		widths[index] = lib.zcc_dtype_bytes(lib.zcc_dtype_parse(param.dtype))
	end
	local largest = 0
	for _, rank in ipairs(self:ranks()) do
		local bytes = 0
		for index = 1, #widths do
			zffi.check(lib.zcc_layout_shard(handle, index - 1, rank, info, err), err)
			if info.present ~= 0 then bytes = bytes + zffi.number(info.elems) * widths[index] end
		end
		largest = math.max(largest, bytes)
	end
	return largest
end

--- The pieces of a shard: { shape =, origin =, offset =, strides =, holders =, scale = } each; origin counts in
--- the parameter, offset and strides in the shard.
function Layout:pieces(param, rank)
	local handle, count, err = self:pointer(), ffi.new("int64_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_layout_pieces(handle, param - 1, rank, nil, 0, count, err), err)
	local capacity = zffi.number(count[0])
	local pieces = ffi.new("zcc_piece[?]", capacity)
	zffi.check(lib.zcc_layout_pieces(handle, param - 1, rank, pieces, capacity, count, err), err)
	local list = {}
	for i = 1, capacity do
		local piece = pieces[i - 1]
		list[i] = {
			shape = list_of(piece.shape_elems, piece.ndim), origin = list_of(piece.origin_elems, piece.ndim),
			offset = zffi.number(piece.dest_offset_elems), strides = list_of(piece.dest_strides_elems, piece.ndim),
			holders = list_of(piece.holders, piece.n_holders), scale = piece.scale,
		}
	end
	return list
end

--- Pieces of all parameters on all ranks.
function Layout:count_pieces()
	local count, err = ffi.new("int64_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_layout_count_pieces(self:pointer(), count, err), err)
	return zffi.number(count[0])
end

--- Raises where the layout breaks coverage, tiling, agreement or bounds.
function Layout:validate()
	local err = zffi.new_error()
	zffi.check(lib.zcc_layout_validate(self:pointer(), err), err)
end

--- The map document, one line of JSON.
function Layout:document()
	return json.capture(function(writer, err) return lib.zcc_layout_write(self:pointer(), writer, err) end)
end

-- ---- plans ----

local Plan = object.class("plan", lib.zcc_plan_destroy)

M.Plan = Plan

--- The regions that the ranks of layout `target` want from those of layout `source`. Then choose(policy) and
--- build().
function Plan.create(target, source)
	local out, err = ffi.new("zcc_plan *[1]"), zffi.new_error()
	zffi.check(lib.zcc_plan_create(target:pointer(), source:pointer(), out, err), err)
	local self = object.wrap(Plan, out[0])
	self.target_params, self.source_ranks = target:params(), source:ranks()
	return self
end

--- Lets a policy (a name, a file, or a policy as zcc.policy gives it) pick a holder for every region.
function Plan:choose(policy)
	policy = policies.of(policy)
	self.policy = policy.name
	policies.choose(policy, self:pointer(), self.target_params, self.source_ranks)
end

--- Composes the segments; every region must be chosen. Once for a plan.
function Plan:build()
	local err = zffi.new_error()
	zffi.check(lib.zcc_plan_build(self:pointer(), err), err)
end

--- Regions, segments, elems, sent_bytes (between different global ranks), local_bytes.
function Plan:stats()
	local stats, err = ffi.new("zcc_plan_stats"), zffi.new_error()
	zffi.check(lib.zcc_plan_stats_get(self:pointer(), stats, err), err)
	local result = {}
	for _, key in ipairs({ "regions", "segments", "elems", "sent_bytes", "local_bytes" }) do
		result[key] = zffi.number(stats[key], key)
	end
	return result
end

--- 16 hex digits; equal plans give equal digests on every process.
function Plan:digest()
	local digest, err = ffi.new("int64_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_plan_digest(self:pointer(), digest, err), err)
	return zffi.hex(digest[0])
end

--- The plan document, one line of JSON.
function Plan:document()
	return json.capture(function(writer, err) return lib.zcc_plan_write(self:pointer(), writer, err) end)
end

--- A built plan between two layouts by a policy.
function M.plan(target, source, policy)
	local plan = Plan.create(target, source)
	plan:choose(policy)
	plan:build()
	return plan
end

return M
