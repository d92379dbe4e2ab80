#!/usr/bin/env python3
"""The `tactus` preset against every other preset that a server can run: requests per second that met all their
objectives (goodput), on models x traces x mixes of objectives x loads. Prints Markdown: a row per setting, the worst
ratio to the best of the others, and with `--part` the gain of each choice of the preset, the service of requests
without objectives, and the cost of a best-effort backlog to interactive requests.

    bench/policies/tactus.py [TACTUS] [--part goodput|regimes|ablation|plain|batch] [--half first|second]
                             [--seeds 1,2,3] [--requests 500] [--only TEXT] [--presets A,B] [--jobs 2]
                             [--cache FILE] [-o FILE.json]

Lengths, arrivals and shared prefixes are those of the public traces in `$TACTUS_DATA/traces`, cut by their time span
(by rows if a trace has no times): the preset was tuned on the first half; tables use the second. A seed picks a window
of consecutive requests and draws the objectives. Arrivals are the trace's own, scaled to the load; Poisson where it has
none. A load is a share of the requests per second that `sarathi-serve` completes when all arrive at once. No scheduler
knows answer lengths (`--ignore-eos off`).

`regimes` covers cases that the traces lack: prompts that fill a scarce memory (lengths of AccelGen's figure 8, answers
of 1 to 32 tokens), arrivals in bursts (gamma-distributed gaps with a coefficient of variation of 2 or 4, LARRY's
reading of the Azure Functions trace), objectives on gaps near the time of the smallest step, and fleets behind a
balancer (with --requests per replica).

`plain` runs without objectives: figures as a multiple of `sarathi-serve`'s; plans are compared with equal numbers of KV
blocks, because `tactus` reserves memory for steps of 2,048 tokens. `batch` adds an endless backlog of requests without
objectives (2,000 prompt tokens, 200 of answer) to interactive requests. `ablation` replaces one choice by that of
sarathi-serve or accelgen.

Noise: the range over the seeds (maximum minus minimum) of the ratio to the best other preset, at least half a percent.
`--cache` stores every result under its command line; delete the file after a change of the program.
"""

import argparse
import concurrent.futures
import csv
import hashlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading

import accelgen

OTHERS = (
    "sarathi-serve vllm vllm-v0 orca request-level fastgen fastserve no-preempt sarathi chunked-only hybrid-only "
    "s3 pia trail ltr larry accelgen accelgen-no-chunk accelgen-no-order accelgen-no-batch accelgen-paper "
    "accelgen-paper-no-chunk accelgen-paper-no-order accelgen-paper-no-batch"
).split()

