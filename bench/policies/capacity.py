#!/usr/bin/env python3
"""Capacity of sarathi-serve under an objective on the gap between tokens, as Sarathi-Serve's evaluation defines it: the
largest Poisson rate at which the P99 of all gaps keeps the objective and half of the requests start within 2 s. One
step size for the whole run (five sizes, and the one that `--budget profile` chooses) against a size chosen per step
(`--tbt-slo`). Prints a Markdown table: requests/s, mean over the seeds; in brackets the P99 of the gaps at the rate of
the best fixed size, as a share of the objective.

    bench/policies/capacity.py [TACTUS] [--only NAME,NAME] [--seeds 1,2] [--requests 1000] [--precision 0.02] [-o
    FILE.json]

Lengths are drawn log-normally with the papers' medians and P90s: openchat_sharegpt4 (prompts 1730 / 5696, answers 415 /
834, 8,192 in all) and arxiv_summarization (7059 / 12985, 208 / 371, 16,384 in all). Objectives are the paper's strict
and relaxed ones.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

DATA = {"chat": ((1730, 5696), (415, 834), 8192), "arXiv": ((7059, 12985), (208, 371), 16384)}
MACHINES = {
    "Mistral-7B": (["--model", "mistral-7b", "--device", "a100"], (100, 500)),
    "Yi-34B TP2": (["--model", "yi-34b", "--device", "a100", "--tp", "2"], (200, 1000)),
    "Falcon-180B TP4-PP2": (
        ["--model", "falcon-180b", "--device", "a100", "--tp", "4", "--pp", "2", "--override-context", "16384"],
        (1000, 5000),
    ),
}
SIZES = (256, 512, 1024, 1536, 2048)
MOST_DELAY_MS = 2000


def draw_lengths(path, data, count, seed):
    draw, rows = random.Random(seed), []
    prompt, answer, most = DATA[data]
    while len(rows) < count:
        lengths = [
            max(1, round(math.exp(draw.gauss(math.log(median), math.log(p90 / median) / 1.2816))))
            for median, p90 in (prompt, answer)
        ]
        if sum(lengths) <= most:
            rows.append(lengths)
    path.write_text("prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in rows))


def simulate(tactus, machine, lengths, seed, rate, flags):
    command = [
        tactus,
        "sim",
        *machine,
        "--workload",
        f"lengths:{lengths}",
        "--seed",
        str(seed),
        "--rate",
        f"{rate:.4f}",
        "--as-paper",
        "--max-num-seqs",
        "128",
        *flags,
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def kept(result, slo_ms):
    return result["tbt_ms"]["p99"] <= slo_ms and result["scheduling_delay_ms"]["p50"] <= MOST_DELAY_MS


def capacity(run, slo_ms, precision):
    low, high = 0.0, 1.0
    while kept(run(high), slo_ms):
        low, high = high, 2 * high
    while high - low > precision * high and high > 1e-3:
        middle = (low * high) ** 0.5 if low > 0 else high / 2
        low, high = (middle, high) if kept(run(middle), slo_ms) else (low, middle)
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default="build/release/tactus")
    parser.add_argument("--only", default="Mistral-7B chat,Yi-34B TP2 chat,Yi-34B TP2 arXiv")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("-o", dest="out", type=pathlib.Path)
    args = parser.parse_args()
    seeds = [int(s) for s in args.seeds.split(",")]
    wanted = [name.strip() for name in args.only.split(",")]
    found = {}
    print("| | " + " | ".join(f"{size}" for size in SIZES) + " | `profile` | `tbt-slo` | `tbt-slo` / best fixed |")
    print("|---" * (len(SIZES) + 4) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            machine_name, data = name.rsplit(" ", 1)
            machine, objectives = MACHINES[machine_name]
            files = {}
            for seed in seeds:
                files[seed] = pathlib.Path(folder) / f"{data}{seed}.csv"
                draw_lengths(files[seed], data, args.requests, seed)
            for slo_ms in objectives:
                slo = ["--tbt-slo", f"{slo_ms}ms"]
                rows = {str(size): ["--token-budget", str(size)] for size in SIZES} | {
                    "profile": [*slo, "--budget", "profile"],
                    "tbt-slo": slo,
                }
                rates = {
                    row: [
                        capacity(
                            lambda rate: simulate(args.tactus, machine, files[seed], seed, rate, flags),
                            slo_ms,
                            args.precision,
                        )
                        for seed in seeds
                    ]
                    for row, flags in rows.items()
                }
                means = {row: statistics.mean(values) for row, values in rates.items()}
                best = max(means[str(size)] for size in SIZES)
                found[f"{name}, {slo_ms} ms"] = rates
                shares = []
                for row in ("profile", "tbt-slo"):
                    p99 = max(
                        simulate(args.tactus, machine, files[seed], seed, max(best, 1e-3), rows[row])["tbt_ms"]["p99"]
                        for seed in seeds
                    )
                    shares.append(f"{means[row]:.2f} ({p99 / slo_ms:.2f})")
                print(
                    f"| {name}, {slo_ms} ms | "
                    + " | ".join(f"{means[str(size)]:.2f}" for size in SIZES)
                    + f" | {shares[0]} | {shares[1]} | {means['tbt-slo'] / best if best > 0 else math.inf:.2f} |",
                    flush=True,
                )
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
