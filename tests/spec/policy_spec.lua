local affine = require "zcc.affine"
local policies = require "zcc.policy"
local rules = require "zcc.rules"
local sandbox = require "zcc.sandbox"
local shapes = require "zcc.shapes"

local function param(name, ...)
	return { name = name, dtype = "BF16", shape = { ... } }
end

local ROWS = rules.check{ rules = { { "^w", cut = 0 }, { "", replicate = true } } }

-- Two parameters from four ranks (dp=2, tp=2) to four others; every region of w has two holders, every one of n four.
local function make_plan()
	local params = { param("w", 8, 6), param("n", 5) }
	return affine.Plan.create(affine.Layout.build("tp=4", params, ROWS), affine.Layout.build("dp=2,tp=2", params, ROWS))
end

local function refusal(...)
	local ok, object = pcall(...)
	assert.is_false(ok)
	return object.message, object.status
end

-- Runs a policy file of that text over the plan.
local function choose(text)
	local path = os.tmpname() .. ".lua"
	local file = assert(io.open(path, "w"))
	file:write(text)
	file:close()
	local ok, object = pcall(function() make_plan():choose(path) end)
	os.remove(path)
	if ok then return nil end
	return object.message, path, object.status
end

describe("policies", function()
	it("see_every_region_with_its_holders_and_the_load_so_far", function()
		local seen = {}
		make_plan():choose({ name = "recorder", select = function(region, holders, load)
			seen[#seen + 1] = {
				region.param, region.target, region.elems, region.bytes, table.concat(region.shape, "x"),
				table.concat(region.origin, ","), table.concat(holders, " "),
					("%d %d %d %d"):format(load[0], load[1], load[2], load[3]),
			}
			return #holders
		end })
		-- Ranks 0 and 2 hold rows 0 to 3 of w, ranks 1 and 3 the rest. What a rank copies for itself is no load.
		assert.are.same({
			{ "w", 0, 12, 24, "2x6", "0,0", "0 2", "0 0 0 0" },
			{ "w", 1, 12, 24, "2x6", "2,0", "0 2", "0 0 24 0" },
			{ "w", 2, 12, 24, "2x6", "4,0", "1 3", "0 0 48 0" },
			{ "w", 3, 12, 24, "2x6", "6,0", "1 3", "0 0 48 24" },
			{ "n", 0, 5, 10, "5", "0", "0 1 2 3", "0 0 48 24" },
			{ "n", 1, 5, 10, "5", "0", "0 1 2 3", "0 0 48 34" },
			{ "n", 2, 5, 10, "5", "0", "0 1 2 3", "0 0 48 44" },
			{ "n", 3, 5, 10, "5", "0", "0 1 2 3", "0 0 48 54" },
		}, seen)
	end)

	it("lowest_takes_the_first_holder", function()
		assert.are.equal(1, policies.of("lowest").select({ target = 5 }, { 3, 5 }, { [3] = 9, [5] = 0 }))
	end)

	it("balanced_prefers_its_own_rank_then_the_least_load_then_the_lowest_rank", function()
		local select = policies.of("balanced").select
		assert.are.equal(2, select({ target = 5 }, { 3, 5 }, { [3] = 0, [5] = 100 }))
		assert.are.equal(3, select({ target = 9 }, { 0, 2, 4 }, { [0] = 7, [2] = 8, [4] = 6 }))
		assert.are.equal(2, select({ target = 9 }, { 0, 2, 4 }, { [0] = 7, [2] = 6, [4] = 6 }))
		assert.are.equal(1, select({ target = 9 }, { 0, 2, 4 }, { [0] = 0, [2] = 0, [4] = 0 }))
	end)

	it("are_found_by_name_file_or_as_a_table", function()
		assert.are.equal("balanced", policies.of("balanced").name)
		assert.are.equal("lowest", policies.of("policies/lowest.lua").name)
		assert.are.equal("mine", policies.of({ name = "mine", select = function() return 1 end }).name)
		assert.is_nil(choose("return { select = function(_, holders) return #holders end }"))
		local message, status = refusal(policies.of, "balancd")
		assert.are.equal("ZCC_EINVAL", status)
		assert.is_truthy(message:find("'balancd'", 1, true) and message:find("did you mean 'balanced'", 1, true))
		assert.are.equal("ZCC_EINVAL", (select(2, refusal(policies.of, 7))))
		assert.is_truthy(refusal(policies.of, { name = "mine" }):find("select", 1, true))
	end)

	it("are_as_the_readme_shows", function()
		local readme = assert(io.open("README.md")):read("*a")
		local text = assert(readme:match("```lua\n(return {\n\tname = \"nearest\".-)```"))
		assert.are.equal(2, sandbox.run(text, "README.md", "policy").select({ target = 6 }, { 1, 5, 9 }, {}))
		assert.is_nil(choose(text))
	end)

	it("that_raise_name_their_line_the_parameter_and_the_region", function()
		local message, path, status = choose("return {\n name = 'mine',\n select = function(region)\n"
			.. "  if region.param == 'n' then return region.missing.field end\n  return 1\n end }")
		assert.are.equal("ZCC_EPOLICY", status)
		for _, part in ipairs({ "policy mine", path .. ":4: attempt to index", "parameter 'n'", "target rank 0", "[5]" }) do
			assert.is_truthy(message:find(part, 1, true), message)
		end
		message, path = choose("local function deep() error('no way') end\nreturn { select = function() deep() end }")
		assert.is_truthy(message:find(path .. ":1: no way (parameter 'w', target rank 0", 1, true), message)
		message, path = choose("return { select = function()\n error({}) end }")
		assert.is_truthy(message:find(path .. ":2: table", 1, true), message)
	end)

	it("that_choose_no_holder_are_refused_with_the_choices", function()
		for _, bad in ipairs({ "0", "3", "-1", "1.5", "0/0", "1/0", "'1'", "nil", "{}", "true", "2^40" }) do
			local message, path, status = choose(("return {\n select = function() return %s end }"):format(bad))
			assert.are.equal("ZCC_EPOLICY", status, bad)
			for _, part in ipairs({ path .. ":2", "parameter 'w'", "target rank 0", "2 holders (ranks 0, 2)", "1 to 2" }) do
				assert.is_truthy(message:find(part, 1, true), message)
			end
		end
	end)

	it("cannot_reach_files_clock_or_chance", function()
		for _, text in ipairs({ "io.open('x')", "os.time()", "math.random()", "require('ffi')" }) do
			local message, path = choose(("return { select = function() return %s and 1 end }"):format(text))
			assert.is_truthy(message:find(path .. ":1: attempt to", 1, true), message)
		end
	end)

	it("that_spoil_the_tables_they_are_given_change_no_other_region", function()
		local seen = {}
		make_plan():choose({ select = function(region, holders)
			seen[#seen + 1] = region.param .. table.concat(region.shape, "x") .. "/" .. table.concat(holders, " ")
			for i = 1, #holders do holders[i] = 77 end
			region.param, region.shape[1] = "spoilt", 99
			return 1
		end })
		assert.are.same({ "w2x6/0 2", "w2x6/0 2", "w2x6/1 3", "w2x6/1 3", "n5/0 1 2 3", "n5/0 1 2 3",
			"n5/0 1 2 3", "n5/0 1 2 3" }, seen)
	end)

	-- Not the time but its cause: a loop that the compiler cannot take, or that makes tables, is what would be slow.
	it("run_compiled_and_make_no_garbage", function()
		local document = shapes.generate("qwen3-8b")
		local family, options = rules.family("qwen3"), { config = document.config }
		local source = affine.Layout.build("dp=4,tp=2,zero=3", document.tensors, family, options)
		local target = affine.Layout.build("dp=2,tp=4", document.tensors, family, options)
		local plan = affine.Plan.create(target, source)
		-- The handler may touch nothing but its upvalues: globals go through a metatable here, which may not run inside it.
		local jit, funcinfo = require "jit", require("jit.util").funcinfo
		local traces, own = 0, debug.getinfo(policies.choose, "S").source
		local function watch(what, _, func)
			if what == "stop" and func and funcinfo(func).source == own then traces = traces + 1 end
		end
		assert.is_true(jit.status())
		-- The compiler decides by chance when to try again what failed once, so the best of some fresh starts counts.
		local most, least = 0, math.huge
		for _ = 1, 12 do
			package.loaded["zcc.policy"] = nil
			local fresh = require "zcc.policy"
			local balanced = fresh.of("balanced")
			traces = 0
			jit.flush()
			jit.attach(watch, "trace")
			fresh.choose(balanced, plan:pointer(), target:params(), source:ranks())
			jit.attach(watch)
			most = math.max(most, traces)
			collectgarbage()
			collectgarbage("stop")
			local before = collectgarbage("count")
			fresh.choose(balanced, plan:pointer(), target:params(), source:ranks())
			least = math.min(least, collectgarbage("count") - before)
			collectgarbage("restart")
		end
		package.loaded["zcc.policy"] = policies
		assert.is_true(most > 0, "no trace of the loop")
		-- Names, loads and lists of holders once; nothing for each of the 9872 regions.
		assert.is_true(least < 100, ("%.0f KiB"):format(least))
	end)
end)
