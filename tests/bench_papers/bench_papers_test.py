#!/usr/bin/env python3
"""bench/papers: well-formed tables of claims, verdicts, the search for a capacity, the cache, and two claims by
simulation. The report is tested in report_test.py.

tests/bench_papers/bench_papers_test.py [TACTUS]
"""

import dataclasses
import json
import math
import pathlib
import stat
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/papers"))
import calibration  # noqa: E402
import claims  # noqa: E402
import files  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import simulations  # noqa: E402
from claims import AtLoad, Between, Capacity, Claim, Near, Sim  # noqa: E402

TACTUS = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def claim(expects=Near(2, 0.1), id="c", runs=None, value=lambda r: r["a"]["x"], **more):
    return Claim(id, "1", "says", "2", expects, runs or {"a": Sim("--model m --rate 1")}, value, **more)


class Tables(unittest.TestCase):
    def test_every_paper_is_well_formed(self):
        papers = run.tables(run.PAPERS)
        everything = [c for _, rows in papers.values() for c in rows]
        self.assertEqual(claims.check(everything), [])
        for c in everything:
            self.assertIn(c.model, calibration.ERRORS, f"{c.id}: nothing is known of the cost model's error there")

    def test_the_list_in_the_program_is_that_of_the_tables(self):
        self.assertEqual(
            (ROOT / "data/paper_claims.txt").read_text(),
            report.commands(run.tables(run.PAPERS)),
            "write it anew: bench/papers/run.py --list > data/paper_claims.txt",
        )

    def test_faults_are_named(self):
        faults = claims.check(
            [
                claim(),
                claim(),
                claim(Between(None, None), "nothing"),
                claim(id="a b"),
                claim(id="rate", runs={"a": Capacity(Sim("--rate 1"), lambda r: True, "always")}),
                claim(id="json", runs={"a": Sim("--json")}),
                claim(id="load", runs={"a": AtLoad(Sim("--rate 1"), Sim("--rate 9"), 0.5)}),
                claim(Between(None, 1.01, 1), "alike"),
                claim(Near(1.05, 0.1), "near none"),
            ]
        )
        self.assertEqual(
            [f.split(":")[0].split(",")[0] for f in faults],
            ["c", "nothing", "a b", "rate", "json", "load", "alike", "near none", "near none"],
        )

    def test_a_claim_measures_something(self):
        with self.assertRaisesRegex(ValueError, "measures nothing"):
            Claim("c", "1", "says", "2", Near(1, 0.1), {}, lambda r: 1)

    def test_shipped_presets_need_the_papers_runs(self):
        with self.assertRaisesRegex(ValueError, r"what ships has other runs \(b\) than the paper's"):
            claim(shipped={"b": Sim("--rate 1")})


class Verdicts(unittest.TestCase):
    def expect(self, expects, **values):
        for said, xs in values.items():
            for x in xs:
                self.assertEqual(claims.verdict(claim(expects), x), said.replace("_", " "), f"{expects} of {x}")

    def test_a_ratio_near_the_papers(self):
        self.expect(
            Near(2, 0.1), reproduced=[1.81, 2, 2.19], direction_only=[1.11, 1.79, 2.21, 40], disagrees=[1.09, 1, 0.9, 0]
        )

    def test_a_loss_near_the_papers(self):
        self.expect(Near(-40, 0.25, 0), reproduced=[-30, -50], direction_only=[-5, -99], disagrees=[-3, 0, 5])

    def test_a_share_of_the_effect(self):
        self.expect(
            Near(1.2, 0.5, of_effect=True),
            reproduced=[1.11, 1.29],
            direction_only=[1.09, 1.31, 1.03],
            disagrees=[1.01, 1, 0.9],
        )

    def test_without_neutral_there_is_no_direction(self):
        self.expect(Near(200, 0.1, None), reproduced=[185], disagrees=[100, 300])

    def test_an_absolute_tolerance(self):
        self.expect(Near(0, 2, None, absolute=True), reproduced=[-2, 0, 2], disagrees=[2.1])

    def test_at_least_and_at_most(self):
        self.expect(Between(1.4, None, 1), reproduced=[1.4, 9], direction_only=[1.1], disagrees=[1, 0.5])
        self.expect(Between(None, 0.9, 1), reproduced=[0.9, 0], direction_only=[0.95], disagrees=[0.995, 1, 1.5])
        self.expect(Between(97, None), reproduced=[97], disagrees=[96.9])

    def test_no_number_is_not_measured(self):
        self.expect(Near(2, 0.1), not_measured=[None, math.nan, math.inf])

    def test_seeds(self):
        self.assertEqual(claims.measured([3, 1, None, 2, math.nan]), (2, 1, 3))
        self.assertIsNone(claims.measured([None, math.nan]))

    def test_differences(self):
        self.assertEqual(Near(2, 0.1).difference(2.5), "+25 %")
        self.assertEqual(Between(1, 3).difference(2), "within")
        self.assertEqual(Between(2, None).difference(1), "-50 %")
        self.assertEqual(Between(None, 0).difference(0.5), "+0.5")


