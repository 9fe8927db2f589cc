local json = require "zcc.json"
local placement = require "zcc.placement"
local rules = require "zcc.rules"

local function param(name, ...)
	return { name = name, dtype = "F32", shape = { ... } }
end

-- Descriptions by name.
local function resolve(layout, params, rule_set, options)
	local description = placement.resolve(layout, params, rule_set, options)
	local by_name = {}
	for _, item in ipairs(description.params) do by_name[item.name] = item end
	return by_name, description
end

local function refusal(...)
	local ok, object = pcall(placement.resolve, ...)
	assert.is_false(ok)
	assert.is_truthy(object.message, tostring(object))
	return object.message
end

local function assert_has(message, ...)
	for _, part in ipairs({ ... }) do
		assert.is_truthy(message:find(part, 1, true), ("'%s' lacks '%s'"):format(message, part))
	end
end

-- One rule for everything.
local function only(rule)
	rule[1] = ""
	return rules.check({ name = "only", layers = "layers%.(%d+)%.", rules = { rule } })
end

-- Where and how the tensor-parallel cut goes: "dim:cut size/units …", or "whole".
local function cut_of(item)
	for _, placed in ipairs(item.placements or {}) do
		if placed.axis == "tp" then
			local words = {}
			for i, part in ipairs(placed.parts or {}) do
				words[i] = ("%s %d/%d%s"):format(part.cut, part.size, part.units, part.padded and "+" .. part.padded or "")
			end
			return placed.dim .. ":" .. table.concat(words, " ")
		end
	end
	return "whole"
end

