"""The package's types: mypy, strict, finds nothing in it, finds what a caller does wrong, and the stub of the native
part
names what is there."""

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

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
USER = """
from tactus import LLM, Prompt, SamplingParams, plan, PlanCosts, simulate

with LLM("m", max_num_seqs=4, threads=2) as llm:
    params = SamplingParams(temperature=0.5, stop=["a"])
    mixed: list[Prompt] = ["a", [1, 2], {"prompt": "b"}]
    texts: list[str] = [
        o.outputs[0].text for o in llm.generate(mixed, params) + llm.generate("a") + llm.generate([[1], [2]])
    ]
    text: str = llm.chat([{"role": "user", "content": "a"}])[0].outputs[0].text
    for piece in llm.stream("a"):
        ids: list[int] = piece.token_ids
shards: list[list[int]] = plan([[1]], costs=PlanCosts.of("m", "d"), kv_tokens=1, shards=2).shards
rate: float = simulate(model="m", rate=1.5)["goodput"]
"""
WRONG = """
from tactus import LLM, SamplingParams
SamplingParams(temperature="hot")
LLM("m").generate("a", sampling_params=3)
number: int = LLM("m").stream("a").__next__().text
"""


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
            user, wrong = pathlib.Path(folder) / "user.py", pathlib.Path(folder) / "wrong.py"
            user.write_text(USER)
            wrong.write_text(WRONG)
            modules = [str(p) for p in sorted((PACKAGE / "tactus").glob("*.py"))]
            done = self.mypy(*modules, str(user), str(wrong))
        lines = [line for line in done.stdout.splitlines() if ": error:" in line]
        mine = [line for line in lines if "wrong.py" not in line]
        self.assertEqual(mine, [], done.stderr)
        for number in (3, 4, 5):
            self.assertTrue(
                any(f"wrong.py:{number}:" in line for line in lines),
                f"line {number} of WRONG passes:\n{done.stdout}{done.stderr}",
            )

    def test_pins_and_versions_are_the_same_wherever_they_stand(self):
        root = PACKAGE.parent
        project = tomllib.loads((root / "pyproject.toml").read_text())
        requirements = (root / "tests/requirements.txt").read_text() + (
            root / "tests/python/requirements_ray.txt"
        ).read_text()
        pins = dict(re.findall(r"^([\w-]+)(?:\[[\w,]+\])?==(\S+)$", requirements, flags=re.M))
        for needed in [*project["build-system"]["requires"], *project["project"]["optional-dependencies"]["ray"]]:
            name, version = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?==(\S+)", needed).groups()
            self.assertIn(pins.get(name, version), (version,), name)
            self.assertIn(version, (root / "docs/third_party.md").read_text(), name)
        self.assertEqual(project["project"]["version"], tactus.__version__)

    def test_the_stub_names_what_the_native_part_has(self):
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
