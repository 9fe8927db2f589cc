-- What the specs of programs seen from outside share.

local M = {}

--- The bytes of a file.
function M.slurp(path)
	local file = assert(io.open(path, "rb"))
	local text = file:read("*a")
	file:close()
	return text
end

--- Runs a shell command; returns its status, stdout and stderr.
function M.shell(command)
	local out, err = os.tmpname(), os.tmpname()
	local pipe = io.popen(("( %s ) >%s 2>%s </dev/null; echo $?"):format(command, out, err))
	local status = tonumber(pipe:read("*a"))
	pipe:close()
	local output, errors = M.slurp(out), M.slurp(err)
	os.remove(out)
	os.remove(err)
	return status, output, errors
end

return M
