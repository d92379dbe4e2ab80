"""The official OpenAI client against the real server."""

import asyncio
import json
import re
import unittest
import urllib.error
import urllib.request

import openai
from server_process import ServerProcess, TakenPort, wait_until

MODEL = "test-model"
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "What is two plus two?",
    "Write a line about rain.",
    "Who was Ada Lovelace?",
    "Translate 'good morning' to French.",
    "Why is the sky blue?",
    "Give me a word that rhymes with cat.",
]


def setUpModule():
    global server, client
    server = ServerProcess()
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def tearDownModule():
    client.close()
    status = server.stop()
    assert status == 0, f"exit status {status}:\n" + "".join(server.lines)


def ask(question, **options):
    options.setdefault("max_tokens", 24)
    options.setdefault("temperature", 0)
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": question}], **options)


def fetch(request):
    return urllib.request.urlopen(request, timeout=60)


def metric(name, of=None):
    with fetch((of or server).url + "/metrics") as answer:
        text = answer.read().decode()
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(map(float, values))


class ChatTest(unittest.TestCase):
    def test_answers(self):
        answer = ask(QUESTIONS[0])
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, MODEL)
        choice = answer.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        if server.real:
            self.assertEqual(choice.message.content, "The capital of France is Paris.")
            self.assertEqual(choice.finish_reason, "stop")

    def test_stream_is_the_same_text(self):
        whole = ask(QUESTIONS[3])
        chunks = list(ask(QUESTIONS[3], stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        deltas = [c.choices[0] for c in chunks[:-1]]
        self.assertEqual("".join(d.delta.content or "" for d in deltas), whole.choices[0].message.content)
        self.assertEqual([d.finish_reason for d in deltas if d.finish_reason], [whole.choices[0].finish_reason])
        self.assertIsNotNone(deltas[-1].finish_reason)

    def test_eight_conversations_at_once(self):
        alone = [ask(q).choices[0].message.content for q in QUESTIONS]

        async def stream(async_client, question):
            text = ""
            chunks = 0
            async for chunk in await async_client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": question}], stream=True, max_tokens=24, temperature=0
            ):
                text += chunk.choices[0].delta.content or ""
                chunks += 1
            return text, chunks

        async def all_of_them():
            async with openai.AsyncOpenAI(
                base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120
            ) as async_client:
                return await asyncio.gather(*(stream(async_client, q) for q in QUESTIONS))

        together = asyncio.run(all_of_them())
        self.assertEqual([text for text, _ in together], alone)  # independent of concurrent requests
        self.assertTrue(all(chunks > 2 for _, chunks in together))
        if server.real:
            self.assertEqual(len(set(alone)), len(alone))

    def test_multi_turn_reuses_the_prefix(self):
        messages = [
            {"role": "system", "content": "You are a terse assistant. " * 12},
            {"role": "user", "content": "Hello"},
        ]
        first = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=20, temperature=0)
        messages += [
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And now?"},
        ]
        second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, temperature=0)
        self.assertGreaterEqual(second.usage.prompt_tokens_details.cached_tokens, 16)

    def test_developer_role_and_text_parts(self):
        parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]
        answer = client.chat.completions.create(
            model=MODEL,
            max_tokens=5,
            temperature=0,
            messages=[{"role": "developer", "content": "Answer briefly."}, {"role": "user", "content": parts}],
        )
        self.assertGreater(answer.usage.completion_tokens, 0)

    def test_logprobs(self):
        answer = ask(QUESTIONS[0], logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertLessEqual(entry.logprob, 0)
            # Greedy: the chosen token is the most likely one.
            self.assertEqual(entry.token, entry.top_logprobs[0].token)
            self.assertAlmostEqual(entry.logprob, entry.top_logprobs[0].logprob, places=5)
        spoken = content[:-1] if answer.choices[0].finish_reason == "stop" else content
        text = b"".join(bytes(entry.bytes) for entry in spoken).decode(errors="replace")
        if server.real:
            self.assertEqual(text.strip(), answer.choices[0].message.content.strip())


class CompletionTest(unittest.TestCase):
    def complete(self, prompt="The quick brown fox", **options):
        options.setdefault("max_tokens", 12)
        options.setdefault("temperature", 0)
        return client.completions.create(model=MODEL, prompt=prompt, **options)

    def test_stream_is_the_same_text(self):
        whole = self.complete()
        self.assertEqual(whole.object, "text_completion")
        chunks = list(self.complete(stream=True))
        self.assertEqual("".join(c.choices[0].text for c in chunks), whole.choices[0].text)
        self.assertEqual(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_default_length_is_sixteen(self):
        answer = client.completions.create(
            model=MODEL, prompt="1, 2, 3,", temperature=0, extra_body={"ignore_eos": True}
        )
        self.assertEqual(answer.usage.completion_tokens, 16)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_prompt_forms_agree(self):
        def post(path, body):
            request = urllib.request.Request(
                server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            return json.load(fetch(request))

        prompt = "Once upon a time"
        tokens = post("/tokenize", {"prompt": prompt})
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(post("/detokenize", {"tokens": tokens["tokens"]})["prompt"], prompt)
        by_text = self.complete(prompt).choices[0].text
        self.assertEqual(self.complete(tokens["tokens"]).choices[0].text, by_text)
        several = self.complete([prompt, "Another beginning"])
        self.assertEqual([c.index for c in several.choices], [0, 1])
        self.assertEqual(several.choices[0].text, by_text)

    def test_n_and_seed(self):
        one = self.complete(n=3, temperature=1.0, seed=11, max_tokens=16)
        two = self.complete(n=3, temperature=1.0, seed=11, max_tokens=16)
        texts = [c.text for c in one.choices]
        self.assertEqual(texts, [c.text for c in two.choices])
        self.assertGreater(len(set(texts)), 1)
        self.assertNotEqual(texts[0], self.complete(temperature=1.0, seed=12, max_tokens=16).choices[0].text)

    def test_stop_string_never_leaks(self):
        full = self.complete(max_tokens=20, extra_body={"ignore_eos": True}).choices[0].text
        stop = full[5:8]
        answer = self.complete(max_tokens=20, stop=[stop], extra_body={"ignore_eos": True})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].text, full[: full.index(stop)])
        chunks = list(self.complete(max_tokens=20, stop=stop, stream=True, extra_body={"ignore_eos": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks), full[: full.index(stop)])

    def test_echo_with_logprobs_scores_the_prompt(self):
        answer = self.complete("Hello there", echo=True, logprobs=2, max_tokens=2)
        logprobs = answer.choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), answer.usage.total_tokens)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(v <= 0 for v in logprobs.token_logprobs[1:]))
        self.assertTrue(answer.choices[0].text.startswith("Hello there"))
        self.assertEqual(logprobs.text_offset[0], 0)
        self.assertEqual(logprobs.text_offset, sorted(logprobs.text_offset))

    def test_logit_bias_forces_a_token(self):
        token = client.completions.create(
            model=MODEL, prompt="x", max_tokens=2, temperature=0, logit_bias={"65": 100}, logprobs=1
        )
        self.assertEqual(len(set(token.choices[0].logprobs.tokens)), 1)


