#!/usr/bin/env bash
# Takes the CUDA backend to a machine with an NVIDIA GPU, a driver, CUDA or PyTorch, and no network.
#   scripts/gpu.sh pack [DIR] [ARCH]     builds for one architecture (default build/gpu, 90a); puts programs, libraries,
#                                        tiny models and scripts into DIR, under 40 MB; needs nvcc and no card;
#                                        TACTUS_FLASHINFER=ON: with FlashInfer's attention (scripts/setup.sh flashinfer)
#   DIR/gpu.sh check                     3 minutes: tests of kernels, executor and tiny models, instructions against
#                                        the record, a sample under compute-sanitizer; logs in DIR/out
#   DIR/gpu.sh measure [OUT.json [OPTION...]]
#                                        6 minutes: the card's rates, steps, served and offline loads of Llama-3.1-8B's
#                                        shape, transformers in the same run (bench/cuda/measure.py)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
readonly check_s=180 most_mb=40

say() { echo "gpu: $*" >&2; }

# Copies programs without their symbols, and the shared libraries that a bare machine lacks: all but the C library's.
# They find these by their run path, so the machine's own programs (PyTorch) keep theirs.
take() {  # DIR, program...
  local dir=$1 file library
  shift
  for file in "$@"; do
    strip -s -o "$dir/bin/$(basename "$file")" "$file"
    ldd "$file" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | while read -r library; do
      case $(basename "$library") in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.*) ;;
        *) [ -e "$dir/lib/$(basename "$library")" ] || strip -s -o "$dir/lib/$(basename "$library")" "$library" ;;
      esac
    done
  done
}

pack() {
  local root=$here/.. dir=${1:-$here/../build/gpu} arch=${2:-90a}
  root=$(cd "$root" && pwd)
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  # The folder is replaced: what else is in it would be lost.
  [ -z "$(ls -A "$dir")" ] || [ -e "$dir/payload.tar.xz" ] || [ "$dir" = "$root/build/gpu" ] ||
    { say "$dir has other files: name an empty folder, or one of an earlier pack"; exit 1; }
  mkdir -p "$root/build"
  local build=$root/build/gpu_$arch
  local tools=("$root"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin)
  local nvcc
  nvcc=$(PATH=$PATH:${tools[0]} command -v nvcc) || { say "no nvcc: scripts/setup.sh cuda installs it"; exit 1; }
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DTACTUS_WARNINGS=OFF \
    -DTACTUS_BUILD_BENCH=ON -DTACTUS_CUDA=ON -DTACTUS_CUDA_ARCHITECTURES="$arch" \
    -DTACTUS_FLASHINFER="${TACTUS_FLASHINFER:-OFF}" \
    -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
    > "$root/build/gpu_configure.log"
  cmake --build "$build" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" \
    --target tactus tactus-tools tactus_cuda device_tests step_cells product_cells > "$root/build/gpu_build.log" ||
    { tail -20 "$root/build/gpu_build.log" >&2; exit 1; }
  "$root/tests/cuda/conformance/run.sh" pack "$nvcc" "$build/conformance" "sm_$arch"

  rm -rf "$dir"
  mkdir -p "$dir"/{bin,lib,root}
  take "$dir" "$build"/{tactus,tactus-tools,bench/cuda/{step,product}_cells} "$build"/tests/cuda/device/device_*_test \
    "$build"/conformance/{instructions,rates}
  strip -s -o "$dir/bin/libtactus_cuda.so" "$build/libtactus_cuda.so"
  # The tiny models, where the tests look for them.
  tar -c -C "$root" tests/golden/data | tar -x -C "$dir/root"
  cp "$root/tests/cuda/conformance/run.sh" "$root/tests/cuda/conformance/results/h200.txt" "$dir/"
  cp -r "$root"/bench/cuda/*.py "$root/bench/cuda/llama-3.1-8b" "$root/scripts/gpu.sh" "$dir/"
  local toolkit=${tools[0]%/bin}
  if [ -x "$toolkit/bin/compute-sanitizer" ]; then
    mkdir -p "$dir"/sanitizer/{bin,lib}
    cp "$toolkit"/bin/{compute-sanitizer,libsanitizer-collection.so} "$dir/sanitizer/bin/"
    cp "$toolkit"/lib/{libInterceptorInjectionTarget,libTreeLauncher*}.so "$dir/sanitizer/lib/"
  fi
  # The programs share most of their code: the dictionary is larger than all of them.
  local folders
  mapfile -t folders < <(cd "$dir" && find . -mindepth 1 -maxdepth 1 -type d ! -name llama-3.1-8b -printf '%f\n' | sort)
  tar -c -C "$dir" "${folders[@]}" | xz --x86 --lzma2=preset=6,dict=192MiB > "$dir/payload.tar.xz"
  (cd "$dir" && rm -r "${folders[@]}")
  git -C "$root" describe --always --dirty --abbrev=12 > "$dir/commit" 2>/dev/null || echo unknown > "$dir/commit"
  local kb
  kb=$(du -sk "$dir" | cut -f1)
  say "$dir has $((kb / 1024)) MB for sm_$arch"
  [ "$kb" -le $((most_mb * 1024)) ] || { say "more than $most_mb MB"; exit 1; }
}

# Stops where no card is, else unpacks the libraries and names those of NVIDIA that the machine has.
prepare() {
  [ -d "$here/bin" ] || [ -e "$here/payload.tar.xz" ] || { say "$here is no folder of 'scripts/gpu.sh pack'"; exit 1; }
  command -v nvidia-smi >/dev/null || { say "no NVIDIA driver is here (no nvidia-smi): nothing was done"; exit 1; }
  local card
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader) && [ -n "$card" ] ||
    { say "the driver finds no card: nothing was done"; exit 1; }
  say "card: $card"
  [ -d "$here/bin" ] || tar -xJf "$here/payload.tar.xz" -C "$here" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/payload.tar.xz" "$here"
  export TACTUS_TEST_ROOT=$here/root
  if [ -z "${TACTUS_CUBLASLT:-}" ]; then
    TACTUS_CUBLASLT=$(python3 -c 'import glob, site, sys
for folder in [*site.getsitepackages(), site.getusersitepackages()]:
    print(*glob.glob(folder + "/nvidia/**/libcublasLt.so.1[23]", recursive=True), sep="\n")' 2>/dev/null |
      grep . | head -1) || true
    local place
    for place in /usr/local/cuda/lib64/libcublasLt.so.13 /usr/local/cuda/lib64/libcublasLt.so.12; do
      [ -n "$TACTUS_CUBLASLT" ] || [ ! -e "$place" ] || TACTUS_CUBLASLT=$place
    done
    if [ -n "$TACTUS_CUBLASLT" ]; then export TACTUS_CUBLASLT; else unset TACTUS_CUBLASLT; fi
  fi
  say "cuBLASLt: ${TACTUS_CUBLASLT:-where the loader finds it}"
}

