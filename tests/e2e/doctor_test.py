"""`tactus doctor`: its JSON object against the documented one, findings of forced choices, and its errors."""

import json
import signal
import socket
import subprocess
import unittest

from command_case import BINARY, ENVIRONMENT, Folder, tactus
from server_process import wait_until

LIMIT_S = 240
NUMBER, TEXT = (int, float), str


def either(kind):
    return (*kind, type(None)) if isinstance(kind, tuple) else (kind, type(None))


RATES = {f"{name}_per_s": either(NUMBER) for name in ("read_bytes", "int8_ops", "bf16_ops", "f32_ops")}
FINDING = {"what": TEXT, "value": TEXT, "limit": TEXT, "advice": TEXT}
STEP = {
    "decodes": int,
    "context": int,
    "prompt_tokens": int,
    "step_ms": NUMBER,
    "memory_floor_ms": either(NUMBER),
    "arithmetic_floor_ms": either(NUMBER),
    "fits_cache": bool,
    "share": either(NUMBER),
}
# docs/reference/doctor.md
SCHEMA = {
    "version": TEXT,
    "build": TEXT,
    "machine": {
        "processor": either(TEXT),
        "virtual_machine": bool,
        "kernel_release": either(TEXT),
        "online_cpus": either(int),
        "cpus": either(int),
        "cores": either(int),
        "quota_cpus": either(NUMBER),
        "governor": either(TEXT),
        "mhz": either(int),
        "highest_mhz": either(int),
        "last_level_cache_bytes": either(int),
        "numa_nodes": [{"cpus": int, "memory_bytes": int}],
        "memory_bytes": either(int),
        "available_bytes": either(int),
        "swap_bytes": int,
        "swap_used_bytes": int,
        "transparent_huge_pages": either(TEXT),
        "huge_page_defrag": either(TEXT),
    },
    "choice": {
        "kernels": TEXT,
        "kernels_why": TEXT,
        "runnable_kernels": [TEXT],
        "threads": int,
        "threads_why": TEXT,
        "huge_pages": bool,
        "pages_why": TEXT,
    },
    "one_thread": RATES,
    "all_threads": RATES,
    "neighbours": {
        "other_cpus": NUMBER,
        "stolen_share": NUMBER,
        "throttled_share": NUMBER,
        "involuntary_switches_per_s": NUMBER,
        "swapped_pages": int,
    },
    "findings": [FINDING],
}
MODEL = {
    "architecture": TEXT,
    "parameters": int,
    "weights": TEXT,
    "arithmetic": TEXT,
    "threads": int,
    "resident_bytes": either(int),
    "huge_page_bytes": either(int),
    "steps": [STEP],
}


class DoctorTest(Folder):
    def check(self, value, schema, place="the object"):
        if isinstance(schema, dict):
            self.assertIsInstance(value, dict, place)
            self.assertEqual(sorted(value), sorted(schema), place)
            for key, kind in schema.items():
                self.check(value[key], kind, f"{place}, {key}")
        elif isinstance(schema, list):
            self.assertIsInstance(value, list, place)
            for i, item in enumerate(value):
                self.check(item, schema[0], f"{place}, {i}")
        else:
            self.assertIsInstance(value, schema, place)

    def test_a_model_is_measured_and_the_object_is_as_documented(self):
        out = self.folder / "doctor.json"
        done = tactus(
            *("doctor", "--model", self.model, "--load-format", "dummy", "--kv-cache-memory", "64MiB"),
            *("--threads", "1", "--kernels", "scalar", "--json", "-o", out),
            timeout=LIMIT_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "", "progress is for terminals alone")
        result = json.loads(done.stdout)
        self.assertEqual(json.loads(out.read_text()), result, "-o writes the same object")
        self.check(result, {**SCHEMA, "model": MODEL})
        for private in (socket.gethostname(), str(self.folder), self.model.name, "/home/"):
            self.assertNotIn(private, done.stdout)

        steps = result["model"]["steps"]
        self.assertEqual([step["decodes"] for step in steps], [1, 16, 0])
        self.assertEqual([step["prompt_tokens"] > 0 for step in steps], [False, False, True])
        for step in steps:
            self.assertGreater(step["step_ms"], 0)
            self.assertGreater(step["memory_floor_ms"], 0)
            self.assertGreater(step["arithmetic_floor_ms"], 0)
        self.assertGreaterEqual(
            steps[1]["arithmetic_floor_ms"],
            15 * steps[0]["arithmetic_floor_ms"],
            "16 sequences have 16 times the products",
        )
        for rates in (result["one_thread"], result["all_threads"]):
            self.assertGreater(rates["read_bytes_per_s"], 0)
            self.assertGreater(rates["f32_ops_per_s"], 0)

        self.assertEqual(result["choice"]["kernels"], "scalar")
        self.assertEqual(result["choice"]["threads"], 1)
        found = {finding["what"]: finding for finding in result["findings"]}
        if result["choice"]["runnable_kernels"][-1] != "scalar":
            self.assertIn("scalar, by --kernels", found["kernel set"]["value"])

    def test_the_machine_alone_is_described_in_words(self):
        done = tactus("doctor", timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        begins = [line.split()[0] for line in lines[:7]]
        self.assertEqual(begins, ["processor", "CPUs", "kernels", "threads", "pages", "memory", "neighbours"])
        self.assertNotIn("Model:", done.stdout)
        self.assertTrue(
            "Nothing found that costs speed." in lines or "What costs speed:" in lines, "the findings: " + done.stdout
        )

    def test_doctor_reports_what_a_start_chooses(self):
        machine = json.loads(tactus("doctor", "--json", timeout=LIMIT_S).stdout)
        done = tactus("run", *self.dummy, "-p", "x", "--raw", "--max-tokens", "1", "--verbose", timeout=LIMIT_S)
        choice = machine["choice"]
        self.assertIn(
            f"kernels {choice['kernels']}, {choice['threads']} threads ({choice['threads_why']})", done.stderr
        )

    def test_wrong_usage_and_models_that_cannot_be_loaded_are_refused_before_anything_is_measured(self):
        for args, status, expected in [
            (["--josn"], 2, "did you mean --json?"),
            (["some-model"], 2, "unexpected argument 'some-model'"),
            (["--device", "cuda"], 2, "doctor measures CPUs alone"),
            (["--kernels", "nosuch"], 2, "--kernels"),
            (["--json", "-o", self.template / "file"], 1, "--output"),
            (["--model", self.folder / "nothing"], 1, str(self.folder / "nothing")),
            (["--model", self.model, "--load-format", "dummy", "--kv-cache-memory", "1"], 2, "--kv-cache-memory"),
        ]:
            with self.subTest(args=args):
                done = tactus("doctor", *args)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertTrue(done.stderr.startswith("tactus doctor: "), done.stderr)
                self.assertEqual(done.stdout, "")

    def test_ctrl_c_ends_it_with_a_line_and_without_a_result(self):
        process = subprocess.Popen(
            [BINARY, "doctor", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        self.addCleanup(process.kill)
        # Handlers are there once the measurement's buffer is: more than a program without one has.
        wait_until(lambda: _mapped_mib(process.pid) > 60 or process.poll() is not None, "the start", LIMIT_S)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("tactus doctor: stopped by Ctrl-C", stderr)
        self.assertEqual(stdout, "")


def _mapped_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) >> 10
    return 0


if __name__ == "__main__":
    unittest.main()
