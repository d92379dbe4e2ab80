#!/usr/bin/env python3
"""Simulates the claims of BlendServe: every order on jobs of given density and sharing, with and without overlap.
Prints Markdown tables with the paper's values next to ours.

    bench/offline/run.py [TACTUS] [-o FILE.json] [--parts mixes,scan,grid,sources,sample,shards,planning,flat]
    [--jobs 2] [--requests 400000] [--openvid capped]
    bench/offline/run.py --report FILE.json

  mixes     the four jobs of the paper's table 2: fcfs, dfs, random, balance, blend, each with --overlap off and nano,
            on every deployment
  scan      the four jobs in three sizes: blend and the paper's dual scanner, with caps on the allocated and on the
            expected KV
  grid      density 0.80 to 1.40 x sharing 0.05 to 0.45: dfs, blend and the paper's scanner, with 40,000 requests each
            as in the paper; also with known lengths
  sources   the first two mixes with other compute-heavy sources (the paper's appendix A.2)
  sample    blend with 0.1 to 10 % of the answers sampled, against blend with all lengths known
  shards    1 to 16 replicas, each with its shard, against one planner over all
  planning  how long planning takes, by the number of requests
  flat      compute and memory use of the steps of dfs and blend (FILE.svg)
  overlap   the first two mixes with more and with less interference than assumed

The result is written after every simulation, so Ctrl-C keeps completed ones. mixes.py generates jobs in a temporary
folder.
"""

import argparse
import concurrent.futures
import csv
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

import mixes
import tables
from tables import LARGE_DFS, ORDERS, OVERLAPS, SCANS, SHARD_REQUESTS, SHARDED

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))
import engines  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIXES = ((1.4, 0.35), (0.9, 0.35), (1.4, 0.05), (0.9, 0.05))  # density, sharing
DEPLOYMENTS = {
    "8B on A100": ("--model", "llama-3.1-8b", "--device", "a100"),
    "8B on H100": ("--model", "llama-3.1-8b", "--device", "h100"),
    "70B on 8 A100": ("--model", "llama-3.1-70b", "--device", "a100", "--tp", "8"),
    "70B on 8 H100": ("--model", "llama-3.1-70b", "--device", "h100", "--tp", "8"),
}
FIRST = "8B on A100"  # the paper's
# Steps have the presets' sizes, only the KV memory limits the number of running sequences, and the context limits
# answers.
ENGINE = ("--max-num-seqs", "8192", "--tbt-slo", "none", "--default-max-tokens", str(mixes.CONTEXT), "--offline")
# Depth first runs one kind of request after another, for which larger steps are better: it is compared at its best.
LARGE_STEPS = ("--token-budget", "2048")
GRID_REQUESTS = 40000
SAMPLES = (0.001, 0.01, 0.1)
SHARDS = (1, 2, 4, 8, 16)
SCAN_REQUESTS = (400_000, 60_000, 40_000)
PLANNED = (10_000, 40_000, 160_000, 640_000)
INTERFERENCE = (0.0, 0.15, 0.26, 0.4, 0.6)


