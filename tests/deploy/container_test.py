"""deploy/Dockerfile, without Docker: its style (hadolint); the copied files exist and suffice to configure; the
packages of its last stage have every linked library; its health check detects failures.
"""

import fnmatch
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from server_process import ServerProcess, TakenPort

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
HEALTH = ROOT / "deploy/healthcheck.sh"
NOT_LINKED = {"ca-certificates"}
PICKER_S = {"libgrpc++1.51", "libprotobuf32"}  # needed by tactus-epp, which is built if gRPC is installed


def run(*command, timeout=60, **kwargs):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, **kwargs)


def help_of(command):
    """The --help-all of a command of this program; None if there is no such command."""
    done = run(os.environ["TACTUS_BINARY"], command, "--help-all")
    return done.stdout if done.returncode == 0 else None


def has_flag(command, flag):
    return re.search(rf"(?m)^  (--[\w-]+, )?{re.escape(flag)}\b", help_of(command)) is not None


def fleet_secret_is_built():
    """Whether this program has --kv-secret-file: if `serve` has it, all programs of a fleet must."""
    return has_flag("serve", "--kv-secret-file")


def stages():
    """name -> instructions of each stage, as (word, rest), with continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text())
    found, name = {}, None
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if not line.strip():
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else "last"
            found[name] = [("FROM", rest.split(" AS ")[0])]
        else:
            found[name].append((word, rest))
    return found


def instructions(stage, word):
    return [rest for found, rest in stages()[stage] if found == word]


def copied_from_clone():
    """(sources, target) of each COPY that reads the clone."""
    for name in stages():
        for rest in instructions(name, "COPY"):
            if not rest.startswith("--from="):
                *sources, target = rest.split()
                yield sources, target


def with_dependencies(packages):
    """The packages and their dependencies, as far as installed here."""
    found, left = set(), set(packages)
    while left:
        done = run("dpkg-query", "-W", "-f", "${Package} ${Depends}\n", *sorted(left))
        found |= left
        named = {
            re.split(r"[ (:]", entry.strip())[0]
            for line in done.stdout.splitlines()
            for entry in re.split("[,|]", line.split(" ", 1)[1])
        }
        left = named - found - {""}
    return found


def ignored(path):
    """Whether .dockerignore leaves out a path of the clone."""
    left_out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            names = [str(p) for p in [path, *path.parents] if str(p) != "."]
            fits = [
                n
                for n in names
                if fnmatch.fnmatch(n, pattern)
                or pattern.startswith("**/")
                and fnmatch.fnmatch(pathlib.Path(n).name, pattern[3:])
            ]
            if fits:
                left_out = not line.startswith("!")
    return left_out


class ContainerTest(unittest.TestCase):
    def test_hadolint_finds_nothing(self):
        beside = pathlib.Path(sys.executable).parent / "hadolint"
        program = str(beside) if beside.exists() else shutil.which("hadolint")
        if program is None:
            self.skipTest("no hadolint; scripts/test.sh installs it in .venv")
        done = run(program, DOCKERFILE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_copied_files_exist(self):
        found = list(copied_from_clone())
        self.assertGreater(len(found), 5)
        for sources, _ in found:
            for source in sources:
                with self.subTest(source=source):
                    self.assertTrue((ROOT / source).exists(), "is not in the clone")
                    self.assertFalse(ignored(pathlib.Path(source)), ".dockerignore leaves it out")
        for name in (
            ".git",
            "build/release/tactus",
            ".venv/bin/python",
            "deploy/kubernetes/batch_shards.yaml",
            "src/__pycache__",
            "model.gguf",
        ):
            self.assertTrue(ignored(pathlib.Path(name)), f".dockerignore lets {name} in")

    @unittest.skipIf(shutil.which("cmake") is None or shutil.which("ninja") is None, "no cmake")
    def test_copied_files_suffice_to_configure(self):
        with tempfile.TemporaryDirectory() as folder:
            for sources, target in copied_from_clone():
                for source in sources:
                    name = source if target in ("./", "scripts/") or target == source else None
                    if name is None:
                        continue
                    destination = pathlib.Path(folder) / name
                    destination.parent.mkdir(parents=True, exist_ok=True)
                    if (ROOT / source).is_dir():
                        shutil.copytree(ROOT / source, destination, dirs_exist_ok=True)
                    else:
                        shutil.copy(ROOT / source, destination)
            command = (
                re.search(r"cmake (--preset release [^>&]*)", " ".join(instructions("build", "RUN"))).group(1).split()
            )
            done = run("cmake", *command, cwd=folder, timeout=100)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-3000:])
            done = run("ninja", "-C", f"{folder}/build/release", "-t", "query", "tactus")
            self.assertEqual(done.returncode, 0, "there is no target tactus\n" + done.stderr)
            # Files embedded by a pattern, which would silently match nothing.
            graph = pathlib.Path(f"{folder}/build/release/build.ninja").read_text()
            self.assertEqual(
                [p.name for p in (ROOT / "data/cost").glob("*.json") if f"data/cost/{p.name}" not in graph], []
            )

    @unittest.skipIf(shutil.which("dpkg-query") is None or shutil.which("ldd") is None, "no Debian")
    def test_installed_packages_have_every_library(self):
        if (
            "ID=debian" not in pathlib.Path("/etc/os-release").read_text()
            or 'VERSION_ID="12"' not in pathlib.Path("/etc/os-release").read_text()
        ):
            self.skipTest("names of packages are Debian 12's")
        install = next(rest for rest in instructions("runtime", "RUN") if "apt-get install" in rest)
        listed = set(re.search(r"--no-install-recommends (.*?) &&", install).group(1).split())
        picker = pathlib.Path(os.environ["TACTUS_BINARY"] + "-epp")
        wanted = {}
        for program in [os.environ["TACTUS_BINARY"], *([picker] if picker.exists() else [])]:
            libraries = re.findall(r"(?m)^\s+(\S+) => (\S+)", run("ldd", program).stdout)
            self.assertGreater(len(libraries), 5)
            for name, path in libraries:
                self.assertNotEqual(path, "not", f"{name} is not found")
                wanted[name] = set()
        for line in run("dpkg-query", "-S", *(f"*/{name}" for name in wanted)).stdout.splitlines():
            owner, path = line.split(": ", 1)
            wanted[pathlib.Path(path).name].add(owner.split(":")[0])
        self.assertEqual([name for name, owners in wanted.items() if not owners], [], "libraries that no package has")
        there = with_dependencies(listed | {"libc6"})
        missing = {name: owners for name, owners in wanted.items() if not owners & there}
        self.assertEqual(missing, {}, "add their packages to the last stage of deploy/Dockerfile")
        unused = {
            package for package in listed - NOT_LINKED if not any(package in owners for owners in wanted.values())
        }
        self.assertEqual(
            unused - (set() if picker.exists() else PICKER_S), set(), "packages that the programs do not need"
        )

    def test_the_container_runs_confined(self):
        self.assertEqual(instructions("runtime", "USER"), ["10001:10001"])
        self.assertIn('"/models"', instructions("runtime", "VOLUME")[0])
        self.assertEqual(stages()["last"], [("FROM", "runtime")])
        version = re.search(r"project\(tactus VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        for path in [DOCKERFILE, *(ROOT / "deploy").rglob("*.yaml")]:
            for tag in re.findall(r"tactus:(\d[\w.]*)", path.read_text()):
                self.assertEqual(tag, version, path)

    def test_the_program_accepts_the_containers_command_and_environment(self):
        environment = dict(re.findall(r"(TACTUS_\w+)=(\S+)", " ".join(instructions("runtime", "ENV"))))
        for stage in ("runtime", "demo"):
            words = re.findall(r'"([^"]+)"', instructions(stage, "CMD")[0])
            done = run(os.environ["TACTUS_BINARY"], *words, "--print-config", env={**os.environ, **environment})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("host = '0.0.0.0'", done.stdout)

    def check(self, *arguments, **environment):
        done = run(HEALTH, *arguments, env={**os.environ, **environment})
        return done.returncode, done.stderr.strip()

    def test_the_health_check(self):
        server = ServerProcess("--shutdown-timeout", "1s", real_model=False)
        port = server.url.rsplit(":", 1)[1]
        try:
            self.assertEqual(self.check(TACTUS_PORT=port), (0, ""))
            self.assertEqual(self.check("/ready", port), (0, ""))
            self.assertEqual(self.check("/nothing", port), (1, f"health: /nothing on port {port}: status 404"))
        finally:
            server.stop()
        with TakenPort(listening=False) as port:
            self.assertEqual(self.check(TACTUS_PORT=str(port)), (1, f"health: nothing listens on port {port}"))
        with TakenPort() as port:  # accepts connections without answering
            self.assertEqual(self.check(TACTUS_PORT=str(port)), (1, f"health: no answer within 4 s on port {port}"))
        self.assertEqual(self.answered(b"SSH-2.0-other\r\n")[0], 1)
        self.assertEqual(self.answered(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")[0], 1)
        self.assertEqual(self.answered(b"HTTP/1.1 200 OK\r\n\r\n")[0], 0)

    def answered(self, answer):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(30)

            def serve():
                connection, _ = listener.accept()
                with connection:
                    request = b""
                    while not request.endswith(b"\r\n\r\n"):
                        request += connection.recv(1000)
                    connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            result = self.check("/health", str(listener.getsockname()[1]))
            thread.join(30)
            return result


if __name__ == "__main__":
    unittest.main()
