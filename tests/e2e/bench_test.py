"""Load tests with objectives, against a real server: objectives of requests, scoring, objectives sent to the server."""

import json
import unittest
import urllib.request

from command_case import Folder, tactus
from server_process import ServerProcess


class ObjectivesTest(Folder):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(
            "--json", "--scheduler", "sarathi-serve", "--tbt-slo", "none", real_model=False
        )  # no step times: the gate accepts every objective

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, "".join(cls.server.lines)
        assert set(json.loads(cls.server.output)["classes"]) == {"easy", "hard", "far", "near"}, cls.server.output

    def bench(self, *args):
        return tactus(
            "bench",
            "--url",
            self.server.url,
            "--vocab-size",
            "256",
            "--requests",
            "8",
            "--concurrency",
            "2",
            "--send-slo",
            "--json",
            *args,
        )

    def stated(self):
        rows = self.folder / "stated.csv"
        rows.write_text(
            "prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_class\n8,3,100000,100000,easy\n8,3,0.001,,hard\n"
        )
        return f"lengths:{rows}"

    def test_a_workload_file_has_objectives(self):
        done = self.bench("--workload", self.stated())
        self.assertEqual(done.returncode, 0, done.stderr)
        classes = json.loads(done.stdout)["classes"]
        self.assertEqual((classes["easy"]["kept"], classes["hard"]["kept"]), (4, 0))
        self.assertEqual((classes["hard"]["ttft_attainment"], classes["hard"]["step_attainment"]), (0.0, None))
        self.assertEqual((classes["easy"]["tbt_attainment"], classes["easy"]["step_attainment"]), (1.0, 1.0))
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        told = [
            line
            for line in lines
            if line.startswith("tactus_slo_requests_total") and 'class="hard",kept="false"' in line
        ]
        self.assertEqual([line.rsplit(" ", 1)[1] for line in told], ["4"], told)

    def test_a_mix_draws_objectives_as_multiples_of_isolated_times(self):
        done = self.bench(
            "--workload", "random:in=8,out=3", "--slo-mix", "far:1:ttft=1e9x,tbt=1e9x,jct=1e9x;near:1:jct=0.0001x"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("alone: 8 prompt tokens: ", done.stderr)
        classes = json.loads(done.stdout)["classes"]
        self.assertEqual(set(classes), {"far", "near"})
        self.assertEqual((classes["far"]["slo_attainment"], classes["near"]["jct_attainment"]), (1.0, 0.0))
        self.assertGreater(classes["far"]["e2e_ms"]["p50"], 0)

    def test_several_seeds_are_a_mean_with_its_interval(self):
        done = self.bench(
            "--workload",
            "random:in=8,out=3",
            "--seeds",
            "2",
            "--seed",
            "5",
            "--slo",
            "ttft=100s",
            "--request-class",
            "easy",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["seeds"], [run["seed"] for run in found["runs"]]), ([5, 6], [5, 6]))
        values = [run["ttft_ms"]["p50"] for run in found["runs"]]
        self.assertAlmostEqual(found["mean"]["p50(ttft)"]["mean"], sum(values) / 2)
        self.assertIsNotNone(found["mean"]["p50(ttft)"]["low"])
        self.assertIn("load 2 of 2, seed 6, is done", done.stderr)
        for more, why in (
            (["--run-out", self.folder / "a.run"], "--run-out describes a single load, and --seeds 2"),
            (["--timeseries", "1s"], "--timeseries describes a single load"),
            (["--seed", str(2**63 - 1)], "is too large for --seeds"),
        ):
            wrong = self.bench("--workload", "random:in=8,out=3", "--seeds", "2", *map(str, more))
            self.assertEqual((wrong.returncode, wrong.stdout), (2, ""), wrong.stderr)
            self.assertIn(why, wrong.stderr)

    def test_objectives_have_a_single_source(self):
        for more, why in (
            (["--workload", self.stated(), "--slo-mix", "a:1:none"], "states objectives or classes itself"),
            (["--slo", "ttft=1s", "--slo-mix", "a:1:none"], "--slo or --slo-mix, not both"),
            (["--workload", "mix:chat=0.5,code=0.5", "--slo-mix", "a:ttft=1s"], "no part of that name"),
            (["--slo-mix", "a:1:ttft=0"], "'ttft=0' is not a duration above 0"),
        ):
            done = self.bench(*more)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
