-- What the CPU's kernels reach, each on one thread and on data far beyond the caches, against memcpy of as much: bytes
-- read and written. Kernel and limit take turns at pieces of the arrays, each piece again only after all the others.
-- A piece is so large that memcpy, too, writes past the caches: smaller ones would make a lower limit.

local zcc = require "zcc"

-- A gibibyte of f32 in 4 pieces, gone through 7 times.
local PIECES, TURNS = 4, 28
local PIECE = 2^28 / PIECES
-- AdamW touches five arrays: a quarter each.
local ADAMW_PIECE = PIECE / 4
local GB = 1e9

local fill = zcc.bench.fill_numbers

-- A function that calls fn with the pieces' numbers in turn, from 0.
local function in_turn(fn)
	local i = -1
	return function()
		i = (i + 1) % PIECES
		fn(i)
	end
end

-- Gigabytes read and written a second by the work and by the limit.
local function rates(work_bytes, work, limit_bytes, limit)
	local seconds = zcc.bench.medians(TURNS, { in_turn(work), in_turn(limit) })
	return work_bytes / seconds[1] / GB, limit_bytes / seconds[2] / GB
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
			local stream = device:stream()
			local source, result = device:malloc(PIECES * PIECE * 4), device:malloc(PIECES * PIECE * 4)
			local to_bytes, from_bytes = zcc.store.dtype_bytes(to), zcc.store.dtype_bytes(from)
			fill(device, source)
			fill(device, result)
			local rate, limit = rates(PIECE * (to_bytes + from_bytes), function(i)
				stream:cast(result, to, source, from, PIECE,
					{ target_offset = i * PIECE * to_bytes, source_offset = i * PIECE * from_bytes })
				stream:wait()
			end, PIECE * 8, function(i)
				stream:copy(result, source,
					{ bytes = PIECE * 4, target_offset = i * PIECE * 4, source_offset = i * PIECE * 4 })
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

-- Averages and parameters, an EMA for each piece; the limit copies pieces of the same size.
local function lerp(param_dtype, target)
	return {
		name = ("EMA of %s parameters; memcpy"):format(param_dtype:lower()),
		run = function()
			return on_one_thread(function()
				local device, emas, averages, params = zcc.device.open("host"), {}, {}, {}
				for i = 0, PIECES - 1 do
					averages[i], params[i] = zcc.store.buffer(PIECE * 4), zcc.store.buffer(PIECE * 4)
					fill(device, averages[i])
					fill(device, params[i])
					emas[i] = zcc.ema.create { device = device }
					emas[i]:add { name = "w", group = emas[i]:group(0.999), ema = averages[i], param = params[i],
						param_dtype = param_dtype, elems = PIECE }
				end
				local rate, limit = rates(PIECE * (8 + zcc.store.dtype_bytes(param_dtype)),
					function(i) emas[i]:update() end, PIECE * 8, function(i) averages[i]:copy(params[i]) end)
				for i = 0, PIECES - 1 do
					close { emas[i], averages[i], params[i] }
				end
				device:close()
				return { value = rate, unit = "GB/s", limit = limit, target = target }
			end)
		end,
	}
end

-- Everything that a step of AdamW needs; pinned where both the optimizer and the device's casts work on it.
local function optimizer_memory(device)
	local elems = PIECES * ADAMW_PIECE
	local s = { device = device, stream = device:stream(),
		master = device:pinned(elems * 4), grad = device:pinned(elems * 2), wide = device:pinned(elems * 4),
		out = device:pinned(elems * 2), exp_avg = zcc.store.buffer(elems * 4), exp_avg_sq = zcc.store.buffer(elems * 4) }
	fill(device, s.master)
	fill(device, s.grad)
	-- An optimizer for each piece.
	function s.optimizers(grad, grad_dtype, out)
		local list, grad_bytes = {}, zcc.store.dtype_bytes(grad_dtype)
		for i = 0, PIECES - 1 do
			local at = i * ADAMW_PIECE
			list[i + 1] = zcc.adamw.create()
			list[i + 1]:add { name = "w", elems = ADAMW_PIECE, master = s.master, master_offset = at * 4,
				exp_avg = s.exp_avg, exp_avg_offset = at * 4, exp_avg_sq = s.exp_avg_sq, exp_avg_sq_offset = at * 4,
				grad = grad, grad_dtype = grad_dtype, grad_offset = at * grad_bytes, out = out, out_offset = at * 2 }
		end
		return list
	end
	function s.cast(i, to, to_dtype, from, from_dtype)
		s.stream:cast(to, to_dtype, from, from_dtype, ADAMW_PIECE,
			{ target_offset = i * ADAMW_PIECE * zcc.store.dtype_bytes(to_dtype),
				source_offset = i * ADAMW_PIECE * zcc.store.dtype_bytes(from_dtype) })
		s.stream:wait()
	end
	return s
end

-- Seconds of the separate passes over those of the fused step. Gradients arrive as bf16 in both.
local function fused(name, widen, target)
	return {
		name = name,
		run = function()
			return on_one_thread(function()
				local s = optimizer_memory(zcc.device.open("host"))
				local one = s.optimizers(s.grad, "BF16", s.out)
				local passes = widen and s.optimizers(s.wide, "F32") or s.optimizers(s.grad, "BF16")
				local seconds = zcc.bench.medians(TURNS, {
					in_turn(function(i) one[i + 1]:step(1e-4) end),
					in_turn(function(i)
						if widen then
							s.cast(i, s.wide, "F32", s.grad, "BF16")
						end
						passes[i + 1]:step(1e-4)
						s.cast(i, s.out, "BF16", s.master, "F32")
					end),
				})
				close(one)
				close(passes)
				close { s.stream, s.master, s.grad, s.wide, s.out, s.exp_avg, s.exp_avg_sq, s.device }
				return { value = seconds[2] / seconds[1], unit = "times", target = target }
			end)
		end,
	}
end

return zcc.bench.recipe {
	name = "kernels",
	about = "Kernels of the CPU on one thread, bytes read and written a second, medians of " .. TURNS .. " turns.",
	cases = {
		cast("BF16", "F32", 0.85),
		cast("F16", "F32"),
		cast("F32", "BF16"),
		lerp("F32", 0.9),
		lerp("BF16"),
		fused("AdamW with cast; gradient widened, AdamW, cast", true, 1.25),
		fused("AdamW with cast; AdamW on bf16 gradients, cast", false),
	},
}
