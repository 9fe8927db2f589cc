-- The transfer phase of a reshard of a 1 GB checkpoint, from memory to memory, against memcpy: `mpirun -n 2 zccrun
-- bench/transfer.lua`.

local zcc = require "zcc"

-- About 1 GB of bf16 with the structure of Qwen3.
local shapes = zcc.shapes.generate("qwen3", { model_type = "qwen3", num_hidden_layers = 8, hidden_size = 2048,
	intermediate_size = 6144, num_attention_heads = 16, num_key_value_heads = 8, head_dim = 128, vocab_size = 24576,
	tie_word_embeddings = false })
local rules = zcc.rules.family("qwen3")

local TIMES = 5
local STAGING = 8 * 2 ^ 20

local function layout(text)
	return zcc.affine.Layout.build(text, shapes.tensors, rules, { config = shapes.config })
end

-- One buffer per rank placed here, its shards one after the other; returns the buffers and their bytes.
local function bind(transfer, side, made, placement, fill)
	local buffers, total = {}, 0
	for _, rank in ipairs(placement:here()) do
		local offsets, bytes = {}, 0
		for index in ipairs(made:params()) do
			local shard = made:shard(index, rank)
			if shard then
				offsets[index], bytes = bytes, bytes + shard.bytes
			end
		end
		local buffer = zcc.store.buffer(bytes)
		if fill then
			buffer:fill_random(rank)
		end
		for index in ipairs(made:params()) do
			if offsets[index] then
				transfer:bind_memory(side, rank, index, buffer, offsets[index], made:shard(index, rank).bytes)
			end
		end
		buffers[#buffers + 1], total = buffer, total + bytes
	end
	return buffers, total
end

-- The slowest process decides.
local function slowest(comm, seconds)
	return comm:max(math.floor(seconds * 1e9)) / 1e9
end

-- Seconds of `run` and of a memcpy of `bytes` by every process at once, medians of turns that alternate: other work on
-- the machine then slows both.
local function against_memcpy(comm, run, bytes)
	local from, to = zcc.store.buffer(bytes), zcc.store.buffer(bytes)
	from:fill_random(1)
	local ours, theirs = {}, {}
	for i = 0, TIMES do
		-- Turn 0 only warms up.
		comm:sum(0)
		local watch = zcc.clock.stopwatch()
		run()
		ours[i] = slowest(comm, watch())
		comm:sum(0)
		watch = zcc.clock.stopwatch()
		to:copy(from)
		theirs[i] = slowest(comm, watch())
	end
	from:close()
	to:close()
	table.sort(ours)
	table.sort(theirs)
	return ours[(TIMES + 1) / 2], theirs[(TIMES + 1) / 2]
end

local function measure(ctx, from, to)
	local comm = ctx.comm
	local source, target = layout(from), layout(to)
	local plan = zcc.affine.plan(target, source, "balanced")
	local transfer = zcc.transfer.create(plan, comm, { staging_bytes = STAGING })
	local source_at, target_at = zcc.transfer.spread(source:ranks(), comm), zcc.transfer.spread(target:ranks(), comm)
	transfer:place("source", source:ranks(), source_at)
	transfer:place("target", target:ranks(), target_at)
	local memory, own = bind(transfer, "source", source, source_at, true)
	local targets, target_bytes = bind(transfer, "target", target, target_at, false)
	zcc.bench.reset_peak_memory()
	transfer:run()
	local over = zcc.bench.peak_memory() - own - target_bytes - STAGING * comm.size
	local seconds, memcpy = against_memcpy(comm, function() transfer:run() end, target_bytes)
	transfer:close()
	for _, list in ipairs { memory, targets } do
		for _, buffer in ipairs(list) do
			buffer:close()
		end
	end
	local stats = plan:stats()
	return { bytes = stats.sent_bytes + stats.local_bytes, seconds = seconds, memcpy = memcpy,
		over = comm:max(math.max(0, over)) }
end

local list = {}
for _, pair in ipairs { { "dp=4,tp=2,zero=3", "tp=4,style=megatron" }, { "tp=4,style=megatron", "dp=4,tp=2,zero=3" },
	{ "dp=2,zero=3", "tp=2,style=megatron" } } do
	local name, done = ("1 GB %s -> %s"):format(pair[1], pair[2]), nil
	list[#list + 1] = {
		name = name,
		run = function(ctx)
			done = measure(ctx, pair[1], pair[2])
			return { value = done.bytes / done.seconds / 1e9, unit = "GB/s", limit = done.bytes / done.memcpy / 1e9,
				target = 0.5 }
		end,
	}
	list[#list + 1] = {
		name = name .. ", memory beyond shards and staging",
		run = function(ctx)
			done = done or measure(ctx, pair[1], pair[2])
			return { value = done.over / 1e6, unit = "MB", target = 200, at_most = true }
		end,
	}
end

return zcc.bench.recipe {
	name = "transfer",
	about = "The transfer from memory to memory against memcpy of the same bytes by the same processes, median of "
		.. TIMES .. ".",
	cases = list,
}
