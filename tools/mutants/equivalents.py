"""The checked-in list of mutants without observable effect, each with the reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from mutation_site import Site


@dataclass(frozen=True)
class Equivalent:
    file: str
    function: str
    operator: str
    original: str
    occurrence: int
    reason: str

    def is_of(self, site: Site) -> bool:
        return (self.file, self.function, self.operator, self.original, self.occurrence) == (
            site.file,
            site.function,
            site.operator,
            site.original,
            site.occurrence,
        )


def read(path: Path) -> list[Equivalent]:
    rows = tomllib.loads(path.read_text()).get("equivalent", [])
    return [
        Equivalent(
            row["file"], row["function"], row["operator"], row["original"], row.get("occurrence", 0), row["reason"]
        )
        for row in rows
    ]


def split(listed: list[Equivalent], sites: list[Site]) -> tuple[dict[str, str], list[Equivalent]]:
    """The reasons by key, and the entries that match no site any more."""
    reasons: dict[str, str] = {}
    stale = []
    for entry in listed:
        fitting = [site for site in sites if entry.is_of(site)]
        reasons.update({site.key: entry.reason for site in fitting})
        if not fitting:
            stale.append(entry)
    return reasons, stale
