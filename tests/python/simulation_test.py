"""simulate() returns the numbers of `tactus sim --json`, and its errors use Python names."""

import json
import os
import subprocess
import unittest

import tactus

DEPENDS_ON_THE_MACHINE = ("wall_s", "steps_per_wall_second", "decision_us")
OPTIONS = {
    "model": "llama-3.1-8b",
    "device": "a100",
    "workload": "chat",
    "rate": 4,
    "requests": 200,
    "seed": 3,
    "slo": "ttft=500ms,tbt=50ms",
    "exact_percentiles": True,
}


def command(options):
    flags = [
        text
        for name, value in options.items()
        for text in ("--" + name.replace("_", "-"), "on" if value is True else str(value))
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
    done = subprocess.run(
        [os.environ["TACTUS_BINARY"], "sim", "--json", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class SimulationTest(unittest.TestCase):
    def same(self, ours, theirs):
        for name in DEPENDS_ON_THE_MACHINE:
            self.assertIn(name, ours)
            ours.pop(name), theirs.pop(name)
        self.assertEqual(ours, theirs)

    def test_simulation_results_equal_the_commands(self):
        self.same(tactus.simulate(**OPTIONS), command(OPTIONS))

    def test_search_results_equal_the_commands(self):
        options = dict(OPTIONS, requests=20, scheduler="oracle")
        ours, theirs = tactus.simulate(**options), command(options)
        self.assertEqual(ours["oracle"]["from"], theirs["oracle"]["from"])
        self.same(ours, theirs)

    def test_an_option_implies_what_its_flag_does(self):
        self.assertEqual(
            tactus.simulate(**OPTIONS, as_paper=True)["plan_hash"], command(dict(OPTIONS, as_paper=True))["plan_hash"]
        )

    def test_wrong_arguments(self):
        for kind, message, options in [
            (TypeError, "did you mean device", dict(OPTIONS, devise="a100")),
            (TypeError, "model", dict(OPTIONS, model=3.5j)),
            (ValueError, "a99", dict(OPTIONS, device="a99")),
            (ValueError, "device is missing", dict(OPTIONS, device=None)),
            (ValueError, "tensor_parallel_size is given twice", dict(OPTIONS, tensor_parallel_size=1, tp=1)),
            (ValueError, "tensor_parallel_size: 0 is out of range", dict(OPTIONS, tensor_parallel_size=0)),
            (
                ValueError,
                "none of 3 requests completed",
                dict(OPTIONS, workload="random:in=4000,out=2", max_model_len=100, requests=3),
            ),
        ]:
            with self.subTest(message=message):
                with self.assertRaises(kind) as caught:
                    tactus.simulate(**options)
                self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
