#!/usr/bin/env bash
# Compares oneDNN's products with our own, alternating: bench/kernels/onednn.sh FOLDER [BUILD]
# Installs the library in FOLDER (PyPI: onednn-cpu-gomp and onednn-devel-cpu-gomp 2023.2.0, oneDNN 3.2, Apache-2.0).
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
build=${2:-build/release}
if [ ! -e "$folder/lib/libdnnl.so.3" ]; then
  pip download -q --no-deps -d "$folder" onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0
  for wheel in "$folder"/*.whl; do unzip -qo "$wheel" -d "$folder/wheel"; done
  cp -r "$folder"/wheel/*.data/data/* "$folder"
fi
c++ -O2 -std=c++20 -Isrc -Iinclude -I"$folder/include" bench/kernels/onednn_bench.cc src/base/system_clock.cc -o "$folder/onednn_bench" -L"$folder/lib" -ldnnl -Wl,-rpath,"$folder/lib"
for turn in 1 2; do
  OMP_NUM_THREADS=${THREADS:-2} "$folder/onednn_bench"
  "$build/bench/kernels/packed_bench" "${THREADS:-2}"
done
