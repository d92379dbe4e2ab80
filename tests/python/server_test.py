"""The package and the server give the same answers: for the same request and seed the same text, logprobs and finish
reasons. Uses the default model if it exists."""

import json
import unittest
import urllib.request

import tactus
from server_process import ServerProcess, default_model
from tactus import SamplingParams
from tiny_model import TinyModel


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        model, options = default_model(), {}
        if model is None:
            model, options = (
                str(cls.tiny.path),
                {name: cls.tiny.options[name] for name in ("load_format", "chat_template")},
            )
        flags = [text for name, value in options.items() for text in ("--" + name.replace("_", "-"), value)]
        cls.server = ServerProcess("--tbt-slo", "none", *flags, model=model)
        cls.llm = tactus.LLM(model, kv_cache_memory="256MiB", **options)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()
        status = cls.server.stop()
        assert status == 0, f"exit status {status}" + cls.server.last_lines()
        cls.tiny.close()

    def post(self, path, **body):
        request = urllib.request.Request(
            self.server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    FIELDS = [
        {"temperature": 0, "max_tokens": 24},
        {"seed": 11, "max_tokens": 24, "n": 2, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
        {
            "seed": 12,
            "max_tokens": 16,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.5,
            "repetition_penalty": 1.1,
            "ignore_eos": True,
        },
        {"temperature": 0, "max_tokens": 40, "stop": ["e", "\n"], "logit_bias": {"5": -100}},
        {"seed": 13, "max_tokens": 8, "min_tokens": 4, "stop_token_ids": [3, 4, 5]},
    ]

    def test_completions(self):
        for prompt in ("The capital of France is", [5, 6, 7, 8]):
            for fields in self.FIELDS:
                with self.subTest(prompt=prompt, fields=fields):
                    theirs = self.post("/v1/completions", prompt=prompt, logprobs=2, **fields)
                    fields = (
                        dict(fields, logit_bias={int(k): v for k, v in fields["logit_bias"].items()})
                        if "logit_bias" in fields
                        else fields
                    )
                    (ours,) = self.llm.generate([prompt], SamplingParams(logprobs=2, **fields), use_tqdm=False)
                    self.assertEqual([c.text for c in ours.outputs], [c["text"] for c in theirs["choices"]])
                    self.assertEqual(
                        [c.finish_reason for c in ours.outputs], [c["finish_reason"] for c in theirs["choices"]]
                    )
                    self.assertEqual(len(ours.prompt_token_ids), theirs["usage"]["prompt_tokens"])
                    self.assertEqual(sum(len(c.token_ids) for c in ours.outputs), theirs["usage"]["completion_tokens"])
                    for mine, other in zip(ours.outputs, theirs["choices"]):
                        self.assertEqual(
                            [round(row[t].logprob, 4) for t, row in zip(mine.token_ids, mine.logprobs)],
                            [round(value, 4) for value in other["logprobs"]["token_logprobs"]],
                        )

    def test_chats(self):
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is the capital of France?"},
        ]
        for fields in self.FIELDS[:4]:
            with self.subTest(fields=fields):
                theirs = self.post("/v1/chat/completions", messages=messages, **fields)
                fields = (
                    dict(fields, logit_bias={int(k): v for k, v in fields["logit_bias"].items()})
                    if "logit_bias" in fields
                    else fields
                )
                (ours,) = self.llm.chat(messages, SamplingParams(**fields), use_tqdm=False)
                self.assertEqual([c.text for c in ours.outputs], [c["message"]["content"] for c in theirs["choices"]])
                self.assertEqual(
                    [c.finish_reason for c in ours.outputs], [c["finish_reason"] for c in theirs["choices"]]
                )
                streamed = [""] * len(ours.outputs)
                for piece in self.llm.stream_chat(messages, SamplingParams(**fields)):
                    streamed[piece.index] += piece.text
                self.assertEqual(streamed, [c.text for c in ours.outputs])

    def test_tokens(self):
        text = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 12345 🚀"
        self.assertEqual(self.llm.encode(text), self.post("/tokenize", prompt=text)["tokens"])


if __name__ == "__main__":
    unittest.main()
