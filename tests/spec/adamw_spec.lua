-- The optimizer as Lua sees it; tests/unit/test_adamw.c has the rules of the engine.

local adamw = require "zcc.adamw"
local device = require "zcc.device"
local store = require "zcc.store"
local zffi = require "zcc.ffi"

local ffi = zffi.ffi

local function floats(buffer, values)
	local pointer = ffi.cast("float *", buffer:pointer())
	for i, value in ipairs(values or {}) do
		pointer[i - 1] = value
	end
	return pointer
end

local function param(elems)
	return { name = "w", elems = elems, master = store.buffer(4 * elems), exp_avg = store.buffer(4 * elems),
		exp_avg_sq = store.buffer(4 * elems), grad = store.buffer(4 * elems), out = store.buffer(2 * elems) }
end

describe("adamw", function()
	it("steps_as_torch_does", function()
		-- The numbers of torch.optim.AdamW([1, -2], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.5), by hand:
		-- the first step moves by lr against the sign of the gradient, after a decay of lr * 0.5.
		local optimizer, w = adamw.create{ beta2 = 0.99, weight_decay = 0.5 }, param(2)
		floats(w.master, { 1, -2 })
		floats(w.grad, { 3, -0.5 })
		optimizer:add(w)
		optimizer:step(0.1)
		local master = floats(w.master)
		assert.is_true(math.abs(master[0] - (0.95 - 0.1)) < 1e-6)
		assert.is_true(math.abs(master[1] - (-1.9 + 0.1)) < 1e-6)
		assert.are.equal(1, optimizer:steps())
		-- Second step, gradient 0: m = 0.9 * 0.1 * 3, v = 0.99 * 0.01 * 9.
		local before = master[0]
		floats(w.grad, { 0, 0 })
		optimizer:step(0.1)
		local m, v = 0.27 / (1 - 0.81), 0.0891 / (1 - 0.9801)
		assert.is_true(math.abs(master[0] - (before * 0.95 - 0.1 * m / math.sqrt(v))) < 1e-6)
		-- The result is the master, rounded to bf16: within half of its last place.
		local half = ffi.cast("uint16_t *", w.out:pointer())[0]
		local bits = ffi.new("uint32_t[1]", half * 65536)
		local rounded = ffi.cast("float *", bits)[0]
		assert.is_true(math.abs(rounded - master[0]) <= math.abs(master[0]) / 256)
	end)

	it("offsets_pick_a_part_of_a_buffer", function()
		local optimizer, w = adamw.create{ weight_decay = 0 }, param(10)
		w.elems, w.master_offset, w.exp_avg_offset, w.exp_avg_sq_offset, w.grad_offset, w.out_offset = 4, 8, 8, 8, 8, 4
		floats(w.master, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
		floats(w.grad, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
		optimizer:add(w)
		optimizer:step(0.5, 4)
		local master = floats(w.master)
		for i = 0, 9 do
			assert.is_true(math.abs(master[i] - (i >= 2 and i < 6 and 0.5 or 1)) < 1e-6)
		end
	end)

	it("a_saved_count_of_steps_is_taken_up", function()
		local optimizer = adamw.create()
		optimizer:resume(41)
		optimizer:step(0.1)
		assert.are.equal(42, optimizer:steps())
		assert.has_error(function() optimizer:resume(-1) end)
		assert.has_error(function() optimizer:resume(1.5) end)
	end)

	it("wrong_options_are_refused", function()
		assert.has_error(function() adamw.create{ beta1 = 1 } end)
		assert.has_error(function() adamw.create{ betas = { 0.9, 0.999 } } end)
		local optimizer, w = adamw.create(), param(10)
		assert.has_error(function() optimizer:step() end)
		assert.has_error(function() optimizer:step(-1) end)
		w.elems = 11
		assert.has_error(function() optimizer:add(w) end)
		w.elems, w.out_dtype = 10, "F32"
		assert.has_error(function() optimizer:add(w) end)
	end)

	it("dtypes_are_named_in_upper_or_lower_case", function()
		local optimizer, w = adamw.create(), param(10)
		w.grad_dtype, w.out_dtype = "f32", "bf16"
		optimizer:add(w)
		w.name, w.grad_dtype = "v", "i32"
		local ok, why = pcall(optimizer.add, optimizer, w)
		assert.is_false(ok)
		assert.truthy(why.message:find('grad_dtype must be one of F32, BF16, F16, found "i32"', 1, true), why.message)
	end)

	it("memory_of_a_device_is_refused_by_name", function()
		local d = device.open("late:host")
		local optimizer, w = adamw.create{ device = d }, param(10)
		w.grad = d:malloc(40)
		local ok, why = pcall(optimizer.add, optimizer, w)
		assert.is_false(ok)
		assert.truthy(why.message:find("the gradient of 'w' is in memory of the device late:host", 1, true))
		w.grad = d:pinned(40)
		optimizer:add(w)
	end)

	it("its_buffers_are_not_closed_before_it", function()
		local optimizer, w = adamw.create(), param(10)
		optimizer:add(w)
		for _, part in ipairs { "master", "exp_avg", "exp_avg_sq", "grad" } do
			local ok, why = pcall(w[part].close, w[part])
			assert.is_false(ok)
			assert.are.equal("ZCC_EBUSY", why.status)
		end
		optimizer:step(0.1)
		optimizer:close()
		w.master:close()
	end)

	it("buffers_live_as_long_as_the_optimizer", function()
		local optimizer, w = adamw.create(), param(10)
		local weak = setmetatable({ w.master }, { __mode = "v" })
		optimizer:add(w)
		w = nil -- luacheck: ignore 311
		collectgarbage()
		assert.is_not_nil(weak[1])
		optimizer:step(0.1)
		optimizer:close()
		collectgarbage()
		collectgarbage()
		assert.is_nil(weak[1])
	end)
end)
