-- Files, safetensors shards and folders that appear complete or not at all: objects over zcc/store.h.

local fault = require "zcc.error"
local object = require "zcc.object"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

-- Calls open(..., out, err) and gives what it opened.
local function opened(ctype, open, ...)
	local out, err = ffi.new(ctype .. " *[1]"), zffi.new_error()
	local args = { ... }
	local n = select("#", ...)
	args[n + 1], args[n + 2] = out, err
	zffi.check(open(unpack(args, 1, n + 2)), err)
	return out[0]
end

--- Bytes of one element of a dtype by its name ("BF16"); nil for a name that is none.
function M.dtype_bytes(name)
	local bytes = lib.zcc_dtype_bytes(lib.zcc_dtype_parse(zffi.text(name, "a dtype")))
	return bytes > 0 and bytes or nil
end

-- ---- memory ----

local Buffer = object.class("buffer", function() end)

--- Zeroed memory of this process. It lives as long as something refers to it.
function M.buffer(bytes)
	local data, err = ffi.new("void *[1]"), zffi.new_error()
	zffi.check(lib.zcc_memory_create(zffi.integer(bytes, "bytes"), data, err), err)
	local class = setmetatable({ destroy = function(pointer) lib.zcc_memory_destroy(pointer, bytes) end },
		{ __index = Buffer })
	class.__index = class
	local buffer = object.wrap(class, data[0])
	buffer.bytes = bytes
	return buffer
end

Buffer.at = object.at

--- Pseudo-random bytes that depend on the seed alone.
function Buffer:fill_random(seed)
	lib.zcc_memory_fill_random(self:pointer(), self.bytes, seed)
end

--- Copies all of another buffer, which is not larger, to its start.
function Buffer:copy(other)
	ffi.copy(self:at(0, other.bytes), other:pointer(), other.bytes)
end

-- Texts made for a comparison are at most so long.
local WINDOW_BYTES = 2^20

--- Whether another buffer holds the same bytes.
function Buffer:equals(other)
	if self.bytes ~= other.bytes then
		return false
	end
	for at = 0, self.bytes - 1, WINDOW_BYTES do
		local n = math.min(WINDOW_BYTES, self.bytes - at)
		if ffi.string(self:at(at, n), n) ~= ffi.string(other:at(at, n), n) then
			return false
		end
	end
	return true
end

-- ---- files ----

local File = object.class("file", lib.zcc_file_close)

--- An existing file, for reading.
function M.open_file(path)
	return object.wrap(File, opened("zcc_file", lib.zcc_file_open, zffi.text(path, "a path")))
end

--- An existing file, for reading and writing.
function M.open_file_for_writing(path)
	return object.wrap(File, opened("zcc_file", lib.zcc_file_open_write, zffi.text(path, "a path")))
end

function File:bytes()
	return zffi.number(lib.zcc_file_bytes(self:pointer()))
end

function File:path()
	return zffi.string(lib.zcc_file_path(self:pointer()))
end

--- XXH3-64 of the whole file, 16 hex digits.
function File:hash()
	local hex, err = ffi.new("char[17]"), zffi.new_error()
	zffi.check(lib.zcc_file_hash(self:pointer(), hex, err), err)
	return ffi.string(hex)
end

-- Bytes that are read or written before they are reported.
local PIECE_BYTES = 67108864

local function in_pieces(call, file, offset_bytes, buffer, report)
	local err, at = zffi.new_error(), 0
	while at < buffer.bytes do
		local bytes = math.min(PIECE_BYTES, buffer.bytes - at)
		zffi.check(call(file:pointer(), offset_bytes + at, buffer:at(at, bytes), bytes, err), err)
		at = at + bytes
		if report then
			report(bytes)
		end
	end
end

--- Fills a whole buffer from the file at that offset. report(bytes), which may be nil, is called for every piece.
function File:read(offset_bytes, buffer, report)
	in_pieces(lib.zcc_file_read, self, offset_bytes, buffer, report)
end

--- Writes a whole buffer there; report as for read.
function File:write(offset_bytes, buffer, report)
	in_pieces(lib.zcc_file_write, self, offset_bytes, buffer, report)
end

-- Bytes that are copied at a time.
local COPY_BYTES = 8388608

--- Copies a file of any size; there must be none at `to`.
function M.copy_file(from, to)
	local source = M.open_file(from)
	local bytes = source:bytes()
	local target = object.wrap(File, opened("zcc_file", lib.zcc_file_create, zffi.text(to, "a path"), bytes))
	local at = 0
	while at < bytes do
		local buffer = M.buffer(math.min(COPY_BYTES, bytes - at))
		source:read(at, buffer)
		target:write(at, buffer)
		at = at + buffer.bytes
		buffer:close()
	end
	target:close()
	source:close()
end

-- ---- safetensors ----

local Safetensors = object.class("safetensors file", lib.zcc_safetensors_close)

local function shape_of(info)
	local shape = {}
	for axis = 1, info.ndim do
		shape[axis] = zffi.number(info.shape_elems[axis - 1])
	end
	return shape
end

local function tensor_at(self, index)
	local info, err = ffi.new("zcc_tensor_info"), zffi.new_error()
	zffi.check(lib.zcc_safetensors_tensor(self:pointer(), index, info, err), err)
	return { name = zffi.string(info.name), dtype = zffi.string(lib.zcc_dtype_name(info.dtype)), shape = shape_of(info),
		offset = zffi.number(info.offset_bytes), bytes = zffi.number(info.bytes) }
