#!/usr/bin/env python3
"""The gain and cost of speculation: two servers of one build and one model, with and without it, get the same requests
in turn, so that a drift of the machine's speed affects both equally. Their answers must be equal, byte by byte.

    bench/speculation/run.py BINARY [--rounds 5] [--streams 8,32] [--on '--speculation ngram'] [-o FILE.json]
    bench/speculation/run.py BINARY --restarts 20 --kinds chat     # the cost where nothing is gained

Kinds of text: `copy` and `edit` repeat the prompt, `json` fills in records of one shape, `chat` is ordinary questions
at temperature 0.7. First one stream at a time, then the kinds mixed over several concurrent streams. The figure of a
round is the total time of its answers, decode and prompt; the ratio is without / with, so 2 is twice as fast.

Two equal servers also differ in speed, by the memory that each happens to get. A small loss shows only over many pairs
of servers: `--restarts N` starts N trios, in which the third server equals the one without speculation. Ratios are
means over the trios with their 95 % interval, next to the third server's. Ctrl-C stops the program with the finished
trios.
"""

import argparse
import atexit
import concurrent.futures
import datetime
import http.client
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.parse

PASSAGE = (
    "The harbour of Lindby was built in 1874 by Anna Kettler, who had made her money with salt. It has two piers, "
    "a crane of eleven metres and a shed for nets. In winter the ice closes it for nine weeks. The last pilot, "
    "Jonas Vik, kept a diary in which he wrote down the wind, the price of herring and who owed him money. "
)
RECORD = '{"id": 1, "name": "Ada", "city": "Oslo", "active": true, "tags": ["a", "b"]}'
QUESTIONS = [
    "Why is the sky blue?",
    "How do I keep basil alive in winter?",
    "Tell me a story about a lighthouse.",
    "What should I see in Lisbon in two days?",
    "Explain compound interest to a child.",
    "Write a short letter to a neighbour about noise.",
]


def chat(text):
    return [{"role": "user", "content": text}]


def copies(n):
    return [
        (chat(f"Repeat this text word for word, {i + 3} times, and write nothing else:\n\n{PASSAGE}"), 0.0)
        for i in range(n)
    ]


def edits(n):
    names = ["Peter Holm", "Mia Sand", "Ida Berg", "Ole Dahl", "Eva Lund", "Nils Moe"]
    return [
        (
            chat(f"Copy the following text, but write {names[i % len(names)]} instead of Jonas Vik:\n\n{PASSAGE * 2}"),
            0.0,
        )
        for i in range(n)
    ]


def jsons(n):
    return [
        (
            chat(
                f"Write {8 + i} JSON records, one a line, exactly of this form:\n{RECORD}\n{RECORD.replace('1', '2')}"
            ),
            0.0,
        )
        for i in range(n)
    ]


def chats(n):
    return [(chat(QUESTIONS[i % len(QUESTIONS)]), 0.7) for i in range(n)]


KINDS = {"copy": copies, "edit": edits, "json": jsons, "chat": chats}


class Server:
    def __init__(self, binary, flags):
        command = [binary, "serve", "--port", "0", "--max-model-len", "2048", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # no server survives an interrupted start
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.match(r"ready: .* on (http://\S+)", line):
                self.url = urllib.parse.urlparse(found.group(1))
                return
        sys.exit(f"{' '.join(command)} did not start:\n" + "".join(lines))

    def ask(self, messages, temperature, tokens, seed):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=600)
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps({"messages": messages, "temperature": temperature, "max_tokens": tokens, "seed": seed}),
            {"Content-Type": "application/json"},
        )
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

    def drafts(self):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        value = lambda name: sum(float(v) for v in re.findall(rf"^{name}{{.*}} (\S+)$", text, flags=re.M))
        return (
            value("vllm:spec_decode_num_draft_tokens_total"),
            value("vllm:spec_decode_num_accepted_tokens_total"),
            value("tactus_steps_total"),
        )

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def run(server, requests, tokens, streams):
    before = server.drafts()
    begin, cpu_s = time.monotonic(), server.cpu_s()
    if streams == 1:
        answers = [server.ask(m, t, tokens, i) for i, (m, t) in enumerate(requests)]
    else:
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            answers = list(pool.map(lambda a: server.ask(*a[1], tokens, a[0]), enumerate(requests)))
    seconds = time.monotonic() - begin
    drafted, accepted, steps = (b - a for a, b in zip(before, server.drafts()))
    generated = sum(n for _, n in answers)
    return {
        "seconds": seconds,
        "cpu_s": server.cpu_s() - cpu_s,
        "tokens": generated,
        "drafted": drafted,
        "accepted": accepted,
        "steps": steps,
        "texts": [text for text, _ in answers],
    }


def compare(name, servers, requests, tokens, streams, rounds):
    rows = []
    for r in range(rounds + 1):
        order = ("off", "on") if r % 2 == 0 else ("on", "off")
        row = {which: run(servers[which], requests, tokens, streams) for which in order}
        if row["on"]["texts"] != row["off"]["texts"]:
            sys.exit(f"{name}: the answers differ")
        if r > 0:  # the first round fills caches
            rows.append(row)
    ratios = [row["off"]["seconds"] / row["on"]["seconds"] for row in rows]
    on = rows[-1]["on"]
    figures = {
        "kind": name,
        "streams": streams,
        "tokens": on["tokens"],
        "off_tokens_per_s": statistics.median(row["off"]["tokens"] / row["off"]["seconds"] for row in rows),
        "on_tokens_per_s": statistics.median(row["on"]["tokens"] / row["on"]["seconds"] for row in rows),
        "ratio_median": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_largest": max(ratios),
        "cpu_ratio_median": statistics.median(row["off"]["cpu_s"] / row["on"]["cpu_s"] for row in rows),
        "drafted": on["drafted"],
        "accepted": on["accepted"],
        "steps_on": on["steps"],
        "steps_off": rows[-1]["off"]["steps"],
    }
    print(
        f"| {name} | {streams} | {figures['off_tokens_per_s']:.0f} | {figures['on_tokens_per_s']:.0f} | "
        f"{figures['ratio_median']:.3f} | {figures['ratio_least']:.3f} to {figures['ratio_largest']:.3f} | "
        f"{figures['cpu_ratio_median']:.3f} | "
        f"{on['drafted']:.0f} | {on['accepted']:.0f} |",
        flush=True,
    )
    return figures


