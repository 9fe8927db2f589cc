-- Compares two checkpoints element by element, whatever layouts they are stored in, padding and replicas included.

local zcc = require "zcc"

-- A checkpoint with the layout that it says of itself; what is unsharded needs no rules.
local function open(path)
	local checkpoint = zcc.checkpoint.open(path)
	local description = checkpoint.description or zcc.placement.resolve("full", checkpoint.tensors, { rules = {} })
	return checkpoint, zcc.affine.Layout.from_description(description)
end

local function refuse_lacking(here, here_name, there, there_name)
	local names = {}
	for _, param in ipairs(here:params()) do
		if not there:find(param.name) then
			names[#names + 1] = param.name
		end
	end
	if #names > 0 then
		zcc.error.raise("ZCC_EVERIFY", "%s lacks %d of the %d parameters in %s:\n%s", there_name, #names, #here:params(),
			here_name, zcc.words.listing(names, 10))
	end
end

-- Element by element only what has the same names and shapes can be compared.
local function refuse_other_models(a, source, target)
	refuse_lacking(source, a["in"], target, a.with)
	refuse_lacking(target, a.with, source, a["in"])
	for _, param in ipairs(source:params()) do
		local mine = zcc.words.shape(param.shape)
		local other = zcc.words.shape(target:params()[target:find(param.name)].shape)
		if mine ~= other then
			zcc.error.raise("ZCC_EVERIFY", "parameter %s is %s in %s, %s in %s", param.name, mine, a["in"], other, a.with)
		end
	end
end

return zcc.recipe {
	name = "compare",
	about = "Compares two checkpoints element by element, whatever layouts they are stored in. Status 1: they differ.",
	args = {
		{ flag = "--in", type = "string", value = "path", required = true,
			about = "a checkpoint, as recipes/reshard.lua reads it" },
		{ flag = "--with", type = "string", value = "path", required = true,
			about = "another, in any layout" },
	},
	run = function(ctx)
		local a, comm = ctx.args, ctx.comm
		local source, source_layout = open(a["in"])
		local target, target_layout = open(a.with)
		refuse_other_models(a, source_layout, target_layout)
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