SHORT_13B = "--device a100 --block-size 32 --kv-blocks 457 --override-context"
MACHINES = {
    name: flags.split()
    for name, flags in {
        "8B H100": "--model llama-3.1-8b --device h100 --max-model-len 16384",
        "8B H100 long": "--model llama-3.1-8b --device h100 --max-model-len 131072",
        "7B A100": "--model mistral-7b --device a100 --max-model-len 16384",
        "34B A100x2": "--model yi-34b --device a100 --tp 2 --override-context 16384",
        "70B A100x4": "--model llama-3.1-70b --device a100 --tp 4 --max-model-len 16384",
        "13B A100, 12 GB of KV": f"--model llama-13b {SHORT_13B} 8192",
        "4 x 8B H100, sal": "--model llama-3.1-8b --device h100 --max-model-len 16384 --replicas 4 --balancer sal",
        "4 x 13B A100, 12 GB of KV, p2c": f"--model llama-13b {SHORT_13B} 8192 --replicas 4 --balancer p2c",
        "OPT-13B A100, 12 GB of KV": f"--model opt-13b {SHORT_13B} 16384 --prefix-caching off",
        "180B A100 TP4-PP2": "--model falcon-180b --device a100 --tp 4 --pp 2 --override-context 16384",
    }.items()
}
TRACES = {
    "code": "azure2023_code",
    "conversation": "azure2023_conv",
    "openchat": "openchat_sharegpt4",
    "arxiv": "arxiv_summarization_4k",
    "translation": "bwb_4k",
    "sharegpt": "sharegpt_nanoflow",
    "long": "mooncake_conversation",
}
DRAWN = "prompts"  # no trace's lengths: half of the prompts beyond 512 tokens, short answers
# Objectives as multiples of the request's time on an idle machine.
MIXES = {
    "strict": "chat:1:ttft=4..8x,tbt=3..6x",
    "relaxed": "chat:1:ttft=10..30x,tbt=5..15x",
    "alike": "chat:1:ttft=2s,tbt=100ms",
    "jobs": "job:1:jct=2..6x",
    "first token": "chat:7:ttft=5..20x;batch:3:none",
    "tight": "chat:1:ttft=5..15x,tbt=1.3..2.5x",
    "accelgen": "chat:1:ttft=5..15x,tbt=140..234ms",
    "all kinds": "chat:4:ttft=5..15x,tbt=4..10x;voice:1:tbt=4..8x;job:3:jct=2..6x;batch:2:none",
}
SETTINGS = [
    ("8B H100", "conversation", "strict"),
    ("8B H100", "conversation", "all kinds"),
    ("8B H100", "code", "alike"),
    ("8B H100", "sharegpt", "relaxed"),
    ("8B H100", "translation", "relaxed"),
    ("8B H100 long", "long", "first token"),
    ("7B A100", "openchat", "strict"),
    ("7B A100", "arxiv", "jobs"),
    ("7B A100", "conversation", "alike"),
    ("34B A100x2", "arxiv", "relaxed"),
    ("34B A100x2", "code", "all kinds"),
    ("70B A100x4", "openchat", "all kinds"),
    ("70B A100x4", "conversation", "relaxed"),
    ("13B A100, 12 GB of KV", "openchat", "relaxed"),
    ("13B A100, 12 GB of KV", "conversation", "all kinds"),
    ("180B A100 TP4-PP2", "conversation", "relaxed"),
]
# Beyond the traces: the number after a trace is the coefficient of variation of the gaps between arrivals.
REGIMES = [
    ("OPT-13B A100, 12 GB of KV", f"{DRAWN} 1", "accelgen"),
    ("OPT-13B A100, 12 GB of KV", f"{DRAWN} 4", "accelgen"),
    ("13B A100, 12 GB of KV", f"{DRAWN} 1", "relaxed"),
    ("8B H100", "conversation 2", "all kinds"),
    ("8B H100", "code 4", "strict"),
    ("7B A100", "openchat 4", "relaxed"),
    ("70B A100x4", "conversation 2", "relaxed"),
    ("8B H100", "conversation", "tight"),
    ("70B A100x4", "openchat", "tight"),
    ("4 x 8B H100, sal", "conversation 2", "all kinds"),
    ("4 x 13B A100, 12 GB of KV, p2c", "openchat 2", "relaxed"),
]
NOISE = 0.005  # minimum: one request more or less in a run
LOADS = (0.5, 1.0, 1.3, 1.8)
ABLATIONS = {
    "order fcfs (sarathi-serve)": ["--order", "fcfs"],
    "order slack (accelgen)": ["--order", "slack"],
    "admission prompt-fits (sarathi-serve)": ["--admission", "prompt-fits"],
    "admission multi-resource (accelgen)": ["--admission", "multi-resource"],
    "composition stall-free (sarathi-serve)": ["--composition", "stall-free"],
    "composition slack-fill (accelgen)": ["--composition", "slack-fill"],
    "budget tbt-slo (sarathi-serve)": ["--budget", "tbt-slo"],
    "budget slo (accelgen)": ["--budget", "slo"],
    "preemption youngest-recompute (sarathi-serve)": ["--preemption", "youngest-recompute"],
    "preemption most-slack-recompute (accelgen)": ["--preemption", "most-slack-recompute"],
}


SAME_KV = ", as much KV"
SAME_KV_BLOCKS = "12000"


def replicas(machine):
    flags = MACHINES[machine]
    return int(flags[flags.index("--replicas") + 1]) if "--replicas" in flags else 1


def flags_of(row):
    if row.endswith(SAME_KV):
        return ["--scheduler", row.removesuffix(SAME_KV), "--kv-blocks", SAME_KV_BLOCKS]
    return ["--scheduler", "tactus", *ABLATIONS[row]] if row in ABLATIONS else ["--scheduler", row]


