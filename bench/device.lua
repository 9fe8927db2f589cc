-- What a device does by itself: copies over its link and within its memory, its kernels against a copy within its
-- memory, and copy-back against the link. $ZCC_DEVICE names the device; without it the first GPU, else the host.

local zcc = require "zcc"

local TIMES = 7
local GB = 1e9

local function find_device()
	local gpu
	for _, row in ipairs(zcc.device.list()) do
		if row.name == "cuda:0" then
			gpu = row.name
		end
	end
	return zcc.device.chosen(not os.getenv "ZCC_DEVICE" and gpu or nil)
end

-- Made by the first case and kept: what is copied and computed on.
local made
local function setup()
	if made then
		return made
	end
	local device = find_device()
	local gpu = device:name():find("^cuda") ~= nil
	-- A GPU is so fast that less would measure launches.
	local elems, repeats = gpu and 2^28 or 2^24, gpu and 10 or 1
	made = { device = device, gpu = gpu, elems = elems, repeats = repeats, bytes = elems * 4, stream = device:stream(),
		a = device:malloc(elems * 4), b = device:malloc(elems * 4), pinned = device:pinned(elems * 4),
		pageable = zcc.store.buffer(elems * 4) }
	made.pageable:fill_random(1)
	made.pinned:fill_random(1)
	made.stream:copy(made.a, made.pinned)
	made.stream:copy(made.b, made.pinned)
	made.stream:wait()
	return made
end

-- Bytes a second of work that is submitted `repeats` times and then waited for.
local function rate(bytes, repeats, submit)
	local s = setup()
	local seconds = zcc.bench.median(TIMES, function()
		for _ = 1, repeats do
			submit(s)
		end
		s.stream:wait()
	end)
	return bytes * repeats / seconds / GB
end

-- Each limit is measured once.
local limits = {}
local function limit(name)
	local s = setup()
	if not limits[name] then
		limits[name] = ({
			to_device = function()
				return rate(s.bytes, 1, function() s.stream:copy(s.a, s.pinned) end)
			end,
			-- Read and written.
			within = function()
				return rate(2 * s.bytes, s.repeats, function() s.stream:copy(s.a, s.b) end)
			end,
		})[name]()
	end
	return limits[name]
end

local function copy(name, target, source, against)
	return {
		name = name,
		run = function()
			local s = setup()
			local value = rate(s.bytes, 1, function() s.stream:copy(s[target], s[source]) end)
			return { value = value, unit = "GB/s", limit = against and limit(against) }
		end,
	}
end

-- A kernel reads and writes so many bytes an element, which are counted as those of the copy are: read + written.
local function kernel(name, elem_bytes, submit)
	return {
		name = name .. "; copy within the device",
		run = function()
			local s = setup()
			return { value = rate(s.elems * elem_bytes, s.repeats, submit), unit = "GB/s", limit = limit "within" }
		end,
	}
end

-- Every other block of `inner` halves of rows, packed: what a column-parallel shard is.
local function pack(s, inner)
	local rows = s.elems / 2 / inner
	s.stream:strided(s.a, s.b, { shape = { rows, inner }, elem_bytes = 2, target_strides = { inner, 1 },
		source_strides = { 2 * inner, 1 } })
end

local function unpack_rows(s, inner)
	local rows = s.elems / 2 / inner
	s.stream:strided(s.a, s.b, { shape = { rows, inner }, elem_bytes = 2, target_strides = { 2 * inner, 1 },
		source_strides = { inner, 1 } })
end

local function transpose(s)
	local side = math.floor(math.sqrt(s.elems) / 2) * 2
	s.stream:strided(s.a, s.b, { shape = { side, side }, elem_bytes = 4, target_strides = { side, 1 },
		source_strides = { 1, side } })
end

-- Gigabytes of bf16 that copy-back brings to the device in a second.
local copyback = {}
local function copyback_rate(pinning)
	local s = setup()
	if not copyback[pinning] then
		local copies = zcc.copyback { device = s.device, dtype = "BF16", pinning = pinning }
		local pieces = { { target = s.a, source = s.pageable, elems = s.elems } }
		local seconds = zcc.bench.median(TIMES, function() copies:run(pieces) end)
		copies:close()
		copyback[pinning] = s.elems * 2 / seconds / GB
	end
	return copyback[pinning]
end

return zcc.bench.recipe {
	name = "device",
	about = "Copies and kernels of a device in gigabytes a second, medians of " .. TIMES
		.. ". $ZCC_DEVICE names the device (default: the first GPU, else host).",
	cases = {
		copy("pinned -> device", "a", "pinned"),
		copy("device -> pinned", "pinned", "a"),
		copy("pageable -> device; pinned -> device", "a", "pageable", "to_device"),
		{
			name = "within the device, read + written",
			run = function()
				return { value = limit "within", unit = "GB/s" }
			end,
		},
		kernel("cast f32 -> bf16", 6, function(s) s.stream:cast(s.a, "BF16", s.b, "F32", s.elems) end),
		kernel("cast f32 -> f16", 6, function(s) s.stream:cast(s.a, "F16", s.b, "F32", s.elems) end),
		kernel("cast bf16 -> f32", 6, function(s) s.stream:cast(s.a, "F32", s.b, "BF16", s.elems) end),
		kernel("EMA of f32", 12, function(s) s.stream:lerp(s.a, s.b, "F32", 0.999, s.elems) end),
		kernel("EMA of bf16", 10, function(s) s.stream:lerp(s.a, s.b, "BF16", 0.999, s.elems) end),
		kernel("pack rows of 4 KiB", 2, function(s) pack(s, 2048) end),
		kernel("pack rows of 128 bytes", 2, function(s) pack(s, 64) end),
		kernel("unpack rows of 4 KiB", 2, function(s) unpack_rows(s, 2048) end),
		kernel("transpose", 8, transpose),
		{
			name = "copy-back f32 -> bf16; pinned -> device",
			run = function()
				local s = setup()
				return { value = copyback_rate(true), unit = "GB/s", limit = limit "to_device", target = s.gpu and 0.9 or nil }
			end,
		},
		{
			name = "copy-back f32 -> bf16; without pinned memory",
			run = function()
				local s = setup()
				return { value = copyback_rate(true), unit = "GB/s", limit = copyback_rate(false), target = s.gpu and 1.5 or nil }
			end,
		},
	},
}
