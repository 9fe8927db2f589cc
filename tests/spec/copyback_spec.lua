-- Copy-back as Lua sees it. $ZCC_SEED gives the order of the shuffle again.

package.path = "tests/spec/?.lua;" .. package.path

local devices = require "devices"
local adamw = require "zcc.adamw"
local copyback = require "zcc.copyback"
local device = require "zcc.device"
local pool = require "zcc.pool"
local store = require "zcc.store"
local zffi = require "zcc.ffi"

local ffi = zffi.ffi

local function fault_of(call, ...)
	local ok, why = pcall(call, ...)
	assert.is_false(ok)
	return why
end

-- f32 values whose upper halves are exact in bf16: small whole numbers.
local function master(n, factor)
	local buffer = store.buffer(4 * n)
	local values = ffi.cast("float *", buffer:at(0, 4 * n))
	for i = 0, n - 1 do
		values[i] = (i % 200 - 100) * factor
	end
	return buffer, values
end

for _, name in ipairs(devices.names) do
	describe("copy-back on " .. name, function()
		local d, s

		before_each(function()
			d = device.open(name)
			s = d:stream()
		end)
		after_each(function()
			s:close()
			d:close()
		end)

		local function fetch(buffer) return devices.fetch(d, s, buffer) end

		local function upper_halves(values, n)
			local words, halves = ffi.cast("uint32_t *", values), ffi.new("uint16_t[?]", n)
			for i = 0, n - 1 do
				halves[i] = words[i] / 65536
			end
			return ffi.string(halves, 2 * n)
		end

		it("copies_pieces_at_offsets_through_two_buffers", function()
			local n = 1000
			local source, values = master(2 * n, 1)
			local target = d:malloc(4 * n)
			local p = pool{ device = d }
			local c = copyback{ device = d, dtype = "BF16", buffer_elems = 300, pool = p }
			assert.are.equal(0, p:stats().pinned_bytes)
			c:run{
				{ target = target, source = source, elems = n, source_offset = 4 * n, target_offset = 2 * n },
				{ elems = 0 },
				{ target = target, source = source, elems = n },
			}
			assert.are.equal(upper_halves(values, 2 * n), fetch(target))
			local stats = c:stats()
			assert.are.equal(2, stats.staged_pieces)
			assert.are.equal(0, stats.direct_pieces)
			assert.are.equal(8, stats.copies)
			assert.are.equal(2 * 300 * 2, stats.buffer_bytes)
			assert.are.equal(2, p:stats().takes)
			c:release()
			assert.are.equal(0, p:stats().in_use_bytes)
			c:close()
			p:close()
		end)

		it("does_it_at_once_with_dst_and_src", function()
			local n = 777
			local source, values = master(n, 0.5)
			local target = d:malloc(2 * n)
			local c = copyback{ dst = target, src = source, dtype = "bf16", buffer_elems = 100 }
			assert.are.equal(upper_halves(values, n), fetch(target))
			assert.are.equal(n, c:stats().staged_elems)
			c:close()
		end)

		it("copies_directly_without_pinning", function()
			local n = 500
			local source, values = master(n, 1)
			local target = d:malloc(2 * n)
			local c = copyback{ dst = target, src = source, pinning = false }
			assert.are.equal(upper_halves(values, n), fetch(target))
			assert.are.equal(n, c:stats().direct_elems)
			assert.are.equal(0, c:stats().buffer_bytes)
			c:close()
		end)

		it("takes_the_results_of_an_optimizer_step", function()
			local n, c = 500, copyback{ device = d, buffer_elems = 64 }
			local function optimizer(out)
				local made = adamw.create{ weight_decay = 0.1 }
				for i = 1, 2 do
					made:add{ name = "parameter " .. i, elems = n, master = master(n, 0.01 * i), exp_avg = store.buffer(4 * n),
						exp_avg_sq = store.buffer(4 * n), grad = master(n, 0.3), out = out, out_offset = out and (i - 1) * 2 * n or 0 }
				end
				return made
			end
			local out, target = store.buffer(4 * n), d:malloc(4 * n)
			local fused, separate = optimizer(), optimizer(out)
			for step = 1, 2 do
				c:adamw(fused, { target, { target, 2 * n } }, 1e-2, 0.5)
				separate:step(1e-2, 0.5)
				assert.are.equal(step, fused:steps())
				assert.are.equal(ffi.string(out:at(0, 4 * n), 4 * n), fetch(target))
			end
			assert.are.equal(4, c:stats().staged_pieces)
			local why = fault_of(c.adamw, c, fused, { target, { target, 2 * n + 2 } }, 1e-2)
			assert.is_truthy(why.message:find("1000 bytes at 1002 of a device buffer of 2000", 1, true), why.message)
			why = fault_of(c.adamw, c, fused, { target }, 1e-2)
			assert.is_truthy(why.message:find("1 targets for 2 buffers", 1, true), why.message)
			assert.are.equal(2, fused:steps())
			c:close()
		end)

		it("brings_gradients_back", function()
			local n = 501
			local source, values = master(n, 1)
			local gradient, sum = d:malloc(2 * n), store.buffer(4 * n)
			local c = copyback{ dst = gradient, src = source, buffer_elems = 100 }
			local piece = { target = sum, source = gradient, elems = n }
			c:gradients{ piece }
			c:gradients({ piece, piece }, { accumulate = true })
			local got = ffi.cast("float *", sum:at(0, 4 * n))
			for i = 0, n - 1 do
				assert.are.equal(3 * values[i], got[i])
			end
			c:close()
		end)
	end)
