#!/usr/bin/env python3
"""Measures a fleet of the default model on this machine behind `tactus route`: compares balancers while one replica is
slowed, and runs a soak test in which replicas are stopped, killed, drained and started again.

    bench/fleet/real.py [--parts balancers,disaggregation,soak] [--replicas 4] [--requests 300] [--minutes 20] [--seed
    1] [-o FILE.json]

  balancers       the same load (`tactus bench`, chats beside long prompts) through each balancer in turns, --repeats
                  times; one replica is stopped for a part of every second (SIGSTOP, SIGCONT)
  disaggregation  the same load in turns on the same cores: one process of two threads; two of one thread that both
                  prefill and decode (stall-free steps, sal); two of which one prefills and hands each sequence over to
                  the other, which decodes
  soak            streams and whole answers from --clients clients for --minutes; every few seconds a replica is stopped
                  for a while, killed with -9 and started again, or drained, so that its sequences move. Each answer is
                  checked: whole (usage object and [DONE] present, and the same text as every other answer to this
                  prompt, whichever replicas computed it), refused before its start (502, 503), or ended by an error in
                  its stream after its start. Anything else is silence, and the exit status is 1.
"""

import argparse
import collections
import datetime
import http.client
import json
import pathlib
import random
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BALANCERS = ("random", "round-robin", "p2c", "least-outstanding", "prefix-affinity", "llumnix", "sal")


def say(text):
    print(f"real.py: {text}", file=sys.stderr, flush=True)


class Process:
    """A program; waits for a line of its standard error."""

    def __init__(self, command, pattern, log):
        self.command, self.pattern, self.log = command, pattern, log
        self.start()

    def start(self):
        self.match, self.heard = None, threading.Event()  # for this start: the reader of the last one may still end
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, args=(self.process, self.heard), daemon=True).start()

    def _read(self, process, heard):
        for line in process.stderr:
            print(line, end="", file=self.log, flush=True)
            if not heard.is_set() and (match := re.match(self.pattern, line)):
                self.match = match
                heard.set()
        heard.set()

    def wait(self, seconds=120):
        if not self.heard.wait(seconds) or self.match is None:
            raise RuntimeError(f"{' '.join(map(str, self.command))} did not start; see {self.log.name}")
        return self.match.group(1)

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(args, log, *more):
    command = [
        args.tactus,
        "serve",
        args.model,
        "--served-model-name",
        "m",
        "--port",
        "0",
        "--kv-cache-memory",
        args.kv_cache_memory,
        "--max-num-seqs",
        "16",
        "--kv-secret-file",
        str(args.secret),
        *more,
        *args.serve_args,
    ]
    return Process(command, r"ready: .* on (http://\S+)", log)


def route(args, log, urls, balancer, *more):
    router = Process(
        [
            args.tactus,
            "route",
            "--port",
            "0",
            "--replicas",
            ",".join(urls),
            "--balancer",
            balancer,
            "--kv-secret-file",
            str(args.secret),
            *more,
        ],
        r"routing on (http://\S+)",
        log,
    )
    url = router.wait(30)
    end = time.monotonic() + 60
    while ready(url) < len(urls):
        if time.monotonic() > end:
            raise RuntimeError("not all replicas became ready")
        time.sleep(0.1)
    return router, url


class Fleet:
    def __init__(self, args, log):
        self.args, self.log = args, log
        self.replicas = [serve(args, log, "--threads", "1") for _ in range(args.replicas)]
        self.urls = [r.wait() for r in self.replicas]
        for replica, url in zip(self.replicas, self.urls):  # a restarted replica has the same port
            replica.command[replica.command.index("--port") + 1] = url.rsplit(":", 1)[1]

    def router(self, balancer, *args):
        return route(self.args, self.log, self.urls, balancer, *args)

    def stop(self):
        for replica in self.replicas:
            replica.stop()


def ready(url):
    with urllib.request.urlopen(url + "/fleet/replicas", timeout=10) as answer:
        return json.loads(answer.read())["ready"]


