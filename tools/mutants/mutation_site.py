"""A place for one small bug, and its identity, which does not depend on line numbers."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace

from rooms import room_of

ON = "@ON@"  # placeholder of the switch in Site.instrumented
NUMBERS = 1 << 20  # the table of runtime/mutant_switch.cc


@dataclass(frozen=True)
class Site:
    file: str  # relative to the project: src/core/sched/plan.cc
    function: str
    operator: str
    begin: int  # byte range of the file that `instrumented` replaces
    end: int
    line: int
    original: str  # the code in one line
    mutated: str  # the code while the mutant is on
    instrumented: str  # both, with the switch between them
    occurrence: int = 0  # among the sites of this file with the same function, operator and original

    @property
    def module(self) -> str:
        return room_of(tuple(self.file.split("/")[1:-1]))

    @property
    def key(self) -> str:
        """Twelve hex digits of the identity: the name that --ids and the result files use."""
        parts = (self.file, self.function, self.operator, self.original, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    def diff(self, text: str) -> list[str]:
        """The site's lines, without and with the mutant."""
        first = text.rfind("\n", 0, self.begin) + 1
        last = text.find("\n", self.end)
        last = len(text) if last < 0 else last
        before = text[first:last].splitlines()
        after = text[first : self.begin] + (self.mutated or ";") + text[self.end : last]
        return [f"- {line}" for line in before] + [f"+ {line}" for line in after.splitlines()]

    def to_json(self) -> dict:
        return asdict(self)


def number_occurrences(sites: list[Site]) -> list[Site]:
    """Sites in text order, each with its number among equal ones."""
    seen: dict[tuple[str, ...], int] = {}
    numbered = []
    for site in sorted(set(sites), key=lambda s: (s.file, s.begin, s.end, s.operator)):
        same = (site.file, site.function, site.operator, site.original)
        numbered.append(replace(site, occurrence=seen.get(same, 0)))
        seen[same] = seen.get(same, 0) + 1
    return numbered


def switch_numbers(sites: list[Site]) -> dict[str, int]:
    """Each key's number in the program. It is derived from the key, so that another sample recompiles only changed
    files."""
    numbers: dict[str, int] = {}
    taken: set[int] = set()
    for key in sorted(site.key for site in sites):
        number = int(key, 16) % (NUMBERS - 1) + 1
        while number in taken:
            number = number % (NUMBERS - 1) + 1
        numbers[key] = number
        taken.add(number)
    return numbers
