#!/usr/bin/env python3
"""Whether a server's intake throttles its queue: the rate at which a load test sends requests, and the rate at which
the scheduler receives them. A scheduler can order only requests that it has received; LARRY's paper (4) found that its
engine's driver added requests to the queue more slowly than they were issued.

    bench/policies/intake.py MODEL [TACTUS] [--rates 50,100,200,400,800] [--seconds 5] [--workload random:in=32,out=2]
    [--repeats 3] [-o FILE.json]

The server and the client share the machine. Steps have 64 tokens, so that counts are frequent. Issued: by the client's
clock, from the first request to the last. Enqueued: by the server's steps, from the first with a known request
(waiting, running or done) to the first in which all requests are known. Both are counts over time spans; a row is the
median of the repeats. The load is open: requests are sent without waiting for answers.
"""

import argparse
import csv
import datetime
import io
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def table(run, name):
    parts = sorted(part for part in run.namelist() if part.startswith(name + "/"))
    return [row for part in parts for row in csv.DictReader(io.TextIOWrapper(run.open(part)))]


def enqueued_rate(path):
    """Requests/s, and the longest wait of a request for its first share of a step."""
    with zipfile.ZipFile(path) as run:
        requests, steps = table(run, "requests"), table(run, "steps")
    done = sorted(float(r["done_s"]) for r in requests)
    known, at, first = 0, 0, None
    for step in steps:
        start = float(step["start_s"])
        while at < len(done) and done[at] <= start:
            at += 1
        before, known = known, int(step["running"]) + int(step["waiting"]) + at
        if first is None and known > 0:
            first, begin = known, start
        if known >= len(requests) > before:
            return (known - first) / (start - begin), max(
                float(r["scheduled_s"]) - float(r["arrival_s"]) for r in requests if r["scheduled_s"]
            )
    raise ValueError(f"{path}: its steps never knew all of the {len(requests)} requests")


def wait_until_ready(server, url, said):
    while server.poll() is None:
        try:
            urllib.request.urlopen(url + "/ready").read()
            return
        except OSError:  # 503 while it loads; refused once it has ended
            time.sleep(0.05)
    sys.exit(f"the server ended before it was ready: {said[-1].strip() if said else 'no output'}")


def measure(args, rate, folder):
    run, result = folder / "server.run", folder / "bench.json"
    server = subprocess.Popen(
        [
            args.tactus,
            "serve",
            args.model,
            "--port",
            "0",
            "--scheduler",
            "larry",
            "--token-budget",
            "64",
            "--max-queue",
            "1048576",
            "--max-connections",
            "65536",
            "--max-connections-per-client",
            "65536",
            "--run-out",
            run,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        url = next(
            (found.group(0) for line in server.stdout if (found := re.search(r"http://[0-9.]+:[0-9]+", line))), None
        )
        if url is None:
            sys.exit("the server ended before it listened")
        said = []
        threading.Thread(target=said.extend, args=(server.stdout,), daemon=True).start()
        wait_until_ready(server, url, said)
        requests = round(rate * args.seconds)
        done = subprocess.run(
            [
                args.tactus,
                "bench",
                "--url",
                url,
                "--workload",
                args.workload,
                "--rate",
                str(rate),
                "--arrivals",
                "constant",
                "--requests",
                str(requests),
                "--ignore-eos",
                "on",
                "--seed",
                "1",
                "-o",
                result,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(done.stderr)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
    issued = json.loads(result.read_text())
    if issued["requests"]["completed"] != requests:
        sys.exit(f"at {rate:g} requests/s not all were answered: {issued['requests']}")
    enqueued, waited = enqueued_rate(run)
    return {
        "rate": rate,
        "issued": issued["request_rate_achieved"],
        "enqueued": enqueued,
        "completed": issued["request_throughput"],
        "longest_wait_s": waited,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tactus", type=pathlib.Path, nargs="?", default=ROOT / "build/release/tactus")
    parser.add_argument("--rates", default="50,100,200,400,800")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workload", default="random:in=32,out=2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    cells = []
    print(
        "| asked, requests/s | issued | enqueued | enqueued over issued | completed | longest wait"
        " |\n|---|---|---|---|---|---|"
    )
    for rate in (float(r) for r in args.rates.split(",")):
        rows = []
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(args, rate, pathlib.Path(folder)))
        cells += rows
        of = lambda name: statistics.median(row[name] for row in rows)
        ratios = sorted(row["enqueued"] / row["issued"] for row in rows)
        print(
            f"| {rate:g} | {of('issued'):.1f} | {of('enqueued'):.1f} | {statistics.median(ratios):.3f} ({ratios[0]:.3f}"
            f" to {ratios[-1]:.3f}) | {of('completed'):.1f} | {of('longest_wait_s'):.1f} s |",
            flush=True,
        )
    if args.output:
        args.output.write_text(
            json.dumps(
                {
                    "date": f"{datetime.date.today()}",
                    "model": args.model.name,
                    "workload": args.workload,
                    "cells": cells,
                }
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
