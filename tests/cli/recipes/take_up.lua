-- Takes up the averages in a file, and prints what was counted.
local zcc = require "zcc"

return zcc.recipe{
	name = "take_up",
	about = "Takes up the averages in a file, and prints what was counted.",
	args = { { flag = "--in", type = "file", required = true, about = "What an EMA saved, or a rank's file of it." } },
	run = function(ctx)
		local path = ctx.args["in"]
		local ema = zcc.ema.create{ device = zcc.device.open("host") }
		local group, count = ema:group(0.5), 0
		for _, tensor in ipairs(zcc.store.open_safetensors(path):tensors()) do
			if tensor.name ~= zcc.ema.COUNTERS then
				local average, param = zcc.store.buffer(tensor.bytes), zcc.store.buffer(tensor.bytes)
				ema:add{ name = tensor.name, group = group, shape = tensor.shape, ema = average, param = param }
				count = count + 1
			end
		end
		ema:load(path)
		local calls, updates = ema:counters()
		print(("%d averages, %d calls, %d updates"):format(count, calls, updates))
	end,
}
