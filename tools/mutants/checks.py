"""The fast tests for the mutation tester: the programs, their separately runnable parts, and the module of each."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rooms import room_of

# Run last: mutants that a module's own tests and their neighbours do not detect have passed every cheaper test.
_LATE = {"conformance": 1, "golden": 1, "theory": 1, "vidur": 1, "e2e": 2, "install": 3}


@dataclass(frozen=True)
class Program:
    """One test of ctest."""

    name: str
    command: tuple[str, ...]
    folder: str  # its folder under tests/
    googletest: bool
    skip_code: int | None


@dataclass(frozen=True)
class Part:
    """A separately measured and selected part: a test case of a GoogleTest program, or a whole other test."""

    program: str
    case: str = ""  # Suite.Case; empty: the whole test

    def __str__(self) -> str:
        return f"{self.program}:{self.case}" if self.case else self.program


def programs(build: Path) -> list[Program]:
    listed = subprocess.run(
        ["ctest", "--test-dir", str(build), "-L", "fast", "--show-only=json-v1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return listed_programs(json.loads(listed)["tests"], build)


def listed_programs(tests: list[dict], build: Path) -> list[Program]:
    """The fast tests of ctest. It may list a GoogleTest program as one test or each of its cases: here it is one
    program."""
    found: dict[str, Program] = {}
    for test in tests:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        command = test.get("command")
        if not command:
            continue
        working = Path(properties.get("WORKING_DIRECTORY", ""))
        folder = working.relative_to(build / "tests").parts if working.is_relative_to(build / "tests") else ()
        googletest = any(word.startswith("--gtest") for word in command)
        name = Path(command[0]).name if googletest else test["name"]
        found[name] = Program(
            name,
            tuple(w for w in command if not w.startswith("--gtest")),
            room_of(folder),
            googletest,
            int(properties["SKIP_RETURN_CODE"]) if "SKIP_RETURN_CODE" in properties else None,
        )
    return list(found.values())


def parts(program: Program) -> list[Part]:
    if not program.googletest:
        return [Part(program.name)]
    listed = subprocess.run([*program.command, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    return [Part(program.name, case) for case in cases(listed) if "DISABLED_" not in case]


def cases(listed: str) -> list[str]:
    """The names that --gtest_list_tests prints: suites end with a dot, their cases are indented, comments follow a
    #."""
    found, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith(" "):
            found.append(suite + name)
        elif name.endswith("."):
            suite = name
    return found


def command(program: Program, chosen: list[Part]) -> list[str]:
    words = list(program.command)
    if program.googletest:
        words += ["--gtest_brief=1", "--gtest_fail_fast", "--gtest_filter=" + ":".join(part.case for part in chosen)]
    return words


def rank(program: Program, module: str, seconds: float) -> tuple[int, float]:
    """Sort key: programs most likely to detect a mutant of the module early come first: those of the room or of its
    whole district."""
    if program.folder and f"{module}_".startswith(f"{program.folder}_"):
        return 0, seconds
    return 1 + _LATE.get(program.folder, 0), seconds
