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


def write(path: pathlib.Path, document: dict) -> None:
    path.write_text(text_of(document), encoding="utf-8")


def read(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
