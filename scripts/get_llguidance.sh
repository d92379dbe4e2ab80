#!/usr/bin/env bash
# Fetches llguidance (MIT), which constrains answers to JSON schemas, regexes and grammars, stores its library in the
# cache folder and prints its path. The library is extracted from the Python package llguidance; its Python symbols are
# marked weak, so that a program without Python can load it (scripts/weaken_python_symbols.py). Later calls only print
# the path.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
version=1.9.1
cache=${TACTUS_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tactus}
folder=$cache/lib
file=$folder/libllguidance-$version.so

# SHA-256 of the wheel, and of the library extracted from it.
case $(uname -m) in
  x86_64)
    platform=manylinux_2_31_x86_64
    wheel_sha256=dfac6021d9c4c5ef16b3a1d336c05ca5e8208ff30dec29d1c63ebcafbee3a346
    sha256=8f23d34aa4c34e1fbd05552581863c74d322689ed55c6627e4d34aa830b4f6f0 ;;
  aarch64)
    platform=manylinux_2_31_aarch64
    wheel_sha256=31b75c9f6e09d000d062ef7e4eb3bcb3759fc1eda5619be50fdd8a830b0e8bdf
    sha256=ccd6179c7408b43634686a26e41541ecef78333f4183792b851f41e0a3ef54c1 ;;
  *) echo "grammars: llguidance is published for x86-64 and aarch64, not for $(uname -m)" >&2; exit 1 ;;
esac

check() { echo "$2  $1" | sha256sum --check --status; }

if [ -f "$file" ]; then
  if check "$file" "$sha256"; then echo "$file"; exit 0; fi
  echo "grammars: $file is damaged (SHA-256 differs); fetching it again" >&2
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "grammars: fetching llguidance $version (3 MB, MIT) from the Python package of that name" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --platform "$platform" \
  --dest "$work" "llguidance==$version" >&2; then
  cat >&2 <<EOT
grammars: llguidance could not be fetched (no network, or no Python package index within reach). All works without it but
  structured output: response_format, guided decoding and required tool calls are refused.
  To put it there by hand, take _lib.abi3.so out of the wheel llguidance-$version-cp39-abi3-$platform.whl and run
    scripts/weaken_python_symbols.py _lib.abi3.so $file
EOT
  exit 1
fi
wheel=$(echo "$work"/llguidance-*.whl)
if ! check "$wheel" "$wheel_sha256"; then
  echo "grammars: the fetched wheel has SHA-256 $(sha256sum "$wheel" | cut -d' ' -f1), expected $wheel_sha256; not used" >&2
  exit 1
fi
python3 -m zipfile --extract "$wheel" "$work/wheel"
"$scripts/weaken_python_symbols.py" "$work/wheel/llguidance/_lib.abi3.so" "$work/library.so"
if ! check "$work/library.so" "$sha256"; then
  echo "grammars: the SHA-256 of the library extracted from the wheel is not $sha256; not used" >&2
  exit 1
fi
mv "$work/library.so" "$file"
echo "$file"
