#!/usr/bin/env python3
"""Checks what LARRY/SAL claims about load balancers, in simulations of its deployments: every balancer with several
engine schedulers, on public lengths of a coding assistant and of chats. Prints Markdown tables.

    bench/fleet/run.py [TACTUS] [-o FILE.json] [--parts balancers,polls,speeds,fleets] [--requests 4000] [--seeds 1,2,3]
    [--jobs 2]
    bench/fleet/run.py --report FILE.json

  balancers  4 and 8 replicas, each balancer x each scheduler: TTFT, TTFT per prompt token, and the time to the whole
             answer (TGT)
  polls      sal with 1 to 100 polls a second, and one in a hundred seconds
  speeds     one replica in four half as fast, unknown to the balancer
  fleets     64 and 512 replicas of 70b

The paper's replicas: Llama-3-70B in FP8 on two H100 (70b), Llama-3-8B on an A100 of 40 GB (8b), steps of 1,024 tokens.
--load is the arrival rate as a share of the fleet's capacity: the replicas times the throughput of one replica when all
requests arrive at once. The paper's arrivals, those of Azure Functions, are not available: Poisson. A figure is the
median of the seeds.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "70b": ["--model", "llama-3-70b", "--device", "h100", "--tp", "2", "--weight-dtype", "fp8"],
    "8b": ["--model", "llama-3-8b", "--device", "a100-40gb"],
}
TRACES = {"code": "azure2023_code.csv", "chat": "azure2023_conv.csv"}
BALANCERS = ("random", "round-robin", "p2c", "least-outstanding", "llumnix", "sal")
SCHEDULERS = {
    "vllm": [],
    "sarathi-serve": [],
    "trail": ["--predictor", "noisy:0.5"],
    "ltr": ["--predictor", "noisy:0.5"],
    "larry": [],
}
POLLS = (0.01, 1, 3, 10, 30, 100)
METRICS = {"ttft_ms": "TTFT", "normalized_ttft_ms": "TTFT per token", "e2e_ms": "TGT"}
PARTS = ("balancers", "polls", "speeds", "fleets")
CELL = ("part", "model", "trace", "replicas", "scheduler", "balancer", "polls", "slow")


def commit():
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def run(args, model, trace, flags, requests, rate, seed, queue="1048576"):
    command = [
        args.tactus,
        "sim",
        *MODELS[model],
        "--token-budget",
        "1024",
        "--tbt-slo",
        "none",
        "--max-queue",
        queue,
        "--long-prompts",
        "clip",
        "--prefix-caching",
        "off",
        "--workload",
        f"lengths:{args.data / 'traces' / TRACES[trace]}",
        "--requests",
        str(requests),
        "--rate",
        f"{rate:.6g}",
        "--seed",
        str(seed),
        *flags,
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def wanted(parts):
    """Returns (part, model, trace, replicas, scheduler, balancer, polls, slow) of each cell."""
    cells = []
    for model, own in (("70b", 4), ("8b", 8)):
        for trace in TRACES:
            if "balancers" in parts:
                cells += [
                    ("balancers", model, trace, n, s, b, 10, False)
                    for n in (4, 8)
                    for s in SCHEDULERS
                    for b in BALANCERS
                    if n == own or s in ("sarathi-serve", "larry")
                ]
            if "polls" in parts:
                cells += [("polls", model, trace, own, "larry", "sal", polls, False) for polls in POLLS]
            if "speeds" in parts:
                cells += [("speeds", model, trace, own, "larry", b, 10, True) for b in BALANCERS]
            if "fleets" in parts and model == "70b":
                cells += [
                    ("fleets", model, trace, n, "larry", b, 10, False)
                    for n in (64, 512)
                    for b in ("random", "p2c", "least-outstanding", "sal")
                ]
    return cells


def simulate(args, most, cell):
    part, model, trace, replicas, scheduler, balancer, polls, slow = cell
    flags = [
        "--replicas",
        str(replicas),
        "--scheduler",
        scheduler,
        "--balancer",
        balancer,
        "--balancer-polls",
        str(polls),
        *SCHEDULERS[scheduler],
    ]
    speed = replicas
    if slow:
        factors = [2 if i % 4 == 0 else 1 for i in range(replicas)]
        flags += ["--replica-slowness", ",".join(map(str, factors))]
        speed = sum(1 / f for f in factors)
    seeds = args.seeds if replicas <= 8 else args.seeds[:1]
    requests = min(args.requests * replicas // 4, 16 * args.requests)
    queue = "4096" if replicas > 8 else "1048576"  # every entry uses memory at every replica
    runs = [
        run(args, model, trace, flags, requests, args.load * most[model, trace] * speed, seed, queue) for seed in seeds
    ]
    if any(r["requests"]["completed"] != requests for r in runs):
        raise RuntimeError(f"{cell}: requests were refused; raise --max-queue")
    figures = {m: {p: statistics.median(r[m][p] for r in runs) for p in ("p50", "p95", "p99")} for m in METRICS}
    return {
        "part": part,
        "model": model,
        "trace": trace,
        "replicas": replicas,
        "scheduler": scheduler,
        "balancer": balancer,
        "polls": polls,
        "slow": slow,
        "load": args.load,
        **figures,
        "preemptions": sum(r["preemptions"] for r in runs),
        "requests": sum(r["requests"]["completed"] for r in runs),
    }


def gains(runs):
    """How much lower sal is than the better of the paper's other two balancers, with each scheduler."""
    lines = [
        "| replicas, scheduler | "
        + " | ".join(f"{name} {p.upper()}" for name in METRICS.values() for p in ("p50", "p95"))
        + " |",
        "|---|" + "---|" * 6,
    ]
    for key in dict.fromkeys((r["model"], r["trace"], r["replicas"], r["scheduler"]) for r in runs):
        by = {r["balancer"]: r for r in runs if (r["model"], r["trace"], r["replicas"], r["scheduler"]) == key}
        if not {"sal", "random", "p2c"} <= by.keys():
            continue
        cells = [
            f"{100 * (by['sal'][m][p] / min(by[b][m][p] for b in ('random', 'p2c')) - 1):+.1f} %"
            for m in METRICS
            for p in ("p50", "p95")
        ]
        lines.append(f"| {key[2]} x {key[0]}, {key[1]}, {key[3]} | {' | '.join(cells)} |")
    return lines


