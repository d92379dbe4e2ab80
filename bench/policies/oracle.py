#!/usr/bin/env python3
"""How far each preset is from the best possible: requests that met all their objectives, as a share of the oracle's
(the best schedule that a search finds, `tactus sim --scheduler oracle`) and of the upper bound (which no schedule
exceeds). Prints Markdown: a table for each setting, with a row per preset and two columns per load.

    bench/policies/oracle.py [TACTUS] [--settings kv-short,chat] [--loads 0.5,1,1.5,2,3] [--seeds 1,2]
                             [--requests 150] [--without tactus] [--presets A,B] [-o FILE.json]

Settings, traces (their second half), loads and presets are those of bench/policies/tactus.py. The oracle knows every
length and arrival and starts its search from every preset except those of `--without`; the presets run as in a server
and know neither. All runs of a cell have the same requests. A cell is the sum over the seeds; the first row counts
requests.
"""

import argparse
import json
import pathlib
import sys
import tempfile

from tactus import MIXES, OTHERS, Cache, Simulations, Traces, capacity

SETTINGS = {
    "kv-short": ("13B A100, 12 GB of KV", "openchat", "relaxed"),
    "chat": ("8B H100", "conversation", "strict"),
    "code": ("34B A100x2", "code", "relaxed"),
}
ORACLE_LIMIT_S = 1800


def kept(run):
    """Requests that met their objectives, and requests with objectives; an aborted run counts none as met."""
    classes = run.get("classes", {}).values()
    return sum(c["kept"] for c in classes), sum(c["stated"] for c in classes)


def simulate(simulations, machine, path, flags):
    result = simulations.run(machine, path, flags)
    if "error" in result:
        sys.exit(result["error"])
    return result


def cell(args, simulations, searches, traces, setting, load, presets):
    """Sums over the seeds: requests with objectives, and those met by the oracle, the bound and each preset."""
    machine, trace, mix = setting
    sums = dict.fromkeys(("stated", "oracle", "bound", *presets), 0)
    for seed in (int(text) for text in args.seeds.split(",")):
        rate = round(load * capacity(simulations, traces, machine, trace, seed), 4)
        path = traces.window(machine, trace, seed, rate)
        flags = ["--slo-mix", MIXES[mix], "--seed", str(seed), "--scheduler"]
        without = ["--oracle-without", args.without] if args.without else []
        best = simulate(searches, machine, path, [*flags, "oracle", *without])
        if best["oracle"]["upper_bound"] is None:
            sys.exit(f"no bound is known of {machine}, {trace}, {mix}")
        sums["stated"] += kept(best)[1]
        sums["oracle"] += best["oracle"]["kept"]
        sums["bound"] += best["oracle"]["upper_bound"]
        for preset in presets:
            count = kept(simulate(simulations, machine, path, [*flags, preset]))[0]
            if count > best["oracle"]["upper_bound"]:
                sys.exit(f"{preset} keeps {count} requests of {path}, above the bound: the bound is wrong")
            sums[preset] += count
        print(f"{machine}, {trace}, load {load:g}, seed {seed}: {best['oracle']}", file=sys.stderr, flush=True)
    return sums


def table(loads, cells, presets):
    print("| |" + "".join(f" {load:g}: of the oracle | of the bound |" for load in loads))
    print("|---|" + "---|---|" * len(loads))
    share = lambda part, whole: f"{100 * part / whole:.0f} %" if whole else "-"
    numbers = "".join(f" {c['oracle']} of {c['stated']} | {c['bound']} |" for c in cells)
    print("| requests: oracle, bound |" + numbers)
    print("| oracle |" + "".join(f" 100 % | {share(c['oracle'], c['bound'])} |" for c in cells))
    for preset in sorted(presets, key=lambda name: -sum(c[name] / max(1, c["bound"]) for c in cells)):
        shares = (f" {share(c[preset], c['oracle'])} | {share(c[preset], c['bound'])} |" for c in cells)
        print(f"| {preset} |" + "".join(shares))
    sys.stdout.flush()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--settings", default="kv-short,chat", help=f"comma-separated, of {', '.join(SETTINGS)}")
    parse.add_argument("--loads", default="0.5,1,1.5,2,3", help="loads, as shares of sarathi-serve's throughput")
    parse.add_argument("--seeds", default="1,2")
    parse.add_argument("--requests", type=int, default=150)
    parse.add_argument(
        "--without", default="tactus", help="presets excluded from the oracle's starting points; '': none"
    )
    parse.add_argument("--presets", default=",".join(("tactus", *OTHERS)), help="rows, comma-separated")
    parse.add_argument("-o", "--output", help="write all figures there, as JSON")
    args = parse.parse_args()
    for name in args.settings.split(","):
        if name not in SETTINGS:
            parse.error(f"--settings: no setting is named '{name}'; they are {', '.join(SETTINGS)}")
    loads, presets = [float(load) for load in args.loads.split(",")], args.presets.split(",")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        traces = Traces(pathlib.Path(folder), "second", args.requests)
        simulations = Simulations(args.tactus, Cache(None))
        searches = Simulations(args.tactus, Cache(None), ORACLE_LIMIT_S)
        for name in args.settings.split(","):
            setting = SETTINGS[name]
            cells = [cell(args, simulations, searches, traces, setting, load, presets) for load in loads]
            figures[name] = dict(zip((f"{load:g}" for load in loads), cells))
            print(f"{name}: {', '.join(setting)}\n")
            table(loads, cells, presets)
            print(flush=True)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
