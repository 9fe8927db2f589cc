-- Prints the arguments that it got.
local zcc = require "zcc"

return zcc.recipe{
	name = "arguments",
	about = "Prints the arguments that it got.",
	args = {
		{ flag = "--in", type = "file", about = "A file that exists.", value = "FILE" },
		{ flag = "--staging", type = "bytes", default = "8MiB", min = 4096, about = "The staging budget." },
		{ flag = "--count", type = "int", min = 1, max = 9, about = "How many." },
		{ flag = "--decay", type = "number", default = 0.5, about = "How fast." },
		{ flag = "--policy", type = "choice", choices = { "balanced", "lowest" }, default = "balanced",
			about = "Which copy." },
		{ flag = "--dry-run", type = "boolean", about = "Plan only." },
	},
	run = function(ctx)
		if ctx.comm.rank == 0 then
			print(zcc.json.encode(ctx.args))
		end
	end,
}