class ErrorsTest(unittest.TestCase):
    def test_kinds(self):
        with self.assertRaises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])
        self.assertIn("gpt-4", str(unknown.exception))
        with self.assertRaises(openai.BadRequestError) as range_error:
            ask("x", temperature=-1)
        self.assertEqual(range_error.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as context:
            ask("x", max_tokens=10**6)
        self.assertIn("1000000", str(context.exception))
        with self.assertRaises(openai.BadRequestError) as tools:
            ask("x", tools=[{"type": "function", "function": {"name": "no name", "parameters": {}}}])
        self.assertEqual(tools.exception.param, "tools[0].function.name")
        with self.assertRaises(openai.BadRequestError) as schema:
            ask(
                "x",
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"unevaluatedProperties": False}},
                },
            )
        self.assertIn("unevaluatedProperties", str(schema.exception))

    def test_the_server_survives_hostile_bodies(self):
        for body in (b"", b"{", b"\xff\xfe", b"[" * 100000, b'{"prompt": "\xc3\x28"}', b'{"prompt": 1e999}', b"null"):
            request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
            with self.assertRaises(urllib.error.HTTPError) as error:
                fetch(request)
            self.assertEqual(error.exception.code, 400)
            self.assertTrue(json.load(error.exception)["error"]["message"])
            error.exception.close()
        self.assertEqual(fetch(server.url + "/health").status, 200)

    def test_authentication(self):
        guarded = ServerProcess("--api-key", "right-key", real_model=False)
        try:
            with openai.OpenAI(base_url=guarded.url + "/v1", api_key="wrong-key", max_retries=0, timeout=60) as wrong:
                with self.assertRaises(openai.AuthenticationError):
                    wrong.models.list()
            with openai.OpenAI(base_url=guarded.url + "/v1", api_key="right-key", max_retries=0, timeout=60) as right:
                self.assertEqual(right.models.list().data[0].id, MODEL)
        finally:
            self.assertEqual(guarded.stop(), 0)
        self.assertNotIn("right-key", "".join(guarded.lines))


