#!/usr/bin/env python3
"""clang-tidy over the units that hold changed sources and headers. A finding in a changed line is an error.

  tests/lint/tidy.py BUILD [REVISION]     changed since REVISION (default: every file of src and include)

BUILD has compile_commands.json of a clang configuration without precompiled headers (scripts/tidy.sh makes it). A
header is read with the sources of its module.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = ("src/*.cc", "src/*.h", "include/*.h", ":!src/python")


def git(*arguments):
    return subprocess.run(
        ["git", *arguments, "--", *PATTERNS], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def lines_of(revision):
    """{path from the root: ranges of lines to check; empty: all of them}."""
    if not revision:
        return {name: [] for name in git("ls-files").split()}
    found, name = {}, None
    for line in git("diff", "--unified=0", "--diff-filter=d", revision).splitlines():
        if line.startswith("+++ b/"):
            name = line[len("+++ b/") :]
        elif change := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(change[1]), int(change[2] or 1)
            if count > 0:
                found.setdefault(name, []).append([first, first + count - 1])
    return found


def sources_of(unit):
    """Paths from the root of the sources of a compiled file."""
    path = pathlib.Path(unit)
    if not path.name.startswith("unity_"):
        return [str(path.relative_to(ROOT))] if path.is_relative_to(ROOT / "src") else []
    return [
        str(pathlib.Path(name).relative_to(ROOT))
        for name in re.findall(r'#include "([^"]+)"', path.read_text())
        if pathlib.Path(name).is_relative_to(ROOT / "src")
    ]


def units_of(build, files):
    """The compiled files of the build that contain one of these sources, or a source in the folder of one of these
    headers."""
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {name for name in files if name.endswith(".cc")}
    folders = {str(pathlib.Path(name).parent) for name in files if name.endswith(".h")}
    for unit in sorted({command["file"] for command in commands}):
        held = sources_of(unit)
        if any(name in sources or str(pathlib.Path(name).parent) in folders for name in held):
            yield unit


def main():
    build = pathlib.Path(sys.argv[1])
    files = lines_of(sys.argv[2] if len(sys.argv) > 2 else None)
    units = list(units_of(build, files))
    print(f"tidy: {len(files)} files in {len(units)} units", file=sys.stderr)
    only = json.dumps([{"name": name, "lines": lines} if lines else {"name": name} for name, lines in files.items()])
    command = ["clang-tidy-19", "-p", str(build), "--quiet", f"--line-filter={only}"]

    def check(unit):
        return subprocess.run([*command, unit], capture_output=True, text=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for i, (unit, done) in enumerate(zip(units, pool.map(check, units)), 1):
            print(f"tidy: {i} of {len(units)}, {os.path.relpath(unit, build)}", file=sys.stderr)
            failed += done.returncode != 0
            print(done.stdout, end="")
            if done.returncode != 0 and not done.stdout:
                print(done.stderr, end="")
    if failed:
        sys.exit(f"tidy: findings in {failed} of {len(units)} units, see above")


if __name__ == "__main__":
    main()
