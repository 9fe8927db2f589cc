-- What the CPU's kernels reach, each on one thread and on data far beyond the caches, against memcpy of as much: bytes
-- read and written, the limit and the kernel taking turns.

local zcc = require "zcc"

local TIMES = 9
-- A gibibyte of f32. AdamW touches five arrays: a quarter each.
local ELEMS, ADAMW_ELEMS = 2^28, 2^26
local GB = 1e9

-- Gigabytes read and written a second by the work and by the limit, in turns.
local function rates(work_bytes, work, limit_bytes, limit)
	local seconds = zcc.bench.medians(TIMES, { work, limit })
	return work_bytes / seconds[1] / GB, limit_bytes / seconds[2] / GB
end

-- Bytes that are ordinary numbers as f32, bf16 and f16: what is no number, or too small for one, takes other time.
local function numbers(bytes)
	local words = {}
	for i = 1, 2^14 do
		words[i] = string.char(math.random(0, 255), 0x3d, math.random(0, 255), 0x3f)
	end
	return table.concat(words):rep(bytes / 2^16)
end

local function fill(device, buffer)
	local stream, unit = device:stream(), device:pinned(2^22)
	unit:write(numbers(unit.bytes))
	for at = 0, buffer.bytes - 1, unit.bytes do
		stream:copy(buffer, unit, { bytes = math.min(unit.bytes, buffer.bytes - at), target_offset = at })
	end
	stream:wait()
	stream:close()
	unit:close()
end

local function close(list)
	for _, item in ipairs(list) do
		item:close()
	end
end

-- A cast by the host device's stream, which is one thread, against a copy by the same.
local function cast(to, from, target)
	return {
		name = ("cast %s -> %s; memcpy"):format(from:lower(), to:lower()),
		run = function()
			local device = zcc.device.open("host")
			local stream, source, result = device:stream(), device:malloc(ELEMS * 4), device:malloc(ELEMS * 4)
			local bytes = zcc.store.dtype_bytes(to) + zcc.store.dtype_bytes(from)
			fill(device, source)
			local rate, limit = rates(ELEMS * bytes, function()
				stream:cast(result, to, source, from, ELEMS)
				stream:wait()
			end, ELEMS * 8, function()
				stream:copy(result, source)
				stream:wait()
			end)
			close { stream, source, result, device }
			return { value = rate, unit = "GB/s", limit = limit, target = target }
		end,
	}
end

-- On the calling thread alone.
local function on_one_thread(run)
	local threads = zcc.threads.get()
	zcc.threads.set(1)
	local measured = run()
	zcc.threads.set(threads)
	return measured
end

local function lerp(param_dtype, target)
	return {
		name = ("EMA of %s parameters; memcpy"):format(param_dtype:lower()),
		run = function()
			return on_one_thread(function()
				local device = zcc.device.open("host")
				local average, param = zcc.store.buffer(ELEMS * 4), zcc.store.buffer(ELEMS * 4)
				local ema = zcc.ema.create { device = device }
				ema:add { name = "w", group = ema:group(0.999), ema = average, param = param, param_dtype = param_dtype,
					elems = ELEMS }
				fill(device, param)
				ema:start()
				local bytes = 8 + zcc.store.dtype_bytes(param_dtype)
				local rate, limit = rates(ELEMS * bytes, function() ema:update() end, ELEMS * 8,
					function() average:copy(param) end)
				close { ema, average, param, device }
				return { value = rate, unit = "GB/s", limit = limit, target = target }
			end)
		end,
	}
end

-- Everything that a step of AdamW needs; pinned where both the optimizer and the device's casts work on it.
local function optimizer_memory(device)
	local s = { device = device, stream = device:stream(),
		master = device:pinned(ADAMW_ELEMS * 4), grad = device:pinned(ADAMW_ELEMS * 2),
		wide = device:pinned(ADAMW_ELEMS * 4), out = device:pinned(ADAMW_ELEMS * 2),
		exp_avg = zcc.store.buffer(ADAMW_ELEMS * 4), exp_avg_sq = zcc.store.buffer(ADAMW_ELEMS * 4) }
	fill(device, s.master)
	fill(device, s.grad)
	function s.optimizer(grad, grad_dtype, out)
		local optimizer = zcc.adamw.create()
		optimizer:add { name = "w", elems = ADAMW_ELEMS, master = s.master, exp_avg = s.exp_avg,
			exp_avg_sq = s.exp_avg_sq, grad = grad, grad_dtype = grad_dtype, out = out }
		return optimizer
	end
	return s
end

local function cast_now(s, ...)
	s.stream:cast(...)
	s.stream:wait()
end

-- Seconds of the separate passes over those of the fused step. Gradients are bf16 in both.
local function fused(name, separate, target)
	return {
		name = name,
		run = function()
			return on_one_thread(function()
				local s = optimizer_memory(zcc.device.open("host"))
				local one = s.optimizer(s.grad, "BF16", s.out)
				local passes, optimizers = separate(s)
				local seconds = zcc.bench.medians(TIMES, { function() one:step(1e-4) end, passes })
				close(optimizers)
				close { one, s.stream, s.master, s.grad, s.wide, s.out, s.exp_avg, s.exp_avg_sq, s.device }
				return { value = seconds[2] / seconds[1], unit = "times", target = target }
			end)
		end,
	}
end

return zcc.bench.recipe {
	name = "kernels",
	about = "Kernels of the CPU on one thread, bytes read and written a second, medians of " .. TIMES .. ".",
	cases = {
		cast("BF16", "F32", 0.85),
		cast("F16", "F32"),
		cast("F32", "BF16"),
		lerp("F32", 0.9),
		lerp("BF16"),
		fused("AdamW with cast; gradient widened, AdamW, cast", function(s)
			local optimizer = s.optimizer(s.wide, "F32")
			return function()
				cast_now(s, s.wide, "F32", s.grad, "BF16", ADAMW_ELEMS)
				optimizer:step(1e-4)
				cast_now(s, s.out, "BF16", s.master, "F32", ADAMW_ELEMS)
			end, { optimizer }
		end, 1.25),
		fused("AdamW with cast; AdamW on bf16 gradients, cast", function(s)
			local optimizer = s.optimizer(s.grad, "BF16")
			return function()
				optimizer:step(1e-4)
				cast_now(s, s.out, "BF16", s.master, "F32", ADAMW_ELEMS)
			end, { optimizer }
		end),
	},
}
