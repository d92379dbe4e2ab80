#!/usr/bin/env python3
"""The cost of sharding an offline job: one planner over all requests against one shard for each of n workers.

  shards.py [--model FILE] [--requests 240] [--plan-only] [--seed 1]

Part 1 uses only the planner: the prompt tokens computed by all shards over those of the unsharded job, and the balance
of the shards. Part 2 runs the job: in one LLM, and on a local Ray cluster of two workers with half of the machine's
threads each. Needs the package and, for part 2, Ray (tests/python/requirements_ray.txt).
"""

import argparse
import os
import random
import time

from tactus import LLM, PlanCosts, SamplingParams, plan

WORKERS = 2


def job(requests, seed):
    """Token ids with shared prefixes, and lengths of answers: from short questions on long documents to long
    answers."""
    rng = random.Random(seed)
    heads = [
        [rng.randrange(5, 20000) for _ in range(rng.choice((64, 128, 256, 512)))] for _ in range(max(2, requests // 16))
    ]
    prompts, lengths = [], []
    for _ in range(requests):
        prompts.append(rng.choice(heads) + [rng.randrange(5, 20000) for _ in range(rng.randrange(8, 96))])
        lengths.append(rng.choice((4, 16, 64, 160)))
    return prompts, lengths


def computed(made):
    """The prompt tokens that the plan computes, without cache hits."""
    return made.summary["prompt_tokens"] * (1 - made.summary["planned_sharing"])


def count(prompts, lengths, costs, kv_tokens):
    print(
        f"{'shards':>6} {'prompt tokens computed':>23} {'more than in one':>17} {'compute time':>13}"
        f" {'largest / mean time':>20}"
    )
    whole = None
    for shards in (1, 2, 4, 8, 16):
        made = plan(prompts, output_lengths=lengths, costs=costs, kv_tokens=kv_tokens, shards=shards)
        parts = [
            plan(
                [prompts[r] for r in shard],
                output_lengths=[lengths[r] for r in shard],
                costs=costs,
                kv_tokens=kv_tokens,
            )
            for shard in made.shards
        ]
        tokens = sum(computed(part) for part in parts)
        seconds = [part.summary["planned_compute_s"] + part.summary["memory_s"] for part in parts]
        compute = sum(part.summary["planned_compute_s"] for part in parts)
        whole = whole or (tokens, compute)
        print(
            f"{shards:6} {tokens:23.0f} {100 * (tokens / whole[0] - 1):15.2f} % {100 * (compute / whole[1] - 1):+11.2f}"
            f" % {max(seconds) * shards / sum(seconds):20.3f}"
        )


def report(name, seconds, rows):
    prompt, cached, output = (sum(row[i] for row in rows) for i in range(3))
    print(
        f"{name:>14}: {seconds:7.1f} s, {prompt - cached} of {prompt} prompt tokens computed, {output} generated, "
        f"{(prompt + output) / seconds:.0f} tokens/s"
    )


def in_one(prompts, lengths, params, options, costs):
    with LLM(order="blend", **options) as llm:
        begin = time.monotonic()
        made = plan(prompts, output_lengths=lengths, costs=costs, kv_tokens=llm.model["kv_tokens"])
        outputs = llm.generate(prompts, params, use_tqdm=False, places=made.places)
        seconds = time.monotonic() - begin
    report(
        "one LLM",
        seconds,
        [(len(o.prompt_token_ids), o.num_cached_tokens, len(o.outputs[0].token_ids)) for o in outputs],
    )
    return [o.outputs[0].text for o in outputs]


def on_ray(prompts, lengths, options, costs):
    import json

    import ray
    import ray.data
    import tactus.ray

    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        object_store_memory=128 << 20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    made = plan(prompts, output_lengths=lengths, costs=costs, kv_tokens=KV_TOKENS, shards=WORKERS)
    rows = [{"prompt": p, "sampling_params": json.dumps(parameters(n))} for p, n in zip(prompts, lengths)]
    dataset = tactus.ray.shard_dataset(rows, made).map_batches(
        TimedWorker,
        batch_size=None,
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=WORKERS, max_tasks_in_flight_per_actor=1),
        fn_constructor_kwargs={"llm": {"order": "blend", **options}},
    )
    answered = sorted(dataset.take_all(), key=lambda row: row[tactus.ray.ROW_COLUMN])
    ray.shutdown()
    seconds = max(row["end"] for row in answered) - min(row["begin"] for row in answered)
    report(
        f"{WORKERS} Ray workers",
        seconds,
        [(r["prompt_tokens"], r["cached_tokens"], r["output_tokens"]) for r in answered],
    )
    for worker in sorted({row["worker"] for row in answered}):
        its = [row for row in answered if row["worker"] == worker]
        report(
            "one of them",
            its[0]["end"] - its[0]["begin"],
            [(r["prompt_tokens"], r["cached_tokens"], r["output_tokens"]) for r in its],
        )
    return [row["answer"] for row in answered]


def parameters(length):
    return {"temperature": 0, "max_tokens": length, "ignore_eos": True}


def timed_worker():
    import tactus.ray

    class TimedWorker(tactus.ray.BatchWorker):
        async def __call__(self, batch):
            begin = time.time()
            answers = await super().__call__(batch)
            rows = len(answers["answer"])
            return {**answers, "worker": [os.getpid()] * rows, "begin": [begin] * rows, "end": [time.time()] * rows}

    return TimedWorker


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--plan-requests", type=int, default=20000)
    parser.add_argument("--plan-only", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"planner: {args.plan_requests} requests, Llama 3.1 8B on an A100")
    count(*job(args.plan_requests, args.seed), PlanCosts.of("llama-3.1-8b", "a100"), 400_000)
    if args.plan_only:
        return
    prompts, lengths = job(args.requests, args.seed)
    cores = len(os.sched_getaffinity(0))
    # The default model's shape; rates of these processors, of which the plan needs only their ratio.
    costs = PlanCosts(
        flops_per_token=2 * 134.5e6,
        attention_flops=4 * 576 * 30,
        kv_bytes_per_token=4 * 3 * 64 * 30,
        flops_per_s=2e11,
        bytes_per_s=2e10,
    )
    print(f"runs: {args.requests} requests, {sum(map(len, prompts))} prompt tokens, {cores} cores")
    count(prompts, lengths, costs, KV_TOKENS)
    common = {"model": args.model, "kv_cache_memory": "256MiB"}
    params = [SamplingParams(**parameters(n)) for n in lengths]
    one = in_one(prompts, lengths, params, {"threads": cores, **common}, costs)
    two = on_ray(prompts, lengths, {"threads": max(1, cores // WORKERS), **common}, costs)
    print("answers:", "the same" if one == two else f"{sum(a != b for a, b in zip(one, two))} differ")


KV_TOKENS = 11_000  # capacity of 256 MiB: the planner assumes the engines' memory
TimedWorker = None

if __name__ == "__main__":
    try:
        TimedWorker = timed_worker()
    except ImportError:
        pass
    main()
