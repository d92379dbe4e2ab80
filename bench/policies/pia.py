#!/usr/bin/env python3
"""Throughput of Response Length Perception's sequence scheduling (PiA): all requests arrive at time 0, in batches of
16. Prints a Markdown table: requests per second (mean over the seeds, minimum and maximum), as a multiple of the first
row, and the share of requests that was stopped and recomputed.

    bench/policies/pia.py [TACTUS] [--seeds 1,2,3] [--requests 1024] [-o FILE.json]

Lengths and predictions match the authors' published statistics (Vicuna-7B, Alpaca, at most 512 tokens): answers are
lognormal with mean 126, predictions miss by 60 tokens on average, 54 % by at most 50 and 83 % by at most 100, and tend
to be too long.
"""

import argparse
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

LONGEST = 512
DEPLOYMENT = ["--model", "llama-2-7b", "--device", "a100"]
OFF = {"--pia-variable-batches": "off", "--pia-collect-failed": "off"}


def pia(predictor="stated", **on):
    flags = {**OFF, **{f"--pia-{name.replace('_', '-')}": "on" for name in on}}
    return ["--scheduler", "pia", "--predictor", predictor, *(word for flag in flags.items() for word in flag)]


ROWS = {
    "batches of 16 in order of arrival": ["--scheduler", "request-level", "--max-num-seqs", "16"],
    "pia, neither": pia(),
    "pia, variable batch sizes": pia(variable_batches=1),
    "pia, failures collected": pia(collect_failed=1),
    "pia": pia(variable_batches=1, collect_failed=1),
    "pia --predictor oracle": pia("oracle", variable_batches=1, collect_failed=1),
    "sarathi-serve": ["--scheduler", "sarathi-serve"],
}


def write_workload(path, seed, requests):
    draw = random.Random(seed)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt_tokens", "output_tokens", "predicted_output_tokens"])
        for _ in range(requests):
            output = min(LONGEST, max(1, round(draw.lognormvariate(math.log(90), 0.82))))
            miss = 35 + 50 * draw.expovariate(1) * draw.choice((-1, 1))
            rows.writerow([draw.randint(30, 120), output, min(LONGEST, max(1, round(output + miss)))])


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, default=1024)
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    figures = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in args.seeds.split(","):
            path = pathlib.Path(folder) / f"{seed}.csv"
            write_workload(path, int(seed), args.requests)
            for name, flags in ROWS.items():
                command = [
                    args.tactus,
                    "sim",
                    *DEPLOYMENT,
                    "--workload",
                    f"lengths:{path}",
                    "--requests",
                    str(args.requests),
                    "--rate",
                    "1000000",
                    "--arrivals",
                    "constant",
                    "--as-paper",
                    "--default-max-tokens",
                    str(LONGEST),
                    "--prefix-caching",
                    "off",
                    *flags,
                    "--json",
                ]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    sys.exit(f"{' '.join(command)}\n{done.stderr}")
                result = json.loads(done.stdout)
                figures[name].append((result["request_throughput"], result["preemptions"] / args.requests))
    first = statistics.mean(rate for rate, _ in next(iter(figures.values())))
    print("| | requests/s | of the first | computed again |\n|---|---|---|---|")
    for name, runs in figures.items():
        rates = [rate for rate, _ in runs]
        mean = statistics.mean(rates)
        again = 100 * statistics.mean(share for _, share in runs)
        print(f"| {name} | {mean:.2f} ({min(rates):.2f} to {max(rates):.2f}) | {mean / first:.2f} | {again:.1f} % |")
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
