#!/usr/bin/env bash
# clang-tidy 19 over the lines that differ from a revision (default: everything): scripts/tidy.sh [REVISION]. A finding is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build fuzz tidy
# A configuration without precompiled headers: clang cannot read GCC's.
cmake --preset fuzz -B build/tidy -DTACTUS_BUILD_FUZZERS=OFF -DTACTUS_PCH=OFF -DTACTUS_KERNEL_SETS=all > /dev/null
ninja -C build/tidy -t targets all | sed -n 's/: CUSTOM_COMMAND$//p' | grep -E '\.(h|cc)$' | xargs ninja -C build/tidy > /dev/null  # generated sources
exec python3 tests/lint/tidy.py build/tidy "$@"
