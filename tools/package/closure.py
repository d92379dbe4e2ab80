"""Shared libraries of programs: which files a program needs, which Debian package each comes from, and its licence."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

# Part of every system with glibc, and bound to its loader: never shipped in an archive.
OF_GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|BrokenLocale|nss_\w+))\.so(\.\d+)*$")


def needed(programs: list[Path]) -> dict[str, Path]:
    """The libraries that the loader maps for the programs, by name; their files. Fails if one is missing."""
    found: dict[str, Path] = {}
    for program in programs:
        listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            name, _, rest = line.strip().partition(" => ")
            if "not found" in rest:
                raise SystemExit(f"package: {program.name} needs {name}, which this machine does not have")
            path = rest.split(" (")[0] if rest else name.split(" (")[0]
            if path.startswith("/"):
                found[Path(name.split(" (")[0]).name] = Path(path)
    return dict(sorted(found.items()))


@functools.cache
def package_of(library: Path) -> tuple[str, str]:
    """Name and version of the Debian package that owns a library; empty if none does."""
    for path in (library, library.resolve(), Path("/usr") / library.relative_to("/")):
        owner = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False)
        if owner.returncode == 0:
            package = owner.stdout.split(": ")[0].split(",")[0]
            version = subprocess.run(
                ["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=True
            ).stdout
            return package.split(":")[0], version
    return "", ""


def copy_licences(libraries: dict[str, Path], to: Path) -> None:
    """Copies the copyright files of the libraries' Debian packages into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    for library in libraries.values():
        package, _ = package_of(library)
        copyright_file = Path("/usr/share/doc") / package / "copyright"
        if package and copyright_file.exists():
            shutil.copy(copyright_file, to / f"{package}.txt")
