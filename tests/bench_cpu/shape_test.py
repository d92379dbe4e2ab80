#!/usr/bin/env python3
"""bench/cpu: the counted operations and bytes of each model shape, and the aims of the mixture."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/cpu"))
import aims  # noqa: E402
import shape  # noqa: E402

CEILINGS = ("bf16_ops", "int8_ops", "f32_ops", "read_bytes")


class Shape(unittest.TestCase):
    def test_parameters_are_those_of_tinyllama(self):
        s = shape.DENSE
        self.assertEqual(
            s.layers * s.token_weights() + 2 * s.vocab * s.hidden + (2 * s.layers + 1) * s.hidden, 1_100_048_384
        )

    def test_the_mixture_has_3_billion_parameters_and_uses_0_6_billion_for_a_token(self):
        s = shape.MODELS["mixture"]
        whole = s.attention_weights() + s.router_weights() + s.experts * s.expert_weights()
        self.assertAlmostEqual((s.layers * whole + 2 * s.vocab * s.hidden) / 1e9, 3.1, places=1)
        self.assertAlmostEqual((s.layers * s.token_weights() + s.vocab * s.hidden) / 1e9, 0.57, places=1)

    def test_a_step_of_a_mixture_reads_its_expected_distinct_experts_once(self):
        s = shape.MODELS["mixture"]
        self.assertAlmostEqual(s.read_weights(1), s.token_weights())
        two = s.read_weights(2) - s.read_weights(1)
        self.assertAlmostEqual(two, (8 - 8 * 8 / 64) * s.expert_weights())  # one of the second token's eight is shared
        whole = s.attention_weights() + s.router_weights() + s.experts * s.expert_weights()
        self.assertAlmostEqual(s.read_weights(10_000), whole)

    def test_prefill_counts_every_pair_once(self):
        work = shape.prefill(5)
        self.assertEqual(work.pairs, sum(position + 1 for position in range(5)))
        self.assertEqual((work.tokens, work.rows), (5, 1))

    def test_a_decode_reads_each_context_and_its_own_token(self):
        work = shape.decode(3, 128)
        self.assertEqual((work.tokens, work.rows, work.pairs, work.kv_tokens), (3, 3, 387, 387))
        without = shape.bytes_read(shape.decode(0, 0), "bf16")
        self.assertEqual(
            shape.bytes_read(work, "bf16") - without - 2 * shape.DENSE.vocab * shape.DENSE.hidden,
            387 * 22 * 2 * 256 * 2,
        )

    def test_int8_keys_and_values_are_half_the_bytes(self):
        contexts = lambda kv: (
            shape.bytes_read(shape.decode(4, 1000), "int4", kv) - shape.bytes_read(shape.Work(4, 4, 0, 0), "int4", kv)
        )
        self.assertEqual(contexts("bf16"), 2 * contexts("int8"))

    def test_the_bound_is_the_larger_of_arithmetic_and_memory_time(self):
        slow_memory = shape.Ceilings(bf16=1e15, int8=1e15, read=1e9)
        slow_arithmetic = shape.Ceilings(bf16=1e9, int8=2e9, read=1e15)
        work = shape.decode(1, 128)
        self.assertAlmostEqual(shape.least_s(work, "int8", slow_memory), shape.bytes_read(work, "int8") / 1e9)
        self.assertAlmostEqual(
            shape.least_s(work, "int8", slow_arithmetic), shape.linear_ops(work) / 2e9 + shape.attention_ops(work) / 1e9
        )


class Mixture(unittest.TestCase):
    def test_a_mixture_has_its_own_aims(self):
        wanted = {"prefill 512": 1.6, "decode 1 at 128": 1.1, "decode 8 at 128": 2, "decode 32 at 1024": 2}
        for key, ratio in wanted.items():
            for fmt in aims.FORMATS:
                self.assertEqual((key, fmt, aims.wanted_ratio(fmt, key, "mixture")), (key, fmt, ratio))
        self.assertIsNone(aims.wanted_ratio("int8", "decode 4 at 128", "mixture"))

    def test_a_mixtures_ceiling_counts_its_experts(self):
        cell = {"tactus int8": {"all": [1.0]}, "ceilings": {k: [1e9] for k in CEILINGS}}
        limit = lambda model: aims.cell_rows("int8", {"decode 1 at 128": cell}, "bf16", model)[0]["limit"]
        work = shape.decode(1, 128)
        for model, s in shape.MODELS.items():
            seconds = shape.linear_ops(work, s) / 1e9 + shape.attention_ops(work, s) / 1e9
            self.assertAlmostEqual(limit(model), 1 / seconds)


if __name__ == "__main__":
    unittest.main()
