"""plan(): orders, shards and figures. The quality of plans is tested with the planner (tests/offline/plan)."""

import random
import unittest

from tactus import PlanCosts, plan, simulate

COSTS = PlanCosts.of("llama-3.1-8b", "a100")


def job(requests=400, seed=1):
    rng = random.Random(seed)
    heads = [[rng.randrange(1000) for _ in range(rng.randrange(50, 400))] for _ in range(8)]
    prompts = [rng.choice(heads) + [rng.randrange(1000) for _ in range(rng.randrange(1, 200))] for _ in range(requests)]
    return prompts, [rng.choice((4, 30, 300, 1500)) for _ in range(requests)]


class PlanningTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prompts, cls.lengths = job()

    def plan(self, **options):
        return plan(
            self.prompts, **dict({"output_lengths": self.lengths, "costs": COSTS, "kv_tokens": 100_000}, **options)
        )

    def seconds(self, requests):
        compute = sum(
            COSTS.flops_per_token * (len(self.prompts[r]) + self.lengths[r]) / COSTS.flops_per_s for r in requests
        )
        memory = sum(
            COSTS.kv_bytes_per_token
            * self.lengths[r]
            * (len(self.prompts[r]) + self.lengths[r] / 2)
            / COSTS.bytes_per_s
            for r in requests
        )
        return compute, memory

    def test_every_order_has_every_request_once(self):
        for order in ("blend", "blend-dual-scan", "balance", "dfs", "fcfs", "random"):
            with self.subTest(order=order):
                made = self.plan(order=order)
                self.assertEqual(sorted(made.order), list(range(400)))
                self.assertEqual(sorted(made.start_order), list(range(400)))
                self.assertEqual([made.places[r][0] for r in made.start_order], list(range(400)))
                self.assertEqual(made, self.plan(order=order))
        self.assertEqual(self.plan(order="fcfs").order, list(range(400)))

    def test_shards_have_equal_work_and_density(self):
        for shards in (1, 2, 5):
            with self.subTest(shards=shards):
                made = self.plan(shards=shards)
                self.assertEqual(len(made.shards), shards)
                self.assertEqual(sorted(sum(made.shards, [])), list(range(400)))
                memory = [self.seconds(shard)[1] for shard in made.shards]
                self.assertLess(max(memory) / min(memory), 1.15, memory)

    def test_figures(self):
        summary = self.plan().summary
        self.assertEqual(summary["requests"], 400)
        self.assertEqual(summary["prompt_tokens"], sum(map(len, self.prompts)))
        self.assertEqual(summary["output_tokens"], sum(self.lengths))
        self.assertGreater(summary["optimal_sharing"], 0.5)
        self.assertLessEqual(summary["planned_sharing"], summary["optimal_sharing"])
        self.assertLessEqual(summary["bound_s"], summary["practical_bound_s"])
        self.assertEqual(COSTS.overlap, (1, 0))
        self.assertLess(self.plan(overlap=(0.0, 0.0)).summary["practical_bound_s"], summary["practical_bound_s"])
        self.assertGreater(
            self.plan(groups=list(range(400))).summary["planned_compute_s"], summary["planned_compute_s"]
        )
        self.assertAlmostEqual(COSTS.flops_per_token / 2 / 1e9, 7.5, delta=0.6)  # without embeddings

    def test_a_job_has_one_bound_in_plan_and_in_simulation(self):
        job = {"model": "llama-3.1-8b", "device": "a100"}
        prompts = [[1000 * i + j for j in range(512)] for i in range(40)]
        for options in (
            {},
            {"tensor_parallel_size": 2},
            {"overlap": "nano"},
            {"token_budget": 512},
            {"weight_dtype": "int8"},
        ):
            with self.subTest(options=options):
                made = simulate(
                    workload="random:in=512,out=128",
                    requests=40,
                    offline=True,
                    scheduler="blend",
                    planner_lengths="known",
                    **job,
                    **options,
                )["plan"]
                costs = PlanCosts.of(**job, **options)
                summary = plan(prompts, output_lengths=[128] * 40, costs=costs, kv_tokens=400_000).summary
                for name in ("bound_s", "practical_bound_s"):
                    self.assertAlmostEqual(summary[name] / made[name], 1, places=6, msg=name)

    def test_a_job_of_no_requests(self):
        made = plan([], costs=COSTS, kv_tokens=1, shards=2)
        self.assertEqual((made.order, made.places, made.shards, made.summary["requests"]), ([], [], [[], []], 0))

    def test_wrong_arguments(self):
        for kind, message, options in [
            (ValueError, "order: 'best' is not one of", {"order": "best"}),
            (ValueError, "shards: 0", {"shards": 0}),
            (TypeError, "kv_tokens: 1.5", {"kv_tokens": 1.5}),
            (ValueError, "output_lengths: 2 for", {"output_lengths": [1, 2]}),
            (ValueError, "output_lengths: 401 for 400", {"output_lengths": [1] * 401}),
            (ValueError, "output_lengths: 0", {"output_lengths": [0] * 400}),
            (ValueError, "planner's memory of 1000 bytes", {"planner_memory_bytes": 1000}),
            (TypeError, "costs", {"costs": None}),
            (ValueError, "split_share: -1", {"split_share": -1}),
            (ValueError, "overlap: nan", {"overlap": (float("nan"), 0)}),
        ]:
            with self.subTest(message=message):
                with self.assertRaises(kind) as caught:
                    self.plan(**options)
                self.assertIn(message, str(caught.exception))
        for kind, message, prompts in [
            (TypeError, "encode", ["text"]),
            (ValueError, "no tokens", [[]]),
            (ValueError, "prompts: -1", [[-1]]),
            (TypeError, "request 1", [[1], ["a"]]),
            (TypeError, "request 0", [[2**31]]),
        ]:
            with self.assertRaisesRegex(kind, message):
                plan(prompts, costs=COSTS, kv_tokens=100)
        with self.assertRaisesRegex(ValueError, "a99"):
            PlanCosts.of("llama-3.1-8b", "a99")
        with self.assertRaisesRegex(ValueError, "bytes_per_s is 0"):
            plan(
                [[1]],
                costs=PlanCosts(
                    flops_per_token=1, attention_flops=0, kv_bytes_per_token=1, flops_per_s=1, bytes_per_s=0
                ),
                kv_tokens=9,
            )


if __name__ == "__main__":
    unittest.main()
