std = "luajit"
max_line_length = 130
files["tests/spec"] = { std = "+busted" }
