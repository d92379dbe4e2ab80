"""`tactus models convert`: the command, its refusals, and what other readers of GGUF say of its files."""

import importlib.util
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
import unittest

from command_case import BINARY, ENVIRONMENT, TOKENIZER, Folder, tactus
from hub_cache_test import VOCABULARY, tiny_repository, tiny_shapes
from server_process import TINY_CONFIG

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["Hello world", " I'm 12345 years\n\n old", "na\u00efve \u4f60\u597d \U0001f600", "<|begin_of_text|>x"]
READ = """
import json, sys, gguf
reader = gguf.GGUFReader(sys.argv[1])
field = lambda name: reader.fields[name].contents()
tensors = {t.name: (t.tensor_type.name, [int(n) for n in t.shape]) for t in reader.tensors}
norm = next(t for t in reader.tensors if t.name == "blk.0.attn_norm.weight")
down = next(t for t in reader.tensors if t.name == "blk.0.ffn_down.weight")
values = gguf.quants.dequantize(down.data, down.tensor_type)
print(json.dumps({"architecture": field("general.architecture"), "tokens": len(field("tokenizer.ggml.tokens")),
    "pre": field("tokenizer.ggml.pre"), "file_type": field("general.file_type"), "tensors": tensors,
    "norm": [float(v) for v in norm.data], "down": [float(v) for v in values[0][:64]]}))
"""


def python_with_gguf():
    tools = ROOT / ".venv-tools/bin/python"
    if importlib.util.find_spec("gguf"):
        return sys.executable
    return str(tools) if tools.exists() else None


