local sandbox = require "zcc.sandbox"

local function run(text)
	return sandbox.run(text, "mine.lua", "policy")
end

local function refusal(text)
	local ok, object = pcall(run, text)
	assert.is_false(ok)
	assert.are.equal("ZCC_EFORMAT", object.status)
	return object.message
end

describe("the sandbox", function()
	it("offers_no_files_processes_clock_chance_or_foreign_code", function()
		local found = run([[
			local found = {}
			for _, name in ipairs{ "io", "os", "require", "package", "ffi", "jit", "debug", "load", "loadstring", "loadfile",
				"dofile", "getfenv", "setfenv", "rawset", "rawget", "setmetatable", "getmetatable",
				"newproxy", "collectgarbage", "print" } do
				if _G[name] ~= nil then found[#found + 1] = name end
			end
			return { found, math.random, math.randomseed, string.dump }
		]])
		assert.are.same({ {} }, found)
	end)

	it("keeps_changes_of_its_libraries_to_itself", function()
		run([[ math.floor = nil; string.format = nil; table.concat = nil; x = 1; return {} ]])
		assert.are.equal("1", ("%d"):format(math.floor(1.5)))
		assert.are.equal("ab", table.concat({ "a", "b" }))
		assert.is_nil(rawget(_G, "x"))
	end)

	it("walks_tables_in_one_order", function()
		assert.are.same({ "1", "2", "10", "a", "b" }, run([[
			local order = {}
			for key in pairs{ b = 1, [10] = 1, a = 1, [2] = 1, [1] = 1 } do order[#order + 1] = tostring(key) end
			return order
		]]))
		assert.is_truthy(refusal([[ for _ in pairs{ [{}] = 1 } do end return {} ]]):find("mine.lua:1", 1, true))
	end)

	it("names_file_and_line_of_what_is_wrong", function()
		assert.is_truthy(refusal("return {\n\n = }"):find("mine.lua:3", 1, true))
		assert.is_truthy(refusal("local x\nreturn x.y"):find("mine.lua:2", 1, true))
		assert.is_truthy(refusal("error('no\\nway')"):find("mine.lua:1: no\nway", 1, true))
		assert.is_truthy(refusal("return 3"):find("returned number", 1, true))
		assert.is_truthy(refusal(""):find("returned nil", 1, true))
	end)

	it("takes_text_only", function()
		assert.is_truthy(refusal(string.dump(function() end)):find("compiled", 1, true))
	end)

	it("names_a_file_that_cannot_be_read", function()
		local ok, object = pcall(sandbox.load, "missing/rules.lua", "rules file")
		assert.is_false(ok)
		assert.are.equal("ZCC_EIO", object.status)
		assert.is_truthy(object.message:find("missing/rules.lua", 1, true))
	end)
end)
