"""Runs every fast test on the unmutated program: each part must pass; measures its time and the mutants that it
reaches."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import checks
from checks import Part, Program
from mutation_site import NUMBERS
from process import Runner

_LIMIT_S = 600.0


@dataclass
class Measured:
    part: Part
    seconds: float
    reached: frozenset[int]
    failure: str = ""  # why it cannot be used: it fails or is skipped without a mutant


def _make(coverage: Path) -> None:
    coverage.write_bytes(bytes(NUMBERS))


def _numbers(coverage: Path) -> frozenset[int]:
    return frozenset(i for i, byte in enumerate(coverage.read_bytes()) if byte)


def _measure(runner: Runner, program: Program, part: Part) -> Measured:
    with tempfile.TemporaryDirectory(prefix="tactus_mutant_coverage_") as folder:
        coverage = Path(folder) / "reached"
        _make(coverage)
        ended = runner.run(checks.command(program, [part]), _LIMIT_S, {"MUTANT_COVERAGE": str(coverage)})
        failure = ""
        if ended.timed_out:
            failure = f"takes longer than {_LIMIT_S:.0f} s"
        elif ended.code == program.skip_code:
            failure = "is skipped"
        elif ended.code != 0:
            failure = f"exit status {ended.code}:\n{ended.output}"
        return Measured(part, ended.seconds, _numbers(coverage), failure)


def _digest(program: Program) -> str:
    """The digest that a stored measurement depends on: the built program and its scripts."""
    hashed = hashlib.sha256(repr(program).encode())
    for path in (Path(word) for word in program.command):
        for file in sorted(path.parent.glob("*.py")) if path.suffix == ".py" else [path]:
            if file.is_absolute() and file.is_file():
                hashed.update(file.read_bytes())
    return hashed.hexdigest()


class _Kept:
    """Stored measurements of earlier runs, one file per program."""

    def __init__(self, folder: Path, program: Program) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{program.name}.json"
        self._digest = _digest(program)

    def get(self) -> list[Measured] | None:
        found = json.loads(self._file.read_text()) if self._file.exists() else {}
        if found.get("digest") != self._digest:
            return None
        return [
            Measured(Part(*row["part"]), row["seconds"], frozenset(row["reached"]), row["failure"])
            for row in found["parts"]
        ]

    def put(self, measured: list[Measured]) -> None:
        rows = [
            {
                "part": [m.part.program, m.part.case],
                "seconds": m.seconds,
                "reached": sorted(m.reached),
                "failure": m.failure,
            }
            for m in measured
        ]
        self._file.write_text(json.dumps({"digest": self._digest, "parts": rows}))


def measure(programs: list[Program], folder: Path, runner: Runner, workers: int) -> list[Measured]:
    measured: list[Measured] = []
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    try:
        for program in programs:
            kept = _Kept(folder, program)
            found = kept.get()
            if found is None:
                found = list(pool.map(lambda part: _measure(runner, program, part), checks.parts(program)))
                print(
                    f"mutants: {program.name} without a mutant: {len(found)} parts,"
                    f" {sum(m.seconds for m in found):.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
                if all(m.failure in ("", "is skipped") for m in found):
                    kept.put(found)
            measured += found
    except BaseException:
        runner.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return measured
