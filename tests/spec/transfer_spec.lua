local affine = require "zcc.affine"
local comm = require "zcc.comm"
local placement = require "zcc.placement"
local store = require "zcc.store"
local transfer = require "zcc.transfer"

-- Single bytes in two columns, cut between two ranks: the slowest way to move them.
local ROWS = 33554432
local TENSORS = { { name = "w", dtype = "U8", shape = { ROWS, 2 }, bytes = 2 * ROWS } }

local function layout(text)
	return affine.Layout.from_description(placement.resolve(text, TENSORS, { rules = { { "w", cut = 1 } } }, {}))
end

describe("transfer", function()
	local moves, from, to

	setup(function()
		local source, target, world = layout("full"), layout("tp=2"), comm.world()
		moves = transfer.create(affine.plan(target, source, require("zcc.policy").of("lowest")), world)
		from, to = store.buffer(2 * ROWS), { [0] = store.buffer(ROWS), store.buffer(ROWS) }
		from:fill_random(7)
		moves:place("source", source:ranks(), transfer.spread(source:ranks(), world))
		moves:place("target", target:ranks(), transfer.spread(target:ranks(), world))
		moves:bind_memory("source", source:ranks()[1], 1, from, 0, 2 * ROWS)
		for rank = 0, 1 do
			moves:bind_memory("target", rank, 1, to[rank], 0, ROWS)
		end
	end)

	teardown(function() moves:close() end)

	local function moved()
		local ffi = require "ffi"
		local all = ffi.cast("uint8_t *", from:at(0, 2 * ROWS))
		local left, right = ffi.cast("uint8_t *", to[0]:at(0, ROWS)), ffi.cast("uint8_t *", to[1]:at(0, ROWS))
		local same = true
		for row = 0, ROWS - 1 do
			same = same and left[row] == all[2 * row] and right[row] == all[2 * row + 1]
		end
		return same
	end

	it("a_run_reports_bytes_that_only_grow_and_end_at_the_total", function()
		local seen = {}
		local result = moves:run(function(done, total)
			assert.are.equal(2 * ROWS, total)
			assert.is_true(done >= (seen[#seen] or 0))
			seen[#seen + 1] = done
		end, 0)
		assert.is_true(#seen > 1 and seen[1] < 2 * ROWS)
		assert.are.equal(2 * ROWS, seen[#seen])
		assert.are.equal(2 * ROWS, result.copied_bytes)
		assert.is_true(moved())
	end)

	it("a_fault_of_report_is_raised_when_the_run_has_ended_and_another_may_follow", function()
		to[0]:copy(store.buffer(ROWS))
		local ok, why = pcall(moves.run, moves, function() error("no more", 0) end)
		assert.is_false(ok)
		assert.are.equal("no more", why)
		assert.is_true(moved())
		assert.are.equal(2 * ROWS, moves:run().copied_bytes)
	end)

	it("a_run_that_cannot_begin_says_why", function()
		local source, target = layout("full"), layout("tp=2")
		local unplaced = transfer.create(affine.plan(target, source, require("zcc.policy").of("lowest")), comm.world())
		local ok, why = pcall(unplaced.run, unplaced)
		assert.is_false(ok)
		assert.are.equal("ZCC_EINVAL", why.status)
		assert.truthy(why.message:find("placed on no process", 1, true))
	end)
end)
