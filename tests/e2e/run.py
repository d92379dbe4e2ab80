"""Runs one test module with a Python that has the packages it needs. Exit status 0, 1, or 77 (skipped) if there is no
such Python or every test was skipped. The last lines report how many tests were skipped, and why.

  run.py TACTUS_BINARY MODULE.py            of this folder, with the packages of tests/requirements.txt (.venv)
  run.py TACTUS_BINARY clients/MODULE.py    of tests/clients, with those of its requirements.txt (.venv-clients)
"""

import collections
import faulthandler
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
TEST_LIMIT_S = float(
    os.environ.get("TEST_LIMIT_S", 240)
)  # per test: a test that waits longer ends here with a traceback


class Result(unittest.TextTestResult):
    def startTest(self, test):
        faulthandler.dump_traceback_later(TEST_LIMIT_S, exit=True)
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.dump_traceback_later(TEST_LIMIT_S, exit=True)  # the time between tests has the same limit


def run_module(name):
    faulthandler.dump_traceback_later(TEST_LIMIT_S, exit=True)
    sys.path.insert(0, os.getcwd())
    try:
        tests = unittest.defaultTestLoader.loadTestsFromName(name)
    except unittest.SkipTest as reason:
        print(f"{name}: skipped: {reason}")
        return SKIPPED
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)
    faulthandler.cancel_dump_traceback_later()
    reasons = collections.Counter(reason for _, reason in result.skipped)
    skipped_all = bool(result.skipped) and len(result.skipped) >= result.testsRun
    if reasons:
        print(f"{name}: {len(result.skipped)} of {max(result.testsRun, len(result.skipped))} tests were skipped:")
        for reason, count in reasons.most_common():
            print(f"  {count} x {reason}")
    if not result.wasSuccessful():
        return 1
    if result.testsRun == 0 and not result.skipped:
        print(f"{name}: no tests")
        return 1
    return SKIPPED if skipped_all else 0


def main():
    if sys.argv[1] == "--module":
        return run_module(sys.argv[2])
    os.environ.setdefault("TACTUS_CUDA_LIBRARY", "none")  # tests are about the CPU, also on a machine with a card
    clients = sys.argv[2].startswith("clients/")
    module = sys.argv[2].removeprefix("clients/").removesuffix(".py")
    if clients:
        folder, venv, needs, requirements, variable = (
            HERE.parent / "clients",
            ".venv-clients",
            "anthropic, litellm",
            "tests/clients/requirements.txt",
            "TACTUS_CLIENTS_PYTHON",
        )
        environment = dict(
            os.environ, TACTUS_BINARY=sys.argv[1], PYTHONPATH=str(HERE)
        )  # their packages leave sockets open, which is not an error
    else:
        folder, venv, needs, requirements, variable = (
            HERE,
            ".venv",
            "openai",
            "tests/requirements.txt",
            "TACTUS_TEST_PYTHON",
        )
        environment = dict(os.environ, TACTUS_BINARY=sys.argv[1], PYTHONWARNINGS="error::ResourceWarning")
    for python in filter(None, [os.environ.get(variable), str(HERE.parents[1] / venv / "bin/python"), sys.executable]):
        packages = (
            f"import sys, importlib.util; sys.exit(not all(map(importlib.util.find_spec, {needs.split(', ')!r})))"
        )
        found = subprocess.run([python, "-c", packages], capture_output=True) if pathlib.Path(python).exists() else None
        if found is not None and found.returncode == 0:
            return subprocess.run([python, "-u", __file__, "--module", module], env=environment, cwd=folder).returncode
    print(f"skipped: no Python with the packages of {requirements}; scripts/test.sh makes one in {venv}")
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
