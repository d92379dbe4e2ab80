"""`tactus sim` as scripts call it: one JSON object, exit statuses, errors that name the fault, an interrupt that keeps
partial results."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from server_process import wait_until

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
BASE = ["sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", "chat"]


def tactus(*args, timeout=120, **environment):
    return subprocess.run(
        [BINARY, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=dict(ENVIRONMENT, **environment)
    )


def result(*args):
    done = tactus(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class SimTest(unittest.TestCase):
    def test_the_result_object_follows_the_convention(self):
        r = result(*BASE, "--rate", 4, "--requests", 200, "--slo", "ttft=1s,tbt=100ms")
        for key in (
            "duration_s",
            "request_throughput",
            "input_token_throughput",
            "output_token_throughput",
            "goodput",
            "slo_attainment",
            "preemptions",
            "recomputed_tokens",
            "steps",
            "plan_hash",
            "budget_utilization",
            "kv_utilization",
            "mfu",
            "mbu",
        ):
            self.assertIsNotNone(r[key], key)
        self.assertEqual(r["requests"], {"completed": 200, "failed": 0, "rejected": 0, "unfinished": 0})
        for key in ("ttft_ms", "normalized_ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "scheduling_delay_ms"):
            figures = r[key]
            self.assertLessEqual({"mean", "p50", "p90", "p95", "p99", "max"}, figures.keys())
            self.assertTrue(figures["p50"] <= figures["p90"] <= figures["p95"] <= figures["p99"] <= figures["max"], key)
        self.assertEqual(sorted(r["decision_us"]), ["p50", "p99"])
        self.assertIsNone(r["bubbles"])  # one stage has no bubbles

    def test_step_noise_changes_the_run_and_is_in_the_result(self):
        exact = result(*BASE, "--rate", 4, "--requests", 100)
        none = result(*BASE, "--rate", 4, "--requests", 100, "--step-noise", "none")
        vary = result(*BASE, "--rate", 4, "--requests", 100, "--step-noise", "20%")
        self.assertIsNone(exact["step_noise"])
        self.assertEqual(vary["step_noise"], {"with_prompts": 0.2, "decodes_only": 0.2})
        self.assertEqual((none["plan_hash"], none["tbt_ms"]), (exact["plan_hash"], exact["tbt_ms"]))
        self.assertNotEqual(vary["tbt_ms"], exact["tbt_ms"])

    def test_one_seed_one_result_and_another_seed_another(self):
        figures = []
        for seed in (1, 1, 2):
            r = result(*BASE, "--rate", 4, "--requests", 100, "--seed", seed)
            for measured in ("decision_us", "wall_s", "steps_per_wall_second"):
                r.pop(measured)
            figures.append(r)
        self.assertEqual(figures[0], figures[1])
        self.assertNotEqual(figures[0]["plan_hash"], figures[2]["plan_hash"])

    def test_wrong_usage_exits_2_and_names_the_value(self):
        for args, expected in [
            (["sim"], "--model is missing"),
            ([*BASE], "--rate"),
            ([*BASE, "--rate", "-1"], "out of range"),
            ([*BASE, "--rate", "nan"], "--rate"),
            ([*BASE, "--rate", "1", "--requests", "0"], "--requests is 0"),
            ([*BASE, "--rate", "1", "--requests", "-5"], "--requests"),
            ([*BASE, "--rate", "1", "--scheduler", "fifo"], "sarathi-serve"),
            ([*BASE, "--rate", "1", "--slo", "ttft"], "--slo"),
            ([*BASE, "--rate", "1", "--balancer", "x"], "round-robin"),
            ([*BASE, "--rate", "1", "--predictor", "x"], "history"),
            (
                [*BASE, "--rate", "1", "--step-noise", "-3"],
                "--step-noise is '-3'; it must be none, profile or a percentage between 0 and 100",
            ),
            ([*BASE, "--rate", "1", "--step-noise", "101"], "is '101'"),
            ([*BASE, "--rate", "1", "--step-noise", "profile"], "give a file of 'tactus profile'"),
            (["sim", "--model", "opt-175b", "--device", "l4", "--workload", "chat", "--rate", "1"], "tp"),
            (["sim", "--model", "x", "--device", "h100", "--workload", "chat", "--rate", "1"], "'x' is not known"),
        ]:
            with self.subTest(args=args):
                done = tactus(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_duration_without_a_unit_is_refused_everywhere(self):
        for args, fix in (
            (["--slo", "ttft=500,tbt=50"], "ttft '500' has no unit: write 500ms or 500s"),
            (["--slo-mix", "a:1:tbt=50"], "'tbt=50' has no unit: write 50ms or 50s"),
            (["--slo-class", "a:tbt=50"], "tbt '50' has no unit: write 50ms or 50s"),
            (["--tbt-slo", "50"], "--tbt-slo: '50' has no unit: write 50ms or 50s"),
            (["--accelgen-ttft", "2"], "--accelgen-ttft: '2' has no unit: write 2ms or 2s"),
            (["--mlfq-quantum", "1.5"], "--mlfq-quantum: '1.5' has no unit: write 1.5ms or 1.5s"),
            (["--cpu-overhead", "30"], "--cpu-overhead: '30' has no unit: write 30ms or 30s"),
            (["--client-gap", "1"], "--client-gap: '1' has no unit: write 1ms or 1s"),
            (["--arrivals", "jitter:500"], "'500' has no unit: write 500ms or 500s"),
            (["--run-interval", "5"], "--run-interval: '5' has no unit: write 5ms or 5s"),
        ):
            with self.subTest(args=args):
                done = tactus(*BASE, "--rate", 4, "--requests", 10, *args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(fix, done.stderr)
        done = tactus(*BASE, "--rate", 4, "--requests", 10, TACTUS_TBT_SLO="50")
        self.assertEqual(done.returncode, 2)
        self.assertIn("TACTUS_TBT_SLO: --tbt-slo: '50' has no unit", done.stderr)

    def test_the_start_and_the_result_state_the_objectives(self):
        done = tactus(*BASE, "--rate", 4, "--requests", 10, "--tbt-slo", "50s", "--slo", "ttft=500ms,tbt=50ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("objective of --tbt-slo: gap 50000 ms", done.stderr)
        self.assertIn("objectives of --slo: TTFT 500 ms, gap 50 ms", done.stderr)
        self.assertIn("Objectives: TTFT 500 ms, gap 50 ms", done.stdout)
        mixed = tactus(*BASE, "--rate", 4, "--requests", 10, "--slo-mix", "a:1:ttft=10x,tbt=40..90ms")
        self.assertIn("objectives of class 'a': TTFT 10 times the latency alone, gap 40 to 90 ms", mixed.stderr)

    def test_a_trace_with_clock_times_starts_at_once_and_keeps_its_gaps(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "late.csv"
            trace.write_text("arrival_s,prompt_tokens,output_tokens\n1700000000,10,10\n1700000001,10,10\n")
            r = result(
                "sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", f"trace:{trace}", "--requests", 10
            )
            self.assertAlmostEqual(r["duration_s"], 9, delta=1)
            self.assertAlmostEqual(r["request_rate_achieved"], 1, delta=0.01)
            trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,374.0,44.0\n")
            self.assertEqual(
                result("sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", f"trace:{trace}")[
                    "requests"
                ]["completed"],
                1,
            )
            done = tactus(
                "sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", f"trace:{trace}", "--requests", 10
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn("arrival times are all equal", done.stderr)

    def test_a_run_that_completes_nothing_exits_1_with_the_reason(self):
        args = [
            "sim",
            "--model",
            "opt-13b",
            "--device",
            "a100",
            "--workload",
            "random:in=4000,out=10",
            "--rate",
            5,
            "--requests",
            7,
            "--json",
        ]
        done = tactus(*args)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(json.loads(done.stdout)["requests"]["rejected"], 7)
        self.assertIn("none of 7 requests completed: 7 rejected, 0 failed; the first: ", done.stderr)
        self.assertIn("4000", done.stderr.split("; the first: ")[1])
        self.assertEqual(result(*args[:-1], "--override-context", 8192)["requests"]["completed"], 7)
        done = tactus(*BASE, "--rate", 5, "--requests", 20, "--warmup", "1h")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no request arrived in the measured part", done.stderr)

    def test_the_measured_part_has_the_requested_length(self):
        r = result(*BASE, "--rate", 10, "--requests", 400, "--warmup", "5s", "--measure", "20s")
        self.assertEqual((r["duration_s"], r["measured_from_s"]), (20, 5))
        self.assertTrue(100 < r["requests"]["completed"] < 300, r["requests"])
        r = result(*BASE, "--rate", 10, "--requests", 400, "--warmup", 50, "--measure", 100)
        self.assertEqual(r["requests"]["completed"], 100)
        for flag, value in (("--warmup", "soon"), ("--measure", "0"), ("--measure", "-1s")):
            done = tactus(*BASE, "--rate", 1, flag, value)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)
        for flag, value in (("--network-latency", "x"), ("--peer-latency", "x"), ("--peer-gbytes-per-s", "-1")):
            done = tactus(*BASE, "--rate", 1, flag, value)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)

    def test_a_broken_trace_exits_1_with_file_line_and_column(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "t.csv"
            trace.write_text("arrival_s,prompt_tokens,output_tokens\n1,10,10\n0.5,10,10\n")
            done = tactus("sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", f"trace:{trace}")
            self.assertEqual(done.returncode, 1)
            self.assertIn("t.csv:3: column 1", done.stderr)
            trace.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,10,10\n1,10,10\n")
            done = tactus(
                "sim",
                "--model",
                "llama-3.1-8b",
                "--device",
                "h100",
                "--workload",
                "trace:t.csv",
                "--json",
                TACTUS_DATA=folder,
            )
            self.assertEqual(json.loads(done.stdout)["requests"]["completed"], 2)

    def test_an_offline_job_runs_by_its_plan(self):
        prefix = ["prefix:shared=512,unique=64,out=40", "--requests", 300]
        for scheduler, lengths in (
            ("blend", "sampled"),
            ("blend", "known"),
            ("blend-dual-scan", "sampled"),
            ("dfs", "sampled"),
            ("fcfs", "sampled"),
        ):
            done = tactus(
                *BASE[:-1],
                *prefix,
                "--offline",
                "--scheduler",
                scheduler,
                "--planner-lengths",
                lengths,
                "--replicas",
                2,
                "--json",
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(done.stdout)
            plan = report["plan"]
            self.assertEqual((report["requests"]["completed"], plan["requests"], plan["order"]), (300, 300, scheduler))
            self.assertEqual(plan["sample"] > 0, scheduler.startswith("blend") and lengths == "sampled")
            self.assertGreater(plan["optimal_sharing"], 0.8)
            self.assertGreater(plan["share_of_practical_bound"], plan["share_of_bound"])
            self.assertGreater(plan["planning_s"], 0)
        refused = tactus(*BASE[:-1], *prefix, "--offline", "--rate", 5)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("leave --rate and --concurrency out", refused.stderr)
        self.assertNotIn(
            "plan", json.loads(tactus(*BASE[:-1], *prefix, "--concurrency", 8, "--scheduler", "blend", "--json").stdout)
        )

    def test_the_oracle_is_bounded_and_may_start_without_a_preset(self):
        crowd = [*BASE, "--requests", 30, "--slo", "ttft=100ms,tbt=20ms", "--scheduler"]
        alone = [*crowd, "oracle", "--rate", 40, "--oracle-without", "tactus,accelgen"]
        r = result(*alone)
        oracle = r["oracle"]
        self.assertEqual(oracle["without"], ["tactus", "accelgen"])
        self.assertFalse({"tactus", "accelgen"} & set(oracle["presets"]))
        self.assertIn("accelgen-no-batch", oracle["presets"])
        self.assertEqual(oracle["kept"], r["classes"][""]["kept"])
        self.assertLessEqual(oracle["kept"], oracle["upper_bound"])
        self.assertLessEqual(oracle["upper_bound"], 30)
        table = tactus(*alone).stdout
        self.assertIn(f"no schedule can serve more than {oracle['upper_bound']} within objectives\n", table)
        self.assertIsNone(result(*crowd, "oracle", "--concurrency", 4)["oracle"]["upper_bound"])
        for flags, said in [
            (["oracle", "--oracle-without", "larri"], "'larri' is not a preset; the presets are: "),
            (["fcfs", "--oracle-without", "larry"], "needs --scheduler oracle"),
        ]:
            done = tactus(*crowd, *flags, "--rate", 40)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    def test_lists_files_and_configuration(self):
        listed = json.loads(tactus("sim", "--list", "--json").stdout)
        self.assertIn("llama-3.1-70b", listed["models"])
        self.assertIn("h200", listed["devices"])
        self.assertIn("oracle", listed["schedulers"])
        self.assertIn("p2c", listed["balancers"])
        with tempfile.TemporaryDirectory() as folder:
            out, requests = pathlib.Path(folder) / "r.json", pathlib.Path(folder) / "requests.csv"
            done = tactus(*BASE, "--concurrency", 4, "--requests", 20, "-o", out, "--requests-out", requests)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("Throughput", done.stdout)
            report = json.loads(out.read_text())
            self.assertEqual(report["requests"]["completed"], 20)
            self.assertIn(
                f"\n\nSteps: {report['steps']}, mean batch {report['mean_batch']:.1f}, budget used ", done.stdout
            )
            self.assertIn(
                f"preemptions {report['preemptions']} ({report['recomputed_tokens']} tokens recomputed)\nPrefix"
                " sharing ",
                done.stdout,
            )
            self.assertEqual(len(requests.read_text().splitlines()), 21)
            lengths = pathlib.Path(folder) / "é.csv"
            lengths.write_text("prompt_tokens,output_tokens\n50,5\n")
            done = tactus(*BASE[:-1], f"lengths:{lengths}", "--rate", 5, "--json")
            self.assertIn(f'"workload":"lengths:{lengths}"', done.stdout)  # as given, without escapes
        self.assertIn("kv-blocks = 7", tactus("sim", "--print-config", "--kv-blocks", 7).stdout)

    def test_an_unwritable_output_is_reported_before_the_run_and_loses_no_table(self):
        endless = [*BASE, "--rate", 4, "--requests", 100_000_000]
        with tempfile.TemporaryDirectory() as folder:
            done = tactus(*endless, "-o", folder, timeout=20)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(folder, done.stderr)
            name = os.path.join(os.fsencode(folder), b"b\xffd.csv")
            with open(name, "w") as f:
                f.write("prompt_tokens,output_tokens\n50,5\n")
            done = subprocess.run(
                [BINARY, *BASE[:-1], b"lengths:" + name, "--rate", "5", "--json"],
                capture_output=True,
                timeout=60,
                env=ENVIRONMENT,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["requests"]["completed"], 1)
        if os.path.exists("/dev/full"):
            done = tactus(*BASE, "--rate", 4, "--requests", 20, "-o", "/dev/full")
            self.assertEqual(done.returncode, 1)
            self.assertIn("20 completed", done.stdout)
            self.assertIn("/dev/full", done.stderr)

    def test_an_interrupt_keeps_finished_requests_and_exits_130(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = pathlib.Path(folder) / "requests.csv"
            run = subprocess.Popen(
                [BINARY, *BASE, "--rate", "4", "--requests", "100000000", "--json", "--requests-out", str(ended)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
            )
            try:
                wait_until(lambda: ended.exists() and ended.stat().st_size > 4096, "some requests have ended")
                run.send_signal(signal.SIGINT)
                stdout, stderr = run.communicate(timeout=30)
            finally:
                run.kill()
                run.communicate()
        self.assertEqual(run.returncode, 130, stderr)
        r = json.loads(stdout)
        self.assertGreater(r["requests"]["completed"], 0)
        self.assertGreater(r["requests"]["unfinished"], 0)
        self.assertIn("interrupted after", stderr)


if __name__ == "__main__":
    unittest.main()