class ConvertTest(Folder):
    def setUp(self):
        super().setUp()
        repository = tiny_repository()
        for name, data in {**repository.small, **repository.large}.items():
            (self.model / name).write_bytes(data)

    def convert(self, source, target, *options, code=0):
        done = tactus("models", "convert", source, target, *options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def ids(self, model):
        return [json.loads(tactus("tokenize", model, text, "--json").stdout) for text in TEXTS]

    def test_a_pipe_gets_the_result_alone(self):
        done = tactus("models", "convert", self.model, self.folder / "m.gguf", "--quantization", "q8_0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\A\S+/m\.gguf: .* in [0-9.]+ s\n\Z")

    def test_both_directions_keep_tokens_and_templates(self):
        gguf, back = self.folder / "m.gguf", self.folder / "back"
        result = json.loads(self.convert(self.model, gguf, "--quantization", "q8_0", "--json"))
        self.assertEqual((result["path"], result["size_bytes"]), (str(gguf), gguf.stat().st_size))
        self.assertEqual(result["format"], "q8_0 (15), f32 (5)")
        self.assertIn("bf16", self.convert(gguf, back, "--quantization", "bf16"))
        for model in (gguf, back):
            self.assertEqual(self.ids(model), self.ids(self.model))
            inspected = tactus("models", "inspect", model, "--json")
            self.assertEqual(inspected.returncode, 0, inspected.stderr)
        self.assertEqual(
            (back / "chat_template.jinja").read_text(),
            json.loads((self.model / "tokenizer_config.json").read_text())["chat_template"],
        )
        self.assertEqual(sorted(os.listdir(self.folder)), ["back", "chat.jinja", "m.gguf", "tiny"])

    def test_a_folder_keeps_its_small_files(self):
        out = self.folder / "out"
        self.convert(self.model, out, "--quantization", "f16")
        self.assertEqual((out / "tokenizer.json").read_bytes(), TOKENIZER.read_bytes())
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config.pop("dtype"), "float16")
        self.assertEqual(config, json.loads((self.model / "config.json").read_text()))

    def test_a_folder_of_integers_loads(self):
        for quantization, layout in (("w8a16", "pack-quantized"), ("w8a8", "int-quantized")):
            out = self.folder / quantization
            result = json.loads(self.convert(self.model, out, "--quantization", quantization, "--json"))
            self.assertIn("i8_row (14)", result["format"])
            inspected = json.loads(tactus("models", "inspect", out, "--json").stdout)
            self.assertEqual((inspected["start"], inspected["quantization"]), ("ok", f"compressed-tensors, {layout}"))
            self.assertEqual(self.ids(out), self.ids(self.model))

    def test_bad_use_is_refused(self):
        gguf = self.folder / "m.gguf"
        for options, words in [
            ((self.model, gguf), ["--quantization", "q8_0", "q4_k"]),
            ((self.model, gguf, "--quantization", "q9"), ["'q9'", "f32, f16, bf16, q8_0"]),
            ((self.model, self.folder / "out", "--quantization", "q8_0"), ["safetensors", "f32, f16, bf16"]),
            ((self.model, self.model, "--quantization", "f16"), ["exists"]),
            ((self.model, self.model, "--quantization", "f16", "--overwrite"), ["IN and OUT are both"]),
            ((self.model / "config.json", self.model, "--quantization", "f16", "--overwrite"), ["inside of OUT"]),
            ((self.model, self.folder / "no/m.gguf", "--quantization", "f16"), ["does not exist"]),
            ((self.model,), ["OUT"]),
        ]:
            with self.subTest(options=options):
                error = (
                    self.convert(*options, code=2) if len(options) > 1 else tactus("models", "convert", *options).stderr
                )
                for word in words:
                    self.assertIn(word, error)
        self.assertIn("nosuch", self.convert("nosuch", gguf, "--quantization", "f16", code=1))
        self.assertFalse(gguf.exists())

    def test_ctrl_c_leaves_no_file(self):
        """A model that takes a while: one thread searches the scales of ten million weights."""
        config = dict(TINY_CONFIG, vocab_size=20_000, hidden_size=512)
        wide = self.folder / "wide"
        wide.mkdir()
        (wide / "config.json").write_text(json.dumps(config))
        repeated_safetensors(wide / "model.safetensors", tiny_shapes(config))
        out = self.folder / "wide.gguf"
        process = subprocess.Popen(
            [BINARY, "models", "convert", wide, out, "--quantization", "q4_k", "--threads", "1"],
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
        )
        self.addCleanup(process.kill)
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit and not list(self.folder.glob("wide.gguf.*.tmp")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("stopped", error)
        self.assertEqual(list(self.folder.glob("wide.gguf*")), [])

    @unittest.skipUnless(python_with_gguf(), "there is no Python with the package gguf (tools/requirements.txt)")
    def test_the_gguf_package_reads_the_file(self):
        def read(quantization):
            out = self.folder / f"{quantization}.gguf"
            self.convert(self.model, out, "--quantization", quantization)
            done = subprocess.run([python_with_gguf(), "-c", READ, out], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        plain = read("f32")
        self.assertEqual((plain["architecture"], plain["pre"]), ("llama", "llama-bpe"))
        self.assertEqual((plain["tokens"], plain["file_type"]), (VOCABULARY, 0))
        self.assertEqual(plain["norm"], [1.0] * TINY_CONFIG["hidden_size"])
        self.assertEqual(plain["tensors"]["token_embd.weight"], ["F32", [TINY_CONFIG["hidden_size"], VOCABULARY]])
        for quantization, tolerance in (("q8_0", 0.002), ("q5_1", 0.01), ("q4_0", 0.03)):
            quantised = read(quantization)
            self.assertEqual(quantised["tensors"]["blk.0.ffn_down.weight"][0], quantization.upper())
            for expected, value in zip(plain["down"], quantised["down"], strict=True):
                self.assertAlmostEqual(expected, value, delta=tolerance)


def repeated_safetensors(path, shapes):
    """A file of f32 tensors whose rows repeat a few random values."""
    chance, header, at = random.Random(3), {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    values = struct.pack("<1024f", *(chance.gauss(0, 0.05) for _ in range(1024)))
    path.write_bytes(len(text).to_bytes(8, "little") + text + (values * (at // 4096 + 1))[:at])


if __name__ == "__main__":
    unittest.main()
