-- The group of processes that run a recipe. Every method is collective: all processes call it, in the same order.
-- comm.rank (from 0) and comm.size are plain numbers.

local fault = require "zcc.error"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local Comm = {}
Comm.__index = Comm

local function wrap(handle)
	return setmetatable({ handle = handle, rank = lib.zcc_comm_rank(handle), size = lib.zcc_comm_size(handle) }, Comm)
end

--- The processes of this program: all that mpirun started under zccrun, else this one.
function M.world()
	if not M.of_program then
		local program = package.loaded["zcc.program"]
		if program and program.comm then
			M.of_program = wrap(ffi.cast("zcc_comm *", program.comm))
		else
			local out, err = ffi.new("zcc_comm *[1]"), zffi.new_error()
			zffi.check(lib.zcc_comm_create_local(out, err), err)
			M.of_program = wrap(ffi.gc(out[0], lib.zcc_comm_destroy))
		end
	end
	return M.of_program
end

--- The handle, for calls into the engine.
function Comm:pointer()
	return self.handle
end

local function status_number(name)
	local known, number = pcall(function() return lib[name] end)
	return known and number or lib.ZCC_EINVAL
end

-- A fault crosses processes as a zcc_error. What Lua adds travels in its texts: the place before the message, misuse
-- as the operation.
local function pack_error(value)
	local err = zffi.new_error()
	local object = fault.from(value)
	-- A signal ends Lua code with a text.
	err.status = object.is_text and lib.zcc_interrupted() ~= 0 and lib.ZCC_EINTR or status_number(object.status)
	err.code = object.code
	err.process = object.process or -1
	err.line = object.c_line or 0
	ffi.copy(err.file, (object.c_file or ""):sub(1, 63))
	ffi.copy(err.operation, object.misuse and "misuse" or (object.operation or ""):sub(1, 63))
	ffi.copy(err.message, ((object.place and object.place .. ": " or "") .. object.message):sub(1, 1023))
	return err
end

local function unpack_error(comm, status, err)
	local object = zffi.error_object(status, err)
	object.misuse = object.operation == "misuse" or nil
	object.place = nil
	if comm.size == 1 then
		object.process = nil
	end
	return object
end

--- Brings this process's fault (an error object or any error value; nil for none) and raises on every process that of
-- the lowest process which has one.
function Comm:agree(mine)
	local err = zffi.new_error()
	local status = lib.zcc_comm_agree(self.handle, mine ~= nil and pack_error(mine) or nil, err)
	if status ~= 0 then
		error(unpack_error(self, status, err), 0)
	end
end

local function settle(self, ok, ...)
	if ok then
		self:agree()
	else
		self:agree((...))
	end
	return ...
end

--- Runs fn(...) on this process and returns what it returns, once it has gone well on all of them; where it failed on
-- any, the same error is raised on all. fn itself must not be collective.
function Comm:together(fn, ...)
	return settle(self, pcall(fn, ...))
end

-- In place over all processes: one number, or a list of numbers (a new list comes back).
local function reduce(self, call, values, what)
	local list = type(values) == "number" and { values } or values
	if type(list) ~= "table" then
		fault.raise("ZCC_EINVAL", "comm:%s takes a number or a list of numbers, found %s", what, type(values))
	end
	local buffer, err = ffi.new("int64_t[?]", #list), zffi.new_error()
	for i, value in ipairs(list) do
		buffer[i - 1] = zffi.integer(value, "a value of comm:" .. what)
	end
	zffi.check(call(self.handle, buffer, #list, err), err)
	local result = {}
	for i = 1, #list do
		result[i] = zffi.number(buffer[i - 1], "the result of comm:" .. what)
	end
	return list == values and result or result[1]
end

--- The sum over all processes of a whole number, or of each number of a list.
function Comm:sum(values)
	return reduce(self, lib.zcc_comm_sum, values, "sum")
end

--- The largest over all processes.
function Comm:max(values)
	return reduce(self, lib.zcc_comm_max, values, "max")
end

--- The text that process `root` (0 where left out) gives, on all of them.
function Comm:broadcast(text, root)
	root = root or 0
	local mine = self.rank == root
	if mine and type(text) ~= "string" then
		fault.raise("ZCC_EINVAL", "comm:broadcast takes a string on process %d, found %s", root, type(text))
	end
	local err = zffi.new_error()
	local length = ffi.new("int64_t[1]", mine and #text or 0)
	zffi.check(lib.zcc_comm_broadcast(self.handle, length, 8, root, err), err)
	local bytes = zffi.number(length[0])
	local buffer = ffi.new("char[?]", bytes + 1)
	if mine then
		ffi.copy(buffer, text, bytes)
	end
	zffi.check(lib.zcc_comm_broadcast(self.handle, buffer, bytes, root, err), err)
	return ffi.string(buffer, bytes)
end

--- Raises on every process unless all give the same value: a whole number, or a digest of 16 hex digits. `what` names
-- it in the message.
function Comm:same(what, value)
	local number = type(value) == "string" and zffi.unhex(value) or zffi.integer(value, what)
	local err = zffi.new_error()
	zffi.check(lib.zcc_comm_same(self.handle, what, number, err), err)
end

return M
