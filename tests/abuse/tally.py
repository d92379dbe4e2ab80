"""Counts a part's cases. A failed case is printed at once and saved with its input, under build/abuse/."""

import json
import re
import sys
import time

from program import ROOT

FOLDER = ROOT / "build/abuse"
SAVED_PER_PART = 50  # more failures usually have the same reason


class Tally:
    def __init__(self, part, quick):
        self.part, self.quick = part, quick
        self.passed = self.failed = 0
        self.failures = []
        self.figures = {}
        self.start_s = time.monotonic()

    @property
    def cases(self):
        return self.passed + self.failed

    def check(self, name, ok, message="", reproduce=b""):
        """One case. `reproduce` is bytes, text, or anything JSON can hold."""
        if ok:
            self.passed += 1
            return True
        self.failed += 1
        self.failures.append(name)
        if self.failed <= SAVED_PER_PART:
            path = self._save(name, message, reproduce)
            print(
                f"FAILED {self.part}: {name}: {message}\n       reproduced by {path.relative_to(ROOT)}",
                file=sys.stderr,
                flush=True,
            )
        return False

    def _save(self, name, message, reproduce):
        folder = FOLDER / self.part
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.failed:03}-{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60].strip('-')}.txt"
        if not isinstance(reproduce, (bytes, str)):
            reproduce = json.dumps(reproduce, indent=1, default=repr)
        if isinstance(reproduce, str):
            reproduce = reproduce.encode(errors="surrogatepass")
        path.write_bytes(f"{self.part}: {name}\n{message}\n\n".encode(errors="replace") + reproduce[: 1 << 20])
        return path

    def figure(self, name, value):
        """A figure for the table; the last value counts."""
        self.figures[name] = round(value, 1) if isinstance(value, float) else value

    def worst(self, name, value):
        self.figures[name] = max(self.figures.get(name, 0), round(value, 1) if isinstance(value, float) else value)

    def result(self):
        return {
            "part": self.part,
            "cases": self.cases,
            "passed": self.passed,
            "failed": self.failed,
            "seconds": round(time.monotonic() - self.start_s, 1),
            "figures": self.figures,
            "failures": self.failures,
        }
