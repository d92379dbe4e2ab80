"""Anthropic's own package: messages, streams, tools, counts, errors."""

import json
import unittest

import anthropic
from client_case import MODEL, QUESTION, SCHEMA, ServedTest
from server_process import ServerProcess

TOOL = {"name": "get_weather", "description": "The weather of a city now", "input_schema": SCHEMA, "strict": True}
GREEDY = {"temperature": 0}  # a field of the API that the package no longer has
ASK = [{"role": "user", "content": QUESTION}]


class AnthropicTest(ServedTest):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.url, api_key="none", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def ask(self, messages=None, **options):
        return self.client.messages.create(
            model=MODEL, messages=messages or ASK, **{"max_tokens": 60, "extra_body": GREEDY, **options}
        )

    def test_text(self):
        answer = self.ask(system="Be brief.", metadata={"user_id": "u"})
        self.assertTrue(answer.id.startswith("msg_"))
        self.assertEqual((answer.type, answer.role, answer.model), ("message", "assistant", MODEL))
        self.assertEqual([block.type for block in answer.content], ["text"])
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(answer.usage.input_tokens + answer.usage.cache_read_input_tokens, 0)
        self.assertEqual(self.ask(max_tokens=2).stop_reason, "max_tokens")

    def test_a_stop_sequence(self):
        text = self.ask().content[0].text
        stop = text[4:7]
        answer = self.ask(stop_sequences=[stop])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(answer.content[0].text, text[: text.index(stop)])

    def test_a_stream_equals_the_whole_response(self):
        whole = self.ask()
        with self.client.messages.stream(model=MODEL, messages=ASK, max_tokens=60, extra_body=GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_a_tool_and_its_result(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}):
            answer = self.ask(tools=[TOOL], tool_choice=choice)
            self.assertEqual(answer.stop_reason, "tool_use")
            call = next(block for block in answer.content if block.type == "tool_use")
            self.assertEqual(call.name, "get_weather")
            self.assertIsInstance(call.input["city"], str)
            result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny"}]}
            after = self.ask(
                [*ASK, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}],
                tools=[TOOL],
                tool_choice={"type": "none"},
            )
            self.assertEqual(after.content[0].type, "text")
        one = {"type": "any", "disable_parallel_tool_use": True}
        with self.client.messages.stream(
            model=MODEL, messages=ASK, max_tokens=60, extra_body=GREEDY, tools=[TOOL], tool_choice=one
        ) as stream:
            parts = "".join(event.partial_json for event in stream if event.type == "input_json")
            final = stream.get_final_message()
        self.assertEqual(json.loads(parts), final.content[-1].input)

    def test_count_tokens(self):
        counted = self.client.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.").input_tokens
        usage = self.ask(system="Be brief.", max_tokens=1).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as error:
            self.ask(extra_body={"temperature": 5})
        self.assertEqual(error.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("temperature", error.exception.body["error"]["message"])
        with self.assertRaises(anthropic.BadRequestError) as error:
            self.ask([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}])
        self.assertIn("image", str(error.exception))
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(model="other", messages=ASK, max_tokens=1)

    def test_keys(self):
        guarded = ServerProcess("--api-key", "right-key", real_model=False)
        try:
            with anthropic.Anthropic(base_url=guarded.url, api_key="wrong-key", max_retries=0) as wrong:
                with self.assertRaises(anthropic.AuthenticationError) as error:
                    wrong.messages.create(model=MODEL, messages=ASK, max_tokens=1)
                self.assertEqual(error.exception.body["error"]["type"], "authentication_error")
            with anthropic.Anthropic(base_url=guarded.url, api_key="right-key", max_retries=0) as right:
                self.assertEqual(right.messages.create(model=MODEL, messages=ASK, max_tokens=1).role, "assistant")
        finally:
            self.assertEqual(guarded.stop(), 0)


if __name__ == "__main__":
    unittest.main()
