#!/usr/bin/env python3
"""The cost of a loaded server without the model: time until it is ready and answers, CPU time of its threads per token
with --streams streams, their context switches, and its memory by kind. Counts of work and memory depend little on other
processes; server_loss.py measures speeds.

    bench/engine/server_work.py MODEL [--build build/release] [--streams 32] [-- flags of the server]
"""

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

LARGE = 32 << 10  # kB: mappings of weights and of the KV cache


def start(args):
    """The process, its URL, and the seconds until it was ready and until its first token."""
    begin = time.monotonic()
    command = [args.build / "tactus", "serve", args.model, "--port", "0", *args.flags]
    server = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if found := re.search(r"http://[0-9.]+:[0-9]+", line):
            url = found.group(0)
            break
    else:
        sys.exit("the server ended before it listened")
    threading.Thread(target=server.stdout.read, daemon=True).start()
    while True:
        try:
            urllib.request.urlopen(url + "/ready").read()
            break
        except urllib.error.HTTPError:
            time.sleep(0.002)
        if server.poll() is not None:
            sys.exit("the server ended before it was ready")
    ready = time.monotonic()
    body = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
    urllib.request.urlopen(
        urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    ).read()
    return server, url, ready - begin, time.monotonic() - begin


def threads(pid):
    """By thread name and id: nanoseconds of CPU time, voluntary switches, other switches."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        switches = [
            int(re.search(rf"^{kind}_ctxt_switches:\s+(\d+)", status, re.M)[1])
            for kind in ("voluntary", "nonvoluntary")
        ]
        found[f"{(task / 'comm').read_text().strip()} {task.name}"] = [
            int((task / "schedstat").read_text().split()[0]),
            *switches,
        ]
    return found


def memory_mb(pid):
    sizes = {"total": 0, "large mappings (weights, KV)": 0, "the rest": 0}
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", pathlib.Path(f"/proc/{pid}/smaps").read_text()):
        rss = int(re.search(r"^Rss:\s+(\d+)", block, re.M)[1])
        size = int(re.search(r"^Size:\s+(\d+)", block, re.M)[1])
        sizes["total"] += rss
        sizes["large mappings (weights, KV)" if size >= LARGE and rss >= LARGE else "the rest"] += rss
    return {k: round(v / 1024) for k, v in sizes.items()}


def load(args, url, requests):
    command = [
        args.build / "tactus",
        "bench",
        "--url",
        url,
        "--requests",
        requests,
        "--concurrency",
        args.streams,
        "--workload",
        f"random:in={args.tokens_in},out={args.tokens_out}",
        "--temperature",
        0,
        "--json",
    ]
    json.loads(subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--tokens-in", type=int, default=16)
    parser.add_argument("--tokens-out", type=int, default=128)
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.flags = words[end + 1 :]
    server, url, ready, first = start(args)
    try:
        print(f"ready after {ready:.2f} s, first token after {first:.2f} s; MB: {memory_mb(server.pid)}")
        load(args, url, args.streams)
        before = threads(server.pid)
        load(args, url, args.requests)
        tokens = args.requests * args.tokens_out
        for name, now in sorted(threads(server.pid).items()):
            ran, asked, lost = ((a - b) / tokens for a, b in zip(now, before.get(name, [0, 0, 0])))
            if ran >= 10:
                print(
                    f"{name:24s} {ran / 1000:8.2f} us/token, {asked:.3f} switches that it asked for, {lost:.3f} others"
                )
        print(f"with {args.streams} streams, MB: {memory_mb(server.pid)}")
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


if __name__ == "__main__":
    main()
