-- Devices, their memory, streams and events: objects over zcc/device.h.
--
-- An operand of work is a buffer of this file or of zcc.store, and an offset in bytes. Buffers of work that was
-- submitted stay alive until the stream has been waited for. Freeing device memory and destroying a stream wait for
-- work in flight; the collector's finalizers do not, they leave that to the next call here that takes memory or a
-- stream, or to the end of the program.

local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local places = { [lib.ZCC_AT_PAGEABLE] = "pageable", [lib.ZCC_AT_PINNED] = "pinned", [lib.ZCC_AT_DEVICE] = "device" }

-- ---- what the collector found ----

local graves = {}

local function bury_dead()
	while #graves > 0 do
		local grave = table.remove(graves)
		grave.release(grave.handle)
	end
end

-- The last to be finalized when the Lua state is closed.
M.sentinel = newproxy(true)
getmetatable(M.sentinel).__gc = bury_dead

--- For other wrappers: an object whose release may wait; the upvalues of `release` live until it has been called.
--- bury_dead() releases what the collector has found so far.
function M.own(class, handle, pins, release)
	local made = object.wrap(class, handle, pins)
	made.destroy = release
	made.finalizer = function(dead)
		graves[#graves + 1] = { handle = dead, release = release }
	end
	ffi.gc(made.handle, made.finalizer)
	return made
end

local own = M.own
M.bury_dead = bury_dead

-- Calls make(..., out, err) and gives what it made.
local function made_by(ctype, make, ...)
	local out, err = ffi.new(ctype .. "[1]"), zffi.new_error()
	local args, n = { ... }, select("#", ...)
	args[n + 1], args[n + 2] = out, err
	zffi.check(make(unpack(args, 1, n + 2)), err)
	return out[0]
end

-- ---- devices ----

local Device = object.class("device", lib.zcc_device_close)
local Buffer = object.class("device buffer", function() end)
local Pinned = object.class("pinned buffer", function() end)
--- Methods of host memory that may be read and written; the buffers of zcc.pool have them too.
M.host_memory = Pinned
local Stream = object.class("stream", function() end)
local Event = object.class("event", lib.zcc_event_destroy)

--- "host", "late:host,shuffle=7", "cuda:0"; nil takes $ZCC_DEVICE, else the host.
function M.open(name)
	return object.wrap(Device, made_by("zcc_device *", lib.zcc_device_open, name and zffi.text(name, "a device")))
end

--- The argument of recipes that work on a device: zcc.device.chosen(ctx.args.device) opens it.
M.argument = {
	flag = "--device", type = "string", value = "name",
	about = "host, cuda:N or, for tests, late:host; zccrun --devices lists them (default: $ZCC_DEVICE, else host)",
}

--- open(name), for a name from the command line or, where it is nil, from $ZCC_DEVICE: one that names no device is
--- misuse.
function M.chosen(name)
	local ok, device = pcall(M.open, name)
	if ok then
		return device
	end
	local why = fault.from(device)
	if why.status ~= "ZCC_EINVAL" then
		error(why, 0)
	end
	fault.misuse("%s: %s", (name or "") == "" and "$ZCC_DEVICE" or "--device", why.message)
end

--- { { name =, about = }, … }: what this machine has, and why it has not what it could have.
function M.list()
	local name, about, found, err = ffi.new("char[32]"), ffi.new("char[256]"), ffi.new("int32_t[1]"), zffi.new_error()
	local list = {}
	while true do
		zffi.check(lib.zcc_device_list(#list, name, about, found, err), err)
		if found[0] == 0 then
			return list
		end
		list[#list + 1] = { name = zffi.string(name), about = zffi.string(about) }
	end
end

--- As it would be opened again, a drawn seed included.
function Device:name()
	return zffi.string(lib.zcc_device_name(self:pointer()))
end

local function allocate(device, class, bytes, malloc, free)
	bury_dead()
	local handle = device:pointer()
	local data = made_by("void *", malloc, handle, zffi.integer(bytes, "bytes"))
	local buffer = own(class, data, { device }, function(dead)
		free(handle, dead)
	end)
	buffer.bytes, buffer.device = bytes, device
	return buffer
end

--- Memory of the device, contents undefined.
function Device:malloc(bytes)
	return allocate(self, Buffer, bytes, lib.zcc_device_malloc, lib.zcc_device_free)
end

--- Page-locked host memory, zeroed.
function Device:pinned(bytes)
	return allocate(self, Pinned, bytes, lib.zcc_pinned_malloc, lib.zcc_pinned_free)
end

--- "device", "pinned" or "pageable": where a buffer's byte at that offset is.
function Device:place(buffer, offset)
	local place, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_device_place(self:pointer(), buffer:at(offset or 0, 0), place, err), err)
	return places[place[0]]
end

function Device:stream()
	bury_dead()
	local flight = {}
	local stream = own(Stream, made_by("zcc_stream *", lib.zcc_stream_create, self:pointer()), { self }, function(dead)
		lib.zcc_stream_destroy(dead)
		flight.buffers = nil
	end)
	flight.buffers = {}
	stream.flight, stream.device = flight, self
	return stream
end

function Device:event()
	return object.wrap(Event, made_by("zcc_event *", lib.zcc_event_create, self:pointer()), { self })
end

-- ---- buffers ----

Buffer.at, Pinned.at = object.at, object.at

--- What is there now, as a string: all of it, or so many bytes from an offset.
function Pinned:read(offset, bytes)
	offset = offset or 0
	bytes = bytes or self.bytes - offset
	return ffi.string(self:at(offset, bytes), bytes)
end

--- Puts a string there.
function Pinned:write(text, offset)
	ffi.copy(self:at(offset or 0, #text), text, #text)
end

--- Pseudo-random bytes that depend on the seed alone.
function Pinned:fill_random(seed)
	lib.zcc_memory_fill_random(self:pointer(), self.bytes, seed)
end

-- ---- streams and events ----

--- Until all that was submitted has run.
function Stream:wait()
	local err = zffi.new_error()
	zffi.check(lib.zcc_stream_wait(self:pointer(), err), err)
	self.flight.buffers = {}
end

local function test(call, handle)
	local done, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(call(handle, done, err), err)
	return done[0] ~= 0
end

--- Whether all that was submitted has run.
function Stream:test()
	local done = test(lib.zcc_stream_test, self:pointer())
	if done then
		self.flight.buffers = {}
	end
	return done
end

--- Keeps an object that holds operands alive until the stream has been waited for.
function Stream:keep(holder)
	self:pointer()
	self.flight.buffers[holder] = true
end

--- What is submitted from now on runs after the event's last record so far.
function Stream:wait_event(event)
	local err = zffi.new_error()
	zffi.check(lib.zcc_stream_wait_event(self:pointer(), event:pointer(), err), err)
end

--- Marks this point of a stream.
function Event:record(stream)
	local err = zffi.new_error()
	zffi.check(lib.zcc_event_record(self:pointer(), stream:pointer(), err), err)
end

--- Until the last record has been reached.
function Event:wait()
	local err = zffi.new_error()
	zffi.check(lib.zcc_event_wait(self:pointer(), err), err)
end

function Event:test()
	return test(lib.zcc_event_test, self:pointer())
end

-- ---- work ----

local function count(value, what)
	if type(value) ~= "number" or value % 1 ~= 0 or value < 0 or value > 2^53 then
		fault.raise("ZCC_EINVAL", "%s must be a whole number of 0 to 2^53, found %s", what, tostring(value))
	end
	return value
end

local function keep(self, target, source)
	local buffers = self.flight.buffers
	buffers[target], buffers[source] = true, true
end

local offsets = { type = "integer", default = 0, min = 0 }
local copy_options = { bytes = { type = "bytes" }, target_offset = offsets, source_offset = offsets }

--- All of the source, or `bytes`, from `source_offset` to `target_offset`.
function Stream:copy(target, source, given)
	local opts, err = options.check(copy_options, given, "copy"), zffi.new_error()
	local bytes = opts.bytes or source.bytes - opts.source_offset
	zffi.check(lib.zcc_copy_async(self:pointer(), target:at(opts.target_offset, bytes),
		source:at(opts.source_offset, bytes), bytes, err), err)
	keep(self, target, source)
end

local copy_2d_options = {
	bytes = { type = "bytes", required = true }, rows = { type = "integer", required = true, min = 0 },
	target_pitch = { type = "bytes", required = true }, source_pitch = { type = "bytes", required = true },
	target_offset = offsets, source_offset = offsets,
}

--- `rows` rows of `bytes`, target_pitch and source_pitch apart.
function Stream:copy_2d(target, source, given)
	local opts, err = options.check(copy_2d_options, given, "copy_2d"), zffi.new_error()
	local function reach(pitch)
		return opts.rows > 0 and (opts.rows - 1) * pitch + opts.bytes or 0
	end
	zffi.check(lib.zcc_copy_2d_async(self:pointer(), target:at(opts.target_offset, reach(opts.target_pitch)),
		opts.target_pitch, source:at(opts.source_offset, reach(opts.source_pitch)), opts.source_pitch, opts.bytes,
		opts.rows, err), err)
	keep(self, target, source)
end

local offset_options = { target_offset = offsets, source_offset = offsets }

--- target[i] = source[i], rounded to nearest even; dtypes by name, in upper or lower case.
function Stream:cast(target, target_dtype, source, source_dtype, elems, given)
	local opts, err = options.check(offset_options, given, "cast"), zffi.new_error()
	local to, to_bytes = zffi.dtype(target_dtype)
	local from, from_bytes = zffi.dtype(source_dtype)
	count(elems, "elements")
	zffi.check(lib.zcc_cast_async(self:pointer(), target:at(opts.target_offset, elems * to_bytes), to,
		source:at(opts.source_offset, elems * from_bytes), from, elems, err), err)
	keep(self, target, source)
end

--- ema[i] = fma(1 - decay, param[i] - ema[i], ema[i]); the target is ema.
function Stream:lerp(ema, param, param_dtype, decay, elems, given)
	local opts, err = options.check(offset_options, given, "lerp"), zffi.new_error()
	local from, from_bytes = zffi.dtype(param_dtype)
	count(elems, "elements")
	zffi.check(lib.zcc_lerp_async(self:pointer(), ffi.cast("float *", ema:at(opts.target_offset, elems * 4)),
		param:at(opts.source_offset, elems * from_bytes), from, decay, elems, err), err)
	keep(self, ema, param)
end

local strided_options = {
	shape = { type = "table", required = true }, elem_bytes = { type = "integer", required = true },
	target_strides = { type = "table", required = true }, source_strides = { type = "table", required = true },
	target_offset = offsets, source_offset = offsets,
}

-- Numbers as the engine takes them, and the bytes to the end of the last element.
local function axes(list, shape, elem_bytes, what)
	if #list ~= #shape then
		fault.raise("ZCC_EINVAL", "%d %s for %d axes", #list, what, #shape)
	end
	local values, last = ffi.new("int64_t[?]", math.max(#list, 1)), 0
	for i, value in ipairs(list) do
		values[i - 1] = zffi.integer(value, what)
		last = last + (shape[i] - 1) * value
		if shape[i] == 0 then
			return values, 0
		end
	end
	return values, (last + 1) * elem_bytes
end

--- The same shape on both sides, strides and extents in elements of elem_bytes.
function Stream:strided(target, source, given)
	local opts, err = options.check(strided_options, given, "strided"), zffi.new_error()
	local shape = axes(opts.shape, opts.shape, 1, "extents")
	local to, to_bytes = axes(opts.target_strides, opts.shape, opts.elem_bytes, "target strides")
	local from, from_bytes = axes(opts.source_strides, opts.shape, opts.elem_bytes, "source strides")
	zffi.check(lib.zcc_strided_async(self:pointer(), target:at(opts.target_offset, to_bytes), to,
		source:at(opts.source_offset, from_bytes), from, #opts.shape, shape, opts.elem_bytes, err), err)
	keep(self, target, source)
end

return M
