"""`tactus sim step` and `tactus sim chunk` as scripts call them: output and errors."""

import json
import re
import unittest

from command_case import tactus

DEPLOYMENT = ["--model", "llama-3.1-8b", "--device", "h100"]
ONE_REQUEST = ["--workload", "random:in=10,out=2", "--requests", 1, "--concurrency", 1]


class StepTest(unittest.TestCase):
    def json(self, *args):
        done = tactus("sim", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def wrong(self, args, *expected):
        done = tactus("sim", *args)
        self.assertEqual(done.returncode, 2, done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)

    def test_a_step_is_the_sum_of_its_parts(self):
        for extra in ([], ["--tp", 2, "--pp", 2], ["--overlap", "nano"]):
            step = self.json("step", *DEPLOYMENT, "--decodes", "32x4096", "--chunk", "512@1024", *extra)
            self.assertAlmostEqual(sum(part["ms"] for part in step["parts"]), step["step_ms"], delta=1e-4)
            self.assertAlmostEqual(sum(step["kinds"].values()), step["step_ms"], delta=1e-4)
            self.assertEqual(
                (step["prompt_tokens"], step["decodes"], step["decode_context_tokens"]), (512, 32, 32 * 4097)
            )
            self.assertTrue(0 < step["mfu"] < 1 and 0 < step["mbu"] < 1)
        text = tactus("sim", "step", *DEPLOYMENT, "--decodes", "32x4096")
        self.assertIn("attention of decodes", text.stdout)

    def test_wrong_steps(self):
        self.wrong(["step", *DEPLOYMENT], "the step is empty")
        self.wrong(["step", *DEPLOYMENT, "--decodes", "32"], "--decodes '32'", "32x4096")
        self.wrong(["step", *DEPLOYMENT, "--chunk", "0@5"], "--chunk '0@5'")
        self.wrong(["step", "--device", "h100", "--chunk", "5"], "--model is missing")
        longest = self.json("step", *DEPLOYMENT, "--decodes", "1000000000x1000000000")
        self.assertGreater(longest["step_ms"], 0)

    def test_a_chunk_is_the_fastest_of_its_candidates(self):
        deployment = ("--model", "llama-13b", "--device", "a6000", "--attention-kernels", "two")
        found = self.json("chunk", *deployment, "--ratio", 15, "--sequence-tokens", 1024, "--sequences", 18)
        self.assertEqual((found["prompt_tokens"], found["answer_tokens"]), (960, 64))
        self.assertAlmostEqual(found["balanced_step_tokens"], 15 * 17, msg="C = P:D x (B - 1)")
        best, rows = found["best"], found["candidates"]
        self.assertEqual(best["step_tokens"], 256, "the paper's choice, at which chunks and decodes balance")
        self.assertEqual(best["tokens_per_s"], max(row["tokens_per_s"] for row in rows))
        for row in rows:
            self.assertEqual(row["ties_with_best"], row["tokens_per_s"] >= 0.99 * best["tokens_per_s"])
            self.assertLessEqual(row["chunk_tokens"] + row["decodes_beside"], row["step_tokens"])
            self.assertGreaterEqual(row["chunks"] * row["chunk_tokens"], 960)
            tokens = row["chunks"] * row["decodes_beside"] + row["steps_of_decodes"] * 18
            self.assertGreaterEqual(tokens, 64 - 1e-9, "an answer has all of its tokens")
        text = tactus(
            "sim", "chunk", *deployment, "--prompt-tokens", 960, "--answer-tokens", 64, "--sequences", 18
        ).stdout
        self.assertIn("best: --token-budget 256", text)

    def test_a_chunk_needs_requests(self):
        self.wrong(["chunk", *DEPLOYMENT, "--sequences", 8], "prompts of 0 and answers of 0 tokens", "--ratio")
        lengths = ["--prompt-tokens", 900, "--answer-tokens", 100]
        self.wrong(["chunk", *DEPLOYMENT, *lengths], "--sequences is 0", "at least 2")
        self.wrong(["chunk", *DEPLOYMENT, *lengths, "--ratio", 3, "--sequences", 8], "not both")
        self.wrong(["chunk", *DEPLOYMENT, "--ratio", 3, "--sequences", 8], "--sequence-tokens")
        self.wrong(["chunk", "--device", "h100", *lengths, "--sequences", 8], "--model is missing")

    def test_a_chunk_is_of_requests_that_fit_the_context(self):
        small = ["chunk", "--model", "llama-13b", "--device", "a6000", "--sequences", 4]
        longer = ["--prompt-tokens", 2000, "--answer-tokens", 49]
        self.wrong(
            [*small, *longer],
            "prompt of 2000 tokens + an answer of 49 exceed the context of 2048 tokens",
            "give an answer up to 48, or raise the context with --override-context 2049",
        )
        self.json(*small, *longer, "--override-context", 2049)
        self.json(*small, "--prompt-tokens", 2000, "--answer-tokens", 48)
        self.wrong(
            [*small, "--prompt-tokens", 900, "--answer-tokens", 100, "--max-model-len", 900],
            "exceed the context of 900 tokens; shorten the prompt, or raise the context with --max-model-len 1000",
        )

    def test_a_chunk_is_of_sequences_that_fit_the_kv_memory(self):
        # A sequence needs 63 blocks of 16 tokens.
        lengths = ["--prompt-tokens", 900, "--answer-tokens", 100]
        small = ["chunk", "--model", "llama-13b", "--device", "a6000", *lengths]
        self.wrong(
            [*small, "--sequences", 4, "--kv-blocks", 4 * 63 - 1],
            "4 sequences of 1000 tokens need 252 KV blocks of 16 tokens and there are 251",
            "give --sequences up to 3, shorten prompt or answer, or raise --kv-blocks",
        )
        self.json(*small, "--sequences", 4, "--kv-blocks", 4 * 63)
        self.wrong([*small, "--sequences", 4, "--kv-blocks", 100], "and there are 100; shorten prompt or answer")
        # The number of blocks from the memory plan, as in `tactus sim`.
        plan = re.search(r"KV .* GiB: (\d+) blocks", tactus("sim", *small[1:5], *ONE_REQUEST).stderr)
        most = int(plan[1]) // 63
        self.json(*small, "--sequences", most)
        self.wrong([*small, "--sequences", most + 1], f"and there are {plan[1]}; give --sequences up to {most},")
        large = ["chunk", "--model", "llama-3.1-70b", "--device", "a6000", *lengths, "--sequences", 4]
        self.wrong(large, "llama-3.1-70b does not fit a6000", "--tp 4")


if __name__ == "__main__":
    unittest.main()
