-- The error object: one fault, whoever saw it first, as one readable line.
--
-- Fields: status ("ZCC_EMAP"), message, operation, code (errno or the like, 0 where there is none), process (number
-- of the process that saw it first, nil for this one), c_file and c_line (where in the engine), place
-- ("recipe.lua:12", where in Lua), misuse (true where the user of the program, not the program, is to blame).

local M = {}

-- The file of the recipe that runs, and whether it is one that comes with zcc; set by zcc.main.
M.script, M.script_is_ours = nil, false

local Error = {}
Error.__index = Error

-- Frames of files in this folder are the library's own and say nothing to the user.
local library = debug.getinfo(1, "S").source:match("^(@.*)error%.lua$")

--- "file:line" of the innermost Lua frame outside the library. A tail call (`return zcc.recipe{ … }`) leaves no
-- frame: then the recipe's file, and without one the innermost frame. A recipe that comes with zcc is the library's
-- own: its user did not write it, and a line in it would only look like a fault of the program (--debug shows it).
function M.place()
	if M.script_is_ours then
		return nil
	end
	local fallback = M.script
	for level = 2, 200 do
		local info = debug.getinfo(level, "Sl")
		if not info then
			break
		end
		if info.what ~= "C" and info.currentline > 0 then
			local place = ("%s:%d"):format(info.source:gsub("^[@=]", ""), info.currentline)
			if info.source:sub(1, #library) ~= library then
				return place
			end
			fallback = fallback or place
		end
	end
	return fallback
end

--- An error object with the given fields; does not raise it.
function M.new(fields)
	local object = {}
	for key, value in pairs(fields) do
		object[key] = value
	end
	object.status = object.status or "ZCC_EINVAL"
	object.code = object.code or 0
	return setmetatable(object, Error)
end

--- Whether a value is an error object.
function M.is(value)
	return getmetatable(value) == Error
end

--- Raises a fault that Lua code saw: status ("ZCC_EINVAL"), then a format and its values. The place is the caller's.
function M.raise(status, format, ...)
	error(M.new{ status = status, message = format:format(...), place = M.place() }, 0)
end

--- Raises misuse of the program: bad arguments, a missing recipe. The program ends with status 2.
function M.misuse(format, ...)
	error(M.new{ status = "ZCC_EINVAL", message = format:format(...), misuse = true }, 0)
end

--- Whatever error() was given, as an error object; a text keeps its own "file:line: ".
function M.from(value)
	if M.is(value) then
		return value
	end
	if type(value) ~= "string" then
		value = ("an error that is no text: %s"):format(tostring(value))
	end
	return M.new{ status = "ZCC_EINVAL", message = value, is_text = true }
end

--- recipe.lua:12: message (ZCC_EMAP, layout.c:88, process 3)
function Error:__tostring()
	local text = self.message
	if self.place then
		text = self.place .. ": " .. text
	end
	if self.misuse or self.is_text and not self.process then
		return text
	end
	local origin = { self.status }
	if self.c_file then
		origin[#origin + 1] = ("%s:%d"):format(self.c_file, self.c_line)
	end
	if self.process then
		origin[#origin + 1] = ("process %d"):format(self.process)
	end
	return ("%s (%s)"):format(text, table.concat(origin, ", "))
end

return M