class Turns(unittest.TestCase):
    def test_only_rankings_reversed_by_the_perturbation_are_reported(self):
        c = claim(claims.ABOVE_ONE)
        self.assertEqual(run.turns(c, {run.UNCHANGED: 1.5, "products x 2": 0.9, "network x 2": 1.2}), ["products x 2"])
        self.assertEqual(run.turns(c, {run.UNCHANGED: 0.5, "products x 2": 0.4, "network x 2": 1.1}), ["network x 2"])
        self.assertEqual(
            run.turns(claim(Between(None, 5)), {run.UNCHANGED: 3, "products x 2": 5, "network x 2": 6}), ["network x 2"]
        )
        self.assertEqual(run.turns(c, {}), [])

    def test_effects_below_a_hundredth_have_no_ranking_to_reverse(self):
        c = claim(claims.ABOVE_ONE, unit="x")
        self.assertEqual(
            run.turns(c, {run.UNCHANGED: 1.5, "products x 2": 0.995, "network x 2": 0.98}), ["network x 2"]
        )
        self.assertEqual(run.turns(c, {run.UNCHANGED: 1.005, "products x 2": 0.9, "network x 2": 1.2}), [])
        percent = claim(Near(20, 0.3, 0), unit="%")
        self.assertEqual(
            run.turns(percent, {run.UNCHANGED: 9, "products x 2": -0.5, "network x 2": -2}), ["network x 2"]
        )

    def test_every_factor_goes_both_ways(self):
        names = calibration.variants("falcon-180b a100")
        self.assertEqual(names["products x 1.14"], ("--cost-scale", "products=1.14"))
        self.assertEqual(names["products / 1.14"], ("--cost-scale", "products=0.8772"))
        self.assertEqual(names["network x 2.7"], ("--cost-scale", "network=2.7"))
        self.assertIn("roofline", names)
        self.assertEqual(calibration.variants("nothing known"), {})

    def test_unknowns_of_the_papers_engine_are_reported_if_decisive(self):
        self.assertEqual(calibration.unknowns("nothing known"), {})
        self.assertEqual(calibration.variants("gpt-3 a100")["host 5 ms"], ("--cpu-overhead", "5ms"))
        c = claim(Near(6, 0.3), model="gpt-3 a100")
        row = {"paper": "p", "claim": c, "values": [28], "errors": []}
        found = {run.UNCHANGED: 28, "host 5 ms": 7, "host 10 ms": 3.7, "products x 1.14": 6}
        self.assertEqual(run.finished(row | {"variants": found})["other_with"], ["host 5 ms"], "products are known")
        self.assertEqual(run.finished(row | {"values": [6], "variants": found})["other_with"], ["host 10 ms"])

    def test_within_a_hundredth_of_no_effect_is_a_tie(self):
        for value, tie in ((0.995, True), (0.98, False), (1.02, False)):
            c = claim(claims.ABOVE_ONE, unit="x")
            row = {"paper": "p", "claim": c, "values": [value], "errors": [], "variants": {}}
            self.assertEqual(run.finished(row)["tie"], tie, value)

    def test_another_engine_is_no_error_of_the_cost_model(self):
        self.assertEqual(
            calibration.what_ifs("8b a100, 70b h100"), {}, "whose engine is not known: one kernel is among the errors"
        )
        name, flags = next(iter(calibration.what_ifs("llama-13b a6000").items()))
        self.assertEqual(flags, ("--attention-kernels", "one"))
        row = {
            "paper": "p",
            "claim": claim(claims.ABOVE_ONE, model="llama-13b a6000"),
            "values": [1.5],
            "errors": [],
            "variants": {run.UNCHANGED: 1.5, "products x 1.2": 1.1, name: 0.9},
        }
        found = run.finished(row)
        self.assertEqual(
            (found["turns"], found["what_ifs"], sorted(found["variants"])),
            ([], {name: 0.9}, ["products x 1.2", run.UNCHANGED]),
        )
        self.assertEqual(report.range_text(found), f"1.1 to 1.5; 0.9 with {name}")

    def test_overridden_flags_are_removed(self):
        self.assertEqual(simulations.without(["--a", "1", "--b", "2", "--c"], ("--a", "--d")), ["--b", "2", "--c"])


