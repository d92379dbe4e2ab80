#!/usr/bin/env bash
# Configures and builds a preset: scripts/build.sh [--serving] PRESET [target ...]. Targets: tactus (the server),
# programs (every command), or any ninja target; default: everything, including tests. --serving configures a new build
# folder only for serving on this machine: no kernels for other CPUs or cards, no tests. Any other build adds what the
# folder lacks. Shows percent and time left, and the compiler's output on errors.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
serving=0
case ${1:-} in
  --serving) serving=1; shift ;;
  --all-kernels) shift ;;  # default: every other build has all kernels
esac
preset=$1
shift
cd "$root"
log=build/$preset/configure.log
mkdir -p "build/$preset"
# Two builds must not share a folder: scripts/serve.sh has one in the background.
exec 9> "build/$preset/build.lock"
if command -v flock > /dev/null && ! flock --nonblock 9; then
  echo "build: waiting for another build in build/$preset" >&2
  flock 9
fi

tests=OFF
[ $# -gt 0 ] || tests=ON
for target in "$@"; do
  case $target in tactus|tactus-tools|tactus-epp|tactus-grammar|programs) ;; *) tests=ON ;; esac
done
cached() { sed -n "s/^$1:[A-Z]*=//p" "build/$preset/CMakeCache.txt" 2>/dev/null; }
configure=()
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "build: configuring preset '$preset'" >&2
  configure=(--preset "$preset")
  if [ $serving = 1 ]; then
    configure+=(-DTACTUS_KERNEL_SETS=native)
    # Architectures from 9.0 have instructions that only their letter allows.
    card=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .) || card=
    case $card in 90 | 100 | 120) card+=a ;; esac
    if [[ $card =~ ^[0-9]+a?$ ]]; then
      configure+=("-DTACTUS_CUDA_ARCHITECTURES=$card")
    else
      configure+=(-DTACTUS_CUDA=OFF)
    fi
  fi
  [ $tests = ON ] || configure+=(-DTACTUS_BUILD_TESTS=OFF)   # GoogleTest may be missing
elif [ $serving = 0 ] && [[ $preset != fuzz* ]]; then
  [ "$(cached TACTUS_KERNEL_SETS)" = all ] ||
    configure+=(-DTACTUS_KERNEL_SETS=all -UTACTUS_CUDA -UTACTUS_CUDA_ARCHITECTURES)
  [ $tests = OFF ] || [ "$(cached TACTUS_BUILD_TESTS)" != OFF ] || configure+=(-DTACTUS_BUILD_TESTS=ON)
  [ ${#configure[@]} -eq 0 ] || configure+=(-S . -B "build/$preset")
fi
if [ ${#configure[@]} -gt 0 ] && ! cmake "${configure[@]}" > "$log" 2>&1; then cat "$log" >&2; exit 1; fi
args=()
[ $# -gt 0 ] && args=(--target "$@")
case " $* " in  # the server loads it on a machine with a card
  *" tactus "*) ! grep -q '^build tactus_cuda: ' "build/$preset/build.ninja" || args+=(tactus_cuda) ;;
esac
echo "build: preset '$preset', ${*:-everything} (the first build takes minutes, later ones seconds)" >&2
# Converts Ninja's "[3/50] Building ..." to percent and time left: in place on a terminal, else a line for every tenth.
# Other output (the compiler's errors) is passed through.
progress() {
  local line percent left text start=$SECONDS shown=-1 clear=
  [ ! -t 2 ] || clear=$'\r\e[K'
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      text=$(printf 'build: %3d %%' "$percent")
      # The first steps are the longest and would distort the estimate.
      if [ "$percent" -ge 25 ]; then
        left=$(((SECONDS - start) * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
        text+=$(printf ', about %d:%02d min left' $((left / 60)) $((left % 60)))
      fi
      if [ -n "$clear" ]; then printf '%s%s' "$clear" "$text"
      elif [ $((percent / 10)) -gt $((shown / 10)) ] || [ "$shown" -lt 0 ]; then printf '%s\n' "$text"; fi
      [ "$percent" -le "$shown" ] || shown=$percent
    elif [ "$line" != "ninja: no work to do." ]; then
      printf '%s%s\n' "$clear" "$line"
    fi
  done
  [ -z "$clear" ] || printf '%s' "$clear"
}
cmake --build "build/$preset" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" "${args[@]}" 2>&1 | progress >&2
