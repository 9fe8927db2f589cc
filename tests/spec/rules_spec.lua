local placement = require "zcc.placement"
local rules = require "zcc.rules"

-- Writes a rules file, loads it, and returns the rules or the fault's message.
local function load(text)
	local path = os.tmpname()
	local file = assert(io.open(path, "w"))
	file:write(text)
	file:close()
	local ok, result = pcall(rules.load, path)
	os.remove(path)
	if ok then return result, path end
	assert.are.equal("ZCC_EFORMAT", result.status)
	return result.message, path
end

local function named(...)
	local params = {}
	for i, name in ipairs({ ... }) do params[i] = { name = name, dtype = "F32", shape = { 2, 2 } } end
	return params
end

describe("rules files", function()
	it("are_lua_files_that_return_a_table", function()
		local found = load([[
			local heads = { units = "n_head" }
			return {
				name = "mine", layers = "h%.(%d+)%.",
				rules = {
					{ "q%.weight$", cut = 0, units = heads.units },
					{ "norm", replicate = true },
				},
			}
		]])
		assert.are.equal("mine", found.name)
		assert.are.equal("n_head", found.rules[1].units)
	end)

	it("are_as_the_readme_shows", function()
		local readme = assert(io.open("README.md")):read("*a")
		local found = load((assert(readme:match("```lua\n(return {\n\tname = \"mine\".-)```"))))
		assert.are.equal("mine", found.name)
		local params = {
			{ name = "embed.weight", dtype = "F32", shape = { 10, 8 } }, { name = "norm.weight", dtype = "F32", shape = { 8 } },
			{ name = "blocks.0.attn.qkv.weight", dtype = "F32", shape = { 16, 8 } },
			{ name = "blocks.0.attn.out.weight", dtype = "F32", shape = { 8, 8 } },
		}
		local description = placement.resolve("pp=1,tp=4", params, found,
			{ config = { n_head = 4, n_kv = 2, head_dim = 2 } })
		assert.is_nil(description.params[1].placements)
		assert.are.same({ { size = 8, units = 4, cut = "even" }, { size = 4, units = 2, cut = "grouped" },
			{ size = 4, units = 2, cut = "grouped" } }, description.params[3].placements[1].parts)
		assert.are.equal(1, description.params[4].placements[1].dim)
	end)

	it("are_named_by_their_path_where_they_name_nothing", function()
		local found, path = load([[ return { rules = { { "x", replicate = true } } } ]])
		assert.are.equal(path, found.name)
	end)

	it("have_well_formed_patterns", function()
		local function verdict(pattern)
			return type(load(("return { rules = { { %q, replicate = true } } }"):format(pattern))) == "table"
		end
		for _, good in ipairs({ "a%.b", "[%]]x", "[]]", "[^]%]]", "%b()", "%f[%w]x", "(%d+)(x)", "a-b*c+d?$",
			"%%", "^%[" }) do
			assert.is_true(verdict(good), good)
		end
		for _, bad in ipairs({ "a%", "[a", "[]", "[^]", "[%]", "(a", "a)", "%b(", "%fx" }) do
			assert.is_false(verdict(bad), bad)
		end
	end)

	it("with_a_fault_name_file_and_line", function()
		for text, expected in pairs({
			["return {\n rules = {\n  { 'a', cut = 0, unit = 3 } } }"] = { ":3: rule 1", "'unit'", "did you mean 'units'" },
			["return { rules = {\n { 'a', cut = 0 },\n { 'b%', cut = 1 } } }"] = { ":3: rule 2", "'b%'" },
			["return { rules = {\n { 'a' } } }"] = { ":2: rule 1", "found 0" },
			["return { rules = { { 'a', cut = 0, replicate = true } } }"] = { ":1: rule 1", "found 2" },
			["return { rules = { { 'a', cut = -1 } } }"] = { ":1: rule 1", "cut has to be an axis from 0 to 7, found -1" },
			["return { rules = { { 'a', cut = 1.5 } } }"] = { "found 1.5" },
			["return { rules = { { 'a', cut = 0, units = {} } } }"] = { "units has to be" },
			["return { rules = { { 'a', vocab = 0, units = 3 } } }"] = { "units needs cut" },
			["return { rules = { { 'a', cut = 0, input = true } } }"] = { "input needs vocab" },
			["return { rules = { { 'a', cut = 0, grouped = true, uneven = true } } }"] = { "exclude each other" },
			["return { rules = { { 'a', cut = 0, parts = {} } } }"] = { "parts is empty" },
			["return { rules = { { 'a', cut = 0, parts = { { units = 3 } } } } }"] = { "part 1", "size" },
			["return { rules = { { 'a', cut = 0, parts = { { 3, unit = 3 } } } } }"] = { "part 1", "'unit'" },
			["return { rules = { { 'experts', expert = true } } }"] = { "capture" },
			["return { rules = { { 'a', expert_axis = 0, cut = 0 } } }"] = { "axis 0 is both" },
			["return { rules = { { 'a', replicate = true, stage = 'middle' } } }"] = { "'first' or 'last'" },
			["return { rules = { { cut = 0 } } }"] = { "rule 1", "begins with a pattern" },
			["return { rules = { 'a' } }"] = { "rule 1", "a rule is a table" },
			["return { rule = {} }"] = { "'rule'", "did you mean 'rules'" },
			["return { rules = {} }"] = { "'rules' has to be a list" },
			["return { layers = 'h%.%d', rules = { { 'a', cut = 0 } } }"] = { "layers", "capture" },
			["return { default = 'cut', rules = { { 'a', cut = 0 } } }"] = { "'cut'", "'replicate'" },
			["return {"] = { ":1:" },
			["local t\nreturn t.x"] = { ":2:" },
			["return { rules = { { 'a', cut = 0 } }, name = io.open('x') }"] = { ":1:", "io" },
		}) do
			local message, path = load(text)
			assert.are.equal("string", type(message), text)
			assert.is_truthy(message:find(path, 1, true), message)
			for _, part in ipairs(expected) do
				assert.is_truthy(message:find(part, 1, true), ("'%s' lacks '%s'"):format(message, part))
			end
		end
	end)
end)

