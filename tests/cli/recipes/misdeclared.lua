local zcc = require "zcc"

return zcc.recipe{
	name = "misdeclared",
	about = "Declares an argument of no known type.",
	args = { { flag = "--in", type = "path", about = "A path." } },
	run = function() end,
}
