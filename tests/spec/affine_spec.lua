local affine = require "zcc.affine"
local json = require "zcc.json"
local rules = require "zcc.rules"
local shapes = require "zcc.shapes"

local Layout, Plan = affine.Layout, affine.Plan

local function param(name, ...)
	return { name = name, dtype = "F32", shape = { ... } }
end

local function only(rule)
	rule[1] = ""
	return rules.check({ name = "only", layers = "layers%.(%d+)%.", rules = { rule } })
end

local function refusal(...)
	local ok, object = pcall(...)
	assert.is_false(ok)
	return object.message, object.status
end

-- No userdata or 64-bit number anywhere in what a user gets.
local function assert_plain(value)
	if type(value) == "table" then
		for key, item in pairs(value) do
			assert_plain(key)
			assert_plain(item)
		end
	else
		assert.are_not.equal("cdata", type(value))
	end
end

-- The elements of a 2-axis parameter that a rank stores, as "row,column" in the order of its shard; "-" is padding.
local function contents(layout, index, rank)
	local shard = layout:shard(index, rank)
	if not shard then return nil end
	local cells = {}
	for i = 1, shard.elems do cells[i] = "-" end
	for _, piece in ipairs(layout:pieces(index, rank)) do
		for row = 0, piece.shape[1] - 1 do
			for column = 0, piece.shape[2] - 1 do
				local at = piece.offset + row * piece.strides[1] + column * piece.strides[2]
				assert.are.equal("-", cells[at + 1])
				cells[at + 1] = ("%d,%d"):format(piece.origin[1] + row, piece.origin[2] + column)
			end
		end
	end
	return table.concat(cells, " "), table.concat(shard.shape, "x")
end

