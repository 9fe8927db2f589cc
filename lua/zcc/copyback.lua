-- Copy-back of f32 masters to a device through two pinned buffers, and of gradients the other way: objects over
-- zcc/copyback.h.
--
--     local copyback = zcc.copyback{ device = device, dtype = "BF16" }
--     copyback:run{ { target = parameter, source = master, elems = n }, … }
--     copyback:gradients({ { target = sum, source = gradient, elems = n }, … }, { accumulate = true })
--
-- or all at once, as zcc.copyback{ dst = parameter, src = master, dtype = "BF16" }. Operands are buffers of zcc.device,
-- zcc.pool and zcc.store.

local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local Copyback = object.class("copy-back", lib.zcc_copyback_destroy)

-- ---- creation ----

local create_schema = {
	device = { type = "table" },
	dtype = { type = "dtype", choices = { "BF16", "F16", "F32" }, default = "BF16" },
	buffer_elems = { type = "integer", default = 2^26, min = 1 },
	pinning = { type = "boolean", default = true },
	unpinned = { type = "boolean", default = false },
	pool = { type = "table" },
	dst = { type = "table" },
	src = { type = "table" },
}

local function new(opts)
	local c_options, out, err = ffi.new("zcc_copyback_options"), ffi.new("zcc_copyback *[1]"), zffi.new_error()
	local elem_bytes
	lib.zcc_copyback_options_init(c_options)
	c_options.dtype, elem_bytes = zffi.dtype(opts.dtype)
	c_options.buffer_elems = opts.buffer_elems
	c_options.pinning = opts.pinning and 1 or 0
	c_options.pool_flags = opts.unpinned and lib.ZCC_POOL_OR_UNPINNED or 0
	if opts.pool then
		c_options.pool = opts.pool:pointer()
	end
	zffi.check(lib.zcc_copyback_create(opts.device:pointer(), c_options, out, err), err)
	local made = object.wrap(Copyback, out[0], { opts.device, opts.pool })
	made.elem_bytes = elem_bytes
	return made
end

--- device: may be left out where dst is device memory. dtype: of the device's side. buffer_elems: of each of the two
--- staging buffers. pinning = false copies everything directly. unpinned = true takes staging buffers that are not
--- pinned rather than fail where no more may be pinned. pool: where the buffers come from. With dst and src (all of
--- src, f32) the copy is made at once.
local function create(_, given)
	local opts = options.check(create_schema, given, "copyback")
	if (opts.dst == nil) ~= (opts.src == nil) then
		fault.raise("ZCC_EINVAL", "copyback: dst and src come together, found only %s", opts.dst and "dst" or "src")
	end
	opts.device = opts.device or opts.dst and opts.dst.device
	if not opts.device then
		fault.raise("ZCC_EINVAL", "copyback: option device is missing%s", opts.dst and " (dst is no device memory)" or "")
	end
	local made = new(opts)
	if opts.dst then
		made:run{ { target = opts.dst, source = opts.src, elems = math.floor(opts.src.bytes / 4) } }
	end
	return made
end

--- Of n sub-groups, the number (from 1) of the first that lives on the host where `ratio` of them shall; n + 1 where
--- none does. Those before it live on the device.
function M.first_host_group(n, ratio)
	local first = zffi.number(lib.zcc_copyback_first_host_group(zffi.integer(n, "sub-groups"), ratio))
	if first < 0 then
		fault.raise("ZCC_EINVAL", "a ratio of %s of %s sub-groups; it must be from 0 to 1", tostring(ratio), tostring(n))
	end
	return first + 1
end

-- ---- calls ----

local piece_schema = {
	target = { type = "table" }, source = { type = "table" }, elems = { type = "integer", required = true, min = 0 },
	target_offset = { type = "integer", default = 0, min = 0 }, source_offset = { type = "integer", default = 0, min = 0 },
}

local function address(buffer, offset, bytes, what)
	if buffer == nil then
		if bytes > 0 then
			fault.raise("ZCC_EINVAL", "%s is missing", what)
		end
		return nil
	end
	return buffer:at(offset, bytes)
end

-- Offsets are in bytes. The buffers stay alive: the list is the caller's for as long as the call.
local function c_pieces(list, target_bytes, source_bytes)
	local pieces = ffi.new("zcc_copyback_piece[?]", math.max(#list, 1))
	for i, given in ipairs(list) do
		local what = "piece " .. i
		local piece = options.check(piece_schema, given, what)
		pieces[i - 1].elems = piece.elems
		pieces[i - 1].target = address(piece.target, piece.target_offset, piece.elems * target_bytes, what .. ": target")
		pieces[i - 1].source = address(piece.source, piece.source_offset, piece.elems * source_bytes, what .. ": source")
	end
	return pieces
end

--- { { target =, source =, elems =, target_offset = 0, source_offset = 0 }, … }, offsets in bytes. Sources are f32.
--- Returns when every byte has arrived.
function Copyback:run(pieces)
	local list, err = c_pieces(pieces, self.elem_bytes, 4), zffi.new_error()
	zffi.check(lib.zcc_copyback_run(self:pointer(), list, #pieces, err), err)
end

local gradients_schema = { accumulate = { type = "boolean", default = false } }

--- The other way: targets are f32 on the host; with accumulate = true they are added to.
function Copyback:gradients(pieces, given)
	local opts = options.check(gradients_schema, given, "gradients")
	local list, err = c_pieces(pieces, 4, self.elem_bytes), zffi.new_error()
	zffi.check(lib.zcc_copyback_gradients(self:pointer(), list, #pieces, opts.accumulate and 1 or 0, err), err)
end

--- optimizer:step(lr, grad_scale) (zcc.adamw) whose results go straight to the device: targets[i] is for the i-th
--- parameter that was added, a buffer or { buffer, offset in bytes }.
function Copyback:adamw(optimizer, targets, lr, grad_scale)
	local handle, n, err = optimizer:pointer(), #targets, zffi.new_error()
	local list, buffer = ffi.new("void *[?]", math.max(n, 1)), ffi.new("zcc_adamw_buffer")
	for i, target in ipairs(targets) do
		zffi.check(lib.zcc_adamw_buffer_get(handle, i - 1, buffer, err), err)
		local bytes = zffi.number(buffer.elems, "elements") * self.elem_bytes
		local offset = 0
		if target[1] then
			target, offset = target[1], target[2] or 0
		end
		list[i - 1] = address(target, offset, bytes, ("target %d, of '%s'"):format(i, zffi.string(buffer.name)))
	end
	zffi.check(lib.zcc_copyback_adamw(self:pointer(), handle, list, n, lr, grad_scale or 1, err), err)
end

--- Gives the two staging buffers back until the next use.
function Copyback:release()
	local err = zffi.new_error()
	zffi.check(lib.zcc_copyback_release(self:pointer(), err), err)
end

local stats_fields = { "staged_pieces", "direct_pieces", "staged_elems", "direct_elems", "copies", "buffer_bytes",
	"unpinned_bytes" }

--- zcc_copyback_stats as a table.
function Copyback:stats()
	local c_stats, stats = ffi.new("zcc_copyback_stats"), {}
	lib.zcc_copyback_get_stats(self:pointer(), c_stats)
	for _, field in ipairs(stats_fields) do
		stats[field] = zffi.number(c_stats[field], field)
	end
	return stats
end

return setmetatable(M, { __call = create })
