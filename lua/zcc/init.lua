-- The library as a recipe sees it: zcc.recipe, zcc.json, zcc.layout, … each loaded when it is first used.

local zcc = {}

return setmetatable(zcc, {
	__index = function(_, name)
		local path = "zcc." .. tostring(name)
		if not package.loaded[path] and not package.searchpath(path, package.path) then
			require("zcc.error").raise("ZCC_EINVAL", "zcc has no %s", tostring(name))
		end
		local module = require(path)
		rawset(zcc, name, module)
		return module
	end,
})
