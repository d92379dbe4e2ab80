"""SamplingParams beyond sampling (grammars, tools, objectives); results as values; the single reader of a stream."""

import copy
import dataclasses
import json
import pickle
import sys
import threading
import unittest

import tactus
from server_process import wait_until
from tactus import PlanCosts, SamplingParams, StructuredOutputsParams
from tiny_model import TinyModel

CHAT = [{"role": "user", "content": "a"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "clock"}}
LONG = SamplingParams(n=16, max_tokens=1500, ignore_eos=True, seed=1)


class FeaturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        cls.llm = cls.tiny.llm()

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()
        cls.tiny.close()

    def needs_grammars(self):
        try:
            self.llm.generate("a", SamplingParams(structured_outputs={"json_object": True}), use_tqdm=False)
        except tactus.UnimplementedError as error:
            self.skipTest(str(error))

    def test_structured_output_matches_the_rule(self):
        self.needs_grammars()
        params = {"max_tokens": 60, "seed": 3}
        for rule in (
            {"structured_outputs": {"json": SCHEMA}},
            {"structured_outputs": {"json": json.dumps(SCHEMA)}},
            {"structured_outputs": StructuredOutputsParams(json=SCHEMA)},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}},
        ):
            for output in (
                *self.llm.generate(["a", "b"], SamplingParams(**rule, **params), use_tqdm=False),
                *self.llm.chat(CHAT, SamplingParams(**rule, **params), use_tqdm=False),
            ):
                (answer,) = output.outputs
                self.assertEqual(answer.finish_reason, "stop", answer)
                self.assertEqual(set(json.loads(answer.text)), {"city", "days"})
                self.assertEqual(answer.content, answer.text)
        for rule, right in (({"choice": ["yes", "no"]}, "yes|no"), ({"regex": "[ab]{3}x"}, "[ab]{3}x")):
            (output,) = self.llm.generate("a", SamplingParams(structured_outputs=rule, **params), use_tqdm=False)
            self.assertRegex(output.outputs[0].text, f"^({right})$")
        texts = [piece.text for piece in self.llm.stream("a", SamplingParams(structured_outputs=rule, **params))]
        self.assertRegex("".join(texts), "^[ab]{3}x$")

    def test_an_invalid_rule_is_refused_by_its_field(self):
        self.needs_grammars()
        for rule, name in (
            ({"structured_outputs": {"regex": "(("}}, "structured_outputs.regex"),
            ({"structured_outputs": {"grammar": "nothing"}}, "structured_outputs.grammar"),
            (
                {"response_format": {"type": "json_object", "schema": {"type": "nonsense"}}},
                "response_format",
            ),
        ):
            with self.assertRaises(tactus.InvalidArgumentError) as caught:
                self.llm.generate(["a"], SamplingParams(**rule), use_tqdm=False)
            self.assertIn(name, str(caught.exception))

    def test_tool_calls_are_separate_from_the_text(self):
        self.needs_grammars()
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            params = SamplingParams(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False, max_tokens=300, seed=5)
            (output,) = self.llm.chat(CHAT, params, use_tqdm=False)
            (answer,) = output.outputs
            self.assertEqual(answer.finish_reason, "tool_calls", answer)
            self.assertEqual({call.name for call in answer.tool_calls}, {"weather"})
            self.assertEqual(set(json.loads(answer.tool_calls[0].arguments)), {"city", "days"})
            self.assertNotIn("weather", answer.content)
            self.assertIn("weather", answer.text)
            calls, content, last = {}, "", None
            for piece in self.llm.stream_chat(CHAT, params):
                content += piece.content
                last = piece.finish_reason
                for call in piece.tool_calls:
                    name, arguments = calls.get(call.index, ("", ""))
                    calls[call.index] = (name + (call.name or ""), arguments + call.arguments)
            self.assertEqual([calls[i] for i in sorted(calls)], [(c.name, c.arguments) for c in answer.tool_calls])
            self.assertEqual((content, last), (answer.content, "tool_calls"))
        ids = [
            call.id for _ in range(2) for call in self.llm.chat(CHAT, params, use_tqdm=False)[0].outputs[0].tool_calls
        ]
        self.assertEqual(len(set(ids)), len(ids), "two calls have one id")
        params = SamplingParams(tools=[TOOL, OTHER], tool_choice="none", max_tokens=4)
        self.assertEqual(self.llm.chat(CHAT, params, use_tqdm=False)[0].outputs[0].tool_calls, [])

    def test_tools_are_for_chats(self):
        params = SamplingParams(tools=[TOOL])
        for call in (
            lambda: self.llm.generate("a", params, use_tqdm=False),
            lambda: self.llm.stream("a", params),
        ):
            with self.assertRaisesRegex(tactus.InvalidArgumentError, "tools: only in chats; use chat"):
                call()
        (error,) = self.llm.answer_each(["a"], params)
        self.assertRegex(str(error), "only in chats")

    def test_objectives_reach_the_engine(self):
        params = SamplingParams(max_tokens=2, slo={"ttft_ms": 60_000, "tbt_ms": 60_000, "jct_ms": 1e6, "class": "mine"})
        self.llm.generate("a", params, use_tqdm=False)
        wait_until(lambda: "mine" in self.llm.metrics_text(), "the class is a label of a metric")
        self.assertIsNotNone(self.llm.outcome()["slo_attainment"])

    def test_results_are_values(self):
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=1)
        one, two = (self.llm.generate([[5, 6]], params, use_tqdm=False)[0] for _ in range(2))
        same = dataclasses.replace(two, num_cached_tokens=one.num_cached_tokens)
        self.assertEqual(one, same)
        self.assertNotEqual(one, self.llm.generate([[5, 7]], params, use_tqdm=False)[0])
        pieces = list(self.llm.stream("a", params))
        costs = PlanCosts.of("llama-3.1-8b", "a100")
        plan = tactus.plan([[1]], costs=costs, kv_tokens=9)
        call = tactus.ToolCall("1", "f", "{}")
        for value in (one, pieces, params, costs, plan, call, StructuredOutputsParams(regex="a")):
            with self.subTest(value=type(value).__name__):
                self.assertEqual(pickle.loads(pickle.dumps(value)), value)
                self.assertEqual(copy.deepcopy(value), value)
        for value in (one, params, costs, plan, call):
            self.assertTrue(repr(value).startswith(type(value).__name__ + "("), repr(value))
        self.assertEqual(repr(SamplingParams(n=2, stop="a")), "SamplingParams(n=2, stop='a')")
        self.assertEqual(eval(repr(params)), params)
        self.assertEqual(hash(SamplingParams(temperature=1)), hash(SamplingParams(temperature=1.0)))
        self.assertEqual(dataclasses.replace(params, n=2).n, 2)
        self.assertEqual(repr(self.llm), f"LLM({str(self.tiny.path)!r})")

    def test_objects_bound_to_a_process_are_not_pickled(self):
        with tactus.AsyncLLM(str(self.tiny.path), **self.tiny.options)._llm as inner:
            inner.encode("a")
        awaited = tactus.AsyncLLM(str(self.tiny.path), **self.tiny.options)
        self.addCleanup(awaited.close)
        for value in (self.llm, self.llm.stream("a"), awaited, awaited.stream("a")):
            with self.assertRaisesRegex(tactus.TactusError, "cannot be pickled"):
                pickle.dumps(value)
            self.assertIn(type(value).__name__, repr(value))

    def test_a_stream_refuses_a_second_reader(self):
        params = SamplingParams(max_tokens=1500, ignore_eos=True, seed=1)
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-5)
        for _ in range(5):
            stream, whole, refused = self.llm.stream("a", params), [], []
            together = threading.Barrier(4)

            def read():
                together.wait()
                try:
                    whole.append([piece.index for piece in stream])
                except tactus.UnavailableError as error:
                    refused.append(str(error))

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual((len(whole), len(refused)), (1, 3))
            self.assertGreaterEqual(len(whole[0]), 1500)
            self.assertIn("one thread, task or loop may read a stream", refused[0])

    def test_a_second_loop_is_refused_even_where_the_first_does_not_wait(self):
        params = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
        stream = self.llm.stream("a", params)
        one, two = iter(stream), iter(stream)
        first = [next(one)]
        for call in (lambda: next(two), lambda: list(stream)):
            with self.assertRaises(tactus.UnavailableError):
                call()
        caught = []

        def read():
            with self.assertRaises(tactus.UnavailableError):
                next(stream)
            caught.append(1)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join(60)
        self.assertEqual(len(caught), 1, "next() on the stream reads beside the loop")
        self.assertEqual(sum(len(piece.token_ids) for piece in [*first, *one]), 30)

    def test_a_loop_may_continue_in_another_thread(self):
        params = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
        all_ids = [i for piece in self.llm.stream("a", params) for i in piece.token_ids]
        stream = self.llm.stream("a", params)
        ids = list(next(stream).token_ids)
        loop = iter(stream)
        ids += next(loop).token_ids
        rest = []
        thread = threading.Thread(target=lambda: rest.extend(i for piece in loop for i in piece.token_ids))
        thread.start()
        thread.join(60)
        self.assertEqual(ids + rest, all_ids)
        stream = self.llm.stream("a", params)
        ids = []
        for piece in stream:
            ids += piece.token_ids
            break
        del piece
        ids += [i for piece in stream for i in piece.token_ids]  # the first loop has ended
        self.assertEqual(ids, all_ids)


if __name__ == "__main__":
    unittest.main()
