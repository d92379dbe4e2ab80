"""Shared by the tests of models by name: a fake hub, an empty cache, and the program as scripts call it."""

import json
import pathlib
import random
import subprocess
import tempfile
import unittest

from command_case import BINARY, ENVIRONMENT
from fake_hub import COMMIT, FakeHub, Repository
from server_process import TINY_CONFIG

MIB = 1 << 20
NAME = "org/model-GGUF"
SETTINGS = ("HF_", "HUGGING", "TRANSFORMERS_", "SSL_CERT", "REQUESTS_CA", "CURL_CA")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def content(name, size):
    return random.Random(name).randbytes(size)


def gguf_repository(size=3000):
    """Two quantisations and files that are no models."""
    return Repository(
        small={"README.md": b"# model\n", "config.json": b"{}"},
        large={
            "model-Q4_K_M.gguf": content("Q4", size),
            "model-Q8_0.gguf": content("Q8", size + 5),
            "mmproj-model-f16.gguf": content("mm", 100),
        },
    )


def safetensors_repository(weights=None):
    weights = weights or {f"model-0000{i}-of-00002.safetensors": content(f"w{i}", 5000 + i) for i in (1, 2)}
    index = {"metadata": {}, "weight_map": {f"tensor.{i}": name for i, name in enumerate(sorted(weights))}}
    return Repository(
        small={
            "config.json": json.dumps(TINY_CONFIG).encode(),
            "generation_config.json": b"{}",
            "tokenizer_config.json": b"{}",
            "chat_template.jinja": b"{{ messages }}",
            "model.safetensors.index.json": json.dumps(index).encode(),
            "README.md": b"x",
            "figures/plot.json": b"{}",
        },
        large={
            **weights,
            "tokenizer.json": b'{"model": {}}' + b" " * 2000,
            "consolidated.safetensors": content("c", 9000),
            "pytorch_model.bin": content("p", 9000),
        },
    )


class HubCase(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.home = self.folder / "hf"
        self.cache = self.home / "hub"
        self.hub = self.new_hub()
        self.hub.repositories[NAME] = gguf_repository()

    def new_hub(self, **options):
        hub = FakeHub(**options)
        self.addCleanup(hub.close)
        return hub

    def environment(self, **more):
        kept = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(SETTINGS) and k not in PROXIES}
        own = {"HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.url, "TACTUS_CACHE_DIR": str(self.folder / "tactus")}
        return {**kept, **own, **{k: str(v) for k, v in more.items()}}

    def start(self, *args, under=(), **environment):
        process = subprocess.Popen(
            [*under, BINARY, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**environment),
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def tactus(self, *args, under=(), **environment):
        return subprocess.run(
            [*under, BINARY, *map(str, args)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment(**environment),
        )

    def pull(self, *args, **options):
        """The path of a successful pull."""
        done = self.tactus("pull", *args, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(done.stdout.strip())

    def fails(self, *args, says, code=1, **options):
        done = self.tactus("pull", *args, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        for text in says:
            self.assertIn(text, done.stderr)
        return done.stderr

    def repository_folder(self, name=NAME):
        return self.cache / ("models--" + name.replace("/", "--"))

    def snapshot(self, name=NAME, commit=COMMIT):
        return self.repository_folder(name) / "snapshots" / commit

    def files(self, name=NAME, commit=COMMIT):
        folder = self.snapshot(name, commit)
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())

    def blobs(self, name=NAME):
        return sorted(p.name for p in (self.repository_folder(name) / "blobs").glob("*"))