describe("layouts", function()
	it("tell_what_the_fullest_rank_stores_with_its_padding", function()
		local same = rules.check{ rules = {
			{ "a", cut = 0 }, { "b", vocab = 0 }, { "c", replicate = true, stage = "last" } } }
		local params = { param("a", 6, 4), param("b", 5), { name = "c", dtype = "BF16", shape = { 9 } } }
		-- 12 of 24 elements, 3 of 6 with the padding, and on the last stage all of c.
		assert.are.equal(4 * (12 + 3) + 2 * 9, Layout.build("tp=2,vocab_pad=1", params, same):largest_rank_bytes())
		params[1].name, params[2].name = "layers.1.a", "layers.0.b"
		assert.are.equal(4 * 24 + 2 * 9, Layout.build("pp=2", params, rules.check{ layers = "layers%.(%d+)%.",
			rules = same.rules }):largest_rank_bytes())
	end)

	it("tell_parameters_ranks_and_shards_in_plain_values", function()
		local layout = Layout.build("dp=2,tp=2,base=4", { param("a", 6, 4), param("b", 3) }, rules.check{ rules = {
			{ "a", cut = 0 }, { "b", replicate = true } } })
		assert.are.same({ { name = "a", dtype = "F32", shape = { 6, 4 }, elems = 24, bytes = 96 },
			{ name = "b", dtype = "F32", shape = { 3 }, elems = 3, bytes = 12 } }, layout:params())
		assert.are.same({ 4, 5, 6, 7 }, layout:ranks())
		assert.are.same({ shape = { 3, 4 }, elems = 12, bytes = 48, pieces = 1 }, layout:shard(1, 5))
		assert.are.same({ { shape = { 3, 4 }, origin = { 3, 0 }, offset = 0, strides = { 4, 1 },
			holders = { 5, 7 }, scale = 1 } },
			layout:pieces(1, 7))
		assert.are.equal(2, layout:find("b"))
		assert.is_nil(layout:find("c"))
		assert.are.equal(8, layout:count_pieces())
		assert_plain({ layout:params(), layout:ranks(), layout:shard(1, 5), layout:pieces(1, 7) })
		layout:validate()
	end)

	it("cut_the_fused_attention_of_gpt2_head_by_head", function()
		-- Width 4, 2 heads of 2 columns: rank 1 has the second half of q, of k and of v.
		local layout = Layout.build("tp=2", { param("h.0.attn.c_attn.weight", 1, 12) }, rules.family("gpt2"),
			{ config = { n_head = 2, n_embd = 4 } })
		assert.are.same({ "0,0 0,1 0,4 0,5 0,8 0,9", "1x6" }, { contents(layout, 1, 0) })
		assert.are.same({ "0,2 0,3 0,6 0,7 0,10 0,11", "1x6" }, { contents(layout, 1, 1) })
	end)

	it("share_key_value_heads_where_there_are_fewer_than_ranks", function()
		local layout = Layout.build("tp=4", { param("w", 4, 1) }, only{ cut = 0, units = 2, grouped = true })
		local stored = {}
		for rank = 0, 3 do stored[rank + 1] = contents(layout, 1, rank) end
		assert.are.same({ "0,0 1,0", "0,0 1,0", "2,0 3,0", "2,0 3,0" }, stored)
		assert.are.same({ 2, 3 }, layout:pieces(1, 2)[1].holders)
	end)

	it("pad_the_vocabulary_and_never_count_padding_as_data", function()
		local layout = Layout.build("tp=4,vocab_pad=1", { param("w", 13, 1) }, only{ vocab = 0 })
		assert.are.same({ "8,0 9,0 10,0 11,0", "4x1" }, { contents(layout, 1, 2) })
		assert.are.same({ "12,0 - - -", "4x1" }, { contents(layout, 1, 3) })
	end)

	it("cut_rows_unevenly_where_extents_are_given", function()
		local layout = Layout.build("tp=4", { param("w", 10, 1) }, only{ cut = 0, extents = { 3, 3, 3, 1 } })
		assert.are.same({ "6,0 7,0 8,0", "3x1" }, { contents(layout, 1, 2) })
		assert.are.same({ "9,0", "1x1" }, { contents(layout, 1, 3) })
		layout = Layout.build("tp=4", { param("w", 10, 1) }, only{ cut = 0, units = 5, uneven = true })
		assert.are.same({ "0,0 1,0 2,0 3,0", "4x1" }, { contents(layout, 1, 0) })
		assert.are.same({ "8,0 9,0", "2x1" }, { contents(layout, 1, 3) })
	end)

	it("flatten_and_cut_the_local_shard_for_zero_3", function()
		-- Local shards of 3 x 2 cut over 4 ranks of dp: parts of 2, the last one padding.
		local layout = Layout.build("dp=4,tp=2,zero=3", { param("w", 3, 4) }, only{ cut = 1 })
		assert.are.same({ "0,2 0,3", "2" }, { contents(layout, 1, 1) })
		assert.are.same({ "2,0 2,1", "2" }, { contents(layout, 1, 4) })
		assert.are.same({ "- -", "2" }, { contents(layout, 1, 6) })
		-- Cut over two neighbours only: the two halves of the group have the same.
		layout = Layout.build("dp=4,zero=3,hpz=2", { param("w", 2, 2) }, only{ replicate = true })
		assert.are.same({ "1,0 1,1", "2" }, { contents(layout, 1, 1) })
		assert.are.same({ 1, 3 }, layout:pieces(1, 3)[1].holders)
	end)

	it("carry_the_scale_of_what_is_stored", function()
		local rule = only{ replicate = true, scale = function(_, tp) return 1 / tp end }
		local layout = Layout.build("tp=4", { param("bias", 2, 2) }, rule)
		assert.are.equal(0.25, layout:pieces(1, 2)[1].scale)
	end)

	it("store_a_layer_on_its_stage_and_an_expert_on_its_ranks_only", function()
		local layout = Layout.build("pp=2,dp=2;experts:pp=2,ep=2", {
			param("layers.0.mlp.experts.0.up_proj.weight", 2, 2), param("layers.1.mlp.experts.1.up_proj.weight", 2, 2),
			param("layers.1.mlp.gate.weight", 2, 2) }, rules.family("qwen3_moe"))
		local here = {}
		for index = 1, 3 do
			here[index] = {}
			for rank = 0, 3 do here[index][rank + 1] = layout:shard(index, rank) ~= nil end
		end
		assert.are.same({ { true, false, false, false }, { false, false, false, true }, { false, false, true, true } }, here)
	end)

	it("are_made_again_from_their_description", function()
		local document = shapes.generate("demo")
		local layout = Layout.build("pp=2,dp=2,tp=2,zero=3,style=megatron,vocab_pad=5,base=3",
			document.tensors, rules.family("qwen3"),
			{ config = document.config })
		local again = Layout.from_description(json.decode(json.encode(layout:describe())))
		assert.are.same(layout:params(), again:params())
		assert.are.same(layout:ranks(), again:ranks())
		for index = 1, #layout:params() do
			for _, rank in ipairs(layout:ranks()) do
				assert.are.same(layout:shard(index, rank), again:shard(index, rank))
				if layout:shard(index, rank) then assert.are.same(layout:pieces(index, rank), again:pieces(index, rank)) end
			end
		end
	end)

	it("refuse_a_description_that_is_damaged", function()
		local function damaged(change)
			local description = json.decode(json.encode(Layout.build("dp=2,tp=2,zero=3", { param("w", 4, 4) },
				only{ cut = 0 }):describe()))
			change(description, description.params[1], description.params[1].placements[1])
			local message = refusal(Layout.from_description, description, "manifest.json")
			assert.are.equal("string", type(message))
			assert.is_nil(message:find("attempt to", 1, true), message)
		end
		for _, bad in ipairs({ -1, 1.5, "x", 2 ^ 60, 0 / 0, {}, false }) do
			damaged(function(_, item) item.shape[1] = bad end)
			damaged(function(_, item) item.mesh = bad end)
			damaged(function(_, item) item.dtype = bad end)
			damaged(function(_, item) item.placements[1] = bad end)
			damaged(function(_, _, placed) placed.dim = bad end)
			damaged(function(_, _, placed) placed.axis = bad end)
			damaged(function(_, _, placed) placed.kind = bad end)
			damaged(function(_, _, placed) placed.parts = bad end)
			damaged(function(_, _, placed) placed.parts[1].size = bad end)
			damaged(function(_, _, placed) placed.parts[1].units = bad end)
			damaged(function(_, _, placed) placed.parts[1].cut = bad end)
			damaged(function(_, _, placed) placed.extents = { bad, 2 } end)
			damaged(function(_, item) item.zero_axes[1] = bad end)
			damaged(function(description) description.meshes[1].base = bad end)
			damaged(function(description) description.meshes[1].axes[1][2] = bad end)
			damaged(function(description) description.params[1] = bad end)
		end
		damaged(function(description) description.meshes[1].axes[1][2] = 2 ^ 30 end)
		damaged(function(_, item) item.name = nil end)
		damaged(function(description) description.meshes = nil end)
		damaged(function(description) description.params = 3 end)
		damaged(function(_, item) item.scale = "x" end)
		damaged(function(_, item) item.zero_group = -1 end)
		damaged(function(_, _, placed) placed.dim = 7 end)
	end)

	it("name_a_parameter_that_is_there_twice", function()
		assert.is_truthy(refusal(Layout.build, "dp=2", { param("w", 2), param("w", 2) }, only{ replicate = true })
			:find("w", 1, true))
	end)

	it("raise_a_clear_error_once_closed", function()
		local layout = Layout.build("dp=2", { param("w", 2) }, only{ replicate = true })
		layout:close()
		layout:close()
		for _, method in ipairs({ "params", "ranks", "count_pieces", "validate" }) do
			assert.is_truthy(refusal(layout[method], layout):find("layout is closed", 1, true))
		end
	end)
end)

