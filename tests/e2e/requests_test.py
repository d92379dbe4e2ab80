"""Requests in the form that other servers' clients send, with the real program: accepted, or rejected by name; nothing
is ignored silently."""

import json
import unittest
import urllib.error
import urllib.request

from server_process import ServerProcess

ASK = [{"role": "user", "content": "Give me a person as JSON."}]


class RequestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--max-model-len", 2048)
        cls.addClassCleanup(cls.server.stop)

    def post(self, path, body):
        """The answer's (status, headers, object)."""
        request = urllib.request.Request(
            self.server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.headers, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, json.load(error)

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {"messages": ASK, "temperature": 0, "max_tokens": 60, **fields})

    def content(self, schema):
        status, _, answer = self.chat(
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        )
        self.assertEqual(status, 200, answer)
        return json.loads(answer["choices"][0]["message"]["content"])

    def test_numbers_of_schemas_are_kept_to_the_digit(self):
        self.assertEqual(self.content({"const": 9007199254740993}), 9007199254740993)
        self.assertIn(
            self.content({"type": "integer", "minimum": 1234567890123456789, "maximum": 1234567890123456790}),
            (1234567890123456789, 1234567890123456790),
        )
        person = {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 8}, "id": {"enum": [1234567890123456789]}},
            "required": ["name", "id"],
            "additionalProperties": False,
        }
        self.assertEqual(self.content(person)["id"], 1234567890123456789)
        whole = self.content({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1})
        self.assertTrue(-(2**63) <= whole < 2**63)

    def test_numbers_of_call_arguments_are_kept_to_the_digit(self):
        tool = {
            "type": "function",
            "function": {
                "name": "find",
                "parameters": {
                    "type": "object",
                    "properties": {"id": {"const": 9007199254740993}},
                    "required": ["id"],
                    "additionalProperties": False,
                },
            },
        }
        status, _, answer = self.chat(tools=[tool], tool_choice="required")
        self.assertEqual(status, 200, answer)
        call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        self.assertEqual(json.loads(call["arguments"]), {"id": 9007199254740993})

    def test_json_object_with_a_schema_is_of_that_schema(self):
        schema = {
            "type": "object",
            "properties": {"age": {"type": "integer", "maximum": 150}},
            "required": ["age"],
            "additionalProperties": False,
        }
        status, _, answer = self.chat(response_format={"type": "json_object", "schema": schema})
        self.assertEqual(status, 200, answer)
        self.assertEqual(list(json.loads(answer["choices"][0]["message"]["content"])), ["age"])

    def test_a_prompt_without_answer_is_returned_with_its_logprobs(self):
        prompt = "The capital of France is"
        status, _, answer = self.post(
            "/v1/completions", {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
        )
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        self.assertEqual(
            (choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]), (prompt, "length", 0)
        )
        self.assertEqual(len(choice["logprobs"]["tokens"]), answer["usage"]["prompt_tokens"])
        self.assertEqual(
            self.post("/v1/completions", {"prompt": prompt, "max_tokens": 0})[2]["error"]["param"], "max_tokens"
        )

    def test_every_likely_token_has_a_unique_name(self):
        status, _, answer = self.post(
            "/v1/completions", {"prompt": "a", "max_tokens": 4, "temperature": 0, "logprobs": 5}
        )
        self.assertEqual(status, 200, answer)
        logprobs = answer["choices"][0]["logprobs"]
        for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"]):
            self.assertIn(token, top)
            self.assertNotIn("\ufffd", "".join(top))

    def test_too_long_requests_get_the_error_text_of_each_api(self):
        long = [{"role": "user", "content": "word " * 3000}]
        error = self.post("/v1/chat/completions", {"messages": long, "max_tokens": 10})[2]["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn("maximum context length is 2048 tokens", error["message"])
        error = self.post("/v1/messages", {"messages": long, "max_tokens": 10})[2]["error"]
        self.assertRegex(error["message"], r"prompt is too long: \d+ tokens > \d+ maximum")

    def test_ignored_fields_are_named(self):
        status, headers, answer = self.chat(wish=1, max_tokens=1)
        self.assertEqual((status, headers["x-tactus-ignored"]), (200, "wish"), answer)
        body = {
            "input": "q",
            "max_output_tokens": 1,
            "tools": [
                {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
                {"type": "web_search"},
            ],
        }
        status, headers, answer = self.post("/v1/responses", body)
        self.assertEqual((status, headers["x-tactus-ignored"]), (200, "tools[1] (web_search)"), answer)
        self.assertEqual(answer["usage"]["input_tokens_details"].keys(), {"cached_tokens"})
        self.assertEqual(answer["tools"], body["tools"][:1], "those that the model may call")
        body["tools"] = body["tools"][1:]
        answer = self.post("/v1/responses", body)[2]
        self.assertEqual((answer["tools"], answer["tool_choice"]), ([], "auto"))
        error = self.chat(mirostat=2)[2]["error"]
        self.assertEqual(error["param"], "mirostat")

    def test_paths_may_leave_out_the_version(self):
        for path in ("/chat/completions", "/chat/completions/", "/v1/chat/completions/"):
            self.assertEqual(self.post(path, {"messages": ASK, "max_tokens": 1})[0], 200, path)
        status, _, answer = self.post("/v1/embeddings", {"input": "x"})
        self.assertEqual(status, 404)
        self.assertIn("embeddings are not built", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main()
