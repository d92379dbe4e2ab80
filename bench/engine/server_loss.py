#!/usr/bin/env python3
"""Throughput loss of a loaded server against the bare engine: the same closed loop of streams through the library and
over HTTP with streaming, in turns. The client of the server runs on the same cores and counts as loss.

    bench/engine/server_loss.py MODEL [--build build/release] [--streams 32] [--rounds 3] [-- flags of the engine]
"""

import argparse
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys


def bare(args):
    command = [
        args.build / "bench/engine/bare_engine",
        args.model,
        "--streams",
        args.streams,
        "--requests",
        args.requests,
        "--in",
        args.tokens_in,
        "--out",
        args.tokens_out,
        *args.flags,
    ]
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["output_tokens_per_second"]


def served(args):
    command = [args.build / "tactus", "serve", args.model, "--port", "0", *args.flags]
    server = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if found := re.search(r"http://[0-9.]+:[0-9]+", line):
                url = found.group(0)
            if "ready" in line:
                break
        else:
            sys.exit("the server ended before it was ready")
        load = [
            args.build / "tactus",
            "bench",
            "--url",
            url,
            "--requests",
            args.requests,
            "--concurrency",
            args.streams,
            "--workload",
            f"random:in={args.tokens_in},out={args.tokens_out}",
            "--temperature",
            0,
            "--warmup",
            1,
            "--json",
        ]
        result = json.loads(subprocess.run([str(c) for c in load], check=True, capture_output=True, text=True).stdout)
        return result["output_token_throughput"]
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--tokens-in", type=int, default=64)
    parser.add_argument("--tokens-out", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="flags for the engine, after --")
    args = parser.parse_args()
    pairs = []
    for turn in range(args.rounds):
        pair = (bare(args), served(args)) if turn % 2 == 0 else (served(args), bare(args))[::-1]
        pairs.append(pair)
        print(f"bare {pair[0]:8.1f} tokens/s   served {pair[1]:8.1f}   ratio {pair[1] / pair[0]:.3f}", flush=True)
    print(f"median ratio {statistics.median(s / b for b, s in pairs):.3f}")


if __name__ == "__main__":
    main()
