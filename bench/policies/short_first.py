#!/usr/bin/env python3
"""Latency of policies that prefer short answers, against first come, first served. Prints one Markdown table per rate:
medians over the seeds.

    bench/policies/short_first.py [TACTUS] [--setting ltr|fastserve|fastserve-skewed] [--rates 16,32,64] [--seeds 1,2,3]
    [--requests 2000]
                                  [--only ROW/ROW/...] [--keep FOLDER] [-o FILE.json]

`ltr`: Llama-3-8B on an A100, 2,048 tokens per step, 256 sequences, prompts of 150 and answers of 242 tokens on average
(lognormal, medians 67 and 148, up to 2,048: conversations as in LMSYS-Chat-1M). `fastserve`: OPT-13B on an A100, 16
sequences in a step, prompts of 200 and answers of 217 tokens on average (medians 110 and 122, up to 1,000).
`fastserve-skewed`: answers with a longer tail (median 33, mean 147, up to 1,500). Every seed draws separate requests
and arrivals (Poisson). Without --requests each rate has one minute of requests (ltr) or 1,000 (fastserve). `--keep`
writes the workload files to FOLDER, for `tactus sim --workload trace:FILE`.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

NO_GUARD = ["--ltr-starvation-steps", "1000000000"]
LTR = ["--scheduler", "ltr", "--swap-space", "16GiB"]
OPT = ["--model", "opt-13b", "--device", "a100", "--max-num-seqs", "16"]
FASTSERVE = ["--scheduler", "fastserve", "--swap-space", "56GiB"]
# deployment, rates, requests per rate, prompts, answers, rows; lengths: mean and deviation of the logarithm, maximum
SETTINGS = {
    "ltr": (
        ["--model", "llama-3-8b", "--device", "a100", "--token-budget", "2048", "--max-num-seqs", "256"],
        "16,32,64",
        lambda rate: int(60 * rate),
        (4.2, 1.3, 2048),
        (5.0, 1.0, 2048),
        {
            "sarathi-serve": ["--scheduler", "sarathi-serve"],
            "vllm-v0": ["--scheduler", "vllm-v0"],
            "ltr, oracle, no guard": [*LTR, "--predictor", "oracle", *NO_GUARD],
            "ltr, noisy:0.5, no guard": [*LTR, "--predictor", "noisy:0.5", *NO_GUARD],
            "ltr, oracle": [*LTR, "--predictor", "oracle"],
            "ltr, noisy:0.5": [*LTR, "--predictor", "noisy:0.5"],
            "ltr, history": LTR,
        },
    ),
    "fastserve": (
        OPT,
        "3,4,5",
        lambda rate: 1000,
        (4.7, 1.2, 1000),
        (4.8, 1.2, 1000),
        {
            "orca": ["--scheduler", "orca"],
            "vllm-v0": ["--scheduler", "vllm-v0"],
            "fastserve": FASTSERVE,
            "orca, 500 blocks": ["--scheduler", "orca", "--kv-blocks", "500"],
            "fastserve, 500 blocks": [*FASTSERVE, "--kv-blocks", "500"],
            "fastserve, 500 blocks, promotion after 5 min": [
                *FASTSERVE,
                "--kv-blocks",
                "500",
                "--mlfq-promotion",
                "5m",
            ],
        },
    ),
    "fastserve-skewed": (
        OPT,
        "3,4,5,6",
        lambda rate: 1000,
        (4.7, 1.2, 1000),
        (3.5, 2.0, 1500),
        {"orca": ["--scheduler", "orca"], "vllm-v0": ["--scheduler", "vllm-v0"], "fastserve": FASTSERVE},
    ),
}
COLUMNS = (
    "requests/s",
    "mean latency per token, s",
    "its median, s",
    "mean latency, s",
    "P99 latency, s",
    "mean TTFT, s",
    "swaps",
)


def length(draw, of):
    mean, deviation, most = of
    return max(2, min(most, int(draw.lognormvariate(mean, deviation))))


def write_workload(path, seed, rate, requests, prompts, answers):
    draw = random.Random(seed)
    now = 0.0
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        for _ in range(requests):
            now += draw.expovariate(1.0) / rate
            rows.writerow([f"{now:.6f}", length(draw, prompts), length(draw, answers)])


def simulate(tactus, deployment, flags, scratch):
    out = scratch / "requests.csv"
    command = [tactus, "sim", *deployment, "--prefix-caching", "off", *flags, "--requests-out", str(out), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    result = json.loads(done.stdout)
    with open(out, newline="") as file:
        per_token = [
            (float(row["done_s"]) - float(row["arrival_s"])) / int(row["output_tokens"])
            for row in csv.DictReader(file)
            if row["finish"] in ("length", "stop")
        ]
    return [
        result["request_throughput"],
        statistics.mean(per_token),
        statistics.median(per_token),
        result["e2e_ms"]["mean"] / 1e3,
        result["e2e_ms"]["p99"] / 1e3,
        result["ttft_ms"]["mean"] / 1e3,
        result["preemptions"],
    ]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--setting", choices=SETTINGS, default="ltr")
    parse.add_argument("--rates", help="requests per second; default: the setting's")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, help="per rate; default: the setting's")
    parse.add_argument("--only", help="rows of the table by name, separated by /")
    parse.add_argument("--keep", type=pathlib.Path, help="folder for the workload files")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    deployment, default_rates, default_requests, prompts, answers, rows = SETTINGS[args.setting]
    rates = [float(rate) for rate in (args.rates or default_rates).split(",")]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    if args.only:
        for name in args.only.split("/"):
            if name not in rows:
                parse.error(f"--only: no row is named '{name}'; the rows of this setting are: {' / '.join(rows)}")
        rows = {name: rows[name] for name in args.only.split("/")}
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder = args.keep or scratch
        folder.mkdir(parents=True, exist_ok=True)
        for rate in rates:
            runs = {name: [] for name in rows}
            for seed in seeds:
                path = folder / f"{args.setting}-{rate:g}-{seed}.csv"
                write_workload(path, seed, rate, args.requests or default_requests(rate), prompts, answers)
                for name, flags in rows.items():
                    runs[name].append(
                        simulate(args.tactus, deployment, ["--workload", f"trace:{path}", *flags], scratch)
                    )
            print(f"| {rate:g}/s | " + " | ".join(COLUMNS) + " |")
            print("|---|" + "---|" * len(COLUMNS))
            for name, of_seeds in runs.items():
                print(f"| {name} | " + " | ".join(f"{statistics.median(of):.4g}" for of in zip(*of_seeds)) + " |")
            print(flush=True)
            figures[f"{rate:g}"] = {
                name: [dict(zip(COLUMNS, run)) for run in of_seeds] for name, of_seeds in runs.items()
            }
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