describe("plans", function()
	local qwen = shapes.generate("qwen3-8b")

	local function qwen_layout(text)
		return Layout.build(text, qwen.tensors, rules.family("qwen3"), { config = qwen.config })
	end

	-- The published figures; source rank and target rank are dp * tp_size + tp on both sides.
	for _, row in ipairs({
		{ "zero=2", "lowest", 35205273600, 5029324800 },
		{ "zero=2", "balanced", 15136194560, 25098403840 },
		{ "zero=3", "balanced", 33959997440, 6274600960 },
	}) do
		it("of_qwen3_8b_move_the_published_bytes_" .. row[1] .. "_" .. row[2], function()
			local source, target = qwen_layout("dp=4,tp=2,style=autotp," .. row[1]), qwen_layout("dp=2,tp=4,style=autotp")
			assert.are.equal(3192, source:count_pieces())
			assert.are.equal(3192, target:count_pieces())
			local plan = affine.plan(target, source, row[2])
			local stats = plan:stats()
			assert.are.equal(row[3], stats.sent_bytes)
			assert.are.equal(row[4], stats.local_bytes)
			-- Sharded parameters twice, replicated ones eight times.
			assert.are.equal((row[3] + row[4]) / 2, stats.elems)
			assert_plain(stats)
			assert.are.equal("string", type(plan:digest()))
			assert.is_truthy(plan:digest():match("^%x+$") and #plan:digest() == 16)
		end)
	end

	it("have_the_same_digest_on_every_process_and_another_for_another_choice", function()
		local function digest(policy)
			local source = Layout.build("dp=2,tp=2", { param("w", 8, 8) }, only{ cut = 0 })
			local target = Layout.build("tp=4", { param("w", 8, 8) }, only{ cut = 0 })
			return affine.plan(target, source, policy):digest()
		end
		assert.are.equal(digest("lowest"), digest("lowest"))
		assert.are_not.equal(digest("lowest"), digest({ select = function(_, holders) return #holders end }))
	end)

	it("keep_their_layouts_alive", function()
		local plan
		do
			local source = Layout.build("full", { param("w", 4, 4) })
			local target = Layout.build("tp=2", { param("w", 4, 4) }, only{ cut = 0 })
			plan = Plan.create(target, source)
			source:close()
			target:close()
		end
		collectgarbage()
		collectgarbage()
		assert.are.equal("ZCC_EPOLICY", (select(2, refusal(plan.build, plan))))
		plan:choose("lowest")
		plan:build()
		assert.are.equal(16, plan:stats().elems)
	end)

	it("refuse_a_parameter_of_one_side_only_and_shapes_that_differ", function()
		local source = Layout.build("full", { param("a", 4), param("b", 4) })
		assert.is_truthy(refusal(Plan.create, Layout.build("full", { param("a", 4) }), source):find("b", 1, true))
		assert.is_truthy(refusal(Plan.create, Layout.build("full", { param("a", 4), param("b", 5) }),
			source):find("b", 1, true))
	end)
end)
