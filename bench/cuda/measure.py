#!/usr/bin/env python3
"""What scripts/gpu.sh measure runs: the card's own rates, then Tactus with Llama-3.1-8B's shape and dummy bf16 weights,
then transformers. The result is written after every part, so a run that is cut short leaves what it has.

  measure.py FOLDER OUT.json [SECONDS]     FOLDER: of scripts/gpu.sh pack
"""

import datetime
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import floors

# Streams, prompt and answer tokens, requests; the first three are the served loads, the others offline jobs.
LOADS = [
    ("served", 8, 1024, 512, 16),
    ("served", 32, 1024, 512, 64),
    ("served", 128, 1024, 512, 256),
    ("offline", 256, 1000, 1000, 256),
    ("offline", 256, 2048, 128, 512),
]
PEER = (1000, 1000, 128)  # prompt and answer tokens, requests


class Run:
    def __init__(self, folder, out, seconds):
        self.folder, self.out = folder, out
        self.end = time.monotonic() + seconds
        self.result = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": "scripts/gpu.sh measure",
            "commit": (folder / "commit").read_text().strip() if (folder / "commit").exists() else "unknown",
            "faults": [],
        }

    def left_s(self, keep_s=0):
        return self.end - time.monotonic() - keep_s

    def fault(self, part, text):
        self.result["faults"].append(f"{part}: {text}")
        print(f"gpu: {part}: {text}", file=sys.stderr)

    def save(self):
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.result, indent=1) + "\n")

    def json_of(self, part, command, limit_s, keep_s=0):
        """The JSON object that a command prints last; None: it failed or took too long, which is noted."""
        limit_s = min(limit_s, self.left_s(keep_s))
        if limit_s < 5:
            self.fault(part, "left out: no time is left")
            return None
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
            if done.returncode == 0:
                return json.loads(done.stdout)
            self.fault(part, f"exit status {done.returncode}: {done.stderr.strip()[-600:]}")
        except subprocess.TimeoutExpired:
            self.fault(part, f"took more than {limit_s:.0f} s")
        except (OSError, ValueError) as fault:
            self.fault(part, str(fault))
        return None


def measure_card(run):
    card = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    run.result["card"] = card.stdout.strip()
    rates = run.json_of("rates", [run.folder / "bin/rates", os.environ.get("TACTUS_CUBLASLT", "libcublasLt.so")], 60)
    if rates is None:
        return None
    run.result["bandwidth"], run.result["rate"] = floors.card_rates(rates)
    print(f"gpu: {run.result['bandwidth'] * 1e-12:.2f} TB/s read, {run.result['rate'] * 1e-12:.0f} TFLOP/s in bf16")
    return run.result["bandwidth"], run.result["rate"]


def measure_steps(run, model, rates):
    found = run.json_of("steps", [run.folder / "bin/step_cells", run.folder / "llama-3.1-8b", "cuda"], 120, keep_s=90)
    if found is None:
        return
    if rates:
        config = json.loads((run.folder / "llama-3.1-8b/config.json").read_text())
        floors.add_floors(found["cells"], model(config), *rates)
        print(floors.table(found["cells"]))
    run.result["steps"] = found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure_loads(run):
    url = f"http://127.0.0.1:{free_port()}"
    log = open(run.out.with_suffix(".server.log"), "w")
    server = subprocess.Popen(
        [run.folder / "bin/tactus", "serve", run.folder / "llama-3.1-8b", "--load-format", "dummy", "--device", "cuda",
         "--max-num-seqs", "256", "--max-model-len", "4096", "--port", url.rsplit(":", 1)[1]],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        started = time.monotonic()
        while not ready(url):
            if server.poll() is not None or time.monotonic() - started > min(90, run.left_s(60)):
                return run.fault("serve", f"did not start; see {log.name}")
            time.sleep(0.5)
        run.result["start_s"] = time.monotonic() - started
        run.result["loads"] = []
        for kind, streams, prompt, answer, requests in LOADS:
            found = run.json_of(
                f"{kind} {streams} x {prompt}/{answer}",
                [run.folder / "bin/tactus", "bench", "--url", url, "--concurrency", str(streams), "--workload",
                 f"random:in={prompt},out={answer}", "--requests", str(requests), "--ignore-eos", "on",
                 "--vocab-size", "128000", "--json"],
                60, keep_s=60 if kind == "offline" else 90,
            )  # fmt: skip
            if found is not None:
                run.result["loads"].append(
                    {"kind": kind, "streams": streams, "prompt": prompt, "answer": answer} | found
                )
                run.save()
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def ready(url):
    try:
        return urllib.request.urlopen(url + "/v1/models", timeout=2).status == 200
    except OSError:
        return False


def measure_peer(run):
    program = pathlib.Path(__file__).with_name("peer_transformers.py")
    found = run.json_of("transformers", [sys.executable, program, run.folder / "llama-3.1-8b", *map(str, PEER)], 100)
    if found is not None:
        run.result["transformers"] = found
        if "error" in found:
            run.fault("transformers", found["error"])


def main():
    folder, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    run = Run(folder, out, float(sys.argv[3]) if len(sys.argv) > 3 else 360)
    rates = measure_card(run)
    run.save()
    measure_steps(run, floors.Model, rates)
    run.save()
    measure_loads(run)
    run.save()
    measure_peer(run)
    run.save()
    print(f"gpu: {out}; {len(run.result['faults'])} parts failed or were left out")
    return 1 if run.result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
