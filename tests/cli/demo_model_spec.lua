-- recipes/demo_model.lua from outside. $ZCCRUN is the program.

local program = assert(os.getenv "ZCCRUN")

-- Runs a recipe that comes with zcc; returns its status and all that it said.
local function run(arguments)
	local pipe = io.popen(("%s %s 2>&1; echo $?"):format(program, arguments))
	local text, status = pipe:read("*a"):match("^(.*)%f[%d](%d+)\n$")
	pipe:close()
	return tonumber(status), text
end

describe("demo_model", function()
	local folder

	before_each(function()
		folder = os.tmpname()
		os.remove(folder)
	end)
	after_each(function() os.execute("rm -rf " .. folder) end)

	it("holds_every_tensor_whatever_the_number_of_files", function()
		for _, files in ipairs { 1, 2, 7, 1000 } do
			local status, said = run(("demo_model --hidden 64 --vocab 512 --layers 1 --files %d --force --out %s"):format(files,
				folder))
			assert.are.equal(0, status, said)
			status, said = run(("reshard --dry-run --in %s --to tp=2"):format(folder))
			assert.are.equal(0, status, said)
			-- Eleven of a layer; embedding, last norm and head.
			assert.is_truthy(said:find("^14 parameters"), ("%d files: %s"):format(files, said))
		end
	end)

	it("refuses_a_hidden_size_that_its_heads_do_not_divide", function()
		local status, said = run("demo_model --hidden 100 --out " .. folder)
		assert.are.equal(2, status)
		assert.is_truthy(said:find("--hidden: 100 is no multiple of 64", 1, true), said)
	end)
end)
