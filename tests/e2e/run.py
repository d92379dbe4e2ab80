"""Runs one test module with a Python that has the packages of requirements.txt; exit status 77 (skipped) where there is none.

  run.py TACTUS_BINARY MODULE.py
"""
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
candidates = [os.environ.get("TACTUS_TEST_PYTHON"), str(here.parents[1] / ".venv/bin/python"), sys.executable]
for python in filter(None, candidates):
    found = subprocess.run([python, "-c", "import openai"], capture_output=True) if pathlib.Path(python).exists() else None
    if found is not None and found.returncode == 0:
        environment = dict(os.environ, TACTUS_BINARY=sys.argv[1], PYTHONWARNINGS="error::ResourceWarning")
        sys.exit(subprocess.run([python, str(here / sys.argv[2]), "-v"], env=environment, cwd=here).returncode)
print("skipped: no Python with the packages of tests/e2e/requirements.txt; scripts/test.sh makes one in .venv")
sys.exit(77)
