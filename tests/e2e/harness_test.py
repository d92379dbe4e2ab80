"""The test harness: servers that hang, and tests that hang or skip, are reported within seconds."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import server_process
from server_process import ServerProcess, wait_until

HERE = pathlib.Path(__file__).resolve().parent


class ServerProcessTest(unittest.TestCase):
    def start(self, script):
        """A ServerProcess whose program is this shell script."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text("#!/bin/bash\n" + script)
            program.chmod(0o755)
            with (
                mock.patch.dict(os.environ, TACTUS_BINARY=str(program)),
                mock.patch.multiple(server_process, START_LIMIT_S=2, STOP_LIMIT_S=2),
            ):
                return ServerProcess(real_model=False)

    def test_one_that_never_gets_ready(self):
        with self.assertRaisesRegex(RuntimeError, "not ready within 2 s(.|\n)*last lines:\nhalf way"):
            self.start("echo half way >&2; exec sleep 100")

    def test_one_that_ends_at_once(self):
        with self.assertRaisesRegex(RuntimeError, r"did not start \(exit status 3\)(.|\n)*no such model"):
            self.start("echo no such model >&2; exit 3")

    def test_one_that_does_not_stop(self):
        server = self.start("trap '' TERM; echo 'ready: m on http://127.0.0.1:9' >&2; exec sleep 100")
        with (
            mock.patch.multiple(server_process, STOP_LIMIT_S=1),
            self.assertRaisesRegex(RuntimeError, "did not stop within 1 s"),
        ):
            server.stop()

    def test_a_condition_that_never_holds(self):
        with self.assertRaisesRegex(AssertionError, "the moon is full: not within 0.1 s, look"):
            wait_until(lambda: False, "the moon is full", limit_s=0.1, about=lambda: ", look")


class RunTest(unittest.TestCase):
    def run_module(self, body, limit_s=60):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "some_test.py").write_text(
                "import time\nimport unittest\nclass T(unittest.TestCase):\n" + body
            )
            return subprocess.run(
                [sys.executable, HERE / "run.py", "--module", "some_test"],
                capture_output=True,
                text=True,
                timeout=60,
                env=dict(os.environ, PYTHONPATH=folder, TEST_LIMIT_S=str(limit_s)),
            )

    SKIPPED = "    @unittest.skip('no {0} here')\n    def test_{0}(self): pass\n"
    GOOD = "    def test_good(self): pass\n"

    def test_some_skipped_is_0_and_counted(self):
        done = self.run_module(self.GOOD + self.SKIPPED.format("a") + self.SKIPPED.format("b"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("some_test: 2 of 3 tests were skipped:\n  1 x no a here\n  1 x no b here\n", done.stdout)

    def test_all_skipped_is_77(self):
        done = self.run_module(self.SKIPPED.format("a"))
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("1 of 1 tests were skipped", done.stdout)

    def test_a_failure_beside_skips_is_1(self):
        done = self.run_module("    def test_bad(self): self.fail()\n" + self.SKIPPED.format("a"))
        self.assertEqual(done.returncode, 1)

    def test_a_test_that_hangs_ends_with_its_place(self):
        done = self.run_module("    def test_stuck(self):\n        time.sleep(50)\n", limit_s=1)
        self.assertNotIn(done.returncode, (0, 77))
        self.assertIn("test_stuck", done.stderr)
        self.assertIn("Timeout", done.stderr)


if __name__ == "__main__":
    unittest.main()
