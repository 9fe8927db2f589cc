-- recipes/compare.lua from outside. $ZCCRUN is the program.

local program = assert(os.getenv "ZCCRUN")

-- Runs a recipe that comes with zcc; returns its status and all that it said.
local function run(format, ...)
	local pipe = io.popen(("%s %s 2>&1; echo $?"):format(program, format:format(...)))
	local text, status = pipe:read("*a"):match("^(.*)%f[%d](%d+)\n$")
	pipe:close()
	return tonumber(status), text
end

local function good(...)
	local status, said = run(...)
	assert.are.equal(0, status, said)
	return said
end

-- Turns the last byte of a file over.
local function damage(path)
	local file = assert(io.open(path, "r+b"))
	file:seek("end", -1)
	local byte = file:read(1):byte()
	file:seek("end", -1)
	file:write(string.char(255 - byte))
	file:close()
end

describe("compare", function()
	local folder, model

	before_each(function()
		folder = os.tmpname()
		os.remove(folder)
		model = folder .. "/model"
		good("demo_model --hidden 64 --vocab 512 --layers 1 --files 1 --out %s", model)
	end)
	after_each(function() os.execute("rm -rf " .. folder) end)

	it("finds_no_difference_between_layouts_of_one_model", function()
		good("reshard --in %s --out %s/sharded --to dp=2,tp=2,zero=3", model, folder)
		assert.is_truthy(good("compare --in %s/sharded --with %s", folder, model):find("the same 14 parameters", 1, true))
	end)

	it("ends_with_status_1_and_names_the_element_the_values_and_the_files", function()
		good("reshard --in %s --out %s/sharded --to tp=2", model, folder)
		damage(folder .. "/sharded/rank-00001-of-00002.safetensors")
		local status, said = run("compare --in %s --with %s/sharded", model, folder)
		assert.are.equal(1, status)
		for _, part in ipairs { "parameter ", "element [", "0x", model .. "/model.safetensors",
			folder .. "/sharded/rank-00001-of-00002.safetensors" } do
			assert.is_truthy(said:find(part, 1, true), said)
		end
	end)

	it("names_what_one_of_them_lacks_by_the_names_that_they_were_given", function()
		local more = folder .. "/more"
		good("demo_model --hidden 64 --vocab 512 --layers 2 --out %s", more)
		for _, order in ipairs { { model, more }, { more, model } } do
			local status, said = run("compare --in %s --with %s", order[1], order[2])
			assert.are.equal(1, status)
			assert.is_truthy(said:find(("%s lacks 11 of the 25 parameters in %s:\n"):format(model, more), 1, true), said)
			assert.is_truthy(said:find("  model.layers.1.mlp.up_proj.weight\n", 1, true), said)
		end
	end)

	it("names_a_parameter_of_another_shape", function()
		good("demo_model --hidden 64 --vocab 500 --layers 1 --out %s/other", folder)
		local status, said = run("compare --in %s --with %s/other", model, folder)
		assert.are.equal(1, status)
		assert.is_truthy(said:find(("embed_tokens.weight is [512, 64] in %s, [500, 64] in %s/other"):format(model, folder), 1,
			true), said)
	end)
end)
