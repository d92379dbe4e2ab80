#!/usr/bin/env python3
"""Names without linkage that one source uses from another, within the units in which a module's sources are compiled
together.

A name in an unnamed namespace is meant for its own file. Compiled together with other files it can hide a name of a
header for later sources, without a warning. docs/internals/build.md.

  tests/lint/unity_names.py build/release [PART_OF_A_UNIT'S_PATH ...]

Needs libclang (tools/requirements.txt) and clang 19's headers (scripts/setup.sh fuzz). Takes some seconds for each
unit.
"""

import json
import pathlib
import shlex
import subprocess
import sys

from clang import cindex

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCES = (
    cindex.CursorKind.DECL_REF_EXPR,
    cindex.CursorKind.CALL_EXPR,
    cindex.CursorKind.MEMBER_REF_EXPR,
    cindex.CursorKind.OVERLOADED_DECL_REF,
)


def is_internal(declared):
    """Whether a declaration is within an unnamed namespace, or static at namespace scope."""
    parent = declared.semantic_parent
    beside = parent is not None and parent.kind == cindex.CursorKind.NAMESPACE
    if beside and declared.storage_class == cindex.StorageClass.STATIC:
        return True
    while parent is not None and parent.kind != cindex.CursorKind.TRANSLATION_UNIT:
        if parent.kind == cindex.CursorKind.NAMESPACE and not parent.spelling:
            return True
        parent = parent.semantic_parent
    return False


def uses_of_others(node, top=True):
    """(file, line, name, declaring file) of each use of another source's name."""
    for child in node.get_children():
        file = child.location.file
        if file is None or (top and not file.name.startswith(str(ROOT))):
            continue
        declared = child.referenced
        if (
            (child.kind.is_reference() or child.kind in REFERENCES)
            and declared is not None
            and declared.location.file is not None
            and declared.location.file.name.endswith(".cc")
            and declared.location.file.name != file.name
            and is_internal(declared)
        ):
            yield file.name, child.location.line, declared.spelling, declared.location.file.name
        yield from uses_of_others(child, top=False)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    sys.setrecursionlimit(100_000)
    headers = subprocess.run(["clang-19", "-print-resource-dir"], capture_output=True, text=True, check=True).stdout
    index = cindex.Index.create()
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    found, units = set(), 0
    for command in commands:
        file = command["file"]
        if "/Unity/unity_" not in file or "/src/" not in file or not all(part in file for part in sys.argv[2:]):
            continue
        words = shlex.split(command["command"])
        flags = [word for word in words if word.startswith(("-I", "-D", "-std", "-m"))]
        flags += [f"-isystem{words[i + 1]}" for i, word in enumerate(words[:-1]) if word == "-isystem"]
        unit = index.parse(file, [*flags, "-w", "-ferror-limit=0", "-resource-dir", headers.strip()])
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            print(f"unity_names: {file}: {errors[0]}", file=sys.stderr)
            return 1
        units += 1
        found.update(uses_of_others(unit.cursor))
    for file, line, name, of in sorted(found):
        print(f"{file}:{line}: {name} is a name of {of}: call one of them otherwise")
    print(f"unity_names: {units} units, {len(found)} uses of another source's name")
    return 1 if found or units == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
