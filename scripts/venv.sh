#!/usr/bin/env bash
# Makes a Python environment with the packages of a requirements file, and updates it when that file changes:
# scripts/venv.sh FOLDER REQUIREMENTS [further options of pip]
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cmp -s "$2" "$1/requirements.installed" 2>/dev/null; then
  echo "venv: installing the Python packages of $2 into $1" >&2
  python3 -m venv --clear "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check "${@:3}" -r "$2"
  "$1/bin/python" tests/lint/shared_files.py
  cp "$2" "$1/requirements.installed"
fi
