"""Every site of src/, from the translation units of a configured build; a unit's sites are stored until it or its
headers change."""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from mutation_site import Site, number_occurrences

_OWN = ("find_sites.py", "operators.py", "cpp_text.py", "mutation_site.py", "requirements.txt")
# Compiler arguments that a reader of the source does not need, with the number of following words.
_DROPPED = {"-o": 1, "-include": 1, "-c": 0, "-Winvalid-pch": 0}
_CPU_FLAGS = {
    "-mavx2": "avx2",
    "-mfma": "fma",
    "-mf16c": "f16c",
    "-mavxvnni": "avx_vnni",
    "-mavx512f": "avx512f",
    "-mavx512bw": "avx512bw",
    "-mavx512vl": "avx512vl",
    "-mavx512dq": "avx512dq",
    "-mavx512bf16": "avx512_bf16",
    "-mavx512vnni": "avx512_vnni",
    "-mamx-tile": "amx_tile",
    "-mamx-int8": "amx_int8",
    "-mamx-bf16": "amx_bf16",
}


@dataclass(frozen=True)
class Unit:
    file: Path
    arguments: tuple[str, ...]


@dataclass
class Scan:
    sites: list[Site]
    not_runnable: list[str]  # units with instructions that this machine lacks: their mutants could not be reached


def units(compile_commands: Path, tree: Path, root: Path) -> list[Unit]:
    """The commands of a build of `tree`, a copy of `root`, as commands on the sources of `root`."""
    found = []
    for entry in json.loads(compile_commands.read_text()):
        file = Path(str(entry["file"]).replace(str(tree), str(root), 1))
        if file.is_relative_to(root / "src") and file.exists():
            found.append(Unit(file, tuple(_arguments(entry["command"], tree, root, file))))
    return sorted(set(found), key=lambda unit: str(unit.file))


def _arguments(command: str, tree: Path, root: Path, file: Path) -> list[str]:
    words = iter(shlex.split(command)[1:])
    kept = []
    for word in words:
        if word in _DROPPED:
            for _ in range(_DROPPED[word]):
                next(words, None)
        elif word.endswith(f"/{file.name}") or word.startswith(("-W", "-fpch", "-fno-tree")):
            continue
        else:
            kept.append(word.replace(str(tree), str(root)))
    return [*kept, "-w", "-ferror-limit=0"]


def runnable(unit: Unit, cpu_flags: set[str]) -> bool:
    return all(_CPU_FLAGS[word] in cpu_flags for word in unit.arguments if word in _CPU_FLAGS)


def cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


@functools.cache
def _file_digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(_file_digest(path) for path in paths)).hexdigest()


def _scan_unit(task: tuple[Unit, Path, Path]) -> list[dict]:
    unit, root, cache = task
    own = _digest([Path(__file__).parent / name for name in _OWN])
    name = hashlib.sha256(f"{own}{unit.file}{unit.arguments}".encode()).hexdigest()[:20]
    kept = cache / f"{name}.json"
    if kept.exists():
        found = json.loads(kept.read_text())
        if found["digest"] == _digest([root / path for path in found["files"]]):
            return found["sites"]
    import find_sites  # needs libclang: only scanning does

    sites, files = find_sites.sites_of(root, list(unit.arguments), unit.file)
    rows = [site.to_json() for site in sites]
    kept.write_text(json.dumps({"digest": _digest([root / path for path in files]), "files": files, "sites": rows}))
    return rows


def scan(all_units: list[Unit], root: Path, cache: Path, workers: int) -> Scan:
    cache.mkdir(parents=True, exist_ok=True)
    flags = cpu_flags()
    able = [unit for unit in all_units if runnable(unit, flags)]
    not_runnable = [str(unit.file.relative_to(root)) for unit in all_units if not runnable(unit, flags)]
    by_place: dict[tuple[str, int, int, str], Site] = {}
    with multiprocessing.Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        for done, rows in enumerate(pool.imap(_scan_unit, [(unit, root, cache) for unit in able]), 1):
            for row in rows:
                site = Site(**row)
                # Several kernel sets may compile the same header, with its functions in several namespaces: one site.
                place = (site.file, site.begin, site.end, site.operator)
                if place not in by_place or site.function < by_place[place].function:
                    by_place[place] = site
            if done % 20 == 0 or done == len(able):
                print(
                    f"mutants: read {done} of {len(able)} translation units, {len(by_place)} sites",
                    file=sys.stderr,
                    flush=True,
                )
    return Scan(number_occurrences(list(by_place.values())), not_runnable)
