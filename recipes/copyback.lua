-- The copy-back of one ZeRO-3 optimizer step with an offloaded optimizer: the f32 masters of a rank's sub-groups become
-- low-precision parameters on the device, through two pinned buffers and directly, and both are compared. Every process
-- plays one rank.

local zcc = require "zcc"
local misuse = zcc.error.misuse

-- A model is cut into sub-groups of at most so many elements, and into no fewer than so many.
local SUB_GROUP_ELEMS, SUB_GROUPS = 1e8, 20
-- More of a rank are a slip of the keyboard, and would be a hundred thousand sub-groups.
local MOST_ELEMS = 1e13
local TIMES = 3
local WINDOW_BYTES = 4 * 2^20
-- Casts and copies that are timed alone go through a buffer that stays in a cache, as parts of the staging buffers do.
local SLICE_ELEMS = 2^18

local args = {
	{ flag = "--shapes", type = "string", value = "model",
		about = "a model that zcc knows (qwen3-8b, demo, …) or a shapes document (default: demo)" },
	{ flag = "--elems", type = "int", min = 0, about = "parameters, instead of --shapes" },
	{ flag = "--dp", type = "int", default = 1, min = 1, about = "ranks that ZeRO-3 cuts the model over" },
	{ flag = "--ratio", type = "number", default = 1, min = 0, max = 1,
		about = "share of the sub-groups that live on the host; only those are copied" },
	{ flag = "--dtype", type = "choice", choices = { "bf16", "f16", "f32" }, default = "bf16",
		about = "of the parameters on the device" },
	{ flag = "--buffer-elems", type = "int", default = 2^26, min = 1,
		about = "elements of each of the two staging buffers" },
	{ flag = "--pin", type = "choice", choices = { "yes", "no" }, default = "yes",
		about = "whether to stage through pinned memory" },
	zcc.device.argument,
	{ flag = "--report", type = "string", value = "file", about = "write the report as JSON" },
}

-- ---- what is copied ----

