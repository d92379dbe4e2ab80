#!/usr/bin/env python3
"""Goodput under objectives per request: AccelGen's presets against sarathi-serve, on a setting with achievable
objectives. Prints a Markdown table: requests per second that met all their objectives (mean over the seeds, minimum and
maximum), also as a multiple of the first row and of sarathi-serve's best fixed budget.

    bench/policies/accelgen.py [TACTUS] [--part goodput|published|window] [--setting NAME] [--rates 0.8,1.0]
                               [--seeds 1,2,3] [--requests 1000] [--only ROW/ROW/...] [--keep FOLDER] [-o FILE.json]

`--part published` compares the policy as published, its ablations and each of this project's amendments alone, with a
column per setting (without `--setting` for the paper's four models). `--part window` prints throughput and times to
completion, one table per rate. Requests and tokens per second are given twice: over the whole run, until the last
request completes, and over a window from a fifth to four fifths of the arrivals (`--warmup`, `--measure` of `tactus
sim`), under constant load.

The first row is sarathi-serve at the pivot's budget (the step size at which throughput saturates). Every seed draws
separate requests, arrivals and objectives: 34 % of the prompts have 10 to 512 tokens, 52 % up to 4,096, 14 % up to
16,384 (8,192 if the KV memory holds no more); 51 % of the answers have up to 512 tokens, the rest up to 2,048. The
first token is due after U[0.5, 1.5] x 10 x the isolated time of the prompt (by bins of 512 tokens), each later one
after 187.5 ms x U[0.75, 1.25]. In the setting `opt-13b-prompts` answers have up to 32 tokens, so that prompts, not
answers, fill a scarce KV memory. `--keep` writes the workload files to FOLDER, for `tactus sim --workload trace:FILE`.
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

BIN = 512
TBT_MS = 187.5

# `kv_gb`: GB (1e9 bytes) of KV, with `kv_token_bytes` per token; `pivot`: the step size at which throughput saturates
# in the paper; `longest`: the longest prompt, so that prompt and answer fit the KV; `answers`: the longest answer, else
# drawn by the paper's figure 8.
SETTINGS = {
    "llama-3-70b": {
        "deployment": ["--model", "llama-3.1-70b", "--tp", "4"],
        "kv_gb": 135,
        "kv_token_bytes": 327_680,
        "pivot": 1024,
        "longest": 16384,
        "rates": "0.8,1.0",
    },
    "llama-13b": {
        "deployment": ["--model", "llama-13b", "--override-context", "16384"],
        "kv_gb": 12,
        "kv_token_bytes": 819_200,
        "pivot": 768,
        "longest": 8192,
        "rates": "0.2",
    },
    "opt-13b": {
        "deployment": ["--model", "opt-13b", "--override-context", "16384"],
        "kv_gb": 12,
        "kv_token_bytes": 819_200,
        "pivot": 768,
        "longest": 8192,
        "rates": "0.25",
    },
    "opt-175b": {
        "deployment": ["--model", "opt-175b", "--tp", "8", "--override-context", "32768"],
        "kv_gb": 270,
        "kv_token_bytes": 4_718_592,
        "pivot": 1280,
        "longest": 16384,
        "rates": "0.15",
    },
}
PAPERS = tuple(SETTINGS)
# The regime with the paper's own compute use (section 3.2: 61 to 64 % of the budget).
SETTINGS["opt-13b-prompts"] = SETTINGS["opt-13b"] | {"answers": 32, "rates": "2.9"}
BLOCK = 32
# This project's amendments of the published policy, each alone; and the weaker definition of urgency.
AMENDMENTS = (
    ("accelgen-missed", "behind"),
    ("accelgen-missed", "first"),
    ("accelgen-late-takes", "no"),
    ("accelgen-model", "on"),
    ("era", "kv"),
)


ALL = ("goodput", "published", "window")


def policies(pivot, part):
    """Row name -> flags, for one part."""
    rows = []

    def add(name, flags, *parts):
        if part in parts:
            rows.append((name, ["--scheduler", *flags]))

    add(
        "sarathi-serve, pivot" if part == "published" else f"sarathi-serve, {pivot} tokens",
        ["sarathi-serve", "--token-budget", str(pivot)],
        *ALL,
    )
    add("sarathi-serve, 512 tokens", ["sarathi-serve", "--token-budget", "512"], "goodput", "published")
    add("sarathi-serve, 384 tokens", ["sarathi-serve", "--token-budget", "384"], "goodput")
    add("sarathi-serve --budget slo", ["sarathi-serve", "--budget", "slo"], "goodput")
    add("vllm", ["vllm", "--token-budget", str(pivot)], "goodput", "window")
    add("fastgen", ["fastgen", "--token-budget", str(pivot)], *ALL)
    add("accelgen", ["accelgen"], *ALL)
    for preset in ("accelgen-no-chunk", "accelgen-no-order", "accelgen-no-batch"):
        add(preset, [preset], "goodput")
    for era in ("completed", "prefilled", "off"):
        add(f"accelgen --era {era}", ["accelgen", "--era", era], "goodput")
    add("accelgen-paper", ["accelgen-paper"], *ALL)
    for preset in ("accelgen-paper-no-chunk", "accelgen-paper-no-order", "accelgen-paper-no-batch"):
        add(preset, [preset], "published")
    for knob, value in AMENDMENTS:
        add(f"accelgen-paper --{knob} {value}", ["accelgen-paper", f"--{knob}", value], "published")
    add("larry", ["larry", "--token-budget", str(pivot)], "goodput", "window")
    add("tactus", ["tactus"], "goodput", "window")
    return dict(rows)


def blocks_of(setting):
    """KV blocks of the setting's memory."""
    return setting["kv_gb"] * 10**9 // (setting["kv_token_bytes"] * BLOCK)


