"""litellm: the same server as OpenAI's and as Anthropic's."""

import json
import unittest

import litellm
from client_case import MODEL, QUESTION, TOOL, ServedTest

ASK = [{"role": "user", "content": QUESTION}]


class LitellmTest(ServedTest):
    def ask(self, kind="openai", **options):
        base = self.url + "/v1" if kind == "openai" else self.url
        return litellm.completion(
            model=f"{kind}/{MODEL}",
            api_base=base,
            api_key="none",
            messages=ASK,
            max_tokens=60,
            temperature=0,
            num_retries=0,
            timeout=120,
            **options,
        )

    def test_a_stream_equals_the_whole_response(self):
        for kind in ("openai", "anthropic"):
            with self.subTest(kind=kind):
                whole = self.ask(kind)
                self.assertTrue(whole.choices[0].message.content)
                self.assertGreater(whole.usage.completion_tokens, 0)
                chunks = self.ask(kind, stream=True)
                self.assertEqual(
                    "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
                    whole.choices[0].message.content,
                )

    def test_tools(self):
        for kind in ("openai", "anthropic"):
            with self.subTest(kind=kind):
                call = self.ask(kind, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0]
                self.assertEqual(call.function.name, "get_weather")
                self.assertIsInstance(json.loads(call.function.arguments)["city"], str)

    def test_responses(self):
        answer = litellm.responses(
            model=f"openai/{MODEL}",
            api_base=self.url + "/v1",
            api_key="none",
            input=QUESTION,
            max_output_tokens=40,
            temperature=0,
        )
        self.assertTrue(answer.id)
        self.assertTrue(answer.output[0].content[0].text)


litellm.telemetry = False
litellm.suppress_debug_info = True

if __name__ == "__main__":
    unittest.main()
