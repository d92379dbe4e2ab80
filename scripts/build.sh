#!/usr/bin/env bash
# Configures (once) and builds a preset: scripts/build.sh PRESET [target ...]. Quiet unless something fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
preset=$1
shift
cd "$root"
log=build/$preset/configure.log
mkdir -p "build/$preset"
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "build: configuring preset '$preset'" >&2
  if ! cmake --preset "$preset" > "$log" 2>&1; then cat "$log" >&2; exit 1; fi
fi
args=()
[ $# -gt 0 ] && args=(--target "$@")
echo "build: preset '$preset' ${*:-everything} (the first build takes minutes, later ones seconds)" >&2
cmake --build "build/$preset" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" "${args[@]}" >&2
