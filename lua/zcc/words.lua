-- Pieces of messages: suggestions for misspelt words, numbers without exponent, short forms of long texts.
local M = {}

-- Edits (insert, delete, replace, swap neighbours) that turn one word into the other.
local function distance(a, b)
	local rows = { [0] = {} }
	for j = 0, #b do rows[0][j] = j end
	for i = 1, #a do
		local row = { [0] = i }
		rows[i] = row
		for j = 1, #b do
			local same = a:byte(i) == b:byte(j)
			row[j] = math.min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (same and 0 or 1))
			if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
				row[j] = math.min(row[j], rows[i - 2][j - 2] + 1)
			end
		end
	end
	return rows[#a][#b]
end

--- The known word that `word` was probably meant to be, or nil.
function M.closest(word, known)
	if #word > 64 then return nil end
	local best, least = nil, math.max(1, math.floor(#word / 2)) + 1
	for _, candidate in ipairs(known) do
		local edits = distance(word:lower(), candidate:lower())
		if edits < least then best, least = candidate, edits end
	end
	return best
end

--- " (did you mean 'x'?)", or nothing.
function M.suggestion(word, known)
	local closest = M.closest(word, known)
	return closest and (" (did you mean '%s'?)"):format(closest) or ""
end

--- Whole numbers in full up to 2^63, others as Lua writes them.
function M.number(value)
	if value == math.floor(value) and math.abs(value) < 2 ^ 63 then return ("%.0f"):format(value) end
	return tostring(value)
end

function M.shorten(value, length)
	if #value <= length then return value end
	return value:sub(1, length - 3) .. "…"
end

--- "dp=4,tp=2"
function M.axes(axes)
	local words = {}
	for index, axis in ipairs(axes) do words[index] = axis[1] .. "=" .. M.number(axis[2]) end
	return table.concat(words, ",")
end

--- "[4096, 128]"
function M.shape(shape)
	local words = {}
	for index, extent in ipairs(shape) do words[index] = M.number(extent) end
	return "[" .. table.concat(words, ", ") .. "]"
end

--- The first `limit` of a list, one per line, and how many were left out.
function M.listing(list, limit)
	local lines = {}
	for index = 1, math.min(#list, limit) do lines[index] = "  " .. list[index] end
	if #list > limit then lines[#lines + 1] = ("  … and %d more"):format(#list - limit) end
	return table.concat(lines, "\n")
end

return M
