-- A checkpoint to try things on: real Qwen3 names and structure, random weights, laid out as a Hugging Face folder.

local zcc = require "zcc"

-- At most n_files files of about equal size, cut between tensors.
local function split(tensors, n_files)
	local total, files, reached, share = 0, {}, 0, nil
	for _, tensor in ipairs(tensors) do
		total = total + tensor.bytes
	end
	for _, tensor in ipairs(tensors) do
		-- A large tensor may reach over several shares; the files still count without a gap.
		local here = math.floor(reached * n_files / total)
		if here ~= share then
			files[#files + 1], share = {}, here
		end
		table.insert(files[#files], tensor)
		reached = reached + tensor.bytes
	end
	return files
end

local function write_file(path, tensors, seed)
	local header = zcc.store.safetensors_writer()
	header:metadata("format", "pt")
	for _, tensor in ipairs(tensors) do
		header:add(tensor.name, tensor.dtype, tensor.shape)
	end
	header:finish(path)
	local placed, file = zcc.store.open_safetensors(path), zcc.store.open_file_for_writing(path)
	for i, tensor in ipairs(placed:tensors()) do
		local buffer = zcc.store.buffer(tensor.bytes)
		buffer:fill_random(seed + i)
		file:write(tensor.offset, buffer)
		buffer:close()
	end
	file:close()
	placed:close()
end

return zcc.recipe {
	name = "demo_model",
	about = "Writes a checkpoint with random weights and the names and structure of Qwen3.",
	args = {
		{ flag = "--out", type = "string", value = "folder", required = true, about = "folder to write" },
		{ flag = "--layers", type = "int", default = 4, min = 1, about = "transformer layers" },
		{ flag = "--hidden", type = "int", default = 512, min = 64,
			about = "hidden size, a multiple of 64; 8 heads, 4 of them for keys" },
		{ flag = "--vocab", type = "int", default = 16384, min = 1, about = "vocabulary" },
		{ flag = "--files", type = "int", default = 3, min = 1, about = "safetensors files, at most" },
		{ flag = "--seed", type = "int", default = 1, about = "seed of the weights" },
		{ flag = "--force", type = "boolean", about = "replace a folder that is not empty" },
	},
	run = function(ctx)
		local a = ctx.args
		if a.hidden % 64 ~= 0 then
			zcc.error.misuse("--hidden: %d is no multiple of 64", a.hidden)
		end
		local config = { model_type = "qwen3", architectures = { "Qwen3ForCausalLM" }, num_hidden_layers = a.layers,
			hidden_size = a.hidden, intermediate_size = 3 * a.hidden, num_attention_heads = 8, num_key_value_heads = 4,
			head_dim = a.hidden / 8, vocab_size = a.vocab, tie_word_embeddings = false, torch_dtype = "bfloat16" }
		local shapes = zcc.shapes.generate("qwen3", config)
		local files = split(shapes.tensors, a.files)
		local total, map = 0, {}
		ctx.comm:together(function()
			if ctx.comm.rank > 0 then
				return
			end
			zcc.store.check_vacant(a.out, a.force)
			local folder = zcc.store.begin_folder(a.out, a.force)
			ctx.on_failure(function() folder:discard() end)
			for i, tensors in ipairs(files) do
				local name = #files == 1 and "model.safetensors" or ("model-%05d-of-%05d.safetensors"):format(i, #files)
				write_file(folder:path() .. "/" .. name, tensors, a.seed * 1000003 + i * 1009)
				for _, tensor in ipairs(tensors) do
					map[tensor.name], total = name, total + tensor.bytes
				end
			end
			if #files > 1 then
				zcc.json.encode_file(folder:path() .. "/model.safetensors.index.json",
					{ metadata = { total_size = total }, weight_map = map }, { indent = 2 })
			end
			zcc.json.encode_file(folder:path() .. "/config.json", config, { indent = 2 })
			folder:publish()
		end)
		ctx.say("%s: %d tensors, %s in %d files", a.out, #shapes.tensors, zcc.bytes.format(total), #files)
	end,
}
