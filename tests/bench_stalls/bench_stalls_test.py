#!/usr/bin/env python3
"""bench/stalls: whole runs with a fake server (fake_server.py), the picture, and wrong input."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
RUN = HERE.parents[1] / "bench/stalls/run.py"
FAKE = HERE / "fake_server.py"
SMALL = ["--streams", "2", "--prompts", "1", "--prompt-tokens", "100", "--quiet-s", "0.4", "--pause-s", "0.2"]


class StallsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.svg, self.json = self.folder / "stalls.svg", self.folder / "stalls.json"

    def run_it(self, *args, **environment):
        return subprocess.run(
            [sys.executable, RUN, "-o", self.svg, *args],
            capture_output=True,
            text=True,
            timeout=100,
            env=dict(os.environ, **environment),
        )

    def compare(self, *args, **environment):
        servers = ["--llama-server", FAKE, "--tactus", FAKE, "--model", "m.gguf", "--json", self.json]
        return self.run_it(*servers, *SMALL, *args, **environment)

    def test_gaps_beside_the_long_prompt_are_measured_and_shaded(self):
        done = self.compare(STALL_S="0.6")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(self.json.read_text())
        self.assertEqual([r["name"] for r in result["runs"]], ["llama.cpp", "llama.cpp, batches of 128", "Tactus"])
        for run in result["runs"]:
            self.assertEqual(len(run["streams"]), 2)
            self.assertGreaterEqual(run["longest_gap_s"], 0.55, "the stall of 0.6 s is the longest gap")
            self.assertGreaterEqual(run["ttft_s"][0], 0.55, "the long prompt's first token comes after it")
            arrived, first = run["prompts"][0]
            self.assertGreaterEqual(arrived, 0.4, "the prompt arrives after the quiet time")
            self.assertTrue(any(arrived < at < first + 0.2 for at in run["streams"][0]), "streams go on after it")
        drawing = xml.etree.ElementTree.parse(self.svg).getroot()
        shaded = [e for e in drawing.iter() if e.get("fill") == "#fbdcd3"]
        self.assertGreaterEqual(len(shaded), 6, "a stall of each of two streams of three servers")
        marks = sum(e.get("d").count("M") for e in drawing.iter() if e.tag.endswith("path"))
        self.assertEqual(marks, sum(len(s) for r in result["runs"] for s in r["streams"]), "every token is a mark")
        picture = self.svg.read_text()
        again = self.run_it("--draw", self.json)
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
        self.assertEqual(self.svg.read_text(), picture)

    def test_a_server_that_fails_ends_the_run_with_its_answer(self):
        done = self.compare(FAIL="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("llama.cpp: the long prompt failed: HTTP 500", done.stderr)
        self.assertFalse(self.svg.exists())

    def test_a_stream_that_ends_before_the_long_prompts_first_token_ends_the_run(self):
        done = self.compare("--stream-tokens", "25", STALL_S="0.6")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("2 streams ended before the last long prompt's first token", done.stderr)
        self.assertIn("longer than 25 by --stream-tokens", done.stderr)

    def test_a_stream_without_a_token_when_the_long_prompt_arrives_ends_the_run(self):
        done = self.compare("--quiet-s", "0")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("0 of 2 streams had a token after 0 s", done.stderr)
        self.assertIn("--quiet-s", done.stderr)

    def test_a_file_that_is_no_result_is_not_drawn(self):
        for text in ("{", "[]", '{"streams": 1}', '{"streams": 1, "runs": []}'):
            self.json.write_text(text)
            done = self.run_it("--draw", self.json)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn("stalls.json is no file of --json", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_wrong_options_are_refused(self):
        for args, words in (
            ([], "give either --llama-server or --draw"),
            (["--llama-server", "/none"], "/none is no program"),
            (["--llama-server", FAKE, "--tactus", FAKE, "--streams", "0"], "--streams is 0: at least 1"),
            (["--llama-server", FAKE, "--tactus", FAKE, "--quiet-s", "-1"], "--quiet-s is -1: at least 0 seconds"),
            (["--llama-server", FAKE, "--tactus", FAKE, "--json", "/none/x.json"], "/none/x.json cannot be written"),
        ):
            done = self.run_it(*args)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