end

describe("copy-back", function()
	local d

	before_each(function() d = device.open("host") end)
	after_each(function() d:close() end)

	it("counts_sub_groups_of_a_ratio_from_one", function()
		assert.are.equal(8, copyback.first_host_group(20, 0.65))
		assert.are.equal(1, copyback.first_host_group(20, 1))
		assert.are.equal(21, copyback.first_host_group(20, 0))
		assert.are.equal("ZCC_EINVAL", fault_of(copyback.first_host_group, 20, 1.5).status)
	end)

	it("faults_name_the_piece", function()
		local c, target, source = copyback{ device = d, buffer_elems = 10 }, d:malloc(20), store.buffer(40)
		local function says(part, piece)
			local message = fault_of(c.run, c, { { target = target, source = source, elems = 10 }, piece }).message
			assert.is_truthy(message:find(part, 1, true), message)
		end
		says("22 bytes at 0 of a device buffer of 20", { target = target, source = source, elems = 11 })
		says("piece 2: source is missing", { target = target, elems = 1 })
		says("piece 2: target is missing", { source = source, elems = 1 })
		says("piece 2: option elems is missing", { target = target, source = source })
		says("at least 0", { target = target, source = source, elems = -1 })
		says("no multiple", { target = target, source = source, elems = 1, target_offset = 1 })
		c:close()
		assert.are.equal("this copy-back is closed", fault_of(c.run, c, {}).message)
	end)

	it("options_are_checked", function()
		local source = store.buffer(40)
		local function message(options)
			return fault_of(copyback, options).message
		end
		assert.is_truthy(message({}):find("device is missing", 1, true))
		assert.is_truthy(message({ dst = source, src = source }):find("dst is no device memory", 1, true))
		assert.is_truthy(message({ device = d, src = source }):find("found only src", 1, true))
		assert.is_truthy(message({ device = d, dtype = "I32" }):find("one of BF16, F16, F32", 1, true))
		assert.is_truthy(message({ device = d, buffer_elems = 0 }):find("at least 1", 1, true))
		assert.is_truthy(message({ device = d, nothing = 0 }):find("unknown option nothing", 1, true))
	end)

	it("a_pool_that_is_too_small_is_named_or_staged_unpinned", function()
		local p, source, target = pool{ device = d, cap = 4096 }, store.buffer(40000), d:malloc(20000)
		local piece = { target = target, source = source, elems = 10000 }
		local c = copyback{ device = d, pool = p, buffer_elems = 1000 }
		local message = fault_of(c.run, c, { piece }).message
		assert.is_truthy(message:find("two staging buffers of 2000 bytes: 2000 bytes asked", 1, true), message)
		c:close()
		c = copyback{ device = d, pool = p, buffer_elems = 1000, unpinned = true }
		c:run{ piece }
		assert.are.equal(2000, c:stats().unpinned_bytes)
		assert.are.equal(10, c:stats().copies)
		c:close()
		p:close()
	end)
end)
