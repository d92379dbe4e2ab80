"""deploy/systemd: units that systemd accepts and rates as confined, their users and folders, configurations and flags
that are valid for this program, and no system calls of a working server that its unit forbids."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from container_test import fleet_secret_is_built, has_flag, help_of
from server_process import ServerProcess

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"
SERVICES = {"tactus-serve@8001.service": "tactus-serve@.service", "tactus-route.service": "tactus-route.service"}
MOST_EXPOSURE = 14  # tenths; systemd rates up to 20 as OK
SYSTEM_UNITS = next(
    (p for p in map(pathlib.Path, ("/usr/lib/systemd/system", "/lib/systemd/system")) if p.is_dir()), None
)


def run(*command, **kwargs):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, **kwargs)


def values(unit, key):
    return re.findall(rf"(?m)^{key}=(.*)$", (UNITS / unit).read_text())


@unittest.skipIf(
    shutil.which("systemd-analyze") is None or SYSTEM_UNITS is None,
    "no systemd-analyze; scripts/setup.sh test installs Debian's",
)
class SystemdTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        units = self.root / "etc/systemd/system"
        units.mkdir(parents=True)
        for path in [*UNITS.glob("*.service"), *UNITS.glob("*.target"), *SYSTEM_UNITS.glob("*.target")]:
            shutil.copy(path, units / path.name, follow_symlinks=True)
        (self.root / "usr/bin").mkdir(parents=True)
        (self.root / "bin").mkdir()
        for program in ("usr/bin/tactus", "bin/kill"):
            shutil.copy("/bin/true", self.root / program)

    def test_systemd_accepts_the_units(self):
        done = run(
            "systemd-analyze", "verify", "--recursive-errors=no", f"--root={self.root}", *SERVICES, "tactus.target"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        unit = self.root / "etc/systemd/system/tactus-route.service"
        unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=mixd\nRestartSecs=1"))
        done = run("systemd-analyze", "verify", "--recursive-errors=no", f"--root={self.root}", "tactus-route.service")
        self.assertIn("mixd", done.stderr)
        self.assertIn("RestartSecs", done.stderr)

    def test_units_enabled_on_the_operators_page_start_at_boot(self):
        line = re.search(
            r"(?m)^sudo systemctl enable --now (.*)$", (UNITS.parents[1] / "docs/how-to/deploy.md").read_text()
        )
        self.assertIsNotNone(line, "docs/how-to/deploy.md enables nothing")
        done = run("systemctl", f"--root={self.root}", "enable", *line.group(1).split())
        self.assertEqual(done.returncode, 0, done.stderr)
        started, left = set(), {"multi-user.target"}
        while left:
            started |= left
            left = {
                path.name for unit in left for path in (self.root / f"etc/systemd/system/{unit}.wants").glob("*")
            } - started
        self.assertEqual(
            started,
            {
                "multi-user.target",
                "tactus.target",
                "tactus-serve@8001.service",
                "tactus-serve@8002.service",
                "tactus-route.service",
            },
        )

    def test_systemd_rates_the_units_as_confined(self):
        for service in SERVICES:
            done = run(
                "systemd-analyze",
                "security",
                "--offline=yes",
                f"--threshold={MOST_EXPOSURE}",
                f"--root={self.root}",
                "--no-pager",
                service,
            )
            with self.subTest(service=service):
                self.assertEqual(done.returncode, 0, done.stdout[-400:] + done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root makes users and folders of others")
    def test_users_and_folders(self):
        (self.root / "etc/tactus").mkdir(mode=0o700)
        (self.root / "etc/tactus/keys.env").write_text("TACTUS_API_KEY=secret\n")
        for command in (
            ("systemd-sysusers", UNITS / "sysusers.conf"),
            ("systemd-tmpfiles", "--create", UNITS / "tmpfiles.conf"),
        ):
            if shutil.which(command[0]) is None:
                self.skipTest(f"no {command[0]}")
            done = run(command[0], f"--root={self.root}", *command[1:])
            self.assertEqual(done.returncode, 0, done.stderr)
        users = {line.split(":")[0]: line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines()}
        uid = int(users["tactus"][2])
        self.assertEqual(users["tactus"][6], "/usr/sbin/nologin")
        found = {
            name: ((self.root / name).stat().st_uid, oct((self.root / name).stat().st_mode & 0o777))
            for name in (
                "etc/tactus",
                "etc/tactus/keys.env",
                "var/lib/tactus",
                "var/lib/tactus/models",
                "var/lib/tactus/state",
                "var/cache/tactus",
            )
        }
        self.assertEqual(
            found,
            {
                "etc/tactus": (0, "0o755"),
                "etc/tactus/keys.env": (0, "0o600"),
                "var/lib/tactus": (0, "0o755"),
                "var/lib/tactus/models": (0, "0o755"),
                "var/lib/tactus/state": (uid, "0o750"),
                "var/cache/tactus": (uid, "0o750"),
            },
        )
        writable = {
            path.removeprefix("-/")
            for line in values("tactus-serve@.service", "ReadWritePaths")
            for path in line.split()
        }
        self.assertEqual(writable, {name for name, (owner, _) in found.items() if owner == uid})
        # The process could replace a root-owned folder within its own folder.
        self.root.chmod(0o755)
        (self.root / "var/lib/tactus/models/model").write_text("a model")
        before = {path: path.stat().st_ino for path in (self.root / "var/lib/tactus").rglob("*")}
        person = {"user": uid, "group": int(users["tactus"][3]), "extra_groups": []}
        for path in [self.root / "var/lib/tactus", *before]:
            run("mv", "-T", path, f"{path}.old", **person)
        self.assertEqual({path: path.stat().st_ino for path in (self.root / "var/lib/tactus").rglob("*")}, before)
        self.assertEqual(run("touch", self.root / "var/lib/tactus/state/file", **person).returncode, 0)
        for unit in SERVICES.values():
            self.assertEqual(values(unit, "User") + values(unit, "Group"), ["tactus", "tactus"])


class UnitsTest(unittest.TestCase):
    def test_units_use_what_the_program_tells_systemd(self):
        """tests/e2e/notify_test.py checks the messages: READY, WATCHDOG and the reload at SIGHUP."""
        for unit in SERVICES.values():
            with self.subTest(unit=unit):
                self.assertEqual(values(unit, "Type"), ["notify"])
                self.assertEqual(values(unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"])
                self.assertGreaterEqual(int(values(unit, "WatchdogSec")[0]), 10)
                families = values(unit, "RestrictAddressFamilies")[0].split()
                self.assertIn("AF_UNIX", families, "the program could not send to NOTIFY_SOCKET")

    def test_the_program_accepts_configurations_and_flags(self):
        missing = []
        for unit in SERVICES.values():
            words = values(unit, "ExecStart")[0].split()
            command, configuration = words[1], UNITS / pathlib.Path(words[words.index("--config") + 1]).name
            if help_of(command) is None:
                missing.append(command)
                continue
            with self.subTest(unit=unit):
                for flag in [w for w in words if w.startswith("--")]:
                    if flag != "--kv-secret-file" or fleet_secret_is_built():
                        self.assertTrue(has_flag(command, flag), f"`tactus {command} --help` has no {flag}")
                done = run(os.environ["TACTUS_BINARY"], command, "--config", configuration, "--print-config")
                self.assertEqual(done.returncode, 0, done.stderr)
                for line in configuration.read_text().splitlines():
                    if line and not line.startswith("#"):
                        self.assertIn(line.split(" = ")[0] + " = ", done.stdout)
                stop = int(re.search(r'shutdown-timeout = "(\d+)s"', configuration.read_text()).group(1))
                self.assertGreater(int(values(unit, "TimeoutStopSec")[0]), stop + 10)
        if missing:
            self.skipTest(f"this program has no command {', '.join(missing)}: its unit was not checked")

    @unittest.skipIf(shutil.which("strace") is None, "no strace; scripts/setup.sh test installs Debian's")
    @unittest.skipIf(
        shutil.which("systemd-analyze") is None, "no systemd-analyze; scripts/setup.sh test installs Debian's"
    )
    def test_a_server_makes_no_call_that_its_unit_forbids(self):
        def members(name):
            found = set()
            for word in re.findall(r"(?m)^    (@?[\w-]+)", run("systemd-analyze", "syscall-filter", name).stdout):
                found |= members(word) if word.startswith("@") else {word}
            return found

        allowed = set()
        for filters in values("tactus-serve@.service", "SystemCallFilter"):
            for name in filters.removeprefix("~").split():
                allowed = allowed - members(name) if filters.startswith("~") else allowed | members(name)
        self.assertIn("setpriority", allowed)
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace"
            program = pathlib.Path(folder) / "tactus"  # replaces the server's process, which is then the tracer
            program.write_text(
                f'#!/bin/sh\nexec strace -f -qq -I 3 -e signal=none -o {trace} {os.environ["TACTUS_BINARY"]} "$@"\n'
            )
            program.chmod(0o755)
            before = os.environ["TACTUS_BINARY"]
            os.environ["TACTUS_BINARY"] = str(program)
            try:
                server = ServerProcess("--threads", "2", "--files-dir", f"{folder}/files", real_model=False)
            except RuntimeError as error:
                if "PTRACE" in str(error) or "ptrace" in str(error):
                    self.skipTest("nothing may be traced here")
                raise
            finally:
                os.environ["TACTUS_BINARY"] = before
            request = urllib.request.Request(
                server.url + "/v1/completions",
                b'{"prompt": "a", "max_tokens": 4}',
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                self.assertIn(b"text_completion", response.read())
            # The signal goes to the server: a tracer that detaches from threads which are ending can hang.
            tracer = server.process.pid
            for child in pathlib.Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
            server.stop(send=False)
            lines = trace.read_text(errors="replace").splitlines()
        called = {match.group(1) for line in lines if (match := re.match(r"\d+ +(\w+)\(", line))}
        self.assertGreater(len(called), 20, "the trace is empty")
        called -= {"execve"} | ({"fchown"} if os.geteuid() == 0 else set())  # by SQLite, only as root
        self.assertEqual(called - allowed, set())
        writable_code = [
            line
            for line in lines
            if re.search(r"(mmap|mprotect)\(", line) and "PROT_WRITE" in line and "PROT_EXEC" in line
        ]
        self.assertEqual(writable_code, [], "MemoryDenyWriteExecute= forbids it")


if __name__ == "__main__":
    unittest.main()
