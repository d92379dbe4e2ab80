"""Requests as the bodies that the HTTP API takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def body_text(body: Mapping[str, Any]) -> str:
    """As JSON. Raises TypeError for a value that is none, ValueError for a number that is not finite."""
    return json.dumps(body, allow_nan=False, default=_plain)


def unpacked(values: Any) -> Any:
    """Arrays and numbers of numpy and the like as lists and numbers; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return unpacked(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{value!r} is a {type(value).__name__}; give plain numbers, strings, lists or dicts")
