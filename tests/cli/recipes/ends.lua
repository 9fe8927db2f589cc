-- Ends in the way that --how names.
local zcc = require "zcc"

local ways = {}

function ways.well(ctx)
	print(zcc.json.encode{ rank = ctx.comm.rank, size = ctx.comm.size })
end

function ways.all_fail()
	error("all of us")
end

function ways.one_fails_in_a_barrier(ctx)
	if ctx.comm.rank == ctx.args.rank then
		error("only one")
	end
	ctx.comm:sum(1)
end

function ways.one_fails_alone(ctx)
	if ctx.comm.rank == ctx.args.rank then
		error("only one")
	end
end

function ways.together(ctx)
	ctx.comm:together(function()
		if ctx.comm.rank == ctx.args.rank then
			error("agreed on")
		end
	end)
end

function ways.engine(ctx)
	ctx.comm:same("the answer", ctx.comm.rank == ctx.args.rank and 1 or 2)
end

function ways.os_exit(ctx)
	ctx.comm:sum(1)
	io.stdout:write("written\n")
	os.exit(ctx.args.status)
end

function ways.os_exit_of_one(ctx)
	if ctx.comm.rank == ctx.args.rank then
		os.exit(ctx.args.status)
	end
	ctx.comm:sum(1)
end

-- Tells a test that a signal may come now.
local function mark(ctx, what)
	if ctx.args.hook then
		assert(io.open(("%s.%s.%d"):format(ctx.args.hook, what, ctx.comm.rank), "w")):close()
	end
end

local function is_there(path)
	local file = io.open(path)
	return file and file:close()
end

function ways.loop(ctx)
	mark(ctx, "up")
	local n = 0
	while true do
		n = n + #tostring({})
	end
end

function ways.wait(ctx)
	mark(ctx, "up")
	if ctx.comm.rank ~= ctx.args.rank then
		ctx.comm:sum(1)
	end
	ways.loop(ctx)
end

function ways.table_error()
	error({ 1 })
end

function ways.no_module()
	zcc.nonsense()
end

function ways.speak_with_a_file_open(ctx)
	local file = assert(io.open(ctx.args.hook, "w"))
	ctx.say("to nobody")
	print("to nobody")
	io.stdout:flush()
	file:write("content")
	file:close()
end

function ways.open_many_files()
	local files = {}
	for i = 1, 200 do
		files[i] = assert(io.open("/dev/null"))
	end
	print(#files)
end

function ways.many_lines()
	for i = 1, 100000 do
		print("line", i)
	end
end

return zcc.recipe{
	name = "ends",
	about = "Ends in the way that --how names.",
	args = {
		{ flag = "--how", type = "string", required = true, about = "The way to end." },
		{ flag = "--rank", type = "int", default = 2, about = "The process that is different." },
		{ flag = "--status", type = "int", default = 0, about = "What os.exit gets." },
		{ flag = "--hook", type = "string", about = "How the files begin that are made at .up., .cleaning. and .clean." },
		{ flag = "--hook-until", type = "string", about = "The failure hook runs until this file is there." },
	},
	run = function(ctx)
		if ctx.args.hook then
			ctx.on_failure(function()
				mark(ctx, "cleaning")
				while ctx.args.hook_until and not is_there(ctx.args.hook_until) do end -- luacheck: ignore 542
				mark(ctx, "clean")
			end)
		end
		ways[ctx.args.how](ctx)
	end,
}
