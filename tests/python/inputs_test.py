"""Inputs of calls: numbers and paths of every kind are accepted; each invalid input is rejected by name with a
TactusError before anything runs."""

import decimal
import os
import pathlib
import shutil
import unittest

import tactus
import wrong_inputs
from tactus import AsyncLLM, PlanCosts, SamplingParams, plan, simulate
from tiny_model import TinyModel
from wrong_inputs import Array, Float64, Real, Whole


class InputsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        cls.llm = cls.tiny.llm()
        cls.awaited = AsyncLLM(str(cls.tiny.path), **cls.tiny.options)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()
        cls.awaited.close()
        cls.tiny.close()

    def test_every_wrong_value_of_every_parameter_is_refused_by_its_name(self):
        before = self.llm.outcome()["steps"]

        def make(model=str(self.tiny.path), **options):
            return tactus.LLM(model, **dict(self.tiny.options, **options))

        for case in wrong_inputs.cases(self.llm, self.awaited, make):
            for value in case.values:
                with self.subTest(case.label, value=wrong_inputs.tactus._check.shown(value)):
                    self.assertEqual(wrong_inputs.fault(case, value), "")
        self.assertEqual(self.llm.outcome()["steps"], before, "something has run")

    def test_errors_name_argument_type_and_what_to_pass(self):
        for call, message in [
            (lambda: self.llm.generate(b"hello"), "prompts: b'hello' is bytes; give a string, a list of token ids"),
            (lambda: self.llm.generate(["a", b"b"]), "prompts[1]: b'b' is bytes; give a string"),
            (lambda: SamplingParams(stop_token_ids=b"ab"), "stop_token_ids: b'ab' is bytes; give a list of token ids"),
            (lambda: self.llm.decode(b"ab"), "token_ids: b'ab' is bytes; give a list of token ids"),
            (lambda: self.llm.decode("12"), "token_ids: '12' is a str; give a list of token ids"),
            (lambda: self.llm.answer_each("abc"), "prompts: 'abc' is a str; give a list of prompts"),
            (lambda: self.llm.answer_each({"a": 1}), "prompts: {'a': 1} is a dict; give a list of prompts"),
            (lambda: self.llm.chat("hello"), "messages: 'hello' is a str; give a list of messages"),
            (lambda: SamplingParams(temperature=float("nan")), "temperature: nan is not finite; give a finite number"),
            (lambda: self.llm.encode("a\ud800"), "text: '\\ud800' at position 1 is a lone surrogate"),
            (lambda: self.llm.generate("a", 3), "sampling_params: 3 is an int; give one SamplingParams"),
        ]:
            with self.subTest(message=message):
                with self.assertRaises(tactus.TactusError) as caught:
                    call()
                self.assertTrue(str(caught.exception).startswith(message), str(caught.exception))
                self.assertTrue(caught.exception.param)

    def test_a_wrong_type_is_a_type_error_and_a_value_error(self):
        with self.assertRaises(tactus.ArgumentTypeError) as caught:
            self.llm.generate(b"hello")
        for kind in (TypeError, ValueError, tactus.InvalidArgumentError, tactus.TactusError):
            self.assertIsInstance(caught.exception, kind)

    def test_every_wrong_type_is_one(self):
        def make(**options):
            return tactus.LLM(str(self.tiny.path), **{**self.tiny.options, **options})

        for call, message, param in [
            (lambda: SamplingParams(n="2"), "n: '2' is a str; give a whole number", "n"),
            (lambda: SamplingParams(n=True), "n: True is a bool; give a whole number", "n"),
            (lambda: SamplingParams(n=2.5), "n: 2.5 is a float; give a whole number", "n"),
            (lambda: SamplingParams(max_tokens=[1]), "max_tokens: [1] is a list; give a whole number", "max_tokens"),
            (
                lambda: SamplingParams(temperature="0"),
                "temperature: '0' is a str; give a finite number",
                "temperature",
            ),
            (lambda: SamplingParams(top_p=True), "top_p: True is a bool; give a finite number", "top_p"),
            (lambda: SamplingParams(ignore_eos=1), "ignore_eos: 1 is an int; give True or False", "ignore_eos"),
            (lambda: SamplingParams(stop={"a": 1}), "stop: {'a': 1} is a dict; give a string or a list of st", "stop"),
            (lambda: SamplingParams(stop=[5]), "stop: 5 is an int; give a string or a list of strings", "stop"),
            (lambda: SamplingParams(stop_token_ids=5), "stop_token_ids: 5 is an int; give a list", "stop_token_ids"),
            (lambda: SamplingParams(tools=5), "tools: 5 is an int; give a list of tools", "tools"),
            (lambda: SamplingParams(logit_bias={1: "x"}), "logit_bias: 'x' is a str; give", "logit_bias"),
            (lambda: SamplingParams(slo={1: 2}), "slo: its key: 1 is an int; give strings as keys", "slo"),
            (lambda: make(max_model_len=0.5), "max_model_len: 0.5 is a float; give a whole number", "max_model_len"),
            (lambda: make(threads=True), "threads: True is a bool; give a whole number", "threads"),
            (lambda: make(prefix_caching=2), "prefix_caching: 2 is an int; give True or False", "prefix_caching"),
            (lambda: make(kv_cache_memory=True), "kv_cache_memory: True is a bool; give text", "kv_cache_memory"),
            (lambda: make(dtype=5), "dtype: 5 is an int; give a string", "dtype"),
            (lambda: make(chat_template=5), "chat_template: 5 is an int; give a string or a path", "chat_template"),
            (lambda: tactus.LLM(model=5), "model: 5 is an int; give a string or a path", "model"),
            (lambda: tactus.AsyncLLM(True), "model: True is a bool; give a string or a path", "model"),
        ]:
            with self.subTest(message=message):
                with self.assertRaises(tactus.ArgumentTypeError) as caught:
                    call()
                self.assertTrue(str(caught.exception).startswith(message), str(caught.exception))
                self.assertEqual(caught.exception.param, param)
        with self.assertRaisesRegex(tactus.InvalidArgumentError, "model: empty; give"):
            tactus.LLM(model="")

    def test_all_number_types_are_accepted_alike(self):
        plain = SamplingParams(n=2, temperature=0.5, max_tokens=4, seed=3, stop_token_ids=[5, 6], logit_bias={7: 1.5})
        for whole, real in ((Whole, Real), (Float64, Float64), (float, float), (decimal.Decimal, decimal.Decimal)):
            with self.subTest(kind=whole.__name__):
                params = SamplingParams(
                    n=whole(2),
                    temperature=real(0.5),
                    max_tokens=whole(4),
                    seed=whole(3),
                    stop_token_ids=[whole(5), whole(6)],
                    logit_bias={whole(7): real(1.5)},
                )
                self.assertEqual(params, plain)
                self.assertEqual(repr(params), repr(plain))
                self.assertEqual(self.llm.decode([whole(50), whole(51)]), self.llm.decode([50, 51]))
                params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
                first = self.llm.generate([[whole(5), whole(6)]], params, priority=[whole(1)], use_tqdm=False)
                self.assertEqual(first[0].prompt_token_ids, [5, 6])
                made = plan(
                    [[whole(1), whole(2)]],
                    max_tokens=whole(4),
                    costs=wrong_inputs.COSTS,
                    kv_tokens=whole(100),
                    split_share=real(0.01),
                    overlap=(real(0.5), real(0)),
                    seed=whole(1),
                )
                self.assertEqual(made.order, [0])
                result = simulate(
                    model="llama-3.1-8b",
                    device="a100",
                    workload="chat",
                    rate=whole(2),
                    requests=whole(3),
                    seed=whole(1),
                )
                self.assertEqual(result["requests"]["completed"], 3)
                with self.tiny.llm(max_num_seqs=whole(4)) as llm:
                    self.assertEqual(llm.encode("a"), self.llm.encode("a"))
        self.assertEqual(
            PlanCosts.of("llama-3.1-8b", "a100", Whole(2)), PlanCosts.of("llama-3.1-8b", "a100", Float64(2))
        )

    def test_arrays_are_accepted_like_lists(self):
        params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True, stop_token_ids=Array([5]))
        self.assertEqual(params.stop_token_ids, [5])
        by_list = self.llm.generate([[5, 6], [7]], params, use_tqdm=False)
        for prompts in (
            Array([[5, 6], [7]]),
            [Array([5, 6]), (7,)],
            ({"prompt_token_ids": Array([5, 6])}, range(7, 8)),
        ):
            by_array = self.llm.generate(prompts, params, priority=Array([0, 0]), use_tqdm=False)
            self.assertEqual([o.outputs for o in by_array], [o.outputs for o in by_list])
        (one,) = self.llm.generate(Array([5, 6]), params, use_tqdm=False)
        self.assertEqual(one.outputs, by_list[0].outputs)
        self.assertEqual(self.llm.decode(Array([50, 51])), self.llm.decode(i for i in (50, 51)))

    def test_iterators_are_accepted_like_lists(self):
        params = SamplingParams(max_tokens=1)
        self.assertEqual(len(self.llm.generate((p for p in ("a", "b")), params, use_tqdm=False)), 2)
        self.assertEqual(len(self.llm.generate({1: "a", 2: "b"}.values(), iter([params] * 2), use_tqdm=False)), 2)
        self.assertEqual(len(self.llm.chat(([m] for m in wrong_inputs.CHAT * 2), params, use_tqdm=False)), 2)

    def test_paths_that_are_no_utf_8_work_or_are_named(self):
        folder = os.fsencode(self.tiny.path.parent) + b"/tactus-\xff-" + os.fsencode(self.tiny.path.name)
        shutil.copytree(os.fsencode(self.tiny.path), folder)
        self.addCleanup(shutil.rmtree, folder)
        options = {k: v for k, v in self.tiny.options.items() if k != "chat_template"}
        template = os.path.join(folder, b"chat.jinja")
        for model in (os.fsdecode(folder), pathlib.Path(os.fsdecode(folder))):
            with tactus.LLM(model, **options, chat_template=os.fsdecode(template)) as llm:
                self.assertEqual(os.fsencode(llm.model["path"]), folder)
                self.assertIn("tactus-", llm.model["name"])
                self.assertEqual(len(llm.chat(wrong_inputs.CHAT, SamplingParams(max_tokens=1), use_tqdm=False)), 1)
                llm.outcome(), llm.metrics_text(), repr(llm)
        for missing in (os.fsdecode(folder + b"-missing"), pathlib.Path(os.fsdecode(folder + b"-missing"))):
            with self.assertRaisesRegex(tactus.NotFoundError, "missing"):
                tactus.LLM(missing)

    def test_params_keep_the_values_passed(self):
        stops = ["a"]
        params = SamplingParams(stop=stops)
        stops.append(b"b")
        self.assertEqual(params.stop, ["a"])


if __name__ == "__main__":
    unittest.main()
