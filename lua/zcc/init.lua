-- The library as a recipe sees it: zcc.recipe, zcc.json, zcc.layout, … each loaded when it is first used.

local zcc = {}

return setmetatable(zcc, {
	__index = function(_, name)
		local module = require("zcc." .. name)
		rawset(zcc, name, module)
		return module
	end,
})
