local comm = require "zcc.comm"
local fault = require "zcc.error"

-- One process; tests/cli/recipes/collective.lua checks the same on several.
describe("comm", function()
	local world = comm.world()

	it("is_this_process_alone_without_a_launcher", function()
		assert.are.equal(0, world.rank)
		assert.are.equal(1, world.size)
		assert.are.equal(world, comm.world())
	end)

	it("together_returns_what_the_function_returns", function()
		local n = select("#", world:together(function() return 1, nil, nil end))
		assert.are.equal(3, n)
	end)

	it("together_raises_an_error_object_whatever_was_raised", function()
		local raised = { "text", { 1 }, 7, fault.new{ status = "ZCC_EPOLICY", message = "no holder", place = "p.lua:3" } }
		local messages = { "text", "an error that is no text: table: ", "an error that is no text: 7", "p.lua:3: no holder" }
		for i, value in ipairs(raised) do
			local ok, object = pcall(world.together, world, function() error(value, 0) end)
			assert.is_false(ok)
			assert.is_true(fault.is(object))
			assert.are.equal(messages[i], object.message:sub(1, #messages[i]))
		end
	end)

	it("misuse_stays_misuse", function()
		local ok, object = pcall(world.together, world, fault.misuse, "no %s", "good")
		assert.is_false(ok)
		assert.is_true(object.misuse)
		assert.are.equal("no good", tostring(object))
	end)

	it("a_message_longer_than_the_engine_holds_is_cut", function()
		local ok, object = pcall(world.together, world, function() error(("x"):rep(5000), 0) end)
		assert.is_false(ok)
		assert.are.equal(1023, #object.message)
	end)

	it("refuses_what_is_no_whole_number", function()
		assert.is_false(pcall(world.sum, world, 0.5))
		assert.is_false(pcall(world.sum, world, "1"))
		assert.is_false(pcall(world.sum, world, { 1, {} }))
		assert.is_false(pcall(world.broadcast, world, 3))
		assert.is_false(pcall(world.same, world, "x", "no digest"))
	end)
end)
