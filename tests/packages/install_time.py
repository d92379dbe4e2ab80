"""Seconds from a downloaded package to the first answer, in a clean Debian that debootstrap makes: unpacking or
installing, starting the server with the default model, one chat.

    install_time.py DIST [deb|archive|wheel ...]    DIST: a folder that `scripts/package.sh all DIST` has filled

Packages that apt installs besides are downloaded before the clock starts; recommended ones (systemd, certificates),
which a machine with Debian has, are left out. Needs what packages_test.py needs.
"""

import pathlib
import shutil
import sys
import tempfile
import time

import packages_test
from command import run
from packages_test import chat, clean_root, model_file, mounted, package, served

MODEL = "/srv/model.gguf"


def deb(root):
    """What apt is given, and the command of the server."""
    file = f"/tmp/{package('tactus_*.deb').name}"
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", file]
    run("chroot", root, "apt-get", "update", "-qq", limit_s=900)
    run("chroot", root, *install, "--download-only", limit_s=900)
    return install, ["/usr/bin/tactus"]


def archive(root):
    file = package("tactus-*.tar.gz").name
    return ["tar", "-C", "/opt", "-xf", f"/tmp/{file}"], [f"/opt/{file.removesuffix('.tar.gz')}/bin/tactus"]


def wheel(root):
    run("chroot", root, "python3", "-m", "venv", "/srv/venv")
    file = f"/tmp/{package('tactus-*.whl').name}"
    return ["/srv/venv/bin/pip", "install", "-q", "--no-index", file], ["/srv/venv/bin/python", "-m", "tactus"]


KINDS = {"deb": (deb, ()), "archive": (archive, ()), "wheel": (wheel, ("python3-venv",))}


def measure(kind):
    """Seconds of each part."""
    prepare, packages = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        clean_root(root, *packages)
        for file in packages_test.DIST.glob("tactus[-_]*"):
            shutil.copy(file, root / "tmp" / file.name)
        shutil.copy(model_file(), root / MODEL.lstrip("/"))
        with mounted(root):
            install, program = prepare(root)
            times = [time.monotonic()]
            run("chroot", root, *install)
            times.append(time.monotonic())
            with served(root, program, MODEL) as url:
                times.append(time.monotonic())
                chat(url)
                times.append(time.monotonic())
    return [end - begin for begin, end in zip(times, times[1:], strict=False)]


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(KINDS):
        sys.exit(__doc__)
    packages_test.DIST = pathlib.Path(sys.argv[1]).resolve()
    print(f"{'package':10}{'install':>10}{'ready':>10}{'answer':>10}{'together':>10}   seconds")
    for kind in sys.argv[2:] or KINDS:
        parts = measure(kind)
        print(f"{kind:10}" + "".join(f"{part:10.1f}" for part in [*parts, sum(parts)]), flush=True)


if __name__ == "__main__":
    main()
