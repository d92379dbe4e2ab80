#!/usr/bin/env python3
"""Measures Llumnix's three mechanisms in simulated fleets with little KV memory: migration of running sequences,
headroom for requests of high priority, and replicas that are started and drained by load. Prints Markdown tables.

    bench/fleet/llumnix.py [TACTUS] [-o FILE.json] [--parts moves,headroom,scaling] [--requests 4000] [--seeds 1,2,3]
    [--jobs 2]

  moves     every balancer, and llumnix with and without migration, at several loads and in bursts: preemptions,
            latencies, migrations, and failed migrations by cause
  headroom  one request in ten has high priority (its own order in the queue, as in the paper): latencies of both
            kinds without and with headroom
  scaling   fixed fleets and one that grows and shrinks, under a load that rises and falls: latencies against the
            replicas in use

Llama-2-7B on an L4 of 24 GB: 882 blocks of KV memory, 14,112 tokens, about ten chats (the paper's machine has an A10 of
24 GB). Lengths of Azure's chat trace of 2023, up to the model's context of 4,096; steps of 512 tokens, sarathi-serve,
prefix caching off. Load is the arrival rate as a share of the fleet's capacity: the replicas times the throughput of
one replica when all requests arrive at once. gamma:CV: gaps whose coefficient of variation is CV. A figure is the
median of the seeds; counts are their sum.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLICAS = 8
DEPLOYMENT = ["--model", "llama-2-7b", "--device", "l4"]
ENGINE = [
    *("--scheduler", "sarathi-serve", "--token-budget", "512", "--tbt-slo", "none", "--max-queue", "1048576"),
    *("--long-prompts", "clip", "--prefix-caching", "off", "--ignore-eos", "off", "--exact-percentiles"),
]
STAY = ["--migration-gbytes-per-s", "0"]
BALANCERS = {
    "random": ["--balancer", "random"],
    "least-outstanding": ["--balancer", "least-outstanding"],
    "sal": ["--balancer", "sal"],
    "llumnix, none moves": ["--balancer", "llumnix", *STAY],
    "llumnix": ["--balancer", "llumnix"],
}
LOADS = (("poisson", 0.8), ("poisson", 0.95), ("gamma:4", 0.8), ("gamma:4", 1.2))
HIGH_SHARE = 0.1
HEADROOMS = (0, 6000, 10000, 12500)
PARTS = ("moves", "headroom", "scaling")


def run(tactus, workload, flags):
    command = [tactus, "sim", *DEPLOYMENT, *ENGINE, "--workload", workload, *flags, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.trace = args.data / "traces/azure2023_conv.csv"
        self.lengths = f"lengths:{self.trace}"
        self.most = self.simulate(["--arrivals", "constant", "--rate", "1000000"], 1)["request_throughput"]

    def simulate(self, flags, seed, workload=None):
        count = ["--requests", str(self.args.requests)] if workload is None or workload.startswith("lengths") else []
        return run(self.args.tactus, workload or self.lengths, [*count, "--seed", str(seed), *flags])

    def seeds(self, flags, workload=lambda seed: None):
        return [self.simulate(flags, seed, workload(seed)) for seed in self.args.seeds]

    def rate(self, load):
        return ["--rate", f"{load * REPLICAS * self.most:.6g}"]

    def high_priority(self):
        """The trace's lengths, one row in ten with high priority and a separate class, so that both are reported."""
        path = self.folder / "priorities.csv"
        draw = random.Random(1)
        with open(self.trace, newline="") as trace, open(path, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["prompt_tokens", "output_tokens", "priority", "slo_class"])
            for row in csv.DictReader(trace):
                high = draw.random() < HIGH_SHARE
                lengths = row["prompt_tokens"], row["output_tokens"]
                out.writerow([*lengths, *((-1, "high") if high else (0, "other"))])
        return f"lengths:{path}"

    def waves(self, seed, hours=2):
        """A load that rises and falls: three waves an hour between a tenth and nine tenths of the fleet's capacity."""
        path = self.folder / f"waves_{seed}.csv"
        draw = random.Random(seed)
        with open(self.trace, newline="") as trace:
            rows = list(csv.DictReader(trace))
        with open(path, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
            at, most = 0.0, 0.9 * REPLICAS * self.most
            while True:
                at += draw.expovariate(most)
                if at > hours * 3600:
                    break
                share = abs(1 - 2 * (at / 1200 % 1))  # 1 at the beginning and the end of a wave, 0 in its middle
                if draw.random() > 1 / 9 + 8 / 9 * (1 - share):
                    continue
                row = rows[draw.randrange(len(rows))]
                out.writerow([f"{at:.6f}", row["prompt_tokens"], row["output_tokens"]])
        return f"trace:{path}"


def at(results, *keys, unit=1e-3):
    def of(result):
        for key in keys:
            result = result[key]
        return result * unit

    return statistics.median(of(result) for result in results)


def total(results, *keys):
    values = []
    for result in results:
        for key in keys:
            result = result[key] if result is not None else None
        values.append(result or 0)
    return sum(values)


def in_turn(pool, jobs):
    """Runs jobs, a dict of name -> arguments of a call; returns name -> results."""
    futures = {name: pool.submit(*job) for name, job in jobs.items()}
    return {name: future.result() for name, future in futures.items()}


def moves(bench, pool):
    fleet = ["--replicas", str(REPLICAS)]
    jobs = {
        (arrivals, load, name): (bench.seeds, [*fleet, *flags, "--arrivals", arrivals, *bench.rate(load)])
        for arrivals, load in LOADS
        for name, flags in BALANCERS.items()
    }
    found = in_turn(pool, jobs)
    for arrivals, load in LOADS:
        print(f"\n{REPLICAS} replicas, load {load:g} ({load * REPLICAS * bench.most:.3g} requests/s), {arrivals}\n")
        print("| | TTFT P50, s | P95 | P99 | answer P50, s | P99 | tokens/s | preempted | computed again |")
        print("|---|" + "---|" * 8)
        for name in BALANCERS:
            r = found[arrivals, load, name]
            print(
                f"| {name} | {at(r, 'ttft_ms', 'p50'):.3g} | {at(r, 'ttft_ms', 'p95'):.3g} |"
                f" {at(r, 'ttft_ms', 'p99'):.3g} | {at(r, 'e2e_ms', 'p50'):.3g} | {at(r, 'e2e_ms', 'p99'):.3g} |"
                f" {at(r, 'output_token_throughput', unit=1):.0f} | {total(r, 'preemptions'):,} |"
                f" {total(r, 'recomputed_tokens'):,} |"
            )
    causes = ("ended", "outgrew", "no_room", "refused")
    print("\n| llumnix | moved | of them without KV | stayed | " + " | ".join(causes) + " |\n|---|" + "---|" * 7)
    for arrivals, load in LOADS:
        r = found[arrivals, load, "llumnix"]
        figures = [total(r, "migrations", key) for key in ("moved", "without_kv", "failed", *causes)]
        print(f"| load {load:g}, {arrivals} | " + " | ".join(f"{x:,}" for x in figures) + " |")
    return {" ".join(map(str, key)): value for key, value in found.items()}


def headroom(bench, pool):
    workload = bench.high_priority()
    fleet = ["--replicas", str(REPLICAS), "--balancer", "llumnix", "--arrivals", "gamma:2", *bench.rate(0.7)]
    rows = {"no priorities": [], **{f"headroom {n:,}": ["--priority-headroom", str(n)] for n in HEADROOMS}}
    ordered = ["--order", "priority"]
    found = in_turn(
        pool,
        {
            name: (bench.seeds, [*fleet, *([] if name == "no priorities" else ordered), *flags], lambda _: workload)
            for name, flags in rows.items()
        },
    )
    print(f"\n{REPLICAS} replicas, load 0.7 ({0.7 * REPLICAS * bench.most:.3g} requests/s), gamma:2, one in ten high\n")
    print(
        "| | high: TTFT P50, s | P99 | TPOT mean, ms | answer mean, s | others: TTFT P50, s | P99 | TPOT mean, ms |",
        end="",
    )
    print(" answer mean, s | moved | preempted |\n|---|" + "---|" * 10)
    for name, r in found.items():
        cells = []
        for kind in ("high", "other"):
            c = lambda *keys, **more: at(r, "classes", kind, *keys, **more)
            cells += [f"{c('ttft_ms', 'p50'):.3g}", f"{c('ttft_ms', 'p99'):.3g}"]
            cells += [f"{c('tpot_ms', 'mean', unit=1):.1f}", f"{c('e2e_ms', 'mean'):.3g}"]
        print(f"| {name} | {' | '.join(cells)} | {total(r, 'migrations', 'moved'):,} | {total(r, 'preemptions'):,} |")
    return found


def scaling(bench, pool):
    files = {seed: bench.waves(seed) for seed in bench.args.seeds}
    rows = {f"{n} replicas": ["--replicas", str(n)] for n in (4, 5, 6, 7, REPLICAS)}
    for below, above in ((10, 60), (50, 200), (200, 500), (500, 2000)):
        rows[f"2 to {REPLICAS}, {below} to {above} tokens"] = [
            *("--replicas", "2", "--most-replicas", str(REPLICAS)),
            *("--scale-up-below", str(below), "--scale-down-above", str(above)),
        ]
    found = in_turn(
        pool, {name: (bench.seeds, ["--balancer", "llumnix", *flags], files.get) for name, flags in rows.items()}
    )
    print("\nTwo hours, three waves an hour between 0.1 and 0.9 of the capacity of 8 replicas\n")
    print("| | replicas on average | started | drained | TTFT P50, s | P95 | P99 | answer P50, s | P99 | moved |")
    print("|---|" + "---|" * 9)
    for name, r in found.items():
        fixed = r[0]["scaling"] is None
        used = at(r, "replicas", unit=1) if fixed else at(r, "scaling", "mean_replicas", unit=1)
        print(
            f"| {name} | {used:.2f} | {total(r, 'scaling', 'started')} | {total(r, 'scaling', 'drained')} |"
            f" {at(r, 'ttft_ms', 'p50'):.3g} | {at(r, 'ttft_ms', 'p95'):.3g} | {at(r, 'ttft_ms', 'p99'):.3g} |"
            f" {at(r, 'e2e_ms', 'p50'):.3g} | {at(r, 'e2e_ms', 'p99'):.3g} | {total(r, 'migrations', 'moved'):,} |"
        )
    return found


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parse.add_argument("-o", "--output", type=pathlib.Path, help="file for all results, as JSON")
    parse.add_argument("--parts", default=",".join(PARTS))
    parse.add_argument("--requests", type=int, default=4000)
    parse.add_argument("--seeds", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2, 3])
    parse.add_argument("--jobs", type=int, default=2)
    parse.add_argument(
        "--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("TACTUS_DATA", ROOT.parent / "shared/data"))
    )
    args = parse.parse_args()
    parts = args.parts.split(",")
    if unknown := [p for p in parts if p not in PARTS]:
        sys.exit(f"llumnix.py: part '{unknown[0]}' is unknown; the parts are {', '.join(PARTS)}")
    if not (args.data / "traces").is_dir():
        sys.exit(f"llumnix.py: no traces in {args.data}; set TACTUS_DATA or pass --data")
    kept = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        bench = Bench(args, pathlib.Path(folder))
        for part in parts:
            kept[part] = globals()[part](bench, pool)
            sys.stdout.flush()
    if args.output:
        args.output.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
