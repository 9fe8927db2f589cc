local json = require "zcc.json"

local function refusal(call, ...)
	local ok, object = pcall(call, ...)
	assert.is_false(ok)
	return object.message, object
end

describe("json", function()
	it("objects_arrays_and_null_stay_apart", function()
		local value = json.decode '{"a":[],"b":{},"c":null,"d":[1,[2]],"e":"x","f":true,"g":false}'
		assert.is_true(json.is_array(value.a))
		assert.is_false(json.is_array(value.b))
		assert.are.equal(json.null, value.c)
		assert.is_true(json.is_array(value.d[2]))
		assert.are.equal('{"a":[],"b":{},"c":null,"d":[1,[2]],"e":"x","f":true,"g":false}', json.encode(value))
	end)

	it("integers_beyond_2_53_are_decimal_strings", function()
		local value = json.decode "[9007199254740992,9007199254740993,-9007199254740993,9223372036854775807,6442450944]"
		assert.are.same({ 2^53, "9007199254740993", "-9007199254740993", "9223372036854775807", 6442450944 },
			{ unpack(value) })
	end)

	it("numbers_come_back_to_the_bit", function()
		local seed = tonumber(os.getenv "ZCC_SEED") or os.time()
		print("# ZCC_SEED=" .. seed)
		math.randomseed(seed)
		local list = json.array{ -0.0, 1.7976931348623157e308, 4.9406564584124654e-324, 0.1, 1e21, 2^53, -2^53, 1 / 3 }
		for _ = 1, 2000 do
			list[#list + 1] = (math.random() - 0.5) * 10 ^ math.random(-300, 300)
		end
		local back = json.decode(json.encode(list))
		for i, number in ipairs(list) do
			assert.are.equal(number, back[i])
		end
		assert.are.equal(-math.huge, 1 / back[1])
		assert.are.equal(-math.huge, 1 / json.decode("[-0]")[1])
	end)

	it("keys_are_sorted_bytewise_or_in_the_given_order", function()
		assert.are.equal('{"B":1,"a":2,"a1":3,"é":4}', json.encode{ a1 = 3, ["é"] = 4, B = 1, a = 2 })
		assert.are.equal('{"z":1,"a":{"y":2,"x":3}}',
			json.encode(json.ordered{ { "z", 1 }, { "gone" }, { "a", json.ordered{ { "y", 2 }, { "x", 3 } } } }))
	end)

	it("plain_lists_are_arrays_and_an_unmarked_empty_table_is_an_object", function()
		assert.are.equal('[1,"x"]', json.encode{ 1, "x" })
		assert.are.equal("{}", json.encode{})
		assert.are.equal("[]", json.encode(json.array{}))
		assert.are.equal("[\n  1\n]", json.encode({ 1 }, { indent = 2 }))
	end)

	it("strings_of_any_bytes_that_are_utf8_come_back", function()
		local text = 'quote " slash \\ tab \t newline \n é 漢 😀 \1'
		assert.are.equal(text, json.decode(json.encode{ text })[1])
	end)

	it("what_has_no_json_is_refused", function()
		assert.is_truthy(refusal(json.encode, { 0 / 0 }):find("nan has no JSON", 1, true))
		assert.is_truthy(refusal(json.encode, { 1 / 0 }):find("inf has no JSON", 1, true))
		assert.is_truthy(refusal(json.encode, { print }):find("a function has no JSON", 1, true))
		assert.is_truthy(refusal(json.encode, { 1LL }):find("a cdata has no JSON", 1, true))
		assert.is_truthy(refusal(json.encode, { 1, x = 2 }):find("neither an array nor an object", 1, true))
		assert.is_truthy(refusal(json.encode, json.array{ 1, nil, 3, x = 1 }):find("keys", 1, true))
		assert.is_truthy(refusal(json.encode, { ["a\0b"] = 1 }):find("without NUL", 1, true))
		assert.is_false(pcall(json.encode, { "\255" }))
		local loop = {}
		loop[1] = loop
		assert.is_truthy(refusal(json.encode, loop):find("contains itself", 1, true))
	end)

	it("the_same_table_twice_is_no_loop", function()
		local part = { 1 }
		assert.are.equal("[[1],[1]]", json.encode{ part, part })
	end)

	it("a_malformed_text_is_refused_by_its_name", function()
		local message, object = refusal(json.decode, '{"a":1,"a":2}', "model.json")
		assert.are.equal("ZCC_EFORMAT", object.status)
		assert.is_truthy(message:find("model.json", 1, true))
		assert.is_false(pcall(json.decode, ""))
		assert.is_false(pcall(json.decode, "[1] x"))
		assert.is_false(pcall(json.decode, nil))
	end)

	it("files_are_written_whole_under_their_name", function()
		local path = os.tmpname()
		json.encode_file(path, { a = 1 })
		assert.are.same({ a = 1 }, json.decode_file(path))
		json.encode_file(path, { b = 2 }, { indent = 1 })
		assert.are.same({ b = 2 }, json.decode_file(path))
		local listing = io.popen(("ls -d %s*"):format(path)):read("*a")
		assert.are.equal(path .. "\n", listing)
		os.remove(path)
		local message, object = refusal(json.decode_file, path)
		assert.are.equal("ZCC_EIO", object.status)
		assert.are.equal(path .. ": No such file or directory", message)
		assert.are.equal("/nowhere/x: No such file or directory", (refusal(json.encode_file, "/nowhere/x", {})))
		assert.is_truthy(refusal(json.encode_file, "/tmp", {}):find("/tmp: ", 1, true))
		assert.is_truthy(refusal(json.decode_file, "/tmp"):find("/tmp: ", 1, true))
	end)
end)
