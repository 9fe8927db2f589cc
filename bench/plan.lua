-- How long maps and plan take on one process: Qwen3-8B, eight training ranks to eight rollout ranks.

local zcc = require "zcc"

local TIMES = 20

local shapes = zcc.shapes.generate("qwen3-8b")
local rules = zcc.rules.family("qwen3")

local function layout(text)
	return zcc.affine.Layout.build(text, shapes.tensors, rules, { config = shapes.config })
end

local function case(from, to, policy, target)
	return {
		name = ("qwen3-8b %s -> %s, %s"):format(from, to, policy),
		run = function()
			local chosen = zcc.policy.of(policy)
			local seconds = zcc.bench.median(TIMES, function()
				zcc.affine.plan(layout(to), layout(from), chosen)
			end)
			return { value = seconds * 1000, unit = "ms", target = target, at_most = true }
		end,
	}
end

return zcc.bench.recipe {
	name = "plan",
	about = "Time for both maps and the plan, median of " .. TIMES .. ".",
	cases = {
		-- The published planner in Python takes 470 ms on such a machine.
		case("dp=4,tp=2,zero=3", "dp=2,tp=4", "balanced", 50),
		case("dp=4,tp=2,zero=3", "dp=2,tp=4", "lowest", 50),
		case("dp=4,tp=2,zero=2", "dp=2,tp=4", "balanced", 50),
		case("dp=16,tp=8,zero=3", "dp=32,tp=4", "balanced"),
	},
}
