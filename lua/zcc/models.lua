-- Names and shapes of the tensors of a model, from its family and the keys of its config.json: for dry runs and
-- for made-up checkpoints with a real structure.

local fault = require "zcc.error"
local words = require "zcc.words"

local M = {}

--- Configurations by name, as their config.json has them (what matters for shapes).
M.configs = {
	["qwen3-8b"] = {
		model_type = "qwen3", num_hidden_layers = 36, hidden_size = 4096, intermediate_size = 12288, num_attention_heads = 32,
		num_key_value_heads = 8, head_dim = 128, vocab_size = 151936, tie_word_embeddings = false,
	},
	["qwen3-30b-a3b"] = {
		model_type = "qwen3_moe", num_hidden_layers = 48, hidden_size = 2048, intermediate_size = 6144,
		num_attention_heads = 32, num_key_value_heads = 4, head_dim = 128, vocab_size = 151936,
		tie_word_embeddings = false, num_experts = 128, moe_intermediate_size = 768,
	},
	["llama-3-70b"] = {
		model_type = "llama", num_hidden_layers = 80, hidden_size = 8192, intermediate_size = 28672, num_attention_heads = 64,
		num_key_value_heads = 8, vocab_size = 128256, tie_word_embeddings = false,
	},
	["qwen2.5-32b"] = {
		model_type = "qwen2", num_hidden_layers = 64, hidden_size = 5120, intermediate_size = 27648, num_attention_heads = 40,
		num_key_value_heads = 8, vocab_size = 152064, tie_word_embeddings = false,
	},
	gpt2 = { model_type = "gpt2", n_layer = 12, n_head = 12, n_embd = 768, n_positions = 1024, vocab_size = 50257 },
	["all-minilm-l6-v2"] = {
		model_type = "bert", num_hidden_layers = 6, hidden_size = 384, intermediate_size = 1536, num_attention_heads = 12,
		max_position_embeddings = 512, type_vocab_size = 2, vocab_size = 30522,
	},
	-- Real Qwen3 structure in 60 MB of bf16.
	demo = {
		model_type = "qwen3", num_hidden_layers = 6, hidden_size = 512, intermediate_size = 1536, num_attention_heads = 8,
		num_key_value_heads = 4, head_dim = 64, vocab_size = 12288, tie_word_embeddings = false,
	},
}

local function require_keys(config, family, keys)
	for _, key in ipairs(keys) do
		local value = config[key]
		if type(value) ~= "number" or value % 1 ~= 0 or value < 0 then
			fault.raise("ZCC_EINVAL", "the tensors of family %s need the config key %s as a whole number, found %s", family, key,
				tostring(value))
		end
	end
end

-- Llama, Qwen2, Qwen3 and Qwen3 with experts.
local function decoder(config, family, add)
	require_keys(config, family, { "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size" })
	local hidden, heads = config.hidden_size, config.num_attention_heads
	local head = config.head_dim or hidden / heads
	local kv = (config.num_key_value_heads or heads) * head
	local query = heads * head
	local qk_norm = config.model_type == "qwen3" or config.model_type == "qwen3_moe"
	local qkv_bias = config.model_type == "qwen2" or config.attention_bias
	local function mlp(prefix, width)
		add(prefix .. "gate_proj.weight", { width, hidden })
		add(prefix .. "up_proj.weight", { width, hidden })
		add(prefix .. "down_proj.weight", { hidden, width })
	end
	require_keys(config, family, family == "qwen3_moe" and { "num_experts", "moe_intermediate_size" }
		or { "intermediate_size" })
	add("model.embed_tokens.weight", { config.vocab_size, hidden })
	for layer = 0, config.num_hidden_layers - 1 do
		local prefix = ("model.layers.%d."):format(layer)
		local attention = prefix .. "self_attn."
		add(prefix .. "input_layernorm.weight", { hidden })
		add(attention .. "q_proj.weight", { query, hidden })
		add(attention .. "k_proj.weight", { kv, hidden })
		add(attention .. "v_proj.weight", { kv, hidden })
		add(attention .. "o_proj.weight", { hidden, query })
		if qkv_bias then
			add(attention .. "q_proj.bias", { query })
			add(attention .. "k_proj.bias", { kv })
			add(attention .. "v_proj.bias", { kv })
		end
		if config.attention_bias then add(attention .. "o_proj.bias", { hidden }) end
		if qk_norm then
			add(attention .. "q_norm.weight", { head })
			add(attention .. "k_norm.weight", { head })
		end
		add(prefix .. "post_attention_layernorm.weight", { hidden })
		if family == "qwen3_moe" then
			add(prefix .. "mlp.gate.weight", { config.num_experts, hidden })
			for expert = 0, config.num_experts - 1 do
				mlp(("%smlp.experts.%d."):format(prefix, expert), config.moe_intermediate_size)
			end
		else
			mlp(prefix .. "mlp.", config.intermediate_size)
		end
	end
	add("model.norm.weight", { hidden })
	if not config.tie_word_embeddings then add("lm_head.weight", { config.vocab_size, hidden }) end
