#!/usr/bin/env bash
# Everything that needs a GPU: builds, runs the tests of the device on the real one, measures, and writes one JSON. Where there is no GPU it
# says so and ends with 77; where something fails, with 1. Usage: tests/device.sh [BUILD_FOLDER] [REPORT.json]
# BUILD_FOLDER is `build` where left out, REPORT.json BUILD_FOLDER/device.json.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
case "${1:-}" in
-*)
  sed -n '2,4s/^# \{0,1\}//p' "tests/$(basename "$0")"
  [ "$1" = -h ] || [ "$1" = --help ] || exit 2
  exit 0
  ;;
esac
build=${1:-build} report=${2:-${1:-build}/device.json}
limit=120 # seconds of one test

say() { printf 'device: %s\n' "$*" >&2; }

if ! [ -e /dev/nvidiactl ] && ! [ -e /dev/dxg ]; then
  say "no GPU here (neither /dev/nvidiactl nor /dev/dxg)"
  exit 77
fi

programs=(test_cuda test_cuda_export test_cuda_kernels test_copyback test_copyback_adamw test_copyback_faults test_copyback_gradients
  test_ema test_ema_faults test_offload test_offload_memory)
started=$SECONDS
if ! { cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DZCC_CUDA=ON &&
  cmake --build "$build" --target zccrun zcc_cuda "${programs[@]}" multi_test_transfer; } >&2; then
  say "it does not build"
  exit 1
fi
build=$(readlink -f "$build")
mkdir -p "$(dirname "$report")"
has_nccl=no
if cmake --build "$build" --target help | grep -q zcc_nccl; then
  cmake --build "$build" --target zcc_nccl >&2 && has_nccl=yes
fi

devices=$("$build/zccrun" --devices)
about=$(sed -n 's/^cuda:0 *//p' <<<"$devices")
if [ -z "$about" ]; then
  say "there is a GPU, but: $(grep '^cuda' <<<"$devices")"
  exit 1
fi
say "$about"

# A program looks for plug-ins beside the name it was started by.
folder=$build/device-tests
rm -rf "$folder"
mkdir -p "$folder"
for plugin in "$build"/libzcc_*.so; do
  ln -s "$plugin" "$folder/"
done
for program in "${programs[@]}" multi_test_transfer; do
  found=$build/tests/$program
  [ -e "$found" ] || found=$build/tests/cuda/$program
  ln -s "$(readlink -f "$found")" "$folder/$program"
done

failed=0 rows=()
# run NAME COMMAND…
run() {
  local name=$1 from=$SECONDS ok=true
  shift
  say "$name"
  if ! ZCC_TEST_DEVICE=cuda:0 timeout "$limit" "$@" >"$folder/$name.log" 2>&1; then
    ok=false
    failed=1
    tail -n 40 "$folder/$name.log" >&2
  fi
  rows+=("{\"name\":\"$name\",\"ok\":$ok,\"seconds\":$((SECONDS - from))}")
}

for program in "${programs[@]}"; do
  run "$program" "$folder/$program"
done
run transfer "$folder/multi_test_transfer" random cuda:0
run transfer_convert "$folder/multi_test_transfer" convert cuda:0
if [ "$has_nccl" = yes ] && grep -q '^cuda:1 ' <<<"$devices"; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  run transfer_nccl mpirun --oversubscribe -n 2 "$folder/multi_test_transfer" random cuda:rank nccl
else
  say "no two GPUs for libzcc_nccl.so"
fi

say "bench/device.lua"
bench=[]
if ZCC_DEVICE=cuda:0 timeout "$limit" "$build/zccrun" bench/device.lua --report "$folder/bench.json" >&2; then
  bench=$(cat "$folder/bench.json")
else
  failed=1
fi

quoted=${about//\\/\\\\}
printf '{"device":"%s","tests":[%s],"bench":%s,"seconds":%d}\n' "${quoted//\"/\\\"}" "$(IFS=, && echo "${rows[*]}")" "$bench" \
  "$((SECONDS - started))" >"$report"
say "$report after $((SECONDS - started)) s"
exit "$failed"
