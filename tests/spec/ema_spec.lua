-- Averages as Lua sees them: saved, taken up again, and resharded like any parameter. $ZCC_SEED gives the order of the
-- late device's shuffle again.

package.path = "tests/spec/?.lua;" .. package.path

local devices = require "devices"
local affine = require "zcc.affine"
local checkpoint = require "zcc.checkpoint"
local checkpoint_writer = require "zcc.checkpoint_writer"
local comm = require "zcc.comm"
local device = require "zcc.device"
local ema = require "zcc.ema"
local json = require "zcc.json"
local store = require "zcc.store"
local threads = require "zcc.threads"
local transfer = require "zcc.transfer"
local zffi = require "zcc.ffi"

local ffi = zffi.ffi
local world = comm.world()

local function temporary()
	local name = os.tmpname()
	os.remove(name)
	return name
end

local function floats_of(buffer)
	return ffi.cast("float *", buffer:pointer())
end

local function bytes_of(buffer)
	return ffi.string(buffer:pointer(), buffer.bytes)
end

-- Small whole numbers: every sum below is exact.
local function fill(buffer, start)
	local values = floats_of(buffer)
	for i = 0, buffer.bytes / 4 - 1 do
		values[i] = (start + i * 7) % 1000
	end
end

local function fault_of(call, ...)
	local ok, why = pcall(call, ...)
	assert.is_false(ok)
	return why.status, why.message
end

for _, name in ipairs(devices.names) do
	describe("ema in memory of " .. name, function()
		local d, s, path

		before_each(function()
			d = device.open(name)
			s = d:stream()
			path = temporary()
		end)
		after_each(function()
			os.remove(path)
			s:close()
			d:close()
		end)

		-- An average of three parameters in device memory; advance(n) takes the n-th step.
		local function training()
			local averages, host, params = ema.create{ device = d, interval = 2 }, {}, {}
			local fast, slow = averages:group(0.5), averages:group(0.999)
			for i, elems in ipairs { 1000, 0, 37 } do
				host[i], params[i] = d:pinned(4 * elems), d:malloc(4 * elems)
				averages:add{ name = "w" .. i, group = i == 1 and fast or slow, ema = d:malloc(4 * elems), ema_place = "device",
					param = params[i], param_place = "device", elems = elems }
			end
			local function advance(n)
				for i, buffer in ipairs(host) do
					fill(buffer, n * 31 + i)
					s:copy(params[i], buffer)
				end
				local updated = averages:update(s)
				s:wait()
				return updated
			end
			for i, buffer in ipairs(host) do
				fill(buffer, i)
				s:copy(params[i], buffer)
			end
			averages:start(s)
			s:wait()
			return averages, advance
		end

		it("ten_steps_equal_five_and_five_after_saving_and_loading", function()
			local whole, advance = training()
			for n = 1, 10 do
				assert.are.equal(n % 2 == 0, advance(n))
			end
			local first, advance_first = training()
			for n = 1, 5 do
				advance_first(n)
			end
			first:save(path, s)
			first:close()
			local second, advance_second = training()
			second:load(path, s)
			assert.are.same({ 5, 2 }, { second:counters() })
			for n = 6, 10 do
				advance_second(n)
			end
			assert.are.same({ whole:counters() }, { second:counters() })
			for i in ipairs(whole:arrays()) do
				assert.are.equal(bytes_of(whole:read(i, s)), bytes_of(second:read(i, s)))
			end
		end)

		it("the_saved_file_is_an_ordinary_one_with_the_counters_as_an_array", function()
			local averages, advance = training()
			advance(1)
			advance(2)
			averages:save(path, s)
			local file = store.open_safetensors(path)
			local shapes = {}
			for _, tensor in ipairs(file:tensors()) do
				shapes[tensor.name] = tensor.dtype .. " " .. table.concat(tensor.shape, ",")
			end
			assert.are.same({ w1 = "F32 1000", w2 = "F32 0", w3 = "F32 37", [ema.COUNTERS] = "I64 2" }, shapes)
			local counters = store.buffer(16)
			file:file():read(file:find(ema.COUNTERS).offset, counters)
			assert.are.equal("\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", bytes_of(counters))
		end)

		it("a_save_that_fails_leaves_no_file", function()
			local averages = training()
			local status, message = fault_of(averages.save, averages, path)
			assert.are.equal("ZCC_EINVAL", status)
			assert.truthy(message:find("no stream", 1, true), message)
			assert.is_nil(io.open(path))
			averages:save(path, s)
		end)

		it("an_average_in_flight_outlives_its_object", function()
			local averages = training()
			averages:update(s)
			averages:update(s)
			local list = setmetatable({ averages }, { __mode = "v" })
			averages = nil -- luacheck: ignore 311
			collectgarbage()
			assert.is_not_nil(list[1])
			s:wait()
			collectgarbage()
			collectgarbage()
			assert.is_nil(list[1])
		end)
	end)
