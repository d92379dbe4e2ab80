#!/usr/bin/env python3
"""Compares our engine with the step logs of the Vidur simulator: every column of every row, and every time.

  bench/validate/vidur.py --data DIR [--build build/release]

DIR/vidur holds its tables, requests and logs (its README has the rules). Each run is simulated with Vidur's differing
rules injected (tests/vidur/vidur_policies.cc), and again with an unchanged preset of ours. For a log with other
parameters: BUILD/tests/vidur/vidur_check --help.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys

RUNS = [
    ("sarathi", "sarathi", 27904),
    ("vllm", "vllm", 27904),
    ("orca", "orca", 27904),
    ("sarathi_lowmem", "sarathi", 2500),
    ("vllm_lowmem", "vllm", 2500),
]
RESULT = re.compile(r": (\d+) of (\d+) steps equal, largest time difference ([\d.]+) us \(([^:]+):")


def check(
    build: pathlib.Path, data: pathlib.Path, run: tuple[str, str, int], *extra: str
) -> tuple[int, int, float, str, bool]:
    name, policy, blocks = run
    command = [
        str(build / "tests/vidur/vidur_check"),
        "--data",
        str(data),
        "--run",
        name,
        "--policy",
        policy,
        "--blocks",
        str(blocks),
        *extra,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = RESULT.search(done.stdout)
    if not found:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}")
    return int(found[1]), int(found[2]), float(found[3]), found[4], done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with vidur/ in it")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    args = parser.parse_args()
    print(
        "| run | steps | equal, with its rules | largest time difference | equal, our preset as it is"
        " |\n|---|---|---|---|---|"
    )
    good = True
    for run in RUNS:
        equal, steps, off_us, _, ok = check(args.build, args.data / "vidur", run)
        stock, _, _, preset, _ = check(args.build, args.data / "vidur", run, "--stock")
        good = good and ok and equal == steps
        print(
            f"| {run[0]} | {steps} | {equal} | {off_us:.3f} us | {'all' if stock == steps else f'the first {stock}'}"
            f" (`{preset}`) |"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
