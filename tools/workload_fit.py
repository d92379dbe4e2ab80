#!/usr/bin/env python3
"""Fits the built-in workloads to public traces, and reports their distances.

  tools/workload_fit.py DATA              prints docs/reference/workloads.md's table of distances
  tools/workload_fit.py DATA --write      also writes src/sim/workload/named_workloads.def

A workload is two quantile tables (prompt and output tokens at KNOTS, the logarithm interpolated between them) and the
rank correlation of the two, which a Gaussian copula carries. Distances are Kolmogorov-Smirnov's, the largest gap
between two cumulative distributions (0: equal, 1: disjoint): of the whole fit to the whole trace, and of a fit of the
even rows to the odd ones, which it has not seen.
"""

import argparse
import csv
import math
import pathlib

KNOTS = [
    0,
    0.005,
    0.02,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    0.98,
    0.995,
    1,
]
FITS = [
    ("chat", "azure2023_conv", "lengths like a public trace of chats"),
    ("code", "azure2023_code", "lengths like a public trace of a coding assistant"),
    ("summarize", "arxiv_summarization_4k", "lengths like summaries of papers"),
    ("long-output", "bwb_4k", "lengths like translations of books"),
    ("sharegpt", "openchat_sharegpt4", "lengths like published conversations with an assistant"),
    ("long-context", "mooncake_conversation", "lengths like a public trace of chats over long documents"),
]
TARGET = pathlib.Path(__file__).resolve().parents[1] / "src" / "sim" / "named_workloads.def"


def read(path):
    with open(path, newline="") as f:
        rows = [(int(r["prompt_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(f)]
    return [r for r in rows if r[0] > 0 and r[1] > 0]


def quantiles(values):
    ordered = sorted(values)
    table = []
    for q in KNOTS:
        at = q * (len(ordered) - 1)
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        table.append(round(ordered[low] + (at - low) * (ordered[high] - ordered[low])))
    return table


def cdf(table, value):
    """Share of the fit's whole numbers that are at most `value`: draws are rounded, so the edge is half a token
    above."""
    edge = value + 0.5
    if edge < table[0]:
        return 0.0
    if edge >= table[-1]:
        return 1.0
    i = max(k for k in range(len(table) - 1) if table[k] <= edge)
    low, high = math.log(table[i]), math.log(table[i + 1])
    share = 1.0 if high == low else (math.log(edge) - low) / (high - low)
    return KNOTS[i] + min(share, 1.0) * (KNOTS[i + 1] - KNOTS[i])


def distance(table, values):
    ordered = sorted(values)
    worst = 0.0
    for i, v in enumerate(ordered):
        if i + 1 < len(ordered) and ordered[i + 1] == v:
            continue
        worst = max(worst, abs(cdf(table, v) - (i + 1) / len(ordered)))
    return worst


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            out[order[k]] = (i + j) / 2
        i = j + 1
    return out


def copula(prompts, outputs):
    a, b = ranks(prompts), ranks(outputs)
    mean = (len(a) - 1) / 2
    cov = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    spearman = cov / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return 2 * math.sin(math.pi * spearman / 6), spearman


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = [
        (
            "// Written by tools/workload_fit.py: quantiles of prompt and of output tokens at kKnots, and the"
            " correlation of the normal"
        ),
        "// variables behind them. Name, help, prompt quantiles, output quantiles, correlation.",
        "#define TACTUS_WORKLOAD_KNOTS " + ", ".join(f"{k}" for k in KNOTS),
    ]
    print(
        "| workload | trace | prompt median / P90 | distance, held out | output median / P90 | distance, held out |"
        " rank correlation |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, trace, about in FITS:
        rows = read(args.data / "traces" / f"{trace}.csv")
        cells, tables = [], []
        for column in (0, 1):
            values = [r[column] for r in rows]
            table = quantiles(values)
            held_out = distance(quantiles(values[::2]), values[1::2])
            cells.append(
                f"{table[KNOTS.index(0.5)]} / {table[KNOTS.index(0.9)]} | {distance(table, values):.3f}, {held_out:.3f}"
            )
            tables.append(table)
        correlation, spearman = copula([r[0] for r in rows], [r[1] for r in rows])
        print(f"| `{name}` | {trace} | {cells[0]} | {cells[1]} | {spearman:.2f} |")
        body = ",\n    ".join("({" + ", ".join(map(str, t)) + "})" for t in tables)
        lines.append(f'TACTUS_WORKLOAD("{name}", "{about}",\n    {body}, {correlation:.3f})')
    if args.write:
        TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