def simulate(tactus, deployment, flags):
    command = [tactus, "sim", *deployment, "--block-size", str(BLOCK), "--prefix-caching", "off", *flags, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def isolated_ms(tactus, deployment, longest):
    """Time to the first token of a prompt on an idle machine, computed in one step, per bin."""
    times = []
    for end in range(BIN, longest + 1, BIN):
        result = simulate(
            tactus,
            deployment,
            [
                "--workload",
                f"random:in={end - BIN // 2},out=1",
                "--requests",
                "1",
                "--concurrency",
                "1",
                "--scheduler",
                "orca",
                "--step-limit",
                "none",
            ],
        )
        times.append(result["ttft_ms"]["mean"])
    return times


def draw_lengths(draw, longest, long_share=0.14, answers=None):
    """Prompt and answer tokens of a request: the paper's figure 8; prompts that are not long keep their proportions.
    `answers`: the longest answer, instead of the figure's."""
    kind = draw.random()
    prompt = (
        draw.randint(10, 512)
        if kind < 0.34 / 0.86 * (1 - long_share)
        else draw.randint(513, 4096)
        if kind < 1 - long_share
        else draw.randint(4097, longest)
    )
    answer = draw.randint(1, 512) if draw.random() < 0.51 else draw.randint(513, 2048)
    return prompt, draw.randint(1, answers) if answers else answer


def write_workload(path, seed, rate, requests, isolated, answers=None):
    longest = BIN * len(isolated)
    draw = random.Random(seed)
    now = 0.0
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens", "slo_ttft_ms", "slo_tbt_ms"])
        for _ in range(requests):
            now += draw.expovariate(1.0) / rate
            prompt, output = draw_lengths(draw, longest, answers=answers)
            ttft = draw.uniform(0.5, 1.5) * 10 * isolated[(prompt - 1) // BIN]
            tbt = draw.uniform(0.75, 1.25) * TBT_MS
            rows.writerow([f"{now:.6f}", prompt, output, f"{ttft:.3f}", f"{tbt:.3f}"])


REFERENCES = ("sarathi-serve, pivot", "fastgen")
WINDOW = (0.2, 0.6)  # shares of the requests: arriving before the window, and within it


def window_flags(requests):
    """The flags of `tactus sim` for the measured window: no empty machine before it, no drain after."""
    before, inside = (int(share * requests) for share in WINDOW)
    return ["--warmup", str(before), "--measure", str(inside)]


def throughput(result):
    return {
        "requests_per_s": result["request_throughput"],
        "tokens_per_s": result["input_token_throughput"] + result["output_token_throughput"],
    }


def figures_of(tactus, deployment, flags, requests, part):
    """A row's values for one workload."""
    result = simulate(tactus, deployment, flags)
    if result["goodput"] is None:
        sys.exit(f"{tactus} ignores objectives in the columns of a workload file")
    found = {key: result[key] for key in ("goodput", "slo_attainment", "request_throughput", "preemptions")}
    if part == "window":
        inside = simulate(tactus, deployment, flags + window_flags(requests))
        found |= {"drain": throughput(result), "window": throughput(inside)}
        found["jct_s"] = {key: result["e2e_ms"][key] / 1000 for key in ("mean", "p50", "p95", "p99")}
    return found


def spread(runs):
    """Mean, minimum and maximum of the goodput."""
    goodput = [run["goodput"] for run in runs]
    return f"{statistics.mean(goodput):.3f} ({min(goodput):.3f} to {max(goodput):.3f})"


def published_table(columns):
    """`columns`: column name -> measurements."""
    print("| | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for name in next(iter(columns.values())):
        print(f"| {name} | " + " | ".join(spread(runs[name]) for runs in columns.values()) + " |")
    best = {
        label: max(statistics.mean(run["goodput"] for run in runs[name]) for name in runs if name in REFERENCES)
        for label, runs in columns.items()
    }
    for name in ("accelgen-paper", "accelgen"):
        over = (
            f"{statistics.mean(run['goodput'] for run in runs[name]) / best[label]:.2f}" if best[label] > 0 else "-"
            for label, runs in columns.items()
            if name in runs
        )
        print(f"| *{name} over the better of {' and '.join(REFERENCES)}* | {' | '.join(over)} |")


def goodput_table(figures, rates):
    mean = {
        name: {rate: statistics.mean(run["goodput"] for run in by_rate[rate]) for rate in rates}
        for name, by_rate in figures.items()
    }
    fixed = [name for name in figures if name.endswith("tokens")] or list(figures)[:1]
    references = [mean[next(iter(figures))], {rate: max(mean[name][rate] for name in fixed) for rate in rates}]
    print("| |" + "".join(f" {rate:g}/s | of the first | of the best fixed |" for rate in rates))
    print("|---|" + "---|---|---|" * len(rates))
    for name, by_rate in figures.items():
        line = f"| {name} |"
        for rate in rates:
            line += f" {spread(by_rate[rate])} |"
            for reference in references:
                line += f" {mean[name][rate] / reference[rate]:.2f} |" if reference[rate] > 0 else " - |"
        print(line)


def window_table(figures, rate):
    """Means over the seeds, with multiples of the first row in brackets."""

    def mean(name, *keys):
        values = figures[name][rate]
        for key in keys:
            values = [value[key] for value in values]
        return statistics.mean(values)

    first = next(iter(figures))
    print(
        f"\n{rate:g}/s:\n\n| | goodput | requests/s to the drain | in the window | tokens/s to the drain |"
        " in the window | mean JCT, s | P50 | P95 | P99 |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for name in figures:
        cells = [f"{mean(name, 'goodput'):.3f}"]
        for unit, digits in (("requests_per_s", 3), ("tokens_per_s", 0)):
            for where in ("drain", "window"):
                value = mean(name, where, unit)
                cells.append(f"{value:.{digits}f} ({value / mean(first, where, unit):.2f})")
        cells += [f"{mean(name, 'jct_s', key):.1f}" for key in ("mean", "p50", "p95", "p99")]
        print(f"| {name} | {' | '.join(cells)} |")


def measure(args, name):
    """Row -> rate -> results of each seed, for setting `name`."""
    setting = SETTINGS[name]
    deployment = setting["deployment"] + ["--device", "a100", "--kv-blocks", str(blocks_of(setting))]
    rows = policies(setting["pivot"], args.part)
    if args.only:
        rows = {row: rows[row] for row in args.only.split("/")}
    isolated = isolated_ms(args.tactus, deployment, setting["longest"])
    rates = rates_of(args, name)
    figures = {row: {rate: [] for rate in rates} for row in rows}
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for rate in rates:
            for seed in (int(seed) for seed in args.seeds.split(",")):
                path = folder / f"{name}-{rate:g}-{seed}.csv"
                write_workload(path, seed, rate, args.requests, isolated, setting.get("answers"))
                for row, flags in rows.items():
                    flags = ["--workload", f"trace:{path}", *flags]
                    figures[row][rate].append(figures_of(args.tactus, deployment, flags, args.requests, args.part))
    return figures


def rates_of(args, name):
    return [float(rate) for rate in (args.rates or SETTINGS[name]["rates"]).split(",")]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--part", choices=ALL, default="goodput")
    parse.add_argument(
        "--setting", choices=SETTINGS, help=f"default: {PAPERS[0]}; of `--part published` {', '.join(PAPERS)}"
    )
    parse.add_argument("--rates", help="requests per second; default: the setting's")
    parse.add_argument("--seeds", default="1,2,3")
    parse.add_argument("--requests", type=int, default=1000)
    parse.add_argument("--only", help="rows of the table by name, separated by /")
    parse.add_argument("--keep", type=pathlib.Path, help="folder for the workload files")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    names = [args.setting] if args.setting else PAPERS if args.part == "published" else PAPERS[:1]
    if args.only:
        rows = policies(SETTINGS[names[0]]["pivot"], args.part)
        for name in args.only.split("/"):
            if name not in rows:
                parse.error(f"--only: no row is named '{name}'; the rows of this setting are: {' / '.join(rows)}")
    if args.rates and len(names) > 1:
        parse.error(f"--rates {args.rates} applies to one setting: name it with --setting")
    found = {name: measure(args, name) for name in names}
    if args.part == "published":
        published_table(
            {
                f"{name}, {rate:g}/s": {row: by_rate[rate] for row, by_rate in figures.items()}
                for name, figures in found.items()
                for rate in rates_of(args, name)
            }
        )
    elif args.part == "window":
        for rate in rates_of(args, names[0]):
            window_table(found[names[0]], rate)
    else:
        goodput_table(found[names[0]], rates_of(args, names[0]))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
