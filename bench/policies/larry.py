#!/usr/bin/env python3
"""Time to first token under LARRY compared with fcfs, no-preempt and trail-oracle, on the deployments and lengths of
its paper. Prints one Markdown table per setting, arrivals and load: percentiles of the time to the first token, in
seconds, of that time per prompt token, in milliseconds, and of the time to the whole answer, in seconds; each the
median over the seeds. The last columns count the seeds in which LARRY's percentile of the time to the first token is
lower.

    bench/policies/larry.py [TACTUS] [--settings 70b-code,8b-chat,...] [--loads 0.7,0.8,0.95] [--seeds 1,2,3,4,5]
                            [--requests 4000] [--arrivals poisson,gamma:2] [--lambdas 0.001,0.1,1] [-o FILE.json]

Load is the arrival rate as a share of the deployment's throughput when all requests arrive at time 0 (fcfs, mean over
the seeds). The paper's arrivals, from Azure Functions, are not available: `--arrivals` replaces them. gamma:CV draws
gaps of a gamma distribution whose coefficient of variation is CV: 1 would be Poisson, 2 and 4 are bursts. Every
scheduler has steps of 1,024 tokens; only trail-oracle knows answer lengths.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

LARGE = ["--model", "llama-3-70b", "--device", "h100", "--tp", "2", "--weight-dtype", "fp8"]
SMALL = ["--model", "llama-3-8b", "--device", "a100-40gb"]
SETTINGS = {
    "70b-code": [*LARGE, "--workload", "code"],
    "70b-chat": [*LARGE, "--workload", "chat"],
    "8b-code": [*SMALL, "--workload", "code"],
    "8b-chat": [*SMALL, "--workload", "chat"],
}
PERCENTILES = ["p50", "p95", "p99"]
FIGURES = [
    ("TTFT", "ttft_ms", 1e-3, PERCENTILES),
    ("per token", "normalized_ttft_ms", 1, PERCENTILES),
    ("answer", "e2e_ms", 1e-3, PERCENTILES[:2]),
]


def policies(lambdas):
    rows = {
        "larry": ["--scheduler", "larry"],
        "fcfs": ["--scheduler", "larry", "--order", "fcfs"],
        "trail-oracle, c = 0": ["--scheduler", "trail-oracle", "--trail-c", "0"],
        "no-preempt": ["--scheduler", "no-preempt"],
    }
    for value in lambdas:
        rows[f"larry, lambda {value}"] = ["--scheduler", "larry", "--larry-lambda", value]
    return rows


def simulate(tactus, setting, requests, seed, rate, arrivals, flags):
    command = [
        tactus,
        "sim",
        *SETTINGS[setting],
        "--token-budget",
        "1024",
        "--max-queue",
        "1048576",
        "--long-prompts",
        "clip",
        "--prefix-caching",
        "off",
        "--exact-percentiles",
        "--requests",
        str(requests),
        "--seed",
        str(seed),
        "--rate",
        f"{rate:.6g}",
        "--arrivals",
        arrivals,
        *flags,
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def table(title, figures, seeds):
    """`figures`: row -> seed -> (name, percentile) -> value."""
    columns = [(name, at) for name, _, _, percentiles in FIGURES for at in percentiles]
    print(f"\n{title}\n")
    print(
        "| |"
        + "".join(f" {name} {at.upper()} |" for name, at in columns)
        + " preempted, % |"
        + "".join(f" larry lower, {at.upper()} |" for at in PERCENTILES)
    )
    print("|---|" + "---|" * (len(columns) + 1 + len(PERCENTILES)))
    for row, by_seed in figures.items():
        line = f"| {row} |"
        for column in columns:
            line += f" {statistics.median(by_seed[seed][column] for seed in seeds):.3g} |"
        line += f" {statistics.median(by_seed[seed]['preempted'] for seed in seeds):.2f} |"
        for at in PERCENTILES:
            lower = sum(figures["larry"][seed][("TTFT", at)] < by_seed[seed][("TTFT", at)] for seed in seeds)
            line += " |" if row == "larry" else f" {lower} of {len(seeds)} |"
        print(line)
    sys.stdout.flush()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--settings", default=",".join(SETTINGS))
    parse.add_argument("--loads", default="0.7,0.8,0.95")
    parse.add_argument("--seeds", default="1,2,3,4,5")
    parse.add_argument("--requests", type=int, default=4000)
    parse.add_argument("--arrivals", default="poisson", help="arrival processes of tactus sim, one table each")
    parse.add_argument("--lambdas", default="", help="additional values of --larry-lambda, one row each")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    rows = policies([value for value in args.lambdas.split(",") if value])
    kept = {}
    for setting in args.settings.split(","):
        most = statistics.mean(
            simulate(args.tactus, setting, args.requests, seed, 1e6, "constant", rows["fcfs"])["request_throughput"]
            for seed in seeds
        )
        for arrivals, load in itertools.product(args.arrivals.split(","), map(float, args.loads.split(","))):
            figures = {row: {} for row in rows}
            for seed in seeds:
                for row, flags in rows.items():
                    result = simulate(args.tactus, setting, args.requests, seed, load * most, arrivals, flags)
                    figures[row][seed] = {
                        (name, at): result[key][at] * unit
                        for name, key, unit, percentiles in FIGURES
                        for at in percentiles
                    }
                    figures[row][seed]["preempted"] = 100 * result["preemptions"] / args.requests
            table(f"{setting}, load {load:g} ({load * most:.3g} requests/s), {arrivals}", figures, seeds)
            kept[f"{setting} {arrivals} {load:g}"] = {
                row: {seed: {str(key): value for key, value in by.items()} for seed, by in by_seed.items()}
                for row, by_seed in figures.items()
            }
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
