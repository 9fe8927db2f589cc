-- What zccrun does in Lua: find the recipe, read its arguments, run it, and say how it ended.

local comm = require "zcc.comm"
local fault = require "zcc.error"
local paths = require "zcc.paths"
local recipes = require "zcc.recipe"
local say = require "zcc.say"
local textfile = require "zcc.textfile"
local threads = require "zcc.threads"

local M = {}

-- The recipe that the file of this name returns.
local function load_recipe(name)
	local path, tried = paths.find("recipes", name)
	if not path then
		fault.misuse("no recipe %s (looked for %s)", name, table.concat(tried, ", "))
	end
	fault.script, fault.script_is_ours = path, paths.comes_with_zcc("recipes", path)
	local folder = path:match("^(.*)/[^/]*$") or "."
	package.path = ("%s;%s/?.lua"):format(package.path, folder)
	local chunk, why = loadfile(path)
	if not chunk then
		error(why, 0)
	end
	local recipe = chunk(path)
	if not recipes.is(recipe) then
		fault.misuse("%s is no recipe: it returns %s, not zcc.recipe{ … }", path,
			recipe == nil and "nothing" or "a " .. type(recipe))
	end
	return recipe
end

-- Help is asked for anywhere among the arguments, whatever else is wrong with them.
local function wants_help(list)
	for _, arg in ipairs(list) do
		if arg == "--help" or arg == "-h" then
			return true
		end
	end
	return false
end

-- Processes that were started for different work would wait for each other for ever.
local function check_same_work(world, program)
	local mine = program.recipe .. " " .. table.concat(program.args, " ")
	local first = world:broadcast(mine)
	world:together(function()
		if mine ~= first then
			fault.misuse("process %d was started as '%s', process 0 as '%s'", world.rank, mine, first)
		end
	end)
end

-- The library takes another number where this one is none; a person who set it is told.
local function check_threads()
	local text = os.getenv "ZCC_THREADS"
	if text and not (text:match("^%d+$") and pcall(threads.set, tonumber(text))) then
		fault.misuse("$ZCC_THREADS is '%s'; a number of threads from 1 on is allowed", text)
	end
end

-- What can be known to fail at the end should not wait until then.
local function check_surroundings(world, args)
	world:together(function()
		check_threads()
		if args.report and world.rank == 0 then
			textfile.check_writable(args.report)
		end
	end)
end

local function start(program, hooks)
	local world = comm.world()
	check_same_work(world, program)
	local recipe = load_recipe(program.recipe)
	local command = "zccrun " .. program.recipe
	if wants_help(program.args) then
		if world.rank == 0 then
			io.stdout:write(recipe:help(command), "\n")
		end
		return
	end
	local speaker = say.new(world.rank, world.size)
	hooks[1] = function() speaker:clear() end
	local args = recipe:parse(program.args, command)
	check_surroundings(world, args)
	recipe.run{
		args = args,
		comm = world,
		say = speaker,
		on_failure = function(hook)
			hooks[#hooks + 1] = hook
		end,
	}
end

-- The last one first; one that fails itself keeps no other from running.
local function run_hooks(hooks)
	while #hooks > 0 do
		local ok, why = pcall(table.remove(hooks))
		if not ok then
			io.stderr:write("zccrun: while cleaning up: ", tostring(why), "\n")
		end
	end
end

--- Runs the recipe. Returns the exit status, and after a failure its message and whether that already says everything
-- about where it happened (so that the number of this process adds nothing).
function M.run(program)
	local hooks, traceback = {}, nil
	os.exit = function(code) -- luacheck: ignore 122
		local status = (code == nil or code == true) and 0 or tonumber(code) or 1
		if status % 1 ~= 0 or status < 0 or status > 255 then
			status = 1
		end
		if status ~= 0 then
			program.begin_end()
			run_hooks(hooks)
		end
		program.exit(status)
	end
	local ok, value = xpcall(function() start(program, hooks) end, function(value)
		if program.debug then
			traceback = debug.traceback("", 2)
		end
		return value
	end)
	if ok then
		return 0
	end
	program.begin_end()
	run_hooks(hooks)
	local object = fault.from(value)
	return object.misuse and 2 or 1, tostring(object) .. (traceback or ""), object.misuse or object.process ~= nil
end

return M
