-- Pinned memory that is used again: objects over zcc/pool.h.
--
--     local pool = zcc.pool{ device = device, cap = "256MiB" }
--     local buffer = pool:take(8 * 2^20)   -- at, read, write and fill_random, as a device's pinned buffers
--     buffer:close()                       -- back to the pool

local device = require "zcc.device"
local object = require "zcc.object"
local options = require "zcc.options"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local Pool = object.class("pool", lib.zcc_pool_destroy)
local Buffer = object.class("pool buffer", function() end)
for _, name in ipairs{ "at", "read", "write", "fill_random" } do
	Buffer[name] = device.host_memory[name]
end

local create_schema = {
	device = { type = "table", required = true },
	cap = { type = "bytes" },
}

--- cap: the most that may be pinned at once, in use and kept; without it only the system's limit holds.
local function create(_, given)
	local opts = options.check(create_schema, given, "pool")
	local c_options, out, err = ffi.new("zcc_pool_options"), ffi.new("zcc_pool *[1]"), zffi.new_error()
	lib.zcc_pool_options_init(c_options)
	if opts.cap then
		c_options.cap_bytes = zffi.integer(opts.cap, "cap")
	end
	zffi.check(lib.zcc_pool_create(opts.device:pointer(), c_options, out, err), err)
	return object.wrap(Pool, out[0], { opts.device })
end

local take_schema = { unpinned = { type = "boolean", default = false } }

--- A buffer of so many bytes, contents undefined. With unpinned = true it is ordinary memory where no more may be
--- pinned. It goes back when it is closed or collected.
function Pool:take(bytes, given)
	local opts = options.check(take_schema, given, "pool take")
	local handle, out, err = self:pointer(), ffi.new("void *[1]"), zffi.new_error()
	local flags = opts.unpinned and lib.ZCC_POOL_OR_UNPINNED or 0
	zffi.check(lib.zcc_pool_take(handle, zffi.integer(bytes, "bytes"), flags, out, err), err)
	local class = setmetatable({ destroy = function(data) lib.zcc_pool_give(handle, data, nil) end }, { __index = Buffer })
	class.__index = class
	local buffer = object.wrap(class, out[0], { self })
	buffer.bytes = bytes
	return buffer
end

--- Returns what is kept to the system; how many bytes.
function Pool:trim()
	local freed = ffi.new("int64_t[1]")
	lib.zcc_pool_trim(self:pointer(), freed)
	return zffi.number(freed[0], "freed bytes")
end

local stats_fields = { "in_use_bytes", "peak_bytes", "pinned_bytes", "pinned_peak_bytes", "unpinned_bytes",
	"unpinned_peak_bytes", "takes", "hits", "unpinned_takes" }

--- zcc_pool_stats as a table; cap_bytes is nil where there is none.
function Pool:stats()
	local c_stats, stats = ffi.new("zcc_pool_stats"), {}
	lib.zcc_pool_get_stats(self:pointer(), c_stats)
	for _, field in ipairs(stats_fields) do
		stats[field] = zffi.number(c_stats[field], field)
	end
	if c_stats.cap_bytes >= 0 then
		stats.cap_bytes = zffi.number(c_stats.cap_bytes, "cap_bytes")
	end
	return stats
end

return setmetatable(M, { __call = create })
