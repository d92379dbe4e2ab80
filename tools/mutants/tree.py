"""The instrumented copy of the project: sources with the sampled sites rewritten, built by the project's own CMake.

Files change only when their content does, so that the next run recompiles little. A site that does not compile is
dropped: the compiler's messages name its line, because a rewriting keeps line numbers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mutation_site import ON, Site

PRESET = "release"
_MESSAGE = re.compile(r"(?:^|[ ,])((?:/|\.\./|\w)[^\s:]*\.(?:cc|h)):(\d+)(?::\d+)?[:,]", re.M)
_FAILED = re.compile(r"^FAILED: (\S+)", re.M)


class BuildError(Exception):
    pass


def rewrite(text: str, sites: list[Site], numbers: dict[str, int], header: Path) -> str:
    """The source with every site behind the switch."""
    for site in sorted(sites, key=lambda s: s.begin, reverse=True):
        switch = f"::tactus_mutant::On({numbers[site.key]})"
        text = text[: site.begin] + site.instrumented.replace(ON, switch) + text[site.end :]
    return f'#include "{header}"\n#line 1\n' + text


class Tree:
    def __init__(self, root: Path, path: Path) -> None:
        self.root = root
        self.path = path
        self.build = path / "build" / PRESET
        self._runtime = path / "tools/mutants/runtime"

    def write(self, sites: list[Site], numbers: dict[str, int]) -> None:
        by_file: dict[str, list[Site]] = {}
        for site in sites:
            by_file.setdefault(site.file, []).append(site)
        names = self._project_files()
        for name in names:
            content = (self.root / name).read_bytes()
            if name in by_file:
                text = rewrite(content.decode("latin-1"), by_file[name], numbers, self._runtime / "mutant_switch.h")
                content = text.encode("latin-1")
            self._put(name, content)
        self._remove_others(set(names))
        venv = self.path / ".venv"
        if (self.root / ".venv").exists() and not venv.is_symlink():
            venv.symlink_to(self.root / ".venv")

    def _project_files(self) -> list[str]:
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [name for name in listed.splitlines() if (self.root / name).is_file()]

    def _put(self, name: str, content: bytes) -> None:
        target = self.path / name
        if target.is_file() and target.read_bytes() == content:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        shutil.copymode(self.root / name, target)

    def _remove_others(self, names: set[str]) -> None:
        for folder, folders, files in os.walk(self.path):
            if folder == str(self.path):
                folders[:] = [f for f in folders if f != "build"]
            for file in files:
                name = str((Path(folder) / file).relative_to(self.path))
                if name not in names and name != ".venv" and "__pycache__" not in name:
                    (Path(folder) / file).unlink()

    def prepare(self) -> None:
        """Configures again if files were added, removed or moved, or the build's description changed: sites are read
        with its compile commands."""
        names = self._project_files()
        described = [name for name in names if name.endswith(("CMakeLists.txt", ".cmake", "CMakePresets.json", ".def"))]
        content = b"".join((self.root / name).read_bytes() for name in described)
        digest = hashlib.sha256("\n".join(names).encode() + content).hexdigest()
        mark = self.build / "described_by"
        if mark.is_file() and mark.read_text() == digest:
            return
        self.write([], {})
        self.configure(again=True)
        mark.write_text(digest)

    def configure(self, again: bool = False) -> None:
        """The switch is one object linked by every program, compiled without any kernel set's instructions."""
        source = self._runtime / "mutant_switch.cc"
        switch = (
            self.build / f"mutant_switch_{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.o"
        )  # a new name links everything again
        if not again and switch.exists() and (self.build / "build.ninja").exists():
            return
        self.build.mkdir(parents=True, exist_ok=True)
        self._run([os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-fPIC", "-c", str(source), "-o", str(switch)])
        self._run(["cmake", "--preset", PRESET, f"-DCMAKE_CXX_STANDARD_LIBRARIES={switch}"])

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")

    def compile(self) -> str | None:
        """None if everything was built, else the compilers' messages of each failure."""
        jobs = os.environ.get("TACTUS_BUILD_JOBS", str(os.cpu_count() or 1))
        done = subprocess.run(
            ["cmake", "--build", str(self.build), "-j", jobs, "--", "-k", "0"],
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return None if done.returncode == 0 else done.stdout

    def build_dropping(self, sites: list[Site], numbers: dict[str, int]) -> tuple[list[Site], list[Site]]:
        """Builds; sites that do not compile are dropped until everything does. Returns (built, dropped)."""
        kept, dropped = list(sites), []
        while True:
            self.write(kept, numbers)
            self.configure()
            output = self.compile()
            if output is None:
                return kept, dropped
            blamed = self.blame(output, kept)
            if not blamed:
                raise BuildError("the instrumented build fails and no mutant is to blame:\n" + output[-6000:])
            dropped += blamed
            kept = [site for site in kept if site not in blamed]
            print(f"mutants: {len(blamed)} mutants do not compile and are dropped", file=sys.stderr, flush=True)

    def blame(self, output: str, sites: list[Site]) -> list[Site]:
        """The sites on lines that the messages name; if a failed unit names none, every site in its file."""
        named: set[tuple[str, int]] = set()
        units: list[str] = []
        for part in re.split(r"^(?=FAILED: )", output, flags=re.M)[1:]:
            report = re.split(r"^\[\d+/\d+\]", part, maxsplit=1, flags=re.M)[0]
            here = {(self._name(file), int(line)) for file, line in _MESSAGE.findall(report)}
            named |= here
            if not any(self._on_line(site, here) for site in sites):
                object_name = _FAILED.match(part)
                units.append(re.sub(r"CMakeFiles/[^/]+\.dir/|\.o$", "", object_name.group(1)) if object_name else "")
        return [site for site in sites if self._on_line(site, named) or site.file in units]

    @staticmethod
    def _on_line(site: Site, named: set[tuple[str, int]]) -> bool:
        last = site.line + site.instrumented.count("\n")
        return any((site.file, line) in named for line in range(site.line, last + 1))

    def _name(self, file: str) -> str:
        path = Path(file) if file.startswith("/") else self.build / file
        path = Path(os.path.normpath(path))
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else file
