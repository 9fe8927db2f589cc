-- Moves a checkpoint from one parallel layout into another, shard to shard. No process ever holds a whole
-- parameter that it does not store. `zccrun recipes/reshard.lua --help` lists the arguments.

local zcc = require "zcc"
local misuse, stopwatch = zcc.error.misuse, zcc.clock.stopwatch

-- Raise where a value on the command line is no good, so that it is misuse of its flag.
local check_layout, check_policy = zcc.layout_string.of, zcc.policy.of
local function check_family(name)
	if name ~= "auto" then
		zcc.rules.family(name)
	end
end

local args = {
	{ flag = "--in", type = "string", value = "path",
		about = "safetensors file, Hugging Face folder, or a folder that this recipe wrote" },
	{ flag = "--from", type = "string", value = "layout", check = check_layout,
		about = "layout of the input, such as dp=4,tp=2,zero=3 (default: what its manifest says, else full)" },
	{ flag = "--to", type = "string", value = "layout", required = true, check = check_layout,
		about = "layout of the output, such as dp=2,tp=4; full is an unsharded checkpoint" },
	{ flag = "--out", type = "string", value = "folder", about = "folder to write" },
	{ flag = "--force", type = "boolean", about = "replace an output folder that is not empty" },
	{ flag = "--family", type = "string", default = "auto", value = "name", check = check_family,
		about = "auto, or " .. table.concat(zcc.rules.families, ", ") },
	{ flag = "--rules", type = "file", about = "Lua file with rules for a model that no family knows" },
	{ flag = "--default", type = "choice", choices = { "replicate" },
		about = "keep parameters that no rule matches whole on every rank (default: they are an error)" },
	{ flag = "--config", type = "file", about = "config.json, where the input has none" },
	{ flag = "--policy", type = "string", default = "balanced", value = "name", check = check_policy,
		about = "which replica to read: balanced, lowest, or a Lua file" },
	{ flag = "--staging", type = "bytes", default = "8MiB", min = 4096, about = "staging memory per peer" },
	{ flag = "--verify", type = "boolean",
		about = "compare what was written with the input, bit by bit, before it is published" },
	{ flag = "--dry-run", type = "boolean", about = "plan and report, touch no data" },
	{ flag = "--shapes", type = "file", about = "shapes document that stands in for --in in a dry run" },
	{ flag = "--emit-source-map", type = "string", value = "file", about = "write the source's map document" },
	{ flag = "--emit-target-map", type = "string", value = "file", about = "write the target's map document" },
	{ flag = "--emit-plan", type = "string", value = "file", about = "write the plan document" },
	{ flag = "--report", type = "string", value = "file", about = "write the report as JSON" },
}

-- A layout string in the one form that all its spellings share.
local function canonical(layout)
	return zcc.layout_string.format(zcc.layout_string.of(layout))
end

-- What to reshard: the input's tensors and configuration, without touching its data.
local function open_input(a)
	if a.shapes then
		if not a.dry_run then
			misuse("--shapes needs --dry-run: it stands in for a checkpoint's shapes, not for its bytes")
		end
		local shapes = zcc.shapes.read(a.shapes)
		return { tensors = shapes.tensors, config = shapes.config, layout = a.from or "full", ignored = {} }
	end
	if not a["in"] then
		misuse("--in is missing%s", a.dry_run and " (or --shapes)" or "")
	end
	local input = zcc.checkpoint.open(a["in"])
	if input.manifest then
		if a.from and canonical(a.from) ~= input.layout then
			misuse("--from %s: %s says that its layout is %s", a.from, a["in"], input.layout)
		end
	elseif a.from and a.dry_run then
		input.layout = a.from
	elseif a.from and a.from ~= "full" then
		misuse("--from %s: %s is an unsharded checkpoint, its layout is full", a.from, a["in"])
	end
	return input
end

-- The rules for the target's cuts and the reason for them in words. A target without cuts asks nothing of them, unless
-- the source's layout has to be made up as well.
local function choose_rules(a, input, config)
	local asked = a.rules or a.family ~= "auto"
	if not asked and canonical(a.to) == "full" and (input.description or canonical(input.layout) == "full") then
		return { rules = {} }, "no rules needed"
	end
	return zcc.rules.choose(a.family, a.rules, input.tensors, config)
