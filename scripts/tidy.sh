#!/usr/bin/env bash
# clang-tidy over the sources that differ from a base revision (default: all): scripts/tidy.sh [REVISION]
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy-19 >/dev/null || { echo "tidy: apt-get install clang-tidy-19" >&2; exit 1; }
# A configuration without precompiled headers: clang cannot read GCC's.
[ -f build/tidy/compile_commands.json ] ||
  cmake --preset fuzz -B build/tidy -DTACTUS_BUILD_FUZZERS=OFF -DTACTUS_BUILD_TESTS=ON > /dev/null
if [ $# -gt 0 ]; then files=$(git diff --name-only "$1" -- 'src/*.cc' ':!src/python'); else files=$(git ls-files 'src/*.cc' ':!src/python'); fi
[ -z "$files" ] || echo "$files" | xargs -P "$(nproc)" -n 4 clang-tidy-19 -p build/tidy --quiet
