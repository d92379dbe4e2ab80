"""The packages of scripts/package.sh in roots that debootstrap makes: each is installed with nothing else, serves a
model, answers a chat and shows the page.

    packages_test.py DIST [Test.name ...]    DIST: a folder that `scripts/package.sh all DIST` has filled

Needs root, debootstrap and Debian's mirror. TACTUS_DEFAULT_MODEL is a model file; without it
scripts/get_default_model.sh fetches one. TACTUS_ROOTS keeps the roots of debootstrap between runs.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import urllib.request
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools/package"))
from closure import OF_GLIBC  # noqa: E402
from command import run  # noqa: E402

DIST = pathlib.Path()
SUITE = "bookworm"
READY_S = 120


def model_file():
    path = os.environ.get("TACTUS_DEFAULT_MODEL") or run(SOURCE / "scripts/get_default_model.sh").splitlines()[-1]
    return pathlib.Path(path)


def clean_root(to, *packages):
    """A copy of a minimal Debian with these packages. Debootstrap runs once for each set."""
    kept = pathlib.Path(os.environ.get("TACTUS_ROOTS") or pathlib.Path(tempfile.gettempdir()) / "tactus-roots")
    base = kept / ("-".join((SUITE, *packages)) + ".tar")
    if not base.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as made:
            root = pathlib.Path(made) / "root"
            include = [f"--include={','.join(packages)}"] if packages else []
            run("debootstrap", "--variant=minbase", *include, SUITE, root, limit_s=1200)
            part = base.with_suffix(".part")
            run("tar", "--numeric-owner", "--one-file-system", "-C", root, "-cf", part, ".")
            part.rename(base)
    to.mkdir()
    run("tar", "--numeric-owner", "-C", to, "-xpf", base)


@contextlib.contextmanager
def mounted(root):
    """/proc and a few devices, as a container has; /etc/resolv.conf for apt."""
    mounts = []
    try:
        for kind, where in (("proc", "proc"), ("tmpfs", "dev/shm")):
            (root / where).mkdir(parents=True, exist_ok=True)
            run("mount", "-t", kind, kind, root / where)
            mounts.append(root / where)
        for device in ("null", "zero", "urandom", "random"):
            node = root / "dev" / device
            if not node.exists():
                node.touch()
            run("mount", "--bind", f"/dev/{device}", node)
            mounts.append(node)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        yield
    finally:
        for where in reversed(mounts):
            subprocess.run(["umount", "-l", where], check=False)


@contextlib.contextmanager
def served(root, program, *options, user=None, env=None):
    """The address of `program serve` in the root, once it is ready; afterwards SIGTERM has to end it with status 0.
    `program`: a file, or a list of words."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    identity = [f"--userspec={user}"] if user else []
    command = [
        shutil.which("chroot"),
        *identity,
        str(root),
        *([program] if isinstance(program, str) else program),
        "serve",
        *options,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    began = time.monotonic()
    with tempfile.TemporaryFile(mode="w+") as log:
        variables = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **(env or {})}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=variables)

        def output():
            log.seek(0)
            return log.read()[-3000:]

        try:
            while True:
                if process.poll() is not None:
                    raise AssertionError(f"{' '.join(command)} ended with {process.returncode}:\n{output()}")
                with contextlib.suppress(OSError):
                    if urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).status == 200:
                        break
                if time.monotonic() - began > READY_S:
                    raise AssertionError(f"{' '.join(command)} was not ready in {READY_S} s:\n{output()}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
            try:
                status = process.wait(60)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{' '.join(command)} still ran 60 s after SIGTERM:\n{output()}") from None
            if status != 0:
                raise AssertionError(f"{' '.join(command)} ended with {status} after SIGTERM:\n{output()}")
        finally:
            process.kill()
            process.wait()


def chat(url, **fields):
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, **fields}
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    answer = json.loads(urllib.request.urlopen(request, timeout=120).read())
    return answer["choices"][0]["message"]["content"]


def page(url):
    return urllib.request.urlopen(url + "/", timeout=30).read().decode()


def package(pattern):
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"{DIST} has {len(found)} files {pattern}; run: scripts/package.sh all {DIST}")
    return found[0]


class PackageCase(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        if shutil.which("debootstrap") is None:
            self.skipTest("debootstrap is not installed: scripts/setup.sh slow")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)  # the server's user must reach the root
        self.root = self.folder / "root"

    def put_model(self, where):
        to = self.root / where
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(model_file(), to)
        to.chmod(0o644)

    def assert_lists(self, listed, libraries):
        """The SPDX document has exactly these libraries ({name: content}), with their checksums."""
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        checksums = {p["name"]: p["checksums"][0]["checksumValue"] for p in listed["packages"] if "checksums" in p}
        self.assertEqual(set(checksums), set(libraries), "the list of contents and the libraries in the package differ")
        for name, content in libraries.items():
            self.assertEqual(hashlib.sha256(content).hexdigest(), checksums[name], f"{name}: another checksum listed")

    def assert_serves(self, url):
        self.assertIn("Paris", chat(url))
        self.assertIn("<title>", page(url))


