"""openai-agents: an agent with a tool runs to its final answer, over chats and over responses."""

import asyncio
import unittest

import agents
import openai
from client_case import MODEL, QUESTION, ServedTest


class AgentsTest(ServedTest):
    def run_agent(self, model_class):
        asked = []

        # Once: a small model would call it repeatedly.
        @agents.function_tool(is_enabled=lambda *_: not asked)
        def get_weather(city: str) -> str:
            """The weather of a city now"""
            asked.append(city)
            return "Sunny, 21 degrees"

        async def run():
            async with openai.AsyncOpenAI(
                base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120
            ) as client:
                # The first step must call the tool; the choice is then reset, so that the run ends with an answer.
                settings = agents.ModelSettings(tool_choice="get_weather", temperature=0, max_tokens=300)
                agent = agents.Agent(
                    name="guide",
                    instructions="Answer with the help of your tool.",
                    tools=[get_weather],
                    model_settings=settings,
                    model=model_class(model=MODEL, openai_client=client),
                )
                return await agents.Runner.run(agent, QUESTION, max_turns=6)

        result = asyncio.run(run())
        self.assertGreaterEqual(len(asked), 1)
        self.assertIsInstance(asked[0], str)
        self.assertIsInstance(result.final_output, str)
        kinds = [type(item).__name__ for item in result.new_items]
        self.assertEqual(kinds[:2], ["ToolCallItem", "ToolCallOutputItem"])
        self.assertEqual(kinds[-1], "MessageOutputItem")

    def test_over_chats(self):
        self.run_agent(agents.OpenAIChatCompletionsModel)

    def test_over_responses(self):
        self.run_agent(agents.OpenAIResponsesModel)

    def test_a_streamed_run(self):
        async def run():
            async with openai.AsyncOpenAI(
                base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120
            ) as client:
                agent = agents.Agent(
                    name="guide",
                    instructions="Be brief.",
                    model=agents.OpenAIResponsesModel(model=MODEL, openai_client=client),
                    model_settings=agents.ModelSettings(temperature=0, max_tokens=200),
                )
                result = agents.Runner.run_streamed(agent, "What is the capital of France?")
                text = ""
                async for event in result.stream_events():
                    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                        text += event.data.delta
                return text, result.final_output

        told, final = asyncio.run(run())
        self.assertTrue(told)
        self.assertEqual(told, final)


agents.set_tracing_disabled(True)

if __name__ == "__main__":
    unittest.main()
