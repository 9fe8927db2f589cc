local recipe = require "zcc.recipe"

local function declare(args)
	local declared = recipe{ name = "r", about = "A recipe.", args = args, run = function() end }
	return declared
end

local function refusal(call, ...)
	local ok, object = pcall(call, ...)
	assert.is_false(ok)
	return object.message, object
end

describe("recipe", function()
	it("defaults_hold_where_nothing_is_given", function()
		local declared = declare{
			{ flag = "--staging", type = "bytes", default = "2KiB", about = "x" },
			{ flag = "--dry-run", type = "boolean", about = "x" },
			{ flag = "--to", type = "string", about = "x" },
			{ flag = "--count", type = "int", default = 3, about = "x" },
		}
		assert.are.same({ staging = 2048, dry_run = false, count = 3 }, declared:parse({}, "c"))
		assert.are.same({ staging = 7, dry_run = true, to = "a=1,b", count = -2 },
			declared:parse({ "--staging", "7", "--dry-run", "--to=a=1,b", "--count=-2" }, "c"))
	end)

	it("misuse_is_marked_as_such_and_points_to_help", function()
		local declared = declare{ { flag = "--count", type = "int", about = "x" } }
		local message, object = refusal(declared.parse, declared, { "--count", "x" }, "zccrun r.lua")
		assert.is_true(object.misuse)
		assert.are.equal("--count: \"x\" is no whole number\nTry 'zccrun r.lua --help'.", message)
		refusal(declared.parse, declared, { "--count", "1", "--count", "2" }, "c")
	end)

	it("a_value_that_its_check_refuses_is_misuse_of_that_flag", function()
		local declared = declare{ { flag = "--to", type = "string", about = "x", check = function(value)
			if value ~= "good" then
				error(("%s is not good"):format(value), 0)
			end
		end } }
		assert.are.same({ to = "good" }, declared:parse({ "--to", "good" }, "c"))
		local message, object = refusal(declared.parse, declared, { "--to", "bad" }, "c")
		assert.is_true(object.misuse)
		assert.are.equal("--to: bad is not good\nTry 'c --help'.", message)
	end)

	it("an_argument_that_belongs_to_no_flag_is_named", function()
		local declared = declare{ { flag = "--verify", type = "boolean", about = "x" } }
		local message = refusal(declared.parse, declared, { "--verify", "yes" }, "c")
		assert.are.equal("unexpected argument 'yes'\nTry 'c --help'.", message)
		assert.is_nil(declared:help("c"):find("stray", 1, true))
	end)

	it("a_bad_declaration_is_an_error_at_the_recipes_line", function()
		local message, object = refusal(declare, { { flag = "--a", type = "text", about = "x" } })
		assert.is_truthy(message:find("argument --a: type must be one of string, int", 1, true), message)
		assert.is_truthy(object.place:find("recipe_spec.lua:4", 1, true), object.place)
		local bad = {
			{ flag = "a", type = "int", about = "x" },
			{ flag = "--Upper", type = "int", about = "x" },
			{ flag = "--help", type = "boolean", about = "x" },
			{ flag = "--a", type = "int" },
			{ flag = "--a", type = "int", about = "x", default = "3" },
			{ flag = "--a", type = "choice", about = "x" },
			{ flag = "--a", type = "int", about = "x", dflt = 3 },
			"--a",
		}
		for _, arg in ipairs(bad) do
			refusal(declare, { arg })
		end
		refusal(declare, { { flag = "--a-b", type = "int", about = "x" }, { flag = "--a-b", type = "int", about = "x" } })
		refusal(recipe, { name = "r", about = "x" })
		refusal(recipe, { name = "r", about = "x", run = function() end, extra = 1 })
	end)

	it("help_names_every_argument_with_its_default", function()
		local help = declare{
			{ flag = "--staging", type = "bytes", default = 8388608, about = "The budget." },
			{ flag = "--policy", type = "choice", choices = { "a", "b" }, about = "Which." },
			{ flag = "--report", type = "string", about = "Where to.", value = "FILE" },
		}:help("zccrun r.lua")
		local parts = {
			"Usage: zccrun r.lua", "The budget. (default: 8MiB)", "{a,b}", "--report <FILE>", "A recipe.",
		}
		for _, part in ipairs(parts) do
			assert.is_truthy(help:find(part, 1, true), part)
		end
	end)

	it("only_declared_recipes_are_recipes", function()
		assert.is_true(recipe.is(declare{}))
		assert.is_false(recipe.is{ run = function() end })
		assert.is_false(recipe.is(nil))
	end)
end)
