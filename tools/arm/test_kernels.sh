#!/bin/sh
# Builds the kernels and their tests for 64-bit Arm and runs the tests of packed weights under emulation: with every extension,
# with dotprod only, and with none. Needs Debian's g++-aarch64-linux-gnu, qemu-user and googletest; exits 77 if one is
#   missing. tools/arm/test_kernels.sh [BUILD_DIR] [GTEST_FILTER]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/arm}
filter=${2:-Packed*:-PackedAmx*}
gtest=${GOOGLETEST_SOURCE:-/usr/src/googletest/googletest}
for tool in aarch64-linux-gnu-g++ qemu-aarch64 cmake ninja; do
  command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed" >&2; exit 77; }
done
[ -d "$gtest" ] || { echo "skipped: no googletest sources at $gtest (set GOOGLETEST_SOURCE)" >&2; exit 77; }
cmake -S "$root/tools/arm" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGOOGLETEST_SOURCE="$gtest" \
  -DCMAKE_TOOLCHAIN_FILE="$root/tools/arm/aarch64-linux-gnu.cmake" > /dev/null
cmake --build "$build" --target kernels_test
for cpu in max cortex-a76 cortex-a53; do
  echo "== $cpu"
  TACTUS_EMULATED=1 qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$build/kernels_tests/kernels_test" --gtest_brief=1 --gtest_filter="$filter"
done