describe("families", function()
	it("are_all_well_formed", function()
		for _, name in ipairs(rules.families) do
			assert.are.equal(name, rules.family(name).name)
		end
	end)

	it("are_listed_where_an_unknown_one_is_asked_for", function()
		local ok, object = pcall(rules.family, "qwen")
		assert.is_false(ok)
		assert.is_truthy(object.message:find("'qwen'", 1, true))
		assert.is_truthy(object.message:find("auto, bert, gpt2, llama, qwen3, qwen3_moe", 1, true))
	end)

	it("follow_the_model_type_of_config_json", function()
		for model_type, family in pairs({ qwen3 = "qwen3", qwen2 = "qwen3", llama = "llama", mistral = "llama", gpt2 = "gpt2",
			bert = "bert", qwen3_moe = "qwen3_moe" }) do
			-- The names would say something else.
			local found, reason = rules.detect(named("h.0.attn.c_attn.weight", "wpe.weight"), { model_type = model_type })
			assert.are.equal(family, found.name)
			assert.is_truthy(reason:find("model_type " .. model_type, 1, true))
		end
	end)

	it("are_not_guessed_for_a_model_type_that_nobody_knows", function()
		local ok, object = pcall(rules.detect, named("layers.0.self_attn.q_proj.weight", "layers.0.mlp.gate_proj.weight"),
			{ model_type = "deepseek_v3" })
		assert.is_false(ok)
		assert.is_truthy(object.message:find("'deepseek_v3'", 1, true))
		assert.is_truthy(object.message:find("--rules", 1, true))
	end)

	it("are_told_by_the_names_where_there_is_no_config", function()
		local attention = { "layers.0.self_attn.q_proj.weight", "layers.0.mlp.gate_proj.weight" }
		local cases = {
			llama = named(attention[1], attention[2]),
			qwen3 = named(attention[1], attention[2], "layers.0.self_attn.q_norm.weight"),
			qwen3_moe = named(attention[1], "layers.0.self_attn.q_norm.weight", "layers.0.mlp.gate.weight",
				"layers.0.mlp.experts.0.gate_proj.weight"),
			gpt2 = named("transformer.h.0.attn.c_attn.weight", "transformer.wpe.weight"),
			bert = named("bert.encoder.layer.0.attention.self.query.weight", "bert.embeddings.word_embeddings.weight"),
		}
		for family, params in pairs(cases) do
			local found, reason = rules.detect(params, nil)
			assert.are.equal(family, found.name)
			assert.is_truthy(reason:find("by the parameters' names", 1, true))
		end
		assert.are.equal("qwen3", rules.detect(named(attention[1], attention[2], "layers.0.self_attn.q_proj.bias"), {}).name)
		assert.are.equal("llama", rules.detect(named(attention[1], attention[2], "layers.0.self_attn.q_proj.bias",
			"layers.0.self_attn.o_proj.bias"), {}).name)
	end)

	it("have_to_be_named_where_no_name_is_known", function()
		local ok, object = pcall(rules.detect, named("blocks.0.w"), nil)
		assert.is_false(ok)
		assert.is_truthy(object.message:find("no family", 1, true))
		assert.is_truthy(object.message:find("--family", 1, true))
		assert.is_truthy(object.message:find("blocks.0.w", 1, true))
	end)
end)
