local object = require "zcc.object"
local zffi = require "zcc.ffi"

local ffi = zffi.ffi

-- A class whose destructor only counts.
local function counted()
	local freed = { count = 0 }
	local class = object.class("layout", function() freed.count = freed.count + 1 end)
	return class, freed
end

local function collect()
	collectgarbage()
	collectgarbage()
end

describe("object", function()
	it("close_frees_once_however_often_it_is_called", function()
		local class, freed = counted()
		local thing = object.wrap(class, ffi.new("int[1]"))
		assert.is_false(thing:is_closed())
		thing:close()
		thing:close()
		assert.is_true(thing:is_closed())
		assert.are.equal(1, freed.count)
		thing = nil -- luacheck: ignore 311
		collect()
		assert.are.equal(1, freed.count)
	end)

	it("a_closed_object_says_what_it_was", function()
		local class = counted()
		local thing = object.wrap(class, ffi.new("int[1]"))
		thing:pointer()
		assert.are.equal("layout", tostring(thing))
		thing:close()
		local ok, why = pcall(thing.pointer, thing)
		assert.is_false(ok)
		assert.are.equal("this layout is closed", why.message)
		assert.are.equal("layout (closed)", tostring(thing))
	end)

	it("an_object_that_nobody_holds_is_freed_by_the_collector", function()
		local class, freed = counted()
		do
			local thing = object.wrap(class, ffi.new("int[1]"))
			thing:pointer()
		end
		collect()
		assert.are.equal(1, freed.count)
	end)

	it("pins_live_as_long_as_the_object_and_no_longer", function()
		local class = counted()
		local watch = setmetatable({ {} }, { __mode = "v" })
		local thing = object.wrap(class, ffi.new("int[1]"), { watch[1] })
		collect()
		assert.is_not_nil(watch[1])
		thing:close()
		collect()
		assert.is_nil(watch[1])
	end)
end)