end

local function gpt2(config, family, add)
	require_keys(config, family, { "n_embd", "n_layer", "n_head", "n_positions", "vocab_size" })
	local width = config.n_embd
	local inner = type(config.n_inner) == "number" and config.n_inner or 4 * width
	local function norm(name)
		add(name .. ".weight", { width })
		add(name .. ".bias", { width })
	end
	local function conv(name, from, to)
		add(name .. ".weight", { from, to })
		add(name .. ".bias", { to })
	end
	add("wte.weight", { config.vocab_size, width })
	add("wpe.weight", { config.n_positions, width })
	for layer = 0, config.n_layer - 1 do
		local prefix = ("h.%d."):format(layer)
		norm(prefix .. "ln_1")
		conv(prefix .. "attn.c_attn", width, 3 * width)
		conv(prefix .. "attn.c_proj", width, width)
		norm(prefix .. "ln_2")
		conv(prefix .. "mlp.c_fc", width, inner)
		conv(prefix .. "mlp.c_proj", inner, width)
	end
	norm("ln_f")
end

local function bert(config, family, add)
	require_keys(config, family, { "hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings",
		"type_vocab_size", "vocab_size" })
	local hidden, inner = config.hidden_size, config.intermediate_size
	local function norm(name)
		add(name .. ".LayerNorm.weight", { hidden })
		add(name .. ".LayerNorm.bias", { hidden })
	end
	local function linear(name, to, from)
		add(name .. ".weight", { to, from })
		add(name .. ".bias", { to })
	end
	add("embeddings.position_ids", { 1, config.max_position_embeddings }, "I64")
	add("embeddings.word_embeddings.weight", { config.vocab_size, hidden })
	add("embeddings.position_embeddings.weight", { config.max_position_embeddings, hidden })
	add("embeddings.token_type_embeddings.weight", { config.type_vocab_size, hidden })
	norm("embeddings")
	for layer = 0, config.num_hidden_layers - 1 do
		local prefix = ("encoder.layer.%d."):format(layer)
		for _, name in ipairs({ "query", "key", "value" }) do linear(prefix .. "attention.self." .. name, hidden, hidden) end
		linear(prefix .. "attention.output.dense", hidden, hidden)
		norm(prefix .. "attention.output")
		linear(prefix .. "intermediate.dense", inner, hidden)
		linear(prefix .. "output.dense", hidden, inner)
		norm(prefix .. "output")
	end
	linear("pooler.dense", hidden, hidden)
end

local generators = { qwen3 = decoder, llama = decoder, qwen3_moe = decoder, gpt2 = gpt2, bert = bert }

--- The tensors of a model as { name =, shape =, dtype = } in the order of its checkpoint. `family` as in
--- zcc.rules, `config` a decoded config.json, dtype "BF16" where left out.
function M.tensors(family, config, dtype)
	local generate = generators[family]
	if not generate then
		fault.raise("ZCC_EINVAL", "the tensors of family '%s' cannot be made%s", tostring(family),
			words.suggestion(tostring(family), { "bert", "gpt2", "llama", "qwen3", "qwen3_moe" }))
	end
	local tensors = {}
	generate(config, family, function(name, shape, own_dtype)
		tensors[#tensors + 1] = { name = name, shape = shape, dtype = own_dtype or dtype or "BF16" }
	end)
	return tensors
end

return M
