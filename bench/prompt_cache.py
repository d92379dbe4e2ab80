#!/usr/bin/env python3
"""Time to first token of prompts that are new, cached in memory, and cached on disk after the server was killed
(docs/concepts/prompt_cache.md).

  bench/prompt_cache.py build/release/tactus MODEL [--prompts 20] [--tokens 1500]

Also the cost of storing: CPU time of the cold prompts until everything is written, with and without --kv-cache-dir, in
turns.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request


class Server:
    def __init__(self, tactus, model, *args):
        self.process = subprocess.Popen(
            [tactus, "serve", model, "--port", "0", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stderr:
            if ready := re.match(r"ready: .* on (http://\S+)", line):
                self.url = ready.group(1)
                break
        else:
            raise SystemExit("the server did not start")
        self.ask([5, 6, 7])

    def ask(self, prompt):
        """Returns the milliseconds to the first token, and the text."""
        body = json.dumps({"prompt": prompt, "max_tokens": 8, "temperature": 0}).encode()
        headers = {"Content-Type": "application/json", "x-tactus-explain": "1"}
        with urllib.request.urlopen(
            urllib.request.Request(self.url + "/v1/completions", body, headers), timeout=120
        ) as answer:
            answer = json.loads(answer.read())
        return answer["tactus_explain"], answer["choices"][0]["text"]

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            return float(re.search(rf"^{name}{{.*}} (\S+)$", answer.read().decode(), re.M).group(1))

    def processor_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.process.stderr.close()


def show(what, explained):
    first_ms = sorted(e["ttft_ms"] for e in explained)
    cache = explained[0]["cache"]
    waits_ms = statistics.median(e["totals_ms"].get("disk", 0) for e in explained)
    print(
        f"| {what} | {statistics.median(first_ms):.1f} | {first_ms[0]:.1f} to {first_ms[-1]:.1f} | {waits_ms:.1f} "
        f"| {cache['memory_tokens']} | {cache['disk_tokens']} |",
        flush=True,
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tactus")
    arguments.add_argument("model")
    arguments.add_argument("--prompts", type=int, default=20)
    arguments.add_argument("--tokens", type=int, default=1500)
    a = arguments.parse_args()
    draw = random.Random(1)
    prompts = [[draw.randrange(100, 40000) for _ in range(a.tokens)] for _ in range(a.prompts)]

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "kv"
        print(
            "| prompts | first token (ms, median) | of all | of it waiting for the disk | tokens from memory | from"
            " disk |\n|---|---|---|---|---|---|"
        )
        server = Server(a.tactus, a.model, "--kv-cache-dir", folder)
        cold = [server.ask(p) for p in prompts]
        show("cold", [e for e, _ in cold])
        memory = [server.ask(p) for p in prompts]
        show("in memory", [e for e, _ in memory])
        wanted = a.prompts * (a.tokens // 16)
        while server.metric("tactus_disk_kv_written_blocks_total") < wanted:
            time.sleep(0.1)
        server.end(signal.SIGKILL)
        server = Server(a.tactus, a.model, "--kv-cache-dir", folder)
        disk = [server.ask(p) for p in prompts]
        show("on disk, after kill -9", [e for e, _ in disk])
        server.end(signal.SIGTERM)
        same = [t for _, t in cold] == [t for _, t in memory] == [t for _, t in disk]
        print(f"\ntexts are {'the same' if same else 'NOT the same'}")

        seconds = {"without": [], "with": []}
        for _ in range(3):
            for how, args in (("without", []), ("with", ["--kv-cache-dir", folder])):
                subprocess.run(["rm", "-rf", folder], check=True)
                server = Server(a.tactus, a.model, *args)
                begin_s = server.processor_s()
                for p in prompts:
                    server.ask(p)
                while args and server.metric("tactus_disk_kv_written_blocks_total") < wanted:
                    time.sleep(0.1)
                seconds[how].append(server.processor_s() - begin_s)
                server.end(signal.SIGTERM)
        print(
            "processor time of the cold prompts, s: "
            + "; ".join(
                f"{how} --kv-cache-dir {', '.join(f'{s:.2f}' for s in sorted(all_s))}" for how, all_s in seconds.items()
            )
        )


if __name__ == "__main__":
    main()
