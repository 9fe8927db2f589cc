-- Qwen3 with experts: one parameter for each expert and matrix, the router whole on every rank.
return {
	name = "qwen3_moe",
	models = { "qwen3_moe" },
	recognise = function(has)
		return has("self_attn%.q_norm%.weight$") and has("mlp%.experts%.%d+%.gate_proj%.weight$")
			and has("mlp%.gate%.weight$")
			and not has("shared_expert")
	end,
	derive = {
		head_dim = function(model) return model.extent("self_attn%.q_norm%.weight$", 0) end,
		num_attention_heads = function(model) return model.extent("self_attn%.q_proj%.weight$", 0) / model.head_dim end,
		num_key_value_heads = function(model) return model.extent("self_attn%.k_proj%.weight$", 0) / model.head_dim end,
		num_experts = function(model) return model.extent("mlp%.gate%.weight$", 0) end,
	},
	layers = "layers%.(%d+)%.",
	rules = {
		{ "mlp%.experts%.(%d+)%.gate_proj%.weight$", "mlp%.experts%.(%d+)%.up_proj%.weight$", expert = true, cut = 0 },
		{ "mlp%.experts%.(%d+)%.down_proj%.weight$", expert = true, cut = 1 },
		{ "mlp%.gate%.weight$", replicate = true },
		{ "embed_tokens%.weight$", vocab = 0, input = true, stage = "first" },
		{ "self_attn%.q_proj%.weight$", "self_attn%.q_proj%.bias$", cut = 0, units = "num_attention_heads" },
		{ "self_attn%.[kv]_proj%.weight$", "self_attn%.[kv]_proj%.bias$", cut = 0,
			units = "num_key_value_heads", grouped = true },
		{ "self_attn%.o_proj%.weight$", cut = 1, units = "num_attention_heads" },
		-- Layers without experts (mlp_only_layers).
		{ "mlp%.gate_proj%.weight$", "mlp%.up_proj%.weight$", cut = 0 },
		{ "mlp%.down_proj%.weight$", cut = 1 },
		{ "layernorm%.weight$", "self_attn%.[qk]_norm%.weight$", replicate = true },
		{ "^norm%.weight$", "model%.norm%.weight$", replicate = true, stage = "last" },
		{ "lm_head%.weight$", vocab = 0, stage = "last" },
	},
}
