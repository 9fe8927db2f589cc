-- The devices that specs run on: the host, and the host put off in every way. $ZCC_SEED gives the order of the shuffle
-- again.

local M = {}

local seed = tonumber(os.getenv "ZCC_SEED") or os.time() % 1000003

M.names = { "host", "late:host,lazy", "late:host,eager", ("late:host,shuffle=%d"):format(seed) }

--- What a buffer of the device holds, read on that stream.
function M.fetch(device, stream, buffer)
	local back = device:pinned(buffer.bytes)
	stream:copy(back, buffer)
	stream:wait()
	local text = back:read()
	back:close()
	return text
end

return M