class Lengths(unittest.TestCase):
    def test_a_seed_gives_one_file(self):
        with tempfile.TemporaryDirectory() as folder:
            made = files.Files(folder)
            first = made.workload("accelgen_8192", 1, 50)
            self.assertEqual(first, files.Files(folder).workload("accelgen_8192", 1, 50))
            self.assertNotEqual(first, made.workload("accelgen_8192", 2, 50))
            self.assertEqual(len(pathlib.Path(first).read_text().splitlines()), 51)

    def test_summaries_have_the_papers_medians(self):
        rows = [tuple(map(int, line.split(","))) for line in files.summaries(1, 2000).splitlines()[1:]]
        self.assertAlmostEqual(statistics.median(p for p, _ in rows) / 7059, 1, delta=0.1)
        self.assertLessEqual(max(p + d for p, d in rows), 16384)

    def test_answers_can_be_bounded(self):
        rows = [tuple(map(int, line.split(","))) for line in files.accelgen(1, 300, 8192, 14, 32).splitlines()[1:]]
        self.assertEqual((min(d for _, d in rows), max(d for _, d in rows)), (1, 32))
        as_drawn = [line.split(",")[1] for line in files.accelgen(1, 300, 8192).splitlines()[1:]]
        self.assertGreater(max(map(int, as_drawn)), 1024, "without a bound they are those of figure 8")

    def test_zipf_has_ten_prompt_tokens_for_one(self):
        rows = [tuple(map(int, line.split(","))) for line in files.zipf(1, 200).splitlines()[1:]]
        self.assertTrue(all(1024 <= p + d <= 4096 and 9.9 < p / d < 11.2 for p, d in rows))


