-- Qwen3, and Qwen2/2.5, whose q, k and v carry biases instead of norms.
return {
	name = "qwen3",
	models = { "qwen3", "qwen2" },
	recognise = function(has)
		return (has("self_attn%.q_norm%.weight$") or has("self_attn%.q_proj%.bias$") and not has("self_attn%.o_proj%.bias$"))
			and not has("mlp%.experts%.")
	end,
	derive = {
		head_dim = function(model) return model.extent("self_attn%.q_norm%.weight$", 0) end,
		num_attention_heads = function(model) return model.extent("self_attn%.q_proj%.weight$", 0) / model.head_dim end,
		num_key_value_heads = function(model) return model.extent("self_attn%.k_proj%.weight$", 0) / model.head_dim end,
	},
	layers = "layers%.(%d+)%.",
	rules = {
		{ "embed_tokens%.weight$", vocab = 0, input = true, stage = "first" },
		{ "self_attn%.q_proj%.weight$", "self_attn%.q_proj%.bias$", cut = 0, units = "num_attention_heads" },
		{ "self_attn%.[kv]_proj%.weight$", "self_attn%.[kv]_proj%.bias$", cut = 0,
			units = "num_key_value_heads", grouped = true },
		{ "self_attn%.o_proj%.weight$", cut = 1, units = "num_attention_heads" },
		{ "mlp%.gate_proj%.weight$", "mlp%.up_proj%.weight$", cut = 0 },
		{ "mlp%.down_proj%.weight$", cut = 1 },
		{ "layernorm%.weight$", "self_attn%.[qk]_norm%.weight$", replicate = true },
		{ "^norm%.weight$", "model%.norm%.weight$", replicate = true, stage = "last" },
		{ "lm_head%.weight$", vocab = 0, stage = "last" },
	},
}
