#!/usr/bin/env bash
# Puts what bench/cpu/run.py compares with into a folder outside the repository, and does nothing that is already done:
#
#   bench/cpu/setup.sh CACHE [IK_SOURCE]
#
#   CACHE/venv          Python packages (requirements.txt): OpenVINO GenAI, and optimum-intel with torch for the export (8 GB)
#   CACHE/llama.cpp     built from the source package of llama-cpp-python
#   CACHE/ik_llama.cpp  built from IK_SOURCE, a checkout of that fork, where one is given
#   CACHE/models        seeded weights in every engine's format (make_models.py, 7 GB)
#
# SHARED_SITE_PACKAGES=DIR: packages that are there (torch, say) are used from there.
set -euo pipefail
if [ $# -lt 1 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cache=$(cd "$1" && pwd)
ik=${2:-}
llama_package=llama_cpp_python==0.3.36
jobs=${JOBS:-$(nproc)}
say() { echo "setup: $*" >&2; }

if [ ! -e "$cache/venv/.done" ]; then
  say "Python packages"
  [ -e "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv"
  if [ -n "${SHARED_SITE_PACKAGES:-}" ]; then
    echo "$SHARED_SITE_PACKAGES" > "$("$cache/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/shared.pth"
  fi
  "$cache/venv/bin/pip" install -q -r "$here/requirements.txt"
  touch "$cache/venv/.done"
fi

# build NAME SOURCE [compiler flag]: the server, and our driver against its library.
build() {
  local name=$1 source=$2 flag=${3:-} out=$cache/$1
  mkdir -p "$out"
  if [ ! -x "$out/bin/llama-server" ]; then
    say "building $name (log: $out/build.log)"
    cmake -S "$source" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF \
      -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$out/bin" > "$out/build.log" 2>&1
    cmake --build "$out/build" --target llama-server llama-bench llama-batched-bench -j "$jobs" >> "$out/build.log" 2>&1
  fi
  if [ ! -x "$out/llama_driver" ] || [ "$here/llama_driver.cc" -nt "$out/llama_driver" ]; then
    say "building $name's driver"
    # Static libraries that need each other: in one group, and OpenMP as their build found it.
    # shellcheck disable=SC2086,SC2046
    c++ -O2 -std=c++17 $flag -I"$source/include" -I"$source/ggml/include" "$here/llama_driver.cc" -o "$out/llama_driver" \
      -Wl,--start-group $(find "$out/build/src" "$out/build/ggml" -name '*.a') -Wl,--end-group -fopenmp -lpthread -ldl
  fi
}

if [ ! -x "$cache/llama.cpp/llama_driver" ] || [ "$here/llama_driver.cc" -nt "$cache/llama.cpp/llama_driver" ]; then
  source=$cache/llama.cpp/source
  if [ ! -e "$source/CMakeLists.txt" ]; then
    say "fetching llama.cpp from the source package $llama_package"
    mkdir -p "$source"
    "$cache/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-python "$llama_package" -d "$cache/llama.cpp"
    tar -xzf "$cache"/llama.cpp/llama_cpp_python-*.tar.gz -C "$source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
  fi
  build llama.cpp "$source"
  echo "source package $llama_package" > "$cache/llama.cpp/version.txt"
fi

if [ -n "$ik" ]; then
  build ik_llama.cpp "$ik" -DTACTUS_IK
  { git -C "$ik" log -1 --format='commit %h of %cs' 2>/dev/null || echo "a copy without history"; } > "$cache/ik_llama.cpp/version.txt"
fi

say "models"
"$cache/venv/bin/python" "$here/make_models.py" --out "$cache/models" >&2
say "done: bench/cpu/run.py --cache $cache"
