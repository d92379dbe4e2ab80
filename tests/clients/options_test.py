"""The clients with servers that have options: reasoning, speculation, prompts on disk, a router in front."""

import json
import tempfile
import unittest
import urllib.request

import anthropic
import openai
from client_case import MODEL, SCHEMA, TOOL, ServedTest
from router_process import Router
from server_process import ServerProcess, default_model

# The default model does not reason. A grammar makes it write in the form of a reasoning model.
THOUGHT, SAID = "[a-z]{4,12}", "[a-z]{3,8}"
THINKING = {"structured_outputs": {"regex": f"<think>{THOUGHT}</think>{SAID}"}}
ASK = [{"role": "user", "content": "Which word comes next?"}]
COPY = [
    {
        "role": "user",
        "content": (
            "Repeat this text word for word, three times:\n\nThe harbour has two piers, a crane and a shed. " * 4
        ),
    }
]


def client_at(test, url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    test.addCleanup(client.close)
    return client


def chat(client, messages=ASK, **options):
    return client.chat.completions.create(
        model=MODEL, messages=messages, **{"max_tokens": 60, "temperature": 0, **options}
    )


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


class ReasoningTest(ServedTest):
    OPTIONS = ("--reasoning-parser", "think")

    def check(self, thought, said):
        self.assertRegex(thought, f"^{THOUGHT}$")
        self.assertRegex(said, f"^{SAID}$")

    def test_openai(self):
        client = client_at(self, self.url)
        whole = chat(client, extra_body=THINKING).choices[0].message
        self.check(whole.reasoning_content, whole.content)
        thought, said = "", ""
        for chunk in chat(client, extra_body=THINKING, stream=True):
            thought += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
            said += chunk.choices[0].delta.content or ""
        self.assertEqual((thought, said), (whole.reasoning_content, whole.content))

    def test_openai_responses(self):
        answer = client_at(self, self.url).responses.create(
            model=MODEL, input="Which word comes next?", temperature=0, max_output_tokens=60, extra_body=THINKING
        )
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.check(answer.output[0].content[0].text, answer.output_text)

    def test_anthropic(self):
        with anthropic.Anthropic(base_url=self.url, api_key="none", max_retries=0, timeout=120) as client:
            options = {"model": MODEL, "max_tokens": 60, "messages": ASK, "extra_body": {"temperature": 0, **THINKING}}
            whole = client.messages.create(**options)
            self.assertEqual([block.type for block in whole.content], ["thinking", "text"])
            self.check(whole.content[0].thinking, whole.content[1].text)
            with client.messages.stream(**options) as stream:
                thought = "".join(event.thinking for event in stream if event.type == "thinking")
                self.assertEqual(stream.get_final_message().content[1].text, whole.content[1].text)
            self.assertEqual(thought, whole.content[0].thinking)


class SpeculationTest(ServedTest):
    OPTIONS = ("--speculation", "ngram")

    def test_openai_gets_the_answers_of_plain_decoding(self):
        plain = ServerProcess()
        self.addCleanup(lambda: self.assertEqual(plain.stop(), 0))
        answers = []
        for url in (plain.url, self.url):
            client = client_at(self, url)
            answers.append(
                [
                    chat(client, COPY, max_tokens=100).choices[0].message.content,
                    chat(client, temperature=0.8, seed=7).choices[0].message.content,
                    "".join(
                        c.choices[0].delta.content or ""
                        for c in chat(client, COPY, max_tokens=100, stream=True)
                        if c.choices
                    ),
                ]
            )
        self.assertEqual(answers[0], answers[1])
        self.assertGreater(metric(self.url, "vllm:spec_decode_num_draft_tokens_total"), 0)
        self.assertEqual(metric(plain.url, "vllm:spec_decode_num_draft_tokens_total"), 0)


@unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL does not name the default model's file")
class PromptCacheTest(unittest.TestCase):
    def test_openai_sees_a_hit_after_a_restart(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        answers = []
        for _ in range(2):
            server = ServerProcess("--kv-cache-dir", folder.name)
            try:
                answers.append(
                    chat(client_at(self, server.url), COPY, max_tokens=8, extra_headers={"x-tactus-explain": "1"})
                )
            finally:
                self.assertEqual(server.stop(), 0, server.last_lines())
        cold, warm = answers
        self.assertEqual(warm.choices[0].message.content, cold.choices[0].message.content)
        self.assertEqual(cold.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertGreaterEqual(warm.usage.prompt_tokens_details.cached_tokens, 32)
        self.assertEqual(warm.tactus_explain["cache"]["disk_tokens"], warm.usage.prompt_tokens_details.cached_tokens)


@unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL does not name the default model's file")
class RouterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = [ServerProcess() for _ in range(2)]
        cls.router = Router([s.url for s in cls.servers])
        cls.router.await_ready(2)
        cls.url = cls.router.url

    @classmethod
    def tearDownClass(cls):
        statuses = [process.stop() for process in (cls.router, *cls.servers)]
        assert statuses == [0, 0, 0], f"exit statuses {statuses}"

    def test_openai(self):
        client, direct = client_at(self, self.url), client_at(self, self.servers[0].url)
        whole = chat(direct).choices[0].message.content
        self.assertEqual(chat(client).choices[0].message.content, whole)
        self.assertEqual(
            "".join(c.choices[0].delta.content or "" for c in chat(client, stream=True) if c.choices), whole
        )
        call = chat(client, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0]
        self.assertIsInstance(json.loads(call.function.arguments)["city"], str)
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
        self.assertIsInstance(json.loads(chat(client, response_format=form).choices[0].message.content)["city"], str)
        with self.assertRaises(openai.BadRequestError) as error:
            chat(client, tools=[{"type": "function", "function": {}}])
        self.assertIn("name", error.exception.param)

    def test_openai_responses(self):
        answers = [
            client_at(self, url)
            .responses.create(model=MODEL, input="Name a city.", temperature=0, max_output_tokens=20)
            .output_text
            for url in (self.url, self.servers[1].url)
        ]
        self.assertEqual(answers[0], answers[1])

    def test_anthropic(self):
        texts = []
        for url in (self.url, self.servers[1].url):
            with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120) as client:
                with client.messages.stream(
                    model=MODEL, max_tokens=20, messages=ASK, extra_body={"temperature": 0}
                ) as stream:
                    texts.append("".join(stream.text_stream))
        self.assertEqual(texts[0], texts[1])


if __name__ == "__main__":
    unittest.main()
