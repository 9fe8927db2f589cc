-- recipes/copyback.lua from outside: its report, on the host and on the host put off.

local program = assert(os.getenv "ZCCRUN")
local launcher = assert(os.getenv "MPIRUN")

package.path = "tests/cli/?.lua;lua/?.lua;lua/?/init.lua;" .. package.path

local outside = require "outside"
local shell, slurp = outside.shell, outside.slurp

-- Runs the recipe; its output and the text of its report.
local function copyback(arguments, before)
	local report = os.tmpname()
	local status, out, err = shell(("%s %s recipes/copyback.lua %s --report %s"):format(before or "", program, arguments,
		report))
	assert.are.equal(0, status, err)
	local text = slurp(report)
	os.remove(report)
	return text, out
end

local function number(text, key)
	return tonumber(text:match('"' .. key .. '": ([%d.e+-]+)'))
end

describe("recipes/copyback.lua", function()
	it("reports_paths_bytes_and_times", function()
		local text, out = copyback("--elems 100003 --buffer-elems 1000")
		assert.are.equal("copyback", text:match('"recipe": "(.-)"'))
		assert.are.equal("host", text:match('"device": "(.-)"'))
		assert.are.equal(100003, number(text, "elems"))
		assert.are.equal(20, number(text, "pieces"))
		assert.is_truthy(text:match('"paths": {%s*"staged": 20,%s*"direct": 0%s*}'), text)
		assert.are.equal(2 * 1000 * 2, number(text, "pinned_bytes"))
		assert.is_truthy(text:find('"bitwise": true', 1, true))
		local seconds = text:match('"seconds": ({.-})')
		for _, key in ipairs{ "staged", "direct", "limit" } do
			assert.is_true(number(seconds, key) > 0)
		end
		assert.is_truthy(out:find("the same bits both ways", 1, true), out)
		assert.is_truthy(out:find("of the limit", 1, true), out)
	end)

	it("stages_nothing_without_pinning", function()
		local text, out = copyback("--elems 100003 --pin no")
		assert.is_truthy(text:match('"paths": {%s*"staged": 0,%s*"direct": 20%s*}'), text)
		assert.are.equal(0, number(text, "pinned_bytes"))
		assert.is_truthy(text:find('"bitwise": true', 1, true))
		assert.is_truthy(text:find('"staged": null', 1, true), text)
		assert.is_truthy(out:find("0 B pinned", 1, true), out)
	end)

	it("copies_only_the_share_that_lives_on_the_host", function()
		local text = copyback("--elems 200000 --ratio 0.65 --buffer-elems 100000")
		assert.are.equal(13, number(text, "pieces"))
		assert.are.equal(130000, number(text, "elems"))
		text = copyback("--elems 200000 --ratio 0")
		assert.are.equal(0, number(text, "pieces"))
		assert.are.equal(0, number(text, "pinned_bytes"))
	end)

	it("pins_the_same_for_any_size_of_the_model", function()
		local small, large = copyback("--elems 1 --buffer-elems 4096"), copyback("--elems 3000000 --buffer-elems 4096")
		assert.are.equal(2 * 4096 * 2, number(small, "pinned_bytes"))
		assert.are.equal(2 * 4096 * 2, number(large, "pinned_bytes"))
	end)

	it("takes_every_dtype_and_device", function()
		local bytes = { bf16 = 2, f16 = 2, f32 = 4 }
		for _, device in ipairs{ "host", "late:host", "late:host,eager", "late:host,shuffle=3" } do
			for dtype, size in pairs(bytes) do
				local text = copyback(("--elems 50001 --buffer-elems 777 --dtype %s --device %s"):format(dtype, device))
				assert.are.equal(2 * 777 * size, number(text, "pinned_bytes"))
				assert.is_truthy(text:find('"bitwise": true', 1, true), text)
				assert.is_truthy(text:match('"device": "(.-)"'):find(device, 1, true), text)
			end
		end
	end)

	it("cuts_a_models_shapes_over_the_ranks", function()
		local shapes = os.tmpname()
		local file = io.open(shapes, "w")
		file:write('{"model":"tiny","tensors":[{"name":"a","shape":[1000,10],"dtype":"BF16"},',
			'{"name":"b","shape":[7],"dtype":"BF16"}]}')
		file:close()
		-- Each parameter is padded to a multiple of the ranks.
		local text, out = copyback(("--shapes %s --dp 4 --buffer-elems 100"):format(shapes))
		os.remove(shapes)
		assert.are.equal(2502, number(text, "elems"))
		assert.is_truthy(out:find("tiny over dp=4", 1, true), out)
	end)

	it("runs_a_rank_on_every_process", function()
		local text, out = copyback("--elems 100000 --dp 2 --buffer-elems 1000", launcher .. " -n 2")
		assert.are.equal(50000, number(text, "elems"))
		assert.is_truthy(text:find('"bitwise": true', 1, true))
		local _, times = out:gsub("the same bits both ways", "")
		assert.are.equal(1, times)
	end)

	it("a_device_that_one_process_misnames_ends_all_without_an_abort", function()
		local run = program .. " recipes/copyback.lua --elems 1000"
		local status, _, err = shell(("%s -n 1 %s : -n 1 env ZCC_DEVICE=nothing %s"):format(launcher, run, run))
		assert.are.equal(2, status, err)
		assert.is_truthy(err:find('$ZCC_DEVICE: "nothing" is no device', 1, true), err)
		assert.is_nil(err:find("MPI_ABORT", 1, true), err)
	end)

	it("misuse_is_said", function()
		for arguments, message in pairs{
			["--elems 5 --shapes demo"] = "one or the other",
			["--shapes nowhere.json"] = "'nowhere.json' is no model that zcc knows (all-minilm-l6-v2, demo,",
			["--shapes qwen3-8"] = "did you mean",
			["--elems -1"] = "--elems: -1 is less than 0",
			["--ratio 2"] = "--ratio: 2 is more than 1",
			["--elems 9007199254740992"] = "9007199254740992 parameters of a rank; at most 10000000000000",
			["--elems 10 --device nothing"] = '--device: "nothing" is no device',
			["--elems 10 --device late:late:host"] = '--device: "late:late:host" is no device',
		} do
			local status, _, err = shell(("%s recipes/copyback.lua %s"):format(program, arguments))
			assert.are.equal(2, status, arguments)
			assert.is_truthy(err:find(message, 1, true), err)
		end
		local status, _, err = shell(("ZCC_DEVICE=nothing %s recipes/copyback.lua --elems 10"):format(program))
		assert.are.equal(2, status)
		assert.is_truthy(err:find('$ZCC_DEVICE: "nothing" is no device', 1, true), err)
	end)
end)
