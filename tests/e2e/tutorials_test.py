"""The pages of docs/tutorials, and pages with a worked example, do what they show (tutorial_page.py). Pages that only
simulate are fast; the others need the default model, whose answers they show."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from server_process import default_model
from shown_commands_test import commands_of
from tutorial_page import ROOT, PageRun, blocks_of

DOCS = ROOT / "docs"
SIMULATED = (
    "tutorials/simulate_before_you_buy",
    "tutorials/plan_a_batch",
    "tutorials/write_a_policy",
    "concepts/default_preset",
)
SERVED = (
    "tutorials/first_answer",
    "tutorials/first_ten_minutes",
    "tutorials/an_objective_kept",
    "tutorials/two_replicas",
)
KINDS = ("sh", "sh server", "sh untested", "python", "text", "cpp", "yaml")


def path_of(page):
    return DOCS / f"{page}.md"


class Simulated(unittest.TestCase):
    """Pages that only simulate."""


@unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
@unittest.skipUnless(shutil.which("curl"), "there is no curl")
class Served(unittest.TestCase):
    """Pages that serve the default model."""


def add_tests(case, pages):
    for page in pages:
        setattr(case, f"test_{pathlib.Path(page).name}", lambda self, page=page: PageRun(path_of(page)).run())


add_tests(Simulated, SIMULATED)
add_tests(Served, SERVED)


class Readme(unittest.TestCase):
    """The simulations that README.md shows. What it serves is in the tutorials; other lines of it need files."""

    def test_its_simulations_run(self):
        ran = 0
        for line, words in commands_of((ROOT / "README.md").read_text(encoding="utf-8")):
            if words[0] != "sim" or "--replay" in words:
                continue
            ran += 1
            with self.subTest(line=line), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [os.environ["TACTUS_BINARY"], *words], cwd=folder, capture_output=True, text=True, timeout=500
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.strip(), "it printed nothing")
        self.assertEqual(ran, 4)


class Pages(unittest.TestCase):
    """The lists above, and the form of the pages."""

    def test_every_tutorial_is_run(self):
        tutorials = {f"tutorials/{page.stem}" for page in (DOCS / "tutorials").glob("*.md")}
        self.assertEqual(tutorials - {*SIMULATED, *SERVED}, set())

    def test_every_output_follows_what_prints_it(self):
        for page in SIMULATED + SERVED:
            blocks = blocks_of(path_of(page).read_text())
            for before, block in zip([None, *blocks], blocks):
                with self.subTest(page=page, line=block.at):
                    self.assertIn(block.kind, KINDS)
                    if block.kind == "text":
                        self.assertIn(before and before.kind, ("sh", "sh server", "python"))


if __name__ == "__main__":
    unittest.main()
