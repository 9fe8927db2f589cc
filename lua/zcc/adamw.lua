-- AdamW on the host, fused with the cast of the new master: objects over zcc/adamw.h.
--
--     local optimizer = zcc.adamw.create{ beta2 = 0.95, weight_decay = 0.1 }
--     optimizer:add{ name = "w", elems = n, master = master, exp_avg = m, exp_avg_sq = v, grad = g,
--         grad_dtype = "BF16", out = weights }
--     optimizer:step(lr)

local device = require "zcc.device"
local fault = require "zcc.error"
local object = require "zcc.object"
local options = require "zcc.options"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local AdamW = object.class("optimizer", function() end)

local create_options = {
	beta1 = { type = "number", default = 0.9 }, beta2 = { type = "number", default = 0.999 },
	eps = { type = "number", default = 1e-8 }, weight_decay = { type = "number", default = 0.01 },
	device = { type = "table" },
}

--- options: beta1, beta2, eps, weight_decay; device, whose memory is then refused by name.
function M.create(given)
	device.bury_dead()
	local opts = options.check(create_options, given, "adamw")
	local raw, out, err = ffi.new("zcc_adamw_options"), ffi.new("zcc_adamw *[1]"), zffi.new_error()
	lib.zcc_adamw_options_init(raw)
	for _, name in ipairs { "beta1", "beta2", "eps", "weight_decay" } do
		raw[name] = opts[name]
	end
	raw.device = opts.device and opts.device:pointer()
	zffi.check(lib.zcc_adamw_create(raw, out, err), err)
	-- What the engine steps; alive as long as the optimizer.
	local held = {}
	local self = device.own(AdamW, out[0], { opts.device }, function(dead)
		lib.zcc_adamw_destroy(dead)
		object.let_go_all(held)
	end)
	self.held = held
	return self
end

local buffer, offset = { type = "table", required = true }, { type = "bytes", default = 0 }
local DTYPES = { "F32", "BF16", "F16" }
local add_options = {
	name = { type = "string", required = true }, elems = { type = "integer", required = true, min = 0 },
	master = buffer, exp_avg = buffer, exp_avg_sq = buffer, grad = buffer, out = { type = "table" },
	master_offset = offset, exp_avg_offset = offset, exp_avg_sq_offset = offset, grad_offset = offset, out_offset = offset,
	grad_dtype = { type = "dtype", choices = DTYPES, default = "F32" },
	out_dtype = { type = "dtype", choices = DTYPES, default = "BF16" },
	weight_decay = { type = "number", min = 0 },
}

--- A parameter: buffers of host memory (master, exp_avg, exp_avg_sq in F32, grad, and out for the rounded master, or
--- none), each from an offset in bytes (grad_offset, …). They live as long as the optimizer, and are not closed before
--- it. weight_decay is that of create where left out.
function AdamW:add(given)
	local opts = options.check(add_options, given, "adamw:add")
	local raw, err = ffi.new("zcc_adamw_buffer"), zffi.new_error()
	lib.zcc_adamw_buffer_init(raw)
	raw.name, raw.elems = zffi.text(opts.name, "a name"), opts.elems
	raw.grad_dtype, raw.out_dtype = zffi.dtype(opts.grad_dtype), zffi.dtype(opts.out_dtype)
	raw.weight_decay = opts.weight_decay or raw.weight_decay
	local bytes = { master = 4, exp_avg = 4, exp_avg_sq = 4, grad = lib.zcc_dtype_bytes(raw.grad_dtype),
		out = lib.zcc_dtype_bytes(raw.out_dtype) }
	for part, width in pairs(bytes) do
		if opts[part] then
			object.expect_holdable(opts[part], "adamw:add: " .. part)
			raw[part] = opts[part]:at(opts[part .. "_offset"], opts.elems * width)
		end
	end
	zffi.check(lib.zcc_adamw_add(self:pointer(), raw, nil, err), err)
	for part in pairs(bytes) do
		if opts[part] then
			object.hold_once(self.held, opts[part], ("it is %s of '%s' in an optimizer"):format(part, opts.name))
		end
	end
end

--- One step over all parameters; gradients are multiplied by grad_scale (1 where left out) first.
function AdamW:step(lr, grad_scale)
	local err = zffi.new_error()
	if type(lr) ~= "number" then
		fault.raise("ZCC_EINVAL", "adamw:step: the learning rate must be a number, found %s", tostring(lr))
	end
	zffi.check(lib.zcc_adamw_step(self:pointer(), lr, grad_scale or 1, err), err)
end

--- Steps done.
function AdamW:steps()
	return zffi.number(lib.zcc_adamw_steps(self:pointer()), "steps")
end

--- Takes up a saved count of steps.
function AdamW:resume(steps)
	local err = zffi.new_error()
	zffi.check(lib.zcc_adamw_resume(self:pointer(), zffi.integer(steps, "steps"), err), err)
end

return M
