local models = require "zcc.models"
local shapes = require "zcc.shapes"

local function by_name(tensors)
	local map = {}
	for _, tensor in ipairs(tensors) do
		assert.is_nil(map[tensor.name])
		map[tensor.name] = table.concat(tensor.shape, "x") .. " " .. tensor.dtype
	end
	return map
end

local function total(tensors)
	local bytes = 0
	for _, tensor in ipairs(tensors) do bytes = bytes + tensor.bytes end
	return bytes
end

describe("generated shapes", function()
	-- Numbers of the published models: parameters, bytes, shapes of some tensors.
	it("of_qwen3_8b_are_those_of_the_real_model", function()
		local document = shapes.generate("qwen3-8b")
		local map = by_name(document.tensors)
		assert.are.equal(399, #document.tensors)
		assert.are.equal(2 * 8190735360, total(document.tensors))
		assert.are.equal("151936x4096 BF16", map["model.embed_tokens.weight"])
		assert.are.equal("1024x4096 BF16", map["model.layers.35.self_attn.k_proj.weight"])
		assert.are.equal("128 BF16", map["model.layers.0.self_attn.q_norm.weight"])
		assert.are.equal("4096x12288 BF16", map["model.layers.7.mlp.down_proj.weight"])
		assert.are.equal("151936x4096 BF16", map["lm_head.weight"])
		assert.is_nil(map["model.layers.36.input_layernorm.weight"])
	end)

	it("of_other_families_have_the_published_number_of_parameters", function()
		assert.are.equal(4 * 124439808, total(shapes.generate("gpt2", nil, "F32").tensors))
		assert.are.equal(2 * 70553706496, total(shapes.generate("llama-3-70b").tensors))
		assert.are.equal(2 * 32763876352, total(shapes.generate("qwen2.5-32b").tensors))
		assert.are.equal(2 * 30532122624, total(shapes.generate("qwen3-30b-a3b").tensors))
		-- 22,713,216 floats and 512 position numbers of 8 bytes.
		assert.are.equal(4 * 22713216 + 8 * 512, total(shapes.generate("all-minilm-l6-v2", nil, "F32").tensors))
		assert.are.equal("1x512 I64", by_name(shapes.generate("all-minilm-l6-v2").tensors)["embeddings.position_ids"])
	end)

	it("of_the_demo_are_about_60_MB", function()
		local bytes = total(shapes.generate("demo").tensors)
		assert.is_true(bytes > 55e6 and bytes < 65e6, tostring(bytes))
	end)

	it("leave_out_a_tied_head_and_follow_the_biases", function()
		local config = { model_type = "qwen2", num_hidden_layers = 1, hidden_size = 8, intermediate_size = 16,
			num_attention_heads = 2,
			vocab_size = 10, tie_word_embeddings = true }
		local map = by_name(shapes.generate("qwen3", config).tensors)
		assert.is_nil(map["lm_head.weight"])
		assert.is_nil(map["model.layers.0.self_attn.q_norm.weight"])
		assert.are.equal("8 BF16", map["model.layers.0.self_attn.v_proj.bias"])
	end)

	it("refuse_a_config_without_the_sizes_and_unknown_models", function()
		local function refusal(...)
			local ok, object = pcall(shapes.generate, ...)
			assert.is_false(ok)
			return object.message
		end
		assert.is_truthy(refusal("llama", { hidden_size = 8 }):find("num_hidden_layers", 1, true))
		assert.is_truthy(refusal("gpt3", { n_embd = 8 }):find("'gpt3'", 1, true))
		assert.is_truthy(refusal("qwen3-8"):find("did you mean 'qwen3-8b'", 1, true))
		assert.is_nil(models.configs["qwen3-8"])
	end)
end)

describe("shapes documents", function()
	it("come_back_from_their_text", function()
		local document = shapes.generate("demo")
		local again = shapes.parse(shapes.format(document), "demo.json")
		assert.are.equal("demo", again.model)
		assert.are.same(document.tensors, again.tensors)
		assert.are.same(document.config, again.config)
		local scalar = { model = "m", tensors = { { name = "s", shape = {}, dtype = "F32", bytes = 4 },
			{ name = "e", shape = { 0, 3 }, dtype = "I64", bytes = 0 } } }
		assert.are.same(scalar.tensors, shapes.parse(shapes.format(scalar)).tensors)
	end)

	it("are_refused_with_the_place_of_the_fault", function()
		for text, expected in pairs({
			['{}'] = "tensors", ['[]'] = "tensors", ['{"tensors":[]}'] = "no tensor",
				['{"tensors":[3]}'] = "tensor 1: has no name",
			['{"tensors":[{"name":"a","dtype":"F32"}]}'] = "'a' has no shape",
			['{"tensors":[{"name":"a","dtype":"F7","shape":[1]}]}'] = "'a' has the unknown dtype 'F7'",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[-1]}]}'] = "extent -1 of axis 0",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[1.5]}]}'] = "extent 1.5 of axis 0",
			['{"tensors":[{"name":"a","dtype":"F32","shape":["4"]}]}'] = "extent 4 of axis 0",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[1,1,1,1,1,1,1,1,1]}]}'] = "at most 8 axes",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[4294967296,4294967296]}]}'] = "more bytes than can be counted",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[1]},{"name":"a","dtype":"F32","shape":[1]}]}'] = "as tensor 1",
			['{"tensors":[{"name":"a","dtype":"F32","shape":[1]}],"config":3}'] = "config",
		}) do
			local ok, object = pcall(shapes.parse, text, "my.json")
			assert.is_false(ok, text)
			assert.are.equal("ZCC_EFORMAT", object.status == "ZCC_EOVERFLOW" and "ZCC_EFORMAT" or object.status)
			assert.is_truthy(object.message:find(expected, 1, true), object.message)
			assert.is_truthy(object.message:find("my.json", 1, true), object.message)
		end
	end)
end)