class Cache:
    def __init__(self, path):
        self.path, self.lock, self.found = path, threading.Lock(), {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.found[entry["key"]] = entry["result"]

    def get(self, key):
        return self.found.get(key)

    def put(self, key, result):
        with self.lock:
            self.found[key] = result
            if self.path:
                with open(self.path, "a") as file:
                    file.write(json.dumps({"key": key, "result": result}) + "\n")


KEPT = (
    "goodput",
    "slo_attainment",
    "request_throughput",
    "output_token_throughput",
    "input_token_throughput",
    "preemptions",
    "plan_hash",
    "ttft_ms",
    "tbt_ms",
    "e2e_ms",
    "classes",
    "decision_us",
    "duration_s",
    "requests",
    "oracle",
)


class Simulations:
    """Runs `tactus sim`, each command once."""

    def __init__(self, tactus, cache, limit_s=15):
        self.tactus, self.cache, self.limit_s = tactus, cache, limit_s

    def run(self, machine, workload, flags):
        key = hashlib.sha256(json.dumps([machine, workload.read_text(), flags]).encode()).hexdigest()
        if (found := self.cache.get(key)) is not None:
            return found
        deployment = MACHINES[machine]
        if "--kv-blocks" in deployment and "--kv-blocks" in flags:
            deployment = deployment[: deployment.index("--kv-blocks")]
        command = [
            "nice",
            "-n",
            "5",
            self.tactus,
            "sim",
            *deployment,
            "--workload",
            f"trace:{workload}",
            "--ignore-eos",
            "off",
            "--max-queue",
            "100000",
            *flags,
            "--json",
        ]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=self.limit_s
            )
        except subprocess.TimeoutExpired:  # it preempts forever (ltr with scarce KV): the whole run counts as nothing
            print(f"aborted after {self.limit_s} s: {' '.join(command)}", file=sys.stderr)
            self.cache.put(key, {"given_up": True})
            return {"given_up": True}
        if done.returncode != 0:
            return {"error": f"{' '.join(command)}\n{done.stderr}"}
        result = {name: value for name, value in json.loads(done.stdout).items() if name in KEPT}
        self.cache.put(key, result)
        return result


class Traces:
    """Windows of the traces' halves, as files."""

    def __init__(self, folder, half, requests):
        self.folder, self.half, self.requests, self.rows = folder, half, requests, {}
        self.lock = threading.Lock()

    def half_of(self, trace, most_tokens):
        with self.lock:
            if trace == DRAWN and trace not in self.rows:
                draw = random.Random(f"{DRAWN} {self.half}")
                drawn = [accelgen.draw_lengths(draw, 8000)[0] for _ in range(4000)]
                self.rows[trace] = (
                    False,
                    [{"prompt_tokens": prompt, "output_tokens": draw.randint(1, 32)} for prompt in drawn],
                )
            if trace not in self.rows:
                path = pathlib.Path(os.environ["TACTUS_DATA"]) / "traces" / f"{TRACES[trace]}.csv"
                with open(path, newline="") as file:
                    rows = list(csv.DictReader(file))
                timed = bool(rows[0]["arrival_s"])
                at = float(rows[-1]["arrival_s"]) / 2 if timed else len(rows) / 2
                first = [(float(row["arrival_s"]) if timed else i) < at for i, row in enumerate(rows)]
                self.rows[trace] = timed, [row for row, early in zip(rows, first) if early == (self.half == "first")]
            timed, rows = self.rows[trace]
        fits = lambda row: (
            0 < int(row["prompt_tokens"])
            and 0 < int(row["output_tokens"])
            and int(row["prompt_tokens"]) + int(row["output_tokens"]) < most_tokens
        )
        return timed, [row for row in rows if fits(row)]

    def window(self, machine, trace, seed, rate):
        """`rate`: requests per second; None: all at once. `trace`: its name and the coefficient of variation of its
        gaps."""
        most = 120000 if "long" in machine else 8000
        name, _, varies = trace.partition(" ")
        timed, rows = self.half_of(name, most)
        draw = random.Random(f"{name} {seed}")
        requests = self.requests * replicas(machine)
        start = draw.randrange(max(1, len(rows) - requests))
        rows = rows[start : start + requests]
        if rate is None:
            arrivals = [0.0] * len(rows)
        elif timed and not varies:
            begin = float(rows[0]["arrival_s"])
            span = float(rows[-1]["arrival_s"]) - begin
            arrivals = [(float(row["arrival_s"]) - begin) * len(rows) / rate / max(span, 1e-9) for row in rows]
        else:
            arrivals, now = [], 0.0
            shape = float(varies or 1) ** -2  # of the gamma distribution with this coefficient of variation
            for _ in rows:
                now += draw.expovariate(rate) if shape == 1 else draw.gammavariate(shape, 1 / (shape * rate))
                arrivals.append(now)
        path = self.folder / f"{self.half}-{trace}-{most}-{requests}-{seed}-{rate}.csv"
        with self.lock:
            if path.exists():
                return path
            with open(path, "w", newline="") as file:
                out = csv.writer(file)
                out.writerow(["arrival_s", "prompt_tokens", "output_tokens", "prefix_hash_ids"])
                out.writerows(
                    [f"{at:.6f}", row["prompt_tokens"], row["output_tokens"], row.get("prefix_hash_ids") or ""]
                    for at, row in zip(arrivals, rows)
                )
        return path


