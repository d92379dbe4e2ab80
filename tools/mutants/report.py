"""The results of a run: a table per module, the survivors, and whether the tests detect enough."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from equivalents import Equivalent
from mutation_site import Site
from trial import EQUIVALENT, KILLED, NOT_COVERED, SURVIVED, Outcome


@dataclass
class Row:
    module: str
    counts: Counter

    @property
    def mutants(self) -> int:
        return sum(self.counts.values())

    @property
    def rate(self) -> float:
        judged = self.mutants - self.counts[EQUIVALENT]
        return self.counts[KILLED] / judged if judged else 1.0


def _ran(parts: list[str]) -> str:
    """Each program with its number of cases, and their names if they are few."""
    by_program: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        program, _, case = part.partition(":")
        by_program[program].append(case)
    return "; ".join(
        f"{program} ({', '.join(cases) if len(cases) <= 4 else f'{len(cases)} cases'})" if cases[0] else program
        for program, cases in by_program.items()
    )


@dataclass
class Report:
    root: Path
    sites: list[Site]
    outcomes: dict[str, Outcome]
    dropped: list[Site]
    stale: list[Equivalent]
    not_runnable: list[str]

    def rows(self) -> list[Row]:
        counts: dict[str, Counter] = defaultdict(Counter)
        for site in self.sites:
            counts[site.module][self.outcomes[site.key].status] += 1
        return [Row(module, counts[module]) for module in sorted(counts)]

    def total(self) -> Row:
        return Row("all", sum((row.counts for row in self.rows()), Counter()))

    def shortfalls(self, least_module: float, least_all: float) -> list[str]:
        short = [
            f"{row.module}: {row.rate:.0%} of its mutants are detected, less than {least_module:.0%}"
            for row in self.rows()
            if row.rate < least_module
        ]
        total = self.total()
        if total.rate < least_all:
            short.append(f"all: {total.rate:.0%} of the mutants are detected, less than {least_all:.0%}")
        return short

    def markdown(self) -> str:
        lines = [
            "# Mutants",
            "",
            "| module | mutants | killed | survived | not covered | equivalent | rate |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for row in [*self.rows(), self.total()]:
            c = row.counts
            lines.append(
                f"| {row.module} | {row.mutants} | {c[KILLED]} | {c[SURVIVED]} | {c[NOT_COVERED]} | {c[EQUIVALENT]} "
                f"| {row.rate:.0%} |"
            )
        lines += ["", f"Dropped because they do not compile: {len(self.dropped)}."]
        if self.not_runnable:
            lines.append(
                "Not tried, because this machine lacks their instructions: " + ", ".join(self.not_runnable) + "."
            )
        lines += [
            f"Stale entry of equivalent.toml: {e.file}, {e.function}, {e.operator}, `{e.original}`." for e in self.stale
        ]
        for module in sorted({site.module for site in self.sites}):
            lines += self.survivors(module)
        return "\n".join(lines) + "\n"

    def survivors(self, module: str) -> list[str]:
        alive = [
            site
            for site in self.sites
            if site.module == module and self.outcomes[site.key].status in (SURVIVED, NOT_COVERED)
        ]
        if not alive:
            return []
        lines = ["", f"## {module}: {len(alive)} survive"]
        for site in alive:
            outcome = self.outcomes[site.key]
            ran = _ran(outcome.ran) if outcome.ran else "nothing reaches it"
            text = (self.root / site.file).read_bytes().decode("latin-1")
            lines += [
                "",
                f"### {site.file}:{site.line} {site.operator} ({site.key})",
                "",
                "```diff",
                *site.diff(text),
                "```",
                "",
                f"`{site.original}` in `{site.function}`, occurrence {site.occurrence}. Ran: {ran}.",
            ]
        return lines

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mutants.md").write_text(self.markdown())
        rows = [{**site.to_json(), "key": site.key, **self.outcomes[site.key].to_json()} for site in self.sites]
        (folder / "mutants.json").write_text(
            json.dumps({"mutants": rows, "dropped": [s.to_json() for s in self.dropped]}, indent=1)
        )
        for module in sorted({site.module for site in self.sites}):
            (folder / f"survivors_{module}.md").write_text(
                "\n".join([f"# Mutants of {module} that no test detects", *self.survivors(module)]) + "\n"
            )