end

--- A file with its header read and checked.
function M.open_safetensors(path)
	return object.wrap(Safetensors, opened("zcc_safetensors", lib.zcc_safetensors_open, zffi.text(path, "a path")))
end

--- { name, dtype, shape, offset (from the start of the file), bytes } of every tensor, in the order of their bytes.
function Safetensors:tensors()
	if not self.list then
		self.list = {}
		for i = 1, lib.zcc_safetensors_count(self:pointer()) do
			self.list[i] = tensor_at(self, i - 1)
		end
	end
	return self.list
end

--- The tensor with that name, or nil.
function Safetensors:find(name)
	local index = lib.zcc_safetensors_find(self:pointer(), zffi.text(name, "a name"))
	return index >= 0 and self:tensors()[index + 1] or nil
end

--- The file behind it; it is closed with this object.
function Safetensors:file()
	if not self.borrowed then
		self.borrowed = setmetatable({ handle = lib.zcc_safetensors_file(self:pointer()), pins = { self } }, File)
	end
	return self.borrowed
end

--- Offset of the first tensor byte.
function Safetensors:data_offset()
	local first = self:tensors()[1]
	return first and first.offset or self:file():bytes()
end

--- The header's __metadata__ as a table of strings.
function Safetensors:metadata()
	local found, key, value = {}, ffi.new("const char *[1]"), ffi.new("const char *[1]")
	local index = 0
	while true do
		lib.zcc_safetensors_metadata(self:pointer(), index, key, value)
		if zffi.is_null(key[0]) then
			return found
		end
		found[zffi.string(key[0])] = zffi.string(value[0])
		index = index + 1
	end
end

local SafetensorsWriter = object.class("safetensors writer", lib.zcc_safetensors_writer_destroy)

--- A header being put together; tensors lie in the order in which they are added.
function M.safetensors_writer()
	return object.wrap(SafetensorsWriter, opened("zcc_safetensors_writer", lib.zcc_safetensors_writer_create))
end

function SafetensorsWriter:add(name, dtype, shape)
	local extents, err = ffi.new("int64_t[?]", math.max(#shape, 1)), zffi.new_error()
	for axis, extent in ipairs(shape) do
		extents[axis - 1] = zffi.integer(extent, "an extent of " .. name)
	end
	zffi.check(lib.zcc_safetensors_writer_add(self:pointer(), zffi.text(name, "a name"),
		lib.zcc_dtype_parse(zffi.text(dtype, "a dtype")), #shape, extents, err), err)
end

function SafetensorsWriter:metadata(key, value)
	local err = zffi.new_error()
	zffi.check(lib.zcc_safetensors_writer_metadata(self:pointer(), zffi.text(key, "a key"), zffi.text(value, "a value"),
		err), err)
end

--- Creates the file, data bytes zero, and closes the writer.
function SafetensorsWriter:finish(path)
	local err = zffi.new_error()
	zffi.check(lib.zcc_safetensors_writer_finish(self:pointer(), zffi.text(path, "a path"), err), err)
	self:close()
end

-- ---- folders ----

local Folder = object.class("folder", lib.zcc_folder_close)

--- Makes PATH.tmp.<nonce>, to be published as PATH. `replace`: PATH may hold something, which goes away at
--- publication.
function M.begin_folder(path, replace)
	return object.wrap(Folder, opened("zcc_folder", lib.zcc_folder_begin, zffi.text(path, "a path"), replace and 1 or 0))
end

--- The temporary path.
function Folder:path()
	return zffi.string(lib.zcc_folder_path(self:pointer()))
end

--- Syncs everything and gives it its final name in one step.
function Folder:publish()
	local err = zffi.new_error()
	zffi.check(lib.zcc_folder_publish(self:pointer(), err), err)
end

--- Removes it with its contents; nothing after publish.
function Folder:discard()
	local err = zffi.new_error()
	zffi.check(lib.zcc_folder_discard(self:pointer(), err), err)
end

local kinds = { [0] = "nothing", "file", "folder", "other" }

--- "nothing", "file", "folder" or "other".
function M.path_kind(path)
	local kind, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_path_kind(zffi.text(path, "a path"), kind, err), err)
	return kinds[kind[0]]
end

--- Whether a path lies in a folder or deeper.
function M.is_below(path, folder)
	local below, err = ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_path_below(zffi.text(path, "a path"), zffi.text(folder, "a folder"), below, err), err)
	return below[0] == 1
end

--- The names in a folder, sorted bytewise.
function M.list(path)
	local names, count, err = ffi.new("char *[1]"), ffi.new("int32_t[1]"), zffi.new_error()
	zffi.check(lib.zcc_path_list(zffi.text(path, "a path"), names, count, err), err)
	local list, at = {}, names[0]
	for i = 1, count[0] do
		list[i] = ffi.string(at)
		at = at + #list[i] + 1
	end
	lib.zcc_path_list_free(names[0])
	return list
end

--- Raises where begin_folder would find PATH taken. For recipes with a --force, before they begin their work.
function M.check_vacant(path, force)
	local kind = M.path_kind(path)
	if kind == "file" or kind == "other" then
		fault.raise("ZCC_EEXIST", "%s: there is something of that name already that is no folder", path)
	end
	local n = kind == "folder" and not force and #M.list(path) or 0
	if n > 0 then
		fault.raise("ZCC_EEXIST", "%s: there is a folder with %d entr%s already; --force replaces it", path, n,
			n == 1 and "y" or "ies")
	end
end

return M
