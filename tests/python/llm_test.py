"""LLM in one process: answers, their order and shape, wrong arguments, pieces, threads, closing. Tests that need a
separate process (signals, forks, exits) are in process_test.py."""

import pickle
import sys
import threading
import unittest

import tactus
from server_process import wait_until
from tactus import SamplingParams, _native
from tiny_model import TinyModel

LONG = SamplingParams(n=64, max_tokens=1500, ignore_eos=True, seed=1)  # runs longer than the test


class LlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        cls.llm = cls.tiny.llm()

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()
        cls.tiny.close()

    def texts(self, outputs):
        return [[choice.text for choice in output.outputs] for output in outputs]

    def test_answers_come_in_the_order_of_the_prompts(self):
        prompts = [f"prompt {i}" for i in range(20)]
        params = [SamplingParams(temperature=0, ignore_eos=True, max_tokens=1 + (7 * i) % 20) for i in range(20)]
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        self.assertEqual([output.prompt for output in outputs], prompts)
        self.assertEqual([output.request_id for output in outputs], [str(i) for i in range(20)])
        self.assertEqual([len(output.outputs[0].token_ids) for output in outputs], [p.max_tokens for p in params])
        alone = [self.llm.generate(prompt, p, use_tqdm=False)[0] for prompt, p in zip(prompts, params)]
        self.assertEqual(self.texts(outputs), self.texts(alone))

    def test_a_prompt_may_be_text_ids_or_a_dict(self):
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        text = "abc def"
        ids = self.llm.encode(text)
        (by_text,) = self.llm.generate(text, params, use_tqdm=False)
        self.assertEqual(by_text.prompt_token_ids, ids)
        for prompt in (
            ids,
            [ids],
            {"prompt": text},
            {"prompt_token_ids": ids},
            [{"prompt_token_ids": ids, "cache_salt": "mine"}],
        ):
            with self.subTest(prompt=prompt):
                (output,) = self.llm.generate(prompt, params, use_tqdm=False)
                self.assertEqual(output.outputs, by_text.outputs)
        self.assertEqual(self.llm.generate([], params), [])
        self.assertEqual(self.llm.decode(by_text.outputs[0].token_ids), by_text.outputs[0].text)

    def test_fields_of_an_answer(self):
        (output,) = self.llm.generate(
            "hello", SamplingParams(n=3, seed=5, logprobs=2, max_tokens=6, ignore_eos=True), use_tqdm=False
        )
        self.assertEqual([choice.index for choice in output.outputs], [0, 1, 2])
        for choice in output.outputs:
            self.assertEqual((choice.finish_reason, choice.stop_reason, len(choice.token_ids)), ("length", None, 6))
            self.assertEqual(len(choice.logprobs), 6)
            for token, row in zip(choice.token_ids, choice.logprobs):
                self.assertIn(token, row)
                self.assertEqual({entry.rank for entry in row.values()} - {None}, {1, 2})
            self.assertAlmostEqual(
                choice.cumulative_logprob, sum(row[t].logprob for t, row in zip(choice.token_ids, choice.logprobs))
            )
        self.assertGreater(len({choice.text for choice in output.outputs}), 1, "all choices are the same")
        (again,) = self.llm.generate(
            "hello", SamplingParams(n=3, seed=5, max_tokens=6, ignore_eos=True), use_tqdm=False
        )
        self.assertEqual(self.texts([again]), self.texts([output]))
        self.assertIsNone(again.outputs[0].logprobs)
        self.assertIsNone(again.outputs[0].cumulative_logprob)

    def test_stops_report_what_ended_the_answer(self):
        params = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
        whole = self.llm.generate("stop me", SamplingParams(**params), use_tqdm=False)[0].outputs[0]
        token = whole.token_ids[4]
        first = whole.token_ids.index(token)
        by_id = self.llm.generate("stop me", SamplingParams(stop_token_ids=[token], **params), use_tqdm=False)[
            0
        ].outputs[0]
        self.assertEqual((by_id.finish_reason, by_id.stop_reason), ("stop", token))
        self.assertEqual(by_id.token_ids, whole.token_ids[: first + 1])
        stop = whole.text[2:4]
        by_text = self.llm.generate("stop me", SamplingParams(stop=stop, **params), use_tqdm=False)[0].outputs[0]
        self.assertEqual((by_text.finish_reason, by_text.stop_reason), ("stop", stop))
        self.assertEqual(by_text.text, whole.text[: whole.text.index(stop)])

    def test_without_max_tokens_the_context_is_the_limit(self):
        with self.tiny.llm(max_model_len=64) as llm:
            (output,) = llm.generate([1, 2, 3], SamplingParams(max_tokens=None, ignore_eos=True), use_tqdm=False)
            (chat,) = llm.chat(
                [{"role": "user", "content": "a"}], SamplingParams(max_tokens=None, ignore_eos=True), use_tqdm=False
            )
        self.assertEqual(len(output.outputs[0].token_ids), 61)
        self.assertEqual(len(chat.outputs[0].token_ids) + len(chat.prompt_token_ids), 64)

    def test_prompts_share_their_beginning_unless_salted(self):
        def cached(salt):
            prompt = {"prompt_token_ids": list(range(100, 180)), "cache_salt": salt}
            return self.llm.generate([prompt], SamplingParams(max_tokens=1), use_tqdm=False)[0].num_cached_tokens

        self.assertEqual([cached("one"), cached("one"), cached("two"), cached("two")], [0, 64, 0, 64])

    def test_properties_of_model_and_engine(self):
        model = self.llm.model
        self.assertEqual((model["path"], model["max_model_len"], model["vocab_size"]), (str(self.tiny.path), 2048, 512))
        self.assertEqual(model["kv_tokens"] % 16, 0)
        self.assertGreater(model["kv_tokens"], 2048)
        before = self.llm.outcome()["requests"]["completed"]
        self.llm.generate(["a", "b"], use_tqdm=False)
        wait_until(lambda: self.llm.outcome()["requests"]["completed"] == before + 2, "both are counted")
        self.assertIn("vllm:prompt_tokens_total", self.llm.metrics_text())

    def test_chats_one_or_many(self):
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        one, two = ([{"role": "user", "content": text}] for text in ("first", "second"))
        outputs = self.llm.chat([one, two], params, use_tqdm=False)
        self.assertEqual(outputs[0].prompt, "<user>first\n<assistant>")
        self.assertEqual(
            self.texts(outputs),
            self.texts(self.llm.chat(one, params, use_tqdm=False) + self.llm.chat(two, params, use_tqdm=False)),
        )
        self.assertEqual(
            self.llm.chat(one, params, use_tqdm=False, add_generation_prompt=False)[0].prompt, "<user>first\n"
        )

    def test_more_requests_than_the_queue_holds(self):
        with self.tiny.llm(max_queue=2, max_num_seqs=2) as llm:
            outputs = llm.generate(
                [[i % 500 + 1] for i in range(30)], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False
            )
        self.assertEqual([len(output.outputs[0].token_ids) for output in outputs], [3] * 30)

    def test_only_requests_beyond_the_queue_fail(self):
        with self.tiny.llm(max_queue=2, max_num_seqs=2) as llm:
            params = [SamplingParams(n=n, max_tokens=3, ignore_eos=True) for n in (1, 3, 2)]
            outputs = llm.answer_each([[1], [2], [3]], params)
            with self.assertRaisesRegex(ValueError, "n is 3"):
                llm.generate([[1], [2], [3]], params, use_tqdm=False)
        self.assertRegex(str(outputs[1]), "n is 3; it must be between 1 and 2")
        self.assertEqual([len(outputs[i].outputs) for i in (0, 2)], [1, 2])

    def test_wrong_arguments_are_refused_by_name(self):
        ids = {"prompt_token_ids": [1]}
        cases = [
            (ValueError, "temperature: -1", lambda: SamplingParams(temperature=-1)),
            (ValueError, "top_p: 0 ", lambda: SamplingParams(top_p=0)),
            (TypeError, "temperature: 'hot' is a str; give a finite number", lambda: SamplingParams(temperature="hot")),
            (ValueError, "temperature: nan is not finite", lambda: SamplingParams(temperature=float("nan"))),
            (ValueError, "logprobs: 21", lambda: SamplingParams(logprobs=21)),
            (ValueError, "n: 0", lambda: SamplingParams(n=0)),
            (ValueError, "min_tokens: 3", lambda: SamplingParams(min_tokens=3, max_tokens=2)),
            (TypeError, "'best_of'", lambda: SamplingParams(best_of=2)),
            (TypeError, "object", lambda: SamplingParams(stop=object())),
            (
                ValueError,
                "stop_token_ids",
                lambda: self.llm.generate(ids, SamplingParams(stop_token_ids=[100000]), use_tqdm=False),
            ),
            (
                ValueError,
                "exceed the context of 2048 tokens",
                lambda: self.llm.generate(ids, SamplingParams(max_tokens=5000), use_tqdm=False),
            ),
            (ValueError, "prompt 1: ", lambda: self.llm.generate([[1], [1000000]], use_tqdm=False)),
            (ValueError, "1 for 2 prompts", lambda: self.llm.generate(["a", "b"], [SamplingParams()], use_tqdm=False)),
            (TypeError, "one SamplingParams", lambda: self.llm.generate(["a"], [{"temperature": 0}], use_tqdm=False)),
            (TypeError, "NoneType", lambda: self.llm.generate([None], use_tqdm=False)),
            (TypeError, "'text'", lambda: self.llm.generate([{"text": "a"}], use_tqdm=False)),
            (
                ValueError,
                "one of the keys",
                lambda: self.llm.generate([{"prompt": "a", "prompt_token_ids": [1]}], use_tqdm=False),
            ),
            (ValueError, "at least one token", lambda: self.llm.generate([{"prompt_token_ids": []}], use_tqdm=False)),
            (ValueError, "priority: 1 for 2", lambda: self.llm.generate(["a", "b"], priority=[1], use_tqdm=False)),
            (ValueError, "priority: expected", lambda: self.llm.generate(["a"], priority=["first"], use_tqdm=False)),
            (
                ValueError,
                "chat_template_kwargs",
                lambda: self.llm.chat([{"role": "user", "content": "a"}], chat_template_kwargs=3, use_tqdm=False),
            ),
            (
                ValueError,
                "cache_salt: expected",
                lambda: self.llm.generate([{"prompt": "a", "cache_salt": 3}], use_tqdm=False),
            ),
            (ValueError, "messages", lambda: self.llm.chat([{"content": "no role"}], use_tqdm=False)),
            (TypeError, "give a string", lambda: self.llm.encode(b"bytes")),
            (ValueError, "-1 is not a token id", lambda: self.llm.decode([-1])),
            (TypeError, "did you mean max_num_seqs", lambda: self.tiny.llm(max_num_seq=1)),
            (ValueError, "max_num_seqs: 0 is out of range", lambda: self.tiny.llm(max_num_seqs=0)),
            (ValueError, "dtype: 'float8' is not one of", lambda: self.tiny.llm(dtype="float8")),
            (TypeError, "threads", lambda: self.tiny.llm(threads=object())),
            (FileNotFoundError, "nowhere", lambda: tactus.LLM("nowhere")),
        ]
        before = self.llm.outcome()["steps"]
        for kind, message, call in cases:
            with self.subTest(message=message):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIn(message, str(caught.exception))
                self.assertNotIn("--", str(caught.exception))
        self.assertEqual(self.llm.outcome()["steps"], before, "something has run")

    def test_errors_travel_between_processes(self):
        with self.assertRaises(tactus.InvalidArgumentError) as caught:
            SamplingParams(n=0)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual(
            (type(again), again.message, again.param), (tactus.InvalidArgumentError, caught.exception.message, "n")
        )
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            pickle.dumps(self.llm)

    def test_pieces_add_up_to_the_answer(self):
        params = SamplingParams(n=2, seed=3, max_tokens=20, ignore_eos=True, logprobs=1)
        (whole,) = self.llm.generate("pieces", params, use_tqdm=False)
        texts, ids, rows, ends = ["", ""], [[], []], [[], []], {}
        for piece in self.llm.stream("pieces", params):
            texts[piece.index] += piece.text
            ids[piece.index] += piece.token_ids
            rows[piece.index] += piece.logprobs
            if piece.finish_reason:
                ends[piece.index] = piece.finish_reason
        self.assertEqual(texts, [choice.text for choice in whole.outputs])
        self.assertEqual(ids, [choice.token_ids for choice in whole.outputs])
        self.assertEqual(rows, [choice.logprobs for choice in whole.outputs])
        self.assertEqual(ends, {0: "length", 1: "length"})
        chat = [{"role": "user", "content": "hi"}]
        params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
        self.assertEqual(
            "".join(piece.text for piece in self.llm.stream_chat(chat, params)),
            self.llm.chat(chat, params, use_tqdm=False)[0].outputs[0].text,
        )

    def test_leaving_the_loop_cancels_the_request(self):
        before = self.llm.outcome()["requests"]["failed"]
        for _ in self.llm.stream("forever", LONG):
            break
        wait_until(
            lambda: self.llm.outcome()["requests"]["failed"] == before + 1,
            "the request that is not read is cancelled",
            30,
        )
        with self.llm.stream("forever", LONG) as stream:
            next(stream)
        self.assertEqual(list(stream), [])
        wait_until(lambda: self.llm.outcome()["requests"]["failed"] == before + 2, "the closed stream is cancelled", 30)

    def test_waiting_does_not_hold_the_interpreter(self):
        answers = _native.Answers(self.llm._engine, False)
        request = self.llm._engine.prepare(b'{"prompt": [0], "max_tokens": 1}', [1], False, False)
        seen, begun = [], threading.Event()

        def wait():
            begun.set()
            answers.wait(5.0)
            seen.extend(answers.take_pieces())

        # Threads switch only when they wait: the result must be delivered while the main thread waits.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(100)
        waiter = threading.Thread(target=wait)
        waiter.start()
        begun.wait(10)
        self.assertTrue(answers.submit(0, request, True))
        waiter.join(30)
        self.assertEqual(len(seen), 1, "the waiting thread blocked the others until its timeout")

    def test_threads_share_the_engine(self):
        params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
        prompts = [[f"thread {t} prompt {i}" for i in range(6)] for t in range(4)]
        alone = [self.texts(self.llm.generate(p, params, use_tqdm=False)) for p in prompts]
        together = [None] * 4

        def generate(t):
            together[t] = self.texts(self.llm.generate(prompts[t], params, use_tqdm=False))

        threads = [threading.Thread(target=generate, args=(t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(together, alone)

    def test_closing_ends_running_requests(self):
        llm = self.tiny.llm()
        stream = llm.stream("x", LONG)
        next(stream)
        caught = []

        def generate():
            try:
                llm.generate("long", LONG, use_tqdm=False)
            except tactus.TactusError as error:
                caught.append(error)

        thread = threading.Thread(target=generate)
        thread.start()
        wait_until(
            lambda: "vllm:num_requests_running" in llm.metrics_text() and llm.outcome()["steps"] > 3, "it runs", 30
        )
        llm.close()
        thread.join(30)
        self.assertFalse(thread.is_alive(), "generate() still waits after close()")
        self.assertEqual(len(caught), 1, "generate() came to its end")
        self.assertIsInstance(caught[0], (tactus.CancelledError, tactus.UnavailableError))
        with self.assertRaises(tactus.TactusError):
            list(stream)
        llm.close()
        for call in (
            lambda: llm.generate("a", use_tqdm=False),
            lambda: llm.encode("a"),
            lambda: llm.model,
            lambda: llm.stream("a"),
        ):
            with self.assertRaisesRegex(tactus.UnavailableError, "closed"):
                call()

    def test_progress_is_shown_by_the_callers_object(self):
        shown = []

        class Bar:
            def __init__(self, total, **_):
                shown.append(total)

            def update(self, count):
                shown.append(count)

            def close(self):
                shown.append("closed")

        self.llm.generate(["a", "b"], SamplingParams(max_tokens=1), use_tqdm=Bar)
        self.assertEqual(shown, [2, 1, 1, "closed"])

    def test_places_determine_the_order(self):
        body = b'{"prompt": [0], "max_tokens": %d, "ignore_eos": true}'
        with self.tiny.llm(order="dfs", max_num_seqs=1) as llm:
            for _ in range(20):  # until all wait while the first runs
                answers = _native.Answers(llm._engine, False)
                requests = [llm._engine.prepare(body % (1 if i else 1900), [i + 1], False, False) for i in range(5)]
                for i, request in enumerate(requests):
                    request.place(10 - i if i else 0, 1)
                    self.assertTrue(answers.submit(i, request, True))
                in_time = not answers.take_ended()
                ended = []
                wait_until(
                    lambda: (
                        len(ended) == 5
                        or answers.wait(0.05)
                        or ended.extend(e[0] for e in answers.take_ended())
                        or answers.take_pieces() is None
                    ),
                    "all end",
                    30,
                )
                if in_time:
                    break
        self.assertEqual(ended, [0, 4, 3, 2, 1])

    def test_a_plan_for_the_engine(self):
        prompts = [self.llm.encode(f"place {i}") for i in range(4)]
        costs = tactus.PlanCosts.of("llama-3.1-8b", "a100")
        plan = tactus.plan(prompts, max_tokens=4, costs=costs, order="blend", kv_tokens=1000)
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
        with self.tiny.llm(order="blend") as llm:
            outputs = llm.generate(prompts, params, use_tqdm=False, places=plan.places)
        self.assertEqual(self.texts(outputs), self.texts(self.llm.generate(prompts, params, use_tqdm=False)))


if __name__ == "__main__":
    unittest.main()
