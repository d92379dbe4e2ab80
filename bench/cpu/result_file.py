"""The result of a long run, written after every cell, and its progress messages: for bench/cpu and bench/slo."""

from __future__ import annotations

import json
import pathlib
import time

from engines import warn


class ResultFile:
    """`result` has the lists `runs` (the last is this one) and `notes`. `expected_s`: the estimated total time."""

    def __init__(self, output: pathlib.Path):
        self.output = output
        self.start = time.monotonic()
        self.expected_s = 0.0
        self.result: dict = {"runs": [], "notes": []}

    def gone_s(self) -> float:
        return time.monotonic() - self.start

    def save(self) -> None:
        self.result["runs"][-1]["seconds"] = round(self.gone_s(), 1)
        part = self.output.with_suffix(".part")
        part.write_text(json.dumps(self.result, indent=1) + "\n")
        part.rename(self.output)

    def note(self, text: str) -> None:
        warn(f"  ! {text}")
        if text not in self.result["notes"]:
            self.result["notes"].append(text)

    def progress(self, text: str) -> None:
        warn(f"[{self.gone_s():5.0f} s of about {self.expected_s:.0f}] {text}")
