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

local device = require "zcc.device"
local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local store = require "zcc.store"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

--- The saved array of the two counters, I64: calls and updates.
M.COUNTERS = "zcc.ema.counters"

local Ema = object.class("EMA", function() end)

local places = { pageable = lib.ZCC_AT_PAGEABLE, pinned = lib.ZCC_AT_PINNED, device = lib.ZCC_AT_DEVICE }
local place_names = { "pageable", "pinned", "device" }

local create_options = {
	device = { type = "table", required = true },
	interval = { type = "integer", default = 1, min = 1, max = 2^31 - 1 },
}

--- options: device (tells where a buffer is), interval (every so many calls of update update).
function M.create(given)
	device.bury_dead()
	local opts = options.check(create_options, given, "ema")
	local raw, out, err = ffi.new("zcc_ema_options"), ffi.new("zcc_ema *[1]"), zffi.new_error()
	lib.zcc_ema_options_init(raw)
	raw.device, raw.interval = opts.device:pointer(), opts.interval
	zffi.check(lib.zcc_ema_create(raw, out, err), err)
	-- What the engine averages; alive as long as the EMA.
	local held = {}
	local self = device.own(Ema, out[0], { opts.device }, function(dead)
		lib.zcc_ema_destroy(dead)
		object.let_go_all(held)
	end)
	self.held, self.list = held, {}
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
	zffi.check(lib.zcc_ema_set_decay(self:pointer(), zffi.int32(group, "group"), decay, err), err)
end

local place = { type = "choice", choices = place_names }
local add_options = {
	name = { type = "string", required = true }, group = { type = "integer", required = true, min = 0, max = 2^31 - 1 },
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

--- A parameter and its average: buffers, offsets in bytes, elems or shape. ema_place and param_place ("pageable",
--- "pinned", "device") declare where they are; left out, they stay where they are found now. Both buffers live as long
--- as the EMA, and are not closed before it.
function Ema:add(given)
	local opts = options.check(add_options, given, "ema:add")
	if opts.name == M.COUNTERS then
		fault.raise("ZCC_EINVAL", "ema:add: the name '%s' is that of the saved counters", opts.name)
	end
	local elems = count(opts)
	local raw, err = ffi.new("zcc_ema_buffer"), zffi.new_error()
	object.expect_holdable(opts.ema, "ema:add: ema")
	object.expect_holdable(opts.param, "ema:add: param")
	lib.zcc_ema_buffer_init(raw)
	raw.name, raw.group, raw.elems = zffi.text(opts.name, "a name"), opts.group, elems
	raw.ema_dtype, raw.param_dtype = zffi.dtype(opts.ema_dtype), zffi.dtype(opts.param_dtype)
	raw.ema = opts.ema:at(opts.ema_offset, elems * lib.zcc_dtype_bytes(raw.ema_dtype))
	raw.param = opts.param:at(opts.param_offset, elems * lib.zcc_dtype_bytes(raw.param_dtype))
	raw.ema_place = opts.ema_place and places[opts.ema_place] or 0
	raw.param_place = opts.param_place and places[opts.param_place] or 0
	zffi.check(lib.zcc_ema_add(self:pointer(), raw, nil, err), err)
	object.hold_once(self.held, opts.ema, ("it is averaged as '%s'"):format(opts.name))
	object.hold_once(self.held, opts.param, ("it is averaged as '%s'"):format(opts.name))
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
	zffi.check(lib.zcc_ema_resume(self:pointer(), zffi.integer(calls, "calls"), zffi.integer(updates, "updates"), err),
		err)
end

-- ---- state ----

--- { name, dtype, shape, elems } of every average, in the order in which they were added. Not to be changed.
function Ema:arrays()
	self:pointer()
	return self.list
end

local function array_at(self, i)
	local array = self:arrays()[i]
	if not array then
		fault.raise("ZCC_EINVAL", "average %s; there are %d, counted from 1", tostring(i), #self.list)
	end
	return array
end

--- A copy of average number i in a new buffer of zcc.store.
function Ema:read(i, stream)
	local buffer, err = store.buffer(4 * array_at(self, i).elems), zffi.new_error()
	zffi.check(lib.zcc_ema_read(self:pointer(), i - 1, buffer:pointer(), buffer.bytes, on(self, stream), err), err)
	return buffer
end

--- Sets average number i to the floats of a buffer in host memory.
function Ema:write(i, buffer, stream)
	array_at(self, i)
	local err = zffi.new_error()
	zffi.check(lib.zcc_ema_write(self:pointer(), i - 1, buffer:pointer(), buffer.bytes, on(self, stream), err), err)
end

-- Into a file that has its header.
local function write_all(self, path, stream)
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

--- A new safetensors file of all averages by name, and the counters. It is not synced; a folder of
--- zcc.store.begin_folder is. There is none where this fails.
function Ema:save(path, stream)
	local header = store.safetensors_writer()
	header:metadata("format", "pt")
	for _, array in ipairs(self:arrays()) do
		header:add(array.name, array.dtype, array.shape)
	end
	header:add(M.COUNTERS, "I64", { 2 })
	header:finish(path)
	local ok, why = pcall(write_all, self, path, stream)
	if not ok then
		os.remove(path)
		error(why, 0)
	end
end

local function expect(file, name, kind, shape)
	local tensor = file:find(name)
	local path = file:file():path()
	if not tensor then
		fault.raise("ZCC_EFORMAT", "%s holds no %s", path, name)
	end
	local found, wanted = table.concat(tensor.shape, ", "), table.concat(shape, ", ")
	if tensor.dtype ~= kind or found ~= wanted then
		fault.raise("ZCC_EFORMAT", "%s holds %s as %s [%s], the EMA has %s [%s]", path, name, tensor.dtype, found, kind,
			wanted)
	end
	return tensor
end

--- Takes up what save wrote. The file must hold exactly this EMA's arrays, which is found out before any of them is
--- changed.
function Ema:load(path, stream)
	local file = store.open_safetensors(path)
	for _, array in ipairs(self:arrays()) do
		expect(file, array.name, "F32", array.shape)
	end
	local saved = expect(file, M.COUNTERS, "I64", { 2 })
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
