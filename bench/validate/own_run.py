#!/usr/bin/env python3
"""Compares a loaded run of our server with its simulation, on this machine.

  bench/validate/own_run.py --tactus build/release/tactus [MODEL] [-o FILE.json] [--keep DIR]

Measures the model's step times (`tactus profile`), serves it with `--trace-out` while `tactus bench` loads it, then
replays the recording twice: with the recorded times, where every plan must be the same, and with the profile's times,
whose error is printed. The profile is measured before the run and independent of it. Nothing else should run on the
machine meanwhile; --profile reuses an earlier file.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

AIMS = {"step time, median": 0.05, "TTFT": 0.10, "TBT": 0.10}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(command: list[str], **options) -> subprocess.CompletedProcess:
    print("$", " ".join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, check=True, **options)


def wait_until_ready(url: str, server: subprocess.Popen, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(url + "/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    sys.exit(f"the server was not ready after {seconds:.0f} s")


def loaded_run(args: argparse.Namespace, trace: pathlib.Path, engine: list[str]) -> dict:
    """Starts the server, loads it and stops it; returns the benchmark's result object."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        args.tactus,
        "serve",
        *args.model,
        "--port",
        str(port),
        "--trace-out",
        str(trace),
        "--scheduler",
        args.scheduler,
        *engine,
    ]
    print("$", " ".join(command), file=sys.stderr, flush=True)
    server = subprocess.Popen(command)
    try:
        wait_until_ready(url, server, 120)
        bench = run(
            [
                args.tactus,
                "bench",
                "--url",
                url,
                "--requests",
                str(args.requests),
                "--rate",
                str(args.rate),
                "--workload",
                args.workload,
                "--seed",
                str(args.seed),
                "--warmup",
                "2",
                "--ignore-eos",
                "on",
                "--json",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
    return json.loads(bench.stdout)


def replay(args: argparse.Namespace, trace: pathlib.Path, times: str, profile: pathlib.Path) -> dict:
    command = [args.tactus, "sim", "--replay", str(trace), "--times", times, "--cost", str(profile), "--json"]
    print("$", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # status 1: the plans differ
    if not done.stdout:
        sys.exit(f"the replay failed with status {done.returncode}")
    return json.loads(done.stdout)


def print_table(recorded: dict, model: dict) -> bool:
    print(
        f"plans: {recorded['steps_replayed']} of {recorded['steps_recorded']} steps, "
        f"{'identical' if recorded['identical'] else 'DIFFERENT'} (hash {recorded['plan_hash_recorded']})\n"
    )
    good = recorded["identical"]
    step = model["step_time"]
    rows = [
        ("step time, median", None, None, step["median_abs_error"]),
        ("step time, P90", None, None, step["p90_abs_error"]),
        ("step time, sum", None, None, step["total_error"]),
    ]
    for name, key in (("TTFT", "ttft"), ("TBT", "tbt"), ("end to end", "e2e")):
        for q in ("p50", "p99"):
            rows.append(
                (
                    f"{name} {q.upper()}",
                    model["measured"][f"{key}_ms"][q],
                    model["predicted"][f"{key}_ms"][q],
                    model["error"][key][q],
                )
            )
    print("| figure | measured ms | predicted ms | error | aim |\n|---|---|---|---|---|")
    for name, measured, predicted, error in rows:
        aim = AIMS.get(name, AIMS.get(name.split()[0]) if not name.startswith("step") else None)
        good = good and (aim is None or abs(error) <= aim)
        cells = ["" if v is None else f"{v:.2f}" for v in (measured, predicted)]
        print(
            f"| {name} | {cells[0]} | {cells[1]} | {100 * error:+.1f} % |"
            f" {'' if aim is None else f'{100 * aim:.0f} %'} |"
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="default: the default model")
    parser.add_argument("--tactus", default="build/release/tactus")
    parser.add_argument("--profile", type=pathlib.Path, help="a file of `tactus profile`; default: measure it now")
    parser.add_argument("--time-limit", default="120s", help="of measuring")
    parser.add_argument("--scheduler", default="sarathi-serve")
    parser.add_argument("--token-budget", default="512")
    parser.add_argument("--max-num-seqs", default="32")
    parser.add_argument(
        "--threads",
        default=str(max(1, len(os.sched_getaffinity(0)) - 1)),
        help="compute threads; default: all cores but one, which the load generator and HTTP use",
    )
    parser.add_argument("--workload", default="random:in=200,out=50")
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument(
        "--rate",
        type=float,
        default=1.5,
        help="requests per second; the default is two thirds of the capacity of one core of 2026",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the profile and the recording")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    args.model = [args.model] if args.model else []
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="own_run"))
    folder.mkdir(parents=True, exist_ok=True)
    engine = [
        "--max-num-batched-tokens",
        args.token_budget,
        "--max-num-seqs",
        args.max_num_seqs,
        "--threads",
        args.threads,
    ]

    profile = args.profile
    if profile is None:
        profile = folder / "profile.csv"
        run(
            [args.tactus, "profile", *args.model, "-o", str(profile), "--time-limit", args.time_limit, *engine],
            stdout=subprocess.DEVNULL,
        )
    trace = folder / "run.trace"
    bench = loaded_run(args, trace, engine)
    recorded = replay(args, trace, "recorded", profile)
    model = replay(args, trace, "model", profile)
    good = print_table(recorded, model)
    if args.output:
        args.output.write_text(json.dumps({"bench": bench, "recorded": recorded, "model": model}, indent=1) + "\n")
    print(f"\nrecording and profile: {folder}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
