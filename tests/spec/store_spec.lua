local store = require "zcc.store"

local function temporary()
	local name = os.tmpname()
	os.remove(name)
	return name
end

local function slurp(path)
	local file = assert(io.open(path, "rb"))
	local text = file:read("*a")
	file:close()
	return text
end

local function spill(path, text)
	local file = assert(io.open(path, "wb"))
	file:write(text)
	file:close()
end

-- A safetensors file by the public description of the format: length, header, bytes.
local function by_hand(path, header, bytes)
	spill(path, string.char(#header % 256, math.floor(#header / 256), 0, 0, 0, 0, 0, 0) .. header .. bytes)
end

describe("store", function()
	local path

	before_each(function() path = temporary() end)
	after_each(function() os.execute("rm -rf " .. path .. "*") end)

	it("reads names, dtypes, shapes and places of a file written by hand", function()
		by_hand(path, '{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},'
			.. '"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', ("x"):rep(16))
		local file = store.open_safetensors(path)
		local start = file:data_offset()
		assert.equal(#slurp(path) - 16, start)
		assert.same({ { name = "a", dtype = "F32", shape = {}, offset = start, bytes = 4 },
			{ name = "b", dtype = "BF16", shape = { 2, 3 }, offset = start + 4, bytes = 12 } }, file:tensors())
		assert.equal("b", file:find("b").name)
		assert.is_nil(file:find("c"))
		assert.same({ format = "pt" }, file:metadata())
		file:close()
	end)

	it("names file and tensor of a malformed header", function()
		by_hand(path, '{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}}', "abcd")
		local ok, fault = pcall(store.open_safetensors, path)
		assert.is_false(ok)
		assert.equal("ZCC_EFORMAT", fault.status)
		assert.truthy(fault.message:find(path, 1, true))
		assert.truthy(fault.message:find("w", 1, true))
	end)

	it("writes a file that holds what was put there, byte for byte", function()
		local writer = store.safetensors_writer()
		writer:add("w", "U8", { 5 })
		writer:metadata("k", "v")
		writer:finish(path)
		local placed = store.open_safetensors(path)
		local buffer = store.buffer(5)
		buffer:fill_random(3)
		local file = store.open_file_for_writing(path)
		file:write(placed:find("w").offset, buffer)
		local again = store.buffer(5)
		file:read(placed:find("w").offset, again)
		file:close()
		spill(path .. ".copy", slurp(path))
		local copy = store.open_file(path .. ".copy")
		file = store.open_file(path)
		assert.equal(file:hash(), copy:hash())
		assert.equal(#slurp(path), file:bytes())
		assert.not_equal(("\0"):rep(5), slurp(path):sub(-5))
	end)

	it("shows a folder only once it is published, and nothing of a discarded one", function()
		local folder = store.begin_folder(path, false)
		assert.equal("nothing", store.path_kind(path))
		spill(folder:path() .. "/b", "two")
		spill(folder:path() .. "/a", "one")
		folder:publish()
		assert.same({ "a", "b" }, store.list(path))
		local other = store.begin_folder(path .. "-other", false)
		local place = other:path()
		other:discard()
		assert.equal("nothing", store.path_kind(place))
	end)

	it("copies files of any size, and over none", function()
		local copy = temporary()
		for _, bytes in ipairs { 0, 1, 8388608, 20000003 } do
			spill(path, ("content"):rep(math.ceil(bytes / 7)):sub(1, bytes))
			store.copy_file(path, copy)
			assert.is_true(slurp(path) == slurp(copy))
			assert.is_false(pcall(store.copy_file, path, copy))
			os.remove(copy)
		end
	end)

	it("compares buffers to the last byte", function()
		for _, bytes in ipairs { 0, 1, 2^20, 2^20 + 5 } do
			local a, b = store.buffer(bytes), store.buffer(bytes)
			a:fill_random(1)
			b:copy(a)
			assert.is_true(a:equals(b))
			assert.is_false(a:equals(store.buffer(bytes + 1)))
			if bytes > 0 then
				local last = require("zcc.ffi").ffi.cast("uint8_t *", b:at(bytes - 1, 1))
				last[0] = last[0] == 0 and 1 or 0
				assert.is_false(a:equals(b))
			end
		end
	end)

	it("refuses a range outside a buffer and the use of what is closed", function()
		local buffer = store.buffer(8)
		assert.has_error(function() buffer:at(4, 5) end)
		assert.has_error(function() buffer:at(-1, 1) end)
		buffer:close()
		buffer:close()
		local ok, fault = pcall(function() buffer:fill_random(1) end)
		assert.is_false(ok)
		assert.truthy(fault.message:find("closed", 1, true))
	end)
end)