def capacity(simulations, traces, machine, trace, seed):
    result = simulations.run(machine, traces.window(machine, trace, seed, None), ["--scheduler", "sarathi-serve"])
    if "error" in result:
        sys.exit(result["error"])
    return result["request_throughput"]


def cells(args, settings):
    for machine, trace, mix in settings:
        for load in LOADS:
            name = f"{machine}, {trace}, {mix}, {load:g}"
            if args.only in name:
                yield name, machine, trace, mix, load


def run_cells(args, simulations, traces, rows, settings):
    """figures[setting][row] = results by seed."""
    seeds = [int(seed) for seed in args.seeds.split(",")]
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    pending = {}
    for name, machine, trace, mix, load in cells(args, settings):
        for seed in seeds:
            rate = load * capacity(simulations, traces, machine, trace, seed)

            def task(machine=machine, trace=trace, mix=mix, rate=rate, seed=seed, row=None):
                objectives = ["--slo-mix", MIXES[mix]] if mix else []
                return simulations.run(
                    machine,
                    traces.window(machine, trace, seed, round(rate, 4)),
                    [*objectives, "--seed", str(seed), *flags_of(row)],
                )

            for row in rows:
                pending[name, row, seed] = pool.submit(task, row=row)
    figures = {}
    for (name, row, seed), future in pending.items():
        result = future.result()
        if "error" in result:
            print(f"{name}, {row}: {result['error']}", file=sys.stderr)
        figures.setdefault(name, {}).setdefault(row, []).append(result)
    return figures


def goodputs(runs):
    return [run.get("goodput") or 0.0 for run in runs]


def part_regimes(args, simulations, traces):
    return part_goodput(args, simulations, traces, REGIMES)


def part_goodput(args, simulations, traces, settings=SETTINGS):
    others = args.presets.split(",") if args.presets else OTHERS
    figures = run_cells(args, simulations, traces, ["tactus", *others], settings)
    print(
        "| setting | load | `tactus`, requests/s | kept | best other | requests/s | ratio, median | least to largest |"
        " throughput of `sarathi-serve` |\n" + "|---" * 9 + "|"
    )
    ratios = {}
    for name, rows in figures.items():
        ours = goodputs(rows["tactus"])
        best = max(others, key=lambda row: statistics.median(goodputs(rows[row])))
        theirs = goodputs(rows[best])
        ratio = [a / b if b > 0 else (1.0 if a == 0 else float("inf")) for a, b in zip(ours, theirs)]
        ratios[name] = (
            statistics.median(ratio),
            max(ratio) - min(ratio),
            statistics.median(ours) / max(1e-9, statistics.median(theirs)),
        )
        kept = statistics.median(run.get("slo_attainment") or 0 for run in rows["tactus"])
        reference = rows.get("sarathi-serve", rows[best])
        cost = statistics.median(
            a["request_throughput"] / b["request_throughput"] for a, b in zip(rows["tactus"], reference)
        )
        setting, load = name.rsplit(", ", 1)
        print(
            f"| {setting} | {load} | {statistics.median(ours):.3f} | {100 * kept:.0f} % | {best} |"
            f" {statistics.median(theirs):.3f} | {statistics.median(ratio):.2f} | {min(ratio):.2f} to {max(ratio):.2f}"
            f" | {cost:.2f} |"
        )
    worst = sorted(ratios, key=lambda name: ratios[name][0])
    behind = [name for name in worst if ratios[name][0] < 1]
    print(
        f"\n{len(ratios)} settings; worst: "
        + "; ".join(f"{name}: {ratios[name][0]:.3f} (spread {ratios[name][1]:.3f})" for name in worst[:8])
    )
    print(
        f"behind the best other: {len(behind)}; of these by more than noise: "
        f"{sum(1 - ratios[name][0] > max(NOISE, ratios[name][1]) for name in behind)}"
    )
    geometric = {
        row: statistics.geometric_mean(
            max(1e-3, statistics.median(goodputs(rows["tactus"])) / max(1e-9, statistics.median(goodputs(rows[row]))))
            for rows in figures.values()
        )
        for row in others
    }
    print("\n| preset | `tactus` over it, geometric mean |\n|---|---|")
    for row, value in sorted(geometric.items(), key=lambda kv: kv[1]):
        print(f"| {row} | {value:.2f} |")
    return figures


