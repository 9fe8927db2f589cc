-- How many threads the engine's loops over memory take, the calling one included.

local zffi = require "zcc.ffi"

local lib = zffi.lib

local M = {}

--- At first $ZCC_THREADS, else the processors this process may run on.
function M.get()
	return lib.zcc_threads_get()
end

--- 1 = the calling thread alone.
function M.set(threads)
	local err = zffi.new_error()
	zffi.check(lib.zcc_threads_set(zffi.int32(threads, "threads"), err), err)
end

return M
