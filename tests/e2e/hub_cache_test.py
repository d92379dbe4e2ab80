"""The cache of models by name: `models list` and `rm`; the commands that take such a name (docs/how-to/models.md)."""

import fcntl
import json
import os
import random
import signal
import struct
import unittest

from command_case import TOKENIZER
from fake_hub import COMMIT, Repository, sha256
from hub_case import NAME, HubCase, content, safetensors_repository
from server_process import CHAT_TEMPLATE, TINY_CONFIG, TakenPort

NEWER = "f" * 40
Q4, Q8 = "model-Q4_K_M.gguf", "model-Q8_0.gguf"
VOCABULARY = 640  # of the tokeniser of the tests, padded


def safetensors(tensors):
    """A file of f32 tensors with small random values: {name: shape}."""
    header, data, chance = {}, b"", random.Random(1)
    for name, shape in tensors.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [chance.gauss(0, 0.05) for _ in range(count)]
        packed = struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tiny_shapes(config):
    """The tensors of a Llama with this configuration, whose output matrix is the embedding."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {at + name + ".weight": [hidden] for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {at + f"self_attn.{name}_proj.weight": [hidden, hidden] for name in "qo"}
        shapes |= {at + f"self_attn.{name}_proj.weight": [kv, hidden] for name in "kv"}
        shapes |= {at + f"mlp.{name}_proj.weight": [inner, hidden] for name in ("gate", "up")}
        shapes |= {at + "mlp.down_proj.weight": [hidden, inner]}
    return shapes


def tiny_repository(architecture="LlamaForCausalLM"):
    """A Llama of two layers with random weights in two files, and a real tokeniser."""
    config = dict(TINY_CONFIG, vocab_size=VOCABULARY, architectures=[architecture])
    shapes = tiny_shapes(config)
    parts = {
        f"model-0000{i + 1}-of-00002.safetensors": {
            name: shape for name, shape in shapes.items() if ("layers.1" in name) == (i == 1)
        }
        for i in (0, 1)
    }
    index = {"metadata": {}, "weight_map": {name: file for file, names in parts.items() for name in names}}
    config["model_type"] = "llama" if architecture == "LlamaForCausalLM" else "unknown"
    return Repository(
        small={
            "config.json": json.dumps(config).encode(),
            "tokenizer_config.json": json.dumps({"chat_template": CHAT_TEMPLATE}).encode(),
            "model.safetensors.index.json": json.dumps(index).encode(),
        },
        large={
            "tokenizer.json": TOKENIZER.read_bytes(),
            **{name: safetensors(tensors) for name, tensors in parts.items()},
        },
    )


class ListTest(HubCase):
    def listed(self, **environment):
        done = self.tactus("models", "list", "--json", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {m.pop("name"): m for m in json.loads(done.stdout)["models"]}

    def remove(self, name, code=0):
        done = self.tactus("models", "rm", name)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_list_shows_revision_format_size_and_last_use(self):
        self.hub.repositories["org/m"] = repository = safetensors_repository()
        for name in (f"hf:{NAME}:Q4_K_M", f"hf:{NAME}:Q8_0", "hf:org/m"):
            self.pull(name)
        used = self.cache / "models--org--model-GGUF/blobs" / sha256(self.hub.repositories[NAME].large[Q8])
        os.utime(used, (1_700_000_000, 1_700_000_000))
        listed = self.listed()
        self.assertEqual(list(listed), ["hf:org/m", f"hf:{NAME}:Q4_K_M", f"hf:{NAME}:Q8_0"])
        self.assertEqual(
            listed[f"hf:{NAME}:Q8_0"],
            {
                "path": str(self.snapshot() / Q8),
                "default": False,
                "revision": COMMIT,
                "format": "gguf",
                "size_bytes": 3005,
                "last_used": 1_700_000_000,
            },
        )
        left_out = {"README.md", "figures/plot.json", "consolidated.safetensors", "pytorch_model.bin"}
        size = sum(len(repository.content(p)) for p in {**repository.small, **repository.large}.keys() - left_out)
        self.assertEqual((listed["hf:org/m"]["format"], listed["hf:org/m"]["size_bytes"]), ("safetensors", size))
        text = self.tactus("models", "list").stdout
        self.assertRegex(text, rf"hf:{NAME}:Q8_0 +{COMMIT[:12]} +gguf +3.0 kB +2023-11-14 +/")

    def test_list_shows_what_is_not_complete(self):
        self.hub.repositories["org/m"] = safetensors_repository()
        (self.pull("hf:org/m") / "model-00002-of-00002.safetensors").unlink()
        folder = self.cache / "models--a--b/snapshots" / COMMIT
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("x")
        (self.cache / "datasets--a--c/snapshots").mkdir(parents=True)
        self.assertEqual(
            {n: m["format"] for n, m in self.listed().items()}, {f"hf:a/b@{COMMIT}": "other", "hf:org/m": "incomplete"}
        )
        self.fails("hf:org/m", says=["model-00002-of-00002.safetensors is missing"], HF_HUB_OFFLINE=1)
        self.pull("hf:org/m")
        self.assertEqual(self.listed()["hf:org/m"]["format"], "safetensors")

    def test_rm_removes_a_model_and_only_its_contents(self):
        self.pull(f"hf:{NAME}:Q4_K_M")
        self.pull(f"hf:{NAME}:Q8_0")
        self.assertIn("freed", self.remove(f"hf:{NAME}:Q4_K_M"))
        self.assertEqual(self.files(), [Q8])
        self.assertEqual(self.blobs(), [sha256(self.hub.repositories[NAME].large[Q8])])
        self.assertIn("'Q4_K_M'", self.remove(f"hf:{NAME}:Q4_K_M", code=1))
        self.remove(f"hf:{NAME}:Q8_0")
        self.assertFalse(self.repository_folder().exists())
        self.assertEqual(list((self.cache / ".locks").iterdir()), [])
        self.assertIn("not in the cache", self.remove(f"hf:{NAME}", code=1))
        self.assertIn("there is no model 'nosuch'", self.remove("nosuch", code=1))

    def test_contents_that_another_revision_uses_stay(self):
        repository = self.hub.repositories[NAME]
        self.pull(f"hf:{NAME}@v1.0:Q4_K_M")
        self.pull(f"hf:{NAME}@v1.0:Q8_0")
        repository.commit, repository.large[Q8] = NEWER, content("new", 3005)
        self.pull(f"hf:{NAME}:Q4_K_M")
        self.pull(f"hf:{NAME}:Q8_0")
        self.assertEqual(len(self.listed()), 4)
        self.remove(f"hf:{NAME}@v1.0")
        self.assertEqual(list(self.listed()), [f"hf:{NAME}:Q4_K_M", f"hf:{NAME}:Q8_0"])
        self.assertEqual(self.blobs(), sorted(sha256(repository.large[q]) for q in (Q4, Q8)))
        self.assertFalse((self.repository_folder() / "refs/v1.0").exists())

    def test_rm_refuses_while_another_process_downloads(self):
        self.pull(f"hf:{NAME}:Q4_K_M")
        lock = self.cache / ".locks/models--org--model-GGUF" / (self.blobs()[0] + ".lock")
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as huggingface_hub takes it
            self.assertIn("downloaded by another process", self.remove(f"hf:{NAME}", code=1))
        self.remove(f"hf:{NAME}")

    def test_rm_removes_models_of_the_catalogue(self):
        mine = self.folder / "tactus/models/mine"
        mine.mkdir(parents=True)
        (mine / "config.json").write_text("{}")
        other = self.folder / "tactus/models/other"
        other.mkdir()
        (other / "m.gguf").write_bytes(b"GGUF")
        self.assertEqual(list(self.listed()), ["mine", "other"])
        self.remove("mine")
        self.remove("other")
        self.assertEqual(list((self.folder / "tactus/models").iterdir()), [])


class CommandsTest(HubCase):
    """Commands that take a model."""

    def setUp(self):
        super().setUp()
        self.hub.repositories["org/tiny"] = tiny_repository()

    def run_it(self, name, **environment):
        return self.tactus(
            "run", name, "-p", "Hi", "--max-tokens", 3, "--kv-cache-memory", "64MiB", "--threads", 1, **environment
        )

    def test_run_downloads_once_and_then_asks_no_hub(self):
        first = self.run_it("hf:org/tiny")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("hf:org/tiny: ", first.stderr)
        self.hub.forget()
        again = self.run_it("hf:org/tiny")
        self.assertEqual((again.returncode, self.hub.of("hub")), (0, []), again.stderr)
        self.assertNotIn("hf:org/tiny", again.stderr)
        with TakenPort(listening=False) as port:
            self.assertEqual(self.run_it("hf:org/tiny", HF_ENDPOINT=f"http://127.0.0.1:{port}").returncode, 0)

    def test_pull_finds_a_newer_version_and_run_uses_it(self):
        self.assertEqual(self.pull("hf:org/tiny"), self.snapshot("org/tiny"))
        self.hub.repositories["org/tiny"].commit = NEWER
        self.assertIn(COMMIT, self.tactus("models", "inspect", "hf:org/tiny", "--json").stdout)
        self.hub.forget()
        self.assertEqual(self.pull("hf:org/tiny"), self.snapshot("org/tiny", NEWER))
        self.assertEqual(self.hub.of("other"), [])  # the contents are the same
        self.assertIn(NEWER, self.tactus("models", "inspect", "hf:org/tiny", "--json").stdout)

    def test_tokenize_and_template_take_such_names(self):
        done = self.tactus("tokenize", "hf:org/tiny", "Hello", "--json")
        self.assertGreater(json.loads(done.stdout)["count"], 0)
        done = self.tactus("template", "hf:org/tiny", "--source", "--messages", os.devnull)
        self.assertEqual(done.stdout.strip(), CHAT_TEMPLATE.strip())

    def test_a_model_that_cannot_be_loaded_is_refused_before_its_weights_come(self):
        self.hub.repositories["org/odd"] = tiny_repository("OddForCausalLM")
        done = self.run_it("hf:org/odd")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("OddForCausalLM", done.stderr)
        self.assertNotIn("model-00001-of-00002.safetensors", self.files("org/odd"))
        done = self.tactus("pull", "hf:org/odd")
        self.assertEqual(done.returncode, 0)
        self.assertIn("warning: Tactus cannot load this model", done.stderr)

    def test_serve_names_the_model_as_its_repository(self):
        process = self.start("serve", "hf:org/tiny", "--port", 0, "--kv-cache-memory", "64MiB", "--threads", 1)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("ready: "):
                break
        self.assertRegex(lines[-1], r"^ready: org/tiny on http", lines)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_serve_reports_a_failed_download_and_not_the_port(self):
        with TakenPort(listening=False) as port:
            done = self.tactus("serve", "hf:org/tiny", "--port", 0, HF_ENDPOINT=f"http://127.0.0.1:{port}")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("cannot be reached"), 1, done.stderr)
        with TakenPort() as port:
            done = self.tactus("serve", "hf:org/tiny", "--port", port)
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(port), done.stderr)
        self.assertEqual(self.hub.of("hub"), [])

    def test_a_name_that_is_nothing_is_reported_with_what_is_known(self):
        done = self.run_it("nosuch")
        self.assertEqual(done.returncode, 1)
        self.assertIn("hf:org/name", done.stderr)
        done = self.run_it("org/none")
        self.assertIn("would be hf:org/none", done.stderr)
        self.assertEqual(self.hub.of("hub"), [])


if __name__ == "__main__":
    unittest.main()
