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

return M
