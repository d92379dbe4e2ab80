"""`tactus bench` against a real server, and against an endpoint with failures chosen by the test."""

import json
import pathlib
import signal
import subprocess
import time
import urllib.request

from command_case import BINARY, ENVIRONMENT, Folder, tactus
from fake_endpoint import FakeEndpoint
from server_process import (
    ServerProcess,
    TakenPort,
    wait_until,
)


class BenchTest(Folder):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--json", real_model=False)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, "".join(cls.server.lines)
        result = json.loads(cls.server.output)  # the result object at exit
        assert result["requests"]["completed"] > 0 and len(result["plan_hash"]) == 16, result

    def bench(self, *args):
        return tactus("bench", "--url", self.server.url, "--vocab-size", "256", *args)

    def test_closed_loop(self):
        out = self.folder / "report.json"
        done = self.bench(
            "--requests",
            "12",
            "--concurrency",
            "4",
            "--workload",
            "random:in=20,out=6",
            "--warmup",
            "2",
            "--json",
            "-o",
            out,
            "--slo",
            "ttft=100s,tbt=100s",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report, json.loads(out.read_text()))
        self.assertEqual(report["requests"], {"completed": 12, "failed": 0, "rejected": 0, "unfinished": 0})
        self.assertEqual(report["slo_attainment"], 1.0)
        tokens = report["output_token_throughput"] * report["duration_s"]
        self.assertAlmostEqual(tokens, 12 * 6, delta=0.01)
        for name in ("ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "normalized_ttft_ms"):
            self.assertEqual(sorted(report[name]), ["max", "mean", "p50", "p90", "p95", "p99"])
            self.assertLessEqual(report[name]["p50"], report[name]["max"])

    def test_a_measured_part_of_the_load(self):
        r = json.loads(
            self.bench(
                *"--requests 40 --rate 40 --arrivals constant --workload random:in=8,out=2 --warmup 200ms --measure"
                " 500ms --json".split()
            ).stdout
        )
        self.assertEqual(
            (r["measured_from_s"], r["duration_s"], r["requests"]["completed"] in (19, 20, 21)), (0.2, 0.5, True)
        )

    def test_open_loop_of_every_arrival_process_and_api(self):
        for extra in (
            ["--arrivals", "gamma:2"],
            ["--arrivals", "constant"],
            ["--endpoint", "chat"],
            ["--prompt-format", "text"],
            ["--concurrency", "0"],
        ):
            done = self.bench("--requests", "5", "--rate", "50", "--workload", "random:in=8,out=3", "--json", *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["requests"]["completed"], 5, done.stderr)

    def test_shared_prefixes_and_turns_hit_the_prefix_cache(self):
        done = self.bench(
            "--requests", "6", "--concurrency", "1", "--workload", "prefix:shared=64,unique=8,out=2", "--json"
        )
        self.assertEqual(json.loads(done.stdout)["cached_prompt_tokens"], 5 * 64)
        done = self.bench(
            "--requests", "6", "--concurrency", "2", "--workload", "multi-turn:turns=3,in=32,out=4", "--json"
        )
        report = json.loads(done.stdout)
        self.assertEqual(report["requests"]["completed"], 6, done.stderr)
        self.assertGreater(report["cached_prompt_tokens"], 0)

    def test_an_idle_server_sleeps(self):
        self.assertEqual(
            self.bench("--requests", "4", "--concurrency", "2", "--workload", "random:in=8,out=8").returncode, 0
        )

        def running():  # running or runnable threads: field 3, after the name
            states = [
                stat.read_text().rsplit(")", 1)[1].split()[0]
                for stat in pathlib.Path(f"/proc/{self.server.process.pid}/task").glob("*/stat")
            ]
            self.assertGreater(len(states), 2)
            return states.count("R")

        # A spinning thread is found running every time, on any machine; a thread that polls now and then hardly ever.
        samples = []
        for _ in range(100):
            samples.append(running())
            time.sleep(0.01)
        self.assertLess(sum(count > 0 for count in samples), 50, samples)

    def metric(self, *names):  # sum over the server's labels
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))

    def completed(self):  # requests completed by the server
        return self.metric("vllm:request_success_total")

    def completed_when_idle(self):  # after requests of earlier tests have ended and are counted
        wait_until(
            lambda: (
                self.metric("vllm:num_requests_running", "vllm:num_requests_waiting", "tactus_http_exchanges ") <= 1
            ),
            "the server is idle",
            about=self.server.last_lines,
        )
        return self.completed()

    def interrupt(self, *args, before):
        """Sends Ctrl-C once before() holds; returns the output."""
        process = subprocess.Popen(
            [BINARY, "bench", "--url", self.server.url, "--vocab-size", "256", "--json", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            wait_until(before, "the load runs", about=self.server.last_lines)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, 130, err)
        return json.loads(out)["requests"]

    def test_interrupt_keeps_finished_requests(self):
        start = self.completed_when_idle()
        requests = self.interrupt(
            "--requests",
            "1000000",
            "--concurrency",
            "4",
            "--workload",
            "random:in=8,out=4",
            before=lambda: self.completed() > start + 20,
        )
        self.assertGreater(requests["completed"], 10)
        self.assertEqual(requests["failed"], 0)

    def test_interrupt_in_the_warm_up_also_ends_the_run(self):
        start = self.completed_when_idle()
        requests = self.interrupt(
            "--requests",
            "5",
            "--concurrency",
            "4",
            "--warmup",
            "1000",
            "--workload",
            "random:in=8,out=300",
            before=lambda: self.completed() > start,
        )
        self.assertEqual(requests["completed"], 0)

    def test_a_missing_server_exits_1(self):
        with TakenPort(listening=False) as port:
            done = tactus("bench", "--url", f"http://127.0.0.1:{port}", "--requests", "1", "--concurrency", "1")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"127.0.0.1:{port}", done.stderr)
            done = tactus(
                "bench", "--url", f"http://127.0.0.1:{port}", "--model", "m", "--requests", "7", "--concurrency", "2"
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("7 of 7 requests failed: 7 x ", done.stderr)


class BenchFailuresTest(Folder):
    """With an endpoint whose answers the test chooses: failures make the run fail, rejections are a result."""

    def bench(self, answers, *args):
        with FakeEndpoint(answers) as url:
            return tactus(
                "bench",
                "--url",
                url,
                "--model",
                "m",
                "--workload",
                "random:in=4,out=2",
                "--concurrency",
                "1",
                "--json",
                *args,
                timeout=60,
            )

    def test_any_failed_request_exits_1_with_the_reasons(self):
        done = self.bench(["ok", "broken", "ok", "broken", "cut", "ok"], "--requests", "6")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            json.loads(done.stdout)["requests"], {"completed": 3, "failed": 3, "rejected": 0, "unfinished": 0}
        )
        self.assertIn(
            "3 of 6 requests failed: 2 x HTTP 500: it broke; 1 x the stream ended without [DONE]", done.stderr
        )

    def test_refused_requests_are_a_result_unless_all_are(self):
        done = self.bench(["ok", "busy", "quota", "busy"], "--requests", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            json.loads(done.stdout)["requests"], {"completed": 1, "failed": 0, "rejected": 3, "unfinished": 0}
        )
        self.assertIn("3 of 4 requests were refused: 2 x HTTP 503: queue full; 1 x HTTP 429: too many", done.stderr)
        done = self.bench(["busy"], "--requests", "3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 of 3 requests were refused", done.stderr)

    def test_an_unwritable_output_is_reported_before_the_run_and_loses_no_report(self):
        done = self.bench(["ok"], "--requests", "2", "-o", self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(str(self.folder), done.stderr)

    def test_answers_of_odd_shapes_are_failures_or_nothing(self):
        for answer in ("odd events", "odd error", "not http"):
            with self.subTest(answer=answer):
                done = self.bench([answer], "--requests", "1")
                self.assertNotIn("internal error", done.stderr)
                self.assertIn(done.returncode, (0, 1), done.stderr)
                self.assertEqual(sum(json.loads(done.stdout)["requests"].values()), 1)