def load(args, url, workload, rate, requests, seed):
    done = subprocess.run(
        [
            args.tactus,
            "bench",
            "--url",
            url,
            "--requests",
            str(requests),
            "--rate",
            str(rate),
            "--workload",
            workload,
            "--seed",
            str(seed),
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-500:])
    return json.loads(done.stdout)


def mixed(folder, seed):
    """Chats, and one long prompt in eight, as a file of lengths."""
    draw = random.Random(seed)
    lines = ["prompt_tokens,output_tokens"]
    for _ in range(2000):
        prompt = draw.uniform(2000, 6000) if draw.random() < 1 / 8 else min(2000, draw.lognormvariate(5.5, 0.9))
        lines.append(f"{max(16, int(prompt))},{max(8, min(300, int(draw.lognormvariate(4.2, 0.8))))}")
    path = pathlib.Path(folder) / "mixed.csv"
    path.write_text("\n".join(lines) + "\n")
    return f"lengths:{path}"


def disaggregation(args, log):
    """One process, two equal ones, and a prefill and a decode process, in turns; the other processes are stopped
    meanwhile."""
    started, cells = [], []

    def start(*flags):
        started.append(serve(args, log, *flags))
        started[-1].wait()
        return started[-1]

    try:
        whole, equal, decode = (
            [start("--threads", "2")],
            [start("--threads", "1") for _ in range(2)],
            start("--threads", "1"),
        )
        prefill = start("--threads", "1", "--hand-over-to", decode.wait())
        ways = {"one process": whole, "two equal processes": equal, "prefill and decode": [prefill, decode]}
        for repeat in range(args.repeats):
            names = list(ways)
            for name in names[repeat % 3 :] + names[: repeat % 3]:
                for other in (p for n, ps in ways.items() if n != name for p in ps):
                    other.signal(signal.SIGSTOP)
                for process in ways[name]:
                    process.signal(signal.SIGCONT)
                # The router watches all replicas; a drained one only receives handed-over sequences, and none is moved
                # away from it meanwhile.
                router, url = route(
                    args, log, [p.match.group(1) for p in ways[name]], "sal", "--rebalance-interval", "1h"
                )
                try:
                    if name == "prefill and decode":
                        urllib.request.urlopen(
                            urllib.request.Request(
                                url + "/fleet/drain",
                                json.dumps({"url": decode.match.group(1)}).encode(),
                                {"Content-Type": "application/json"},
                            ),
                            timeout=10,
                        ).close()
                    result = load(
                        args,
                        url,
                        args.disaggregation_workload,
                        args.disaggregation_rate,
                        args.requests,
                        args.seed + repeat,
                    )
                finally:
                    router.stop()
                cells.append(
                    {
                        "way": name,
                        "repeat": repeat,
                        **{k: result[k] for k in ("ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "requests") if k in result},
                    }
                )
                say(f"{name}: TTFT P50 {result['ttft_ms']['p50']:.0f} ms, TBT P99 {result['tbt_ms']['p99']:.0f} ms")
    finally:
        for process in started:
            process.stop()
    return cells


def balancers(args, fleet):
    stop = threading.Event()

    def slow():  # it computes for six tenths of the time
        while not stop.is_set():
            fleet.replicas[0].signal(signal.SIGSTOP)
            time.sleep(0.4)
            fleet.replicas[0].signal(signal.SIGCONT)
            time.sleep(0.6)

    threading.Thread(target=slow, daemon=True).start()
    cells = []
    for repeat in range(args.repeats):
        order = BALANCERS[repeat % len(BALANCERS) :] + BALANCERS[: repeat % len(BALANCERS)]
        for balancer in order:
            router, url = fleet.router(balancer)
            try:
                result = load(args, url, args.workload, args.rate, args.requests, args.seed + repeat)
                cells.append(
                    {
                        "balancer": balancer,
                        "repeat": repeat,
                        **{k: result[k] for k in ("ttft_ms", "normalized_ttft_ms", "tbt_ms", "e2e_ms", "requests")},
                    }
                )
                say(f"{balancer}: TTFT P50 {result['ttft_ms']['p50']:.0f} ms, P95 {result['ttft_ms']['p95']:.0f}")
            finally:
                router.stop()
    stop.set()
    time.sleep(1.1)
    return cells


def ask(url, body, limit_s):
    """Returns (status, text) of an answer; an exception is silence."""
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=limit_s)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def outcome(stream, status, text):
    if status == 503 or status == 502:
        return "refused" if '"error"' in text else f"silence: {status} without an error"
    if status != 200:
        return f"other: {status} {text[:100]}"
    if stream:
        if "data: [DONE]" in text and '"usage"' in text:
            return "whole"
        return "told" if 'data: {"error"' in text else "silence: cut"
    return "whole" if '"usage"' in text else "silence: no usage"


def text_of(stream, answer):
    if not stream:
        return json.loads(answer)["choices"][0]["text"]
    events = [json.loads(line[6:]) for line in answer.split("\n") if line.startswith("data: {")]
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])


