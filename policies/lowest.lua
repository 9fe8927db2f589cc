-- Reads every region from its lowest rank.
return {
	name = "lowest",
	select = function()
		return 1
	end,
}
