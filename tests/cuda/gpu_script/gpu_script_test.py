#!/usr/bin/env python3
"""scripts/gpu.sh and bench/cuda without a card: fake programs in a folder as `pack` makes it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench/cuda"
RATES = ROOT / "bench/results/2026-11-28-h200-rates.json"
sys.path.insert(0, str(BENCH))
import floors  # noqa: E402

PROGRAMS = ("instructions", "device_kernels_test", "device_golden_test", "device_executor_test", "compute-sanitizer")


class GpuScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("bin", "lib", "tools", "root/tests/golden/data", "llama-3.1-8b"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "scripts/gpu.sh", self.folder)
        shutil.copy(BENCH / "llama-3.1-8b/config.json", self.folder / "llama-3.1-8b")
        for file in BENCH.glob("*.py"):
            shutil.copy(file, self.folder)
        self.program("run.sh", "exit 0")
        for name in PROGRAMS:
            self.program(f"bin/{name}", 'echo "$0 $*"')
        (self.folder / "tools/compute-sanitizer").symlink_to(self.folder / "bin/compute-sanitizer")
        for name in ("bash", "dirname", "mkdir", "timeout", "tail", "python3", "grep", "head", "cat"):
            (self.folder / "tools" / name).symlink_to(shutil.which(name))

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def card(self, text="echo Fake Card"):
        self.program("tools/nvidia-smi", text)

    def run_script(self, *arguments):
        environment = {**os.environ, "PATH": str(self.folder / "tools"), "TACTUS_CUBLASLT": "/fake/libcublasLt.so.13"}
        done = subprocess.run(
            ["bash", str(self.folder / "gpu.sh"), *arguments],
            env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def test_machine_without_a_driver_is_named(self):
        for command in ("check", "measure"):
            status, text = self.run_script(command)
            self.assertEqual((status, text), (1, "gpu: no NVIDIA driver is here (no nvidia-smi): nothing was done\n"))

    def test_driver_without_a_card_is_named(self):
        for fault in ("exit 9", "exit 0"):
            self.card(fault)
            status, text = self.run_script("check")
            self.assertEqual((status, text), (1, "gpu: the driver finds no card: nothing was done\n"))

    def test_folder_that_pack_did_not_make_is_named(self):
        shutil.rmtree(self.folder / "bin")
        status, text = self.run_script("check")
        self.assertEqual(status, 1)
        self.assertIn("is no folder of 'scripts/gpu.sh pack'", text)

    def test_check_runs_every_part(self):
        self.card()
        status, text = self.run_script("check")
        self.assertEqual(status, 0, text)
        for part in ("instructions", "kernels", "golden", "executor", "memcheck", "racecheck"):
            self.assertIn(f"gpu: {part}: passed", text)
        self.assertIn("gpu: all passed", text)
        self.assertIn("device_kernels_test", (self.folder / "out/memcheck.log").read_text())

    def test_part_that_fails_is_shown_and_the_others_run(self):
        self.card()
        self.program("bin/device_golden_test", "echo the logits differ; exit 3")
        status, text = self.run_script("check")
        self.assertEqual(status, 1)
        self.assertIn("gpu: golden: failed with 3", text)
        self.assertIn("the logits differ", text)
        self.assertIn("gpu: executor: passed", text)
        self.assertIn("gpu: check failed", text)

    def test_measure_writes_what_it_has(self):
        self.card()
        self.program("bin/rates", f"cat {RATES}")
        cells = [
            {"kind": "decode", "prompt": 0, "decodes": 8, "context": 1024, "step_ms": 5, "chained_ms": 4, "gap_us": 7},
            {"kind": "decode", "prompt": 0, "decodes": 256, "context": 4096, "left_out": "its KV does not fit"},
        ]
        self.program("bin/step_cells", f"echo '{json.dumps({'model': 'fake', 'cells': cells})}'")
        self.program("bin/tactus", "echo no device >&2; exit 1")
        (self.folder / "peer_transformers.py").write_text('print(\'{"error": "no torch"}\')')
        status, text = self.run_script("measure", "result.json")
        self.assertEqual(status, 1, text)
        result = json.loads((self.folder / "result.json").read_text())
        self.assertEqual(result["card"], "Fake Card")
        self.assertAlmostEqual(result["steps"]["cells"][0]["over_floor"], 4 / 3.53, 2)
        self.assertEqual([fault.split(":")[0] for fault in result["faults"]], ["serve", "transformers"])
        self.assertIn("decode        0       8    1024      5.000       4.000", text)
        self.assertIn("its KV does not fit", text)


class FloorsTest(unittest.TestCase):
    def setUp(self):
        self.bandwidth, self.rate = floors.card_rates(json.loads(RATES.read_text()))
        self.model = floors.Model(json.loads((BENCH / "llama-3.1-8b/config.json").read_text()))

    def test_rates_are_those_of_large_copies_and_products(self):
        self.assertEqual(self.bandwidth, 4551.5e9)
        self.assertEqual(self.rate, 797.23e12)

    def test_shape_has_eight_billion_weights(self):
        # 8.03 billion parameters without the table of embeddings, which a step reads a few rows of.
        self.assertAlmostEqual((self.model.layer_values + self.model.head_values) / 1e9, 8.03 - 0.525, 2)
        self.assertEqual(self.model.kv_bytes, 131072)

    def test_small_decode_is_bound_by_bytes_and_a_long_prompt_by_arithmetic(self):
        decode = self.model.floor_ms({"prompt": 0, "decodes": 1, "context": 1}, 1e12, 1e15)
        self.assertAlmostEqual(decode, 15.009, 2)
        prompt = {"prompt": 8192, "decodes": 0, "context": 0}
        self.assertAlmostEqual(self.model.floor_ms(prompt, 1e15, 1e12), self.model.flops(8192, 0, 0) / 1e9)


if __name__ == "__main__":
    unittest.main()