T95 = {
    2: 12.71,
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
    7: 2.447,
    8: 2.365,
    9: 2.306,
    10: 2.262,
    12: 2.201,
    15: 2.145,
    20: 2.093,
    25: 2.064,
    30: 2.045,
    40: 2.023,
    60: 2.001,
}


def interval(ratios):
    """Geometric mean of ratios and its 95 % interval by Student's t: (mean, lower, upper)."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.mean(logs)
    t = T95[max(n for n in T95 if n <= len(logs))]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(math.exp(v) for v in (mean, mean - half, mean + half))


def cases(args):
    """(kind, streams, requests) of each row."""
    for kind in args.kinds.split(","):
        yield kind, 1, KINDS[kind](args.requests)
    for streams in (int(s) for s in args.streams.split(",") if s):
        for kind in ("chat", "json"):
            if kind in args.kinds.split(","):
                yield kind, streams, KINDS[kind](2 * streams)


def started(args):
    both = args.flags.split()
    return {
        "off": Server(args.binary, [*both, "--speculation", "none"]),
        "on": Server(args.binary, [*both, *args.on.split()]),
    }


def stop(servers):
    for server in servers.values():
        server.stop()


def trio(args, n):
    """(kind, streams) -> server -> [wall time, CPU time] of trio `n`, in s."""
    servers = started(args) | {"alike": Server(args.binary, [*args.flags.split(), "--speculation", "none"])}
    names = list(servers)
    times = {}
    try:
        for kind, streams, requests in cases(args):
            tokens = args.tokens if streams == 1 else args.tokens // 2
            totals = times[kind, streams] = {name: [0.0, 0.0] for name in names}
            for r in range(args.rounds + 1):
                turn = (n + r) % len(names)
                row = {name: run(servers[name], requests, tokens, streams) for name in names[turn:] + names[:turn]}
                if any(row[name]["texts"] != row["off"]["texts"] for name in names):
                    sys.exit(f"{kind}: the answers differ")
                for name in names if r > 0 else ():  # the first round fills caches
                    totals[name][0] += row[name]["seconds"]
                    totals[name][1] += row[name]["cpu_s"]
    finally:
        stop(servers)
    return times


def restarts(args):
    measured = {}  # (kind, streams) -> arm -> [(ratio of wall times, ratio of CPU times)], one for each trio
    done = 0
    try:
        while done < args.restarts:
            for case, totals in trio(args, done).items():
                for arm, ratios in measured.setdefault(case, {"on": [], "alike": []}).items():
                    ratios.append([totals["off"][i] / totals[arm][i] for i in (0, 1)])
            done += 1
            print(f"{done} of {args.restarts} trios", file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # finished trios count
        if done < 2:
            sys.exit(f"stopped after {done} of at least 2 trios")
    print(
        "| text | streams | wall time | interval | CPU time | interval | alike: wall time | interval |\n"
        + "|---" * 8
        + "|"
    )
    results = []
    for (kind, streams), arms in measured.items():
        columns = [interval([r[i] for r in arms[arm]]) for arm, i in (("on", 0), ("on", 1), ("alike", 0))]
        print(f"| {kind} | {streams} | " + " | ".join(f"{m:.3f} | {a:.3f} to {b:.3f}" for m, a, b in columns) + " |")
        results.append({"kind": kind, "streams": streams, "trios": len(arms["on"]), "ratios_wall_cpu": arms})
    return results


def rounds(args):
    servers = started(args)
    print(
        "| text | streams | tokens/s off | on | ratio | least to largest | CPU time | verified | right |\n"
        + "|---" * 9
        + "|"
    )
    try:
        return [
            compare(kind, servers, requests, args.tokens if streams == 1 else args.tokens // 2, streams, args.rounds)
            for kind, streams, requests in cases(args)
        ]
    finally:
        stop(servers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--restarts", type=int, default=0, help="trios of servers, at least 2; --rounds then counts rounds per trio"
    )
    parser.add_argument("--streams", default="8,32")
    parser.add_argument("--requests", type=int, default=3, help="requests of one stream, per round")
    parser.add_argument("--tokens", type=int, default=200, help="maximum tokens of an answer")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--on", default="--speculation ngram", help="flags of the server with speculation")
    parser.add_argument("--flags", default="", help="flags of both servers")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    if args.restarts == 1:
        parser.error("--restarts 1: an interval needs at least 2")
    results = restarts(args) if args.restarts else rounds(args)
    if args.output:
        args.output.write_text(
            json.dumps(
                {
                    "date": datetime.date.today().isoformat(),
                    "cores": os.cpu_count(),
                    "flags": args.flags,
                    "on": args.on,
                    "rounds": args.rounds,
                    "restarts": args.restarts,
                    "results": results,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
