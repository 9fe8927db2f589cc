-- The version of the engine, as text.

local zffi = require "zcc.ffi"

return zffi.string(zffi.lib.zcc_version())
