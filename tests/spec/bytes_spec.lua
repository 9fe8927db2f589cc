local bytes = require "zcc.bytes"

describe("bytes", function()
	it("binary_units_count_in_1024_and_decimal_ones_in_1000", function()
		local cases = {
			["4096"] = 4096, ["8MiB"] = 8388608, ["1.5GiB"] = 1610612736, ["1 KiB"] = 1024, ["2k"] = 2048,
			["3TiB"] = 3298534883328, ["10kb"] = 10000, ["2.5 MB"] = 2500000, ["0"] = 0, ["7B"] = 7,
		}
		for text, expected in pairs(cases) do
			assert.are.equal(expected, bytes.parse(text), text)
		end
	end)

	it("what_is_no_whole_amount_is_refused_with_a_message", function()
		local refused = {
			"", "MiB", "8 MiBs", "-1", "1.5", "0.3KiB", "1e3", "nan", "8MiB 2", "9007199254740993000", "0x10",
		}
		for _, text in ipairs(refused) do
			local value, message = bytes.parse(text)
			assert.is_nil(value, text)
			assert.is_string(message)
		end
	end)

	it("formats_in_the_largest_unit_that_leaves_at_least_one", function()
		assert.are.equal("0 B", bytes.format(0))
		assert.are.equal("1023 B", bytes.format(1023))
		assert.are.equal("1 KiB", bytes.format(1024))
		assert.are.equal("8 MiB", bytes.format(8388608))
		assert.are.equal("1.50 GiB", bytes.format(1610612736))
		assert.are.equal("-2 KiB", bytes.format(-2048))
	end)
end)
