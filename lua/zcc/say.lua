-- Messages for people, on stderr. Process 0 speaks; a process that has something of its own to say says so with its
-- number. Progress is one line that is redrawn on a terminal, and a plain line now and then elsewhere.

local zffi = require "zcc.ffi"

local M = {}

local Say = {}
Say.__index = Say

-- Seconds between two lines of progress.
local REDRAW, PLAIN = 0.1, 10

local function now()
	return tonumber(zffi.lib.zcc_clock_ns()) / 1e9
end

--- A speaker for the process with that rank of `size`. Options, for tests: write (a function), terminal (true or
-- false), clock.
function M.new(rank, size, options)
	options = options or {}
	local terminal = options.terminal
	if terminal == nil then
		terminal = package.loaded["zcc.program"] ~= nil and package.loaded["zcc.program"].stderr_is_terminal or false
	end
	return setmetatable({
		rank = rank, size = size, terminal = terminal,
		write = options.write or function(text) io.stderr:write(text) end,
		clock = options.clock or now,
		shown = {}, drawn = false,
	}, Say)
end

--- Takes a line of progress off the terminal.
function Say:clear()
	if self.drawn then
		self.write("\r\27[K")
		self.drawn = false
	end
end

function Say:line(text)
	self:clear()
	self.write(text .. "\n")
end

--- say("moved %d bytes", n): process 0 speaks, the others are silent.
function Say:__call(format, ...)
	if self.rank == 0 then
		self:line(format:format(...))
	end
end

--- For what only this process knows.
function Say:own(format, ...)
	local text = format:format(...)
	self:line(self.size > 1 and ("process %d: %s"):format(self.rank, text) or text)
end

--- Reports that `done` of `total` is behind us (any unit); call it as often as you like. done = total ends the line.
--- What is over before the first line is due is not mentioned.
function Say:progress(what, done, total)
	if self.rank ~= 0 then
		return
	end
	local time, shown = self.clock(), self.shown[what]
	local finished = done >= total
	if not shown then
		shown = { start = time, at = time }
		self.shown[what] = shown
	end
	if finished then
		self.shown[what] = nil
	end
	if finished and not shown.mentioned or not finished and time - shown.at < (self.terminal and REDRAW or PLAIN) then
		return
	end
	shown.at, shown.mentioned = time, true
	local text = ("%s %3.0f%%, %.1f s"):format(what, total > 0 and 100 * done / total or 100, time - shown.start)
	if self.terminal and not finished then
		self.write("\r\27[K" .. text)
		self.drawn = true
	else
		self:line(text)
	end
end

return M
