-- recipes/ema.lua from outside: its report and what it saves, on the host and on devices.

local program = assert(os.getenv "ZCCRUN")
local launcher = assert(os.getenv "MPIRUN")

package.path = "tests/cli/?.lua;" .. package.path

local outside = require "outside"
local shell, slurp = outside.shell, outside.slurp

-- Runs the recipe; the text of its report, and its output.
local function ema(arguments, before)
	local path = os.tmpname()
	local status, out, err = shell(("%s %s recipes/ema.lua %s --report %s"):format(before or "", program, arguments, path))
	assert.are.equal(0, status, err)
	local text = slurp(path)
	os.remove(path)
	return text, out
end

local function value(text, key)
	return text:match('"' .. key .. '": "?([^,"\n]+)')
end

describe("recipes/ema.lua", function()
	for _, where in ipairs { "--place host", "--place device", "--place device --device late:host,lazy",
		"--place device --device late:host,eager", "--place device --device late:host,shuffle=5" } do
		it("averages_and_resumes " .. where, function()
			local text, out = ema(where .. " --elems 100003 --interval 2 --threads 2")
			assert.are.equal("ema", value(text, "recipe"))
			assert.are.equal("true", value(text, "resumes"))
			assert.are.equal("100003", value(text, "elems"))
			assert.are.equal(tonumber(value(text, "calls")), 2 * tonumber(value(text, "updates")))
			assert.is_truthy(out:find("the same bits", 1, true))
		end)
	end

	it("every_parameter_of_a_model_has_its_average_cut_over_the_ranks", function()
		local text = ema("--shapes demo --dp 64 --dtype f32", launcher .. " --oversubscribe -n 2")
		assert.are.equal("69", value(text, "buffers"))
		assert.is_true(tonumber(value(text, "elems")) >= 31464704 / 64)
	end)

	it("saves_a_file_that_holds_averages_and_counters", function()
		local path = os.tmpname()
		os.remove(path)
		ema("--elems 1000 --out " .. path)
		local text = slurp(path)
		os.remove(path)
		assert.is_truthy(text:find('"w":{"dtype":"F32","shape":[1000]', 1, true))
		assert.is_truthy(text:find('"zcc.ema.counters":{"dtype":"I64","shape":[2]', 1, true))
	end)

	it("what_is_saved_reshards_like_any_checkpoint_and_every_rank_takes_it_up", function()
		local folder = os.tmpname()
		os.remove(folder)
		assert.are.equal(0, (shell("mkdir " .. folder)))
		local function run(recipe, ...)
			local status, out, err = shell(("%s %s"):format(program, recipe:format(...)))
			assert.are.equal(0, status, err)
			return out
		end
		run("recipes/ema.lua --shapes demo --interval 3 --out %s/saved.safetensors", folder)
		local counted = run("tests/cli/recipes/take_up.lua --in %s/saved.safetensors", folder):match("%d+ calls.*")
		run("recipes/reshard.lua --in %s/saved.safetensors --out %s/cut --to pp=2,dp=2,zero=3 --verify", folder, folder)
		for rank = 0, 3 do
			local out = run("tests/cli/recipes/take_up.lua --in %s/cut/rank-%05d-of-00004.safetensors", folder, rank)
			assert.are.equal(counted, out:match("%d+ calls.*"))
		end
		run("recipes/reshard.lua --in %s/cut --out %s/whole --to full", folder, folder)
		run("recipes/compare.lua --in %s/saved.safetensors --with %s/whole", folder, folder)
		shell("rm -r " .. folder)
	end)

	it("a_file_that_is_there_is_kept_and_found_before_the_work", function()
		local path = os.tmpname()
		local status, _, err = shell(("%s recipes/ema.lua --elems 1000 --out %s"):format(program, path))
		os.remove(path)
		assert.are.equal(2, status)
		assert.is_truthy(err:find(path .. " is there already; remove it or name another file", 1, true), err)
	end)

	it("a_device_that_one_process_misnames_ends_all_without_an_abort", function()
		local run = program .. " recipes/ema.lua --elems 1000"
		local status, _, err = shell(("%s -n 1 %s : -n 1 env ZCC_DEVICE=nothing %s"):format(launcher, run, run))
		assert.are.equal(2, status, err)
		assert.is_truthy(err:find('$ZCC_DEVICE: "nothing" is no device', 1, true), err)
		assert.is_nil(err:find("MPI_ABORT", 1, true), err)
	end)

	it("misuse_ends_with_status_2", function()
		for _, arguments in ipairs { "--decay 1", "--interval 0", "--interval 2147483648",
			"--threads 257", "--elems 5 --shapes demo", "--dtype f16" } do
			local status, _, err = shell(("%s recipes/ema.lua %s"):format(program, arguments))
			assert.are.equal(2, status, arguments)
			assert.is_truthy(err:find(arguments:match("^%-%-%a+"), 1, true), err)
		end
	end)
end)
