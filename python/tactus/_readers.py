"""One reader of a stream at a time."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .errors import UnavailableError


class Readers:
    """Each loop over a stream is a reader, an object of its own. The first one reads to its end, or until it is
    dropped, and another one meanwhile is refused. A loop may go from thread to thread. ``next`` on the stream itself is
    refused while another thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while a piece is waited for
        self._owner: weakref.ref[Any] | None = None
        self._thread = 0  # of the owner's last piece

    def begin(self, reader: object | None) -> None:
        """Before a piece is waited for. `reader`: a loop; None: the stream itself was asked."""
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
        "the stream has another reader; one thread, task or loop reads a stream: make a stream for each, or hand its "
        "pieces on"
    )
