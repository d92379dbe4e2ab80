"""`tactus sim capacity`, `sweep` and `compare`, and `tactus fit`, as scripts call them: output, exit statuses, results
kept by an interrupt."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from server_process import TINY_CONFIG, wait_until

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
DEPLOYMENT = ["--model", "llama-3.1-8b", "--device", "h100"]
LOAD = [*DEPLOYMENT, "--workload", "random:in=512,out=32", "--requests", 60]


def tactus(*args, timeout=200):
    return subprocess.run(
        [BINARY, "sim", *map(str, args)], capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT
    )


class SearchesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rows(self, table):
        with table.open() as file:
            return list(csv.DictReader(file))

    def json(self, *args, code=0):
        done = tactus(*args, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def wrong(self, args, *expected, code=2):
        done = tactus(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)

    # capacity

    def test_capacity_is_where_the_condition_begins_to_break(self):
        until = "p99(ttft)<=300ms and rejected==0"
        found = self.json("capacity", *LOAD, "--until", until, "--tolerance", 5, "--seeds", 2)
        [one] = found["configurations"]
        self.assertEqual(one["until"], until)
        for seed in one["seeds"]:
            held, broke = seed["held"], seed["broke"]
            self.assertLessEqual(broke["value"], held["value"] * 1.05)
            self.assertLessEqual(held["clauses"][0]["value"], 300)
            self.assertGreater(broke["clauses"][0]["value"], 300)
            # The same command at that rate gives the same result.
            alone = self.json(*LOAD, "--rate", repr(held["value"]), "--seed", seed["seed"])
            self.assertEqual(alone["plan_hash"], held["result"]["plan_hash"])
        low, mean, high = (one["capacity"][k] for k in ("low", "mean", "high"))
        self.assertTrue(low <= mean <= high, one["capacity"])

    def test_capacity_varies_options_and_prints_ratios_to_the_first(self):
        found = self.json(
            "capacity", *LOAD, "--until", "p99(ttft)<=300ms", "--tolerance", 5, "--seeds", 2, "--vary", "tp=1,2"
        )
        self.assertEqual([len(one["seeds"]) for one in found["configurations"]], [2, 2])
        first, second = found["configurations"]
        self.assertIsNone(first["of_first"])
        self.assertEqual(second["options"], {"tensor-parallel-size": "2"})
        self.assertGreater(second["of_first"]["mean"], 1)

    def test_an_objective_that_no_rate_meets_and_one_that_every_rate_meets(self):
        self.wrong(
            ["capacity", *LOAD, "--until", "p50(ttft)<=1ms and rejected==0", "--seeds", 1],
            "even the lowest value, 0.01 requests/s, fails: p50(ttft)<=1ms: it was",
            code=1,
        )
        self.wrong(
            ["capacity", *LOAD, "--until", "rejected==0", "--seeds", 1, "--to", 50],
            "even the highest value, 50 requests/s, holds",
            "--requests",
            code=1,
        )
        self.wrong(
            ["capacity", *LOAD, "--until", "rejected==0", "--seeds", 1],
            "even the highest value, 10000 requests/s, holds",
            code=1,
        )
        self.wrong(
            ["capacity", *LOAD, "--until", "attainment>=99%", "--seeds", 1], "no such metric", "--slo-mix", code=1
        )
        self.wrong(["capacity", *LOAD, "--until", "throughput>=5"], "a larger load raises throughput", "p50(delay)<=2s")
        # If every request is rejected no condition holds.
        self.wrong(
            ["capacity", *LOAD, "--until", "rejected>=0", "--seeds", 1, "--max-model-len", 100],
            "even the lowest value, 0.01 requests/s, fails: none of 60 requests completed",
            code=1,
        )

    def test_sarathi_serves_objectives_by_name(self):
        found = self.json(
            "capacity",
            *LOAD,
            "--until",
            "sarathi-strict and rejected==0",
            "--seeds",
            1,
            "--tolerance",
            20,
            "--to",
            2,
            code=1,
        )
        step = self.json("step", *DEPLOYMENT, "--decodes", "32x4096")["step_ms"]
        until = found["configurations"][0]["until"]
        self.assertRegex(until, r"^p99\(tbt\)<=[\d.]+ms and p50\(delay\)<=2s and rejected==0$")
        self.assertAlmostEqual(float(until.split("<=")[1].split("ms")[0]) / step, 5, delta=0.01)

    def test_capacity_over_concurrency(self):
        found = self.json("capacity", *LOAD, "--until", "p99(ttft)<=200ms", "--over", "concurrency", "--seeds", 1)
        [seed] = found["configurations"][0]["seeds"]
        self.assertLessEqual(seed["broke"]["value"] / seed["held"]["value"], 1.02 + 1 / seed["held"]["value"])

    def test_a_capacity_search_resumes_from_its_table(self):
        table = self.folder / "capacity.csv"
        args = [
            "capacity",
            *LOAD,
            "--until",
            "p99(ttft)<=300ms",
            "--tolerance",
            10,
            "--seeds",
            2,
            "--device-hour-price",
            3,
            "--csv",
            table,
        ]
        done = tactus(*args, "--vary", "tp=1,2")
        self.assertEqual(done.returncode, 0, done.stderr)
        whole, rows = table.read_text(), self.rows(table)
        self.assertRegex(
            done.stderr,
            r"^2 configurations, 2 seeds each, about 8 runs per seed, on \d+ threads, about \d+ s if all are like the"
            r" first\n",
        )
        self.assertEqual(
            [(r["tensor-parallel-size"], r["seed"], r["error"]) for r in rows], [(t, s, "") for t in "12" for s in "01"]
        )
        for row in rows:
            self.assertLessEqual(float(row["p99(ttft)"]), 300)
            self.assertLessEqual(float(row["capacity"]), float(row["breaks_at"]))
            self.assertIn("p99(ttft)<=300ms: it was", row["breaks"])
        # Known results are repeated without a run; missing ones are searched.
        again = tactus(*args, "--vary", "tp=1,2")
        self.assertEqual(again.stdout, done.stdout)
        self.assertEqual(again.stderr.splitlines()[0], "2 configurations, 2 seeds each, 4 searches already done")
        self.assertNotIn("seed 0:", again.stderr)
        lines = whole.splitlines(keepends=True)
        table.write_text("".join(lines[:4]) + lines[4][:20])
        less = self.json(*args, "--vary", "tp=1,2")
        self.assertEqual(table.read_text(), whole)
        seeds = less["configurations"][1]["seeds"]
        self.assertEqual([(seed["held"]["result"] is None, seed["held"]["clauses"]) for seed in seeds][0], (True, []))
        self.assertEqual(seeds[1]["held"]["value"], float(rows[3]["capacity"]))
        self.assertIsNotNone(seeds[1]["held"]["result"])
        # Another question needs another table.
        self.wrong([*args, "--vary", "tp=1,2", "--block-size", 32], "line 2", "other options")
        self.assertEqual(table.read_text(), whole)

    def test_a_missing_capacity_is_a_row_with_its_reason(self):
        table = self.folder / "capacity.csv"
        args = ["capacity", *LOAD, "--until", "p50(ttft)<=1ms", "--seeds", 1, "--from", 1, "--csv", table]
        self.wrong(args, "even the lowest value", code=1)
        [row] = self.rows(table)
        self.assertEqual((row["capacity"], row["completed"], row["error"]), ("", "", ""))
        self.assertIn("even the lowest value; 1 requests/s; fails: p50(ttft)<=1ms", row["no_capacity"])
        self.assertEqual(float(row["breaks_at"]), 1)
        self.wrong(args, "1 searches already done", "even the lowest value; 1 requests/s; fails:", code=1)
        # Failed runs are tried again.
        broken = [
            "capacity",
            *LOAD,
            "--until",
            "p99(ttft)<=300ms",
            "--seeds",
            1,
            "--tolerance",
            20,
            "--vary",
            "tp=1,3",
            "--csv",
            self.folder / "other.csv",
        ]
        for _ in range(2):
            done = tactus(*broken)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("tensor-parallel-size=3: no capacity", done.stdout)
        self.assertIn("1 searches already done", done.stderr)
        self.assertEqual(
            [(r["error"] == "", r["no_capacity"]) for r in self.rows(self.folder / "other.csv")],
            [(True, ""), (False, "")],
        )
        self.wrong(["capacity", *LOAD, "--until", "rejected==0", "--csv", self.folder], "is not a regular file")

    def test_wrong_conditions_name_the_place(self):
        self.wrong(["capacity", *LOAD], "--until is missing")
        self.wrong(
            ["capacity", *LOAD, "--until", "p99(itl)<=1s"],
            "position 1",
            "'itl' is not a metric",
            "ttft",
            "sarathi-strict",
        )
        self.wrong(["capacity", *LOAD, "--until", "rejected==0 or goodput>=1"], "position 13", "'and'")
        self.wrong(["capacity", *LOAD, "--until", "rejected==0", "--rate", 4], "--rate is the value to search for")
        self.wrong(["capacity", *LOAD, "--until", "rejected==0", "--from", 5, "--to", 4], "--from 5 is above --to 4")
        self.wrong(["capacity", *LOAD, "--until", "rejected==0", "--vary", "rate=1,2"], "--vary rate")
        self.wrong(["capacity", *LOAD, "--until", "rejected==0", "--steps-out", "x.csv"], "--steps-out x.csv")

    # sweep

    def sweep(self, *args, code=0):
        done = tactus("sweep", *LOAD, "--vary", "scheduler=vllm,orca", "--vary", "rate=2:4:2", *args)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_a_sweep_is_a_table_and_the_same_on_any_number_of_threads(self):
        one, two = self.folder / "one.csv", self.folder / "two.csv"
        done = self.sweep("--seeds", 2, "--csv", one, "--jobs", 1, "--best", "p99(ttft)")
        self.assertIn("8 runs, on 1 threads, about", done.stderr)
        self.assertIn("best p99(ttft): scheduler=", done.stdout)
        self.sweep("--seeds", 2, "--csv", two, "--jobs", 2)
        self.assertEqual(one.read_bytes(), two.read_bytes())
        rows = self.rows(one)
        self.assertEqual(
            [(r["scheduler"], r["rate"], r["seed"]) for r in rows],
            [(s, r, k) for s in ("vllm", "orca") for r in "24" for k in "01"],
        )
        alone = self.json(*LOAD, "--scheduler", "orca", "--rate", 4, "--seed", 1)
        self.assertAlmostEqual(float(rows[-1]["p99(ttft)"]), alone["ttft_ms"]["p99"], places=4)
        self.assertEqual(rows[-1]["goodput"], "")  # no objectives

    def test_a_sweep_resumes_and_adds_new_configurations(self):
        table = self.folder / "t.csv"
        self.sweep("--csv", table)
        whole = table.read_text()
        lines = whole.splitlines(keepends=True)
        table.write_text("".join(lines[:2]) + lines[2][:20])
        done = self.sweep("--csv", table)
        self.assertIn("4 runs, 1 of them already done", done.stderr)
        self.assertEqual(table.read_text(), whole)
        self.wrong(
            ["sweep", *LOAD, "--vary", "rate=2:4:2", "--csv", table],
            "other columns",
            "column 1 is 'scheduler', here 'rate'",
        )
        self.wrong(
            [
                "sweep",
                *LOAD,
                "--vary",
                "scheduler=vllm,orca",
                "--vary",
                "rate=2:4:2",
                "--csv",
                table,
                "--block-size",
                32,
            ],
            "line 2",
            "other options",
        )
        self.assertEqual(table.read_text(), whole)

    def test_a_sweep_has_figures_of_classes(self):
        table = self.folder / "t.csv"
        args = [
            "sweep",
            *LOAD,
            "--slo-mix",
            "chat:0.5:ttft=2s,tbt=100ms;free:0.5:none",
            "--vary",
            "rate=2,4",
            "--csv",
            table,
        ]
        done = tactus(*args, "--show", "attainment(chat), p99(ttft, chat)", "--best", "attainment(chat)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"best attainment\(chat\): rate=2, (1|0\.\d+)")
        for row in self.rows(table):
            self.assertGreater(float(row["p99(ttft; chat)"]), 0)

    def test_a_sweep_does_not_resume_after_a_change_of_its_files(self):
        lengths, table = self.folder / "len.csv", self.folder / "t.csv"
        lengths.write_text("prompt_tokens,output_tokens\n100,10\n")
        args = [
            "sweep",
            *DEPLOYMENT,
            "--workload",
            f"lengths:{lengths}",
            "--requests",
            10,
            "--vary",
            "rate=2,4",
            "--csv",
            table,
        ]
        self.assertEqual(tactus(*args).returncode, 0)
        self.assertIn("2 of them already done", tactus(*args).stderr)
        lengths.write_text("prompt_tokens,output_tokens\n900,10\n")
        self.wrong(args, "changed input files")

    def test_outputs_in_one_file_are_refused(self):
        one = self.folder / "x"
        self.wrong(["sweep", *LOAD, "--vary", "rate=1,2", "--csv", one, "-o", one], "--csv and --output are one file")
        self.wrong(
            ["capacity", *LOAD, "--until", "rejected==0", "--csv", one, "-o", one], "--csv and --output are one file"
        )
        self.wrong([*LOAD, "--rate", 2, "--run-out", one, "-o", one], "--run-out and --output are one file")
        self.assertFalse(one.exists())

    def test_a_sweep_that_explodes_is_refused_with_its_number(self):
        self.wrong(
            [
                "sweep",
                *LOAD,
                "--vary",
                "rate=1:1000:1",
                "--vary",
                "token-budget=1:1000:1",
                "--csv",
                self.folder / "t.csv",
            ],
            "1000000 runs",
            "exceed --most-runs 10000",
        )
        self.assertFalse((self.folder / "t.csv").exists())

    def test_a_fault_of_all_runs_is_reported_before_the_first(self):
        table = self.folder / "t.csv"
        self.wrong(["sweep", "--device", "h100", "--vary", "rate=1,2", "--csv", table], "--model is missing")
        self.wrong(["sweep", *LOAD, "--vary", "rate=1,2", "--show", "p99(itl)"], "--show: 'itl' is not a metric")
        self.assertFalse(table.exists())

    def test_impossible_runs_are_rows_with_a_reason(self):
        table = self.folder / "t.csv"
        done = tactus(
            "sweep",
            "--model",
            "opt-13b",
            "--device",
            "a100",
            "--workload",
            "random:in=128,out=8",
            "--requests",
            10,
            "--rate",
            2,
            "--vary",
            "tp=1,3",
            "--csv",
            table,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("1 of 2 runs have no result; the first: tensor-parallel-size=3", done.stderr)
        good, bad = self.rows(table)
        self.assertEqual((good["error"], good["completed"]), ("", "10"))
        self.assertEqual(bad["completed"], "")
        self.assertIn("tp", bad["error"])

    def test_an_interrupt_keeps_finished_runs(self):
        table = self.folder / "t.csv"
        args = [
            BINARY,
            "sim",
            "sweep",
            *DEPLOYMENT,
            "--workload",
            "chat",
            "--vary",
            "rate=1:400:1",
            "--jobs",
            "1",
            "--csv",
            table,
        ]
        with subprocess.Popen(
            [*map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as running:
            self.addCleanup(lambda: running.poll() is None and running.kill())
            wait_until(lambda: table.exists() and table.read_text().count("\n") > 2, "two rows")
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, errors)
        rows = self.rows(table)
        self.assertGreaterEqual(len(rows), 2)
        self.assertTrue(all(row["completed"] == "1000" for row in rows))  # no partial runs

    # seeds, compare

    def test_several_seeds_are_a_mean_with_its_interval(self):
        several = self.json(*LOAD, "--rate", 4, "--seeds", 3)
        self.assertEqual(several["seeds"], [0, 1, 2])
        p99 = [run["ttft_ms"]["p99"] for run in several["runs"]]
        self.assertAlmostEqual(several["mean"]["p99(ttft)"]["mean"], sum(p99) / 3)
        alone = self.json(*LOAD, "--rate", 4, "--seed", 2)
        self.assertEqual(alone["plan_hash"], several["runs"][2]["plan_hash"])

    def test_compare_reads_results_and_runs_configurations(self):
        a, b, config = self.folder / "a.json", self.folder / "b.json", self.folder / "c.toml"
        for file, scheduler in (a, "vllm"), (b, "orca"):
            self.assertEqual(
                tactus(*LOAD, "--rate", 4, "--seeds", 3, "--scheduler", scheduler, "-o", file).returncode, 0
            )
        config.write_text(tactus(*LOAD, "--rate", 4, "--scheduler", "orca", "--print-config").stdout)
        found = self.json("compare", a, b, config, "--seeds", 3, "--show", "p99(ttft), throughput")
        self.assertEqual([one["runs"] for one in found["of"]], [3, 3, 3])
        first, second, third = found["metrics"]["p99(ttft)"]
        self.assertIsNone(first["ratio"])
        self.assertEqual(second, third)
        self.assertTrue(second["ratio"]["low"] <= second["ratio"]["mean"] <= second["ratio"]["high"])
        text = tactus("compare", a, a)
        self.assertIn("no difference shown", text.stdout)

    def test_comma_separated_results_are_runs_of_one_configuration(self):
        files = [self.folder / f"{name}.run" for name in "abcd"]
        for seed, file in enumerate(files):
            scheduler = "vllm" if seed < 2 else "orca"
            self.assertEqual(
                tactus(*LOAD, "--rate", 4, "--seed", seed % 2, "--scheduler", scheduler, "--run-out", file).returncode,
                0,
            )
        found = self.json("compare", f"{files[0]},{files[1]}", f"{files[2]},{files[3]}", "--show", "p99(ttft)")
        self.assertEqual([(one["name"], one["runs"]) for one in found["of"]], [("a.run, ...", 2), ("c.run, ...", 2)])
        second = found["metrics"]["p99(ttft)"][1]
        self.assertIsNotNone(second["ratio"]["low"])
        self.assertIn("no intervals: they need several runs of each", tactus("compare", files[0], files[2]).stdout)
        self.assertNotIn("no intervals", tactus("compare", f"{files[0]},{files[1]}", f"{files[2]},{files[3]}").stdout)
        config = self.folder / "c.toml"
        config.write_text(tactus(*LOAD, "--rate", 4, "--print-config").stdout)
        self.wrong(["compare", files[0], f"{files[1]},{config}"], "c.toml", "only results can be joined by commas")

    def test_compare_refuses_files_that_are_no_results(self):
        a, bad, empty, capacity = (self.folder / name for name in ("a.json", "bad.json", "empty.json", "capacity.json"))
        self.assertEqual(tactus(*LOAD, "--rate", 4, "-o", a).returncode, 0)
        bad.write_text("{ nothing")
        empty.write_text('{"runs": []}')
        capacity.write_text('{"configurations": []}')
        self.wrong(["compare", a], "at least two")
        self.wrong(["compare", a, bad], "bad.json", "invalid JSON at line 1, column")
        self.wrong(["compare", a, empty], "empty.json", "contains no runs")
        self.wrong(["compare", a, capacity], "capacity.json", "it is not a result")
        self.wrong(["compare", a, f"{a},{a}"], "the same simulation twice, with seed 0")
        refused = self.folder / "refused.json"
        self.assertEqual(tactus(*LOAD, "--rate", 4, "--max-model-len", 100, "-o", refused).returncode, 1)
        self.wrong(["compare", a, refused], "refused.json", "no request completed")
        self.wrong(["compare", a, self.folder / "none.json"], "none.json", code=1)

    # cost

    def test_a_price_makes_a_cost(self):
        r = self.json(*LOAD, "--rate", 4, "--tp", 2, "--device-hour-price", 3)
        tokens_per_s = r["input_token_throughput"] + r["output_token_throughput"]
        self.assertAlmostEqual(r["cost_per_million_tokens"], 6 / 3600 / tokens_per_s * 1e6)
        self.assertAlmostEqual(r["cost_per_million_output_tokens"], 6 / 3600 / r["output_token_throughput"] * 1e6)
        self.assertIsNone(self.json(*LOAD, "--rate", 4)["cost_per_million_tokens"])

    # fit

    def fit(self, *args, code=0, **environment):
        done = subprocess.run(
            [BINARY, "fit", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=200,
            env=dict(ENVIRONMENT, **environment),
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_fit_prints_the_requests_a_device_holds(self):
        args = [
            "llama-3.1-8b",
            "--device",
            "h100",
            "--slo",
            "ttft=200ms",
            "--workload",
            "random:in=512,out=32",
            "--requests",
            100,
        ]
        found = json.loads(self.fit(*args, "--json").stdout)
        self.assertFalse(found["at_least"])
        self.assertEqual(found["holds"], min(seed["held"]["value"] for seed in found["seeds"]))
        for seed in found["seeds"]:
            self.assertGreaterEqual(seed["held"]["result"]["slo_attainment"], 0.99)
            self.assertLess(seed["broke"]["result"]["slo_attainment"], 0.99)
        self.assertIn(
            f"h100 holds {found['holds']} such requests at once (workload random:in=512,out=32, ttft=200ms)",
            self.fit(*args).stdout,
        )
        self.assertIn(f"\n  {found['holds']} in flight: ", self.fit(*args).stdout)
        few = json.loads(self.fit(*args, "--most", 1, "--json").stdout)
        self.assertEqual((few["holds"], few["at_least"]), (1, True))
        self.assertIn(
            "h100 holds none: even the lowest value, 1 in flight, fails: attainment>=99%: it was 0",
            self.fit("llama-3.1-8b", "--device", "h100", "--slo", "tbt=1us", "--requests", 20, code=1).stderr,
        )

    def test_fit_on_this_machine_uses_its_profile(self):
        model = self.folder / "tiny"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(TINY_CONFIG))
        args = [model, "--slo", "tbt=10ms", "--workload", "random:in=64,out=16", "--requests", 100]
        self.assertIn("'tactus profile", self.fit(*args, code=1, TACTUS_CACHE_DIR=str(self.folder)).stderr)
        profile = self.folder / "profile.csv"
        # 1 ms plus 1 ms per decode: nine of them take 10 ms.
        rows = [f"0,0,{n},{n * c},{1 + n}" for n in range(1, 17) for c in (32, 80)] + [
            f"{n},0,0,0,{1 + n / 64}" for n in (16, 32, 48, 64)
        ]
        profile.write_text(
            "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n" + "\n".join(rows) + "\n"
        )
        found = json.loads(self.fit(*args, "--cost", profile, "--json").stdout)
        self.assertEqual(found["device"], "cpu")
        self.assertTrue(1 <= found["holds"] <= 10, found["holds"])

    def test_fit_refuses_wrong_arguments(self):
        self.assertIn("--slo is missing", self.fit("llama-3.1-8b", "--device", "h100", code=2).stderr)
        self.assertIn(
            "leave --rate and --concurrency out",
            self.fit("llama-3.1-8b", "--device", "h100", "--slo", "tbt=1s", "--rate", 2, code=2).stderr,
        )
        self.assertIn("'h999'", self.fit("llama-3.1-8b", "--device", "h999", "--slo", "tbt=1s", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
