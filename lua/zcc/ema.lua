-- Exponential moving averages of parameters, updated where they are: objects over zcc/ema.h.
--
--     local ema = zcc.ema.create{ device = device, interval = 10 }
--     local group = ema:group(0.999)
--     ema:add{ name = "w", group = group, ema = average, param = weights, param_dtype = "BF16", shape = { 64, 1024 } }
--     ema:start()            -- average = weights
--     ema:update()           -- after every step; true where it was the interval's turn
--     ema:save("ema.safetensors")
--
-- Buffers are those of zcc.store and zcc.device. Averages in device memory need the stream that the work goes to.

local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local store = require "zcc.store"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

--- The saved array of the two counters, I64: calls and updates.
M.COUNTERS = "zcc.ema.counters"

local Ema = object.class("EMA", lib.zcc_ema_destroy)

local places = { pageable = lib.ZCC_AT_PAGEABLE, pinned = lib.ZCC_AT_PINNED, device = lib.ZCC_AT_DEVICE }
local place_names = { "pageable", "pinned", "device" }

local create_options = {
	device = { type = "table", required = true },
	interval = { type = "integer", default = 1, min = 1, max = 2^31 - 1 },
}

--- options: device (tells where a buffer is), interval (every so many calls of update update).
function M.create(given)
	local opts = options.check(create_options, given, "ema")
	local raw, out, err = ffi.new("zcc_ema_options"), ffi.new("zcc_ema *[1]"), zffi.new_error()
	lib.zcc_ema_options_init(raw)
	raw.device, raw.interval = opts.device:pointer(), opts.interval
	zffi.check(lib.zcc_ema_create(raw, out, err), err)
	local self = object.wrap(Ema, out[0], { opts.device })
	self.list = {}
	return self
end

--- The number of a new group with that decay, from 0 to below 1.
function Ema:group(decay)
	local group, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_ema_group(self:pointer(), decay, group, err), err)
	return group[0]
end

--- Another decay for the updates to come.
function Ema:set_decay(group, decay)
	local err = zffi.new_error()
	zffi.check(lib.zcc_ema_set_decay(self:pointer(), group, decay, err), err)
end

local place = { type = "choice", choices = place_names }
local add_options = {
	name = { type = "string", required = true }, group = { type = "integer", required = true, min = 0 },
	ema = { type = "table", required = true }, ema_dtype = { type = "string", default = "F32" },
	ema_offset = { type = "bytes", default = 0 }, ema_place = place,
	param = { type = "table", required = true }, param_dtype = { type = "string", default = "F32" },
	param_offset = { type = "bytes", default = 0 }, param_place = place,
	elems = { type = "integer", min = 0 }, shape = { type = "table" },
}

local function count(opts)
	if not opts.shape then
		if not opts.elems then
			fault.raise("ZCC_EINVAL", "ema:add: '%s' has neither elems nor shape", opts.name)
		end
		return opts.elems
	end
	local elems = 1
	for axis, extent in ipairs(opts.shape) do
		if type(extent) ~= "number" or extent % 1 ~= 0 or extent < 0 then
			fault.raise("ZCC_EINVAL", "ema:add: '%s': extent %s of axis %d", opts.name, tostring(extent), axis - 1)
		end
		elems = elems * extent
	end
	if elems > 2^53 or opts.elems and opts.elems ~= elems then
		fault.raise("ZCC_EINVAL", "ema:add: the shape of '%s' has %.0f elements%s", opts.name, elems,
			opts.elems and (", elems says %.0f"):format(opts.elems) or "")
	end
	return elems
end

local function dtype(name)
	local number = lib.zcc_dtype_parse(name)
	if number == 0 then
		fault.raise("ZCC_EINVAL", "no dtype is named %s", name)
	end
	return number
end

--- A parameter and its average: buffers, offsets in bytes, elems or shape. ema_place and param_place ("pageable",
--- "pinned", "device") declare where they are; left out, they stay where they are found now. Both buffers live as long
--- as the EMA.
function Ema:add(given)
	local opts = options.check(add_options, given, "ema:add")
	local elems = count(opts)
	local raw, err = ffi.new("zcc_ema_buffer"), zffi.new_error()
	lib.zcc_ema_buffer_init(raw)
	raw.name, raw.group, raw.elems = opts.name, opts.group, elems
	raw.ema_dtype, raw.param_dtype = dtype(opts.ema_dtype), dtype(opts.param_dtype)
	raw.ema = opts.ema:at(opts.ema_offset, elems * lib.zcc_dtype_bytes(raw.ema_dtype))
	raw.param = opts.param:at(opts.param_offset, elems * lib.zcc_dtype_bytes(raw.param_dtype))
	raw.ema_place = opts.ema_place and places[opts.ema_place] or 0
	raw.param_place = opts.param_place and places[opts.param_place] or 0
	zffi.check(lib.zcc_ema_add(self:pointer(), raw, nil, err), err)
	self.pins[opts.ema], self.pins[opts.param] = true, true
	self.list[#self.list + 1] = { name = opts.name, dtype = "F32", shape = opts.shape or { elems }, elems = elems }
end

-- The stream as the engine takes it. It keeps the EMA, and so its buffers, until it has been waited for.
local function on(self, stream)
	if stream then
		stream:keep(self)
	end
	return stream and stream:pointer()
end

--- Counts a call; true where it was the interval's turn and all averages were updated. Work on device memory is only
--- submitted.
function Ema:update(stream)
	local updated, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_ema_update(self:pointer(), on(self, stream), updated, err), err)
	return updated[0] ~= 0
