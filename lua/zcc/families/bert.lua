-- BERT and what shares its names (sentence encoders, RoBERTa), with or without the masked-word head.
return {
	name = "bert",
	models = { "bert" },
	recognise = function(has)
		return has("attention%.self%.query%.weight$") and has("embeddings%.word_embeddings%.weight$")
	end,
	layers = "encoder%.layer%.(%d+)%.",
	rules = {
		{ "embeddings%.word_embeddings%.weight$", vocab = 0, input = true, stage = "first" },
		{ "embeddings%.position_embeddings%.weight$", "embeddings%.token_type_embeddings%.weight$", "embeddings%.LayerNorm%.",
			"embeddings%.position_ids$", "embeddings%.token_type_ids$", replicate = true, stage = "first" },
		{ "attention%.self%.query%.weight$", "attention%.self%.query%.bias$", "attention%.self%.key%.weight$",
			"attention%.self%.key%.bias$", "attention%.self%.value%.weight$", "attention%.self%.value%.bias$",
			cut = 0, units = "num_attention_heads" },
		{ "attention%.output%.dense%.weight$", cut = 1, units = "num_attention_heads" },
		{ "intermediate%.dense%.weight$", "intermediate%.dense%.bias$", cut = 0 },
		{ "layer%.%d+%.output%.dense%.weight$", cut = 1 },
		-- Added after the sum over the ranks, so every rank has the whole of it.
		{ "output%.dense%.bias$", "output%.LayerNorm%.", replicate = true },
		{ "pooler%.dense%.", replicate = true, stage = "last" },
		{ "cls%.predictions%.decoder%.weight$", "cls%.predictions%.decoder%.bias$", "cls%.predictions%.bias$",
			vocab = 0, stage = "last" },
		{ "cls%.predictions%.transform%.", "cls%.seq_relationship%.", replicate = true, stage = "last" },
	},
}
