#!/usr/bin/env python3
"""What LARRY/SAL claims of load balancers, simulated: every balancer with several engine schedulers on public traces of a coding assistant
and of chats. Prints Markdown tables.

    bench/fleet/run.py [TACTUS] [-o FILE.json] [--parts balancers,polls,fleets] [--requests 20000] [--jobs 2]
    bench/fleet/run.py --report FILE.json

  balancers  4 and 8 replicas, each balancer x each scheduler: TTFT, normalised TTFT (per prompt token), TGT (time from first token to last)
  polls      sal with 4 replicas, asked 1 to 100 times a second, and once in a hundred seconds
  fleets     sal and others with 64 replicas

Llama-3.1-8B on an H100 a replica (the paper's), steps of 1,024 tokens, and as many requests a second as keep the replicas at --load of what
one of them serves alone. Traces are DATA/traces/azure2023_{code,conv}.csv, at that rate.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BALANCERS = ("random", "round-robin", "p2c", "least-outstanding", "llumnix", "sal")
SCHEDULERS = ("sarathi-serve", "vllm", "trail", "ltr", "larry")
WORKLOADS = {"code": ("azure2023_code.csv", 14.0), "chat": ("azure2023_conv.csv", 20.0)}  # file, requests a second that one replica serves
POLLS = (0.01, 1, 3, 10, 30, 100)
METRICS = ("ttft_ms", "normalized_ttft_ms", "tgt_ms")
ENGINE = ("--model", "llama-3.1-8b", "--device", "h100", "--token-budget", "1024", "--tbt-slo", "none")


def commit():
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def wanted(args):
    parts, runs = args.parts.split(","), []
    for workload in WORKLOADS:
        if "balancers" in parts:
            runs += [("balancers", workload, 4 * k, s, b, 10) for k in (1, 2) for s in SCHEDULERS for b in BALANCERS]
        if "polls" in parts:
            runs += [("polls", workload, 4, "larry", "sal", polls) for polls in POLLS]
        if "fleets" in parts:
            runs += [("fleets", workload, 64, "larry", b, 10) for b in ("random", "p2c", "sal")]
    return runs


def simulate(args, part, workload, replicas, scheduler, balancer, polls):
    file, rate = WORKLOADS[workload]
    count = args.requests * replicas // 4
    command = [args.tactus, "sim", *ENGINE, "--workload", f"lengths:{args.data / 'traces' / file}", "--rate", str(args.load * rate * replicas),
               "--requests", str(count), "--replicas", str(replicas), "--scheduler", scheduler, "--balancer", balancer, "--balancer-polls", str(polls),
               "--predictor", "noisy" if scheduler in ("trail", "ltr") else "none", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    found = json.loads(done.stdout)
    return {"part": part, "workload": workload, "replicas": replicas, "scheduler": scheduler, "balancer": balancer, "polls": polls, "command": " ".join(command[1:]),
            **{m: found[m] for m in ("ttft_ms", "normalized_ttft_ms", "tpot_ms", "e2e_ms")}, "requests": found["requests"], "preemptions": found["preemptions"]}


def table(result):
    lines = []
    for part in ("balancers", "polls", "fleets"):
        runs = [r for r in result["runs"] if r["part"] == part]
        if not runs:
            continue
        lines += [f"### {part.capitalize()}", "", "| workload, replicas, scheduler | balancer, polls/s | TTFT P50 ms | P95 | per prompt token P50 ms | P95 | TPOT P50 ms | P95 |",
                  "|---|---|---|---|---|---|---|---|"]
        for r in runs:
            cells = [f"{r[m][p]:.{1 if m != 'normalized_ttft_ms' else 2}f}" for m in ("ttft_ms", "normalized_ttft_ms", "tpot_ms") for p in ("p50", "p95")]
            lines.append(f"| {r['workload']}, {r['replicas']}, {r['scheduler']} | {r['balancer']}, {r['polls']} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--parts", default="balancers,polls,fleets")
    parser.add_argument("--requests", type=int, default=20_000, help="with four replicas; in proportion with more")
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("TACTUS_DATA", ROOT.parent / "shared/data")))
    parser.add_argument("--report", type=pathlib.Path)
    args = parser.parse_args()
    if args.report:
        print(table(json.loads(args.report.read_text())))
        return
    if unknown := [p for p in args.parts.split(",") if p not in ("balancers", "polls", "fleets")]:
        sys.exit(f"run.py: part '{unknown[0]}' is not known; there are balancers, polls, fleets")
    if not (args.data / "traces").is_dir():
        sys.exit(f"run.py: no traces in {args.data}; set TACTUS_DATA or give --data")
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit(),
              "command": " ".join(["bench/fleet/run.py", *sys.argv[1:]]), "runs": []}
    runs, lock, done = wanted(args), threading.Lock(), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(simulate, args, *run) for run in runs]
        try:
            for run, future in zip(runs, futures):
                with lock:
                    result["runs"].append(future.result())
                    done += 1
                    print(f"run.py: {done} of {len(runs)}: {run}", file=sys.stderr, flush=True)
                    if args.output:
                        args.output.write_text(json.dumps(result, indent=1) + "\n")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(table(result))


if __name__ == "__main__":
    main()
