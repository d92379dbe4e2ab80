"""Request bodies of the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ._check import json_value, plain, wrong


def body_text(body: Mapping[str, Any]) -> bytes:
    """As JSON. Raises for a value that JSON cannot represent, naming its place."""
    try:
        return _encoder.encode(body).encode()
    except (TypeError, ValueError, RecursionError):  # rare: search for the place
        return _encoder.encode({name: json_value(name, value) for name, value in body.items()}).encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") and not isinstance(value, memoryview):
        return plain(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | list):
        return list(value)
    raise wrong("", value, "")  # body_text names the place


_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=_plain)
