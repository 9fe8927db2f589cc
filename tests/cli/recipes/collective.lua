-- Checks zcc.comm on however many processes there are.
local zcc = require "zcc"

local function run(ctx)
	local comm = ctx.comm
	local rank, size = comm.rank, comm.size
	local triangle = size * (size - 1) / 2

	assert(comm:sum(rank) == triangle)
	assert(comm:max(rank - 100) == size - 101)
	local sums = comm:sum{ 1, rank, 2^40 }
	assert(sums[1] == size and sums[2] == triangle and sums[3] == size * 2^40)

	local last = size - 1
	assert(comm:broadcast(rank == 0 and "from the first" or nil) == "from the first")
	local long = ("x\0y"):rep(1000003)
	assert(comm:broadcast(rank == last and long or nil, last) == long)
	assert(comm:broadcast(rank == 0 and "" or nil) == "")

	local a, b, c = comm:together(function(...) return rank, nil, ... end, "more")
	assert(a == rank and b == nil and c == "more")
	for _, failing in ipairs{ 0, last } do
		local ok, fault = pcall(comm.together, comm, function()
			if rank >= failing then
				zcc.error.raise("ZCC_EMAP", "rank %d of %d", rank, size)
			end
		end)
		assert(not ok and zcc.error.is(fault))
		assert(fault.status == "ZCC_EMAP" and fault.process == (size > 1 and failing or nil))
		assert(fault.message:find(("collective%%.lua:%%d+: rank %d of %d$"):format(failing, size)), fault.message)
		-- All processes say the same, word for word.
		assert(comm:broadcast(rank == 0 and tostring(fault) or nil) == tostring(fault))
	end

	comm:same("the plan", 7)
	comm:same("the plan", "fedcba9876543210")
	if size > 1 then
		local ok, fault = pcall(comm.same, comm, "the plan", rank == last and 1 or 0)
		assert(not ok and fault.status == "ZCC_EAGREE" and fault.message:find("the plan", 1, true))
	end
	if rank == 0 then
		print(("checked on %d"):format(size))
	end
end

return zcc.recipe{ name = "collective", about = "Checks zcc.comm.", run = run }
