"""Predictions of served runs: with every scheduler a server records a run, and `tactus sim --replay --times model`
repeats it with step times of a file, as in README."""

import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request
import zipfile

from server_process import ServerProcess

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
ONLY_SIMULATED = ("oracle", "trail-oracle")


def tactus(*args, timeout=120):
    return subprocess.run(
        [BINARY, *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=ENVIRONMENT,
        check=False,
    )


def write_profile(path):
    with open(path, "w", encoding="utf-8") as out:
        out.write("prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n")
        for prefill in (0, 16, 64, 256, 1024):
            for context in (0, 512):
                for decodes in (0, 1, 8, 32):
                    if prefill + decodes > 0 and (prefill > 0 or context == 0):
                        read = 300 * decodes
                        ms = 1 + 0.01 * prefill + 0.00002 * prefill * context + 0.05 * decodes + 0.0001 * read
                        out.write(f"{prefill},{context},{decodes},{read},{ms:.5f}\n")


class PredictTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.profile = cls.path / "profile.csv"
        write_profile(cls.profile)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def record(self, *args, bodies=()):
        """The path of a server's recording, and the number of requests that it answered."""
        trace = self.path / "run.trace"
        trace.unlink(missing_ok=True)
        server = ServerProcess(
            "--trace-out",
            trace,
            "--threads",
            1,
            "--profile",
            self.profile,
            "--max-num-seqs",
            8,
            *args,
            real_model=False,
        )
        try:

            def post(body):
                request = urllib.request.Request(
                    server.url + "/v1/completions",
                    json.dumps({"model": "test-model", **body}).encode(),
                    {"Content-Type": "application/json"},
                )
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(post, bodies))
        finally:
            server.stop()
        self.assertTrue(all(answer["choices"] for answer in answers))
        return trace, len(answers)

    def predict(self, trace, requests):
        steps, run = self.path / "steps.csv", self.path / "predicted.zip"
        for path in (steps, run):
            path.unlink(missing_ok=True)
        done = tactus(
            "sim",
            "--replay",
            trace,
            "--times",
            "model",
            "--cost",
            self.profile,
            "--steps-out",
            steps,
            "--run-out",
            run,
            "--json",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertTrue(result["recorded"]["identical"])
        for side in ("measured", "predicted"):
            self.assertEqual(result[side]["requests"]["completed"], requests, side)
        self.assertGreater(result["predicted"]["duration_s"], 0)
        with open(steps, encoding="utf-8") as rows:
            self.assertEqual(len(list(csv.DictReader(rows))), result["step_time"]["steps"])
        with zipfile.ZipFile(run) as file:
            self.assertEqual(json.loads(file.read("result.json"))["requests"]["completed"], requests)
        table = tactus("sim", "--replay", trace, "--times", "model", "--cost", self.profile)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("Times (ms)", table.stdout)
        return result

    def test_a_run_of_every_scheduler_is_predicted(self):
        listed = json.loads(tactus("sim", "--list", "--json").stdout)["schedulers"]
        self.assertGreater(len(listed), 15)
        bodies = [
            {
                "prompt": "x" * (10 + 40 * i),
                "max_tokens": 4 + i,
                "temperature": 0,
                "ignore_eos": i % 2 == 0,
                "n": 1 + i % 2,
            }
            for i in range(6)
        ]
        for scheduler in sorted(set(listed) - set(ONLY_SIMULATED)):
            with self.subTest(scheduler=scheduler):
                self.predict(*self.record("--scheduler", scheduler, bodies=bodies))

    def test_a_run_with_guesses_is_predicted(self):
        again = [{"prompt": "abcabcabc" * 20, "max_tokens": 40, "temperature": 0, "ignore_eos": True} for _ in range(3)]
        result = self.predict(*self.record("--speculation", "ngram", bodies=again))
        recorded, predicted = (result[side]["draft_tokens"] for side in ("measured", "predicted"))
        self.assertEqual(recorded > 0, predicted > 0, (recorded, predicted))

    def test_a_recording_without_steps_is_not_identical_to_anything(self):
        trace, _ = self.record()
        done = tactus("sim", "--replay", trace)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing to compare", done.stdout)
        self.assertNotIn("identical", done.stdout)
        self.assertIn("has no steps, so nothing was compared", done.stderr)
        self.assertIsNone(json.loads(tactus("sim", "--replay", trace, "--json").stdout)["identical"])
        done = tactus("sim", "--replay", trace, "--times", "model", "--cost", self.profile)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has no steps", done.stderr)


if __name__ == "__main__":
    unittest.main()
