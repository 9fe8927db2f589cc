-- Objects over a handle of the engine: { handle, pins } and a class of methods.
--
-- close() may be called twice. It takes the finalizer off first, then frees; from then on every use of the handle
-- raises a clear error. The finalizer only drops the reference: no MPI, no waiting.

local fault = require "zcc.error"
local zffi = require "zcc.ffi"

local ffi = zffi.ffi

local M = {}

local Base = {}
M.Base = Base

--- The live handle, for calls into the engine.
function Base:pointer()
	local handle = self.handle
	if handle == nil then
		fault.raise("ZCC_EINVAL", "this %s is closed", self.kind)
	end
	return handle
end

function Base:is_closed()
	return self.handle == nil
end

function Base:close()
	local handle = self.handle
	if handle == nil then
		return
	end
	if self.holder then
		fault.raise("ZCC_EBUSY", "this %s may not be closed: %s", self.kind, self.holder)
	end
	self.handle, self.pins = nil, nil
	ffi.gc(handle, nil)
	self.destroy(handle)
end

--- For what the engine reads by itself: until it is let go as often, close() is refused, saying why, and no finalizer
--- runs, not even when the Lua state is closed.
function Base:hold(why)
	local handle = self:pointer()
	self.holds = (self.holds or 0) + 1
	self.holder = why
	ffi.gc(handle, nil)
end

function Base:let_go()
	self.holds = self.holds - 1
	if self.holds == 0 then
		self.holder = nil
		ffi.gc(self.handle, self.finalizer)
	end
end

--- Refuses what cannot be held, as memory that an offload queue lends out.
function M.expect_holdable(object, what)
	if type(object) ~= "table" or not object.hold then
		fault.raise("ZCC_EINVAL", "%s must be a buffer, found a %s", what,
			type(object) == "table" and object.kind or type(object))
	end
end

--- Buffers that the engine uses by itself, each held once in a list, and let go all together.
function M.hold_once(held, buffer, why)
	if not held[buffer] then
		buffer:hold(why)
		held[#held + 1], held[buffer] = buffer, true
	end
end
-- No walk with pairs: where it was compiled before, it never ends while the Lua state is being closed.
function M.let_go_all(held)
	for i = #held, 1, -1 do
		local buffer = held[i]
		held[i], held[buffer] = nil, nil
		buffer:let_go()
	end
end

--- A class: `kind` names it in messages ("layout"), `destroy` is the engine's function that drops the reference.
function M.class(kind, destroy)
	local class = { kind = kind, destroy = destroy }
	class.__index = class
	class.__tostring = function(self)
		return ("%s%s"):format(kind, self.handle == nil and " (closed)" or "")
	end
	for name, method in pairs(Base) do
		class[name] = method
	end
	return class
end

--- An object of that class which owns the handle; `pins` (a table) keeps alive what the engine only borrows.
function M.wrap(class, handle, pins)
	local owned = ffi.gc(handle, class.destroy)
	return setmetatable({ handle = owned, pins = pins, finalizer = class.destroy }, class)
end

-- NaN and infinities are none.
local function is_count(value)
	return type(value) == "number" and value % 1 == 0 and value >= 0
end

local function show(value)
	return is_count(value) and ("%.0f"):format(value) or tostring(value)
end

--- The method at(offset_bytes, bytes) of objects that are memory of `bytes`: the address of a range within it, for
--- calls into the engine.
function M.at(self, offset_bytes, bytes)
	if not (is_count(offset_bytes) and is_count(bytes) and offset_bytes + bytes <= self.bytes) then
		fault.raise("ZCC_EINVAL", "%s bytes at %s of a %s of %.0f", show(bytes), show(offset_bytes), self.kind,
			self.bytes)
	end
	return zffi.ffi.cast("char *", self:pointer()) + offset_bytes
end

return M
