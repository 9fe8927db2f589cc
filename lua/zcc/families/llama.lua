-- Llama and Mistral, with or without biases.
return {
	name = "llama",
	models = { "llama", "mistral" },
	recognise = function(has)
		return has("self_attn%.q_proj%.weight$") and has("mlp%.gate_proj%.weight$") and not has("self_attn%.q_norm%.")
			and not has("mlp%.experts%.") and (has("self_attn%.o_proj%.bias$") or not has("self_attn%.q_proj%.bias$"))
	end,
	derive = {
		hidden_size = function(model) return model.extent("embed_tokens%.weight$", 1) end,
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
		{ "mlp%.gate_proj%.weight$", "mlp%.gate_proj%.bias$", "mlp%.up_proj%.weight$", "mlp%.up_proj%.bias$", cut = 0 },
		{ "mlp%.down_proj%.weight$", cut = 1 },
		-- Added after the sum over the ranks, so every rank has the whole of it.
		{ "self_attn%.o_proj%.bias$", "mlp%.down_proj%.bias$", replicate = true },
		{ "layernorm%.weight$", "self_attn%.rotary_emb%.inv_freq$", replicate = true },
		{ "^norm%.weight$", "model%.norm%.weight$", replicate = true, stage = "last" },
		{ "lm_head%.weight$", vocab = 0, stage = "last" },
	},
}
