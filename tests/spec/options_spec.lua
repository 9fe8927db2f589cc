local options = require "zcc.options"

local schema = {
	staging = { type = "bytes", default = 8388608, min = 4096 },
	workers = { type = "integer", min = 1, max = 64 },
	name = { type = "string", required = true },
	tier = { type = "choice", choices = { "flash", "persistent" }, default = "flash" },
	verify = { type = "boolean", default = false },
	filter = { type = "function" },
}

-- The message of the error that options.check raises from here, and the line of the call.
local function refusal(given)
	local line
	local ok, object = pcall(function()
		line = debug.getinfo(1, "l").currentline + 1
		options.check(schema, given, "transfer")
	end)
	assert.is_false(ok)
	assert.are.equal("ZCC_EINVAL", object.status)
	assert.is_truthy(object.place:find("options_spec.lua:" .. line, 1, true), object.place)
	return object.message
end

describe("options", function()
	it("fills_defaults_and_leaves_the_given_table_alone", function()
		local given = { name = "x", staging = "1MiB" }
		assert.are.same({ name = "x", staging = 1048576, tier = "flash", verify = false },
			options.check(schema, given, "transfer"))
		assert.are.same({ name = "x", staging = "1MiB" }, given)
	end)

	it("an_unknown_key_is_an_error_that_lists_the_known_ones", function()
		assert.are.equal("transfer: unknown option stagin (known: filter, name, staging, tier, verify, workers)",
			refusal{ name = "x", stagin = 1 })
		assert.is_truthy(refusal{ name = "x", 7 }:find("unknown option 1", 1, true))
	end)

	it("a_wrong_type_is_an_error", function()
		assert.are.equal('transfer: workers must be a whole number, found "4"', refusal{ name = "x", workers = "4" })
		assert.are.equal("transfer: workers must be a whole number, found 1.5", refusal{ name = "x", workers = 1.5 })
		assert.are.equal("transfer: verify must be true or false, found 1", refusal{ name = "x", verify = 1 })
		assert.are.equal('transfer: tier must be one of flash, persistent, found "disk"',
			refusal{ name = "x", tier = "disk" })
		assert.is_truthy(refusal{ name = "x", staging = "8 MiBs" }:find("no amount of bytes", 1, true))
		assert.is_truthy(refusal{ name = "x", staging = -1 }:find("an amount of bytes", 1, true))
		assert.is_truthy(refusal{ name = "x", filter = {} }:find("a function, found a table", 1, true))
	end)

	it("a_number_out_of_range_is_an_error_with_the_range", function()
		assert.are.equal("transfer: workers must be from 1 to 64, found 65", refusal{ name = "x", workers = 65 })
		assert.are.equal("transfer: staging must be at least 4096, found 1", refusal{ name = "x", staging = 1 })
		assert.is_truthy(refusal{ name = "x", workers = 0 / 0 }:find("whole number", 1, true))
	end)

	it("a_missing_required_option_is_an_error", function()
		assert.are.equal("transfer: option name is missing", refusal{})
		assert.are.equal("transfer: option name is missing", refusal(nil))
		assert.are.equal("transfer: options must be a table, found 3", refusal(3))
	end)
end)
