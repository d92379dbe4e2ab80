"""Writes and reads the JSON files of data/cost: one member per line, and in lists of records one record per line."""

from __future__ import annotations

import json
import pathlib


def text_of(document: dict) -> str:
    short = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    members = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], (dict, str)):
            value = "[\n    " + ",\n    ".join(short(item) for item in value) + "\n  ]"
        else:
            value = short(value)
        members.append(f"  {json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(members) + "\n}\n"


# Tables that scripts also replace alone. Whatever writes a file, their sources and errors are its last, in this order.
REPLACED = ("exchange", "experts")


def in_order(document: dict) -> dict:
    rank = lambda name: REPLACED.index(name) + 1 if name in REPLACED else 0
    sources = sorted(document["sources"], key=lambda source: rank(source.split(":")[0]))
    errors = sorted(document["errors"], key=lambda error: rank(error["op"]))
    return document | {"sources": sources, "errors": errors}


def replaced(document: dict, op: str, after: str, records: list[dict], error: dict, source: str) -> dict:
    """Another table of `op`, behind that of `after`, with its error and its source, and nothing else."""
    out = {}
    for key, value in document.items():
        if key == op:
            continue
        if key == "sources":
            value = [s for s in value if not s.startswith(f"{op}:")] + [source]
        if key == "errors":
            value = [e for e in value if e["op"] != op] + [error]
        out[key] = value
        if key == after:
            out[op] = records
    return in_order(out)


def write(path: pathlib.Path, document: dict) -> None:
    path.write_text(text_of(document), encoding="utf-8")


def read(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
