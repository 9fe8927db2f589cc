-- Fails where a file uses what its layer may not (DESIGN, "Layers"): an include or require that goes up, or sideways
-- into another folder of the same layer. Usage: luajit layers.lua SOURCE_FOLDER

local root = arg[1] or "."

-- Folder of engine/ -> the folders below it that it may include from. zcc/ (the public headers) is open to all; what
-- a public header declares is held to the same order by `topics`.
local below = {
	base = {},
	kernels = { "base" },
	affine = { "base", "kernels" },
	state = { "base", "kernels" },
	store = { "base", "kernels" },
	device = { "base", "kernels" },
	staging = { "base", "kernels", "device" },
	job = { "base", "kernels", "affine", "state", "store", "device", "staging" },
	transfer = { "base", "kernels", "affine", "state", "store", "device", "staging" },
	zccrun = {},
}
-- Topic header of zcc/ -> the folder that implements it.
local topics = { base = "base", json = "base", threads = "base", affine = "affine", state = "state", store = "store",
	device = "device", pool = "staging", copyback = "staging", offload = "staging", ema = "staging", adamw = "staging",
	job = "job", transfer = "transfer" }

local faults = {}

local function complain(format, ...)
	faults[#faults + 1] = format:format(...)
end

local function files(pattern)
	local list = {}
	local pipe = assert(io.popen(("cd '%s' && ls %s 2>/dev/null"):format(root, pattern)))
	for path in pipe:lines() do
		list[#list + 1] = path
	end
	pipe:close()
	return list
end

local function each_line(path, visit)
	local number = 0
	for line in assert(io.open(root .. "/" .. path)):lines() do
		number = number + 1
		visit(line, number)
	end
end

local function allowed(folder, target)
	if folder == target then
		return true
	end
	for _, name in ipairs(below[folder]) do
		if name == target then
			return true
		end
	end
	return false
end

local function check_include(path, line, folder, included)
	local target, name = included:match("^([^/]+)/(.+)$")
	if target == "zcc" then
		target = topics[name:match("^(.*)%.h$")]
		if not target then
			complain("%s:%d: %s is the header of no known topic; name it in the table of layers", path, line, included)
		elseif folder ~= "zccrun" and not allowed(folder, target) then
			complain("%s:%d: %s may not use %s, which belongs to %s", path, line, folder, included, target)
		end
	elseif target then
		if not below[target] then
			complain("%s:%d: %s is in no known folder", path, line, included)
		elseif not allowed(folder, target) then
			complain("%s:%d: %s may not use %s", path, line, folder, included)
		end
	end
end

-- Plug-ins are folders in the folder of their layer. Only they know the headers of their vendor, and nobody else
-- knows theirs.
local plugins = { "device/cuda", "transfer/nccl" }
local vendor = { "^cuda", "^nccl" }

local function plugin_of(path)
	for _, folder in ipairs(plugins) do
		if path:find(folder .. "/", 1, true) then
			return folder
		end
	end
end

local function check_plugin(path, number, line)
	local included = line:match('^%s*#%s*include%s+["<]([^">]+)[">]')
	if not included then
		return
	end
	local own, theirs = plugin_of(path), plugin_of(included)
	if theirs and theirs ~= own then
		complain("%s:%d: %s belongs to a plug-in", path, number, included)
	end
	for _, pattern in ipairs(vendor) do
		if not own and included:find(pattern) then
			complain("%s:%d: only a plug-in may include %s", path, number, included)
		end
	end
end

local count = 0
for _, path in ipairs(files "engine/*/*.[ch] engine/*/*/*.[ch] engine/*/*/*.cu") do
	local folder = path:match("^engine/([^/]+)/")
	if folder ~= "include" then
		if not below[folder] then
			complain("%s: the folder %s has no place in the table of layers", path, folder)
		else
			each_line(path, function(line, number)
				local included = line:match('^%s*#%s*include%s+"([^"]+)"')
				if included then
					count = count + 1
					check_include(path, number, folder, included)
				end
				check_plugin(path, number, line)
			end)
		end
	end
end

for _, path in ipairs(files "engine/include/zcc/*.h") do
	local folder = topics[path:match("([^/]+)%.h$")]
	if not folder then
		complain("%s: a topic that is not in the table of layers", path)
	else
		each_line(path, function(line, number)
			local included = line:match('^%s*#%s*include%s+"([^"]+)"')
			if included then
				count = count + 1
				check_include(path, number, folder, "zcc/" .. included)
			end
		end)
	end
end

-- Lua: nothing but lua/zcc/ffi.lua touches the ffi module; the library requires no recipe or policy; recipes,
-- policies and benches see neither the raw binding nor each other.
for _, path in ipairs(files "lua/zcc/*.lua lua/zcc/*/*.lua recipes/*.lua recipes/*/*.lua policies/*.lua bench/*.lua") do
	local in_library = path:find("^lua/") ~= nil
	each_line(path, function(line, number)
		for _, module in line:gmatch("require%s*%(?%s*([\"'])([%w_.]+)%1") do
			count = count + 1
			if module == "ffi" and path ~= "lua/zcc/ffi.lua" then
				complain("%s:%d: only lua/zcc/ffi.lua may require ffi", path, number)
			elseif module == "zcc.ffi" and not in_library then
				complain("%s:%d: recipes, policies and benches do not see the raw binding", path, number)
			elseif module:find("^recipes") or module:find("^policies") then
				complain("%s:%d: nothing requires %s", path, number, module)
			end
		end
	end)
end

for _, fault in ipairs(faults) do
	print(fault)
end
print(("%d includes and requires, %d faults"):format(count, #faults))
if count < 20 then
	print("that is too few: the lint looked in the wrong place")
	os.exit(1)
end
os.exit(#faults == 0 and 0 or 1)
