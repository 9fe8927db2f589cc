#!/usr/bin/env bash
# An installed zcc works wherever it is moved. Usage: install.sh BUILD_FOLDER SOURCE_FOLDER C_COMPILER [C flags]
set -euo pipefail
build=$1 source=$2 compiler=$3
shift 3

work=$build/install-test
rm -rf "$work"
cmake --install "$build" --prefix "$work/here" >/dev/null
mv "$work/here" "$work/moved"
root=$work/moved

cd "$work"
"$root/bin/zccrun" --version
out=$("$root/bin/zccrun" "$source/tests/cli/recipes/ends.lua" --how well)
[ "$out" = '{"rank":0,"size":1}' ]

# Recipes that come with it are found by name.
"$root/bin/zccrun" reshard --help | grep -q -- --staging
cp "$source/tests/cli/recipes/arguments.lua" "$root/share/zcc/recipes/named.lua"
"$root/bin/zccrun" named --count 3 | grep -q '"count":3'
"$root/bin/zccrun" recipes/named.lua --count 4 | grep -q '"count":4'

# Plug-ins lie beside the library and load there; whether there is a GPU is another thing.
if [ -e "$build/libzcc_cuda.so" ]; then
  "$root/bin/zccrun" --devices | grep '^cuda' | grep -qv 'does not load\|neither beside'
fi

# Nothing of the build or source tree is needed: a fault names the installed Lua files.
printf 'error(debug.getinfo(require("zcc.recipe").is, "S").source, 0)\n' >where.lua
if message=$("$root/bin/zccrun" where.lua 2>&1); then
  exit 1
fi
grep -q "$root/share/zcc/lua/zcc/recipe.lua" <<<"$message"

# A C program builds and runs against it.
export PKG_CONFIG_PATH=$root/lib/pkgconfig
printf '#include <stdio.h>\n#include "zcc.h"\nint main(void)\n{\n\treturn puts(zcc_version()) < 0;\n}\n' >user.c
"$compiler" "$@" user.c -o user $(pkg-config --cflags --libs zcc)
LD_LIBRARY_PATH=$root/lib ./user
echo "installed, moved and used"
