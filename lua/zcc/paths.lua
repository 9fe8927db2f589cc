-- Where the files that come with zcc are: in the source tree, or under share/zcc once installed.

local M = {}

-- …/lua/zcc/paths.lua lies two folders below the root that also holds recipes/ and policies/.
local here = debug.getinfo(1, "S").source:match("^@(.*)[^/]*$")
M.root = here:match("^(.*)/lua/zcc/") or (here .. "/../..")

local function is_file(path)
	local file = io.open(path, "rb")
	if not file then
		return false
	end
	-- A folder opens as well, but cannot be read.
	local readable = file:read(0) ~= nil or file:seek("end") == 0
	file:close()
	return readable
end

--- The path of a Lua file: the name as given, else in the folder `kind` ("recipes", "policies") that comes with zcc,
-- there also without ".lua". Returns nil and the list of paths that were tried where there is none.
function M.find(kind, name)
	local tried = { name }
	if not name:find("^/") then
		local base = ("%s/%s/%s"):format(M.root, kind, (name:gsub("^" .. kind .. "/", "")))
		tried[2] = base
		if not name:find("%.lua$") then
			tried[3] = base .. ".lua"
		end
	end
	for _, path in ipairs(tried) do
		if is_file(path) then
			return path
		end
	end
	return nil, tried
end

local function content(path)
	local file = io.open(path, "rb")
	local text = file and file:read("*a")
	if file then
		file:close()
	end
	return text
end

--- Whether a file is one of those in the folder `kind` that comes with zcc, whatever path leads to it: it has the name
-- and the content of one.
function M.comes_with_zcc(kind, path)
	local ours = content(("%s/%s/%s"):format(M.root, kind, path:match("[^/]*$")))
	return ours ~= nil and ours == content(path)
end

return M
