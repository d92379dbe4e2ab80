#!/usr/bin/env python3
"""Jobs for offline scheduling, generated as in BlendServe (appendix A.1): a compute-heavy trace and a memory-heavy one
are mixed until the job has a given density, and prompts that share prefixes are added until it has a given sharing.
Writes a CSV for `tactus sim --workload lengths:FILE`, and prints the job's properties.

    bench/offline/mixes.py --density 1.4 --sharing 0.35 [--requests 40000] [--dense burstgpt] [--seed 1] -o FILE.csv
    bench/offline/mixes.py --sources

Density and sharing are those of the paper, with its figures for Llama-3.1-8B on an A100-80GB (section 2.3):
rho = (1 - s) sum Comp / sum Mem, s: the share of prompt tokens that need not be computed again in any order.

Sources of lengths:
  sharegpt, azure   public traces (DATA/traces/sharegpt_nanoflow.csv, azure2023_code.csv)
  burstgpt          trace not available: lognormal lengths, with answer lengths that give the paper's density
  wildchat          likewise, answers of 256 tokens on average
  openvid           likewise, answers of 16K tokens on average (normalised as in the paper) and at most 32,768: the
                    paper's public frame counts are not available here, and the paper states no maximum. Other values
                    of --openvid: "long" has up to 98,304 tokens and the paper's density, but a few of its answers take
                    as long as a job of 40,000 requests; "cut" cuts lengths with a mean of 16K at 32,768, which leaves
                    a mean of 14.5K
  mmlu              likewise, prompts of 57 subjects with a few examples each, answers of 2 tokens
Every source starts with its own system prompt, mmlu with its subject's examples instead.
"""

import argparse
import csv
import math
import os
import pathlib
import random
import sys

# Llama-3.1-8B on an A100-80GB.
PARAMETERS, HIDDEN, LAYERS, KV_WIDTH = 8.03e9, 4096, 32, 1024
FLOPS, BANDWIDTH = 312e12, 2039e9
SUBJECTS = 57
# (mean that is drawn, maximum) of OpenVid's answers, in tokens.
OPENVID = {"capped": (19_300, 32_768), "cut": (16_384, 32_768), "long": (16_384, 98_304)}
CONTEXT = 131_072


def prefix_s(tokens):
    return (2 * PARAMETERS * tokens + 4 * tokens * tokens * HIDDEN * LAYERS) / FLOPS


def compute_s(row):
    return prefix_s(row["prompt"]) + 2 * PARAMETERS * row["output"] / FLOPS


def memory_s(row):
    p, d = row["prompt"], row["output"]
    return 4 * (p * d + d * d / 2) * KV_WIDTH * LAYERS / BANDWIDTH


def lognormal(draw, mean, cv):
    sigma = math.sqrt(math.log(1 + cv * cv))
    return draw.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def lengths(draw, prompt, output):
    """An endless stream of rows: prompt and output are (mean, coefficient of variation, least, most)."""
    while True:
        p, d = (min(max(round(lognormal(draw, mean, cv)), least), most) for mean, cv, least, most in (prompt, output))
        yield {"prompt": p, "output": d}


def trace(draw, path):
    rows = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            p, d = int(row["prompt_tokens"]), int(row["output_tokens"])
            if p > 0 and 0 < d and p + d <= CONTEXT // 4:
                rows.append({"prompt": p, "output": d})
    while True:
        yield dict(draw.choice(rows))


def with_prefix(rows, name, tokens):
    for row in rows:
        row["prompt"] += tokens
        row.update(source=name, prefix=name, shared=tokens)
        yield row


def mmlu(draw):
    examples = [draw.randint(400, 900) for _ in range(SUBJECTS)]
    while True:
        subject = draw.randrange(SUBJECTS)
        question = min(max(round(lognormal(draw, 105, 0.6)), 20), 800)
        yield {
            "prompt": examples[subject] + question,
            "output": 2,
            "source": "mmlu",
            "prefix": f"mmlu-{subject}",
            "shared": examples[subject],
        }


def sources(seed, data, openvid="capped"):
    openvid_mean, openvid_most = OPENVID[openvid]

    def of(name, rows, system_prompt=16):
        return with_prefix(rows(random.Random(f"{seed}-{name}")), name, system_prompt)

    def drawn(prompt, output):
        return lambda draw: lengths(draw, prompt, output)

    def read(file):
        return lambda draw: trace(draw, data / "traces" / file)

    return {
        "burstgpt": lambda: of("burstgpt", drawn((600, 1.0, 16, 8000), (45, 0.8, 1, 1000))),
        "wildchat": lambda: of("wildchat", drawn((200, 1.5, 16, 8000), (256, 0.95, 1, 4000)), 48),
        "sharegpt": lambda: of("sharegpt", read("sharegpt_nanoflow.csv")),
        "azure": lambda: of("azure", read("azure2023_code.csv")),
        "openvid": lambda: of("openvid", drawn((256, 0.5, 16, 2000), (openvid_mean, 0.95, 256, openvid_most))),
        "mmlu": lambda: mmlu(random.Random(f"{seed}-mmlu")),
    }


