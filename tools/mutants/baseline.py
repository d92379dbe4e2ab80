"""The un-mutated program under every fast test: each part must pass, how long it takes, which mutants it reaches."""
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
from process import Runner

_LIMIT_S = 600.0


@dataclass
class Measured:
    part: Part
    seconds: float
    reached: frozenset[int]
    failure: str = ""  # why it cannot be used: it fails, or is skipped, without a mutant


def _numbers(coverage: Path) -> frozenset[int]:
    return frozenset(i for i, byte in enumerate(coverage.read_bytes()) if byte) if coverage.exists() else frozenset()


def _measure(runner: Runner, program: Program, part: Part) -> Measured:
    with tempfile.TemporaryDirectory(prefix="tactus_mutant_coverage_") as folder:
        coverage = Path(folder) / "reached"
        ended = runner.run(checks.command(program, [part]), _LIMIT_S, {"MUTANT_COVERAGE": str(coverage)})
        failure = ""
        if ended.timed_out:
            failure = f"takes longer than {_LIMIT_S:.0f} s"
        elif ended.code == program.skip_code:
            failure = "is skipped"
        elif ended.code != 0:
            failure = f"exit status {ended.code}:\n{ended.output}"
        return Measured(part, ended.seconds, _numbers(coverage), failure)


def digest(build: Path, all_programs: list[Program]) -> str:
    """What a kept measurement depends on: the programs as built."""
    hashed = hashlib.sha256()
    for program in all_programs:
        for word in program.command:
            path = Path(word)
            if path.is_absolute() and path.is_file() and path.is_relative_to(build):
                hashed.update(path.read_bytes())
    return hashed.hexdigest()


def measure(build: Path, all_programs: list[Program], kept: Path, runner: Runner, workers: int) -> list[Measured]:
    now = digest(build, all_programs)
    if kept.exists():
        found = json.loads(kept.read_text())
        if found["digest"] == now:
            return [Measured(Part(*row["part"]), row["seconds"], frozenset(row["reached"]), row["failure"]) for row in found["parts"]]
    tasks = [(program, part) for program in all_programs for part in checks.parts(program)]
    print(f"mutants: {len(tasks)} parts of {len(all_programs)} tests without a mutant", file=sys.stderr, flush=True)
    measured: list[Measured] = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for result in pool.map(lambda task: _measure(runner, *task), tasks):
            measured.append(result)
            if result.failure:
                print(f"mutants: {result.part} {result.failure.splitlines()[0]}", file=sys.stderr, flush=True)
    rows = [{"part": [m.part.program, m.part.case], "seconds": m.seconds, "reached": sorted(m.reached), "failure": m.failure}
            for m in measured]
    kept.write_text(json.dumps({"digest": now, "parts": rows}))
    return measured
