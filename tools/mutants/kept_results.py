"""Outcomes of earlier runs, one file per mutant, reused while their inputs are unchanged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mutation_site import Site
from trial import KILLED, Outcome

_JUDGES = ("tree.py", "checks.py", "process.py", "trial.py")  # together with the mutant, these decide an outcome


def tools_digest(folder: Path) -> str:
    hashed = hashlib.sha256()
    for path in [*(folder / name for name in _JUDGES), *sorted(folder.glob("runtime/*"))]:
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def tests_digest(root: Path, programs: list[str]) -> str:
    hashed = hashlib.sha256(repr(sorted(programs)).encode())
    for path in sorted((root / "tests").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            hashed.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return hashed.hexdigest()


class KeptResults:
    def __init__(self, folder: Path, root: Path, tools: str, tests: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._root = root
        self._tools = tools
        self._tests = tests

    def _line(self, site: Site) -> str:
        lines = (self._root / site.file).read_text(errors="replace").splitlines()
        return lines[site.line - 1].strip() if site.line <= len(lines) else ""

    def get(self, site: Site, rerun: str) -> Outcome | None:
        """`rerun`: "changed" reuses outcomes whose source line, tool and tests are unchanged; "survivors" every killed
        mutant."""
        path = self._folder / f"{site.key}.json"
        if rerun == "all" or not path.exists():
            return None
        found = json.loads(path.read_text())
        outcome = Outcome(**found["outcome"])
        if found["line"] != self._line(site) or found["mutated"] != site.mutated:
            return None
        if rerun == "survivors":
            return outcome if outcome.status == KILLED else None
        return outcome if found["tools"] == self._tools and found["tests"] == self._tests else None

    def put(self, site: Site, outcome: Outcome) -> None:
        row = {
            "line": self._line(site),
            "mutated": site.mutated,
            "tools": self._tools,
            "tests": self._tests,
            "outcome": outcome.to_json(),
        }
        path = self._folder / f"{site.key}.json"
        path.with_suffix(".part").write_text(json.dumps(row))
        path.with_suffix(".part").replace(path)