end

describe("ema on the host", function()
	local d = device.open("host")

	local function single(options)
		local averages = ema.create{ device = d }
		local given = { name = "w", group = averages:group(0.9), ema = store.buffer(40), param = store.buffer(40),
			elems = 10 }
		for key, value in pairs(options or {}) do
			given[key] = value
		end
		averages:add(given)
		return averages, given
	end

	it("averages_as_the_definition_says", function()
		local averages, given = single{ group = 0, param_dtype = "BF16", param_offset = 4,
			param = store.buffer(24) }
		local halves = ffi.cast("uint16_t *", given.param:pointer())
		for i = 2, 11 do
			halves[i] = 0x4000 -- 2
		end
		assert.is_true(averages:update())
		local values = floats_of(given.ema)
		for i = 0, 9 do
			-- (1 - 0.9) as a float, twice
			assert.are.equal(tonumber(ffi.cast("float", 1 - 0.9)) * 2, values[i])
		end
		averages:start()
		assert.are.equal(2, values[9])
		assert.are.same({ 0, 0 }, { averages:counters() })
	end)

	it("dtypes_are_named_in_upper_or_lower_case", function()
		local averages, given = single{ ema_dtype = "f32", param_dtype = "bf16", param = store.buffer(20) }
		ffi.cast("uint16_t *", given.param:pointer())[9] = 0x4000 -- 2
		averages:start()
		assert.are.equal(2, floats_of(given.ema)[9])
		local status, message = fault_of(single, { param_dtype = "bf17" })
		assert.are.equal("ZCC_EINVAL", status)
		assert.are.equal("no dtype is named bf17", message)
	end)

	it("another_decay_holds_from_the_next_update_on", function()
		local averages, given = single()
		local param, average = floats_of(given.param), floats_of(given.ema)
		param[0] = 8
		averages:set_decay(0, 0.5)
		averages:update()
		assert.are.equal(4, average[0])
		averages:set_decay(0, 0.75)
		averages:update()
		assert.are.equal(5, average[0])
		assert.has_error(function() averages:set_decay(0, 1) end)
		assert.has_error(function() averages:set_decay(7, 0.5) end)
		averages:update()
		assert.are.equal(5.75, average[0])
	end)

	it("an_average_in_bf16_is_refused_with_the_reason", function()
		local status, message = fault_of(single, { ema_dtype = "BF16" })
		assert.are.equal("ZCC_EINVAL", status)
		assert.truthy(message:find("'w': an EMA buffer of dtype BF16; it must be F32", 1, true))
		assert.truthy(message:find("never move", 1, true))
	end)

	it("a_buffer_elsewhere_than_declared_is_refused_by_name_and_both_places", function()
		local _, message = fault_of(single, { ema = d:malloc(40), ema_place = "pageable" })
		assert.truthy(message:find("EMA buffer of 'w' is declared to be in pageable memory and is in device memory", 1,
			true))
		_, message = fault_of(single, { param = d:pinned(40), param_place = "device" })
		assert.truthy(message:find("parameter buffer of 'w' is declared to be in device memory and is in pinned memory", 1,
			true))
	end)

	it("buffers_too_small_and_unknown_options_are_refused", function()
		assert.has_error(function() single{ elems = 11 } end)
		assert.has_error(function() single{ ema_offset = 4 } end)
		assert.has_error(function() single{ shape = { 2, 6 } } end)
		assert.has_error(function() single{ decay = 0.9 } end)
		assert.has_error(function() single{ ema_place = "elsewhere" } end)
		assert.has_error(function() ema.create{} end)
		assert.has_error(function() ema.create{ device = d, interval = 0 } end)
		single{ shape = { 2, 5 } }
	end)

	it("a_file_of_other_averages_is_refused_and_nothing_is_changed", function()
		local path = temporary()
		local averages, given = single()
		fill(given.param, 3)
		averages:start()
		averages:save(path)
		local before = bytes_of(given.ema)
		local function refused(other, part)
			local values = bytes_of(other:read(1))
			local status, message = fault_of(other.load, other, path)
			assert.are.equal("ZCC_EFORMAT", status)
			assert.truthy(message:find(part, 1, true), message)
			assert.are.equal(values, bytes_of(other:read(1)))
		end
		refused(single{ name = "v" }, "holds no v")
		refused(single{ elems = 9 }, "holds w as F32 [10], the EMA has F32 [9]")
		refused(single{ shape = { 2, 5 } }, "holds w as F32 [10], the EMA has F32 [2, 5]")
		local two = single{ elems = 10 }
		two:add{ name = "u", group = 0, ema = store.buffer(4), param = store.buffer(4), elems = 1 }
		assert.are.equal("ZCC_EEXIST", (fault_of(two.save, two, path)))
		os.remove(path)
		two:save(path)
		refused(averages, "holds 2 averages, the EMA has 1")
		assert.are.equal(before, bytes_of(given.ema))
		os.remove(path)
	end)

	it("its_buffers_are_not_closed_before_it", function()
		local averages, given = single()
		for _, part in ipairs { "ema", "param" } do
			local status, message = fault_of(given[part].close, given[part])
			assert.are.equal("ZCC_EBUSY", status)
			assert.are.equal("this buffer may not be closed: it is averaged as 'w'", message)
		end
		averages:update()
		averages:close()
		given.ema:close()
		given.param:close()
	end)

	it("collected_without_being_closed_lets_its_buffers_go", function()
		local weak = setmetatable({}, { __mode = "v" })
		do
			local averages, given = single()
			averages:update()
			weak[1], weak[2] = given.ema, given.param
		end
		collectgarbage()
		collectgarbage()
		ema.create{ device = d }:close()
		collectgarbage()
		collectgarbage()
		assert.is_nil(weak[1])
		assert.is_nil(weak[2])
	end)

	it("numbers_and_names_that_are_none_are_refused", function()
		local averages, given = single()
		local before = bytes_of(given.ema)
		for _, bad in ipairs { 2^32, 0 / 0, 0.5, -1, "0" } do
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.set_decay, averages, bad, 0.25)))
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.read, averages, bad)))
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.write, averages, bad, store.buffer(40))))
			assert.are.equal("ZCC_EINVAL", (fault_of(single, { group = bad })))
		end
		for _, bad in ipairs { 1.5, 0 / 0, 1e300, -1 } do
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.resume, averages, bad, 0)))
		end
		assert.are.equal("ZCC_EINVAL", (fault_of(single, { name = "a\0b" })))
		local _, message = fault_of(single, { name = ema.COUNTERS })
		assert.truthy(message:find("saved counters", 1, true), message)
		for _, bad in ipairs { false, "a\0b", 5 } do
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.save, averages, bad or nil)))
			assert.are.equal("ZCC_EINVAL", (fault_of(averages.load, averages, bad or nil)))
		end
		for _, bad in ipairs { 2^32 + 1, 0 / 0, 1.5, "2" } do
			assert.are.equal("ZCC_EINVAL", (fault_of(threads.set, bad)))
		end
		local elsewhere = d:malloc(40)
		_, message = fault_of(averages.write, averages, 1, elsewhere)
		assert.truthy(message:find("'w' is in device memory", 1, true), message)
		assert.are.equal(before, bytes_of(given.ema))
	end)

	it("is_closed_once_and_says_so", function()
		local averages = single()
		averages:close()
		averages:close()
		local _, message = fault_of(averages.update, averages)
		assert.truthy(message:find("this EMA is closed", 1, true))
	end)

	it("takes_as_many_threads_as_it_is_told", function()
		local before = threads.get()
		threads.set(3)
		assert.are.equal(3, threads.get())
		assert.has_error(function() threads.set(0) end)
		threads.set(before)
	end)