describe("placement", function()
	it("what_an_ema_counted_is_whole_on_every_rank", function()
		local params = { param("layers.0.a", 8, 8), param("layers.1.a", 8, 8), param("zcc.ema.counters", 2) }
		local counters = resolve("pp=2,dp=2,tp=2,zero=3", params, only({ cut = 0 }))["zcc.ema.counters"]
		assert.is_nil(counters.placements)
		assert.is_nil(counters.zero_axes)
	end)

	it("cuts_qwen3_by_columns_rows_and_heads", function()
		-- 4 heads and 2 key/value heads of 8.
		local config = { num_attention_heads = 4, num_key_value_heads = 2, head_dim = 8, hidden_size = 16 }
		local prefix = "model.layers.0."
		local params = {
			param("model.embed_tokens.weight", 100, 16), param(prefix .. "input_layernorm.weight", 16),
			param(prefix .. "self_attn.q_proj.weight", 32, 16), param(prefix .. "self_attn.k_proj.weight", 16, 16),
			param(prefix .. "self_attn.v_proj.bias", 16), param(prefix .. "self_attn.o_proj.weight", 16, 32),
			param(prefix .. "self_attn.q_norm.weight", 8), param(prefix .. "mlp.gate_proj.weight", 24, 16),
			param(prefix .. "mlp.down_proj.weight", 16, 24), param("model.norm.weight", 16), param("lm_head.weight", 100, 16),
		}
		local expected = {
			["model.embed_tokens.weight"] = "whole", [prefix .. "input_layernorm.weight"] = "whole",
			[prefix .. "self_attn.q_proj.weight"] = "0:even 32/4", [prefix .. "self_attn.k_proj.weight"] = "0:grouped 16/2",
			[prefix .. "self_attn.v_proj.bias"] = "0:grouped 16/2", [prefix .. "self_attn.o_proj.weight"] = "1:even 32/4",
			[prefix .. "self_attn.q_norm.weight"] = "whole", [prefix .. "mlp.gate_proj.weight"] = "0:even 24/24",
			[prefix .. "mlp.down_proj.weight"] = "1:even 24/24", ["model.norm.weight"] = "whole",
			["lm_head.weight"] = "0:even 100/100",
		}
		for _, known in ipairs({ config, false }) do
			local found = resolve("dp=2,tp=4", params, rules.family("qwen3"), { config = known or nil })
			for name, cut in pairs(expected) do assert.are.equal(cut, cut_of(found[name]), name) end
		end
		local megatron = resolve("tp=4,style=megatron", params, rules.family("qwen3"), { config = config })
		assert.are.equal("0:even 100/100", cut_of(megatron["model.embed_tokens.weight"]))
	end)

	it("cuts_each_part_of_gpt2s_fused_attention_along_its_own_axis", function()
		local params = {
			param("transformer.wte.weight", 13, 4), param("transformer.wpe.weight", 8, 4),
			param("transformer.h.0.attn.c_attn.weight", 4, 12), param("transformer.h.0.attn.c_attn.bias", 12),
			param("transformer.h.0.attn.c_proj.weight", 4, 4), param("transformer.h.0.attn.c_proj.bias", 4),
			param("transformer.h.0.attn.bias", 1, 1, 8, 8), param("transformer.h.0.mlp.c_fc.weight", 4, 16),
			param("transformer.h.0.mlp.c_fc.bias", 16), param("transformer.h.0.mlp.c_proj.weight", 16, 4),
			param("transformer.h.0.mlp.c_proj.bias", 4), param("transformer.h.0.ln_1.bias", 4),
				param("transformer.ln_f.weight", 4),
			param("lm_head.weight", 12, 4),
		}
		local found = resolve("tp=2", params, rules.family("gpt2"), { config = { n_head = 2, n_embd = 4 } })
		local cuts = {}
		for i, item in ipairs(params) do cuts[i] = cut_of(found[item.name]) end
		assert.are.same({ "whole", "whole", "1:even 4/2 even 4/2 even 4/2", "0:even 4/2 even 4/2 even 4/2",
			"0:even 4/2", "whole",
			"whole", "1:even 16/16", "0:even 16/16", "0:even 16/16", "whole", "whole", "whole", "0:even 12/12" }, cuts)
		-- Rows are cut for the vocabulary in megatron style, padded on request only.
		assert_has(refusal("tp=2,style=megatron", params, rules.family("gpt2"), { config = { n_head = 2 } }),
			"transformer.wte.weight", "axis 0", "vocabulary of 13", "tp=2", "vocab_pad")
		found = resolve("tp=2,style=megatron,vocab_pad=4", params, rules.family("gpt2"), { config = { n_head = 2 } })
		assert.are.equal("0:even 13/13+16", cut_of(found["transformer.wte.weight"]))
	end)

	it("cuts_bert_with_its_biases", function()
		local layer = "encoder.layer.5."
		local cuts = {
			["embeddings.position_ids"] = { "whole", 1, 16 }, ["embeddings.word_embeddings.weight"] = { "whole", 30, 8 },
			["embeddings.LayerNorm.weight"] = { "whole", 8 }, [layer .. "attention.self.query.weight"] = { "0:even 8/4", 8, 8 },
			[layer .. "attention.self.key.bias"] = { "0:even 8/4", 8 }, [layer
				.. "attention.output.dense.weight"] = { "1:even 8/4", 8, 8 },
			[layer .. "attention.output.dense.bias"] = { "whole", 8 }, [layer
				.. "attention.output.LayerNorm.bias"] = { "whole", 8 },
			[layer .. "intermediate.dense.bias"] = { "0:even 32/32", 32 }, [layer
				.. "output.dense.weight"] = { "1:even 32/32", 8, 32 },
			[layer .. "output.dense.bias"] = { "whole", 8 }, ["pooler.dense.weight"] = { "whole", 8, 8 },
		}
		for _, prefix in ipairs({ "", "bert." }) do
			local params = {}
			for name, case in pairs(cuts) do params[#params + 1] = param(prefix .. name, unpack(case, 2)) end
			local found = resolve("tp=2", params, rules.family("bert"), { config = { num_attention_heads = 4 } })
			for name, case in pairs(cuts) do assert.are.equal(case[1], cut_of(found[prefix .. name]), name) end
		end
	end)

	it("pads_the_vocabulary_to_a_multiple_of_the_padding_times_tp", function()
		local vocabulary = only{ vocab = 0 }
		local function padded(layout, size)
			return cut_of((resolve(layout, { param("w", size, 2) }, vocabulary)).w)
		end
		assert.are.equal("0:even 13/13+16", padded("tp=4,vocab_pad=1", 13))
		assert.are.equal("0:even 13/13+14", padded("tp=2,vocab_pad=1", 13))
		assert.are.equal("0:even 50257/50257+50432", padded("tp=2,vocab_pad=128", 50257))
		assert.are.equal("0:even 512/512", padded("tp=2,vocab_pad=128", 512))
		assert.are.equal("0:even 13/13+16", padded("dp=2,vocab_pad=8", 13))
		assert.are.equal("whole", padded("dp=2,tp=1", 13))
	end)

	it("refuses_what_does_not_divide_and_names_the_numbers", function()
		local heads = { config = { n_head = 12 } }
		assert_has(refusal("tp=8", { param("layers.0.q", 96, 4) }, only{ cut = 0, units = "n_head" }, heads),
			"'layers.0.q'", "axis 0", "12", "n_head", "tp=8")
		assert_has(refusal("tp=2", { param("w", 5, 4) }, only{ cut = 0 }), "'w'", "axis 0", "5", "tp=2")
		assert_has(refusal("tp=2", { param("w", 13, 4) }, only{ cut = 0, units = "n_head" }, heads), "13",
			"12", "do not divide")
		assert_has(refusal("tp=4", { param("w", 6, 4) }, only{ cut = 0, units = 6, grouped = true }), "6", "tp=4", "neither")
		assert_has(refusal("tp=2", { param("w", 5) }, only{ cut = 1 }), "[5]", "no axis 1")
		assert_has(refusal("tp=2", { param("w", 8) }, only{ cut = 0, parts = { { 4 }, { 2 } } }), "4 + 2", "6", "8")
		assert_has(refusal("tp=2", { param("w", 8) }, only{ cut = 0, extents = { 3, 3, 2 } }), "[3, 3, 2]",
			"3 shares", "tp=2")
		assert_has(refusal("tp=2", { param("w", 8) }, only{ cut = 0, extents = { 3, 4 } }), "7 elements", "8")
	end)

	it("takes_units_from_config_keys_products_numbers_and_functions", function()
		local config = { config = { n_head = 4, d_head = 8, kv = 2 } }
		local function cut(rule)
			return cut_of((resolve("tp=2", { param("w", 96, 2) }, only(rule), config)).w)
		end
		assert.are.equal("0:even 96/4", cut{ cut = 0, units = "n_head" })
		assert.are.equal("0:even 96/8", cut{ cut = 0, units = "n_head * kv" })
		assert.are.equal("0:even 96/12", cut{ cut = 0, units = "3*n_head" })
		assert.are.equal("0:even 96/6", cut{ cut = 0, units = 6 })
		assert.are.equal("0:even 96/16", cut{ cut = 0, units = function(model) return model.n_head * 4 end })
		assert.are.equal("0:even 32/4 grouped 16/2 replicate 16/16 uneven 32/32", cut{ cut = 0, parts = {
			{ "n_head*d_head", units = "n_head" }, { "kv*d_head", units = "kv", grouped = true },
			{ 16, replicate = true }, { 32, uneven = true } } })
		assert_has(refusal("tp=2", { param("w", 96, 2) }, only{ cut = 0, units = "n_head/2" }, config),
			"'n_head/2'", "no product")
		assert_has(refusal("tp=2", { param("w", 96, 2) }, only{ cut = 0, units = function() return 1.5 end }, config), "1.5")
	end)

	it("asks_for_the_config_where_heads_are_needed_and_unknown", function()
		local params = { param("layers.0.self_attn.q_proj.weight", 32, 16) }
		assert_has(refusal("tp=2", params, rules.family("llama")), "self_attn.q_proj.weight",
			"num_attention_heads", "--config FILE")
		assert_has(refusal("tp=2", params, rules.family("llama"), { config = { hidden_size = 16 } }),
			"config.json does not say it")
		local typo = only{ cut = 0, units = "n_heads" }
		local message = refusal("tp=2", { param("w", 8, 2) }, typo, { config = { n_head = 4, name = "n_heads" } })
		assert_has(message, "n_heads is not known: config.json does not say it (did you mean 'n_head'?)")
		assert.is_nil(message:find("--config", 1, true), message)
		-- Without a cut nobody needs them.
		assert.are.equal("whole", cut_of((resolve("dp=2", params, rules.family("llama")))[params[1].name]))
	end)

	it("refuses_a_config_that_contradicts_the_shapes", function()
		local params = { param("layers.0.self_attn.q_proj.weight", 32, 16), param("layers.0.self_attn.q_norm.weight", 8) }
		assert_has(refusal("tp=2", params, rules.family("qwen3"), { config = { num_attention_heads = 8, head_dim = 8 } }),
			"num_attention_heads is 8", "the shapes say 4")
		assert_has(refusal("tp=2", params, rules.family("qwen3"), { config = { num_attention_heads = 4, head_dim = 16 } }),
			"head_dim is 16", "the shapes say 8")
	end)

	it("lists_all_parameters_that_no_rule_matches", function()
		local params = { param("layers.0.q", 2) }
		for i = 1, 12 do params[i + 1] = param("extra." .. i, 8, 8) end
		local rule_set = rules.check{ name = "mine", rules = { { "%.q$", cut = 0 } } }
		local message = refusal("tp=2", params, rule_set)
		assert_has(message, "12 of 13 parameters", "rules", "mine", "extra.1\n", "extra.10\n", "and 2 more",
			"--default replicate")
		assert.is_nil(message:find("extra.11", 1, true))
		-- An equal shape is no reason to place it anywhere; only an explicit wish is.
		assert.are.equal("whole", cut_of((resolve("tp=2", params, rule_set, { default = "replicate" }))["extra.1"]))
		rule_set.default = "replicate"
		assert.are.equal("whole", cut_of((resolve("tp=2", params, rule_set))["extra.1"]))
	end)

	it("lets_the_first_matching_rule_win", function()
		local found = resolve("tp=2", { param("a.b", 4), param("c.b", 4) }, rules.check{ rules = {
			{ "^a", "never", replicate = true }, { "b$", cut = 0 } } })
		assert.are.equal("whole", cut_of(found["a.b"]))
		assert.are.equal("0:even 4/4", cut_of(found["c.b"]))
	end)

	it("spreads_layers_over_stages_with_the_first_taking_one_more", function()
		local rule_set = rules.check{ layers = "layers%.(%d+)%.", rules = {
			{ "layers", replicate = true }, { "embed", replicate = true, stage = "first" },
				{ "head", replicate = true, stage = "last" } } }
		local params = { param("head", 2), param("embed", 2) }
		for layer = 0, 6 do params[#params + 1] = param(("layers.%d.w"):format(layer), 2) end
		local function stages(layout)
			local found, out = resolve(layout, params, rule_set), {}
			for i, item in ipairs(params) do out[i] = found[item.name].placements[1].at end
			return out
		end
		assert.are.same({ 2, 0, 0, 0, 0, 1, 1, 2, 2 }, stages("pp=3,dp=2"))
		assert.are.same({ 3, 0, 0, 0, 1, 1, 2, 2, 3 }, stages("pp=4"))
		assert.are.same({ 2, 0, 0, 1, 1, 1, 1, 2, 2 }, stages("pp=3,layers=1+4+2"))
		assert_has(refusal("pp=8", params, rule_set), "pp=8", "7")
		assert_has(refusal("pp=2,layers=3+3", params, rule_set), "3+3", "6 layers", "7")
		rule_set.rules[2].stage = nil
		assert_has(refusal("pp=2", params, rule_set), "'embed'", "stage", "pp=2")
		assert.is_nil((resolve("dp=2", params, rule_set)).embed.placements)
	end)

	it("gives_experts_to_the_coordinates_of_ep_in_blocks", function()
		local params = { param("layers.0.mlp.gate.weight", 6, 4) }
		for expert = 0, 5 do params[#params + 1] = param(("layers.0.mlp.experts.%d.up_proj.weight"):format(expert), 8, 4) end
		local family = rules.family("qwen3_moe")
		local function owners(layout)
			local found, out = resolve(layout, params, family), {}
			for expert = 0, 5 do
				local item = found[("layers.0.mlp.experts.%d.up_proj.weight"):format(expert)]
				for _, placed in ipairs(item.placements or {}) do
					if placed.kind == "owner" then out[#out + 1] = placed.axis .. placed.at end
				end
			end
			return table.concat(out, " "), found
		end
		assert.are.equal("ep0 ep0 ep1 ep1 ep2 ep2", (owners("dp=2,ep=3")))
		assert.are.equal("ep0 ep0 ep0 ep1 ep1 ep1", (owners("dp=4;experts:edp=2,ep=2")))
		assert.are.equal("", (owners("dp=2,tp=2")))
		-- The experts' mesh decides whether tp cuts inside an expert.
		local _, found = owners("dp=2,tp=2;experts:edp=2,ep=2")
		assert.are.equal("whole", cut_of(found["layers.0.mlp.experts.1.up_proj.weight"]))
		_, found = owners("dp=2,tp=2;experts:ep=2,tp=2")
		assert.are.equal("0:even 8/8", cut_of(found["layers.0.mlp.experts.1.up_proj.weight"]))
		_, found = owners("ep=2,tp=2")
		assert.are.equal("0:even 8/8", cut_of(found["layers.0.mlp.experts.1.up_proj.weight"]))
		assert.are.equal("whole", cut_of(found["layers.0.mlp.gate.weight"]))
		assert_has(refusal("ep=4", params, family), "ep=4", "6 experts")
		assert_has(refusal("ep=2", { params[1] }, family), "ep=2", "no experts")
	end)

	it("cuts_experts_that_lie_along_an_axis", function()
		local rule_set = only{ expert_axis = 0, cut = 2 }
		local found = resolve("ep=2,tp=3", { param("w", 8, 4, 6) }, rule_set)
		assert.are.same({ { kind = "shard", axis = "ep", dim = 0, parts = { { size = 8, units = 8, cut = "even" } } },
			{ kind = "shard", axis = "tp", dim = 2, parts = { { size = 6, units = 6, cut = "even" } } } }, found.w.placements)
		assert_has(refusal("ep=3", { param("w", 8, 4, 6) }, rule_set), "ep=3", "8 experts")
	end)

	it("cuts_flat_over_the_zero_group_in_mesh_order", function()
		local rule_set = rules.check{ rules = { { "experts%.(%d+)", expert = true }, { "", replicate = true } } }
		local params = { param("w", 8), param("experts.0", 8), param("experts.1", 8) }
		local function groups(layout)
			local found = resolve(layout, params, rule_set)
			local function show(item)
				return (item.zero_axes and table.concat(item.zero_axes, "+") or "-")
					.. (item.zero_group and "/" .. item.zero_group or "")
			end
			return show(found.w) .. " " .. show(found["experts.0"])
		end
		assert.are.equal("- -", groups("dp=4,zero=2,tp=2"))
		assert.are.equal("dp dp", groups("dp=4,tp=2,zero=3"))
		assert.are.equal("cp+ep+dp cp+dp", groups("cp=2,ep=2,dp=2,tp=2,zero=3"))
		assert.are.equal("dp+cp edp", groups("dp=4,cp=2,zero=3;experts:edp=4,ep=2"))
		assert.are.equal("dp -", groups("dp=2,zero=3;experts:ep=2"))
		assert.are.equal("- -", groups("tp=2,zero=3"))
		assert.are.equal("dp/2 dp/2", groups("dp=4,zero=3,hpz=2"))
		assert.are.equal("dp/4 dp/4", groups("dp=4,zero=3,mics=4"))
		assert_has(refusal("dp=2,ep=2,zero=3,mics=4", params, rule_set), "mics=4", "2 ranks", "an expert")
	end)

	it("needs_no_rules_for_the_unsharded_checkpoint", function()
		local found, description = resolve("full", { param("anything", 3, 4) }, nil)
		assert.are.same({ name = "anything", dtype = "F32", shape = { 3, 4 }, mesh = 1 }, found.anything)
		assert.are.same({ { base = 0, axes = { { "dp", 1 } } } }, description.meshes)
		assert.are.equal("full", description.layout)
	end)

	it("describes_in_plain_data_that_json_keeps", function()
		local params = { param("layers.0.a", 6, 4), param("layers.1.a", 6, 4), param("s") }
		local rule_set = rules.check{ layers = "layers%.(%d+)", rules = { { "a$", cut = 1 },
			{ "s", replicate = true, stage = "last",
			scale = function(_, tp) return 1 / tp end } } }
		local description = placement.resolve("pp=2,dp=2,tp=2,zero=3,base=4", params, rule_set)
		local again = json.decode(json.encode(description))
		assert.are.same(description, again)
		assert.are.equal(0.5, again.params[3].scale)
		assert.are.equal(4, again.meshes[1].base)
	end)
end)
