-- Policies: which holder every region is read from. A policy is a table, mostly from a Lua file of its own
-- (policies/):
--
--   { name = "mine", select = function(region, holders, load) … return i end }
--
-- Called once for every region that a target rank wants, in an order that is the same on every process:
--   region.param   name of the parameter          region.target  rank that wants it
--   region.shape   extents, in elements           region.origin  its first element's place in the parameter, from 0
--   region.elems   number of elements             region.bytes   the same in bytes, as the source stores them
--   holders[i]     source ranks that hold it, ascending, i from 1
--   load[rank]     bytes that this source rank has been chosen to send to other ranks so far
-- and returns i. The tables are used again for the next region. A file runs without files, clock, chance and
-- FFI: every process has to come to the same answers.

local fault = require "zcc.error"
local paths = require "zcc.paths"
local sandbox = require "zcc.sandbox"
local words = require "zcc.words"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local function check(policy, where)
	if type(policy) ~= "table" or type(policy.select) ~= "function" then
		fault.raise("ZCC_EPOLICY", "policy %s: needs a function 'select'", where)
	end
	if policy.name ~= nil and type(policy.name) ~= "string" then
		fault.raise("ZCC_EPOLICY", "policy %s: its name has to be a string, found %s", where, type(policy.name))
	end
	-- A copy: the table itself stays the user's.
	return { name = policy.name or where, select = policy.select }
end

--- The policy that is meant: a file, the name of one in policies/ ("balanced"), or a table.
function M.of(policy)
	if type(policy) == "table" then return check(policy, policy.name or "table") end
	if type(policy) ~= "string" then
		fault.raise("ZCC_EINVAL", "a policy is a name, a file or a table, found %s", type(policy))
	end
	local path, tried = paths.find("policies", policy)
	if not path then
		fault.raise("ZCC_EINVAL", "policy '%s' is not known%s; looked for %s", policy,
			words.suggestion(policy, { "balanced", "lowest" }), table.concat(tried, ", "))
	end
	return check(sandbox.load(path, "policy"), path)
end

-- Asks about every region in order. Returns nothing, or what was returned instead of a valid index and how many
-- holders there were. Runs compiled: no table, closure or string is made for a region.
local function ask(select, regions, n_regions, names, ndims, holder_lists, axis_lists, load, progress, plan, err)
	local region = { param = "", target = 0, elems = 0, bytes = 0 }
	for i = 0, n_regions - 1 do
		local asked = regions[i]
		local count, bytes = asked.n_holders, tonumber(asked.bytes)
		local target, param = asked.target_rank, asked.param + 1
		local holders, axes = holder_lists[count], axis_lists[ndims[param]]
		local shape, origin = axes.shape, axes.origin
		progress.region = i
		for k = 1, count do holders[k] = asked.holders[k - 1] end
		for k = 1, ndims[param] do
			shape[k], origin[k] = tonumber(asked.shape_elems[k - 1]), tonumber(asked.origin_elems[k - 1])
		end
		region.param, region.target, region.elems, region.bytes = names[param], target, tonumber(asked.elems), bytes
		region.shape, region.origin = shape, origin
		local choice = select(region, holders, load)
		if type(choice) ~= "number" or choice < 1 or choice > count or choice % 1 ~= 0 then return choice, count end
		local source = asked.holders[choice - 1]
		if source ~= target then load[source] = load[source] + bytes end
		if lib.zcc_plan_choose(plan, i, choice - 1, err) ~= 0 then zffi.check(err.status, err) end
	end
end

-- Lists of every length that occurs, made before the loop so that #holders is right and nothing is made inside
-- it.
local function make_lists(regions, n_regions)
	local holders = {}
	for i = 0, n_regions - 1 do
		local count = regions[i].n_holders
		if not holders[count] then
			holders[count] = {}
			for k = 1, count do holders[count][k] = 0 end
		end
	end
	local axes = {}
	for ndim = 0, lib.ZCC_MAX_NDIM do
		axes[ndim] = { shape = {}, origin = {} }
		for k = 1, ndim do axes[ndim].shape[k], axes[ndim].origin[k] = 0, 0 end
	end
	return holders, axes
end

local function describe(region, names, ndims)
	local shape, origin = {}, {}
	for k = 1, ndims[region.param + 1] do
		shape[k], origin[k] = zffi.number(region.shape_elems[k - 1]), zffi.number(region.origin_elems[k - 1])
	end
	return ("parameter '%s', target rank %d, region of shape %s at %s"):format(names[region.param + 1], region.target_rank,
		words.shape(shape), words.shape(origin))
end

-- "file:line" of the innermost frame that belongs to the file in which the policy's function stands.
local function place_in(source)
	for level = 2, 100 do
		local info = debug.getinfo(level, "Sl")
		if not info then return nil end
		if info.source == source and info.currentline > 0 then
			return ("%s:%d"):format(source:gsub("^[@=]", ""), info.currentline)
		end
	end
end

--- Asks `policy` (from M.of) about every region of a zcc_plan and notes its choices there. `params` are the
--- target layout's parameters, `ranks` the source layout's ranks.
function M.choose(policy, plan, params, ranks)
	local count = ffi.new("int64_t[1]")
	local regions = lib.zcc_plan_regions(plan, count)
	local n_regions = zffi.number(count[0])
	local names, ndims, load = {}, {}, {}
	for i, param in ipairs(params) do names[i], ndims[i] = param.name, #param.shape end
	for _, rank in ipairs(ranks) do load[rank] = 0 end
	local holder_lists, axis_lists = make_lists(regions, n_regions)
	local progress = { region = 0 }
	local info = debug.getinfo(policy.select, "S")
	local ok, answer, limit = xpcall(function()
		return ask(policy.select, regions, n_regions, names, ndims, holder_lists, axis_lists, load, progress,
			plan, zffi.new_error())
	end, function(message)
		if fault.is(message) then return message end
		local place, text = place_in(info.source), tostring(message)
		if place and text:sub(1, #place + 2) == place .. ": " then text = text:sub(#place + 3) end
		return { place = place or info.source:gsub("^[@=]", ""), text = text }
	end)
	if ok and limit == nil then return end
	if not ok and fault.is(answer) then error(answer, 0) end
	local region = regions[progress.region]
	if not ok then
		fault.raise("ZCC_EPOLICY", "policy %s: %s: %s (%s)", policy.name, answer.place, answer.text,
			describe(region, names, ndims))
	end
	local holders = {}
	for k = 1, limit do holders[k] = region.holders[k - 1] end
	fault.raise("ZCC_EPOLICY", "policy %s: %s:%d: returned %s for %s; it has %d holders (ranks %s), allowed are 1 "
		.. "to %d", policy.name, (info.source:gsub("^[@=]", "")), info.linedefined, tostring(answer),
		describe(region, names, ndims), limit, table.concat(holders, ", "), limit)
end

return M
