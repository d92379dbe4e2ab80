"""Equal sources give equal packages: two packings of one build, and two compilations of one commit, byte for byte.

equal_test.py BUILD [Test.name ...]    BUILD: a folder with the programs, configured for `scripts/package.sh`
"""

import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from command import run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path()
# A kernel, and what names the build; both with the precompiled header. A whole program takes minutes.
KERNELS = "src/compute/kernels/CMakeFiles/tactus_compute_kernels.dir"
TARGETS = [f"{KERNELS}/packed/portable/packed.cc.o", "src/base/CMakeFiles/tactus_base.dir/version.cc.o"]


def parts(file):
    """{name: what it has} of the files in a package, as far as this module can read it."""
    content = file.read_bytes()
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as packed:
            return {i.filename: (i.date_time, i.external_attr, packed.read(i)) for i in packed.infolist()}
    if file.suffix == ".deb":
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", file], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {
            m.name: (
                m.mode,
                m.uid,
                m.gid,
                m.uname,
                m.gname,
                m.mtime,
                tar.extractfile(m).read() if m.isreg() else m.type,
            )
            for m in tar.getmembers()
        }


def difference(one, other):
    """Which parts of two packages differ."""
    left, right = parts(one), parts(other)
    if left == right:
        return "their files are equal, but not the order, the compression or what surrounds them"
    names = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
    return "they differ in " + ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class Packings(unittest.TestCase):
    def test_of_one_build_are_equal_whatever_the_folder_the_umask_the_time_zone_and_the_language(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as folder:
            second = pathlib.Path(folder) / "a longer name with spaces"
            temporary = pathlib.Path(folder) / "tmp"
            temporary.mkdir()
            build = {"TACTUS_PACKAGE_BUILD": str(BUILD)}
            surroundings = [
                (pathlib.Path(first), {"TZ": "UTC", "LC_ALL": "C"}, 0o022),
                (second, {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "TMPDIR": str(temporary)}, 0o077),
            ]
            for out, env, umask in surroundings:
                run(SOURCE / "scripts/package.sh", "all", out, env={**build, **env}, umask=umask, limit_s=1800)
            names = sorted(p.name for p in pathlib.Path(first).iterdir())
            self.assertEqual(names, sorted(p.name for p in second.iterdir()))
            self.assertEqual(
                sorted(name.rsplit(".", 1)[1] for name in names), ["deb", "gz", "tar", "whl"], f"made: {names}"
            )
            for name in names:
                one, other = pathlib.Path(first) / name, second / name
                if one.read_bytes() != other.read_bytes():
                    self.fail(f"{name}: two packings are not equal: {difference(one, other)}")


class Compilations(unittest.TestCase):
    def test_of_one_commit_in_two_folders_are_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            clones = [pathlib.Path(folder) / "a", pathlib.Path(folder) / "another folder/with/a/clone"]
            made = []
            for clone, origin in zip(clones, [SOURCE, clones[0]], strict=True):  # a commit may come in between
                run("git", "clone", "--quiet", "--no-hardlinks", origin, clone)
                run("cmake", "--preset", "package", cwd=clone)
                run("cmake", "--build", "build/package", "-j", os.cpu_count(), "--target", *TARGETS, cwd=clone,
                    env={"CCACHE_DISABLE": "1"}, limit_s=1800)  # fmt: skip
                built = [p for p in (clone / "build/package").rglob("*") if p.suffix in (".o", ".a") and p.is_file()]
                made.append({p.relative_to(clone): hashlib.sha256(p.read_bytes()).hexdigest() for p in built})
            self.assertLessEqual({pathlib.Path(target).name for target in TARGETS}, {path.name for path in made[0]})
            self.assertEqual(made[0].keys(), made[1].keys())
            unequal = [str(path) for path in made[0] if made[0][path] != made[1][path]]
            self.assertEqual(unequal, [], "two compilations of one commit differ")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else SOURCE / "build/package"
    unittest.main(verbosity=2)
