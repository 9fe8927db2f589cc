-- Benches: recipes that measure. Each case gives one row; the limit it is held against is measured in the same
-- run, because machines differ and are noisy.

local clock = require "zcc.clock"
local fault = require "zcc.error"
local json = require "zcc.json"
local recipe = require "zcc.recipe"
local zffi = require "zcc.ffi"

local M = {}

--- The median seconds of each of the functions; they take turns, so that what disturbs one disturbs all. Each runs once
--- more before, to warm up.
function M.medians(times, fns)
	local seconds, medians = {}, {}
	for k, fn in ipairs(fns) do
		seconds[k] = {}
		fn()
	end
	for i = 1, times do
		for k, fn in ipairs(fns) do
			local watch = clock.stopwatch()
			fn()
			seconds[k][i] = watch()
		end
	end
	for k, list in ipairs(seconds) do
		table.sort(list)
		medians[k] = (list[math.floor((times + 1) / 2)] + list[math.floor(times / 2) + 1]) / 2
	end
	return medians
end

--- The median of times of fn(), in seconds; fn runs once more before, to warm up.
function M.median(times, fn)
	return M.medians(times, { fn })[1]
end

--- From here on peak_memory counts anew. Linux lets a process do so for itself.
function M.reset_peak_memory()
	local file = io.open("/proc/self/clear_refs", "w")
	if file then
		file:write("5")
		file:close()
	end
end

--- The most memory that this process has had in use, in bytes (VmHWM of Linux).
function M.peak_memory()
	for line in io.lines("/proc/self/status") do
		local kib = line:match("^VmHWM:%s*(%d+) kB")
		if kib then
			return tonumber(kib) * 1024
		end
	end
	fault.raise("ZCC_EIO", "/proc/self/status has no VmHWM")
end

-- 4 MiB that are ordinary numbers as f32, bf16 and f16.
local function number_bytes()
	local words = {}
	for i = 1, 2^14 do
		words[i] = string.char(math.random(0, 255), 0x3d, math.random(0, 255), 0x3f)
	end
	return table.concat(words):rep(2^6)
end

--- Fills a buffer of that device or of the host with ordinary numbers, whether it holds f32, bf16 or f16: arithmetic on
--- what is no number, or too small for one, takes another time than on weights.
function M.fill_numbers(device, buffer)
	local stream, unit = device:stream(), device:pinned(2^22)
	unit:write(number_bytes())
	for at = 0, buffer.bytes - 1, unit.bytes do
		stream:copy(buffer, unit, { bytes = math.min(unit.bytes, buffer.bytes - at), target_offset = at })
	end
	stream:wait()
	stream:close()
	unit:close()
end

-- The row of DESIGN section 10. measured: value, unit, limit (same unit, or nil), target for the ratio value/limit
-- (without a limit for the value), at_most = true where less is better.
local function row(name, measured)
	local ratio = measured.limit and measured.value / measured.limit
	local reached = ratio or measured.value
	local ok
	if measured.target then
		ok = measured.at_most and reached <= measured.target or not measured.at_most and reached >= measured.target
	end
	return { name = name, value = measured.value, unit = measured.unit, limit = measured.limit, ratio = ratio,
		target = measured.target, at_most = measured.at_most, ok = ok }
end

local function number(value)
	if value == nil then
		return "-"
	end
	return value % 1 == 0 and ("%.0f"):format(value) or ("%.3g"):format(value)
end

-- The format of a line; names get what the longest one needs.
local function columns(cases)
	local width = 0
	for _, case in ipairs(cases) do
		width = math.max(width, #case.name)
	end
	return ("%%-%ds %%12s %%-6s %%12s %%8s %%9s %%5s"):format(math.min(width, 99))
end

local function print_row(line, r)
	print(line:format(r.name, number(r.value), r.unit, number(r.limit), r.ratio and ("%.2f"):format(r.ratio) or "-",
		r.target and (r.at_most and "<= " or ">= ") .. number(r.target) or "-", r.ok == nil and "-" or r.ok
			and "yes" or "NO"))
end

local function ordered(r)
	local null = json.null
	return json.ordered { { "name", r.name }, { "value", r.value }, { "unit", r.unit }, { "limit", r.limit or null },
		{ "ratio", r.ratio or null }, { "target", r.target or null }, { "ok", r.ok == nil and null or r.ok } }
end

-- The cases that a filter matches: at least one.
local function chosen(cases, filter)
	local list, names = {}, {}
	for i, case in ipairs(cases) do
		local ok, found = pcall(string.find, case.name, filter or "")
		if not ok then
			fault.misuse("--filter: '%s' is no Lua pattern: %s", filter, found)
		elseif found then
			list[#list + 1] = case
		end
		names[i] = case.name
	end
	if #list == 0 then
		fault.misuse("--filter: '%s' matches none of the cases:\n  %s", filter, table.concat(names, "\n  "))
	end
	return list
end

--- A recipe of the cases { name =, run = function(ctx) return measured end }, in order; a case may return nil after
--- ctx.say has told why. Every process runs every case.
function M.recipe(options)
	return recipe {
		name = options.name,
		about = options.about,
		args = {
			{ flag = "--filter", type = "string", value = "pattern",
				about = "only the cases whose name this Lua pattern matches" },
			{ flag = "--report", type = "string", value = "file", about = "write the rows as JSON" },
		},
		run = function(ctx)
			local cases = chosen(options.cases, ctx.args.filter)
			local build = zffi.string(zffi.lib.zcc_build_type())
			if build ~= "Release" then
				fault.misuse("a bench needs a Release build, this is %s", build)
			end
			local rows, line = json.array {}, columns(options.cases)
			if ctx.comm.rank == 0 then
				print(line:format("", "value", "unit", "limit", "ratio", "target", "ok"))
			end
			for _, case in ipairs(cases) do
				local measured = case.run(ctx)
				if measured and ctx.comm.rank == 0 then
					local r = row(case.name, measured)
					print_row(line, r)
					rows[#rows + 1] = ordered(r)
				end
			end
			if ctx.args.report and ctx.comm.rank == 0 then
				json.encode_file(ctx.args.report, rows, { indent = 2 })
			end
		end,
	}
end

return M
