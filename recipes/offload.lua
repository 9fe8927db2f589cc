-- A training loop that takes a snapshot of its weights every few steps, in three ways: the trainer waits for the
-- copy; the copy is deferred and runs beside the next step, whole; or in chunks, started share by share at the
-- hooks of that step.

local zcc = require "zcc"
local misuse = zcc.error.misuse

-- How much of the updates' buffer lies between two steps: weights of different steps then differ everywhere.
local STRIDE = 4096

-- Bytes of each buffer: the tensors of a model, cut over dp ranks as ZeRO 3 does, or 64 equal ones of N elements
-- together.
local function sizes_of(args)
	local sizes, total = {}, 0
	if args.elems then
		if args.shapes then
			misuse("--shapes and --elems: one or the other says how large the model is")
		end
		local n = math.min(64, math.max(args.elems, 1))
		for i = 1, n do
			sizes[i] = (math.floor(args.elems * i / n) - math.floor(args.elems * (i - 1) / n)) * 2
		end
	else
		for i, tensor in ipairs(zcc.shapes.choose(args.shapes or "qwen3-8b").tensors) do
			sizes[i] = math.ceil(tensor.bytes / args.dp)
		end
	end
	for _, bytes in ipairs(sizes) do
		total = total + bytes
	end
	return sizes, total
end

-- The weights and what they are updated from; both stay on the device, the updates on the host too, to compare
-- with.
local function make_model(device, sizes, steps)
	local largest = 0
	for _, bytes in ipairs(sizes) do
		largest = math.max(largest, bytes)
	end
	local model = { sizes = sizes, stream = device:stream(), weights = {} }
	model.updates = device:pinned(largest + steps * STRIDE)
	model.updates:fill_random(1)
	model.on_device = device:malloc(model.updates.bytes)
	model.stream:copy(model.on_device, model.updates)
	for i, bytes in ipairs(sizes) do
		model.weights[i] = device:malloc(bytes)
	end
	model.small_from, model.small_to = device:pinned(STRIDE), device:malloc(STRIDE)
	return model
end

-- The optimizer writes every weight on the device; nobody waits for it here.
local function optimizer(model, step)
	for i, bytes in ipairs(model.sizes) do
		model.stream:copy(model.weights[i], model.on_device, { bytes = bytes, source_offset = step * STRIDE })
	end
end