def soak(args, fleet):
    router, url = fleet.router("sal", "--dead-after", "5s", "--slow-start", "5s")
    counts, lock, stop = collections.Counter(), threading.Lock(), threading.Event()
    events = collections.Counter()
    slowest, texts = [0.0], {}

    def client(number):
        draw = random.Random(f"{args.seed} {number}")
        while not stop.is_set():
            stream = draw.random() < 0.7
            body = {
                "model": "m",
                "prompt": "word " * draw.choice([4, 30, 300]),
                "max_tokens": draw.choice([4, 32, 128]),
                "ignore_eos": True,
                "temperature": 0,
            }
            if stream:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            start = time.monotonic()
            try:
                status, answer = ask(url, body, 120)
                result = outcome(stream, status, answer)
                if result == "whole":
                    text = text_of(stream, answer)
                    with lock:
                        known = texts.setdefault((body["prompt"], body["max_tokens"]), text)
                    if text != known:
                        result = "another text"
                        say(f"max_tokens {body['max_tokens']}: {known!r}, then {text!r}")
            except (OSError, http.client.HTTPException) as error:
                result = f"silence: {type(error).__name__}"
            with lock:
                counts[result] += 1
                slowest[0] = max(slowest[0], time.monotonic() - start)
            if result == "refused":
                time.sleep(0.2)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(args.clients)]
    for thread in threads:
        thread.start()
    draw = random.Random(args.seed)
    end = time.monotonic() + 60 * args.minutes
    reported = time.monotonic()
    while time.monotonic() < end:
        i = draw.randrange(len(fleet.replicas))
        kind = draw.choice(["stop", "kill", "drain"])
        replica = fleet.replicas[i]
        events[kind] += 1
        if kind == "stop":
            replica.signal(signal.SIGSTOP)
            time.sleep(draw.choice([0.5, 2, 8]))
            replica.signal(signal.SIGCONT)
        elif kind == "kill":
            replica.process.kill()
            replica.process.wait()
            time.sleep(draw.choice([0, 1, 5]))
            replica.start()
            replica.wait()
        else:
            for path in ("drain", "undrain"):
                urllib.request.urlopen(
                    urllib.request.Request(
                        url + "/fleet/" + path,
                        json.dumps({"url": fleet.urls[i]}).encode(),
                        {"Content-Type": "application/json"},
                    ),
                    timeout=10,
                ).close()
                time.sleep(draw.choice([0.5, 3]))
        time.sleep(draw.uniform(0.5, 4))
        if time.monotonic() - reported > 30:
            reported = time.monotonic()
            say(f"{(end - reported) / 60:.1f} min left: {dict(counts)}, {dict(events)}")
    stop.set()
    for thread in threads:
        thread.join(180)
    alive = sum(thread.is_alive() for thread in threads)
    pid = router.process.pid
    memory = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) // 1024
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        metrics = {
            m[0]: float(m[1])
            for m in re.findall(
                r"^(tactus_route_(?:retries|cut_streams|hedges|migrations)_total\S*) (\S+)$",
                answer.read().decode(),
                re.M,
            )
        }
    router.stop()
    return {
        "minutes": args.minutes,
        "clients": args.clients,
        "outcomes": dict(counts),
        "events": dict(events),
        "slowest_s": slowest[0],
        "clients_that_hang": alive,
        "router_MiB": memory,
        "router_metrics": metrics,
    }


