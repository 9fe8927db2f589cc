local layout_string = require "zcc.layout_string"

local function refusal(value)
	local ok, object = pcall(layout_string.of, value)
	assert.is_false(ok)
	assert.are.equal("ZCC_EINVAL", object.status)
	return object.message
end

local function assert_refusals(cases)
	for _, case in ipairs(cases) do
		local message = refusal(case[1])
		for i = 2, #case do
			assert.is_truthy(message:find(case[i], 1, true), ("%s: '%s' lacks '%s'"):format(tostring(case[1]), message, case[i]))
		end
	end
end

describe("layout strings", function()
	it("become_a_table_of_axes_outermost_first_and_options_with_defaults", function()
		assert.are.same({ { "dp", 4 }, { "tp", 2 }, zero = 3, base = 0, style = "autotp" },
			layout_string.parse("dp=4,tp=2,zero=3"))
		assert.are.same({ { "pp", 2 }, { "cp", 3 }, { "tp", 1 }, zero = 0, base = 16, style = "megatron", vocab_pad = 128,
			layers = { 3, 1 } }, layout_string.parse(" pp = 2, cp=3,tp=1 ,base=16,style=megatron,vocab_pad=128,layers=3+1 "))
		assert.are.same({ { "dp", 8 }, { "tp", 2 }, zero = 1, base = 0, style = "autotp",
			experts = { { "edp", 2 }, { "ep", 8 } } }, layout_string.parse("dp=8,tp=2,zero=1;experts:edp=2,ep=8"))
		assert.are.same({ full = true, zero = 0, base = 0, style = "autotp" }, layout_string.parse(" full "))
	end)

	it("come_back_from_their_table_without_the_defaults", function()
		for given, printed in pairs({
			["full"] = "full",
			["zero=3,dp=4,hpz=2,tp=2"] = "dp=4,tp=2,zero=3,hpz=2",
			["tp=2,dp=4,zero=0,style=autotp,base=0"] = "tp=2,dp=4",
			["dp=4,zero=3,mics=4"] = "dp=4,zero=3,mics=4",
			["pp=2,dp=4,layers=5+3;experts:pp=2,edp=1,ep=4"] = "pp=2,dp=4,layers=5+3;experts:pp=2,edp=1,ep=4",
		}) do
			local parsed = layout_string.parse(given)
			assert.are.equal(printed, layout_string.format(parsed))
			assert.are.same(parsed, layout_string.parse(printed))
		end
	end)

	it("say_what_a_table_can_say", function()
		assert.are.same(layout_string.parse("dp=2,tp=2,zero=3;experts:edp=1,ep=4"),
			layout_string.of({ { "dp", 2 }, { "tp", 2 }, zero = 3, experts = { { "edp", 1 }, { "ep", 4 } } }))
		assert.are.same(layout_string.parse("full"), layout_string.of({ full = true }))
		local given = { { "dp", 2 } }
		layout_string.of(given)
		assert.are.same({ { "dp", 2 } }, given)
	end)

	it("give_the_first_rank_and_the_number_of_ranks", function()
		assert.are.same({ 8, 12 }, { layout_string.ranks(layout_string.parse("dp=2,pp=3,tp=2,base=8")) })
		assert.are.same({ 0, 1 }, { layout_string.ranks(layout_string.parse("full")) })
	end)

	it("refuse_unknown_keys_and_list_the_known_ones", function()
		assert_refusals({
			{ "dp=2,zreo=3", "'dp=2,zreo=3'", "'zreo=3'", "did you mean 'zero'", "pp, dp, ep, cp, tp, zero, hpz, mics" },
			{ "dp=2,edp=3", "'edp'", "known are" },
			{ "DP=2", "'DP'", "did you mean 'dp'" },
			{ "dp=2;experts:dp=2", "'dp=2'", "pp, edp, ep, tp" },
			{ "dp=2;expert:ep=2", "';expert:ep=2'", "experts" },
			{ { { "dp", 2 }, zreo = 3 }, "'zreo'", "did you mean 'zero'" },
			{ { { "xp", 2 } }, "'xp'", "known are pp, dp, ep, cp, tp" },
			{ { { "dp", 2 }, tp = 2 }, "'tp'", "list" },
			{ "dp=2,style=megatorn", "'style=megatorn'", "autotp, megatron", "did you mean 'megatron'" },
		})
	end)

	it("refuse_what_is_no_key_and_value", function()
		assert_refusals({
			{ "" }, { "dp" }, { "dp=" }, { "=3" }, { "dp=2," }, { ";" }, { "full,dp=2", "'full'" }, { "dp=2;" },
			{ { full = true, { "dp", 2 } }, "'full' stands alone" }, { {}, "no axis" }, { { "dp=2" }, "pair" }, { 7, "number" },
			{ "zero=3", "no axis" }, { { { "dp", 2 }, [3] = { "tp", 2 } }, "key 3" },
		})
	end)

	it("refuse_sizes_that_are_not_whole_positive_numbers_of_sane_size", function()
		assert_refusals({
			{ "dp=0", "'dp=0'", "is 0", "allowed are 1 to 1048576" }, { "dp=-2", "is -2", "1 to 1048576" },
			{ "dp=1.5", "'1.5'" }, { "dp=0x10", "'0x10'" }, { "dp=1e3", "'1e3'" }, { "dp=two", "'two'" },
				{ "dp=99999999999999999999", "whole number" },
			{ "dp=4000000000", "is 4000000000" }, { "dp=2048,tp=1024", "2097152 ranks", "1048576" },
			{ { { "dp", 1.5 } }, "1.5" }, { { { "dp", 0 / 0 } }, "whole number" }, { { { "dp", "2" } }, "whole number" },
			{ "dp=2,zero=4", "zero is 4", "0 to 3" }, { "dp=2,zero=-1", "zero is -1", "0 to 3" },
			{ "dp=2,vocab_pad=0", "vocab_pad is 0" },
		})
	end)

	it("refuse_what_is_given_twice", function()
		assert_refusals({
			{ "dp=2,tp=2,dp=4", "axis dp is given twice", "dp=2 before" }, { "dp=2,zero=1,zero=1", "zero is given twice" },
			{ "dp=2;experts:ep=2;experts:ep=2", "given twice" }, { "dp=4;experts:ep=2,ep=2", "axis ep", "given twice" },
		})
	end)

	it("refuse_ranks_past_the_largest_rank_number", function()
		assert.are.equal(2147483646, layout_string.parse("dp=2,base=2147483646").base)
		assert_refusals({
			{ "dp=2,base=2147483647", "2147483648", "2147483647" }, { "dp=2,base=-1", "base is -1" },
			{ "dp=2,base=4294967296", "base is 4294967296" },
		})
	end)

	it("refuse_an_experts_mesh_that_does_not_span_the_same_ranks", function()
		assert_refusals({
			{ "dp=4,tp=2;experts:edp=2,ep=8", "16 ranks (edp=2,ep=8)", "8 (dp=4,tp=2)" },
			{ "dp=4,ep=2;experts:edp=2,ep=4", "'ep=2'" },
			{ "pp=2,dp=2;experts:edp=2,ep=2", "pp" },
			{ "pp=2,dp=2;experts:edp=2,pp=2", "same place" },
			{ "dp=2;experts:", "is no key=value" },
			{ { { "dp", 2 }, experts = {} }, "no axis" },
			{ { { "dp", 2 }, experts = 3 }, "experts has to be a list" },
		})
	end)

	it("refuse_sub_groups_that_do_not_fit_the_zero_group", function()
		assert.are.equal(4, layout_string.parse("dp=4,cp=2,tp=3,zero=3,hpz=4").hpz)
		assert_refusals({
			{ "dp=4,zero=3,hpz=3", "'hpz=3'", "4 ranks" }, { "dp=4,zero=3,mics=8", "'mics=8'", "4 ranks" },
			{ "dp=4,zero=3,mics=2,hpz=2", "exclude" }, { "dp=4,zero=2,hpz=2", "needs zero=3", "zero=2" },
			{ "dp=4,tp=2,zero=3,hpz=8", "4 ranks" }, { "dp=8,zero=3,hpz=4;experts:edp=2,ep=4", "2 ranks" },
		})
	end)

	it("refuse_layer_counts_that_do_not_fit_the_stages", function()
		assert_refusals({
			{ "pp=2,layers=3", "1 stages", "pp=2" }, { "dp=2,layers=3+4", "needs the axis pp" }, { "pp=2,layers=3+x", "'x'" },
			{ { { "pp", 2 }, layers = 7 }, "list" },
		})
	end)
end)
