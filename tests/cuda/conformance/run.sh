#!/usr/bin/env bash
# Builds the two programs (needs a CUDA compiler), runs them (needs a card), compares their output with a record.
#   run.sh pack NVCC DIR [ARCH...]   compiles into DIR; ARCH as in sm_90a (the default), sm_80
#   run.sh run DIR OUT [CUBLASLT]    writes OUT/instructions.txt and OUT/rates.json; CUBLASLT is a library's path
#   run.sh compare NEW RECORDED      names the cases that differ; exit status 1 if any differ, if none is in both, or if
#                                    a card of the record's compute capability has not run all of the record's
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

pack() {
  local nvcc=$1 dir=$2
  shift 2
  local targets=()
  for arch in "${@:-sm_90a}"; do targets+=(-gencode "arch=${arch/sm_/compute_},code=$arch"); done
  mkdir -p "$dir"
  local flags=(-std=c++17 -O2 "${targets[@]}" -cudart static -Xcompiler "-Wall,-Wextra")
  for part in instructions warp matrix math pairs; do
    "$nvcc" "${flags[@]}" -c "$here/$part.cu" -o "$dir/$part.o"
  done
  "$nvcc" "${flags[@]}" "$dir"/{instructions,warp,matrix,math,pairs}.o -o "$dir/instructions"
  "$nvcc" "${flags[@]}" "$here/rates.cu" -ldl -o "$dir/rates"
}

run() {
  local dir=$1 out=$2
  mkdir -p "$out"
  local date driver
  date=$(date -u +%Y-%m-%d)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader)
  timeout 120 "$dir/instructions" | sed "1s/^# /# $date, driver $driver, /" >"$out/instructions.txt"
  timeout 240 "$dir/rates" "${3-libcublasLt.so}" |
    sed "1s/.*/{\n \"date\": \"$date\",\n \"driver\": \"$driver\",\n \"command\": \"run.sh run DIR OUT CUBLASLT\",/" >"$out/rates.json"
}

# Lines that begin with # describe the machine. If a card lacks an instruction, its cases are in one file only.
compare() {
  awk '
    /^#/ { if (match($0, /compute capability [0-9.]+/)) card[FILENAME] = substr($0, RSTART, RLENGTH); next }
    { name = $1 " " $2; count[FILENAME]++ }
    FILENAME == ARGV[1] { new[name] = new[name] $0 "\n"; next }
    { recorded[name] = recorded[name] $0 "\n" }
    END {
      for (name in new) {
        if (!(name in recorded)) { print "not recorded: " name; lone++ }
        else if (new[name] != recorded[name]) { print "differs: " name; differ++ }
        else same++
      }
      for (name in recorded) if (!(name in new)) { print "not run: " name; lone++; missing++ }
      printf "%d cases the same, %d differ, %d in one file alone\n", same, differ, lone
      exit differ > 0 || same == 0 || (missing > 0 && card[ARGV[1]] == card[ARGV[2]])
    }' "$1" "$2"
}

case "${1-}" in
  pack | run | compare) "$@" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
