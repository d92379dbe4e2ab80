#!/usr/bin/env python3
"""How far the built-in workloads (src/sim/workload.cc) are from the traces they stand for.

  tools/workload_fit.py DATA    DATA/traces/*.csv; prints a markdown table

A log-normal is set by the trace's median and 90th percentile; the distance is Kolmogorov-Smirnov's, the largest gap between the
two cumulative distributions (0: equal, 1: disjoint).
"""
import csv
import math
import pathlib
import sys

FITS = [("chat", "azure2023_conv", (1014, 3840), (115, 421)), ("code", "azure2023_code", (1463, 5185), (13, 55)),
        ("summarize", "arxiv_summarization_4k", (2720, 3701), (167, 374)), ("long-output", "bwb_4k", (1038, 1456), (1605, 2150))]
Z90 = 1.2815515655446004


def distance(values, median, p90):
    sigma = math.log(p90 / median) / Z90
    values = sorted(values)
    n = len(values)
    worst = 0.0
    for i, v in enumerate(values):
        cdf = 0.5 * (1 + math.erf(math.log(v / median) / sigma / math.sqrt(2)))
        worst = max(worst, abs(cdf - i / n), abs(cdf - (i + 1) / n))
    return worst


def main():
    folder = pathlib.Path(sys.argv[1]) / "traces"
    print("| workload | trace | prompt median / P90 | distance | output median / P90 | distance |\n|---|---|---|---|---|---|")
    for name, trace, prompt, output in FITS:
        with open(folder / f"{trace}.csv", newline="") as f:
            rows = [(int(r["prompt_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(f)]
        p = distance([r[0] for r in rows if r[0] > 0], *prompt)
        o = distance([r[1] for r in rows if r[1] > 0], *output)
        print(f"| `{name}` | {trace} | {prompt[0]} / {prompt[1]} | {p:.2f} | {output[0]} / {output[1]} | {o:.2f} |")


if __name__ == "__main__":
    main()
