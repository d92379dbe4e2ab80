"""The sample of sites: determined by a seed, spread over modules and operators.

A site's rank is a hash of the seed and its identity, so that changing one function does not change choices elsewhere.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import defaultdict
from pathlib import Path

from mutation_site import Site


def excluded_lines(path: Path) -> dict[str, set[str]]:
    return {file: set(entry["lines"]) for file, entry in tomllib.loads(path.read_text()).items()}


def without_excluded(sites: list[Site], excluded: dict[str, set[str]], root: Path) -> list[Site]:
    lines = {file: (root / file).read_text().splitlines() for file in excluded if (root / file).exists()}
    return [s for s in sites if s.file not in lines or lines[s.file][s.line - 1].strip() not in excluded[s.file]]


def quotas(counts: dict[str, int], minimum: int, total: int) -> dict[str, int]:
    """`minimum` per module, or all if fewer; the rest of `total` in proportion to the modules' sites."""
    left = max(0, total - sum(min(minimum, count) for count in counts.values()))
    every = sum(counts.values())
    return {module: min(count, minimum + round(left * count / every)) for module, count in counts.items()}


def draw(sites: list[Site], seed: int, minimum: int, total: int) -> list[Site]:
    by_module: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        by_module[site.module].append(site)
    wanted = quotas({module: len(found) for module, found in by_module.items()}, minimum, total)
    chosen = [site for module, found in sorted(by_module.items()) for site in _draw_module(found, seed, wanted[module])]
    return sorted(chosen, key=lambda site: (site.file, site.begin))


def _draw_module(sites: list[Site], seed: int, count: int) -> list[Site]:
    """Operators alternate; chosen sites do not overlap, because one rewriting would have to contain the other."""
    queues: dict[str, list[Site]] = defaultdict(list)
    for site in sorted(sites, key=lambda s: hashlib.sha256(f"{seed} {s.key}".encode()).hexdigest(), reverse=True):
        queues[site.operator].append(site)
    chosen: list[Site] = []
    while len(chosen) < count and any(queues.values()):
        for operator in sorted(queues):
            while queues[operator] and len(chosen) < count:
                site = queues[operator].pop()
                if not any(_overlap(site, other) for other in chosen):
                    chosen.append(site)
                    break
    return chosen


def _overlap(a: Site, b: Site) -> bool:
    return a.file == b.file and a.begin < b.end and b.begin < a.end
