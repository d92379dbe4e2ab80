"""Runs one command in its own process group and folder, within a time limit; none of its processes outlives the call.

A mutant may allocate or write without end: memory and files are bounded too.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_OUTPUT_BYTES = 4000
_LIMITS = {resource.RLIMIT_DATA: 8 << 30, resource.RLIMIT_FSIZE: 4 << 30, resource.RLIMIT_CORE: 0}


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal that ended it
    timed_out: bool
    seconds: float
    output: str  # the end of its output


class Runner:
    """Runs commands; stop() ends all running ones, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self.stopped = False

    def run(self, command: list[str], limit_s: float, environment: dict[str, str]) -> Ended:
        with tempfile.TemporaryDirectory(prefix="tactus_mutant_", ignore_cleanup_errors=True) as folder:
            log = Path(folder) / "output"
            inside, temporary = Path(folder) / "work", Path(folder) / "tmp"
            inside.mkdir()
            temporary.mkdir()
            os.chmod(folder, 0o711)  # tests/deploy acts as another user within its folder here
            began = time.monotonic()
            with log.open("wb") as output:
                with self._lock:
                    if self.stopped:
                        raise InterruptedError("stopped")
                    process = subprocess.Popen(
                        command,
                        cwd=inside,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        env={**os.environ, "TMPDIR": str(temporary), "TEST_TMPDIR": str(temporary), **environment},
                    )
                    self._groups.add(process.pid)
                _limit(process.pid)
                timed_out = False
                try:
                    code = process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    timed_out = True
                    code = -signal.SIGKILL
                finally:
                    _kill(process.pid)
                    process.wait()
                    with self._lock:
                        self._groups.discard(process.pid)
            if self.stopped:
                raise InterruptedError("stopped")
            with log.open("rb") as output:
                output.seek(max(0, log.stat().st_size - _OUTPUT_BYTES))
                tail = output.read().decode(errors="replace")
            return Ended(code, timed_out, time.monotonic() - began, tail)

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for group in self._groups:
                _kill(group)


def _limit(process: int) -> None:
    for kind, most in _LIMITS.items():
        try:
            resource.prlimit(process, kind, (most, most))
        except (ProcessLookupError, PermissionError, ValueError):  # it has ended, or already has a lower limit
            pass


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