def part_ablation(args, simulations, traces):
    figures = run_cells(args, simulations, traces, ["tactus", *ABLATIONS], SETTINGS)
    print("| instead | goodput over `tactus`, geometric mean | least | in | largest | in |\n" + "|---" * 6 + "|")
    for row in ABLATIONS:
        ratios = {
            name: statistics.median(goodputs(rows[row])) / max(1e-9, statistics.median(goodputs(rows["tactus"])))
            for name, rows in figures.items()
        }
        least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
        print(
            f"| {row} | {statistics.geometric_mean(max(1e-3, r) for r in ratios.values()):.3f} | {ratios[least]:.2f} |"
            f" {least} | {ratios[most]:.2f} | {most} |"
        )
    return figures


def part_plain(args, simulations, traces):
    settings = [(machine, trace, None) for machine, trace, _ in SETTINGS]
    settings = list(dict.fromkeys(settings))
    names = ["tactus", "sarathi-serve"]
    figures = run_cells(args, simulations, traces, names + [name + SAME_KV for name in names], settings)
    print(
        "| setting | load | same plans with as much KV | TTFT P50 | P99 | TBT P50 | P99 | requests/s |\n"
        + "|---" * 8
        + "|"
    )
    for name, rows in figures.items():
        pairs = list(zip(rows["tactus"], rows["sarathi-serve"]))
        ratio = lambda figure, *path: statistics.median(figure(a) / max(1e-9, figure(b)) for a, b in pairs)
        same = [
            a["plan_hash"] == b["plan_hash"] for a, b in zip(rows["tactus" + SAME_KV], rows["sarathi-serve" + SAME_KV])
        ]
        setting, load = name.replace(", None", "").rsplit(", ", 1)
        print(
            f"| {setting} | {load} | {sum(same)} of {len(same)} | "
            + " | ".join(
                f"{ratio(lambda run, m=metric, p=percentile: run[m][p]):.3f}"
                for metric in ("ttft_ms", "tbt_ms")
                for percentile in ("p50", "p99")
            )
            + f" | {ratio(lambda run: run['request_throughput']):.3f} |"
        )
    return figures


# Interactive requests (lengths and arrivals of a trace) with objectives, at a share of the machine's capacity.
BESIDE = [
    ("8B H100", "conversation", 2000, 50),
    ("8B H100", "code", 2000, 50),
    ("7B A100", "openchat", 2000, 100),
    ("70B A100x4", "conversation", 4000, 200),
]
BESIDE_LOADS = (0.3, 0.6, 0.8)
BATCH_PROMPT, BATCH_ANSWER = 2000, 200
BESIDE_PRESETS = ("tactus", "sarathi-serve", "vllm", "accelgen")