-- Forward and backward: small copies for so many seconds, and a hook after each share of them. Notes what each
-- took.
local function forward_backward(model, seconds, hooks, hook, small)
	local watch = zcc.clock.stopwatch()
	for i = 1, hooks do
		hook(i)
		repeat
			local one = zcc.clock.stopwatch()
			model.stream:copy(model.small_to, model.small_from)
			model.stream:wait()
			small[#small + 1] = one()
		until watch() >= seconds * i / hooks
	end
end

-- Bit by bit, a MiB at a time.
local function is_same(region, updates, step)
	for at = 0, region.bytes - 1, 2 ^ 20 do
		local n = math.min(2 ^ 20, region.bytes - at)
		if region:read(at, n) ~= updates:read(step * STRIDE + at, n) then
			return false
		end
	end
	return true
end

local function compare(queue, ticket, model, step)
	for region in queue:each(ticket) do
		if not is_same(region, model.updates, step) then
			zcc.error.raise("ZCC_EVERIFY", "the snapshot of step %d has other bytes for '%s' than the step", step, region.name)
		end
	end
	queue:release(ticket)
end

local function summary(list)
	table.sort(list)
	return { median = list[math.floor((#list + 1) / 2)] or 0, worst = list[#list] or 0 }
end

-- Trains; `way` is { name =, chunk_bytes =, deferred =, hooks = }. A stall is time in which the trainer waits or
-- calls for a snapshot's sake. The first snapshot pins its memory and is not counted.
local function train(ctx, device, model, way, compute)
	local a = ctx.args
	local queue = zcc.offload{ device = device, chunk_bytes = way.chunk_bytes, cap = a.cap }
	local handles, stalls, small, pending = {}, {}, {}, nil
	for i, buffer in ipairs(model.weights) do
		handles[i] = queue:register(("weight.%d"):format(i), buffer)
	end
	local stalled
	local function stall(fn, ...)
		local watch = zcc.clock.stopwatch()
		local result = fn(queue, ...)
		stalled = stalled + watch()
		return result
	end
	for step = 1, a.steps + 1 do
		stalled = 0
		local watched = pending and pending > 1 and small or {}
		forward_backward(model, compute, way.hooks, function()
			if pending and way.hooks > 1 then
				stall(queue.flush, 1 / way.hooks)
			end
		end, watched)
		if pending then
			stall(queue.fence)
			if pending > 1 then
				stalls[#stalls] = stalls[#stalls] + stalled
			end
			compare(queue, pending, model, step - 1)
			pending = nil
		end
		if step > a.steps then
			break
		end
		optimizer(model, step)
		stalled = 0
		if step % a.every == 0 then
			pending = stall(queue.defer, step, handles, model.stream)
			if not way.deferred then
				model.stream:wait()
				stall(queue.wait, pending)
			elseif way.hooks == 1 then
				stall(queue.flush)
			end
			if pending > 1 then
				stalls[#stalls + 1] = stalled
			end
		end
		model.stream:wait()
	end
	local stats, pinned = queue:stats(), queue.pool:stats().pinned_peak_bytes
	queue:close()
	return { stall = summary(stalls), small = summary(small), snapshots = stats.tickets, chunks = stats.chunks,
		pinned = pinned }
end

-- Seconds that one snapshot takes.
local function measure_copy(device, model)
	local queue, handles = zcc.offload{ device = device, chunk_bytes = 0 }, {}
	for i, buffer in ipairs(model.weights) do
		handles[i] = queue:register(("weight.%d"):format(i), buffer)
	end
	local seconds
	for snapshot = 1, 2 do
		local watch = zcc.clock.stopwatch()
		local ticket = queue:defer(snapshot, handles)
		queue:wait(ticket)
		seconds = watch()
		queue:release(ticket)
	end
	queue:close()
	return seconds
end

local LINE = "%-20s stall %8.3f ms (worst %8.3f)   small copy %7.1f us (worst %9.1f)   %d snapshots, %d chunks, "
	.. "%s pinned"

local function report(ctx, device, model, total, compute, results)
	local json, modes = zcc.json, zcc.json.array {}
	for i, r in ipairs(results) do
		modes[i] = json.ordered { { "mode", r.way.name }, { "chunk_bytes", r.way.chunk_bytes }, { "hooks", r.way.hooks },
			{ "snapshots", r.snapshots }, { "chunks", r.chunks }, { "pinned_bytes", r.pinned },
			{ "seconds", json.ordered { { "stall", r.stall.median }, { "worst_stall", r.stall.worst },
				{ "small_copy", r.small.median }, { "worst_small_copy", r.small.worst } } } }
	end
	json.encode_file(ctx.args.report, json.ordered { { "recipe", "offload" }, { "version", zcc.version.text },
		{ "device", device:name() }, { "buffers", #model.sizes }, { "bytes", total }, { "steps", ctx.args.steps },
		{ "compute_seconds", compute }, { "bitwise", true }, { "modes", modes } }, { indent = 2 })
end

return zcc.recipe {
	name = "offload",
	about = "Snapshots of a model's weights during training: how long the trainer waits, with and without deferral.",
	args = {
		{ flag = "--shapes", type = "string", value = "model",
			about = "a model that zcc knows (qwen3-8b, demo, …) or a shapes document (default: qwen3-8b)" },
		{ flag = "--elems", type = "int", min = 0, about = "bf16 parameters in 64 buffers, instead of --shapes" },
		{ flag = "--dp", type = "int", default = 64, min = 1, about = "ranks that the model of --shapes is cut over" },
		{ flag = "--steps", type = "int", default = 12, min = 1, about = "training steps" },
		{ flag = "--every", type = "int", default = 2, min = 1, about = "steps from snapshot to snapshot" },
		{ flag = "--hooks", type = "int", default = 8, min = 1,
			about = "moments of a step, each of which starts a share of the chunks" },
		{ flag = "--chunk", type = "bytes", default = "8MiB", about = "bytes of a chunk, in the third way" },
		{ flag = "--compute", type = "number", min = 0, value = "seconds",
			about = "length of forward and backward (default: twice a snapshot's copy)" },
		{ flag = "--cap", type = "bytes", about = "pinned memory that may be taken (default: what the system allows)" },
		zcc.device.argument,
		{ flag = "--report", type = "string", value = "file", about = "write the report as JSON" },
	},
	run = function(ctx)
		local a = ctx.args
		local device = zcc.device.chosen(a.device)
		local sizes, total = sizes_of(a)
		local model = make_model(device, sizes, a.steps)
		optimizer(model, 0)
		model.stream:wait()
		local compute = a.compute or 2 * measure_copy(device, model)
		ctx.say("%s: %d buffers, %s; forward and backward take %.4f s", device:name(), #sizes,
			zcc.bytes.format(total), compute)
		local results = {}
		for i, way in ipairs {
			{ name = "waiting", chunk_bytes = 0, deferred = false, hooks = 1 },
			{ name = "deferred", chunk_bytes = 0, deferred = true, hooks = 1 },
			{ name = "deferred in chunks", chunk_bytes = a.chunk, deferred = true, hooks = a.hooks },
		} do
			local r = train(ctx, device, model, way, compute)
			r.way, results[i] = way, r
			print(LINE:format(way.name, r.stall.median * 1e3, r.stall.worst * 1e3, r.small.median * 1e6,
				r.small.worst * 1e6, r.snapshots, r.chunks, zcc.bytes.format(r.pinned)))
		end
		print(a.every > a.steps and "no snapshot: --every is more than --steps" or "every snapshot has the bits of its step")
		if a.report then
			report(ctx, device, model, total, compute, results)
		end
	end,
}
