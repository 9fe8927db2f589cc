-- Copy-back end to end: against the slower of its two halves, against the direct copy, and what it pins. $ZCC_DEVICE
-- names the device.

local zcc = require "zcc"

local TIMES = 9
local ELEMS, PIECES = 2^26, 4
-- Casts and copies that are timed alone go through a buffer that stays in a cache, as parts of the staging buffers do.
local SLICE_ELEMS = 2^18
local GB = 1e9

local function is_gpu(device)
	return device:name():find("^cuda") ~= nil
end

-- The host device copies with a processor, so the casts get one too: there the two overlap, and do not share what
-- they have.
local function open_device()
	local device = zcc.device.chosen()
	if not is_gpu(device) then
		zcc.threads.set(1)
	end
	return device
end

-- Masters, targets and what copies them; `back` is the same the other way round.
local function setup(dtype)
	local device, bytes = open_device(), zcc.store.dtype_bytes(dtype)
	local s = { device = device, bytes = bytes, pieces = {}, slices = {}, back = {}, slices_back = {},
		masters = zcc.store.buffer(ELEMS * 4), target = device:malloc(ELEMS * bytes),
		slice = device:pinned(SLICE_ELEMS * bytes), stream = device:stream(),
		staged = zcc.copyback { device = device, dtype = dtype },
		direct = zcc.copyback { device = device, dtype = dtype, pinning = false } }
	s.masters:fill_random(1)
	for i = 0, PIECES - 1 do
		local at = i * ELEMS / PIECES
		s.pieces[i + 1] = { target = s.target, source = s.masters, elems = ELEMS / PIECES, target_offset = at * bytes,
			source_offset = at * 4 }
	end
	for at = 0, ELEMS - 1, SLICE_ELEMS do
		s.slices[#s.slices + 1] = { target = s.slice, source = s.masters, elems = SLICE_ELEMS, source_offset = at * 4 }
	end
	for _, way in ipairs { { s.pieces, s.back }, { s.slices, s.slices_back } } do
		for i, there in ipairs(way[1]) do
			way[2][i] = { target = there.source, source = there.target, elems = there.elems,
				target_offset = there.source_offset, source_offset = there.target_offset }
		end
	end
	return s
end

local function teardown(s)
	for _, part in ipairs { "staged", "direct", "stream", "slice", "target", "masters", "device" } do
		s[part]:close()
	end
end

-- Gigabytes of masters a second: through the buffers, directly, cast alone, copied alone; and gradients the other way.
local function rates(s)
	local seconds = zcc.bench.medians(TIMES, {
		function() s.staged:run(s.pieces) end,
		function() s.direct:run(s.pieces) end,
		function() s.direct:run(s.slices) end,
		function()
			for i = 0, #s.slices - 1 do
				s.stream:copy(s.target, s.slice, { target_offset = i * SLICE_ELEMS * s.bytes })
			end
			s.stream:wait()
		end,
		function() s.staged:gradients(s.back, { accumulate = true }) end,
		function() s.direct:gradients(s.slices_back, { accumulate = true }) end,
		function()
			for i = 0, #s.slices - 1 do
				s.stream:copy(s.slice, s.target, { bytes = SLICE_ELEMS * s.bytes,
					source_offset = i * SLICE_ELEMS * s.bytes })
			end
			s.stream:wait()
		end,
	})
	local function rate(k)
		return ELEMS * 4 / seconds[k] / GB
	end
	return { staged = rate(1), direct = rate(2), cast = rate(3), copy = rate(4),
		back = rate(5), back_limit = math.min(rate(6), rate(7)) }
end

-- Each dtype is measured once, by the first case that needs it.
local measured = {}
local function of(dtype)
	if not measured[dtype] then
		local s = setup(dtype)
		measured[dtype] = rates(s)
		measured[dtype].gpu = is_gpu(s.device)
		teardown(s)
	end
	return measured[dtype]
end

local function end_to_end(dtype, target)
	return {
		name = ("f32 -> %s, end to end; slower of cast and copy"):format(dtype:lower()),
		run = function()
			local r = of(dtype)
			return { value = r.staged, unit = "GB/s", limit = math.min(r.cast, r.copy), target = target }
		end,
	}
end

-- One optimizer step and its copy-back, fused and one after the other: gigabytes of masters a second.
local function step_rates()
	local n = ELEMS / 4
	local device, buffers = open_device(), {}
	local target, optimizer = device:malloc(n * 2), zcc.adamw.create {}
	for _, name in ipairs { "master", "exp_avg", "exp_avg_sq", "grad" } do
		buffers[name] = zcc.store.buffer(n * 4)
	end
	optimizer:add { name = "w", elems = n, master = buffers.master, exp_avg = buffers.exp_avg,
		exp_avg_sq = buffers.exp_avg_sq, grad = buffers.grad }
	local copyback, pieces = zcc.copyback { device = device }, { { target = target, source = buffers.master, elems = n } }
	local seconds = zcc.bench.medians(TIMES, {
		function() copyback:adamw(optimizer, { target }, 1e-3) end,
		function()
			optimizer:step(1e-3)
			copyback:run(pieces)
		end,
	})
	for _, part in ipairs { copyback, optimizer, target, device } do
		part:close()
	end
	return n * 4 / seconds[1] / GB, n * 4 / seconds[2] / GB
end

-- The most that a pool has pinned after so many masters of a gigabyte each, of the same memory: the size of the model.
local function pinned_bytes(n_gigabytes)
	local device, elems = open_device(), 2^28
	local masters, target, pool = zcc.store.buffer(elems * 4), device:malloc(elems * 2), zcc.pool { device = device }
	local copyback, pieces = zcc.copyback { device = device, pool = pool }, {}
	for i = 1, n_gigabytes do
		pieces[i] = { target = target, source = masters, elems = elems }
	end
	copyback:run(pieces)
	copyback:close()
	local bytes = pool:stats().pinned_peak_bytes
	for _, part in ipairs { pool, target, masters, device } do
		part:close()
	end
	return bytes
end

return zcc.bench.recipe {
	name = "copyback",
	about = "Copy-back of f32 masters to a device, in gigabytes of masters a second, medians of " .. TIMES
		.. ". $ZCC_DEVICE names the device (default: host).",
	cases = {
		end_to_end("BF16", 0.8),
		end_to_end("F16", 0.8),
		end_to_end("F32"),
		{
			name = "bf16 gradients added to f32; slower of copy and sum",
			run = function()
				local r = of "BF16"
				return { value = r.back, unit = "GB/s", limit = r.back_limit }
			end,
		},
		{
			name = "f32 -> bf16, through pinned buffers; directly",
			run = function()
				local r = of "BF16"
				return { value = r.staged, unit = "GB/s", limit = r.direct, target = r.gpu and 1.5 or nil }
			end,
		},
		{
			name = "f32 -> bf16, copied part; the link, pinned",
			run = function(ctx)
				local r = of "BF16"
				if not r.gpu then
					ctx.say("no link to a GPU to hold the copy-back against")
					return nil
				end
				return { value = r.staged, unit = "GB/s", limit = r.copy, target = 0.9 }
			end,
		},
		{
			name = "AdamW into the staging buffers; and then copy-back",
			run = function()
				local fused, separate = step_rates()
				return { value = fused, unit = "GB/s", limit = separate }
			end,
		},
		{
			name = "pinned by 30 GiB of masters; by 1 GiB",
			run = function()
				return { value = pinned_bytes(30), unit = "bytes", limit = pinned_bytes(1), target = 1, at_most = true }
			end,
		},
	},
}
