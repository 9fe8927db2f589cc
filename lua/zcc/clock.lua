-- Time, for reports.

local zffi = require "zcc.ffi"

local M = {}

--- Seconds of a clock that never goes back; only differences mean anything.
function M.seconds()
	return tonumber(zffi.lib.zcc_clock_ns()) / 1e9
end

--- A function that gives the seconds since this call.
function M.stopwatch()
	local start = M.seconds()
	return function()
		return M.seconds() - start
	end
end

return M
