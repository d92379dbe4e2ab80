"""Explanations of latency by the real program: the server's answer, and `tactus explain` on its recording."""

import decimal
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from server_process import ServerProcess

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
CAUSES = {
    "intake",
    "in_flight",
    "queue",
    "places",
    "budget",
    "kv",
    "sibling",
    "preempted",
    "passed_over",
    "prefill",
    "recompute",
    "decode",
}


def tactus(*args, timeout=120, **environment):
    return subprocess.run(
        [BINARY, *map(str, args)], capture_output=True, text=True, timeout=timeout, env={**ENVIRONMENT, **environment}
    )


def exact(text):
    return json.loads(text, parse_float=decimal.Decimal)


class Explained(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.trace = pathlib.Path(temporary.name) / "run.trace"

    def assert_adds_up(self, schedule):
        for s in [schedule, *schedule.get("sequences", [])]:
            at = decimal.Decimal(0)
            for segment in s["segments"]:
                self.assertEqual(segment["from_ms"], at)
                self.assertGreater(segment["to_ms"], at)
                self.assertIn(segment["cause"], CAUSES)
                at = segment["to_ms"]
            self.assertEqual(at, s["e2e_ms"])
            self.assertEqual(sum(s["totals_ms"].values()), s["e2e_ms"])
            self.assertLessEqual(s["prefill_beside_others_ms"], s["totals_ms"].get("prefill", 0))


class ServedTest(Explained):
    def test_a_recording_gives_the_servers_explanation(self):
        server = ServerProcess(
            "--trace-out",
            self.trace,
            "--max-num-seqs",
            "2",
            "--threads",
            "1",
            "--api-key",
            "k",
            "--api-key",
            "other",
            "--scheduler",
            "sarathi-serve",
            "--tbt-slo",
            "none",
            real_model=False,
        )  # no step times: the gate accepts every objective
        self.addCleanup(server.stop)

        def call(path, body=None, key="k", **headers):
            data = json.dumps(body).encode() if body else None
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers}
            with urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers), timeout=60) as answer:
                return exact(answer.read())

        def complete(i):
            prompt = [5 + i] * (20 + 30 * i)
            body = {
                "prompt": [prompt, prompt[:9]] if i == 5 else prompt,
                "max_tokens": 6,
                "ignore_eos": True,
                "n": 4 if i == 3 else 1,
                "slo": {"ttft_ms": 0.001},
            }
            return call("/v1/completions", body, **{"X-Request-Id": f"id-{i}", "x-tactus-explain": "1"})

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(complete, range(6)))
        for i, answer in enumerate(answers):
            explained = answer["tactus_explain"]
            self.assertEqual(explained["id"], f"id-{i}")
            self.assert_adds_up(explained)
            self.assertEqual(explained["completion_tokens"], {3: 24, 5: 12}.get(i, 6))
            self.assertEqual(
                [(s["prompt"], s["choice"]) for s in explained.get("sequences", [])],
                {3: [(0, n) for n in range(4)], 5: [(0, 0), (1, 0)]}.get(i, []),
            )
            self.assertIs(explained["objectives"][0]["kept"], False)
            self.assertIn(explained["objectives"][0]["cause"], CAUSES)
            self.assertEqual(call(f"/v1/requests/cmpl-id-{i}/explain"), explained)
        # Four choices and two slots: the others wait for the first one's prompt, and the last for a slot.
        waited = [set(s["totals_ms"]) for s in answers[3]["tactus_explain"]["sequences"]]
        self.assertIn("sibling", waited[1])
        self.assertIn("places", waited[3])
        for path, key, status in (
            ("/v1/requests/id-0/explain", "other", 404),
            ("/v1/requests/id-0/explain", "no", 401),
        ):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                call(path, key=key)
            self.assertEqual(refused.exception.code, status)
            refused.exception.close()
        metrics = urllib.request.urlopen(server.url + "/metrics", timeout=60).read().decode()
        self.assertIn(
            'tactus_slo_slack_ratio_count{model_name="test-model",engine="0",class="",objective="ttft"} 7', metrics
        )
        self.assertEqual(server.stop(), 0)

        for i, answer in enumerate(answers):
            done = tactus("explain", self.trace, f"id-{i}", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(exact(done.stdout), answer["tactus_explain"])
            if i != 5:  # of which each prompt has its own number
                numbered = tactus("explain", self.trace, answer["tactus_explain"]["request"], "--json")
                self.assertEqual(numbered.stdout, done.stdout)
        # The recording names the model and thread count whose step times a replay with predictions uses.
        name = pathlib.Path(server.folder.name).name
        replay = tactus("sim", "--replay", self.trace, "--times", "model", TACTUS_CACHE_DIR=str(self.trace.parent))
        self.assertEqual(replay.returncode, 1)
        self.assertIn(f"no step times at '{self.trace.parent}/profiles/{name}-1t.csv'", replay.stderr)


class RecordingTest(Explained):
    def record(self):
        done = tactus(
            "sim",
            "--model",
            "llama-3.1-8b",
            "--device",
            "h100",
            "--workload",
            "random:in=512,out=16",
            "--rate",
            100,
            "--requests",
            40,
            "--max-num-seqs",
            4,
            "--slo",
            "ttft=200ms",
            "--trace-out",
            self.trace,
            "--json",
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_simulated_request_is_explained(self):
        self.record()
        done = tactus("explain", self.trace, 40, "--json", "-o", self.trace.with_suffix(".json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        explained = exact(done.stdout)
        self.assertEqual(self.trace.with_suffix(".json").read_text(), done.stdout)
        self.assert_adds_up(explained)
        self.assertIsNone(explained["id"])
        self.assertEqual(explained["request"], 40)
        self.assertIn(explained["objectives"][0]["cause"], ("queue", "places"))
        text = tactus("explain", self.trace, 40).stdout
        for expected in (
            "request 40",
            "first token after",
            "ttft of 200.000 ms: missed",
            "longest gap",
            "decode",
            "in all:",
        ):
            self.assertIn(expected, text)

    def test_errors_of_explain_name_the_cause(self):
        self.record()
        other = self.trace.with_suffix(".txt")
        other.write_text("not a recording")
        cut = self.trace.with_suffix(".cut")
        cut.write_bytes(self.trace.read_bytes()[:-200])
        for args, status, expected in [
            ((self.trace, 41), 1, "requests 1 to 40, 0 of them with an id"),
            ((self.trace, "missing-id"), 1, "'missing-id'"),
            ((self.trace, ""), 1, "no request ''"),
            ((other, 1), 1, "not a step trace"),
            ((self.trace.with_suffix(".none"), 1), 1, "cannot read"),
            ((self.trace,), 2, "ID"),
            ((), 2, "TRACE"),
            ((self.trace, 1, 2), 2, "2"),
        ]:
            with self.subTest(args=args):
                done = tactus("explain", *args)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")
        done = tactus("explain", cut, 1)
        self.assertIn(done.returncode, (0, 1))
        self.assertTrue("was not closed" in done.stderr or "cut off" in done.stderr, done.stderr)


if __name__ == "__main__":
    unittest.main()