FAKE = """#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do rate=$word; [ "$word" = broken ] && {{ echo "tactus sim: --model broken" >&2; exit 2; }}; done
while [ $# -gt 1 ]; do [ "$1" = --rate ] && rate=$2; shift; done
echo "{{\\"x\\": $rate, \\"request_throughput\\": 40}}"
"""


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log, self.tactus, self.cache = self.folder / "log", self.folder / "tactus", self.folder / "cache.jsonl"
        self.write()

    def write(self, remark=""):
        self.tactus.write_text(FAKE.format(log=self.log) + remark)
        self.tactus.chmod(self.tactus.stat().st_mode | stat.S_IXUSR)

    def fresh(self):
        return simulations.Simulations(self.tactus, files.Files(self.folder / "files"), self.cache, jobs=2)

    def ran(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def test_each_command_runs_once_over_all_runs(self):
        sim = Sim("--rate 3 --seed {seed}")
        self.assertEqual([self.fresh().run(sim, 1), self.fresh().run(sim, 1)], [{"x": 3, "request_throughput": 40}] * 2)
        self.assertEqual(self.ran(), 1)
        self.fresh().run(sim, 2)
        self.assertEqual(self.ran(), 2)

    def test_a_line_that_was_cut_off_is_run_again(self):
        self.fresh().run(Sim("--rate 3"), 1)
        self.cache.write_text(self.cache.read_text()[:-20])
        self.assertEqual(self.fresh().run(Sim("--rate 3"), 1)["x"], 3)
        self.assertEqual(self.ran(), 2)

    def test_another_program_runs_again(self):
        self.fresh().run(Sim("--rate 3"), 1)
        self.write("# rebuilt\n")
        self.fresh().run(Sim("--rate 3"), 1)
        self.assertEqual(self.ran(), 2)

    def test_another_program_beside_it_runs_again(self):
        self.fresh().run(Sim("--rate 3"), 1)
        pathlib.Path(f"{self.tactus}-tools").write_text("what simulates")
        self.fresh().run(Sim("--rate 3"), 1)
        self.assertEqual(self.ran(), 2, "the result of another tactus-tools was taken from the cache")

    def test_capacity_is_found_to_a_step_of_the_grid(self):
        for most in (0.03, 0.5, 1, 7.3, 90):
            found = self.fresh().capacity(Capacity(Sim("--model m"), lambda r, most=most: r["x"] <= most, ""), 1)
            self.assertTrue(most / simulations.GRID**1.01 < found <= most, f"{found} of {most}")

    def test_a_capacity_of_nothing(self):
        self.assertEqual(self.fresh().capacity(Capacity(Sim("--model m"), lambda r: False, ""), 1), 0)

    def test_a_load_is_a_share_of_the_capacity_with_the_same_step_times(self):
        run = AtLoad(Sim("--model m --seed {seed}"), Sim("--model m --rate 1000 --seed {seed}"), 0.8)
        self.assertEqual(self.fresh().measure(run, 7, ("--cost-scale", "products=2"))["x"], 32)
        for line in self.log.read_text().splitlines():
            self.assertIn("--seed 7 --cost-scale products=2", line)

    def test_a_failure_reports_command_and_message_and_fails_the_claim(self):
        papers = {"p": ("Paper", [claim(runs={"a": Sim("--model broken")}, seeds=(1,))])}
        rows = run.run_claims(papers, self.fresh(), 2)
        self.assertEqual(rows[0]["verdict"], claims.FAILED)
        self.assertIn("--model broken", rows[0]["errors"][0])

    def test_non_numbers_and_missing_files_are_reported(self):
        def missing(r):
            raise FileNotFoundError(2, "No such file", "trace.csv")

        for value, why in ((lambda r: math.nan, "no number: nan"), (missing, "trace.csv'; --data names")):
            [row] = run.run_claims(
                {"p": ("Paper", [claim(runs={"a": Sim("--rate 3")}, value=value, seeds=(1,))])}, self.fresh(), 2
            )
            self.assertEqual((row["verdict"], row["why"]), (claims.FAILED, ""))
            self.assertIn(why, row["errors"][0])

    def test_a_large_job_is_perturbed_with_its_quick_number(self):
        large = claim(runs={"a": Sim("--rate 3", requests=run.MOST_PERTURBED + 1)}, model="yi-34b a100")
        self.assertEqual(
            {(m.quick, m.variant != "") for m in run.measurements({"p": ("Paper", [large])}, False, ())},
            {(False, False), (True, True)},
        )

    def test_a_trace_is_known_by_its_content(self):
        path = self.folder / "lengths.csv"
        path.write_text("1,2")
        for text, ran in (("1,2", 1), ("1,3", 2), ("1,2", 2)):
            path.write_text(text)
            self.fresh().run(Sim(f"--rate 3 --workload lengths:{path}"), 1)
            self.assertEqual(self.ran(), ran)

    def test_shipped_presets_are_shown_but_do_not_decide_the_claim(self):
        c = claim(
            Between(5, None, 1),
            runs={"a": Sim("--rate 1")},
            shipped={"a": Sim("--rate 6")},
            model="llama-13b a100",
            why="published",
            shipped_why="ships",
        )
        [row] = run.run_claims({"p": ("Paper", [c])}, self.fresh(), 2, calibrate=())
        self.assertEqual((row["ours"], row["verdict"], row["why"]), (1, "disagrees", "published"))
        self.assertEqual(
            (row["shipped"]["ours"], row["shipped"]["verdict"], row["shipped"]["why"]), (6, "reproduced", "")
        )
        self.assertIn("--rate 6", row["shipped"]["commands"]["a"])
        self.assertEqual(row["shipped"]["variants"].keys(), row["variants"].keys(), "both have wrong step times")
        neither = dataclasses.replace(c, expects=Between(9, None, 7))
        [other] = run.run_claims({"p": ("Paper", [neither])}, self.fresh(), 2)
        self.assertEqual((other["why"], other["shipped"]["why"]), ("published", "ships"))
        two = [dict(row, id="both"), dict(row, id="one", shipped=None, verdict="reproduced", tie=False, why="")]
        text = report.markdown(
            [
                {
                    "date": "2026-11-26",
                    "commit": "abc",
                    "command": "run",
                    "traces": "none",
                    "papers": {"p": "Paper"},
                    "rows": two,
                }
            ]
        )
        for part in (
            "| Paper, as published | 2 | 1 | 0 | 1 | 0 |",
            "| Paper, as shipped | 2 | 2 | 0 | 0 | 0 |",
            "| as published | difference | within 10 % | verdict | with wrong step times | as shipped | difference |",
            "| 1 | -80 % | - | disagrees, a tie: within 1 % | 1 to 1 | 6 | within | - | reproduced | 6 to 6 |",
            "| at least 5 | 1 | -80 % | - | reproduced | 1 to 1 | 1 | -80 % | - | reproduced | 1 to 1 |",
            "- `both` (as published): published.",
        ):
            self.assertIn(part, text)
        self.assertIn("as shipped 6 ", report.plain([{"papers": {"p": "Paper"}, "rows": two}]))

    def test_tokens_of_requests_that_met_their_objectives(self):
        row = {
            "arrival_s": "1",
            "first_token_s": "1.5",
            "done_s": "3",
            "longest_gap_s": "0.1",
            "finish": "length",
            "slo_ttft_ms": "500",
            "slo_tbt_ms": "100",
            "slo_jct_ms": "",
        }
        self.assertTrue(simulations.kept_all(row), "what is just met is kept")
        for late in (
            {"slo_ttft_ms": "499"},
            {"slo_tbt_ms": "99"},
            {"slo_jct_ms": "1999"},
            {"finish": "aborted"},
            {"first_token_s": ""},
        ):
            self.assertFalse(simulations.kept_all(row | late), late)

    def test_compute_use_is_the_mean_of_the_steps_shares(self):
        steps = [
            {"prompt_tokens": "100", "decodes": "20", "budget_tokens": "120"},
            {"prompt_tokens": "0", "decodes": "50", "budget_tokens": "1000"},
        ]
        self.assertAlmostEqual(simulations.compute_use(steps, {}), (1 + 0.05) / 2)

    def test_rows_have_seeds_variants_and_turns(self):
        c = claim(Between(None, 5), runs={"a": Sim("--rate 3")}, model="yi-34b a100")
        row = run.run_claims({"p": ("Paper", [c])}, self.fresh(), 2, calibrate=())[0]
        self.assertEqual((row["ours"], row["verdict"], row["turns"]), (3, "reproduced", []))
        self.assertEqual(row["variants"][run.UNCHANGED], 3)
        self.assertEqual(
            {m.quick for m in run.measurements({"p": ("Paper", [c])}, False, ())},
            {False},
            "perturbed models are run as the claim itself",
        )
        self.assertGreater(len(row["variants"]), 7)
        self.assertEqual(
            run.run_claims({"p": ("Paper", [c])}, self.fresh(), 2, calibrate=("other",))[0]["variants"], {}
        )


@unittest.skipIf(TACTUS is None, "no program was named")
class Smoke(unittest.TestCase):
    def test_two_claims_by_simulation(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            done = subprocess.run(
                [
                    sys.executable,
                    ROOT / "bench/papers/run.py",
                    TACTUS,
                    "--claim",
                    "s23-orca-worst",
                    "--claim",
                    "s23-marginal",
                    "--quick",
                    "--cache",
                    pathlib.Path(folder) / "cache",
                    "-o",
                    out,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=100,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            verdicts = {row["id"]: row["verdict"] for row in json.loads(out.read_text())["rows"]}
            self.assertEqual(verdicts["s23-orca-worst"], "reproduced", done.stdout)
            self.assertIn(verdicts["s23-marginal"], ("reproduced", "direction only"), done.stdout)

    def test_the_program_lists_the_claims(self):
        done = subprocess.run([TACTUS, "sim", "--print-papers"], stdout=subprocess.PIPE, text=True, timeout=30)
        self.assertEqual(done.stdout, (ROOT / "data/paper_claims.txt").read_text())


if __name__ == "__main__":
    unittest.main()
