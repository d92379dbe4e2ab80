"""Runs the tests that reach one mutant; stops at the first failure."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field

import checks
from baseline import Measured
from checks import Part, Program
from mutation_site import Site
from process import Ended, Runner

KILLED, SURVIVED, NOT_COVERED, EQUIVALENT = "killed", "survived", "not covered", "equivalent"
_LEAST_LIMIT_S = 10.0
_LIMIT_FACTOR = 5.0


@dataclass
class Outcome:
    key: str
    status: str
    by: str = ""  # the test that detected it
    how: str = ""  # failed, crashed with signal n, timed out
    ran: list[str] = field(default_factory=list)  # tests that did not detect it
    seconds: float = 0.0

    def to_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One run: the parts of a program that reach the mutant."""

    program: Program
    parts: tuple[Part, ...]
    seconds: float


def steps(site: Site, number: int, programs: list[Program], measured: list[Measured]) -> list[Step]:
    """The runs that could detect a mutant, the most likely and cheapest first."""
    found = []
    for program in programs:
        reaching = [m for m in measured if m.part.program == program.name and number in m.reached and not m.failure]
        if reaching:
            found.append(Step(program, tuple(m.part for m in reaching), sum(m.seconds for m in reaching)))
    return sorted(found, key=lambda step: checks.rank(step.program, site.module, step.seconds))


def limit_s(step: Step) -> float:
    return max(_LEAST_LIMIT_S, _LIMIT_FACTOR * step.seconds)


def verdict(ended: Ended, skip_code: int | None) -> str:
    """How the mutant was detected; empty if it was not."""
    if ended.timed_out:
        return "timed out"
    if ended.code < 0:
        return f"crashed with signal {-ended.code}"
    if ended.code in (0, skip_code):
        return ""
    return f"failed with status {ended.code}"


class Trials:
    def __init__(self, programs: list[Program], measured: list[Measured], runner: Runner) -> None:
        self._programs = programs
        self._measured = measured
        self._runner = runner
        # GoogleTest programs use only their own folder; of any other test only one runs at a time.
        self._alone = {program.name: threading.Lock() for program in programs if not program.googletest}

    def run(self, site: Site, number: int) -> Outcome:
        outcome = Outcome(site.key, NOT_COVERED)
        for step in steps(site, number, self._programs, self._measured):
            ended = self._run_step(step, number)
            outcome.how = verdict(ended, step.program.skip_code)
            outcome.seconds += ended.seconds
            if outcome.how.startswith(
                "failed"
            ):  # on a busy machine a test may fail by itself: only a repeated failure counts
                again = self._run_step(step, number)
                outcome.seconds += again.seconds
                outcome.how = verdict(again, step.program.skip_code)
            if outcome.how:
                outcome.status, outcome.by = KILLED, step.program.name + _failed_test(ended.output)
                return outcome
            outcome.status = SURVIVED
            outcome.ran += [str(part) for part in step.parts]
        return outcome

    def _run_step(self, step: Step, number: int) -> Ended:
        command = checks.command(step.program, list(step.parts))
        environment = {"MUTANT": str(number)}
        lock = self._alone.get(step.program.name)
        if lock is None:
            return self._runner.run(command, limit_s(step), environment)
        with lock:
            return self._runner.run(command, limit_s(step), environment)


def _failed_test(output: str) -> str:
    for line in output.splitlines():
        if line.startswith("[  FAILED  ] "):
            return " " + line.removeprefix("[  FAILED  ] ").split(" (")[0].split(",")[0]
    return ""
