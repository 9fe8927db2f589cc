local affine = require "zcc.affine"
local comm = require "zcc.comm"
local device = require "zcc.device"
local rules = require "zcc.rules"
local transfer = require "zcc.transfer"

local function layout(text)
	local rule = rules.check({ name = "only", layers = "layers%.(%d+)%.", rules = { { "", cut = 1 } } })
	return affine.Layout.build(text, { { name = "w", dtype = "F32", shape = { 4, 8 } } }, rule)
end

local function refusal(...)
	local ok, object = pcall(...)
	assert.is_false(ok)
	return object.message
end

-- Shards of one side on the device, each filled with its own letter.
local function bind(made, side, ranks, on)
	local buffers, pinned, stream = {}, on:pinned(128), on:stream()
	for i, rank in ipairs(ranks) do
		buffers[i] = on:malloc(128 / #ranks)
		pinned:write(string.rep(string.char(64 + i), 128))
		stream:copy(buffers[i], pinned, { bytes = 128 / #ranks })
		stream:wait()
		made:bind_memory(side, rank, 1, buffers[i], 0, 128 / #ranks)
	end
	return buffers
end

describe("a transfer on a device", function()
	for _, name in ipairs { "host", "late:host,lazy" } do
		it("moves_from_shard_to_shard_on_" .. name:gsub("%W", "_"), function()
			local on, world = device.open(name), comm.world()
			local source, target = layout "tp=2", layout "tp=1"
			local plan = affine.plan(target, source, "lowest")
			local made = transfer.create(plan, world, { device = on })
			made:place("source", source:ranks(), transfer.spread(source:ranks(), world))
			made:place("target", target:ranks(), transfer.spread(target:ranks(), world))
			bind(made, "source", source:ranks(), on)
			local whole = bind(made, "target", target:ranks(), on)[1]
			assert.are.equal(128, made:run().copied_bytes)
			local pinned, stream = on:pinned(128), on:stream()
			stream:copy(pinned, whole)
			stream:wait()
			-- Columns 1 to 4 of each row from the first rank, 5 to 8 from the second.
			assert.are.equal((("A"):rep(16) .. ("B"):rep(16)):rep(4), pinned:read())
		end)
	end

	it("is_refused_where_the_way_does_not_fit_the_device", function()
		local plan = affine.plan(layout "tp=1", layout "tp=2", "lowest")
		local message = refusal(transfer.create, plan, comm.world(), { transport = "mpi" })
		assert.is_truthy(message:find("option device is missing", 1, true))
		-- Whether its plug-in is there or not.
		message = refusal(transfer.create, plan, comm.world(), { device = device.open "host", transport = "nccl" })
		assert.is_truthy(message:find("nccl", 1, true))
	end)
end)