-- The flat shard of a rank in sub-groups; parameters larger than one go on in the next.
local function sub_groups(shards)
	local total = 0
	for _, shard in ipairs(shards) do
		total = total + shard.elems
	end
	if total > MOST_ELEMS then
		misuse("%.0f parameters of a rank; at most %.0f are copied", total, MOST_ELEMS)
	end
	local most, groups = math.min(SUB_GROUP_ELEMS, math.ceil(total / SUB_GROUPS)), {}
	while total > 0 do
		local n = math.min(most, total)
		groups[#groups + 1], total = n, total - n
	end
	return groups
end

-- What the recipe needs of the device and the host for the sub-groups from `first` on.
local function prepare(ctx, device, groups, first)
	local a = ctx.args
	local bytes = zcc.store.dtype_bytes(a.dtype:upper())
	local elems, pieces = 0, {}
	for i = first, #groups do
		pieces[#pieces + 1] = { elems = groups[i], source_offset = elems * 4, target_offset = elems * bytes }
		elems = elems + groups[i]
	end
	local made = { elems = elems, bytes = elems * bytes, elem_bytes = bytes, pieces = pieces, device = device,
		masters = zcc.store.buffer(elems * 4), staged = device:malloc(elems * bytes), direct = device:malloc(elems * bytes) }
	made.masters:fill_random(ctx.comm.rank + 1)
	return made
end

local function pieces_to(made, target)
	local list = {}
	for i, piece in ipairs(made.pieces) do
		list[i] = { target = target, source = made.masters, elems = piece.elems, source_offset = piece.source_offset,
			target_offset = piece.target_offset }
	end
	return list
end

-- ---- what is measured ----

local function time_of(copyback, pieces)
	return zcc.bench.median(TIMES, function() copyback:run(pieces) end)
end

-- Seconds that the slower of casting and copying takes alone: no copy-back can be faster.
local function limit_of(made, options)
	local device, pool = made.device, zcc.pool { device = made.device }
	local buffer = pool:take(SLICE_ELEMS * made.elem_bytes, { unpinned = true })
	local casts, stream, caster = {}, device:stream(), zcc.copyback(options)
	for at = 0, made.elems - 1, SLICE_ELEMS do
		casts[#casts + 1] = { target = buffer, source = made.masters, elems = math.min(SLICE_ELEMS, made.elems - at),
			source_offset = at * 4 }
	end
	local cast = time_of(caster, casts)
	local copy = zcc.bench.median(TIMES, function()
		for i, one in ipairs(casts) do
			stream:copy(made.staged, buffer, { bytes = one.elems * made.elem_bytes,
				target_offset = (i - 1) * SLICE_ELEMS * made.elem_bytes })
		end
		stream:wait()
	end)
	caster:close()
	stream:close()
	buffer:close()
	pool:close()
	return math.max(cast, copy)
end

-- Whether both targets hold the same bytes, window by window.
local function compare(made)
	local stream, pool = made.device:stream(), zcc.pool { device = made.device }
	local a, b = pool:take(WINDOW_BYTES, { unpinned = true }), pool:take(WINDOW_BYTES, { unpinned = true })
	local same = true
	for at = 0, made.bytes - 1, WINDOW_BYTES do
		local bytes = math.min(WINDOW_BYTES, made.bytes - at)
		stream:copy(a, made.staged, { bytes = bytes, source_offset = at })
		stream:copy(b, made.direct, { bytes = bytes, source_offset = at })
		stream:wait()
		same = same and a:read(0, bytes) == b:read(0, bytes)
	end
	stream:close()
	a:close()
	b:close()
	pool:close()
	return same
end

-- ---- the report ----

local function report(device, made, result)
	local ordered = zcc.json.ordered
	return ordered {
		{ "recipe", "copyback" }, { "device", device:name() }, { "elems", made.elems }, { "pieces", #made.pieces },
		{ "paths", ordered { { "staged", result.staged_pieces }, { "direct", result.direct_pieces } } },
		{ "pinned_bytes", result.pinned_bytes }, { "bitwise", result.bitwise },
		{ "seconds", ordered { { "staged", result.staged or zcc.json.null }, { "direct", result.direct },
			{ "limit", result.limit } } },
	}
end

local function summarize(a, model, made, groups, result)
	local function line(what, seconds)
		local rate = zcc.bytes.format(math.floor(made.elems * (4 + made.elem_bytes) / seconds))
		print(("%-22s %8.2f ms  %s/s read and written  %3.0f %% of the limit"):format(what, seconds * 1000, rate,
			100 * result.limit / seconds))
	end
	print(("%s over dp=%d: %d of %d sub-groups on the host, %d elements, f32 -> %s, on %s"):format(model, a.dp,
		#made.pieces, #groups, made.elems, a.dtype, made.device:name()))
	if made.elems > 0 then
		if result.staged then
			line("through pinned buffers", result.staged)
		end
		line("direct", result.direct)
		line("slower of cast, copy", result.limit)
	end
	print(("%s pinned; %s"):format(zcc.bytes.format(result.pinned_bytes),
		not result.bitwise and "the copies DIFFER" or result.staged and "the same bits both ways" or "nothing was staged"))
end

-- The values that all processes agree on: the slowest time, and whether all are right.
local function over_all(comm, result)
	for _, key in ipairs { "staged", "direct", "limit" } do
		if result[key] then
			result[key] = comm:max(math.floor(result[key] * 1e9)) / 1e9
		end
	end
	result.bitwise = comm:sum(result.bitwise and 0 or 1) == 0
end

local function run(ctx)
	local a, comm = ctx.args, ctx.comm
	local shards, model = zcc.shapes.shards(a)
	local groups = sub_groups(shards)
	local device = comm:together(zcc.device.chosen, a.device)
	local made, result = nil, {}
	comm:together(function()
		made = prepare(ctx, device, groups, zcc.copyback.first_host_group(#groups, a.ratio))
		local options = { device = device, dtype = a.dtype, buffer_elems = a.buffer_elems, pinning = a.pin == "yes" }
		local copyback, pieces = zcc.copyback(options), pieces_to(made, made.staged)
		copyback:run(pieces)
		local stats = copyback:stats()
		result.staged_pieces, result.direct_pieces = stats.staged_pieces, stats.direct_pieces
		result.pinned_bytes = stats.buffer_bytes - stats.unpinned_bytes
		if stats.staged_pieces > 0 then
			result.staged = time_of(copyback, pieces)
		end
		copyback:close()
		options.pinning = false
		local direct = zcc.copyback(options)
		result.direct = time_of(direct, pieces_to(made, made.direct))
		direct:close()
		result.bitwise = compare(made)
		result.limit = limit_of(made, options)
	end)
	over_all(comm, result)
	if comm.rank == 0 then
		summarize(a, model, made, groups, result)
		if a.report then
			zcc.json.encode_file(a.report, report(device, made, result), { indent = 2 })
		end
	end
	if not result.bitwise then
		zcc.error.raise("ZCC_EVERIFY", "the staged copy and the direct copy are not the same")
	end
end

return zcc.recipe {
	name = "copyback",
	about = "Copies the masters of a ZeRO-3 rank's sub-groups back to the device, through pinned buffers and directly.",
	args = args,
	run = run,
}
