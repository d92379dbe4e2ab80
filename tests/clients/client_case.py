"""Shared by the client tests: one server with the default model per module, and the tool that is called.

The clients are third-party packages. The model is small: tests assert structure, or text that a grammar guarantees,
never the model's knowledge.
"""

import os
import unittest

# Before any client is imported: disables telemetry.
os.environ.update(
    OPENAI_AGENTS_DISABLE_TRACING="1",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    LITELLM_TELEMETRY="False",
    LANGCHAIN_TRACING_V2="false",
    LANGSMITH_TRACING="false",
    DO_NOT_TRACK="1",
    NO_PROXY="127.0.0.1,localhost",
    OPENAI_API_KEY="none",
    ANTHROPIC_API_KEY="none",
)
for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(proxy, None)

from server_process import ServerProcess, default_model  # noqa: E402 - the variables above come first

MODEL = "test-model"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city now",
        "parameters": SCHEMA,
        "strict": True,
    },
}
QUESTION = "What is the weather in Paris?"


class ServedTest(unittest.TestCase):
    """The tests of a class on one server, with the default model."""

    OPTIONS = ()  # options of the server

    @classmethod
    def setUpClass(cls):
        if default_model() is None:
            raise unittest.SkipTest("no default model: TACTUS_DEFAULT_MODEL names none")
        cls.server = ServerProcess(*cls.OPTIONS)
        cls.url = cls.server.url

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, f"exit status {status}:\n" + "".join(cls.server.lines)
