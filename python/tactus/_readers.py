"""Allows one reader of a stream at a time."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .errors import UnavailableError


class Readers:
    """Each loop over a stream is a separate reader object. The first one reads until its end or until it is dropped;
    meanwhile others are rejected. A loop may move between threads. ``next`` on the stream itself is rejected while
    another thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while waiting for a piece
        self._owner: weakref.ref[Any] | None = None
        self._thread = 0  # thread of the owner's last piece

    def begin(self, reader: object | None) -> None:
        """Called before waiting for a piece. `reader`: a loop; None: ``next`` on the stream itself."""
        if not self._lock.acquire(blocking=False):
            raise _refusal()
        owner = self._owner() if self._owner is not None else None
        thread = threading.get_ident()
        if owner is not None and owner is not reader and (reader is not None or thread != self._thread):
            self._lock.release()
            raise _refusal()
        if reader is not None:
            self._owner, self._thread = weakref.ref(reader), thread

    def end(self) -> None:
        self._lock.release()


def _refusal() -> UnavailableError:
    return UnavailableError(
        "the stream has another reader; only one thread, task or loop may read a stream: create one per reader, "
        "or pass its pieces on"
    )
