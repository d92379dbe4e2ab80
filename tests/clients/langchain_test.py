"""langchain-openai: invoke, stream, tools, structured output; over chats and over responses."""

import unittest

import pydantic
from client_case import MODEL, QUESTION, ServedTest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


class Place(pydantic.BaseModel):
    """A place"""

    city: str = pydantic.Field(max_length=20)


@tool
def get_weather(city: str) -> str:
    """The weather of a city now"""
    return f"Sunny in {city}"


class LangchainTest(ServedTest):
    def model(self, **options):
        return ChatOpenAI(
            model=MODEL,
            base_url=self.url + "/v1",
            api_key="none",
            temperature=0,
            max_tokens=60,
            max_retries=0,
            timeout=120,
            **options,
        )

    def test_a_stream_equals_the_whole_response(self):
        for responses in (False, True):
            with self.subTest(responses=responses):
                model = self.model(use_responses_api=responses)
                whole = model.invoke(QUESTION)
                self.assertTrue(whole.text)
                self.assertGreater(whole.usage_metadata["output_tokens"], 0)
                self.assertEqual("".join(chunk.text for chunk in model.stream(QUESTION)), whole.text)

    def test_tools(self):
        for responses in (False, True):
            with self.subTest(responses=responses):
                model = self.model(use_responses_api=responses)
                answer = model.bind_tools([get_weather], tool_choice="get_weather").invoke(QUESTION)
                call = answer.tool_calls[0]
                self.assertEqual(call["name"], "get_weather")
                self.assertIsInstance(call["args"]["city"], str)
                result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
                after = model.bind_tools([get_weather], tool_choice="none").invoke([("user", QUESTION), answer, result])
                self.assertTrue(after.text)

    def test_structured_output(self):
        for method in ("json_schema", "function_calling"):
            with self.subTest(method=method):
                self.assertIsInstance(self.model().with_structured_output(Place, method=method).invoke(QUESTION), Place)


if __name__ == "__main__":
    unittest.main()