part() {  # name, most seconds, command: its output goes to out/NAME.log
  local name=$1 most=$2 left=$((check_s - SECONDS)) start=$SECONDS status=0
  shift 2
  [ "$most" -le "$left" ] || most=$left
  if [ "$most" -lt 1 ]; then say "$name: left out, no time is left"; failed=1; return; fi
  timeout -k 5 "$most" "$@" > "$out/$name.log" 2>&1 || status=$?
  case $status in
    0)
      if grep -q '^\[==========\] 0 tests' "$out/$name.log"; then
        say "$name: failed, no test has run"; failed=1
      else
        say "$name: passed in $((SECONDS - start)) s"
      fi ;;
    124 | 137) say "$name: stopped after $most s"; failed=1 ;;
    *) say "$name: failed with $status, the end of $out/$name.log:"; tail -15 "$out/$name.log" >&2; failed=1 ;;
  esac
}

instructions() {
  "$here/bin/instructions" > "$out/instructions.txt" &&
    "$here/run.sh" compare "$out/instructions.txt" "$here/h200.txt"
}

check() {
  prepare
  out=$here/out failed=0
  mkdir -p "$out"
  export -f instructions
  export here out
  part instructions 20 bash -c instructions
  # The other orders of lanes are the emulator's.
  part kernels 60 "$here/bin/device_kernels_test" --gtest_brief=1 \
    --gtest_filter='-*/Reverse:*/Shuffled'
  part golden 60 "$here/bin/device_golden_test" --gtest_brief=1
  part executor 60 "$here/bin/device_executor_test" --gtest_brief=1
  part graphs 30 "$here/bin/device_graphs_test" --gtest_brief=1
  local sanitizer
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:$here/sanitizer/bin command -v compute-sanitizer) || sanitizer=
  if [ -n "$sanitizer" ]; then
    part memcheck 60 "$sanitizer" --error-exitcode 9 "$here/bin/device_kernels_test" --gtest_brief=1 \
      --gtest_filter='*/Forward'
    part racecheck 30 "$sanitizer" --tool racecheck --error-exitcode 9 "$here/bin/device_golden_test" --gtest_brief=1 \
      --gtest_filter='*Bf16*llama_gqa_bf16*'
  else
    say "compute-sanitizer: not here"
    failed=1
  fi
  [ $failed = 0 ] || { say "check failed"; exit 1; }
  say "all passed in $SECONDS s"
}

measure() {
  prepare
  python3 "$here/measure.py" "$here" "${1:-$here/out/measure.json}" "${@:2}"
}

case ${1:-} in
  pack | check | measure) "$@" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