def percentile(values, share):
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def beside(args, traces, machine, trace, ttft_ms, tbt_ms, seed, rate, backlog, preset):
    """Results of the interactive requests, and completions of backlog requests per second while interactive requests
    arrive."""
    rows = []
    if rate:
        with open(traces.window(machine, trace, seed, rate), newline="") as file:
            rows = [
                (float(row["arrival_s"]), row["prompt_tokens"], row["output_tokens"], ttft_ms, tbt_ms, "chat")
                for row in csv.DictReader(file)
            ]
    rows = [(0.0, BATCH_PROMPT, BATCH_ANSWER, "", "", "batch")] * backlog + rows
    path = traces.folder / f"beside-{machine}-{trace}-{seed}-{rate}-{backlog}-{preset}.csv"
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["arrival_s", "prompt_tokens", "output_tokens", "slo_ttft_ms", "slo_tbt_ms", "slo_class"])
        out.writerows(rows)
    log = path.with_suffix(".out")
    command = [
        "nice",
        "-n",
        "5",
        args.tactus,
        "sim",
        *MACHINES[machine],
        "--workload",
        f"trace:{path}",
        "--ignore-eos",
        "off",
        "--max-queue",
        "100000",
        "--scheduler",
        preset,
        "--requests-out",
        str(log),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(log, newline="") as file:
        ended = list(csv.DictReader(file))
    chat, batch = ([row for row in ended if row["slo_class"] == name] for name in ("chat", "batch"))
    until = max(float(row["done_s"]) for row in chat or batch)
    figures = {"batch": sum(float(row["done_s"]) <= until for row in batch) / until}
    if chat:
        ttft = [float(row["first_token_s"]) - float(row["arrival_s"]) for row in chat]
        gaps = [float(row["longest_gap_s"]) for row in chat if int(row["output_tokens"]) > 1]
        figures |= {
            "TTFT P50": percentile(ttft, 50),
            "TTFT P99": percentile(ttft, 99),
            "gap P50": percentile(gaps, 50),
            "gap P99": percentile(gaps, 99),
            "kept": statistics.mean(
                t * 1000 <= ttft_ms and float(row["longest_gap_s"] or 0) * 1000 <= tbt_ms for t, row in zip(ttft, chat)
            ),
        }
    return figures


def part_batch(args, simulations, traces):
    presets = args.presets.split(",") if args.presets else BESIDE_PRESETS
    seeds = [int(seed) for seed in args.seeds.split(",")]
    found = {}
    print(
        "| interactive | load | | TTFT P50, alone, ms | beside | P99, alone | beside | | longest gap P50, alone |"
        " beside | | P99, alone | beside | | kept, alone | beside | batch of alone |\n" + "|---" * 17 + "|"
    )
    for machine, trace, ttft_ms, tbt_ms in BESIDE:
        for load in BESIDE_LOADS:
            if args.only not in f"{machine}, {trace}, {load:g}":
                continue
            for preset in presets:
                runs = []
                for seed in seeds:
                    rate = round(load * capacity(simulations, traces, machine, trace, seed), 4)
                    alone = beside(args, traces, machine, trace, ttft_ms, tbt_ms, seed, rate, 0, preset)
                    only = beside(args, traces, machine, trace, ttft_ms, tbt_ms, seed, 0, 300, preset)
                    backlog = int(1.2 * only["batch"] * args.requests / rate) + 200
                    both = beside(args, traces, machine, trace, ttft_ms, tbt_ms, seed, rate, backlog, preset)
                    runs.append((alone, both, both["batch"] / only["batch"]))
                found[f"{machine}, {trace}, {load:g}, {preset}"] = runs
                middle = lambda which, name: statistics.median(run[which][name] for run in runs)
                cells = []
                for name in ("TTFT P50", "TTFT P99", "gap P50", "gap P99"):
                    cells += [f"{1000 * middle(0, name):.0f}", f"{1000 * middle(1, name):.0f}"]
                    if name != "TTFT P50":
                        cells.append(f"{statistics.median(run[1][name] / run[0][name] for run in runs):.2f}")
                cells += [
                    f"{100 * middle(0, 'kept'):.0f} %",
                    f"{100 * middle(1, 'kept'):.0f} %",
                    f"{100 * statistics.median(run[2] for run in runs):.0f} %",
                ]
                print(f"| {machine}, {trace} | {load:g} | {preset} | " + " | ".join(cells) + " |", flush=True)
    return found


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parts = {
        "goodput": part_goodput,
        "regimes": part_regimes,
        "ablation": part_ablation,
        "plain": part_plain,
        "batch": part_batch,
    }
    parse.add_argument("--part", choices=parts, default="goodput")
    parse.add_argument("--half", choices=("first", "second"), default="second")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, default=500)
    parse.add_argument("--only", default="", help="settings whose name contains this text")
    parse.add_argument("--presets", help="the other presets, comma-separated; default: all that a server can run")
    parse.add_argument("--jobs", type=int, default=2, help="concurrent simulations")
    parse.add_argument("--cache", type=pathlib.Path)
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = parts[args.part](
            args, Simulations(args.tactus, Cache(args.cache)), Traces(pathlib.Path(folder), args.half, args.requests)
        )
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
