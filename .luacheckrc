std = "luajit"
max_line_length = 120
files["tests/spec"] = { std = "+busted" }