def job(density, sharing, requests, dense="burstgpt", seed=1):
    return {"density": density, "sharing": sharing, "requests": requests, "dense": dense, "seed": seed}


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.result = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": engines.machine(),
            "command": " ".join(["bench/offline/run.py", *sys.argv[1:]]),
            "commit": commit(),
            "jobs": [],
            "runs": [],
        }
        self.files, self.lock = {}, threading.Lock()
        self.total = self.done = 0

    def file(self, spec):
        """The job's file, generated once."""
        key = json.dumps(spec, sort_keys=True)
        with self.lock:
            if key not in self.files:
                path = self.folder / f"job{len(self.files)}.csv"
                rows = mixes.make(
                    spec["density"],
                    spec["sharing"],
                    spec["requests"],
                    spec["dense"],
                    spec["seed"],
                    self.args.data,
                    self.args.openvid,
                )
                mixes.write(path, rows)
                self.files[key] = path
                self.result["jobs"].append({"spec": spec, **mixes.summary(rows)})
            return self.files[key]

    def simulate(self, part, spec, flags, **labels):
        command = [
            self.args.tactus,
            "sim",
            *DEPLOYMENTS[labels.get("deployment", FIRST)],
            *ENGINE,
            "--workload",
            f"lengths:{self.file(spec)}",
            *flags,
            "--json",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        found = json.loads(done.stdout)
        run = {
            "part": part,
            "spec": spec,
            "flags": " ".join(flags),
            "labels": labels,
            "requests": found["requests"],
            "duration_s": found["duration_s"],
            "tokens_per_s": found["input_token_throughput"] + found["output_token_throughput"],
            "plan": found["plan"],
            "steps": found["steps"],
            "sharing": found["prefix_sharing"],
            "preemptions": found["preemptions"],
            "recomputed_tokens": found["recomputed_tokens"],
            "decision_us": found["decision_us"],
            "wall_s": found["wall_s"],
        }
        with self.lock:
            self.done += 1
            self.result["runs"].append(run)
            self.save()
            print(
                f"run.py: {self.done} of {self.total}: {part} {labels} {' '.join(flags)}: {run['tokens_per_s']:.0f}"
                f" tokens/s, simulated in {run['wall_s']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        return run

    def save(self):
        if self.args.output:
            part = self.args.output.with_suffix(".part")
            part.write_text(json.dumps(self.result, indent=1) + "\n")
            part.rename(self.args.output)


def commit():
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def wanted(args):
    """(part, job, flags, labels) of every simulation."""
    parts = args.parts.split(",")
    runs = []
    big = [job(*mix, args.requests) for mix in MIXES]
    if "mixes" in parts:
        for deployment in args.deployments.split(","):
            for spec in big:
                for overlap in args.overlaps.split(","):
                    for order in ORDERS:
                        runs.append(
                            (
                                "mixes",
                                spec,
                                ("--scheduler", order, "--overlap", overlap),
                                {"deployment": deployment, "order": order, "overlap": overlap},
                            )
                        )
                    runs.append(
                        (
                            "mixes",
                            spec,
                            ("--scheduler", "dfs", *LARGE_STEPS, "--overlap", overlap),
                            {"deployment": deployment, "order": LARGE_DFS, "overlap": overlap},
                        )
                    )
    if "scan" in parts:
        for requests in SCAN_REQUESTS:
            for mix in MIXES:
                for order, flags in SCANS.items():
                    runs.append(
                        ("scan", job(*mix, requests), ("--overlap", "nano", "--scheduler", *flags), {"order": order})
                    )
    if "grid" in parts:
        for i in range(13):
            for j in range(5):
                spec = job(round(0.80 + 0.05 * i, 2), round(0.05 + 0.10 * j, 2), args.grid_requests)
                runs.append(("grid", spec, ("--scheduler", "dfs", "--overlap", "nano"), {"order": "dfs"}))
                for order in tables.GRID_ORDERS:
                    runs.append(("grid", spec, ("--overlap", "nano", "--scheduler", *SCANS[order]), {"order": order}))
                runs.append(
                    ("grid", spec, ("--scheduler", "dfs", *LARGE_STEPS, "--overlap", "nano"), {"order": LARGE_DFS})
                )
    if "sources" in parts:
        for dense in ("azure", "sharegpt", "wildchat"):
            for mix in MIXES[:2]:
                for order in ("dfs", "blend"):
                    runs.append(
                        (
                            "sources",
                            job(*mix, args.requests, dense),
                            ("--scheduler", order, "--overlap", "nano"),
                            {"order": order, "dense": dense},
                        )
                    )
    if "sample" in parts:
        for spec in big:
            for flags in (*(("--sample", str(s)) for s in SAMPLES), ("--planner-lengths", "known")):
                runs.append(
                    (
                        "sample",
                        spec,
                        ("--scheduler", "blend", "--overlap", "nano", *flags),
                        {"lengths": " ".join(flags).removeprefix("--")},
                    )
                )
    if "shards" in parts:
        for n in SHARDS:
            for order, flags in SHARDED.items():
                runs.append(
                    (
                        "shards",
                        job(*MIXES[0], n * SHARD_REQUESTS),
                        ("--overlap", "nano", "--replicas", str(n), "--scheduler", *flags),
                        {"order": order, "shards": n},
                    )
                )
    if "planning" in parts:
        for n in PLANNED:
            runs.append(("planning", job(*MIXES[0], n), ("--scheduler", "blend", "--overlap", "nano"), {"requests": n}))
    if "overlap" in parts:
        for spec in big[:2]:
            for i in INTERFERENCE:
                for order in ("dfs", "blend"):
                    runs.append(
                        (
                            "overlap",
                            spec,
                            ("--scheduler", order, "--overlap", "nano", "--overlap-interference", str(i)),
                            {"order": order, "interference": i},
                        )
                    )
    return runs


# --- Flatness -------------------------------------------------------------------------------------------------------


def asks(step):
    """Seconds of compute and memory of a step, by the paper's cost model (section 2.3), as in its figure 8."""
    tokens = int(step["prompt_tokens"]) + int(step["decodes"])
    return (
        2 * mixes.PARAMETERS * tokens / mixes.FLOPS,
        4 * mixes.KV_WIDTH * mixes.LAYERS * int(step["decode_context_tokens"]) / mixes.BANDWIDTH,
    )


def steps_of(path):
    """asks() of each step of --steps-out."""
    with open(path, newline="") as file:
        return [asks(row) for row in csv.DictReader(file)]


def smooth(steps, points=400):
    size = max(1, len(steps) // points)
    pieces = [steps[i : i + size] for i in range(0, len(steps) - size + 1, size)]
    return [tuple(statistics.mean(s[k] for s in piece) for k in (0, 1)) for piece in pieces]


def flat(bench):
    """Variation of each kind of work between sections of the run, for the job with the most memory."""
    curves = {}
    for order in ("dfs", "blend"):
        path = bench.folder / f"steps-{order}.csv"
        bench.simulate(
            "flat",
            job(*MIXES[1], bench.args.requests),
            ("--scheduler", order, "--overlap", "nano", "--steps-out", str(path)),
            order=order,
        )
        curves[order] = smooth(steps_of(path))
        path.unlink()
    bench.result["flat"] = {
        o: {"compute_s": [round(c, 5) for c, _ in v], "memory_s": [round(m, 5) for _, m in v]}
        for o, v in curves.items()
    }
    for run in bench.result["runs"]:
        run["flags"] = run["flags"].replace(str(bench.folder) + "/", "")
    bench.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--parts", default="mixes,scan,grid,sources,sample,shards,planning,flat,overlap")
    parser.add_argument("--deployments", default=",".join(DEPLOYMENTS))
    parser.add_argument("--overlaps", default=",".join(OVERLAPS), help="deployments of the part mixes")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at once")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--grid-requests", type=int, default=GRID_REQUESTS, help="requests of each job of the grid")
    parser.add_argument(
        "--openvid", default="capped", choices=tuple(mixes.OPENVID), help="lengths of OpenVid's answers (mixes.py)"
    )
    parser.add_argument("--data", default="")
    parser.add_argument("--report", type=pathlib.Path, help="print the tables of this file, and exit")
    args = parser.parse_args()
    if args.report:
        result = json.loads(args.report.read_text())
        print(tables.report(result))
        return
    for kind, names, known in (
        ("part", args.parts, "mixes,scan,grid,sources,sample,shards,planning,flat,overlap"),
        ("deployment", args.deployments, ",".join(DEPLOYMENTS)),
        ("overlap", args.overlaps, ",".join(OVERLAPS)),
    ):
        if unknown := [n for n in names.split(",") if n not in known.split(",")]:
            sys.exit(f"run.py: {kind} '{unknown[0]}' is unknown; known are {known}")
    args.data = mixes.data_folder(args.data)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        runs = wanted(args)
        bench.total = len(runs) + (2 if "flat" in args.parts.split(",") else 0)
        print(f"run.py: {bench.total} simulations", file=sys.stderr, flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            futures = [pool.submit(bench.simulate, part, spec, flags, **labels) for part, spec, flags, labels in runs]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if "flat" in args.parts.split(","):
            flat(bench)
            if args.output:
                args.output.with_suffix(".svg").write_text(tables.picture(bench.result))
        bench.save()
        print(tables.report(bench.result))


if __name__ == "__main__":
    main()
