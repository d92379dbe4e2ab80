#!/usr/bin/env python3
"""Whether streams keep their pace during a long prompt: a few streams decode, a prompt of 2,048 tokens is added, and
every gap between two tokens of a stream until that prompt's first token counts. Servers with and without an objective
take turns in every round, so that a drift of the machine's speed affects all equally. Prints a Markdown table: medians
over the rounds (minimum to maximum).

    bench/policies/beat.py build/release/tactus --model FILE [--rounds 3] [--streams 4] [--prompts 2] [-o FILE.json]

Stored step times of the model are not used: the servers get an empty cache folder and measure their own at the start.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SETTINGS = {
    "512 tokens (--tbt-slo none)": ["--tbt-slo", "none"],
    "default": [],
    "--tbt-slo 100ms": ["--tbt-slo", "100ms"],
}
PROMPT_TOKENS = 2048


class Server:
    def __init__(self, binary, model, flags, cache):
        command = [
            binary,
            "serve",
            *model,
            "--port",
            "0",
            "--prefix-caching",
            "off",
            "--verbose",
            "--measure-step-times",
            *flags,
        ]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TACTUS_CACHE_DIR": cache}
        )
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if found := re.match(r"ready: .* on http://([^:]+):(\d+)", line):
                self.address = found.group(1), int(found.group(2))
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit("the server did not start:\n" + "\n".join(self.lines))

    def metric(self, name):
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return float(re.search(rf"^{name}{{[^}}]*}} (\S+)", text, re.M).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Stream(threading.Thread):
    """One request; `times` has the time of each event with text."""

    def __init__(self, address, tokens, max_tokens, stop=None):
        super().__init__(daemon=True)
        self.address, self.tokens, self.max_tokens, self.stop = address, tokens, max_tokens, stop
        self.times, self.error = [], None

    def run(self):
        try:
            connection = http.client.HTTPConnection(*self.address, timeout=120)
            connection.request(
                "POST",
                "/v1/completions",
                json.dumps(
                    {
                        "prompt": self.tokens,
                        "max_tokens": self.max_tokens,
                        "stream": True,
                        "ignore_eos": True,
                        "temperature": 0,
                    }
                ),
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(response.read().decode())
            for line in response:
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
                if self.stop is not None and self.stop.is_set():
                    break
            connection.close()
        except (OSError, RuntimeError) as error:
            self.error = error


def percentile(values, share):
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def gaps(streams, begin, end):
    return [1000 * (b - a) for s in streams for a, b in zip(s.times, s.times[1:]) if begin <= b <= end]


def wait_for(what, limit_s=180):
    end = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end:
            sys.exit("timed out waiting for an event")
        time.sleep(0.002)


def measure(server, args, draw):
    stop = threading.Event()
    prompt = lambda n: [draw.randrange(100, args.vocab) for _ in range(n)]
    streams = [Stream(server.address, prompt(64), args.answer, stop) for _ in range(args.streams)]
    for s in streams:
        s.start()
    wait_for(lambda: all(len(s.times) > 8 or s.error for s in streams))
    begin = time.monotonic()
    time.sleep(2)
    quiet, beside, ttft = gaps(streams, begin, time.monotonic()), [], []
    for _ in range(args.prompts):
        sent = time.monotonic()
        long = Stream(server.address, prompt(PROMPT_TOKENS), 1)
        long.start()
        wait_for(lambda: long.times or long.error)
        if long.error:
            sys.exit(f"the long prompt failed: {long.error}")
        time.sleep(0.3)  # until the gap that contains its first token has ended
        ttft.append(long.times[0] - sent)
        beside += gaps(streams, sent, long.times[0] + 0.3)
        time.sleep(0.5)
    if failed := [s.error for s in streams if s.error] or ["a stream ended too early: raise --answer"] * any(
        not s.is_alive() for s in streams
    ):
        sys.exit(str(failed[0]))
    stop.set()
    for s in streams:
        s.join(60)
    return {
        "quiet gap P99, ms": percentile(quiet, 99),
        "gap P50, ms": percentile(beside, 50),
        "gap P90, ms": percentile(beside, 90),
        "gap P99, ms": percentile(beside, 99),
        "gap max, ms": max(beside),
        "prompt's TTFT, s": statistics.mean(ttft),
        "correction": server.metric("tactus_step_time_correction"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--model", required=True, help="a file or folder, by its path")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--answer", type=int, default=3000, help="tokens of a stream")
    parser.add_argument("--vocab", type=int, default=40000)
    parser.add_argument(
        "--serve",
        nargs="*",
        default=[],
        help="further flags of all servers, without the leading dashes: load-format=dummy",
    )
    parser.add_argument("-o", dest="out", type=pathlib.Path)
    args = parser.parse_args()
    more = [word for pair in args.serve for word in ("--" + pair.split("=", 1)[0], pair.split("=", 1)[1])]
    draw, rounds = random.Random(1), []
    with tempfile.TemporaryDirectory() as cache:
        for turn in range(args.rounds):
            names = list(SETTINGS)
            got = {}
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                server = Server(args.binary, [args.model, *more], SETTINGS[name], cache)
                try:
                    got[name] = measure(server, args, draw)
                    measured = [line for line in server.lines if line.startswith("step times measured")]
                    print(f"round {turn + 1}, {name}: {got[name]} {measured}", file=sys.stderr)
                finally:
                    server.stop()
            rounds.append(got)
    figures = list(rounds[0][names[0]])
    print("| steps | " + " | ".join(figures) + " |\n" + "|---" * (len(figures) + 1) + "|")
    for name in SETTINGS:
        cells = []
        for figure in figures:
            values = [r[name][figure] for r in rounds]
            digits = 2 if figure.endswith(", s") or figure == "correction" else 0
            cells.append(
                f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
            )
        print(f"| {name} | " + " | ".join(cells) + " |")
    if args.out:
        args.out.write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
