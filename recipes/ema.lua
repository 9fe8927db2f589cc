-- The exponential moving average of a model's parameters, one buffer for each, updated where they are: how long an
-- update takes, and a state that is saved and taken up again. Every process plays one rank.

local zcc = require "zcc"
local misuse = zcc.error.misuse

local TIMES = 5

local args = {
	{ flag = "--shapes", type = "string", value = "model",
		about = "a model that zcc knows (qwen3-8b, demo, …) or a shapes document (default: demo)" },
	{ flag = "--elems", type = "int", min = 0, about = "parameters, instead of --shapes" },
	{ flag = "--dp", type = "int", default = 1, min = 1, about = "ranks that every parameter is cut over" },
	{ flag = "--dtype", type = "choice", choices = { "bf16", "f32" }, default = "bf16", about = "of the parameters" },
	{ flag = "--decay", type = "number", default = 0.999, min = 0, about = "of the average, below 1" },
	{ flag = "--interval", type = "int", default = 1, min = 1, max = 2^31 - 1,
		about = "steps from one update to the next" },
	{ flag = "--place", type = "choice", choices = { "host", "device" }, default = "host",
		about = "where parameters and averages are" },
	zcc.device.argument,
	{ flag = "--threads", type = "int", min = 1, max = 256,
		about = "threads on the host (default: $ZCC_THREADS, else all processors)" },
	{ flag = "--out", type = "string", value = "file",
		about = "keep what rank 0 saves, as safetensors (default: a temporary file of 4 bytes a parameter)" },
	{ flag = "--report", type = "string", value = "file", about = "write the report as JSON" },
}

local function memory(made, bytes)
	return made.on_device and made.device:malloc(bytes) or zcc.store.buffer(bytes)
end

-- Parameters that are there, and averages of them that have just begun.
local function prepare(a, list, device)
	local dtype = a.dtype:upper()
	local made = { device = device, stream = device:stream(), on_device = a.place == "device", buffers = #list,
		elems = 0, param_bytes = zcc.store.dtype_bytes(dtype) }
	for _, shard in ipairs(list) do
		made.elems = made.elems + shard.elems
	end
	made.averages, made.params = memory(made, made.elems * 4), memory(made, made.elems * made.param_bytes)
	zcc.bench.fill_numbers(device, made.params)
	local function averaging(averages)
		local ema, at = zcc.ema.create { device = device, interval = a.interval }, 0
		local group = ema:group(a.decay)
		for _, shard in ipairs(list) do
			ema:add { name = shard.name, elems = shard.elems, shape = shard.shape, group = group,
				ema = averages, ema_offset = at * 4,
				param = made.params, param_offset = at * made.param_bytes, param_dtype = dtype }
			at = at + shard.elems
		end
		return ema
	end
	made.averaging = averaging
	made.ema = averaging(made.averages)
	made.ema:start(made.stream)
	made.stream:wait()
	return made
end

-- Seconds of one update, and of a copy of as many bytes as it reads and writes, in turns.
local function measure(made)
	local ema, stream = made.ema, made.stream
	local bytes = made.elems * (8 + made.param_bytes)
	local copied = math.min(made.params.bytes, made.elems * 4)
	local target = memory(made, copied)
	local seconds = zcc.bench.medians(TIMES, {
		function()
			repeat until ema:update(stream)
			stream:wait()
		end,
		function()
			stream:copy(target, made.params, { bytes = copied })
			stream:wait()
		end,
	})
	target:close()
	return { update = seconds[1], limit = copied > 0 and seconds[2] * bytes / (2 * copied) or 0, bytes = bytes }
end

-- Whether averages that were saved and loaded into other memory go on to the same bits.
local function resumes(made, path)
	made.ema:save(path, made.stream)
	local averages = memory(made, made.elems * 4)
	local other = made.averaging(averages)
	other:load(path, made.stream)
	for _, ema in ipairs { made.ema, other } do
		repeat until ema:update(made.stream)
	end
	made.stream:wait()
	local same = true
	for i in ipairs(made.ema:arrays()) do
		local a, b = made.ema:read(i, made.stream), other:read(i, made.stream)
		same = same and a:equals(b)
		a:close()
		b:close()
	end
	other:close()
	averages:close()
	return same
end

local function report(made, result)
	local calls, updates = made.ema:counters()
	local ordered = zcc.json.ordered
	return ordered {
		{ "recipe", "ema" }, { "device", made.device:name() }, { "place", made.on_device and "device" or "host" },
		{ "threads", zcc.threads.get() }, { "buffers", made.buffers }, { "elems", made.elems }, { "calls", calls },
		{ "updates", updates }, { "resumes", result.resumes },
		{ "seconds", ordered { { "update", result.update }, { "limit", result.limit } } },
	}
end

local function summarize(a, model, made, result)
	print(("%s over dp=%d: %d averages of %d elements, %s -> f32, %s"):format(model, a.dp, made.buffers, made.elems,
		a.dtype, made.on_device and "on " .. made.device:name() or ("on the host, %d threads"):format(zcc.threads.get())))
	if made.elems > 0 then
		local function line(what, seconds)
			print(("%-28s %8.2f ms  %s/s read and written"):format(what, seconds * 1000,
				zcc.bytes.format(math.floor(result.bytes / seconds))))
		end
		line("update", result.update)
		line("copy of as many bytes", result.limit)
	end
	print(result.resumes and "saved, loaded and averaged on: the same bits" or "what was saved and loaded DIFFERS")
end

local function run(ctx)
	local a, comm = ctx.args, ctx.comm
	if a.decay >= 1 then
		misuse("--decay: %s is not below 1", a.decay)
	end
	if a.threads then
		zcc.threads.set(a.threads)
	end
	local there = a.out and comm.rank == 0 and io.open(a.out, "rb")
	if there then
		there:close()
	end
	if comm:sum(there and 1 or 0) > 0 then
		misuse("--out: %s is there already; remove it or name another file", a.out)
	end
	local list, model = zcc.shapes.shards(a)
	local device = comm:together(zcc.device.chosen, a.device)
	local made, result
	comm:together(function()
		made = prepare(a, list, device)
		result = measure(made)
		local path = comm.rank == 0 and a.out or nil
		local temporary = not path and os.tmpname()
		if temporary then
			os.remove(temporary)
			ctx.on_failure(function() os.remove(temporary) end)
		end
		result.resumes = resumes(made, path or temporary)
		if temporary then
			os.remove(temporary)
		end
	end)
	for _, key in ipairs { "update", "limit" } do
		result[key] = comm:max(math.floor(result[key] * 1e9)) / 1e9
	end
	result.resumes = comm:sum(result.resumes and 0 or 1) == 0
	if comm.rank == 0 then
		summarize(a, model, made, result)
		if a.report then
			zcc.json.encode_file(a.report, report(made, result), { indent = 2 })
		end
	end
	if not result.resumes then
		zcc.error.raise("ZCC_EVERIFY", "averages that were saved and loaded went on to other bits")
	end
end

return zcc.recipe {
	name = "ema",
	about = "Averages a model's parameters where they are, saves the averages, and takes them up again.",
	args = args,
	run = run,
}