end

-- Both layouts and the plan between them.
local function make_plan(ctx, input, seconds)
	local a = ctx.args
	local config = a.config and zcc.json.decode_object_file(a.config) or input.config
	local rules, why = choose_rules(a, input, config)
	local options = { config = config, default = a.default }
	local time = stopwatch()
	local target_description = zcc.placement.resolve(a.to, input.tensors, rules, options)
	local source_description = input.description or zcc.placement.resolve(input.layout, input.tensors, rules, options)
	local source = zcc.affine.Layout.from_description(source_description)
	local target = zcc.affine.Layout.from_description(target_description)
	seconds.maps = time()
	ctx.say("%d parameters, %s", #input.tensors, why)
	time = stopwatch()
	local policy = zcc.policy.of(a.policy)
	local plan = zcc.affine.plan(target, source, policy)
	seconds.plan = time()
	return { source = source, target = target, plan = plan, policy = policy, description = target_description }
end

local function emit(ctx, made)
	local a = ctx.args
	ctx.comm:together(function()
		if ctx.comm.rank > 0 then
			return
		end
		for _, document in ipairs { { a.emit_source_map, made.source }, { a.emit_target_map, made.target },
			{ a.emit_plan, made.plan } } do
			if document[1] then
				zcc.textfile.write(document[1], document[2]:document() .. "\n")
			end
		end
	end)
end

-- Loads, moves, writes, verifies and publishes; returns sums over all processes and whether it was verified.
local function move(ctx, input, made, seconds)
	local a, comm = ctx.args, ctx.comm
	local source_at = zcc.transfer.spread(made.source:ranks(), comm)
	local target_at = zcc.transfer.spread(made.target:ranks(), comm)
	local to_full = canonical(a.to) == "full"
	local function progress(what)
		return function(done, total) ctx.say:progress(what, done, total) end
	end
	if a.verify then
		comm:together(function()
			input:check_sums(function(i) return i % comm.size == comm.rank end, progress("checksums of the input"))
		end)
	end
	local output = zcc.checkpoint_writer.begin { path = a.out, replace = a.force, comm = comm, layout = made.target,
		full = to_full, placement = target_at, metadata = input.metadata,
		progress = function(...) ctx.say:progress(...) end }
	ctx.on_failure(function()
		if output:discard() then
			ctx.say("%s was complete before that, and stays", a.out)
		end
	end)

	local time = stopwatch()
	local transfer = zcc.transfer.create(made.plan, comm, { staging_bytes = a.staging })
	transfer:place("source", made.source:ranks(), input.sharded and source_at or "file")
	transfer:place("target", made.target:ranks(), to_full and "file" or target_at)
	if input.sharded then
		ctx.say("loading the files of %d ranks", #made.source:ranks())
	end
	comm:together(function() input:bind(transfer, made.source, source_at, progress("loading")) end)
	output:bind(transfer)
	seconds.load = time()
	local stats = made.plan:stats()
	ctx.say("moving %s in %d segments", zcc.bytes.format(stats.sent_bytes + stats.local_bytes), stats.segments)
	local moved = transfer:run(progress("moving"))
	transfer:close()
	seconds.transfer = moved.ns / 1e9
	time = stopwatch()
	if not to_full then
		ctx.say("writing the files of %d ranks", #made.target:ranks())
	end
	output:write()
	output:close_files()
	local verify_seconds
	output:publish(zcc.checkpoint.manifest(made.description, input), input.side_folder, a.verify and function()
		ctx.say("comparing what was written with the input")
		local verify_time = stopwatch()
		local verify = zcc.transfer.verify(made.target, made.source)
		comm:together(function()
			input:each_shard_file(made.source, function(...) verify:bind_file("source", ...) end)
			output:each_shard_file(function(...) verify:bind_file("target", ...) end)
		end)
		verify:run(comm, progress("comparing"))
		verify:close()
		verify_seconds = verify_time()
	end)
	seconds.write, seconds.verify = time() - (verify_seconds or 0), verify_seconds
	local sums = comm:sum { input.read_bytes + moved.read_bytes, output.written_bytes + moved.written_bytes }
	return { read = sums[1], written = sums[2], staging_peak = comm:max(moved.staging_peak_bytes), verified = a.verify }
end

local function report(ctx, made, moved, seconds)
	local stats = made.plan:stats()
	local times = {}
	for _, phase in ipairs { "maps", "plan", "load", "transfer", "write", "verify" } do
		times[#times + 1] = { phase, seconds[phase] }
	end
	local ordered = zcc.json.ordered
	return ordered {
		{ "recipe", "reshard" }, { "version", zcc.version }, { "processes", ctx.comm.size },
		{ "ranks", ordered { { "source", #made.source:ranks() }, { "target", #made.target:ranks() } } },
		{ "params", #made.target:params() },
		{ "pieces", ordered { { "source", made.source:count_pieces() }, { "target", made.target:count_pieces() } } },
		{ "segments", stats.segments }, { "policy", made.policy.name },
		{ "bytes", ordered { { "sent", stats.sent_bytes }, { "local", stats.local_bytes }, { "read", moved.read },
			{ "written", moved.written } } },
		{ "staging_peak_bytes", moved.staging_peak }, { "seconds", ordered(times) }, { "verified", moved.verified },
	}
end

local function summarize(a, input, made, moved, seconds)
	local stats, size = made.plan:stats(), zcc.bytes.format
	print(("%s -> %s: %d parameters, %d segments, policy %s"):format(input.layout, canonical(a.to), #made.target:params(),
		stats.segments, made.policy.name))
	print(("between ranks %s, within ranks %s"):format(size(stats.sent_bytes), size(stats.local_bytes)))
	if a.dry_run then
		-- The memory that the process of that rank needs, if it has no other.
		print(("largest rank %s before, %s after"):format(size(made.source:largest_rank_bytes()),
			size(made.target:largest_rank_bytes())))
		return
	end
	print(("load %.2f s, transfer %.2f s (%s/s), write %.2f s%s, staging peak %s"):format(seconds.load, seconds.transfer,
		size(math.floor((stats.sent_bytes + stats.local_bytes) / seconds.transfer)), seconds.write,
		seconds.verify and (", verify %.2f s"):format(seconds.verify) or "", size(moved.staging_peak)))
	print(("%s: %s written%s"):format(a.out, size(moved.written), moved.verified and ", verified bit by bit" or ""))
end

return zcc.recipe {
	name = "reshard",
	about = "Moves a checkpoint from one parallel layout into another, shard to shard.",
	args = args,
	run = function(ctx)
		local a, seconds = ctx.args, {}
		if not a.out and not a.dry_run then
			misuse("--out is missing (or --dry-run)")
		end
		-- What can be known to fail at the end should not wait until then.
		ctx.comm:together(function()
			if ctx.comm.rank > 0 then
				return
			end
			if not a.dry_run then
				zcc.store.check_vacant(a.out, a.force)
				if a["in"] and zcc.store.is_below(a["in"], a.out) and a.force then
					misuse("--force: %s lies in %s and would go with it", a["in"], a.out)
				end
			end
		end)
		local input = ctx.comm:together(open_input, a)
		for _, name in ipairs(input.ignored) do
			ctx.say("%s/%s is named by no index and ignored", input.folder, name)
		end
		if input.part_of then
			ctx.say("%s is one file of several; the whole checkpoint is %s", a["in"], input.part_of)
		end
		local made = ctx.comm:together(make_plan, ctx, input, seconds)
		emit(ctx, made)
		local moved = { read = 0, written = 0, staging_peak = 0, verified = false }
		if not a.dry_run then
			moved = move(ctx, input, made, seconds)
		end
		if ctx.comm.rank == 0 then
			if a.report then
				zcc.json.encode_file(a.report, report(ctx, made, moved, seconds), { indent = 2 })
			end
			summarize(a, input, made, moved, seconds)
		end
	end,
}
