"""Sampling and ends of answers: values of requests, flags and the model's files, and their precedence."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from gguf_edit import edit_gguf
from server_process import TINY_CONFIG, ServerProcess, default_model

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
QUESTION = "What is the capital of France?"
EOS = 2  # of the default model, and of the tiny one
U32, I32, F32 = (
    (lambda n: (4, struct.pack("<I", n))),
    (lambda n: (5, struct.pack("<i", n))),
    (lambda x: (6, struct.pack("<f", x))),
)


def tactus(*args):
    return subprocess.run(
        [BINARY, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=240,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
    )


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


class MinTokensTest(unittest.TestCase):
    """N tokens before the end: by ids, by bias, in every choice, with speculation and grammars."""

    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--speculation", "ngram")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.last_lines()

    def complete(self, **fields):
        return post(
            self.server,
            "/v1/completions",
            {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 16, **fields},
        )

    def test_the_end_comes_right_behind_them(self):
        for least in (0, 1, 4, 15):
            answer = self.complete(min_tokens=least, logit_bias={str(EOS): 100})
            self.assertEqual(
                (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]),
                (least + 1, "stop"),
                answer,
            )
        answer = self.complete(min_tokens=16, logit_bias={str(EOS): 100})
        self.assertEqual(
            (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (16, "length"), answer
        )

    def test_stop_ids_of_the_request_are_held_off_too(self):
        answer = self.complete(min_tokens=5, stop_token_ids=[100], logit_bias={"100": 100})
        self.assertEqual(
            (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (6, "stop"), answer
        )

    def test_every_choice_counts_separately(self):
        answer = self.complete(min_tokens=6, n=3, temperature=1, seed=5, logit_bias={str(EOS): 100})
        self.assertEqual(answer["usage"]["completion_tokens"], 21, answer)
        self.assertEqual(len({choice["text"] for choice in answer["choices"]}), 3, "they are sampled")

    def test_a_complete_grammar_ends_the_answer(self):
        try:
            answer = self.complete(min_tokens=12, guided_choice=["a"])
        except urllib.error.HTTPError as error:
            why = error.read().decode()
            if "get_llguidance" not in why:
                raise
            self.skipTest(why)
        self.assertEqual((answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]), ("a", "stop"), answer)
        answer = self.complete(min_tokens=6, guided_regex="[ab]{1,9}", logit_bias={str(EOS): 100})
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop", answer)
        self.assertEqual(answer["usage"]["completion_tokens"], 7, answer)

    @unittest.skipUnless(default_model(), "a model that ends by itself")
    def test_a_chat_says_more_than_its_end(self):
        answer = post(
            self.server,
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": QUESTION + " Answer in one word."}],
                "temperature": 0,
                "max_tokens": 60,
                "min_tokens": 40,
            },
        )
        self.assertGreaterEqual(
            answer["usage"]["completion_tokens"], 41 if answer["choices"][0]["finish_reason"] == "stop" else 60
        )
        self.assertGreater(len(answer["choices"][0]["message"]["content"]), 80, "text, and no run of ends")


class DefaultsTest(unittest.TestCase):
    def answers(self, server, **fields):
        body = {"prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True, **fields}
        return {post(server, "/v1/completions", body)["choices"][0]["text"] for _ in range(4)}

    def test_a_flag_is_the_default_of_requests(self):
        server = ServerProcess("--verbose", "--temperature", "0", "--top-k", "7")
        self.addCleanup(server.stop)
        self.assertIn(
            "default sampling of requests: temperature 0 (by flag), top_p 0.95 (built in), top_k 7 (by flag),"
            " min_p 0.05 (built in)\n",
            server.lines,
        )
        self.assertEqual(len(self.answers(server)), 1, "greedy")
        self.assertGreater(
            len(self.answers(server, temperature=2, top_k=0, top_p=1, min_p=0)), 1, "the request's own temperature"
        )
        echoed = post(server, "/v1/responses", {"input": "a", "max_output_tokens": 2})
        self.assertEqual((echoed["temperature"], round(echoed["top_p"], 6)), (0, 0.95))

    def test_without_any_flag_answers_differ(self):
        server = ServerProcess("--verbose", real_model=False)
        self.addCleanup(server.stop)
        self.assertIn(
            "default sampling of requests: temperature 0.8, top_p 0.95, top_k 40, min_p 0.05 (built in)\n",
            server.lines,
        )
        self.assertGreater(len(self.answers(server)), 1)

    @unittest.skipUnless(default_model(), "a model that knows Paris")
    def test_the_readmes_question_has_its_answer_without_any_setting(self):
        readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
        question = re.search(r'tactus run -p "([^"]+)"', readme).group(1)
        server = ServerProcess()
        self.addCleanup(server.stop)
        answers = [
            post(
                server,
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": question}], "seed": seed, "max_tokens": 60},
            )["choices"][0]["message"]["content"]
            for seed in range(1, 7)
        ]
        self.assertGreaterEqual(sum("Paris" in answer for answer in answers), 5, answers)

    def test_values_out_of_range_are_refused_by_their_flag(self):
        for flag, value in [
            ("temperature", "2.5"),
            ("top-p", "0"),
            ("top-k", "-2"),
            ("min-p", "1.5"),
            ("repetition-penalty", "0"),
            ("presence-penalty", "3"),
            ("frequency-penalty", "-3"),
        ]:
            for command in (["serve"], ["run", "-p", "x"], ["batch", "in", "-o", "out"]):
                done = tactus(*command, f"--{flag}", value)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"--{flag}: {value} is out of range", done.stderr)

    def test_a_folder_and_the_flags_over_it_in_inspect(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "vocab_size": 512,
                "tie_word_embeddings": True,
            }
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            pathlib.Path(folder, "generation_config.json").write_text(
                json.dumps({"do_sample": True, "temperature": 0.6, "top_k": -1, "top_p": None})
            )
            told = json.loads(tactus("models", "inspect", folder, "--json", "--min-p", "0.25").stdout)
            self.assertEqual(told["generation_defaults"], {"temperature": 0.6, "top_k": 0})
            self.assertEqual(
                {k: round(v, 6) for k, v in told["sampling"].items()},
                {
                    "temperature": 0.6,
                    "top_p": 0.95,
                    "top_k": 0,
                    "min_p": 0.25,
                    "repetition_penalty": 1,
                    "presence_penalty": 0,
                    "frequency_penalty": 0,
                },
            )
            self.assertIn(
                "temperature 0.6 (generation_config.json), top_p 0.95 (built in), top_k 0 (generation_config.json),"
                " min_p 0.05 (built in)",
                tactus("models", "inspect", folder).stdout,
            )


class ContextTest(unittest.TestCase):
    def test_a_context_cut_by_memory_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(dict(TINY_CONFIG, max_position_embeddings=65536)))
            for args, told in ((["1MiB"], True), (["1MiB", "--max-model-len", "1024"], False), (["64MiB"], False)):
                done = tactus(
                    "run",
                    folder,
                    "--load-format",
                    "dummy",
                    "--raw",
                    "-p",
                    "x",
                    "--max-tokens",
                    "1",
                    "--kv-cache-memory",
                    *args,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual("warning: the context is " in done.stderr, told, done.stderr)
                if told:
                    self.assertRegex(
                        done.stderr,
                        r"the context is \d+ tokens \(prompt and answer together\) instead of the model's 65536: \S+"
                        r" MiB of KV hold "
                        r"no more; --kv-cache-memory \d+MiB holds all of it, --max-model-len \d+ accepts this",
                    )


@unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL names no model whose file could be changed")
class FilesTest(unittest.TestCase):
    """The default model's file with wrong metadata."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.file = pathlib.Path(temporary.name) / "changed.gguf"

    def edit(self, changes=None, drop=()):
        edit_gguf(default_model(), self.file, changes, drop)
        return self.file

    def ask(self, *args):
        return tactus("run", self.file, "-p", QUESTION, "--max-tokens", "80", *args)

    def test_an_answer_ends_with_its_turn_whatever_the_file_calls_its_end(self):
        whole = tactus("run", default_model(), "-p", QUESTION, "--max-tokens", "80", "--temperature", "0")
        self.assertNotIn("warning", whole.stderr)
        for name, changes, drop in (
            ("another control token", {"tokenizer.ggml.eos_token_id": U32(0)}, ()),
            ("none", None, ("tokenizer.ggml.eos_token_id",)),
            ("no token", {"tokenizer.ggml.eos_token_id": U32(0xFFFFFFFF)}, ()),
        ):
            with self.subTest(name):
                self.edit(changes, drop)
                done = self.ask("--temperature", "0")
                self.assertEqual((done.returncode, done.stdout), (0, whole.stdout), done.stderr)
                self.assertRegex(
                    done.stderr,
                    r"warning: the model's files state that .* its chat template ends an answer with token 2"
                    r" '<\|im_end\|>'",
                )
                told = json.loads(tactus("models", "inspect", self.file, "--json").stdout)
                self.assertIn({"id": 2, "text": "<|im_end|>", "source": "chat template"}, told["ends"])
                self.assertIn(2, told["stop_ids"])
                self.assertEqual(len(told["warnings"]), 1)
        self.edit({"tokenizer.ggml.eos_token_id": U32(0), "tokenizer.ggml.eot_token_id": U32(2)})
        done = self.ask("--temperature", "0")
        self.assertEqual(done.stdout, whole.stdout)
        self.assertNotIn("warning", done.stderr, "eot says so")

    def test_missing_arrays_are_refused_by_name(self):
        for key in ("merges", "token_type", "tokens", "model"):
            self.edit(drop=("tokenizer.ggml." + key,))
            for command in (("run", self.file, "-p", "x"), ("models", "inspect", self.file)):
                done = tactus(*command)
                self.assertNotEqual(done.returncode, 0, key)
                self.assertIn("tokenizer.ggml." + key, done.stderr)
                self.assertIn("missing", done.stderr)

    def test_a_missing_way_to_split_words_is_guessed_with_a_warning(self):
        self.edit(drop=("tokenizer.ggml.pre",))
        done = self.ask("--temperature", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: the file has no tokenizer.ggml.pre", done.stderr)

    def test_sampling_keys_are_defaults_below_flags(self):
        self.edit(
            {
                "general.sampling.temp": F32(0),
                "general.sampling.top_k": I32(20),
                "general.sampling.xtc_probability": F32(0.5),
            }
        )
        self.assertIn(
            "temperature 0 (general.sampling), top_p 0.95 (built in), top_k 20 (general.sampling)",
            tactus("models", "inspect", self.file).stdout,
        )
        first, second = self.ask("--seed", "1"), self.ask("--seed", "2")
        self.assertEqual(first.stdout, second.stdout, "greedy, as the file says")
        self.assertIn("warning: general.sampling.xtc_probability is 0.5", first.stderr)
        answers = {
            self.ask("--seed", str(seed), "--temperature", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0").stdout
            for seed in (1, 2)
        }
        self.assertEqual(len(answers), 2, "sampled, as the flags say")


if __name__ == "__main__":
    unittest.main()
