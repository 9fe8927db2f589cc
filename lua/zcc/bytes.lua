-- Amounts of bytes as people write them: "4096", "8MiB", "1.5GiB", "10 GB".

local fault = require "zcc.error"

local M = {}

local units = {
	[""] = 1, b = 1,
	k = 2^10, kib = 2^10, m = 2^20, mib = 2^20, g = 2^30, gib = 2^30, t = 2^40, tib = 2^40,
	kb = 1e3, mb = 1e6, gb = 1e9, tb = 1e12,
}

--- The number of bytes in a text, or nil and a message. KiB, MiB, GiB, TiB (K, M, G, T for short) count in 1024, KB,
-- MB, GB, TB in 1000; case does not matter. The amount must come out whole and at most 2^53.
function M.parse(text)
	local digits, unit = tostring(text):match("^%s*(%d+%.?%d*)%s*(%a*)%s*$")
	local factor = digits and units[unit:lower()]
	if not factor then
		return nil, ("%q is no amount of bytes (as 4096, 8MiB or 1.5GiB)"):format(tostring(text))
	end
	local bytes = tonumber(digits) * factor
	if bytes % 1 ~= 0 then
		return nil, ("%q is %s bytes, not a whole number"):format(text, bytes)
	end
	if bytes > 2^53 then
		return nil, ("%q is more than 2^53 bytes"):format(text)
	end
	return bytes
end

local names = { "B", "KiB", "MiB", "GiB", "TiB" }

--- "8 MiB", "1.50 GiB": the largest unit that leaves at least 1, two places where it does not come out even.
function M.format(bytes)
	if type(bytes) ~= "number" then
		fault.raise("ZCC_EINVAL", "bytes.format takes a number, found %s", type(bytes))
	end
	local unit, value = 1, math.abs(bytes)
	while value >= 1024 and names[unit + 1] do
		unit, value = unit + 1, value / 1024
	end
	return ("%s%s %s"):format(bytes < 0 and "-" or "", (value % 1 == 0 and "%d" or "%.2f"):format(value), names[unit])
end

return M
