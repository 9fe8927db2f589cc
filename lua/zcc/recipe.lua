-- Recipes: Lua files that return zcc.recipe{ name =, about =, args = {…}, run = function(ctx) … end }.
--
-- Each argument is { flag = "--staging", type =, about =, default =, required =, choices =, min =, max =, value =,
-- check = }.
-- Types: "string", "int", "number", "boolean" (takes no value), "bytes" ("8MiB"), "choice" (one of `choices`),
-- "file" (must exist); `value` is how the help calls the value; check(value) raises where it is no good, which is then
-- misuse of that flag. run gets
--   ctx.args        the values by name: --dry-run is ctx.args.dry_run; that --report can be written has been seen
--   ctx.comm        the processes (zcc.comm)
--   ctx.say         messages for people (zcc.say): ctx.say("moved %d bytes", n); ctx.say:progress("moving",
--                   done, total) as often as you like
--   ctx.on_failure  ctx.on_failure(fn): fn() is called when the recipe fails or is interrupted, the last one first

local argparse = require "argparse"
local bytes = require "zcc.bytes"
local fault = require "zcc.error"
local options = require "zcc.options"

local M = {}

local Recipe = {}
Recipe.__index = Recipe

-- Where the parser leaves what belongs to no flag; no flag's name can be this.
local STRAY = "stray arguments"

-- From the text of the command line to the value; nil and a message where it is none.
local converters = {
	string = function(text) return text end,
	bytes = bytes.parse,
	number = function(text)
		local number = tonumber(text)
		if number and number - number == 0 then
			return number
		end
		return nil, ("%q is no number"):format(text)
	end,
	int = function(text)
		local number = text:find("^-?%d+$") and tonumber(text)
		if number and math.abs(number) <= 2^53 then
			return number
		end
		return nil, ("%q is no whole number"):format(text)
	end,
	file = function(text)
		local file, why = io.open(text, "rb")
		if not file then
			return nil, why
		end
		file:close()
		return text
	end,
}
converters.choice = converters.string

local type_names = { "string", "int", "number", "boolean", "bytes", "choice", "file" }
local value_types = { string = "string", int = "integer", number = "number", boolean = "boolean", bytes = "bytes",
	choice = "string", file = "string" }

local recipe_schema = {
	name = { type = "string", required = true },
	about = { type = "string", required = true },
	args = { type = "table", default = {} },
	run = { type = "function", required = true },
}

local function arg_schema(given)
	local kind = type(given) == "table" and given.type
	return {
		flag = { type = "string", required = true },
		type = { type = "choice", choices = type_names, required = true },
		about = { type = "string", required = true },
		default = { type = value_types[kind] or "any" },
		required = { type = "boolean" },
		choices = { type = "table", required = kind == "choice" },
		min = { type = "number" },
		max = { type = "number" },
		value = { type = "string" },
		check = { type = "function" },
	}
end

local function check_arg(given, seen)
	local what = "argument " .. tostring(type(given) == "table" and given.flag or "of a recipe")
	local declared = options.check(arg_schema(given), given, what)
	local name = declared.flag:match("^%-%-(%l[%l%d-]*)$")
	if not name or name == "help" then
		fault.raise("ZCC_EINVAL", "%s: a flag is -- and lower-case letters, digits and hyphens, and not --help", what)
	end
	declared.name = name:gsub("-", "_")
	if seen[declared.name] then
		fault.raise("ZCC_EINVAL", "%s is declared twice", what)
	end
	seen[declared.name] = true
	if declared.type == "boolean" and declared.default == nil then
		declared.default = false
	end
	return declared
end

--- Declares a recipe: checks the declaration and returns what the recipe's file has to return.
local function declare(_, given)
	local recipe = options.check(recipe_schema, given, "recipe")
	local seen, args = {}, {}
	for i, arg in ipairs(recipe.args) do
		args[i] = check_arg(arg, seen)
	end
	recipe.args = args
	return setmetatable(recipe, Recipe)
end

--- Whether a value is a declared recipe.
function M.is(value)
	return getmetatable(value) == Recipe
end

local function about_of(arg)
	if arg.default == nil or arg.type == "boolean" then
		return arg.about
	end
	local default = arg.default
	if arg.type == "bytes" then
		default = bytes.format(bytes.parse(default)):gsub(" ", "")
	end
	return ("%s (default: %s)"):format(arg.about, default)
end

local function convert(arg)
	return function(text)
		local value, why = converters[arg.type](text)
		if value == nil then
			return nil, ("%s: %s"):format(arg.flag, why)
		end
		if arg.min and value < arg.min then
			return nil, ("%s: %s is less than %s"):format(arg.flag, text, arg.min)
		elseif arg.max and value > arg.max then
			return nil, ("%s: %s is more than %s"):format(arg.flag, text, arg.max)
		end
		if arg.check then
			local ok, wrong = pcall(arg.check, value)
			if not ok then
				return nil, ("%s: %s"):format(arg.flag, fault.from(wrong).message)
			end
		end
		return value
	end
end

local function parser_of(recipe, command)
	local parser = argparse(command, recipe.about):add_help(false)
	for _, arg in ipairs(recipe.args) do
		if arg.type == "boolean" then
			parser:flag(arg.flag, about_of(arg)):target(arg.name)
		else
			local option = parser:option(arg.flag, about_of(arg)):target(arg.name):count(arg.required and 1 or "?")
			option:overwrite(false):convert(convert(arg))
			if arg.choices then
				option:choices(arg.choices)
			end
			if arg.value or not arg.choices then
				option:argname("<" .. (arg.value or arg.type) .. ">")
			end
		end
	end
	parser:argument("stray"):target(STRAY):args("*"):hidden(true)
	parser:flag("-h --help", "print this help")
	return parser
end

--- The text of --help; `command` is how the recipe was called.
function Recipe:help(command)
	return parser_of(self, command):get_help()
end

-- A negative number behind an option is its value; the parser would take it for an option.
local function join_negative(list)
	local joined = {}
	for _, text in ipairs(list) do
		if text:find("^%-%.?%d") and (joined[#joined] or ""):find("^%-%-[^=]+$") then
			joined[#joined] = joined[#joined] .. "=" .. text
		else
			joined[#joined + 1] = text
		end
	end
	return joined
end

--- The values of the arguments by name. Misuse is raised as such.
function Recipe:parse(list, command)
	local ok, result = parser_of(self, command):pparse(join_negative(list))
	if ok and result[STRAY][1] then
		ok, result = false, ("unexpected argument '%s'"):format(result[STRAY][1])
	end
	if not ok then
		fault.misuse("%s\nTry '%s --help'.", result, command)
	end
	local values = {}
	for _, arg in ipairs(self.args) do
		local value = result[arg.name]
		if value == nil then
			value = arg.default
			if arg.type == "bytes" and value ~= nil then
				value = bytes.parse(value)
			end
		end
		values[arg.name] = value
	end
	return values
end

return setmetatable(M, { __call = declare })