class Totals:
    def __init__(self):
        self.requests = self.prompt = self.shared = 0
        self.compute = self.saved = self.memory = 0.0
        self.seen = set()

    def add(self, row):
        self.requests += 1
        self.prompt += row["prompt"]
        self.compute += compute_s(row)
        self.memory += memory_s(row)
        if row["prefix"] in self.seen:
            self.shared += row["shared"]
            self.saved += prefix_s(row["shared"])
        self.seen.add(row["prefix"])

    @property
    def sharing(self):
        return self.shared / self.prompt

    @property
    def density(self):
        return (1 - self.sharing) * self.compute / self.memory

    @property
    def exact_density(self):
        """Totals in which shared tokens are computed once (docs/how-to/batch.md)."""
        return (self.compute - self.saved) / self.memory


def totals(rows):
    t = Totals()
    for row in rows:
        t.add(row)
    return t


def means(rows):
    n = len(rows)
    return {
        "prompt": sum(r["prompt"] for r in rows) / n,
        "shared": sum(r["shared"] for r in rows) / n,
        "compute": sum(map(compute_s, rows)) / n,
        "memory": sum(map(memory_s, rows)) / n,
    }


def shares(density, sharing, samples):
    """The shares of (dense, openvid, mmlu) that come nearest, by their means."""
    dense, openvid, mmlu_means = map(means, samples)
    best = None
    for k in range(0, 1000):  # thousandths of mmlu
        share = k / 1000
        low, high = 0.0, 1.0  # share of openvid among the rest
        for _ in range(50):
            middle = (low + high) / 2
            parts = [(dense, (1 - share) * (1 - middle)), (openvid, (1 - share) * middle), (mmlu_means, share)]
            total = {key: sum(w * s[key] for s, w in parts) for key in dense}
            got = (1 - total["shared"] / total["prompt"]) * total["compute"] / max(total["memory"], 1e-12)
            low, high = (middle, high) if got > density else (low, middle)
        off = abs(total["shared"] / total["prompt"] - sharing)
        if best is None or off < best[0]:
            best = (off, share, low)
    return (1 - best[1]) * (1 - best[2]), (1 - best[1]) * best[2], best[1]


def make(density, sharing, requests, dense, seed, data, openvid="capped"):
    streams = [sources(seed, data, openvid)[name]() for name in (dense, "openvid", "mmlu")]
    samples = [[next(stream) for _ in range(min(requests, 20000))] for stream in streams]
    parts = shares(density, sharing, samples)
    rows = []
    for stream, part in ((streams[0], parts[0]), (streams[2], parts[2])):
        rows += [next(stream) for _ in range(round(part * requests))]
    # A few long answers outweigh the rest: answers are counted by weight, and one that exceeds the remaining weight is
    # skipped.
    t = totals(rows)
    left_s = (1 - t.sharing) * t.compute / density - t.memory
    passed = 0
    while left_s > 0 and passed < 1000:
        row = next(streams[1])
        if memory_s(row) > left_s * 1.2:
            passed += 1
            continue
        left_s -= memory_s(row)
        rows.append(row)
    random.Random(f"{seed}-order").shuffle(rows)
    return rows


def write(path, rows):
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["prompt_tokens", "output_tokens", "prefix_id", "shared_tokens", "slo_class"])
        ids = {}  # prefixes are numbered in order of occurrence
        for row in rows:
            prefix = ids.setdefault(row["prefix"], len(ids))
            out.writerow([row["prompt"], row["output"], prefix, row["shared"], row["source"]])


def summary(rows):
    t = totals(rows)
    by_source = {}
    for row in rows:
        by_source[row["source"]] = by_source.get(row["source"], 0) + 1
    return {
        "requests": t.requests,
        "by_source": by_source,
        "density": round(t.density, 3),
        "exact_density": round(t.exact_density, 3),
        "sharing": round(t.sharing, 3),
        "compute_s": round(t.compute - t.saved, 1),
        "memory_s": round(t.memory, 1),
    }


# BlendServe, table 3: density and sharing.
PAPER = {
    "sharegpt": (3.12, 0.02),
    "wildchat": (2.13, 0.19),
    "azure": (33.2, 0.01),
    "openvid": (0.05, 0.00),
    "burstgpt": (17.78, 0.02),
    "mmlu": (54.91, 0.86),
}


def data_folder(text):
    folder = pathlib.Path(text or os.environ.get("TACTUS_DATA", ""))
    if not (folder / "traces").is_dir():
        sys.exit(f"mixes.py: no folder {folder / 'traces'}; name the data with --data or TACTUS_DATA")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=1.4)
    parser.add_argument("--sharing", type=float, default=0.35)
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--dense", default="burstgpt", choices=("burstgpt", "wildchat", "sharegpt", "azure"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--openvid", default="capped", choices=tuple(OPENVID), help="the lengths of OpenVid's answers")
    parser.add_argument("--data", default="")
    parser.add_argument("--sources", action="store_true", help="print each source's density and sharing, and exit")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    data = data_folder(args.data)
    if args.sources:
        print("| source | density | paper | sharing | paper | prompt | output |")
        print("|---|---|---|---|---|---|---|")
        for name, make_rows in sources(args.seed, data, args.openvid).items():
            stream = make_rows()
            rows = [next(stream) for _ in range(20000)]
            t = totals(rows)
            print(
                f"| {name} | {t.density:.2f} | {PAPER[name][0]} | {t.sharing:.2f} | {PAPER[name][1]} | "
                f"{t.prompt / len(rows):.0f} | {sum(r['output'] for r in rows) / len(rows):.0f} |"
            )
        return
    if not args.output:
        sys.exit("mixes.py: -o FILE.csv is missing")
    rows = make(args.density, args.sharing, args.requests, args.dense, args.seed, data, args.openvid)
    write(args.output, rows)
    print(summary(rows))


if __name__ == "__main__":
    main()