class DebianPackage(PackageCase):
    def test_installs_serves_and_leaves_nothing_secret_when_purged(self):
        clean_root(self.root)
        deb = package("tactus_*.deb")
        shutil.copy(deb, self.root / "tmp" / deb.name)
        self.put_model("var/lib/tactus/models/model.gguf")
        with mounted(self.root):
            run("chroot", self.root, "apt-get", "update", "-qq", limit_s=900)
            run("chroot", self.root, "apt-get", "install", "-y", "-qq", f"/tmp/{deb.name}", limit_s=900)
            self.assertIn("tactus", run("chroot", self.root, "getent", "passwd", "tactus"))
            secret = self.root / "etc/tactus/kv-secret"
            self.assertEqual(secret.stat().st_mode & 0o777, 0o600, "others can read the fleet's secret")
            owner = run("chroot", self.root, "stat", "-c", "%U %a", "/var/lib/tactus/state").split()
            self.assertEqual(owner, ["tactus", "750"], "/var/lib/tactus/state: wrong owner or mode")
            for file in (
                "lib/systemd/system/tactus-serve@.service",
                "lib/systemd/system/tactus-route.service",
                "usr/share/man/man1/tactus.1.gz",
                "usr/share/bash-completion/completions/tactus",
            ):
                self.assertTrue((self.root / file).exists(), f"the package has no {file}")
            # The configuration of the units, with the threads of this machine.
            options = ("/var/lib/tactus/models/model.gguf", "--config", "/etc/tactus/serve.toml", "--threads", "2")
            with served(self.root, "/usr/bin/tactus", *options, user="tactus:tactus") as url:
                self.assert_serves(url)
            run("chroot", self.root, "dpkg", "--verify", "tactus")
            run("chroot", self.root, "apt-get", "purge", "-y", "-qq", "tactus", limit_s=300)
            self.assertFalse(secret.exists(), "the secret stays after a purge")
            self.assertFalse((self.root / "var/lib/tactus/state").exists(), "the state stays after a purge")
            self.assertTrue((self.root / "var/lib/tactus/models/model.gguf").exists(), "a purge removed a model")


class Archive(PackageCase):
    def test_serves_from_any_folder_without_other_packages(self):
        clean_root(self.root)
        with tarfile.open(package("tactus-*.tar.gz")) as tar:
            tar.extractall(self.root / "opt", filter="data")
        (folder,) = (self.root / "opt").iterdir()
        moved = self.root / "srv/elsewhere"
        moved.parent.mkdir(exist_ok=True)
        folder.rename(moved)
        self.put_model("srv/model.gguf")
        with mounted(self.root):
            listed = run("chroot", self.root, "/srv/elsewhere/bin/tactus", "--version")
            self.assertRegex(listed, r"\d+\.\d+\.\d+")
            with served(self.root, "/srv/elsewhere/bin/tactus", "/srv/model.gguf", user="65534:65534") as url:
                self.assert_serves(url)

    def test_lists_every_library_that_it_ships(self):
        with tarfile.open(package("tactus-*.tar.gz")) as tar:
            names = tar.getnames()
            folder = names[0]
            listed = json.loads(tar.extractfile(f"{folder}/share/doc/tactus/tactus.spdx.json").read())
            within = f"{folder}/lib/tactus/"
            shipped = {n.removeprefix(within): tar.extractfile(n).read() for n in names if n.startswith(within)}
        # Tactus's own libraries and the grammar library come from no Debian package.
        own = ("libtactus", "libllguidance")
        self.assert_lists(listed, {name: content for name, content in shipped.items() if not name.startswith(own)})


