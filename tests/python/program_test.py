"""`python -m tactus`: a program beside the package replaces the interpreter. The program here is a script."""

import importlib.util
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

MAIN = pathlib.Path(importlib.util.find_spec("tactus").origin).with_name("__main__.py")


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        package = self.folder / "tactus"
        package.mkdir()
        (package / "__init__.py").touch()
        shutil.copy(MAIN, package / "__main__.py")
        self.program = package / "tactus"

    def command(self, script, *arguments):
        """The command of a package whose program is this script of the shell."""
        if script is not None:
            self.program.write_text(f"#!/bin/sh\n{script}\n")
            self.program.chmod(0o755)
        return [sys.executable, "-m", "tactus", *arguments]

    def run_program(self, script, *arguments):
        return subprocess.run(
            self.command(script, *arguments), cwd=self.folder, capture_output=True, text=True, timeout=60
        )

    def test_gets_every_argument_and_its_exit_status_is_kept(self):
        done = self.run_program('printf "<%s>" "$0" "$@"; exit 7', "serve", "a b", "--", "")
        self.assertEqual(done.returncode, 7)
        self.assertEqual(done.stdout, f"<{self.program}><serve><a b><--><>")

    def test_gets_signals_itself(self):
        command = self.command("trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done")
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(30), 42, "the program did not handle Ctrl-C")

    def test_ignores_no_signal_that_only_python_ignores(self):
        done = self.run_program("cat /proc/self/status")
        ignored = int(re.search(r"SigIgn:\s*(\w+)", done.stdout)[1], 16)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            self.assertFalse(ignored >> (number - 1) & 1, f"the program ignores {number.name}")

    def test_says_where_to_get_a_program_that_is_missing(self):
        done = self.run_program(None, "serve")
        self.assertEqual(done.returncode, 1)
        self.assertIn("scripts/package.sh wheel", done.stderr)
        self.assertIn("scripts/build.sh release programs", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
