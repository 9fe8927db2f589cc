-- Makes the checksums in a checkpoint's manifest those of the files as they are now.

local zcc = require "zcc"

return zcc.recipe {
	name = "resum",
	about = "Makes the checksums in a checkpoint's manifest those of the files as they are now.",
	args = { { flag = "--in", type = "string", required = true, about = "folder" } },
	run = function(ctx)
		local folder = ctx.args["in"]
		local path = folder .. "/" .. zcc.checkpoint.MANIFEST
		local manifest = zcc.json.decode_file(path)
		for _, entry in ipairs(manifest.files) do
			local file = zcc.store.open_file(folder .. "/" .. entry.name)
			entry.xxh3 = file:hash()
			file:close()
		end
		zcc.json.encode_file(path, manifest)
	end,
}