class Image(PackageCase):
    def test_has_valid_digests_and_serves_as_its_user(self):
        with tarfile.open(package("tactus-*.oci.tar")) as tar:
            blobs = {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
        for name, content in blobs.items():
            if name.startswith("blobs/sha256/"):
                self.assertEqual(hashlib.sha256(content).hexdigest(), name.rsplit("/", 1)[1], f"{name}: wrong digest")

        def blob(entry):
            content = blobs["blobs/sha256/" + entry["digest"].removeprefix("sha256:")]
            self.assertEqual(len(content), entry["size"], f"{entry['digest']}: wrong size")
            return content

        manifest = json.loads(blob(json.loads(blobs["index.json"])["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        self.root.mkdir()
        for entry, digest in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            plain = gzip.decompress(blob(entry))
            self.assertEqual("sha256:" + hashlib.sha256(plain).hexdigest(), digest, "wrong digest of a layer")
            with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
                layer.extractall(self.root, filter="fully_trusted")
        self.put_model("models/model.gguf")
        env = dict(pair.split("=", 1) for pair in config["config"]["Env"])
        program, *_ = config["config"]["Entrypoint"]
        serve, *options = config["config"]["Cmd"]
        self.assertEqual(serve, "serve")
        with mounted(self.root), served(self.root, program, *options, user=config["config"]["User"], env=env) as url:
            self.assert_serves(url)


# Libraries that every Linux has whose glibc the wheel's tag names, besides glibc: the rules of manylinux.
OF_EVERY_LINUX = {"libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"}
SIMULATED = "model='llama-3.1-8b', device='a100', workload='random:in=64,out=8', rate=5, requests=20"


class Wheel(PackageCase):
    def test_installs_without_network_simulates_and_serves(self):
        clean_root(self.root, "python3-venv")
        wheel = package("tactus-*.whl")
        shutil.copy(wheel, self.root / "tmp" / wheel.name)
        self.put_model("srv/model.gguf")
        python = "/srv/venv/bin/python"
        with mounted(self.root):
            run("chroot", self.root, "python3", "-m", "venv", "/srv/venv")
            run("unshare", "--net", "chroot", self.root, python, "-m", "pip", "install", f"/tmp/{wheel.name}")
            # Python's own OpenSSL and SQLite load beside those of the package.
            code = f"import tactus, ssl, sqlite3, json; print(json.dumps(tactus.simulate({SIMULATED})))"
            simulated = json.loads(run("chroot", self.root, python, "-c", code))
            self.assertEqual(simulated["requests"]["completed"], 20)
            sim = ["sim", "--model", "llama-3.1-8b", "--device", "a100", "--workload", "random:in=64,out=8"]
            sim += ["--rate", 5, "--requests", 20, "-o", "/tmp/simulated.json"]
            run("chroot", self.root, python, "-m", "tactus", *sim)
            by_command = json.loads((self.root / "tmp/simulated.json").read_text())
            self.assertEqual(by_command["plan_hash"], simulated["plan_hash"])
            version = run("chroot", self.root, python, "-c", "import tactus; print(tactus.__version__)").strip()
            for command in ([python, "-m", "tactus"], ["/srv/venv/bin/tactus"]):
                self.assertIn(version, run("chroot", self.root, *command, "--version"))
            answer = run("chroot", self.root, python, "-m", "tactus", "run", "/srv/model.gguf", "--temperature", 0,
                         "-p", "What is the capital of France?")  # fmt: skip
            self.assertIn("Paris", answer)
            command = ["chroot", self.root, python, "-m", "tactus", "serve", "--no-such-option"]
            wrong = subprocess.run(command, check=False, capture_output=True)
            self.assertEqual(wrong.returncode, 2, "the program's exit status is lost")
            options = ("/srv/model.gguf", "--threads", "2")
            with served(self.root, [python, "-m", "tactus"], *options, user="65534:65534") as url:
                self.assert_serves(url)
                grammar = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["a"]}}}
                self.assertEqual(chat(url, response_format=grammar), '"a"', "no structured output")

    def test_needs_no_newer_system_than_its_tag_names(self):
        wheel = package("tactus-*.whl")
        tags = [re.fullmatch(r"manylinux_2_(\d+)_\w+", tag) for tag in wheel.stem.split("-")[-1].split(".")]
        self.assertTrue(all(tags), f"{wheel.name}: another tag than manylinux_2_N")
        least = min(int(tag[1]) for tag in tags)
        unpacked = self.folder / "unpacked"
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(unpacked)
        programs = [p for p in unpacked.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreater(len(programs), 5)
        shipped = {p.name for p in programs}
        for program in programs:
            described = run("readelf", "--dynamic", "--version-info", "--wide", program)
            newest = max((int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", described)), default=0)
            self.assertLessEqual(newest, least, f"{program.name} needs glibc 2.{newest}; the tag is 2.{least}")
            for library in re.findall(r"\(NEEDED\).*\[(.+)\]", described):
                found = library in shipped or library in OF_EVERY_LINUX or OF_GLIBC.match(library)
                self.assertTrue(found, f"{program.name} needs {library}, which is not in the wheel")

    def test_lists_every_library_that_it_ships(self):
        with zipfile.ZipFile(package("tactus-*.whl")) as packed:
            (listed,) = (name for name in packed.namelist() if name.endswith(".dist-info/sboms/tactus.spdx.json"))
            within = "tactus.libs/"
            shipped = {n.removeprefix(within): packed.read(n) for n in packed.namelist() if n.startswith(within)}
            self.assert_lists(json.loads(packed.read(listed)), shipped)


if __name__ == "__main__":
    DIST = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else SOURCE / "dist"
    unittest.main(verbosity=2)
