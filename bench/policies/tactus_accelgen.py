#!/usr/bin/env python3
"""The `tactus` preset on AccelGen's own settings (bench/policies/accelgen.py): requests per second that met all their
objectives, mean over the seeds. Prints a Markdown table.

    bench/policies/tactus_accelgen.py [TACTUS] [--seeds 1] [--requests 1000] [--presets accelgen,tactus]
"""

import argparse
import pathlib
import statistics
import tempfile

import accelgen

# One rate for each setting, in requests per second.
ROWS = {
    "Llama-3-70B, 1.0/s": ("llama-3-70b", 1.0),
    "OPT-13B, 12 GB of KV, 0.25/s": ("opt-13b", 0.25),
    "OPT-175B, 0.15/s": ("opt-175b", 0.15),
}


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default="build/release/tactus")
    parse.add_argument("--seeds", default="1")
    parse.add_argument("--requests", type=int, default=1000)
    parse.add_argument("--presets", default="accelgen,tactus", help="columns, comma-separated")
    args = parse.parse_args()
    presets = args.presets.split(",")
    print("| |" + "".join(f" `{preset}` |" for preset in presets))
    print("|---|" + "---|" * len(presets))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "workload.csv"
        for row, (name, rate) in ROWS.items():
            setting = accelgen.SETTINGS[name]
            blocks = str(accelgen.blocks_of(setting))
            deployment = setting["deployment"] + ["--device", "a100", "--kv-blocks", blocks]
            isolated = accelgen.isolated_ms(args.tactus, deployment, setting["longest"])
            kept = {preset: [] for preset in presets}
            for seed in args.seeds.split(","):
                accelgen.write_workload(path, int(seed), rate, args.requests, isolated)
                for preset in presets:
                    flags = ["--workload", f"trace:{path}", "--scheduler", preset]
                    kept[preset].append(accelgen.simulate(args.tactus, deployment, flags)["goodput"])
            print(f"| {row} |" + "".join(f" {statistics.mean(kept[preset]):.3f} |" for preset in presets), flush=True)


if __name__ == "__main__":
    main()
