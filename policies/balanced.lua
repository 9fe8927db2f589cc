-- Reads a region from the copy on the target's own rank where there is one, else from the holder that has the
-- fewest bytes to send so far; the lowest rank where several have the same.
return {
	name = "balanced",
	select = function(region, holders, load)
		local best = 1
		for i = 1, #holders do
			if holders[i] == region.target then
				return i
			end
			if load[holders[i]] < load[holders[best]] then
				best = i
			end
		end
		return best
	end,
}
