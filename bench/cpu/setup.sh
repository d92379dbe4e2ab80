#!/usr/bin/env bash
# Installs the engines that bench/cpu/run.py compares with into a folder outside the repository; finished steps are
# skipped:
#
#   bench/cpu/setup.sh CACHE [IK_SOURCE]
#
#   CACHE/venv          Python packages (requirements.txt): OpenVINO GenAI, and optimum-intel with torch for the export (8 GB)
#   CACHE/llama.cpp     built from the source package of llama-cpp-python
#   CACHE/ik_llama.cpp  built from IK_SOURCE, a checkout of that fork, if given
#   CACHE/models        seeded weights in every engine's format (make_models.py, 7 GB, 2 more while it works)
#
# SHARED_SITE_PACKAGES=DIR: uses packages of this folder, such as torch. JOBS=N: number of parallel compilers (default:
# all cores). SERVING=on: only the parts for bench/slo, without torch and with one model file (3 GB). MIXTURE=on: also
# the mixture of experts for run.py --model mixture (20 GB, 6 more while it works). ISA=avx2 or avxvnni: also llama.cpp
# without newer instructions, for run.py --isa, in CACHE/llama.cpp-ISA.
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${1#-}" != "$1" ]; then
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
ik=${2:-}
jobs=${JOBS:-$(nproc)}
shared=${SHARED_SITE_PACKAGES:-}
serving=${SERVING:-}
mixture=${MIXTURE:-}
isa=${ISA:-}
done_mark=.done
[ -z "$serving" ] || done_mark=.serving
llama_package=llama_cpp_python==0.3.36

# Everything is checked before anything is fetched.
for tool in python3 cmake c++ make tar; do
  command -v "$tool" > /dev/null || fail "$tool is missing: install build-essential, cmake, python3 and python3-venv"
done
python3 -c 'import ensurepip, venv' 2> /dev/null || fail "Python cannot make virtual environments: install python3-venv"
case $jobs in '' | *[!0-9]* | 0) fail "JOBS='$jobs' is not a number of compilers; use for example JOBS=2" ;; esac
case $isa in '' | avx2 | avxvnni) ;; *) fail "ISA='$isa' is not avx2 or avxvnni" ;; esac
if [ -n "$ik" ]; then
  [ -f "$ik/CMakeLists.txt" ] || fail "IK_SOURCE '$ik' is not a checkout of ik_llama.cpp: it has no CMakeLists.txt"
  ik=$(cd "$ik" && pwd)
fi
[ -z "$serving" ] || [ -z "$mixture" ] || fail "SERVING=on has no part for the mixture: leave out MIXTURE=on or SERVING=on"
[ -z "$shared" ] || [ -d "$shared" ] || fail "SHARED_SITE_PACKAGES '$shared' is not a folder"
mkdir -p "$1" 2> /dev/null || fail "cannot create the folder '$1': give a writable path"
[ -w "$1" ] || fail "cannot write to '$1': give a writable folder"
cache=$(cd "$1" && pwd)
need=0
has() { [ -e "$cache/$1/.done" ] || [ -e "$cache/$1/$done_mark" ]; }
has venv || need=$((need + $([ -n "$shared$serving" ] && echo 1 || echo 8)))
has models || need=$((need + $([ -n "$serving" ] && echo 1 || echo 9)))
[ -z "$mixture" ] || [ -e "$cache/models/.mixture" ] || need=$((need + 26))
[ -x "$cache/llama.cpp/llama_driver" ] || need=$((need + 1))
free=$(($(df -Pk "$cache" | awk 'NR == 2 { print $4 }') / 1048576))
[ "$free" -ge "$need" ] || fail "$cache has $free GiB free and the missing files need $need; give a folder on a larger disk"

log=$cache/setup.log
step="checking"
trap 'status=$?; [ $status -eq 0 ] || { say "failed with status $status while $step; last lines of $log:"; tail -n 5 "$log" >&2; }' EXIT
: > "$log"

