#!/usr/bin/env python3
"""scripts/gpu.sh and bench/cuda without a card: a folder as `pack` makes it, with programs that do nothing, and a dry
run of all measurements on the emulated device."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench/cuda"
RATES = ROOT / "bench/results/2026-11-28-h200-rates.json"
sys.path.insert(0, str(BENCH))
import aims  # noqa: E402
import floors  # noqa: E402

CONFORMANCE = ROOT / "tests/cuda/conformance"
PROGRAMS = (
    "device_kernels_test",
    "device_golden_test",
    "device_executor_test",
    "device_graphs_test",
    "compute-sanitizer",
)
# The parts of a check, and the program of each; the sanitizer runs two.
PARTS = {
    "instructions": "instructions",
    "kernels": "device_kernels_test",
    "golden": "device_golden_test",
    "executor": "device_executor_test",
    "graphs": "device_graphs_test",
    "memcheck": "compute-sanitizer",
    "racecheck": "compute-sanitizer",
}
LOGS = {"instructions": "instructions.txt"}


PRODUCTS = [
    {"product": "qkv", "tokens": 8, "chosen_us": 10, "invariant_us": 11},
    {"product": "down", "tokens": 8, "chosen_us": 30, "invariant_us": 33},
    {"product": "down", "tokens": 1, "chosen_us": 20, "invariant_us": 20},
    {"product": "lm_head", "tokens": 8, "chosen_us": 100, "invariant_us": 900},
]
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 320,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 256,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 300,
    "eos_token_id": 301,
}  # fmt: skip
# As much of both packages as bench/cuda/peer_transformers.py calls; {fault} is raised by transformers' own attention.
TORCH = "import contextlib\n__version__, bfloat16 = '2', 16\nset_default_dtype = int\ndevice = contextlib.nullcontext\n"
TRANSFORMERS = """
import json, types
__version__ = "5"
class AutoConfig:
    def from_pretrained(folder):
        return types.SimpleNamespace(**json.load(open(folder + "/config.json")))
class GenerationConfig:
    def __init__(self, max_new_tokens, do_sample, eos_token_id, pad_token_id):
        self.max_new_tokens = max_new_tokens
class Model:
    fault = "{fault}"
    def eval(self):
        return self
    def set_attn_implementation(self, name):
        assert name == "paged|sdpa"
        self.fault = ""
    def generate_batch(self, inputs, generation_config, progress_bar):
        print("a line on standard output")
        made = [1] * (0 if self.fault else generation_config.max_new_tokens)
        answer = lambda i: types.SimpleNamespace(generated_tokens=made, error=self.fault, lifespan=(i, i + 1.5))
        return {i: answer(i) for i in range(len(inputs))}
class AutoModelForCausalLM:
    def from_config(config):
        return Model()
