#!/usr/bin/env python3
"""What BlendServe claims, simulated: every order on jobs of given density and sharing, with and without overlap. Prints
Markdown tables with
the paper's values beside ours.

    bench/offline/run.py [TACTUS] [-o FILE.json] [--parts mixes,scan,grid,sources,sample,shards,planning,flat]
    [--jobs 2] [--requests 400000] [--openvid capped]
    bench/offline/run.py --report FILE.json

  mixes     the four jobs of the paper's table 2: fcfs, dfs, random, balance, blend, each with --overlap off and nano,
  on every deployment
  scan      the four jobs in three sizes: blend beside the paper's dual scanner, with caps on the KV that is held and
  on the KV that is expected
  grid      density 0.80 to 1.40 x sharing 0.05 to 0.45: dfs and blend, of 40,000 requests each as the paper's
  sources   the first two mixes with other compute-heavy sources (the paper's appendix A.2)
  sample    blend that has sampled 0.1 to 10 % of the answers, against blend that knows all lengths
  shards    1 to 16 replicas, each with its shard, against one planner over all
  planning  how long planning takes, by the number of requests
  flat      what the steps of dfs and blend ask of compute and memory (FILE.svg)
  overlap   the first two mixes with more and with less interference than assumed

The result is written after every simulation, so Ctrl-C keeps what is done. Jobs are made by mixes.py in a temporary
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

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))
import engines  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORDERS = ("fcfs", "dfs", "random", "balance", "blend")
OVERLAPS = ("off", "nano")
MIXES = ((1.4, 0.35), (0.9, 0.35), (1.4, 0.05), (0.9, 0.05))  # density, sharing
DEPLOYMENTS = {
    "8B on A100": ("--model", "llama-3.1-8b", "--device", "a100"),
    "8B on H100": ("--model", "llama-3.1-8b", "--device", "h100"),
    "70B on 8 A100": ("--model", "llama-3.1-70b", "--device", "a100", "--tp", "8"),
    "70B on 8 H100": ("--model", "llama-3.1-70b", "--device", "h100", "--tp", "8"),
}
FIRST = "8B on A100"  # the paper's
# Steps are as large as the presets make them, the KV memory alone limits how many sequences run, and answers may be as
# long as the context.
ENGINE = ("--max-num-seqs", "8192", "--tbt-slo", "none", "--default-max-tokens", str(mixes.CONTEXT), "--offline")
# Depth first runs one kind of request after the other, which larger steps suit better: it is compared at its best.
LARGE_STEPS = ("--token-budget", "2048")
LARGE_DFS = "dfs, large steps"
GRID_REQUESTS = 40000
SHARD_REQUESTS = 100_000  # of each: the job grows with the shards, or its longest answers alone would decide
SAMPLES = (0.001, 0.01, 0.1)
SHARDS = (1, 2, 4, 8, 16)
SHARDED = {"dfs": ("dfs",), "blend": ("blend",), "blend, lengths known": ("blend", "--planner-lengths", "known")}
# The paper's scanner, with its caps on the KV that the ends hold, and on what they are expected to hold; with the step
# size of blend, which shows what the scanner alone costs; and with lengths known, as those of the paper's videos are.
SCANS = {
    "blend": ("blend",),
    "dual scan": ("blend-dual-scan",),
    "dual scan, steps as blend": ("blend-dual-scan", "--budget", "efficient"),
    "dual scan, expected": ("blend-dual-scan", "--dual-scan-caps", "expected"),
    "dual scan, expected, steps as blend": ("blend-dual-scan", "--dual-scan-caps", "expected", "--budget", "efficient"),
    "blend, known": ("blend", "--planner-lengths", "known"),
    "dual scan, known": ("blend-dual-scan", "--planner-lengths", "known"),
}
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
        """The job's file, made once."""
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
                for order in ("dfs", "blend"):
                    runs.append(("grid", spec, ("--scheduler", order, "--overlap", "nano"), {"order": order}))
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


# --- What came out --------------------------------------------------------------------------------------------------


def of(result, part, **labels):
    return [r for r in result["runs"] if r["part"] == part and all(r["labels"].get(k) == v for k, v in labels.items())]


def speed(runs):
    return runs[0]["tokens_per_s"] if runs else None


