-- The offload queue: device memory to pinned host memory behind the trainer's back; objects over zcc/offload.h.
--
--     local queue = zcc.offload{ device = device, cap = "8GiB" }
--     local weight = queue:register("weight", buffer)
--     local ticket = queue:defer(step, { weight }, stream)   -- the stream that wrote it
--     queue:flush()                                          -- or not: wait and fence do
--     queue:fence()                                          -- before the next write
--     for region in queue:each(ticket) do … region:release() end
--     queue:release(ticket)
--
-- A registered buffer may not be closed before it is unregistered, registered anew or the queue is closed. Tickets and
-- handles are numbers.

local device = require "zcc.device"
local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local pool = require "zcc.pool"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local Queue = object.class("offload queue", function() end)
local Landed = { kind = "landed region", at = device.host_memory.at, read = device.host_memory.read }
Landed.__index = Landed

local places = { [lib.ZCC_AT_PAGEABLE] = "pageable", [lib.ZCC_AT_PINNED] = "pinned" }

-- Calls of the engine do not yield, so these serve all of them, coroutines too, and tens of thousands of events make no
-- garbage of them.
local err, out, flag = zffi.new_error(), ffi.new("int64_t[1]"), ffi.new("int32_t[1]")

-- ---- the queue ----

local create_schema = {
	device = { type = "table", required = true },
	pool = { type = "table" },
	cap = { type = "bytes" },
	chunk_bytes = { type = "bytes", default = 64 * 2 ^ 20 },
	busy = { type = "choice", choices = { "wait", "refuse" }, default = "wait" },
	unpinned = { type = "boolean", default = false },
	check = { type = "boolean", default = false },
	slots = { type = "integer", default = 0, min = 0, max = 4096 },
}

local function queue_options(opts)
	local c = ffi.new("zcc_offload_options")
	lib.zcc_offload_options_init(c)
	c.chunk_bytes = zffi.integer(opts.chunk_bytes, "chunk_bytes")
	c.busy = opts.busy == "refuse" and lib.ZCC_OFFLOAD_REFUSE or lib.ZCC_OFFLOAD_WAIT
	c.memory = opts.unpinned and lib.ZCC_OFFLOAD_OR_UNPINNED or lib.ZCC_OFFLOAD_PINNED_ONLY
	c.check = opts.check and 1 or 0
	c.slots = opts.slots
	return c
end

--- device; pool: where host memory comes from, else one of its own that pins at most `cap`; chunk_bytes: 64 MiB, 0 =
--- all at once; busy: "wait" or "refuse" another snapshot while one is in flight; unpinned: ordinary memory
--- where pinned runs out; check: find writes that broke a fence (slow); slots: how many regions hold memory at once
--- (0 = all), taken with each() and released one by one.
local function create(_, given)
	local opts = options.check(create_schema, given, "offload")
	local on, from = opts.device, opts.pool or pool{ device = opts.device, cap = opts.cap }
	device.bury_dead()
	local handle = ffi.new("zcc_offload *[1]")
	zffi.check(lib.zcc_offload_create(on:pointer(), from:pointer(), queue_options(opts), handle, err), err)
	-- What the engine may read, by its number in a handle; alive until the queue's thread has ended.
	local registered = { most = -1 }
	local queue = device.own(Queue, handle[0], { on }, function(dead)
		lib.zcc_offload_close(dead)
		-- No walk with pairs: where it was compiled before, it never ends while the Lua state is being closed.
		for number = 0, registered.most do
			local buffer = registered[number]
			registered[number] = nil
			if buffer then
				buffer:let_go()
			end
		end
	end)
	queue.registered = registered
	queue.pool = from
	queue.live = {} -- by ticket: { [index] = true where released }
	queue.room = 0
	return queue
end

function Queue:close()
	self.live = {}
	object.Base.close(self)
end

-- ---- buffers ----

-- Handles are generation * 2^24 + number.
local NUMBERS = 2 ^ 24

--- Registers `bytes` of a buffer from an offset (all of it by default) and gives its handle. The same name again: the
--- buffer was re-allocated, and the old handle is stale from then on.
function Queue:register(name, buffer, offset, bytes)
	object.expect_holdable(buffer, "offload: what is registered")
	offset = offset or 0
	bytes = bytes or buffer.bytes - offset
	local queue, data = self:pointer(), buffer:at(offset, bytes)
	buffer:hold(("it is registered for offload as '%s'"):format(zffi.text(name, "a name")))
	local status = lib.zcc_offload_register(queue, name, data, bytes, out, err)
	if status ~= lib.ZCC_OK then
		buffer:let_go()
		zffi.check(status, err)
	end
	local handle = zffi.number(out[0], "a handle")
	local registered, number = self.registered, handle % NUMBERS
	local old = registered[number]
	registered[number], registered.most = buffer, math.max(registered.most, number)
	if old then
		old:let_go()
	end
	return handle
end

function Queue:unregister(handle)
	zffi.check(lib.zcc_offload_unregister(self:pointer(), zffi.integer(handle, "handle"), err), err)
	local number = handle % NUMBERS
	self.registered[number]:let_go()
	self.registered[number] = nil
end

-- ---- tickets ----

