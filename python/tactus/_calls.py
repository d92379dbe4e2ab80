"""Calls that wait in the native part without the GIL, and the end of the interpreter, which must not come before
theirs: a
thread that asks for the GIL after it is ended on the spot, in the midst of C++."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT_S = 10.0
_waiting: set[object] = set()
os.register_at_fork(after_in_child=_waiting.clear)  # their threads are not there


@contextmanager
def waiting() -> Iterator[None]:
    call = object()
    _waiting.add(call)
    try:
        yield
    finally:
        _waiting.discard(call)  # with the GIL again


def wait_for_calls() -> None:
    """Until all have come back, once what they wait for has ended."""
    end = time.monotonic() + _LIMIT_S
    while _waiting and time.monotonic() < end:
        time.sleep(0.002)
