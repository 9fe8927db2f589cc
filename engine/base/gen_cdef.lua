-- Writes the C file that carries the FFI declarations and the ABI table.
-- Usage: luajit gen_cdef.lua DECLARATIONS OUTPUT, where DECLARATIONS is zcc.h preprocessed with -E -P -DZCC_CDEF.
-- It knows the C that public headers may use (DESIGN, "The C ABI") and refuses the rest.

local input, output = arg[1], arg[2]

local function read(path)
	local file = assert(io.open(path, "rb"))
	local text = file:read("*a")
	file:close()
	return text
end

-- { {name=, members={…}}, … } in order of appearance.
local function parse_structs(text)
	local structs = {}
	for body, name in text:gmatch("typedef%s+struct%s+[%w_]+%s*(%b{})%s*([%w_]+)%s*;") do
		local members = {}
		body = body:sub(2, -2)
		if body:find("[{}():]") then
			error(("struct %s: nested structs, function pointers and bit fields have no place in the C ABI"):format(name))
		end
		for declaration in body:gmatch("[^;]+") do
			for declarator in declaration:gmatch("[^,]+") do
				local bare = declarator:gsub("%b[]", "")
				local member = bare:match("([%a_][%w_]*)%s*$")
				if member then
					members[#members + 1] = member
				end
			end
		end
		structs[#structs + 1] = { name = name, members = members }
	end
	return structs
end

local text = read(input)
local lines = {
	"/* Made by gen_cdef.lua from zcc.h. */",
	'#include "zcc.h"',
	"",
	"const char *zcc_cdef(void)",
	"{",
	"\tstatic const char text[] =",
}
for line in text:gmatch("[^\n]+") do
	lines[#lines + 1] = ('\t\t"%s\\n"'):format((line:gsub("[\\\"]", "\\%0")))
end
lines[#lines] = lines[#lines] .. ";"
lines[#lines + 1] = "\treturn text;"
lines[#lines + 1] = "}"
lines[#lines + 1] = ""
lines[#lines + 1] = "static const zcc_abi_row rows[] = {"
for _, struct in ipairs(parse_structs(text)) do
	lines[#lines + 1] = ('\t{"%s", "", sizeof(%s)},'):format(struct.name, struct.name)
	for _, member in ipairs(struct.members) do
		lines[#lines + 1] = ('\t{"%s", "%s", offsetof(%s, %s)},'):format(struct.name, member, struct.name, member)
	end
end
lines[#lines + 1] = "\t{0, 0, 0},"
lines[#lines + 1] = "};"
lines[#lines + 1] = ""
lines[#lines + 1] = "const zcc_abi_row *zcc_abi_table(void)"
lines[#lines + 1] = "{"
lines[#lines + 1] = "\treturn rows;"
lines[#lines + 1] = "}"

local file = assert(io.open(output, "wb"))
assert(file:write(table.concat(lines, "\n"), "\n"))
assert(file:close())