end

--- Sets every average to its parameter, and both counters to 0.
function Ema:start(stream)
	local err = zffi.new_error()
	zffi.check(lib.zcc_ema_start(self:pointer(), on(self, stream), err), err)
end

--- Calls of update so far, and how many of them updated.
function Ema:counters()
	local handle = self:pointer()
	return zffi.number(lib.zcc_ema_calls(handle), "calls"), zffi.number(lib.zcc_ema_updates(handle), "updates")
end

--- Takes up saved counters.
function Ema:resume(calls, updates)
	local err = zffi.new_error()
	zffi.check(lib.zcc_ema_resume(self:pointer(), calls, updates, err), err)
end

-- ---- state ----

--- { name, dtype, shape, elems } of every average, in the order in which they were added. Not to be changed.
function Ema:arrays()
	self:pointer()
	return self.list
end

--- A copy of average number i in a new buffer of zcc.store.
function Ema:read(i, stream)
	local buffer, err = store.buffer(4 * self.list[i].elems), zffi.new_error()
	zffi.check(lib.zcc_ema_read(self:pointer(), i - 1, buffer:pointer(), buffer.bytes, on(self, stream), err), err)
	return buffer
end

--- Sets average number i to the floats of a buffer in host memory.
function Ema:write(i, buffer, stream)
	local err = zffi.new_error()
	zffi.check(lib.zcc_ema_write(self:pointer(), i - 1, buffer:pointer(), buffer.bytes, on(self, stream), err), err)
end

--- A new safetensors file of all averages by name, and the counters. It is not synced; a folder of
--- zcc.store.begin_folder is.
function Ema:save(path, stream)
	local header = store.safetensors_writer()
	header:metadata("format", "pt")
	for _, array in ipairs(self:arrays()) do
		header:add(array.name, array.dtype, array.shape)
	end
	header:add(M.COUNTERS, "I64", { 2 })
	header:finish(path)
	local placed, file = store.open_safetensors(path), store.open_file_for_writing(path)
	for i, array in ipairs(self.list) do
		local buffer = self:read(i, stream)
		file:write(placed:find(array.name).offset, buffer)
		buffer:close()
	end
	local counters = store.buffer(16)
	local numbers = ffi.cast("int64_t *", counters:pointer())
	numbers[0], numbers[1] = lib.zcc_ema_calls(self:pointer()), lib.zcc_ema_updates(self:pointer())
	file:write(placed:find(M.COUNTERS).offset, counters)
	counters:close()
	file:close()
	placed:close()
end

local function expect(file, name, kind, elems, bytes)
	local tensor = file:find(name)
	local path = file:file():path()
	if not tensor then
		fault.raise("ZCC_EFORMAT", "%s holds no %s", path, name)
	elseif tensor.dtype ~= kind or tensor.bytes ~= elems * bytes then
		fault.raise("ZCC_EFORMAT", "%s holds %s as %s of %.0f bytes, the EMA has %s of %.0f", path, name, tensor.dtype,
			tensor.bytes, kind, elems * bytes)
	end
	return tensor
end

--- Takes up what save wrote. The file must hold exactly this EMA's arrays, which is found out before any of them is
--- changed.
function Ema:load(path, stream)
	local file = store.open_safetensors(path)
	for _, array in ipairs(self:arrays()) do
		expect(file, array.name, "F32", array.elems, 4)
	end
	local saved = expect(file, M.COUNTERS, "I64", 2, 8)
	if #file:tensors() ~= #self.list + 1 then
		fault.raise("ZCC_EFORMAT", "%s holds %d averages, the EMA has %d", path, #file:tensors() - 1, #self.list)
	end
	local counters = store.buffer(16)
	file:file():read(saved.offset, counters)
	local numbers = ffi.cast("int64_t *", counters:pointer())
	local calls, updates = zffi.number(numbers[0], "saved calls"), zffi.number(numbers[1], "saved updates")
	if updates < 0 or calls < updates then
		fault.raise("ZCC_EFORMAT", "%s counts %.0f updates of %.0f calls", path, updates, calls)
	end
	for i, array in ipairs(self.list) do
		local buffer = store.buffer(4 * array.elems)
		file:file():read(file:find(array.name).offset, buffer)
		self:write(i, buffer, stream)
		buffer:close()
	end
	counters:close()
	file:close()
	self:resume(calls, updates)
end

return M