def gain(new, old):
    return f"{100 * (new / old - 1):+.1f} %" if new and old else ""


def mix_name(spec):
    return f"({spec['density']}, {100 * spec['sharing']:.0f} %)"


def distinct(values):
    return list(dict.fromkeys(values))


def mixes_table(result):
    lines = [
        "### Orders",
        "",
        (
            "Tokens per second of a replica; blend against the best other order, against the faster dfs with overlap"
            " (paper: +19.3 to +22.7 %, mean 20.8 %), against dfs without (up to +44 %), against random (the paper's"
            " NanoFlow-Balance; mixes 1 and 2: +36 %); its share of the practical bound (paper 86.6 %) and of the"
            " optimal sharing (at least 97 %)."
        ),
        "",
        (
            "| deployment, job | overlap | fcfs | dfs | random | balance | blend | dfs, large steps | over the best"
            " other | over dfs | over dfs, no overlap | over random | of the bound | of optimal sharing |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    runs = of(result, "mixes")
    for deployment in distinct(r["labels"]["deployment"] for r in runs):
        for name in distinct(mix_name(r["spec"]) for r in runs):
            here = [r for r in runs if r["labels"]["deployment"] == deployment and mix_name(r["spec"]) == name]
            for overlap in OVERLAPS:
                by = {r["labels"]["order"]: r for r in here if r["labels"]["overlap"] == overlap}
                plain = {r["labels"]["order"]: r for r in here if r["labels"]["overlap"] == "off"}
                if "blend" not in by:
                    continue
                blend, t = by["blend"], {order: r["tokens_per_s"] for order, r in by.items()}
                share = blend["plan"]["share_of_practical_bound"]
                sharing = (
                    blend["sharing"] / blend["plan"]["optimal_sharing"]
                    if blend["sharing"] and blend["plan"]["optimal_sharing"]
                    else None
                )
                speeds = " | ".join(f"{t[o]:.0f}" if o in t else "" for o in (*ORDERS, LARGE_DFS))
                best_dfs, plain_dfs = (
                    max((r["tokens_per_s"] for o, r in runs.items() if o in ("dfs", LARGE_DFS)), default=None)
                    for runs in (by, plain)
                )
                best = max((speed for order, speed in t.items() if order != "blend"), default=None)
                gains = [gain(t["blend"], other) for other in (best, best_dfs, plain_dfs, t.get("random"))]
                shares = [f"{100 * value:.1f} %" if value else "" for value in (share, sharing)]
                lines.append(f"| {deployment}, {name} | {overlap} | {speeds} | {' | '.join(gains + shares)} |")
    return "\n".join(lines)


def scan_table(result):
    runs = of(result, "scan")
    if not runs:
        return ""
    references = {order: "blend, known" if order.endswith("known") else "blend" for order in SCANS}
    others = [order for order, reference in references.items() if order != reference]
    lines = [
        "### The paper's dual scanner",
        "",
        "Tokens per second with overlap, and against blend; with lengths known, against blend that knows them.",
        "",
        "| job | requests | blend | " + " | ".join(f"{order} | against blend" for order in others) + " |",
        "|---" * (3 + 2 * len(others)) + "|",
    ]
    for requests in distinct(r["spec"]["requests"] for r in runs):
        for name in distinct(mix_name(r["spec"]) for r in runs):
            t = {
                r["labels"]["order"]: r["tokens_per_s"]
                for r in runs
                if r["spec"]["requests"] == requests and mix_name(r["spec"]) == name
            }
            cells = [f"{t[o]:.0f} | {gain(t[o], t.get(references[o]))}" if o in t else " | " for o in others]
            lines.append(f"| {name} | {requests:,} | {t.get('blend', 0):.0f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def grid_table(result):
    runs = of(result, "grid")
    gains = {}
    for r in runs:
        if r["labels"]["order"] == "blend":
            dfs = [
                d["tokens_per_s"] for d in runs if d["labels"]["order"] in ("dfs", LARGE_DFS) and d["spec"] == r["spec"]
            ]
            if dfs:
                gains[(r["spec"]["density"], r["spec"]["sharing"])] = 100 * (r["tokens_per_s"] / max(dfs) - 1)
    if not gains:
        return ""
    sharings = sorted({s for _, s in gains})
    lines = [
        "### Grid",
        "",
        (
            f"Blend over the faster dfs, both with overlap, in percent: {min(gains.values()):.1f} to"
            f" {max(gains.values()):.1f}, mean {statistics.mean(gains.values()):.1f} (paper: 14 to 34, mean 22.5, most"
            f" at a density of 1.30); most at {max(gains, key=gains.get)}."
        ),
        "",
        "| density | " + " | ".join(f"sharing {100 * s:.0f} %" for s in sharings) + " |",
        "|---|" + "---|" * len(sharings),
    ]
    for density in sorted({d for d, _ in gains}):
        lines.append(
            f"| {density:.2f} | "
            + " | ".join(f"{gains[density, s]:.1f}" if (density, s) in gains else "" for s in sharings)
            + " |"
        )
    return "\n".join(lines)


def pair_table(result, part, title, key, about):
    runs = of(result, part)
    if not runs:
        return ""
    lines = [f"### {title}", "", about, "", f"| job | {key} | dfs | blend | gain |", "|---|---|---|---|---|"]
    for name in distinct(mix_name(r["spec"]) for r in runs):
        for value in distinct(r["labels"][key] for r in runs):
            t = {
                r["labels"]["order"]: r["tokens_per_s"]
                for r in runs
                if mix_name(r["spec"]) == name and r["labels"][key] == value
            }
            lines.append(
                f"| {name} | {value} | {t.get('dfs', 0):.0f} | {t.get('blend', 0):.0f} |"
                f" {gain(t.get('blend'), t.get('dfs'))} |"
            )
    return "\n".join(lines)


def sample_table(result):
    runs = of(result, "sample")
    if not runs:
        return ""
    kinds = distinct(r["labels"]["lengths"] for r in runs)
    lines = [
        "### What the plan knows of lengths",
        "",
        "Tokens per second of blend with overlap (paper: a sample of 1 % is as good as all lengths).",
        "",
        "| job | " + " | ".join(kinds) + " | sample 0.01 against known |",
        "|---|" + "---|" * (len(kinds) + 1),
    ]
    for name in distinct(mix_name(r["spec"]) for r in runs):
        t = {r["labels"]["lengths"]: r["tokens_per_s"] for r in runs if mix_name(r["spec"]) == name}
        lines.append(
            f"| {name} | "
            + " | ".join(f"{t.get(k, 0):.0f}" for k in kinds)
            + f" | {gain(t.get('sample 0.01'), t.get('planner-lengths known'))} |"
        )
    return "\n".join(lines)


def shards_table(result):
    runs = of(result, "shards")
    if not runs:
        return ""
    lines = [
        "### Shards",
        "",
        (
            f"Tokens per second of all replicas together, and for each against one replica. A job of {SHARD_REQUESTS:,}"
            " requests for each (paper: what is lost grows linearly with the shards)."
        ),
        "",
        "| shards | " + " | ".join(f"{order} | each" for order in SHARDED) + " |",
        "|---" * (1 + 2 * len(SHARDED)) + "|",
    ]
    for n in distinct(r["labels"]["shards"] for r in runs):
        cells = []
        for order in SHARDED:
            here, one = (
                speed(of(result, "shards", shards=n, order=order)),
                speed(of(result, "shards", shards=1, order=order)),
            )
            cells += [f"{here:.0f}" if here else "", gain(here / n, one) if here and one else ""]
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def planning_table(result):
    runs = of(result, "planning")
    if not runs:
        return ""
    lines = [
        "### Planning time",
        "",
        (
            "Of one core of the machine above (paper: under 1 % of the run). A decision is all that the scheduler does"
            " for a step, every look into the tree of cached prefixes and every change of it included (paper: 80 us for"
            " one operation of its tree on average, 230 at P99)."
        ),
        "",
        "| requests | planning s | us per request | of the simulated run | decision P50 us | P99 |",
        "|---|---|---|---|---|---|",
    ]
    for r in runs:
        n, s = r["plan"]["requests"], r["plan"]["planning_s"]
        lines.append(
            f"| {n} | {s:.2f} | {1e6 * s / n:.1f} | {100 * s / r['duration_s']:.3f} % | {r['decision_us']['p50']:.1f} |"
            f" {r['decision_us']['p99']:.1f} |"
        )
    return "\n".join(lines)


def report(result):
    parts = [
        f"{result['date'][:10]}, commit {result['commit']}, {result['machine']['cpu']}; `{result['command']}`",
        mixes_table(result),
        scan_table(result),
        grid_table(result),
        pair_table(
            result, "sources", "Other sources", "dense", "Paper: up to +31 % with Azure's, up to +17 % with ShareGPT."
        ),
        sample_table(result),
        shards_table(result),
        planning_table(result),
        pair_table(
            result,
            "overlap",
            "Interference",
            "interference",
            "The gain where both kinds of work slow each other down less or more than assumed (0.26).",
        ),
        flat_table(result),
    ]
    return "\n\n".join(p for p in parts if p)


# --- Flatness -------------------------------------------------------------------------------------------------------


def asks(step):
    """Seconds of compute and of memory that a step asks for, by the paper's cost model (section 2.3), as its figure 8
    has them."""
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
    """Of the job with the most memory: how much each kind of work varies from one stretch of steps to the next."""
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


def flat_table(result):
    if "flat" not in result:
        return ""
    lines = [
        "### Flatness",
        "",
        (
            "Compute and memory time of the steps by the paper's cost model, in milliseconds, over 400 stretches of the"
            " run: mean, and standard deviation over mean."
        ),
        "",
        "| order | compute | varies | memory | varies |",
        "|---|---|---|---|---|",
    ]
    for order, curve in result["flat"].items():
        cells = []
        for kind in ("compute_s", "memory_s"):
            mean = statistics.mean(curve[kind])
            cells += [f"{1000 * mean:.1f}", f"{statistics.pstdev(curve[kind]) / mean:.2f}"]
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(result):
    """Both orders, compute and memory of the steps over the run."""
    width, height, margin = 560, 130, 40
    top = max(max(c[k]) for c in result["flat"].values() for k in ("compute_s", "memory_s"))
    parts = []
    for row, (order, curve) in enumerate(result["flat"].items()):
        y0 = margin + row * (height + margin)
        parts.append(
            f'<text x="{margin}" y="{y0 - 8}">{order}: milliseconds per step of compute (green) and memory (orange),'
            f" most {1000 * top:.0f}</text>"
        )
        parts.append(f'<rect x="{margin}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#cccccc"/>')
        for kind, colour in (("compute_s", "#1b9e77"), ("memory_s", "#d95f02")):
            values = curve[kind]
            points = " ".join(
                f"{margin + width * i / max(1, len(values) - 1):.1f},{y0 + height * (1 - v / top):.1f}"
                for i, v in enumerate(values)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    total = margin + len(result["flat"]) * (height + margin)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * margin}" height="{total}"'
        ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%"'
        f' fill="white"/>{"".join(parts)}</svg>\n'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--parts", default="mixes,scan,grid,sources,sample,shards,planning,flat,overlap")
    parser.add_argument("--deployments", default=",".join(DEPLOYMENTS))
    parser.add_argument("--overlaps", default=",".join(OVERLAPS), help="of the part mixes")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at once")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--grid-requests", type=int, default=GRID_REQUESTS, help="of each job of the grid")
    parser.add_argument(
        "--openvid", default="capped", choices=tuple(mixes.OPENVID), help="how long its answers are (mixes.py)"
    )
    parser.add_argument("--data", default="")
    parser.add_argument("--report", type=pathlib.Path, help="print the tables of this file, and end")
    args = parser.parse_args()
    if args.report:
        result = json.loads(args.report.read_text())
        print(report(result))
        return
    for kind, names, known in (
        ("part", args.parts, "mixes,scan,grid,sources,sample,shards,planning,flat,overlap"),
        ("deployment", args.deployments, ",".join(DEPLOYMENTS)),
        ("overlap", args.overlaps, ",".join(OVERLAPS)),
    ):
        if unknown := [n for n in names.split(",") if n not in known.split(",")]:
            sys.exit(f"run.py: {kind} '{unknown[0]}' is not known; there are {known}")
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
                args.output.with_suffix(".svg").write_text(picture(bench.result))
        bench.save()
        print(report(bench.result))


if __name__ == "__main__":
    main()
