-- What LuaJIT computes from the declarations is what the compiler computed, and every declared function is there.
local zffi = require "zcc.ffi"
local ffi, lib = zffi.ffi, zffi.lib

describe("abi", function()
	local text = ffi.string(lib.zcc_cdef())

	local function rows()
		local list, table_ = {}, lib.zcc_abi_table()
		local i = 0
		while table_[i].struct_name ~= nil do
			local row = table_[i]
			list[#list + 1] = {
				struct = ffi.string(row.struct_name), member = ffi.string(row.member), offset = tonumber(row.offset),
			}
			i = i + 1
		end
		return list
	end

	it("every_size_and_offset_is_the_compilers", function()
		local structs = 0
		for _, row in ipairs(rows()) do
			if row.member == "" then
				structs = structs + 1
				assert.are.equal(row.offset, ffi.sizeof(row.struct), row.struct)
			else
				assert.are.equal(row.offset, ffi.offsetof(row.struct, row.member), row.struct .. "." .. row.member)
			end
		end
		local declared = 0
		for _ in text:gmatch("typedef%s+struct%s+[%w_]+%s*{") do
			declared = declared + 1
		end
		assert.is_true(declared > 5)
		assert.are.equal(declared, structs)
	end)

	-- A declaration ends in a semicolon and a comma adds a member; bodies hold no others.
	it("the_table_leaves_out_no_member", function()
		local members = {}
		for _, row in ipairs(rows()) do
			if row.member ~= "" then
				members[row.struct] = (members[row.struct] or 0) + 1
			end
		end
		for body, name in text:gmatch("typedef%s+struct%s+[%w_]+%s*{(.-)}%s*([%w_]+)%s*;") do
			local _, expected = body:gsub("[;,]", "")
			assert.are.equal(expected, members[name], name)
		end
	end)

	it("every_declared_function_is_in_the_library", function()
		local missing, count = {}, 0
		for name in text:gmatch("([%w_]+)%s*%b()%s*;") do
			count = count + 1
			if not pcall(function() return lib[name] end) then
				missing[#missing + 1] = name
			end
		end
		assert.is_true(count > 50)
		assert.are.same({}, missing)
	end)

	it("the_text_holds_nothing_that_luajit_would_not_compile", function()
		assert.is_nil(text:find("enum%s+[%w_]+%s+[%w_]+%s*[;,)]"), "enum-typed field or argument")
		assert.is_nil(text:find("%(%s*%*"), "function pointer")
	end)
end)