"""


class PackedFolder(unittest.TestCase):
    """A folder as `pack` makes it, with programs that do nothing."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("bin", "lib", "tools", "root/tests/golden/data", "llama-3.1-8b", "packages/torch"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "scripts/gpu.sh", self.folder)
        shutil.copy(BENCH / "llama-3.1-8b/config.json", self.folder / "llama-3.1-8b")
        for file in [*BENCH.glob("*.py"), CONFORMANCE / "run.sh", CONFORMANCE / "results/h200.txt"]:
            shutil.copy(file, self.folder)
        self.program("bin/instructions", f"cat {self.folder}/h200.txt")
        for name in PROGRAMS:
            self.program(f"bin/{name}", 'echo "$0 $*"')
        (self.folder / "tools/compute-sanitizer").symlink_to(self.folder / "bin/compute-sanitizer")
        for name in ("bash", "dirname", "mkdir", "timeout", "tail", "python3", "grep", "head", "cat", "awk", "sleep"):
            (self.folder / "tools" / name).symlink_to(shutil.which(name))
        (self.folder / "packages/torch/__init__.py").write_text(TORCH)
        self.transformers("")
        self.environment = {}

    def transformers(self, fault):
        (self.folder / "packages/transformers.py").write_text(TRANSFORMERS.replace("{fault}", fault))

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def card(self, text="echo Fake Card"):
        self.program("tools/nvidia-smi", text)

    def run_script(self, *arguments, timeout=60):
        environment = {**os.environ, "PATH": str(self.folder / "tools"), "TACTUS_CUBLASLT": "/fake/libcublasLt.so.13"}
        environment |= {"PYTHONPATH": str(self.folder / "packages"), **self.environment}
        done = subprocess.run(
            ["bash", str(self.folder / "gpu.sh"), *arguments],
            env=environment, cwd=self.folder, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def measured(self, *options, timeout=60):
        status, text = self.run_script("measure", "out/result.json", *options, timeout=timeout)
        return status, text, json.loads((self.folder / "out/result.json").read_text())


class PackTest(PackedFolder):
    def test_folder_with_other_files_is_left_alone(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/notes.txt").write_text("notes\n")
        (self.folder / "tools/ls").symlink_to(shutil.which("ls"))
        status, text = self.run_script("pack", str(self.folder / "mine"))
        self.assertEqual(status, 1)
        self.assertIn("mine has other files: name an empty folder", text)
        self.assertTrue((self.folder / "mine/notes.txt").exists())


class DeviceSourcesTest(unittest.TestCase):
    """The tests that `pack` builds for a card, without a compiler for it."""

    DEVICE = ROOT / "tests/cuda/device"
    ROOTS = (DEVICE, ROOT / "src", ROOT / "include", ROOT / "tests")

    def sources(self):
        named = re.findall(r"\$\{cuda\}/(\w+_test\.cc)", (self.DEVICE / "CMakeLists.txt").read_text())
        return [*(ROOT / "tests/cuda" / name for name in named), *(ROOT / "tests/cuda/kernels").glob("*_test.cc")]

    def included(self, file, found):
        found.add(file)
        for name in re.findall(r'^#include "(.+)"', file.read_text(), re.M):
            places = [place / name for place in (file.parent, *self.ROOTS)]
            place = next((p.resolve() for p in places if p.exists()), None)
            if place and place not in found:
                self.included(place, found)
        return found

    def test_they_use_no_more_than_a_card_has(self):
        sources, name = self.sources(), r"\bemulator::(\w+)"
        self.assertGreater(len(sources), 8)
        for source in sources:
            files = self.included(source, set())
            self.assertFalse(ROOT / "src/compute/cuda/kernels/device.h" in files, f"{source} calls a card's functions")
            text = "".join(file.read_text() for file in files)
            declared = set(re.findall(r"\w+", re.sub(name, "", text)))
            self.assertEqual(set(re.findall(name, text)) - declared, set(), f"{source} uses what {self.DEVICE} lacks")


class CheckTest(PackedFolder):
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
        for part in PARTS:
            self.assertIn(f"gpu: {part}: passed", text)
        self.assertIn("gpu: all passed", text)
        self.assertIn("device_kernels_test", (self.folder / "out/memcheck.log").read_text())

    def test_each_part_that_fails_is_shown_and_the_others_run(self):
        self.card()
        for part, program in PARTS.items():
            with self.subTest(part):
                before = (self.folder / "bin" / program).read_text()
                self.program(f"bin/{program}", 'case $* in *racecheck*) [ racecheck = "$part" ] || exit 0;; '
                             '*error-exit*) [ memcheck = "$part" ] || exit 0;; esac; '
                             'echo the logits differ; exit 3'.replace("$part", part))  # fmt: skip
                status, text = self.run_script("check")
                (self.folder / "bin" / program).write_text(before)
                self.assertEqual(status, 1)
                self.assertIn(f"gpu: {part}: failed with 3", text)
                self.assertEqual(text.count(": passed in"), len(PARTS) - 1, text)
                self.assertIn("gpu: check failed", text)
                self.assertIn("the logits differ", (self.folder / f"out/{LOGS.get(part, part + '.log')}").read_text())

    def test_instruction_that_differs_fails_the_check(self):
        self.card()
        self.program("bin/instructions", f"sed '3s/=1/=2/' {self.folder}/h200.txt")
        (self.folder / "tools/sed").symlink_to(shutil.which("sed"))
        status, text = self.run_script("check")
        self.assertEqual(status, 1)
        self.assertIn("gpu: instructions: failed with 1", text)
        self.assertIn("differs: case generator", text)

    def test_instructions_that_end_early_fail_the_check(self):
        self.card()
        for cut in ("head -n -500", "head -n 0"):
            self.program("bin/instructions", f"{cut} {self.folder}/h200.txt")
            status, text = self.run_script("check")
            self.assertEqual(status, 1)
            self.assertIn("gpu: instructions: failed with 1", text)

    def test_filter_without_a_test_fails_the_check(self):
        self.card()
        self.program("bin/device_executor_test", "echo '[==========] 0 tests from 0 test suites ran. (0 ms total)'")
        status, text = self.run_script("check")
        self.assertEqual(status, 1)
        self.assertIn("gpu: executor: failed, no test has run", text)

    def test_filters_name_tests(self):
        script = (ROOT / "scripts/gpu.sh").read_text()
        found = re.findall(r"bin/device_(\w+)_test\" --gtest_brief=1 \\\n\s+--gtest_filter='(\S+)'", script)
        self.assertEqual([name for name, _ in found], ["kernels", "kernels", "golden"])
        for name, pattern in found:
            program = os.environ.get(f"TACTUS_CUDA_{name.upper()}_TEST")
            if not program:
                self.skipTest("no tests of the emulated device are named")
            listed = subprocess.run(
                [program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True
            )
            self.assertIn("\n  ", listed.stdout, f"{pattern} names no test of {name}")


class MeasureTest(PackedFolder):
    """measure.py with programs that print what a card's would."""

    def setUp(self):
        super().setUp()
        self.card()
        self.program("bin/rates", f"cat {RATES}")
        cells = [
            {"kind": "decode", "prompt": 0, "decodes": 8, "context": 1024, "step_ms": 5, "chained_ms": 4, "gap_us": 7},
            {"kind": "decode", "prompt": 0, "decodes": 256, "context": 4096, "left_out": "its KV does not fit"},
        ]
        self.program("bin/step_cells", f"echo '{json.dumps({'model': 'fake', 'cells': cells})}'")
        self.program("bin/tactus", "echo no device >&2; exit 1")
        self.program("bin/product_cells", f"echo '{json.dumps({'cells': PRODUCTS})}'")

    def test_what_a_part_lacks_is_a_fault_and_the_others_are_written(self):
        status, text, result = self.measured()
        self.assertEqual(status, 1, text)
        self.assertEqual(result["card"], "Fake Card")
        self.assertAlmostEqual(result["steps"]["cells"][0]["over_floor"], 4 / 3.53, 2)
        self.assertEqual(
            [fault.split(" ")[0].strip(":") for fault in result["faults"]], ["served", "offline", "offline"]
        )
        self.assertIn("the server ended: no device", result["faults"][0])
        self.assertEqual(result["transformers"]["output_tokens"], 64 * 256)
        self.assertIn("decode        0       8    1024      5.000       4.000", text)
        self.assertIn("its KV does not fit", text)
        self.assertEqual(result["products"]["invariance_costs"], {"1": 1.0, "8": 1.1})

    def test_parts_without_time_are_named_in_the_result(self):
        status, text, result = self.measured("--seconds", "1")
        self.assertEqual(status, 1, text)
        self.assertEqual(result["faults"], [])
        self.assertEqual(
            [part.split(":")[0] for part in result["left_out"]],
            [
                "rates",
                "steps",
                "served",
                "transformers",
                "products",
                "offline 256 x 1000/1000",
                "offline 512 x 2048/128",
            ],
        )

    def test_part_that_hangs_is_stopped_and_the_rest_left_out(self):
        self.program("bin/rates", "exec sleep 60")
        status, text, result = self.measured("--seconds", "6")
        self.assertEqual(status, 1, text)
        self.assertIn("rates: was stopped after 6 s", result["faults"][0])
        self.assertEqual(len(result["left_out"]), 6)

    def test_card_without_products_has_steps_but_no_floors(self):
        rates = json.loads(RATES.read_text())
        del rates["products"]
        (self.folder / "rates.json").write_text(json.dumps(rates | {"products_left_out": ["no cuBLASLt"]}))
        self.program("bin/rates", f"cat {self.folder}/rates.json")
        _, text, result = self.measured()
        self.assertIn("no cuBLASLt", result["faults"][0])
        self.assertNotIn("floor_ms", result["steps"]["cells"][0])
        self.assertIn("decode        0       8    1024      5.000       4.000          -", text)

    def test_fault_of_transformers_is_in_the_result(self):
        (self.folder / "packages/torch/__init__.py").write_text("raise ImportError('no CUDA')")
        _, _, result = self.measured()
        self.assertIn("transformers: ImportError: no CUDA", result["faults"])

    def test_transformers_falls_back_to_its_own_attention(self):
        self.transformers("no flash attention")
        _, _, result = self.measured()
        self.assertEqual(result["transformers"]["attention"], "paged|sdpa")
        self.assertEqual(result["transformers"]["seconds"], 64.5)


@unittest.skipUnless(os.environ.get("TACTUS_EMULATED_CUDA"), "TACTUS_EMULATED_CUDA is not set")
class DryRunTest(PackedFolder):
    """measure.py with the real programs and a tiny model, on the emulated device."""

    def test_every_part_is_measured(self):
        self.card("echo Emulated, 1, 4 GiB")
        self.program("bin/rates", f"cat {RATES}")
        program = pathlib.Path(os.environ["TACTUS_PROGRAM"])
        programs = {"tactus": program, "tactus-tools": program.with_name("tactus-tools")}
        programs |= {name: os.environ[f"TACTUS_{name.upper()}"] for name in ("step_cells", "product_cells")}
        for name, file in programs.items():
            (self.folder / "bin" / name).symlink_to(file)
        (self.folder / "tiny").mkdir()
        (self.folder / "tiny/config.json").write_text(json.dumps(TINY))
        (self.folder / "commit").write_text("0123456789ab\n")
        self.environment = {"TACTUS_CUDA_LIBRARY": os.environ["TACTUS_EMULATED_CUDA"]}
        status, text, result = self.measured("--shrink", "64", "--model", "tiny", timeout=540)
        self.assertEqual((status, result["faults"], result["left_out"]), (0, [], []), text)
        self.check_head(result)
        self.check_steps(result["steps"])
        self.check_loads(result)
        self.check_products(result["products"])
        for log in (self.folder / "out/result.logs").iterdir():
            self.assertNotIn("emulated device:", log.read_text(), log.name)

    def check_head(self, result):
        self.assertRegex(result["date"], r"^20\d\d-\d\d-\d\d \d\d:\d\d UTC$")
        self.assertEqual(result["card"], "Emulated, 1, 4 GiB")
        self.assertEqual(result["commit"], "0123456789ab")
        self.assertEqual(result["command"], "scripts/gpu.sh measure out/result.json --shrink 64 --model tiny")
        self.assertEqual((result["read_bytes_per_s"], result["bf16_flop_per_s"]), (4551.5e9, 797.23e12))
        self.assertEqual(result["rates"]["card"], "NVIDIA H200")
        self.assertGreater(result["seconds"]["all"], result["seconds"]["steps"])

    def check_steps(self, steps):
        self.assertRegex(steps["device"], "[Ee]mulated")
        kinds = [(c["kind"], c["prompt"], c["decodes"], c["context"]) for c in steps["cells"]]
        self.assertEqual(kinds[:3], [("decode", 0, 1, 16), ("decode", 0, 2, 16), ("decode", 0, 4, 16)])
        self.assertEqual([k[1] for k in kinds if k[0] == "prefill"], [8, 16, 32, 64, 128])
        self.assertEqual({k[0] for k in kinds}, {"decode", "prefill", "hybrid"})
        model = floors.Model(TINY)
        for cell in steps["cells"]:
            self.assertGreater(cell["step_ms"], 0)
            self.assertAlmostEqual(cell["floor_ms"], model.floor_ms(cell, 4551.5e9, 797.23e12))
            self.assertAlmostEqual(cell["over_floor"], cell.get("chained_ms", cell["step_ms"]) / cell["floor_ms"])
            self.assertEqual("gap_us" in cell, cell["kind"] == "decode")

    def check_products(self, products):
        shapes = {(cell["product"], cell["rows"], cell["cols"]) for cell in products["cells"]}
        self.assertEqual(
            shapes,
            {
                ("qkv", 512, 64),
                ("attention_out", 64, 256),
                ("gate_up", 256, 64),
                ("down", 64, 128),
                ("lm_head", 320, 64),
            },
        )
        self.assertEqual(list(products["invariance_costs"]), ["1", "2", "4", "8", "32", "128"])

    def check_loads(self, result):
        self.assertEqual(
            [(load["streams"], load["prompt_tokens"], load["answer_tokens"]) for load in result["served"]],
            [(2, 16, 8), (1, 16, 8), (1, 16, 8), (1, 16, 4)],
        )
        for load in result["served"]:
            self.assertEqual(load["requests"]["failed"], 0)
            self.assertGreater(load["tpot_ms"]["mean"], 0)
            self.assertGreater(load["output_token_throughput"], 0)
        for load, count in zip(result["offline"], (4, 8), strict=True):
            self.assertEqual((load["requests"]["completed"], load["lines"]["out"]), (count, count))
            self.assertGreater(load["output_token_throughput"], 0)
        self.assertEqual(result["transformers"]["output_tokens"], 4)
        kept = {row["what"]: row["kept"] for row in result["aims"]}
        self.assertIn(kept["served over transformers, 64 of 1024/256"], (True, False))
        self.assertIn(kept["decode: the worst cell over its floor"], (True, False))
        self.assertIsNone(kept["served, 8 streams: mean time per token"])


class AimsTest(unittest.TestCase):
    RESULT = {
        "steps": {"cells": [
            {"kind": "decode", "step_ms": 5, "over_floor": 1.2, "gap_us": 21},
            {"kind": "decode", "step_ms": 5, "over_floor": 1.1, "gap_us": 3},
            {"kind": "prefill", "left_out": "no time was left"},
        ]},
        "served": [{"streams": 128, "prompt_tokens": 1024, "answer_tokens": 512, "tpot_ms": {"mean": 19.4},
                    "output_token_throughput": 6000}],
        "offline": [{"prompt_tokens": 1000, "output_token_throughput": 12600},
                    {"prompt_tokens": 2048, "output_token_throughput": 99}],
        "transformers": {"requests": 128, "prompt_tokens": 1024, "answer_tokens": 512, "output_tokens_per_s": 2000},
    }  # fmt: skip

    def test_each_aim_is_kept_missed_or_not_measured(self):
        kept = [(row["value"], row["kept"]) for row in aims.compare(self.RESULT)]
        self.assertEqual(kept, [(1.2, True), (None, None), (21, False), (None, None), (None, None), (19.4, False),
                                (12600, True), (3.0, True)])  # fmt: skip

    def test_table_says_so(self):
        text = aims.table(aims.compare(self.RESULT))
        self.assertIn("19.4 ms  at most 19.3    missed", text)
        self.assertIn("not measured  at most 7.4", text)


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