local function regions_of(self, list)
	if #list > self.room then
		self.room = math.max(2 * self.room, #list)
		self.regions = ffi.new("zcc_offload_region[?]", self.room)
	end
	local regions = self.regions
	for i = 1, #list do
		local item, region = list[i], regions[i - 1]
		if type(item) == "number" then
			region.handle, region.offset_bytes, region.bytes = zffi.integer(item, "a handle"), 0, -1
		elseif type(item) == "table" and type(item.handle) == "number" then
			region.handle = zffi.integer(item.handle, "a handle")
			region.offset_bytes = zffi.integer(item.offset or 0, "offset")
			region.bytes = zffi.integer(item.bytes or -1, "bytes")
		else
			fault.raise("ZCC_EINVAL", "region %d is neither a handle nor { handle =, offset =, bytes = }", i)
		end
	end
	return regions
end

local function ticket_number(ticket)
	return zffi.integer(ticket, "ticket")
end

--- Notes regions of one snapshot (a number: the step) and gives their ticket. Each is a handle, or { handle =, offset
--- =, bytes = }. They are copied after what was submitted to the stream `after` so far, where one is given.
function Queue:defer(snapshot, list, after)
	zffi.check(lib.zcc_offload_defer(self:pointer(), zffi.integer(snapshot, "snapshot"), regions_of(self, list), #list,
		after and after:pointer() or nil, out, err), err)
	local ticket = zffi.number(out[0], "a ticket")
	self.live[ticket] = {}
	return ticket
end

--- Starts everything, or the next fraction of the snapshot.
function Queue:flush(fraction)
	if fraction then
		zffi.check(lib.zcc_offload_flush_fraction(self:pointer(), fraction, err), err)
	else
		zffi.check(lib.zcc_offload_flush(self:pointer(), err), err)
	end
end

--- Until the ticket has landed.
function Queue:wait(ticket)
	zffi.check(lib.zcc_offload_wait(self:pointer(), ticket_number(ticket), err), err)
end

--- Until everything deferred has landed; then the sources may be written.
function Queue:fence()
	zffi.check(lib.zcc_offload_fence(self:pointer(), err), err)
end

--- Whether the ticket has landed.
function Queue:test(ticket)
	zffi.check(lib.zcc_offload_test(self:pointer(), ticket_number(ticket), flag, err), err)
	return flag[0] ~= 0
end

--- Gives back the memory of a ticket that has landed or failed.
function Queue:release(ticket)
	zffi.check(lib.zcc_offload_release(self:pointer(), ticket_number(ticket), err), err)
	self.live[ticket] = nil
end

--- The same in flight: what has not started is dropped.
function Queue:cancel(ticket)
	zffi.check(lib.zcc_offload_cancel(self:pointer(), ticket_number(ticket), err), err)
	self.live[ticket] = nil
end

-- ---- what has landed ----

local landed_type = ffi.typeof("zcc_offload_landed")

local function wrap(self, c)
	local index = zffi.number(c.index) + 1
	return setmetatable({
		queue = self, data = c.data, name = zffi.string(c.name), bytes = zffi.number(c.bytes),
		offset = zffi.number(c.offset_bytes), ticket = zffi.number(c.ticket), index = index,
		generation = zffi.number(c.generation), snapshot = zffi.number(c.snapshot), place = places[c.place],
	}, Landed)
end

--- Region `index` (from 1) of a ticket: { name, bytes, offset, ticket, index, generation, snapshot, place }, and
--- methods as a buffer has.
function Queue:get(ticket, index)
	local c = landed_type()
	zffi.check(lib.zcc_offload_get(self:pointer(), ticket_number(ticket), zffi.integer(index, "index") - 1, c, err), err)
	return wrap(self, c)
end

--- Iterates over a ticket's regions in order, each as soon as it has landed, each once.
function Queue:each(ticket)
	local c = landed_type()
	return function()
		zffi.check(lib.zcc_offload_next(self:pointer(), ticket_number(ticket), c, err), err)
		if c.index < 0 then
			return nil
		end
		return wrap(self, c)
	end
end

function Landed:is_closed()
	local released = self.queue.live[self.ticket]
	return not released or released[self.index] == true
end

--- For calls into the engine; at(offset, bytes) and read(offset, bytes) are as those of pinned buffers.
function Landed:pointer()
	if self:is_closed() then
		fault.raise("ZCC_ESTALE", "the region of '%s' in ticket %d has been released", self.name, self.ticket)
	end
	return self.data
end

--- Gives back its memory.
function Landed:release()
	zffi.check(lib.zcc_offload_release_region(self.queue:pointer(), self.ticket, self.index - 1, err), err)
	self.queue.live[self.ticket][self.index] = true
end

-- ---- numbers ----

local stats_fields = { "tickets", "regions", "deferred_bytes", "copied_bytes", "chunks", "copies", "waits", "wait_ns",
	"pending_bytes", "held_bytes", "held_peak_bytes" }
--- zcc_offload_stats as a table. Those of the memory: queue.pool:stats().
function Queue:stats()
	local c, stats = ffi.new("zcc_offload_stats"), {}
	lib.zcc_offload_get_stats(self:pointer(), c)
	for _, name in ipairs(stats_fields) do
		stats[name] = zffi.number(c[name], name)
	end
	return stats
end

return setmetatable(M, { __call = create })
