#!/usr/bin/env bash
# Configures and builds a preset: scripts/build.sh [--serving] PRESET [target ...]. Targets: tactus (what serves),
# programs (every command), anything that ninja knows; without one everything, tests too.
# --serving makes a new build folder for what serves on this machine alone: no kernels of other CPUs, no tests. Any other
# build adds what the folder lacks. Shows percent and time left, and what the compiler says where something fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
serving=0
case ${1:-} in
  --serving) serving=1; shift ;;
  --all-kernels) shift ;;  # as without: every other build has all
esac
preset=$1
shift
cd "$root"
log=build/$preset/configure.log
mkdir -p "build/$preset"

tests=OFF
[ $# -gt 0 ] || tests=ON
for target in "$@"; do
  case $target in tactus|tactus-tools|tactus-epp|programs) ;; *) tests=ON ;; esac
done
cached() { sed -n "s/^$1:[A-Z]*=//p" "build/$preset/CMakeCache.txt" 2>/dev/null; }
configure=()
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "build: configuring preset '$preset'" >&2
  configure=(--preset "$preset")
  [ $serving = 0 ] || configure+=(-DTACTUS_KERNEL_SETS=native)
  [ $tests = ON ] || configure+=(-DTACTUS_BUILD_TESTS=OFF)   # GoogleTest may be missing
elif [ $serving = 0 ] && [ "$preset" != fuzz ]; then
  [ "$(cached TACTUS_KERNEL_SETS)" = all ] || configure+=(-DTACTUS_KERNEL_SETS=all)
  [ $tests = OFF ] || [ "$(cached TACTUS_BUILD_TESTS)" != OFF ] || configure+=(-DTACTUS_BUILD_TESTS=ON)
  [ ${#configure[@]} -eq 0 ] || configure+=(-S . -B "build/$preset")
fi
if [ ${#configure[@]} -gt 0 ] && ! cmake "${configure[@]}" > "$log" 2>&1; then cat "$log" >&2; exit 1; fi
args=()
[ $# -gt 0 ] && args=(--target "$@")
echo "build: preset '$preset', ${*:-everything} (the first build takes minutes, later ones seconds)" >&2
# Ninja's "[3/50] Building ..." becomes percent and time left: on a terminal in place, else a line for every tenth.
terminal=0
[ -t 2 ] && terminal=1
progress() {
  awk -v terminal="$terminal" '
    function now() { "date +%s" | getline t; close("date +%s"); return t }
    BEGIN { start = now(); shown = -1 }
    match($0, /^\[[0-9]+\/[0-9]+\] /) {
      split(substr($0, 2, RLENGTH - 3), n, "/")
      percent = int(100 * n[1] / n[2])
      passed = now() - start
      left = n[1] > 0 ? int(passed * (n[2] - n[1]) / n[1] + 0.5) : 0
      time = left >= 60 ? sprintf("%d min %02d s", left / 60, left % 60) : left " s"
      # The first steps are the longest ones: they say nothing of the rest.
      text = sprintf("build: %3d %%", percent) (percent < 25 ? "" : ", about " time " left")
      if (terminal) { printf "\r%s\033[K", text; fflush() }
      else if (int(percent / 10) > int(shown / 10)) { print text; fflush() }
      if (percent > shown) shown = percent
      next
    }
    /^ninja: (no work to do|Entering)/ { next }
    { if (terminal && shown >= 0) printf "\r\033[K"; print; fflush() }
    END { if (terminal && shown >= 0) printf "\r\033[K" }'
}
cmake --build "build/$preset" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" "${args[@]}" 2>&1 | progress >&2
