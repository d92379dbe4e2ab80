#!/usr/bin/env python3
"""The effect of one client's flood on the others: ten clients with equal rates, one of which sends many times its rate
for a third of the time. Prints a Markdown table: TTFT of the nine others with and without the flood, median over the
seeds.

    bench/policies/fairness.py [TACTUS] [--seeds 1,2,3] [--rates 16,20,24] [--flood 60] [-o FILE.json]

Llama-3.1-8B on an H100; prompts of 100 to 1,500 tokens, answers of 20 to 300, Poisson arrivals for 300 s. Rates are the
total of all ten clients in requests per second; the machine's capacity is about 27.
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

CLIENTS, END_S, FLOOD_S = 10, 300, (100, 200)
ROWS = {
    "fcfs": ["--order", "fcfs"],
    "vtc": ["--order", "vtc"],
    "vtc, `--vtc-credit 0`": ["--order", "vtc", "--vtc-credit", "0"],
    "vtc, composition exact-fill": ["--order", "vtc", "--composition", "exact-fill"],
    "vtc, composition ranked": ["--order", "vtc", "--composition", "ranked"],
}


def write_workload(path, seed, rate, flood_rate):
    rows = []
    for client in range(CLIENTS):
        draw = random.Random(seed * 1000 + client)
        at = 0.0
        while True:
            floods = client == CLIENTS - 1 and FLOOD_S[0] < at < FLOOD_S[1] and flood_rate > 0
            at += draw.expovariate(flood_rate if floods else rate / CLIENTS)
            if at > END_S:
                break
            label = "flood" if client == CLIENTS - 1 else "others"
            rows.append((f"{at:.4f}", draw.randint(100, 1500), draw.randint(20, 300), f"client {client}", label))
    rows.sort(key=lambda row: float(row[0]))
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["arrival_s", "prompt_tokens", "output_tokens", "client", "slo_class"])
        out.writerows(rows)


def others_ttft_ms(tactus, path, flags):
    command = [
        tactus,
        "sim",
        "--model",
        "llama-3.1-8b",
        "--device",
        "h100",
        "--workload",
        f"trace:{path}",
        "--max-queue",
        "100000",
        *flags,
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["classes"]["others"]["ttft_ms"]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--rates", default="16,20,24")
    parse.add_argument("--flood", type=float, default=60, help="requests per second of the client that floods")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    figures = []
    print(
        "| requests/s | | P50 ms, alike | flood | P99 ms, alike | flood | P99 flood / alike"
        " |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for rate in (float(text) for text in args.rates.split(",")):
            for name, flags in ROWS.items():
                runs = []
                for seed in (int(text) for text in args.seeds.split(",")):
                    pair = []
                    for flood in (0.0, args.flood):
                        path = pathlib.Path(folder) / f"{seed}-{rate}-{flood}.csv"
                        if not path.exists():
                            write_workload(path, seed, rate, flood)
                        pair.append(others_ttft_ms(args.tactus, path, flags))
                    runs.append(pair)
                    figures.append({"rate": rate, "row": name, "seed": seed, "alike": pair[0], "flood": pair[1]})
                median = {(p, i): statistics.median(run[i][p] for run in runs) for p in ("p50", "p99") for i in (0, 1)}
                print(
                    f"| {rate:g} | {name} | {median['p50', 0]:.0f} | {median['p50', 1]:.0f} | {median['p99', 0]:.0f} | "
                    f"{median['p99', 1]:.0f} | {median['p99', 1] / median['p99', 0]:.2f} |",
                    flush=True,
                )
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
