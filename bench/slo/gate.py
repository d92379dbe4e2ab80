#!/usr/bin/env python3
"""Requests that `--gate predict` admits far beyond capacity, and how many of them miss the predicted TTFT.

  bench/slo/gate.py [--program NAME=PATH ...] [--seeds 3] [--load 7] [--requests 120] [--ttft 1s] [-o FILE.json]

Each program (default: build/release/tactus) serves the same model, the default one or --model. Programs take turns and
start cold for each seed. The rate is --load divided by the time of a single request, measured on the first program. A
request has 1,000 prompt tokens and 32 answer tokens. Prints one Markdown row per program.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = "random:in=1000,out=32"
START_LIMIT_S = 120


class Server:
    """One program on a free port, with a separate cache folder: no step times of an earlier run."""

    def __init__(self, program: pathlib.Path, model: str) -> None:
        self.cache = tempfile.TemporaryDirectory(prefix="tactus-gate-")
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--gate", "predict"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TACTUS_CACHE_DIR": self.cache.name},
        )
        said = ""
        until = time.monotonic() + START_LIMIT_S
        while not (found := re.search(r"on (http://\S+?:\d+)", said)):
            line = self.process.stdout.readline()
            said += line
            if not line or time.monotonic() > until:
                self.close()
                raise SystemExit(f"gate: {program} did not start:\n{said}")
        self.url = found[1]
        while True:
            try:
                urllib.request.urlopen(self.url + "/ready", timeout=5).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise SystemExit(f"gate: {program} was not ready within {START_LIMIT_S} s") from None
                time.sleep(0.1)

    def metrics(self) -> str:
        return urllib.request.urlopen(self.url + "/metrics", timeout=30).read().decode()

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.cache.cleanup()


def load(client: pathlib.Path, url: str, *args: object) -> dict:
    done = subprocess.run(
        [client, "bench", "--url", url, "--workload", WORKLOAD, "--json", *map(str, args)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"gate: the load test failed:\n{done.stderr}")
    return json.loads(done.stdout)


def missed(metrics: str) -> int:
    """Admitted requests that missed their objective, for any reason."""
    lines = re.findall(r"^tactus_slo_misses_total\{(.*)\} (\S+)$", metrics, flags=re.MULTILINE)
    return int(sum(float(value) for labels, value in lines if 'cause="refused"' not in labels))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", action="append", metavar="NAME=PATH", help="default: now=build/release/tactus")
    parser.add_argument("--model", help="default: the model of scripts/get_default_model.sh")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=7, help="rate, as a multiple of one request at a time")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--ttft", default="1s")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="writes all runs as JSON")
    args = parser.parse_args()
    programs = {}
    for text in args.program or [f"now={ROOT / 'build/release/tactus'}"]:
        name, _, path = text.partition("=")
        if not os.access(path, os.X_OK):
            parser.error(f"--program {text}: no such program; NAME=PATH expected")
        programs[name] = pathlib.Path(path)
    model = (
        args.model
        or subprocess.run(
            [ROOT / "scripts/get_default_model.sh"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    client = next(iter(programs.values()))
    server = Server(client, model)
    try:
        alone = load(client, server.url, "--requests", 8, "--concurrency", 1)
    finally:
        server.close()
    rate = args.load / (alone["e2e_ms"]["p50"] / 1000)
    print(f"gate: a request alone takes {alone['e2e_ms']['p50']:.0f} ms; {rate:.2f} requests/s", file=sys.stderr)
    runs = []
    for seed in range(1, args.seeds + 1):
        for name, program in programs.items():
            server = Server(program, model)
            try:
                found = load(
                    client,
                    server.url,
                    "--requests",
                    args.requests,
                    "--rate",
                    f"{rate:.3f}",
                    "--seed",
                    seed,
                    "--slo",
                    f"ttft={args.ttft}",
                    "--send-slo",
                    "on",
                )
                late = missed(server.metrics())
            finally:
                server.close()
            runs.append({"program": name, "seed": seed, "let_in": found["requests"]["completed"], "late": late})
            print(f"gate: seed {seed}, {name}: {runs[-1]['let_in']} let in, {late} of them late", file=sys.stderr)
    print("| program | requests | let in | late | share late |\n|---|---|---|---|---|")
    for name in programs:
        mine = [run for run in runs if run["program"] == name]
        let_in, late = (sum(run[key] for run in mine) for key in ("let_in", "late"))
        print(f"| {name} | {args.requests * args.seeds} | {let_in} | {late} | {late / max(1, let_in):.1%} |")
    if args.output:
        args.output.write_text(json.dumps({"alone": alone, "rate": rate, "runs": runs}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
