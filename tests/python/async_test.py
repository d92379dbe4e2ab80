"""AsyncLLM: the answers are those of LLM, the event loop keeps running, and requests that are no longer awaited end in
the engine."""

import asyncio
import threading
import unittest

import tactus
from server_process import wait_until
from tactus import AsyncLLM, SamplingParams
from tiny_model import TinyModel

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = SamplingParams(n=16, max_tokens=1800, ignore_eos=True, seed=1)
CHAT = [{"role": "user", "content": "a"}]


class AsyncTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        cls.llm = cls.tiny.llm()
        cls.awaited = AsyncLLM(str(cls.tiny.path), **cls.tiny.options)

    @classmethod
    def tearDownClass(cls):
        cls.awaited.close()
        cls.llm.close()
        cls.tiny.close()

    def outputs(self, answers):
        return [answer.outputs for answer in answers]

    def idle(self, llm=None):
        llm = llm or self.awaited
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        wait_until(
            lambda: all(line.endswith(" 0") for line in llm.metrics_text().splitlines() if line.startswith(names)),
            "nothing runs",
        )

    def test_async_answers_equal_those_of_llm(self):
        params = SamplingParams(n=2, seed=5, max_tokens=8, ignore_eos=True, logprobs=1)

        async def ask():
            many = await self.awaited.generate(["a", [5, 6], {"prompt": "b"}], GREEDY)
            return many, await self.awaited.generate("a", params), await self.awaited.chat([CHAT, CHAT], GREEDY)

        many, one, chats = asyncio.run(ask())
        self.assertEqual(
            self.outputs(many), self.outputs(self.llm.generate(["a", [5, 6], "b"], GREEDY, use_tqdm=False))
        )
        self.assertEqual([(a.request_id, a.prompt) for a in many], [("0", "a"), ("1", None), ("2", "b")])
        self.assertEqual(self.outputs(one), self.outputs(self.llm.generate("a", params, use_tqdm=False)))
        self.assertEqual(self.outputs(chats), self.outputs(self.llm.chat([CHAT, CHAT], GREEDY, use_tqdm=False)))
        self.assertEqual(chats[0].prompt, "<user>a\n<assistant>")

    def test_many_tasks_share_the_engine_and_the_loop(self):
        async def ask():
            beats, done = 0, False

            async def beat():
                nonlocal beats
                while not done:
                    beats += 1
                    await asyncio.sleep(0)

            heart = asyncio.create_task(beat())
            answers = await asyncio.gather(*(self.awaited.generate(f"prompt {i}", GREEDY) for i in range(40)))
            done = True
            await heart
            return answers, beats

        answers, beats = asyncio.run(ask())
        alone = self.llm.generate([f"prompt {i}" for i in range(40)], GREEDY, use_tqdm=False)
        self.assertEqual([a[0].outputs for a in answers], self.outputs(alone))
        self.assertGreater(beats, 100, "the loop stood still")

    def test_pieces_add_up_to_the_answer(self):
        async def read():
            first = [piece async for piece in self.awaited.stream("a", GREEDY)]
            async with self.awaited.stream_chat(CHAT, GREEDY) as stream:
                return first, [piece async for piece in stream]

        pieces, chat = asyncio.run(read())
        (whole,) = self.llm.generate("a", GREEDY, use_tqdm=False)
        self.assertEqual("".join(piece.text for piece in pieces), whole.outputs[0].text)
        self.assertEqual([i for piece in pieces for i in piece.token_ids], whole.outputs[0].token_ids)
        self.assertEqual(pieces[-1].finish_reason, "length")
        (whole,) = self.llm.chat(CHAT, GREEDY, use_tqdm=False)
        self.assertEqual("".join(piece.text for piece in chat), whole.outputs[0].text)

    def test_cancelling_a_task_ends_its_requests(self):
        async def read():
            async for _ in self.awaited.stream("a", LONG):
                pass

        async def one_piece():
            async for _ in self.awaited.stream("a", LONG):
                break

        async def cancel(make):
            steps = self.awaited.outcome()["steps"]
            task = asyncio.create_task(make())
            while self.awaited.outcome()["steps"] < steps + 3:
                await asyncio.sleep(0.005)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        for make in (lambda: self.awaited.generate(["a", "b", "c"], LONG), lambda: self.awaited.chat(CHAT, LONG), read):
            failed = self.awaited.outcome()["requests"]["failed"]
            asyncio.run(cancel(make))
            self.idle()
            self.assertGreater(self.awaited.outcome()["requests"]["failed"], failed)
        failed = self.awaited.outcome()["requests"]["failed"]
        asyncio.run(one_piece())
        self.idle()
        self.assertGreater(self.awaited.outcome()["requests"]["failed"], failed, "leaving the loop does not end it")
        with self.assertRaises(TimeoutError):
            asyncio.run(asyncio.wait_for(self.awaited.generate("a", LONG), 0.2))
        self.idle()

    def test_errors_come_as_from_llm(self):
        for call in (
            lambda: asyncio.run(self.awaited.generate([[1], [1000000]])),
            lambda: asyncio.run(self.awaited.generate("a", SamplingParams(max_tokens=5000))),
        ):
            with self.assertRaises(tactus.InvalidArgumentError):
                call()
        with self.assertRaisesRegex(tactus.InvalidArgumentError, "prompt 1: prompt: 1000000"):
            asyncio.run(self.awaited.generate([[1], [1000000]]))
        with self.assertRaises(tactus.ArgumentTypeError):
            self.awaited.stream(b"a")  # at once

    def test_a_second_reader_is_refused(self):
        async def read_twice():
            stream = self.awaited.stream("a", SamplingParams(max_tokens=200, ignore_eos=True))

            async def read():
                return [piece async for piece in stream]

            return await asyncio.gather(read(), read(), return_exceptions=True)

        one, two = asyncio.run(read_twice())
        self.assertGreaterEqual(len(one), 200)
        self.assertIsInstance(two, tactus.UnavailableError)

    def test_more_requests_than_the_queue_holds(self):
        async def ask():
            async with AsyncLLM(str(self.tiny.path), **dict(self.tiny.options, max_queue=2, max_num_seqs=2)) as llm:
                return await asyncio.gather(*(llm.generate([i + 1], GREEDY) for i in range(20)))

        self.assertEqual([len(a[0].outputs[0].token_ids) for a in asyncio.run(ask())], [12] * 20)

    def test_closing_ends_awaited_requests(self):
        async def close():
            llm = AsyncLLM(str(self.tiny.path), **self.tiny.options)
            tasks = [asyncio.create_task(llm.generate("a", LONG)), asyncio.create_task(anext(llm.stream("a", LONG)))]
            while llm.outcome()["steps"] < 3:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(llm.close)
            with self.assertRaises((tactus.CancelledError, tactus.UnavailableError)):
                await tasks[0]
            await asyncio.gather(tasks[1], return_exceptions=True)
            with self.assertRaisesRegex(tactus.UnavailableError, "closed"):
                await llm.generate("a", GREEDY)

        asyncio.run(close())

    def test_several_loops_may_share_one(self):
        got = []

        def ask(i):
            got.append(asyncio.run(self.awaited.generate(f"prompt {i}", GREEDY))[0].outputs[0].text)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        alone = self.llm.generate([f"prompt {i}" for i in range(4)], GREEDY, use_tqdm=False)
        self.assertEqual(sorted(got), sorted(a.outputs[0].text for a in alone))


if __name__ == "__main__":
    unittest.main()
