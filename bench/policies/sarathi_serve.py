#!/usr/bin/env python3
"""Capacity of sarathi-serve over vllm-v0 and orca: the largest Poisson rate at which the 99th percentile of all gaps
between two tokens meets the objective and half of the requests start within two seconds. Prints a Markdown table:
requests per second (mean over the seeds, minimum and maximum) and sarathi-serve's as a multiple of each.

    bench/policies/sarathi_serve.py [TACTUS] [--settings mistral-strict,mistral-relaxed,yi-strict,yi-relaxed]
                                    [--workloads chat,summaries] [--seeds 1,2,3] [--requests 2000] [-o FILE.json]

The settings are Sarathi-Serve's: its deployments, objectives (5 and 25 times a decode step) and token budgets (512 and
2,048). `chat` has lengths like openchat_sharegpt4's (`--workload sharegpt`), prompt and answer cut to 8,192 tokens.
`summaries` replaces arxiv_summarization, whose long version is not available: lognormal lengths with the paper's
medians and 90th percentiles, prompt and answer at most 16,384. A search doubles the rate until the objective is missed
and then halves the bracket to 3 %.
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

MISTRAL = ["--model", "mistral-7b", "--device", "a100"]
YI = ["--model", "yi-34b", "--device", "a100", "--tp", "2"]
SETTINGS = {  # deployment, objective in ms, token budget
    "mistral-strict": (MISTRAL, 100, 512),
    "mistral-relaxed": (MISTRAL, 500, 2048),
    "yi-strict": (YI, 200, 512),
    "yi-relaxed": (YI, 1000, 2048),
}
SCHEDULERS = ["sarathi-serve", "vllm-v0", "orca"]
MAX_DELAY_MS = 2000
LOGNORMAL_P90 = 1.2816
SUMMARIES = {"prompt": (7059, 12985), "output": (208, 371), "longest": 16384}


def write_summaries(path, seed, requests):
    draw = random.Random(seed)

    def length(of):
        median, p90 = SUMMARIES[of]
        return max(1, round(draw.lognormvariate(math.log(median), math.log(p90 / median) / LOGNORMAL_P90)))

    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt_tokens", "output_tokens"])
        left = requests
        while left > 0:
            prompt, output = length("prompt"), length("output")
            if prompt + output > SUMMARIES["longest"]:
                continue
            rows.writerow([prompt, output])
            left -= 1


class Runs:
    """Simulations of one setting, workload and seed."""

    def __init__(self, args, setting, workload, seed, folder):
        self.deployment, self.objective_ms, self.budget = SETTINGS[setting]
        self.tactus, self.requests, self.seed = args.tactus, args.requests, seed
        if workload == "chat":
            self.workload = ["--workload", "sharegpt", "--max-model-len", "8192", "--long-prompts", "clip"]
        else:
            path = pathlib.Path(folder) / f"summaries-{seed}.csv"
            write_summaries(path, seed, args.requests)
            self.workload = ["--workload", f"lengths:{path}", "--max-model-len", "16384"]

    def keeps(self, scheduler, rate):
        command = [
            self.tactus,
            "sim",
            *self.deployment,
            *self.workload,
            "--scheduler",
            scheduler,
            "--requests",
            str(self.requests),
            "--rate",
            f"{rate:.6g}",
            "--seed",
            str(self.seed),
            "--as-paper",
            "--ignore-eos",
            "on",
            "--prefix-caching",
            "off",
            "--max-num-seqs",
            "128",
            "--json",
        ]
        if scheduler == "sarathi-serve":
            command += ["--token-budget", str(self.budget)]
        if scheduler == "orca":
            command += ["--reserve-full"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        result = json.loads(done.stdout)
        return result["tbt_ms"]["p99"] <= self.objective_ms and result["scheduling_delay_ms"]["p50"] <= MAX_DELAY_MS

    def capacity(self, scheduler, low=0.05, factor=1.03):
        if not self.keeps(scheduler, low):
            return 0.0
        high = 2 * low
        while self.keeps(scheduler, high):
            low, high = high, 2 * high
        while high / low > factor:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.keeps(scheduler, middle) else (low, middle)
        return low


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--settings", default=",".join(SETTINGS))
    parse.add_argument("--workloads", default="chat,summaries")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, default=2000)
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    figures = {}
    print("| |" + "".join(f" {name} |" for name in SCHEDULERS) + "".join(f" over {name} |" for name in SCHEDULERS[1:]))
    print("|---|" + "---|" * (2 * len(SCHEDULERS) - 1))
    with tempfile.TemporaryDirectory() as folder:
        for setting in args.settings.split(","):
            for workload in args.workloads.split(","):
                found = {name: [] for name in SCHEDULERS}
                for seed in seeds:
                    runs = Runs(args, setting, workload, seed, folder)
                    for name in SCHEDULERS:
                        found[name].append(runs.capacity(name))
                figures[f"{setting} {workload}"] = found
                mean = {name: statistics.mean(values) for name, values in found.items()}
                line = f"| {setting}, {workload} |"
                for name, values in found.items():
                    line += f" {mean[name]:.2f} ({min(values):.2f} to {max(values):.2f}) |"
                for name in SCHEDULERS[1:]:
                    line += f" {mean['sarathi-serve'] / mean[name]:.2f} |" if mean[name] > 0 else " - |"
                print(line, flush=True)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
