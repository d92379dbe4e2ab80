"""The official openai package: chats, tools, structured output, completions, responses, models."""

import json
import re
import unittest

import openai
import pydantic
from client_case import MODEL, QUESTION, SCHEMA, TOOL, ServedTest

ASK = [{"role": "user", "content": QUESTION}]
FLAT_TOOL = {"type": "function", **TOOL["function"]}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: str = pydantic.Field(max_length=20)
    sunny: bool


class OpenAiTest(ServedTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def chat(self, messages=None, **options):
        options = {"max_tokens": 60, "temperature": 0, **options}
        return self.client.chat.completions.create(model=MODEL, messages=messages or ASK, **options)

    def check_call(self, name, arguments):
        self.assertEqual(name, "get_weather")
        self.assertIsInstance(json.loads(arguments)["city"], str)


class ChatTest(OpenAiTest):
    def test_a_stream_equals_the_whole_response(self):
        whole = self.chat()
        text, usage = "", None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_a_tool_that_must_be_called(self):
        for choice in ("required", NAMED):
            with self.subTest(choice=choice):
                answer = self.chat(tools=[TOOL], tool_choice=choice).choices[0]
                self.assertEqual(answer.finish_reason, "tool_calls")
                call = answer.message.tool_calls[0]
                self.check_call(call.function.name, call.function.arguments)
                # The tool's result is sent back, and the conversation continues.
                after = self.chat(
                    [*ASK, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees"}],
                    tools=[TOOL],
                    tool_choice="none",
                )
                self.assertIsNone(after.choices[0].message.tool_calls)
                self.assertTrue(after.choices[0].message.content)

    def test_a_tool_that_may_be_called(self):
        answer = self.chat(tools=[TOOL], tool_choice="auto", parallel_tool_calls=False).choices[0]
        calls, content = answer.message.tool_calls or [], answer.message.content or ""
        for call in calls:
            self.check_call(call.function.name, call.function.arguments)
        self.assertIn(answer.finish_reason, ["tool_calls"] if calls else ["stop", "length"])
        self.assertFalse(
            content.lstrip().startswith(("{", "<tool_call>")), content
        )  # the tool is strict: a call is certain
        self.assertTrue(calls or content)

    def test_a_format_beside_a_strict_tool(self):
        answer = self.client.chat.completions.parse(
            model=MODEL,
            messages=ASK,
            response_format=Place,
            tools=[TOOL],
            parallel_tool_calls=False,
            max_tokens=80,
            temperature=0,
        )
        message = answer.choices[0].message
        for call in message.tool_calls or []:
            self.check_call(call.function.name, call.function.arguments)
        self.assertTrue(message.tool_calls or isinstance(message.parsed, Place), message)

    def test_the_streaming_helper_gathers_a_call(self):
        with self.client.chat.completions.stream(
            model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=60, temperature=0
        ) as stream:
            kinds = {event.type for event in stream}
            answer = stream.get_final_completion().choices[0]
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.check_call(answer.message.tool_calls[0].function.name, answer.message.tool_calls[0].function.arguments)

    def test_parse_gives_an_object(self):
        answer = self.client.chat.completions.parse(
            model=MODEL, messages=ASK, response_format=Place, max_tokens=80, temperature=0
        )
        self.assertIsInstance(answer.choices[0].message.parsed, Place)

    def test_json_object(self):
        answer = self.chat(response_format={"type": "json_object"}, max_tokens=300, extra_body={"temperature": 0.0})
        text = answer.choices[0].message.content
        self.assertTrue(text.startswith("{"), text)
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(text), dict)
        else:
            self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_the_fields_of_vllm(self):
        for extra, holds in (
            ({"guided_choice": ["yes", "no"]}, lambda t: t in ("yes", "no")),
            ({"guided_regex": "[0-9]{3}-[0-9]{4}"}, lambda t: re.fullmatch("[0-9]{3}-[0-9]{4}", t)),
            ({"guided_json": SCHEMA}, lambda t: json.loads(t)["city"] is not None),
            ({"structured_outputs": {"choice": ["red", "blue"]}}, lambda t: t in ("red", "blue")),
            ({"structured_outputs": {"regex": "a{3,5}"}}, lambda t: re.fullmatch("a{3,5}", t)),
        ):
            with self.subTest(**extra):
                text = self.chat(extra_body=extra).choices[0].message.content
                self.assertTrue(holds(text), text)

    def test_an_invalid_schema_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as error:
            self.chat(
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "no such type"}},
                }
            )
        self.assertTrue(error.exception.param.startswith("response_format"), error.exception.param)


class CompletionsTest(OpenAiTest):
    def test_whole_and_stream(self):
        options = {"model": MODEL, "prompt": "One, two,", "max_tokens": 8, "temperature": 0}
        whole = self.client.completions.create(**options).choices[0].text
        self.assertEqual(
            "".join(c.choices[0].text for c in self.client.completions.create(stream=True, **options)), whole
        )

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)


class ResponsesTest(OpenAiTest):
    def respond(self, given=QUESTION, **options):
        options = {"max_output_tokens": 60, "temperature": 0, **options}
        return self.client.responses.create(model=MODEL, input=given, **options)

    def test_text(self):
        answer = self.respond(instructions="Be brief.", metadata={"a": "b"})
        self.assertTrue(answer.id.startswith("resp_"))
        self.assertIn(answer.status, ("completed", "incomplete"))
        self.assertTrue(answer.output_text)
        self.assertEqual(answer.metadata, {"a": "b"})
        self.assertEqual(answer.instructions, "Be brief.")
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
        self.assertEqual(self.respond(max_output_tokens=2).incomplete_details.reason, "max_output_tokens")

    def test_a_stream_equals_the_whole_response(self):
        whole = self.respond().output_text
        events = list(self.respond(stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual(events[0].type, "response.created")
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole)
        self.assertEqual(events[-1].response.output_text, whole)
        with self.client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0) as stream:
            self.assertEqual("".join(e.delta for e in stream if e.type == "response.output_text.delta"), whole)

    def test_a_tool_and_its_result(self):
        first = self.respond(tools=[FLAT_TOOL], tool_choice="required")
        call = next(item for item in first.output if item.type == "function_call")
        self.check_call(call.name, call.arguments)
        conversation = [
            {"role": "user", "content": QUESTION},
            *first.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"},
        ]
        second = self.respond(conversation, tools=[FLAT_TOOL], tool_choice="none")
        self.assertTrue(second.output_text)
        deltas, done = "", None
        for event in self.respond(
            tools=[FLAT_TOOL], tool_choice={"type": "function", "name": "get_weather"}, stream=True
        ):
            deltas += event.delta if event.type == "response.function_call_arguments.delta" else ""
            done = event.arguments if event.type == "response.function_call_arguments.done" else done
        self.assertEqual(deltas, done)
        self.check_call("get_weather", done)

    def test_parse_gives_an_object(self):
        answer = self.client.responses.parse(
            model=MODEL, input=QUESTION, text_format=Place, max_output_tokens=80, temperature=0
        )
        self.assertIsInstance(answer.output_parsed, Place)

    def test_refusals_name_the_field(self):
        for options, param in (
            ({"previous_response_id": "resp_x"}, "previous_response_id"),
            ({"temperature": 7}, "temperature"),
            ({"max_output_tokens": 10**7}, "max_output_tokens"),
            ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ):
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as error:
                self.respond(**options)
            self.assertEqual(error.exception.param, param)
        image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}]
        with self.assertRaises(openai.BadRequestError) as error:
            self.respond(image)
        self.assertIn("input_image", str(error.exception))


if __name__ == "__main__":
    unittest.main()
