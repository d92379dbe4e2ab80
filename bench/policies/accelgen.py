#!/usr/bin/env python3
"""Goodput under objectives per request: AccelGen's presets against sarathi-serve, on a setting whose objectives can be
kept. Prints a Markdown table: requests per second that kept all their objectives (mean over the seeds, least and
largest), and that as a multiple of the first row.

    bench/policies/accelgen.py [TACTUS] [--setting NAME] [--rates 0.8,1.0] [--seeds 1,2,3] [--requests 1000]
                               [--only ROW/ROW/...] [--keep FOLDER] [-o FILE.json]

The first row is sarathi-serve at the pivot's budget (the step size at which throughput saturates). Every seed draws its own requests, arrivals and objectives: 34 % of the prompts have 10 to 512 tokens, 52 % up to 4,096,
14 % up to 16,384; 51 % of the answers have up to 512 tokens, the rest up to 2,048. The first token is due after
U[0.5, 1.5] x 10 x the time of the prompt alone (of its bin of 512 tokens), each later one after 187.5 ms x
U[0.75, 1.25]. `--keep` leaves the files there, for `tactus sim --workload trace:FILE`.
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

LONGEST, BIN = 16384, 512
TBT_MS = 187.5

SETTINGS = {  # deployment, pivot, rates
    "llama-3-70b": (["--model", "llama-3.1-70b", "--device", "a100", "--tp", "4", "--kv-blocks", "12874"], 1024, "0.8,1.0"),
}


def policies(pivot):
    rows = {f"sarathi-serve, {budget} tokens": ["--scheduler", "sarathi-serve", "--token-budget", str(budget)]
            for budget in (pivot, 512, 384)}
    rows["sarathi-serve --budget slo"] = ["--scheduler", "sarathi-serve", "--budget", "slo"]
    rows["vllm"] = ["--scheduler", "vllm", "--token-budget", str(pivot)]
    for preset in ("accelgen", "accelgen-no-chunk", "accelgen-no-order", "accelgen-no-batch"):
        rows[preset] = ["--scheduler", preset]
    for era in ("completed", "prefilled", "off"):
        rows[f"accelgen --era {era}"] = ["--scheduler", "accelgen", "--era", era]
    return rows


def simulate(tactus, deployment, flags):
    command = [tactus, "sim", *deployment, "--block-size", "32", "--prefix-caching", "off", *flags, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def isolated_ms(tactus, deployment):
    """Time to the first token of a prompt alone on the machine, computed in one step, per bin."""
    times = []
    for end in range(BIN, LONGEST + 1, BIN):
        result = simulate(tactus, deployment, [
            "--workload", f"random:in={end - BIN // 2},out=1", "--requests", "1", "--concurrency", "1",
            "--scheduler", "orca", "--step-limit", "none"])
        times.append(result["ttft_ms"]["mean"])
    return times


def write_workload(path, seed, rate, requests, isolated):
    draw = random.Random(seed)
    now = 0.0
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens", "slo_ttft_ms", "slo_tbt_ms"])
        for _ in range(requests):
            now += draw.expovariate(1.0) / rate
            kind = draw.random()
            prompt = draw.randint(10, 512) if kind < 0.34 else draw.randint(513, 4096) if kind < 0.86 else \
                draw.randint(4097, LONGEST)
            output = draw.randint(1, 512) if draw.random() < 0.51 else draw.randint(513, 2048)
            ttft = draw.uniform(0.5, 1.5) * 10 * isolated[(prompt - 1) // BIN]
            tbt = draw.uniform(0.75, 1.25) * TBT_MS
            rows.writerow([f"{now:.6f}", prompt, output, f"{ttft:.3f}", f"{tbt:.3f}"])


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--setting", choices=SETTINGS, default="llama-3-70b")
    parse.add_argument("--rates", help="requests per second; default: the setting's")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, default=1000)
    parse.add_argument("--only", help="rows of the table by name, separated by /")
    parse.add_argument("--keep", type=pathlib.Path, help="folder for the workloads")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    deployment, pivot, default_rates = SETTINGS[args.setting]
    rates = [float(rate) for rate in (args.rates or default_rates).split(",")]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    rows = policies(pivot)
    if args.only:
        rows = {name: rows[name] for name in args.only.split("/")}
    isolated = isolated_ms(args.tactus, deployment)
    figures = {name: {rate: [] for rate in rates} for name in rows}
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for rate in rates:
            for seed in seeds:
                path = folder / f"{args.setting}-{rate:g}-{seed}.csv"
                write_workload(path, seed, rate, args.requests, isolated)
                for name, flags in rows.items():
                    result = simulate(args.tactus, deployment, ["--workload", f"trace:{path}", *flags])
                    if result["goodput"] is None:
                        sys.exit(f"{args.tactus} reads no objectives from a workload's columns")
                    figures[name][rate].append(
                        {key: result[key] for key in ("goodput", "slo_attainment", "request_throughput", "preemptions")})
    print("| |" + "".join(f" {rate:g}/s | of the first |" for rate in rates))
    print("|---|" + "---|---|" * len(rates))
    first = {rate: statistics.mean(run["goodput"] for run in next(iter(figures.values()))[rate]) for rate in rates}
    for name, by_rate in figures.items():
        line = f"| {name} |"
        for rate in rates:
            goodput = [run["goodput"] for run in by_rate[rate]]
            mean = statistics.mean(goodput)
            line += f" {mean:.3f} ({min(goodput):.3f} to {max(goodput):.3f}) |"
            line += f" {mean / first[rate]:.2f} |" if first[rate] > 0 else " - |"
        print(line)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
