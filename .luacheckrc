std = "luajit"
max_line_length = 120
files["tests/spec"] = { std = "+busted" }
files["tests/cli"] = { std = "+busted" }
exclude_files = { "build*/**", "tests/cli/recipes/broken.lua" }