def table(result):
    lines = []
    cells = result.get("balancers", [])
    if cells:
        lines += [
            "| balancer | TTFT P50 ms | TTFT P95 ms | TBT P99 ms | whole answer P50 ms |",
            "|---|---|---|---|---|",
        ]
        for balancer in BALANCERS:
            own = [c for c in cells if c["balancer"] == balancer]
            figure = lambda metric, at: "{:.0f} ({:.0f} to {:.0f})".format(
                *(f([c[metric][at] for c in own]) for f in (statistics.median, min, max))
            )
            lines.append(
                f"| {balancer} | {figure('ttft_ms', 'p50')} | {figure('ttft_ms', 'p95')} | {figure('tbt_ms', 'p99')} |"
                f" {figure('e2e_ms', 'p50')} |"
            )
    cells = result.get("disaggregation", [])
    if cells:
        lines += [
            "",
            (
                "| on two cores | TTFT P50 ms | TTFT P95 ms | TBT P50 ms | TBT P99 ms | longest gap ms | whole answer"
                " P50 ms |"
            ),
            "|---|---|---|---|---|---|---|",
        ]
        for way in dict.fromkeys(c["way"] for c in cells):
            own = [c for c in cells if c["way"] == way]
            figure = lambda metric, at: "{:.0f} ({:.0f} to {:.0f})".format(
                *(f([c[metric][at] for c in own]) for f in (statistics.median, min, max))
            )
            lines.append(
                f"| {way} | {figure('ttft_ms', 'p50')} | {figure('ttft_ms', 'p95')} | {figure('tbt_ms', 'p50')} |"
                f" {figure('tbt_ms', 'p99')} | {figure('tbt_ms', 'max')} | {figure('e2e_ms', 'p50')} |"
            )
    if "soak" in result:
        lines += ["", json.dumps(result["soak"])]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tactus", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("--model")
    parser.add_argument("--parts", default="balancers,disaggregation,soak")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--rate", type=float, default=1.2)
    parser.add_argument("--workload", help="default: chats, and one long prompt in eight")
    parser.add_argument("--disaggregation-workload", default="mix:chat=0.7,summarize=0.3")
    parser.add_argument("--disaggregation-rate", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kv-cache-memory", default="256MiB")
    parser.add_argument("--serve-args", type=str.split, default=[])
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    if unknown := set(args.parts.split(",")) - {"balancers", "disaggregation", "soak"}:
        sys.exit(f"real.py: part '{min(unknown)}' is unknown; the parts are balancers, disaggregation, soak")
    args.model = (
        args.model
        or subprocess.run(
            [str(ROOT / "scripts/get_default_model.sh")], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "--short=12", "HEAD"),
        "command": " ".join(["bench/fleet/real.py", *sys.argv[1:]]),
    }
    with (
        tempfile.NamedTemporaryFile("w", prefix="fleet_", suffix=".log", delete=False) as log,
        tempfile.TemporaryDirectory() as folder,
    ):
        say(f"log: {log.name}")
        args.secret = pathlib.Path(folder) / "secret"  # with it, sequences at a drained replica move
        args.secret.write_text(secrets.token_hex(32))
        args.secret.chmod(0o600)
        args.workload = args.workload or mixed(folder, args.seed)
        for part in args.parts.split(","):
            if part == "disaggregation":
                result[part] = disaggregation(args, log)
            else:
                fleet = Fleet(args, log)
                try:
                    result[part] = {"balancers": balancers, "soak": soak}[part](args, fleet)
                finally:
                    fleet.stop()
            if args.output:
                args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    bad = [k for k in result.get("soak", {}).get("outcomes", {}) if k not in ("whole", "told", "refused")]
    if bad or result.get("soak", {}).get("clients_that_hang"):
        sys.exit(f"real.py: answers that were lost: {bad}")


if __name__ == "__main__":
    main()