end)

describe("ema of shards", function()
	local d = device.open("host")
	local folder

	-- Names, shapes and rules of a small model, and its averages whole: what no shard ever holds.
	local rules = require("zcc.rules").family("llama")
	local config = { model_type = "llama", num_attention_heads = 4, num_key_value_heads = 2, hidden_size = 16,
		head_dim = 4 }
	local tensors = {
		{ name = "model.embed_tokens.weight", shape = { 13, 16 } },
		{ name = "model.layers.0.self_attn.q_proj.weight", shape = { 16, 16 } },
		{ name = "model.layers.0.self_attn.k_proj.weight", shape = { 8, 16 } },
		{ name = "model.layers.0.mlp.down_proj.weight", shape = { 16, 24 } }, { name = "model.norm.weight", shape = { 16 } },
	}
	for _, tensor in ipairs(tensors) do
		tensor.dtype = "F32"
	end

	before_each(function() folder = temporary() end)
	after_each(function() os.execute("rm -rf " .. folder .. "*") end)

	local function layout(text)
		return affine.Layout.build(text, tensors, rules, { config = config })
	end

	-- Everything of one layout in memory: buffers[rank][param].
	local function memory(made)
		local buffers = {}
		for _, rank in ipairs(made:ranks()) do
			buffers[rank] = {}
			for index in ipairs(made:params()) do
				local shard = made:shard(index, rank)
				buffers[rank][index] = shard and store.buffer(shard.bytes) or nil
			end
		end
		return buffers
	end

	local function bind(run, side, made, buffers)
		run:place(side, made:ranks(), transfer.spread(made:ranks(), world))
		for _, rank in ipairs(made:ranks()) do
			for index in ipairs(made:params()) do
				local buffer = buffers[rank][index]
				if buffer then
					run:bind_memory(side, rank, index, buffer, 0, buffer.bytes)
				end
			end
		end
	end

	local function move(target, source, bind_target, bind_source)
		local run = transfer.create(affine.plan(target, source, "balanced"), world)
		bind_source(run)
		bind_target(run)
		run:run()
		run:close()
	end

	-- The parameter put together from its shards by their pieces, as text: another way than the plan's.
	local function whole(made, buffers, index)
		local shape = made:params()[index].shape
		local elems, strides = 1, {}
		for axis = #shape, 1, -1 do
			strides[axis] = elems
			elems = elems * shape[axis]
		end
		local values = ffi.new("uint32_t[?]", elems, 0xdeadbeef)
		for _, rank in ipairs(made:ranks()) do
			for _, piece in ipairs(buffers[rank][index] and made:pieces(index, rank) or {}) do
				local from = ffi.cast("uint32_t *", buffers[rank][index]:pointer())
				local function walk(axis, to_at, from_at)
					if axis > #shape then
						values[to_at] = from[from_at]
						return
					end
					for i = 0, piece.shape[axis] - 1 do
						walk(axis + 1, to_at + (piece.origin[axis] + i) * strides[axis], from_at + i * piece.strides[axis])
					end
				end
				walk(1, 0, piece.offset)
			end
		end
		return ffi.string(values, 4 * elems)
	end

	-- Averages of all shards, one EMA a rank, with parameters and averages in buffers of zcc.store.
	local function averages_of(made, params)
		local list, buffers = {}, memory(made)
		for _, rank in ipairs(made:ranks()) do
			local averages = ema.create{ device = d }
			local group = averages:group(0.75)
			for index, param in ipairs(made:params()) do
				local shard = made:shard(index, rank)
				if shard then
					averages:add{ name = param.name, group = group, ema = buffers[rank][index], param = params[rank][index],
						shape = shard.shape }
				end
			end
			list[rank] = averages
		end
		return list, buffers
	end

	-- Saved on four ranks after three steps: returns the source layout, the buffers, and each average whole.
	local function saved(text)
		local source = layout(text)
		local full = layout("full")
		local full_memory = memory(full)
		local params = memory(source)
		local list, buffers = averages_of(source, params)
		for step = 1, 3 do
			for index in ipairs(tensors) do
				fill(full_memory[full:ranks()[1]][index], step * 100 + index)
			end
			move(source, full, function(run) bind(run, "target", source, params) end,
				function(run) bind(run, "source", full, full_memory) end)
			for _, rank in ipairs(source:ranks()) do
				list[rank]:update()
			end
		end
		local spread = transfer.spread(source:ranks(), world)
		local output = checkpoint_writer.begin{ path = folder, comm = world, layout = source, full = false,
			placement = spread }
		move(source, source, function(run)
			run:place("target", source:ranks(), spread)
			output:bind(run)
		end, function(run) bind(run, "source", source, buffers) end)
		output:write()
		output:close_files()
		output:publish(checkpoint.manifest(source.description, { metadata = {} }))
		local wholes = {}
		for index in ipairs(tensors) do
			wholes[index] = whole(source, buffers, index)
		end
		return wholes, full_memory[full:ranks()[1]]
	end

	for _, text in ipairs { "dp=4,zero=1", "dp=2,tp=2,zero=3", "tp=4" } do
		it("saved_on_four_ranks_as_" .. text .. "_equals_itself_on_two_three_and_eight", function()
			local wholes, weights = saved(text)
			-- The averages, not the weights: that they differ is what makes the comparison worth something.
			for index in ipairs(tensors) do
				assert.are_not.equal(wholes[index], bytes_of(weights[index]))
			end
			for _, target_text in ipairs { "dp=2,zero=1", "tp=2", "dp=3,zero=3", "dp=4,tp=2,zero=1", "dp=8,zero=3" } do
				local target, input = layout(target_text), checkpoint.open(folder)
				local source = affine.Layout.from_description(input.description)
				local spread = transfer.spread(source:ranks(), world)
				local list, buffers = averages_of(target, memory(target))
				move(target, source, function(run) bind(run, "target", target, buffers) end, function(run)
					run:place("source", source:ranks(), spread)
					input:bind(run, source, spread)
				end)
				for index, tensor in ipairs(tensors) do
					assert.are.equal(wholes[index], whole(target, buffers, index), tensor.name .. " on " .. target_text)
				end
				-- They average on from there.
				for _, rank in ipairs(target:ranks()) do
					list[rank]:resume(3, 3)
					assert.is_true(list[rank]:update())
				end
				input:close()
			end
			assert.are.equal("zcc checkpoint", json.decode_file(folder .. "/manifest.json").format)
		end)
	end
end)
