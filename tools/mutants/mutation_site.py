"""A place where one small bug can be put in, and its identity, which survives shifted lines."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace

ON = "@ON@"  # stands for the switch in Site.instrumented
NUMBERS = 1 << 20  # the table of runtime/mutant_switch.cc


@dataclass(frozen=True)
class Site:
    file: str  # relative to the project: src/core/sched/plan.cc
    function: str
    operator: str
    begin: int  # bytes of the file that `instrumented` replaces
    end: int
    line: int
    original: str  # the code in one line
    mutated: str  # what it is while the mutant is on
    instrumented: str  # both, with the switch between them
    occurrence: int = 0  # among the sites of this file with the same function, operator and original

    @property
    def module(self) -> str:
        return self.file.split("/")[1]

    @property
    def key(self) -> str:
        """Twelve hex digits of the identity: the name that --ids and the result files use."""
        parts = (self.file, self.function, self.operator, self.original, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    def diff(self, text: str) -> list[str]:
        """The lines it stands on, without and with the mutant."""
        first = text.rfind("\n", 0, self.begin) + 1
        last = text.find("\n", self.end)
        last = len(text) if last < 0 else last
        before = text[first:last].splitlines()
        after = text[first : self.begin] + (self.mutated or ";") + text[self.end : last]
        return [f"- {line}" for line in before] + [f"+ {line}" for line in after.splitlines()]

    def to_json(self) -> dict:
        return asdict(self)


def number_occurrences(sites: list[Site]) -> list[Site]:
    """Sites in the order of the text, each with its place among its equals."""
    seen: dict[tuple[str, ...], int] = {}
    numbered = []
    for site in sorted(set(sites), key=lambda s: (s.file, s.begin, s.end, s.operator)):
        same = (site.file, site.function, site.operator, site.original)
        numbered.append(replace(site, occurrence=seen.get(same, 0)))
        seen[same] = seen.get(same, 0) + 1
    return numbered


def switch_numbers(sites: list[Site]) -> dict[str, int]:
    """Each key's number in the program. It follows from the key, so that another sample recompiles only what it
    changes."""
    numbers: dict[str, int] = {}
    taken: set[int] = set()
    for key in sorted(site.key for site in sites):
        number = int(key, 16) % (NUMBERS - 1) + 1
        while number in taken:
            number = number % (NUMBERS - 1) + 1
        numbers[key] = number
        taken.add(number)
    return numbers