def matrix(runs, row, metric, unit=1.0, digits=0):
    """P50 and P95 of a metric: a row for each value of `row`, a column for each deployment."""
    deployment = lambda r: f"{r['replicas']} x {r['model']}, {r['trace']}"
    columns = list(dict.fromkeys(map(deployment, runs)))
    lines = [f"| {METRICS[metric]}, P50 / P95 | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for value in dict.fromkeys(row(r) for r in runs):
        by = {deployment(r): r for r in runs if row(r) == value}
        cells = [
            f"{by[c][metric]['p50'] / unit:.{digits}f} / {by[c][metric]['p95'] / unit:.{digits}f}" if c in by else ""
            for c in columns
        ]
        lines.append(f"| {value} | {' | '.join(cells)} |")
    return [*lines, ""]


def all_metrics(runs, row):
    return [
        *matrix(runs, row, "ttft_ms"),
        *matrix(runs, row, "normalized_ttft_ms", digits=2),
        *matrix(runs, row, "e2e_ms", 1000, 1),
    ]


def table(result):
    by_part = {part: [r for r in result["runs"] if r["part"] == part] for part in PARTS}
    lines = ["TTFT in ms, TTFT per prompt token in ms, TGT (the time to the whole answer) in s.", ""]
    if runs := by_part["balancers"]:
        lines += ["### sal against the better of random and p2c", "", *gains(runs), ""]
        for balancer in ("sal", "p2c"):
            lines += [
                f"### Schedulers, {balancer}",
                "",
                *all_metrics([r for r in runs if r["balancer"] == balancer], lambda r: r["scheduler"]),
            ]
        for scheduler in SCHEDULERS:
            lines += [
                f"### Balancers, {scheduler}",
                "",
                *all_metrics([r for r in runs if r["scheduler"] == scheduler], lambda r: r["balancer"]),
            ]
    for part, title, row in (
        ("polls", "Polls per second, sal, larry", lambda r: r["polls"]),
        ("speeds", "A quarter of the replicas half as fast, larry", lambda r: r["balancer"]),
        ("fleets", "Large fleets, larry", lambda r: r["balancer"]),
    ):
        if by_part[part]:
            lines += [f"### {title}", "", *all_metrics(by_part[part], row)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument(
        "--requests",
        type=int,
        default=4000,
        help="for four replicas; proportional to the replicas, up to sixteen times this number",
    )
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seeds", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("TACTUS_DATA", ROOT.parent / "shared/data"))
    )
    parser.add_argument("--resume", action="store_true", help="continue the output file of the same command")
    parser.add_argument("--report", type=pathlib.Path)
    args = parser.parse_args()
    if args.report:
        print(table(json.loads(args.report.read_text())))
        return
    parts = args.parts.split(",")
    if unknown := [p for p in parts if p not in PARTS]:
        sys.exit(f"run.py: part '{unknown[0]}' is unknown; the parts are {', '.join(PARTS)}")
    if not (args.data / "traces").is_dir():
        sys.exit(f"run.py: no traces in {args.data}; set TACTUS_DATA or pass --data")
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": " ".join(["bench/fleet/run.py", *sys.argv[1:]]),
        "requests": args.requests,
        "seeds": args.seeds,
        "load": args.load,
        "runs": [],
    }
    cells, known = wanted(parts), {}
    if args.resume and args.output and args.output.exists():
        before = json.loads(args.output.read_text())
        if (before["requests"], before["seeds"], before["load"]) != (args.requests, args.seeds, args.load):
            sys.exit(f"run.py: {args.output} has other requests, seeds or load; omit --resume")
        known = {tuple(r[k] for k in CELL): r for r in before["runs"]}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        try:
            pairs = [(m, t) for m in MODELS for t in TRACES]
            alone = pool.map(
                lambda p: run(args, *p, ["--scheduler", "vllm", "--arrivals", "constant"], args.requests, 1e6, 1)[
                    "request_throughput"
                ],
                pairs,
            )
            most = dict(zip(pairs, alone))
            result["capacity"] = {" ".join(k): v for k, v in most.items()}
            done_before = lambda cell: known[cell]
            futures = [
                pool.submit(done_before, cell) if cell in known else pool.submit(simulate, args, most, cell)
                for cell in cells
            ]
            for done, (cell, future) in enumerate(zip(cells, futures), 1):
                result["runs"].append(future.result())
                print(f"run.py: {done} of {len(cells)}: {cell}", file=sys.stderr, flush=True)
                if args.output:
                    args.output.write_text(json.dumps(result, indent=1) + "\n")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(table(result))


if __name__ == "__main__":
    main()
