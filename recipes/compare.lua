-- Compares two checkpoints element by element, whatever layouts they are stored in, padding and replicas included.

local zcc = require "zcc"

-- A checkpoint with the layout that it says of itself; what is unsharded needs no rules.
local function open(path)
	local checkpoint = zcc.checkpoint.open(path)
	local description = checkpoint.description or zcc.placement.resolve("full", checkpoint.tensors, { rules = {} })
	return checkpoint, zcc.affine.Layout.from_description(description)
end

return zcc.recipe {
	name = "compare",
	about = "Compares two checkpoints element by element, whatever layouts they are stored in.",
	args = {
		{ flag = "--in", type = "string", value = "path", required = true,
			about = "a checkpoint, as recipes/reshard.lua reads it" },
		{ flag = "--with", type = "string", value = "path", required = true, about = "another" },
	},
	run = function(ctx)
		local a, comm = ctx.args, ctx.comm
		local source, source_layout = open(a["in"])
		local target, target_layout = open(a.with)
		local verify = zcc.transfer.verify(target_layout, source_layout)
		comm:together(function()
			source:each_shard_file(source_layout, function(...) verify:bind_file("source", ...) end)
			target:each_shard_file(target_layout, function(...) verify:bind_file("target", ...) end)
		end)
		local bytes = comm:sum(verify:run(comm))
		if comm.rank == 0 then
			print(("%s and %s hold the same %d parameters: %s compared, no difference"):format(a["in"], a.with,
				#target_layout:params(), zcc.bytes.format(bytes)))
		end
	end,
}
