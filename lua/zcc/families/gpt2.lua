-- GPT-2. Its Conv1D modules store weights as [in, out], so "by columns" is axis 1 here; c_attn holds q, k and v
-- side by side.
local QKV = { { "n_embd", units = "n_head" }, { "n_embd", units = "n_head" }, { "n_embd", units = "n_head" } }

return {
	name = "gpt2",
	models = { "gpt2" },
	recognise = function(has) return has("attn%.c_attn%.weight$") and has("wpe%.weight$") end,
	derive = {
		n_embd = function(model) return model.extent("wpe%.weight$", 1) end,
	},
	layers = "h%.(%d+)%.",
	rules = {
		-- The head is tied to wte and is usually not stored.
		{ "wte%.weight$", vocab = 0, input = true, stage = "first" },
		{ "wpe%.weight$", replicate = true, stage = "first" },
		{ "attn%.c_attn%.weight$", cut = 1, parts = QKV },
		{ "attn%.c_attn%.bias$", cut = 0, parts = QKV },
		{ "attn%.c_proj%.weight$", cut = 0, units = "n_head" },
		{ "mlp%.c_fc%.weight$", cut = 1 },
		{ "mlp%.c_fc%.bias$", cut = 0 },
		{ "mlp%.c_proj%.weight$", cut = 0 },
		-- Added after the sum over the ranks; attn.bias and masked_bias are the causal mask of older files.
		{ "c_proj%.bias$", "ln_[12]%.weight$", "ln_[12]%.bias$", "attn%.bias$", "attn%.masked_bias$", replicate = true },
		{ "ln_f%.weight$", "ln_f%.bias$", replicate = true, stage = "last" },
		{ "lm_head%.weight$", vocab = 0, stage = "last" },
	},
}
