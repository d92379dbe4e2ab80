#!/usr/bin/env python3
"""The cost of viewers of GET /events for the step loop. The same load runs with and without viewers in alternation, in
one server. Per step: the time by the server's own histogram, and the CPU time of the engine thread (the step loop), of
the thread that writes frames, and of the others outside the model. Prints the medians over the rounds, and the median,
least and largest of the ratios with/without round by round.

    bench/engine/viewers.py MODEL [--build build/release] [--viewers 8] [--rounds 10] [-o FILE] [-- flags of the server]

The viewers read all they get. They run in this process, so they take CPU time of the same machine.
"""

import argparse
import http.client
import json
import pathlib
import re
import selectors
import signal
import statistics
import sys
import threading
import urllib.parse
import urllib.request

from server_work import load, start, threads

MODEL_THREADS = ("tactus-compute",)
FRAMES_THREAD = "tactus-viewers"


class Viewers:
    """Reads the events of a server and drops them."""

    def __init__(self, url, number):
        address = urllib.parse.urlsplit(url)
        self.connections = []
        self.bytes = 0
        self.selector = selectors.DefaultSelector()
        for _ in range(number):
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
            connection.request("GET", "/events")
            connection.sock.setblocking(False)
            self.selector.register(connection.sock, selectors.EVENT_READ)
            self.connections.append(connection)
        self.ends = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while not self.ends.is_set():
            for key, _ in self.selector.select(timeout=0.2):
                self.bytes += len(key.fileobj.recv(1 << 20))

    def close(self):
        self.ends.set()
        self.reader.join()
        for connection in self.connections:
            connection.close()
        return self.bytes


def steps(url):
    """The number of steps so far and the seconds they took."""
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    found = [re.search(rf"^tactus_step_seconds_{part}(?:{{.*}})? (\S+)$", text, re.M) for part in ("count", "sum")]
    return tuple(float(match[1]) for match in found)


def measure(args, server, url, number):
    viewers = Viewers(url, number)
    before, (count, seconds) = threads(server.pid), steps(url)
    load(args, url, args.requests)
    after, (count_after, seconds_after) = threads(server.pid), steps(url)
    read = viewers.close()
    done = count_after - count
    spent = {"engine thread": 0, "frames thread": 0, "other threads": 0}
    for name, (cpu_ns, *_) in after.items():
        kind = name.rsplit(" ", 1)[0]
        if kind in MODEL_THREADS:
            continue
        place = {"tactus-engine": "engine thread", FRAMES_THREAD: "frames thread"}.get(kind, "other threads")
        spent[place] += cpu_ns - before.get(name, [0])[0]
    row = {"steps": done, "step_us": 1e6 * (seconds_after - seconds) / done}
    row |= {f"{name} us": ns / 1e3 / done for name, ns in spent.items()}
    return row | {"viewer_bytes": read / done}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--viewers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens-in", type=int, default=16)
    parser.add_argument("--tokens-out", type=int, default=128)
    parser.add_argument("-o", type=pathlib.Path)
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.flags = words[end + 1 :]
    server, url, *_ = start(args)
    try:
        load(args, url, args.requests)  # the first requests pay for cold memory
        rounds = []
        for i in range(args.rounds):
            order = (0, args.viewers) if i % 2 == 0 else (args.viewers, 0)
            rounds.append({number: measure(args, server, url, number) for number in order})
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    if args.o:
        args.o.write_text(json.dumps(rounds, indent=1) + "\n")
    print(f"| per step | 0 viewers | {args.viewers} viewers | ratio (least to largest) |\n|---|---|---|---|")
    for name in ("step_us", "engine thread us", "frames thread us", "other threads us", "viewer_bytes"):
        medians = [statistics.median(r[number][name] for r in rounds) for number in (0, args.viewers)]
        ratios = sorted(r[args.viewers][name] / r[0][name] for r in rounds if r[0][name] > 0)
        shown = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})" if ratios else ""
        print(f"| {name.replace('_', ' ')} | {medians[0]:.1f} | {medians[1]:.1f} | {shown} |")


if __name__ == "__main__":
    main()