if ! has venv; then
  step="installing Python packages"
  say "$step"
  [ -e "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv" >> "$log" 2>&1
  if [ -n "$shared" ]; then
    echo "$shared" > "$("$cache/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/shared.pth"
  fi
  wanted=$here/requirements.txt
  if [ -n "$serving" ]; then
    wanted=$cache/venv/requirements.txt
    grep -E '^(openvino|gguf|numpy)' "$here/requirements.txt" > "$wanted"      # without the packages that export models
  fi
  "$cache/venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" >> "$log" 2>&1
  touch "$cache/venv/$done_mark"
fi

# With AMX llama.cpp ends with a segmentation fault at its first token (its own server too).
no_amx=
grep -qw amx_int8 /proc/cpuinfo && no_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"

# build NAME SOURCE [compiler flag [CMake options [target]]]: the server, or another target, and our driver against its
# library.
build() {
  local name=$1 source=$2 flag=${3:-} options=${4:--DGGML_NATIVE=ON} target=${5:-llama-server} out=$cache/$1
  mkdir -p "$out"
  if [ ! -e "$out/bin/$target" ]; then
    step="building $name"
    say "$step with $jobs compilers at once (minutes)"
    # shellcheck disable=SC2086
    cmake -S "$source" -B "$out/build" -DCMAKE_BUILD_TYPE=Release $options -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF \
      -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DGGML_IQK_FA_ALL_QUANTS=OFF -DCMAKE_C_FLAGS="$no_amx" -DCMAKE_CXX_FLAGS="$no_amx" >> "$log" 2>&1
    cmake --build "$out/build" --target "$target" -j "$jobs" >> "$log" 2>&1
    mkdir -p "$out/bin"
    if [ "$target" = llama-server ]; then cp "$out/build/bin/$target" "$out/bin/" >> "$log" 2>&1; else touch "$out/bin/$target"; fi
  fi
  if [ ! -x "$out/llama_driver" ] || [ "$here/llama_driver.cc" -nt "$out/llama_driver" ]; then
    step="building $name's driver"
    say "$step"
    # Static libraries that need each other: in one group, and OpenMP as their build found it.
    # shellcheck disable=SC2086,SC2046
    c++ -O2 -std=c++17 $flag -I"$source/include" -I"$source/ggml/include" "$here/llama_driver.cc" -o "$out/llama_driver" \
      -Wl,--start-group $(find "$out/build/src" "$out/build/ggml" -name '*.a') -Wl,--end-group -fopenmp -lpthread -ldl >> "$log" 2>&1
  fi
}

if [ ! -x "$cache/llama.cpp/llama_driver" ] || [ ! -x "$cache/llama.cpp/bin/llama-server" ] || [ "$here/llama_driver.cc" -nt "$cache/llama.cpp/llama_driver" ]; then
  source=$cache/llama.cpp/source
  if [ ! -e "$source/CMakeLists.txt" ]; then
    step="fetching llama.cpp from the source package $llama_package"
    say "$step"
    mkdir -p "$source"
    "$cache/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-python "$llama_package" -d "$cache/llama.cpp" >> "$log" 2>&1
    tar -xzf "$cache"/llama.cpp/llama_cpp_python-*.tar.gz -C "$source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*' >> "$log" 2>&1
  fi
  build llama.cpp "$source"
  echo "source package $llama_package${no_amx:+, without AMX}" > "$cache/llama.cpp/version.txt"
fi

if [ -n "$isa" ]; then
  options="-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
  [ "$isa" = avx2 ] || options="$options -DGGML_AVX_VNNI=ON"
  build "llama.cpp-$isa" "$cache/llama.cpp/source" "" "$options" llama # the library: run.py --isa needs no server
  echo "source package $llama_package, for $isa" > "$cache/llama.cpp-$isa/version.txt"
fi

if [ -n "$ik" ]; then
  build ik_llama.cpp "$ik" -DTACTUS_IK
  { git -C "$ik" log -1 --format='commit %h of %cs' 2>/dev/null || echo "a copy without history"; } > "$cache/ik_llama.cpp/version.txt"
fi

if ! has models; then
  step="writing the models"
  say "$step (minutes)"
  mkdir -p "$cache/models"
  # shellcheck disable=SC2046
  "$cache/venv/bin/python" "$here/make_models.py" --out "$cache/models" --model dense $([ -z "$serving" ] || echo --only gguf --formats int4) >> "$log" 2>&1
  touch "$cache/models/$done_mark"
fi
if [ -n "$mixture" ] && [ ! -e "$cache/models/.mixture" ]; then
  step="writing the mixture"
  say "$step (minutes)"
  "$cache/venv/bin/python" "$here/make_models.py" --out "$cache/models" --model mixture >> "$log" 2>&1
  touch "$cache/models/.mixture"
fi
say "done: bench/$([ -n "$serving" ] && echo slo || echo cpu)/run.py --cache $cache"
