#!/usr/bin/env python3
"""Compares two builds of tactus in turn, so that drift of the machine's speed affects both equally: 1,000 streams at
once, the first answer of an idle server, and the simulator. Prints one Markdown row per figure: medians, and the
median, least and largest of the ratios new/old pair by pair.

    bench/paired.py OLD_BINARY NEW_BINARY [--rounds 5] [--model FILE] [-o FILE.json]

Without --model both serve random weights of a tiny shape, so that mainly the server is measured. One client, the old
binary's, loads both. CPU seconds are those of the measured program.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
SIMULATION = [
    "sim",
    "--model",
    "llama-3.1-8b",
    "--device",
    "h100",
    "--workload",
    "chat",
    "--rate",
    "10",
    "--requests",
    "50000",
    "--prefix-caching",
    "off",
    "--ignore-eos",
    "off",
    "--json",
]  # independent of a build's defaults


class Server:
    def __init__(self, binary, model):
        command = [binary, "serve", *model, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.match(r"ready: .* on (http://\S+)", line):
                self.url = found.group(1)
                return
        sys.exit(f"{binary} did not start:\n" + "".join(lines))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def load(client, url, *flags):
    command = [client, "bench", "--url", url, "--vocab-size", "500", "--json", *flags]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def serve_figures(binary, client, model):
    server = Server(binary, model)
    try:
        first = load(
            client,
            server.url,
            "--requests",
            "200",
            "--concurrency",
            "1",
            "--workload",
            "random:in=32,out=1",
            "--warmup",
            "20",
        )
        before = server.cpu_s()
        streams = load(
            client, server.url, "--requests", "1000", "--concurrency", "1000", "--workload", "random:in=16,out=64"
        )
        if streams["requests"]["completed"] != 1000:
            sys.exit(f"{binary}: {streams['requests']} of 1,000 streams")
        return {
            "first answer, P50 ms": first["ttft_ms"]["p50"],
            "first answer, P99 ms": first["ttft_ms"]["p99"],
            "1,000 streams, s": streams["duration_s"],
            "1,000 streams, server CPU s": server.cpu_s() - before,
            "1,000 streams, gap P50 ms": streams["tbt_ms"]["p50"],
        }
    finally:
        server.stop()


def sim_figures(binary):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([binary, *SIMULATION], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(done.stdout)
    return {"simulation, CPU s": after.ru_utime - before.ru_utime}, (result["steps"], result["plan_hash"])


def measure(binary, client, model):
    figures = serve_figures(binary, client, model)
    simulated, plans = sim_figures(binary)
    return figures | simulated, plans


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="served instead of the tiny random weights")
    parser.add_argument("-o", dest="out", type=pathlib.Path)
    args = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(TINY))
        model = [*([args.model] if args.model else [folder, "--load-format", "dummy"]), "--kv-cache-memory", "512MiB"]
        for turn in range(args.rounds):
            started = time.monotonic()
            order = [args.old, args.new] if turn % 2 == 0 else [args.new, args.old]
            got = {binary: measure(binary, args.old, model) for binary in order}
            rounds.append({"old": got[args.old][0], "new": got[args.new][0]})
            same = "equal" if got[args.old][1] == got[args.new][1] else "DIFFERENT"
            print(
                f"round {turn + 1} of {args.rounds}: {time.monotonic() - started:.0f} s, simulated plans {same}",
                file=sys.stderr,
            )
    print("| figure | old | new | new/old | least | largest |\n|---|---|---|---|---|---|")
    for name in rounds[0]["old"]:
        old, new = ([r[side][name] for r in rounds] for side in ("old", "new"))
        ratios = [n / o for n, o in zip(new, old)]
        print(
            f"| {name} | {statistics.median(old):.3g} | {statistics.median(new):.3g} | {statistics.median(ratios):.3f}"
            f" | {min(ratios):.3f} | {max(ratios):.3f} |"
        )
    if args.out:
        versions = [
            subprocess.run([b, "--version"], check=True, capture_output=True, text=True).stdout.strip()
            for b in (args.old, args.new)
        ]
        args.out.write_text(
            json.dumps(
                {"versions": versions, "model": args.model or "tiny, random weights", "rounds": rounds}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
