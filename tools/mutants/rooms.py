"""Rooms of the sources and of their tests, which lie in folders of the same names (src/layers.txt)."""

import functools
import pathlib
import re

LAYERS = pathlib.Path(__file__).resolve().parents[2] / "src/layers.txt"


@functools.cache
def rooms() -> frozenset[str]:
    found, district = set(), ""
    for line in LAYERS.read_text().splitlines():
        if match := re.match(r"([a-z_]+):", line):
            district = match[1]
        elif match := re.match(r"  ([a-z_]+):", line):
            found.add(f"{district}/{match[1]}")
    return frozenset(found)


def room_of(parts: tuple[str, ...]) -> str:
    """`core_kv` for the path core/kv/..., `sim` for sim/..., below src/ or tests/; "" for none."""
    if "/".join(parts[:2]) in rooms():
        return "_".join(parts[:2])
    return parts[0] if parts else ""