class ServerTest(unittest.TestCase):
    def test_models(self):
        models = client.models.list().data
        self.assertEqual([m.id for m in models], [MODEL])
        self.assertGreater(models[0].max_model_len, 0)
        self.assertEqual(client.models.retrieve(MODEL).id, MODEL)

    def test_closing_a_stream_frees_its_memory(self):
        # An answer that takes minutes, so that no machine completes it before the server notices the disconnect.
        length = 800_000
        other = ServerProcess(
            "--max-num-seqs", 2, "--max-queue", 2, real_model=False, config={"max_position_embeddings": length + 1000}
        )
        try:
            with openai.OpenAI(base_url=other.url + "/v1", api_key="none", max_retries=0, timeout=60) as leaving:
                stream = leaving.completions.create(
                    model=MODEL, prompt="x", max_tokens=length, stream=True, extra_body={"ignore_eos": True}
                )
                next(iter(stream))
                self.assertEqual(metric("vllm:num_requests_running", of=other), 1)
                stream.close()
            wait_until(
                lambda: metric("vllm:num_requests_running", of=other) == 0,
                "the request whose client has gone ends",
                limit_s=20,
                about=other.last_lines,
            )
            self.assertEqual(metric("tactus_http_client_gone_total", of=other), 1)
            self.assertLess(metric("vllm:generation_tokens_total", of=other), length)
            wait_until(
                lambda: metric("vllm:kv_cache_usage_perc", of=other) == 0,
                "its KV memory is free",
                limit_s=20,
                about=other.last_lines,
            )
        finally:
            self.assertEqual(other.stop(), 0)

    def test_shutdown_finishes_running_requests(self):
        other = ServerProcess("--json", "--verbose", real_model=False)
        with openai.OpenAI(base_url=other.url + "/v1", api_key="none", max_retries=0, timeout=60) as busy:
            stream = busy.completions.create(
                model=MODEL, prompt="x", max_tokens=200, stream=True, extra_body={"ignore_eos": True}
            )
            iterator = iter(stream)
            next(iterator)
            other.process.terminate()
            chunks = list(iterator)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")
        self.assertEqual(other.stop(send=False), 0)  # a second signal would end it at once
        self.assertGreater(json.loads(other.output)["steps"], 0)
        text = "".join(other.lines)
        rules = re.search(
            r"rules of answers: up to (\d+) MiB as needed: (\d+) for vocabularies, (\d+) compilations at once of (\d+)"
            r" each, (\d+) for answers that follow a rule",
            text,
        )
        self.assertIsNotNone(rules, text)
        total, vocabularies, trials, trial, answers = map(int, rules.groups())
        self.assertLessEqual(abs(total - (vocabularies + trials * trial + answers)), 10, "one sum, each rounded down")
        self.assertRegex(text, rf"set aside +{total} MiB +for rules of answers")

    def test_a_port_in_use_is_named(self):
        with TakenPort() as port, self.assertRaises(RuntimeError) as error:
            ServerProcess(port=port, real_model=False)
        self.assertIn(f"port {port}", str(error.exception))


if __name__ == "__main__":
    unittest.main()
