"""The cells of a run: one server with one model under one load of one scenario, in one repeat."""

from __future__ import annotations


def select(cells: list[dict], **key: object) -> list[dict]:
    return [c for c in cells if all(c[k] == v for k, v in key.items())]


def distinct(cells: list[dict], name: str) -> list:
    found: list = []
    for c in cells:
        if c[name] not in found:
            found.append(c[name])
    return found


def value_of(cell: dict, *path: str) -> float | None:
    found: object = cell["result"]
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found  # type: ignore[return-value]
