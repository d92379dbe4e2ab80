"""The package's types: mypy --strict finds no errors in it and finds a caller's errors; the native part's stub names
its actual contents."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

import tactus
from tactus import _native
from tiny_model import TinyModel

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
WRONG = """
from tactus import LLM, SamplingParams
SamplingParams(temperature="hot")
LLM("m").generate("a", sampling_params=3)
number: int = LLM("m").stream("a").__next__().text
LLM("m").generate(b"a")
SamplingParams(best_of=2)
LLM("m").generate(3)
LLM("m").decode("ab")
LLM("m").stream("a", [SamplingParams()])
SamplingParams(stop_token_ids="ab")
LLM("m", max_num_seqs="many")
LLM("m").chat("hello")
"""
# Lines of WRONG that no type checker can find: bytes are a sequence of numbers.
RIGHT = {"", "from tactus import LLM, SamplingParams", 'LLM("m").generate(b"a")'}
CALLS = pathlib.Path(__file__).resolve().parent / "calls.py"


class TypingTest(unittest.TestCase):
    def mypy(self, *args):
        environment = dict(os.environ, MYPYPATH=str(PACKAGE))
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryDirectory() as cache:
            return subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "mypy",
                    "--config-file",
                    str(PACKAGE.parent / "pyproject.toml"),
                    "--cache-dir",
                    cache,
                    *args,
                ],
                capture_output=True,
                text=True,
                timeout=150,
                env=environment,
            )

    def test_package_and_callers(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.py"
            wrong.write_text(WRONG)
            modules = [str(p) for p in sorted((PACKAGE / "tactus").glob("*.py"))]
            done = self.mypy(*modules, str(CALLS), str(wrong))
        lines = [line for line in done.stdout.splitlines() if ": error:" in line]
        mine = [line for line in lines if "wrong.py" not in line]
        self.assertEqual(mine, [], done.stderr)
        for number, text in enumerate(WRONG.splitlines(), 1):
            passes = not any(f"wrong.py:{number}:" in line for line in lines)
            self.assertEqual(passes, text in RIGHT, f"line {number} of WRONG:\n{done.stdout}{done.stderr}")

    def test_type_checked_calls_also_run(self):
        tiny = TinyModel()
        self.addCleanup(tiny.close)
        done = subprocess.run([sys.executable, str(CALLS), str(tiny.path)], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)

    def test_every_public_name_has_a_docstring(self):
        for name in set(tactus.__all__) - {"Prompt", "Message", "__version__"}:
            thing = getattr(tactus, name)
            self.assertTrue(thing.__doc__ and not thing.__doc__.startswith(name + "("), name)
            for attribute, value in vars(thing).items() if isinstance(thing, type) else ():
                calls = callable(value) or isinstance(value, (property, staticmethod, classmethod))
                if not attribute.startswith("_") and calls:
                    self.assertTrue(getattr(thing, attribute).__doc__ or value.__doc__, f"{name}.{attribute}")

    def test_pins_and_versions_agree_in_all_files(self):
        root = PACKAGE.parent
        project = tomllib.loads((root / "pyproject.toml").read_text())
        requirements = (root / "tests/requirements.txt").read_text() + (
            root / "tests/python/requirements_ray.txt"
        ).read_text()
        pins = dict(re.findall(r"^([\w-]+)(?:\[[\w,]+\])?==(\S+)$", requirements, flags=re.M))
        for needed in [*project["build-system"]["requires"], *project["project"]["optional-dependencies"]["ray"]]:
            name, version = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?==(\S+)", needed).groups()
            self.assertIn(pins.get(name, version), (version,), name)
            self.assertIn(version, (root / "docs/reference/third_party.md").read_text(), name)
        self.assertEqual(project["project"]["version"], tactus.__version__)

    def test_the_stub_lists_all_names_of_the_native_module(self):
        tree = ast.parse((PACKAGE / "tactus/_native.pyi").read_text())

        def names(body):
            return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))} | {
                node.target.id for node in body if isinstance(node, ast.AnnAssign)
            }

        only_types = {"JobPlan"}
        public = {name for name in vars(_native) if not name.startswith("_")}
        self.assertEqual(names(tree.body) - only_types, public)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in only_types:
                there = {name for name in vars(getattr(_native, node.name)) if not name.startswith("_")}
                self.assertEqual({name for name in names(node.body) if not name.startswith("_")}, there, node.name)


if __name__ == "__main__":
    unittest.main()
