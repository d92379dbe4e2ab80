#!/usr/bin/env python3
"""AccelGen's claims and the tables of bench/policies/accelgen.py: the policy that decides a verdict, and the contents
of tables. Runs no simulation.

tests/bench_papers/accelgen_test.py
"""

import contextlib
import io
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/papers"))
import accelgen_claims  # noqa: E402
import accelgen_settings  # noqa: E402
import claims  # noqa: E402
import shared  # noqa: E402


class Claims(unittest.TestCase):
    def test_accelgens_verdict_is_that_of_the_published_policy(self):
        policies = lambda runs: [
            flags.split("--scheduler ")[1].split()[0]
            for flags in (claims.sim_of(run).flags for run in runs.values())
            if "--scheduler accelgen" in flags
        ]
        for c in accelgen_claims.claims():
            ran, shipped = policies(c.runs), policies(c.shipped)
            for name in ran:
                self.assertTrue(name.startswith("accelgen-paper"), f"{c.id}: {name} is not the paper's policy")
            self.assertEqual(len(ran), len(shipped), f"{c.id}: what ships has another number of AccelGen's runs")
            for name in shipped:
                self.assertFalse(name.startswith("accelgen-paper"), f"{c.id}: {name} does not ship as accelgen")


class Tables(unittest.TestCase):
    """bench/policies/accelgen.py, whose settings the claims use."""

    BENCH = shared.load("policies/accelgen.py")

    def printed(self, table, *args):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            table(*args)
        return out.getvalue()

    def test_rows_of_each_part(self):
        for part in self.BENCH.ALL:
            rows = self.BENCH.policies(768, part)
            self.assertEqual(next(iter(rows.values())), ["--scheduler", "sarathi-serve", "--token-budget", "768"])
            self.assertIn("accelgen-paper", rows, part)
            self.assertEqual("tactus" in rows, part != "published", part)
            self.assertEqual("larry" in rows, part != "published", part)
        for knob, value in self.BENCH.AMENDMENTS:
            self.assertIn(f"accelgen-paper --{knob} {value}", rows := self.BENCH.policies(768, "published"))
        self.assertLessEqual(set(self.BENCH.REFERENCES), rows.keys())

    def test_the_papers_models_are_those_of_the_claims(self):
        self.assertEqual(set(self.BENCH.PAPERS), accelgen_settings.MODELS.keys())
        self.assertEqual(accelgen_settings.FIGURES.SETTINGS["opt-13b-prompts"]["answers"], 32)

    def test_the_window_lies_within_the_arrivals(self):
        self.assertEqual(self.BENCH.window_flags(1000), ["--warmup", "200", "--measure", "600"])

    def test_the_published_policy_is_compared_with_the_better_of_two(self):
        runs = lambda *goodput: [{"goodput": g} for g in goodput]
        column = {
            "sarathi-serve, pivot": runs(0.1, 0.3),
            "sarathi-serve, 512 tokens": runs(9, 9),
            "fastgen": runs(0.1, 0.1),
            "accelgen": runs(0.4, 0.4),
            "accelgen-paper": runs(0.05, 0.15),
        }
        text = self.printed(self.BENCH.published_table, {"opt-13b, 1/s": column})
        self.assertIn("| sarathi-serve, pivot | 0.200 (0.100 to 0.300) |", text)
        self.assertIn("| *accelgen-paper over the better of sarathi-serve, pivot and fastgen* | 0.50 |", text)
        self.assertIn("| *accelgen over the better of sarathi-serve, pivot and fastgen* | 2.00 |", text)

    def test_window_and_drain_are_both_reported(self):
        def run(goodput, drain, window):
            figures = lambda rate: {"requests_per_s": rate, "tokens_per_s": 100 * rate}
            return {"goodput": goodput, "drain": figures(drain), "window": figures(window), "jct_s": self.JCT}

        figures = {"first": {2.0: [run(1, 2, 4), run(3, 2, 4)]}, "other": {2.0: [run(1, 1, 8), run(1, 1, 8)]}}
        text = self.printed(self.BENCH.window_table, figures, 2.0)
        self.assertIn("| first | 2.000 | 2.000 (1.00) | 4.000 (1.00) | 200 (1.00) | 400 (1.00) | 5.0 | 4.0 | 8", text)
        self.assertIn("| other | 1.000 | 1.000 (0.50) | 8.000 (2.00) | 100 (0.50) | 800 (2.00) |", text)

    JCT = {"mean": 5, "p50": 4, "p95": 8, "p99": 9}


if __name__ == "__main__":
    unittest.main()
