#!/usr/bin/env python3
"""What scripts/gpu.sh measure runs: the card's own rates, then Tactus with Llama-3.1-8B's shape and dummy bf16 weights,
and transformers. What matters most comes first; each part has a limit, and parts for which no time is left are named in
the result. The result is written after every part.

  measure.py FOLDER OUT.json [--seconds 360] [--shrink N] [--model FOLDER] [--attention-backend NAME]
  FOLDER: of scripts/gpu.sh pack
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import aims
import floors

# Streams, prompt and answer tokens, requests: through a server, with its default objective.
SERVED = [(128, 1024, 512, 256), (32, 1024, 512, 64), (8, 1024, 512, 16), (64, 1024, 256, 64)]
PEER = (64, 1024, 256)  # requests, all at once, prompt and answer tokens: as the last load
OFFLINE = [(256, 1000, 1000), (512, 2048, 128)]  # requests, prompt and answer tokens, by `tactus batch`
SLOTS, MODEL_LEN = 256, 4096

# The most seconds of each part. Together they are more than the whole: on a card most parts end much earlier.
MOST_S = {"rates": 45, "steps": 90, "products": 30, "start": 60, "served": 45, "transformers": 90, "offline": 60}


class Run:
    def __init__(self, args):
        self.folder, self.out, self.shrink = args.folder.resolve(), args.out.resolve(), args.shrink
        self.model = (args.model or self.folder / "llama-3.1-8b").resolve()
        self.attention = args.attention_backend
        self.start = time.monotonic()
        self.end = self.start + args.seconds
        commit = self.folder / "commit"
        self.result = {
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "command": " ".join(["scripts/gpu.sh measure", *sys.argv[2:]]),
            "commit": commit.read_text().strip() if commit.exists() else "unknown",
            "card": card(),
            "model": f"{self.model.name}, dummy bf16 weights",
            "shrink": self.shrink,
            "seconds": {},
            "faults": [],
            "left_out": [],
        }
        # Step times and the like that another run stored are not used.
        self.environment = {**os.environ, "TACTUS_CACHE_DIR": str(self.out.parent / "cache")}

    def of(self, size):
        return max(1, size // self.shrink)

    def left_s(self):
        return self.end - time.monotonic()

    def fault(self, part, text):
        self.result["faults"].append(f"{part}: {text}")
        print(f"gpu: {part}: {text}", file=sys.stderr)

    def leave_out(self, part, why="no time is left"):
        self.result["left_out"].append(f"{part}: {why}")
        print(f"gpu: {part}: left out, {why}", file=sys.stderr)

    def save(self):
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.result, indent=1) + "\n")

    def log(self, part):
        """The file of a part's standard error."""
        folder = self.out.with_suffix(".logs")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / (part.replace("/", "-").replace(" ", "_") + ".log")

    def limit_s(self, part, kind):
        """The seconds that a part may take; None: it is left out."""
        if self.left_s() < 5:
            return self.leave_out(part)
        return min(MOST_S[kind], self.left_s())

    def json_of(self, part, kind, command):
        """The JSON object that a command prints; None: it failed or took too long, which is noted."""
        limit_s = self.limit_s(part, kind)
        if limit_s is None:
            return None
        start, log = time.monotonic(), self.log(part)
        try:
            with open(log, "w") as errors:
                done = subprocess.run(
                    [str(c) for c in command], stdout=subprocess.PIPE, stderr=errors, text=True, timeout=limit_s,
                    env=self.environment,
                )  # fmt: skip
            if done.returncode == 0:
                return json.loads(done.stdout)
            self.fault(part, f"exit status {done.returncode}: {end_of(log)}")
        except subprocess.TimeoutExpired:
            self.fault(part, f"was stopped after {limit_s:.0f} s: {end_of(log)}")
        except (OSError, ValueError) as fault:
            self.fault(part, str(fault))
        finally:
            self.result["seconds"][part] = time.monotonic() - start
        return None


def card():
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


def end_of(log):
    return log.read_text(errors="replace").strip()[-600:]


def measure_rates(run):
    library = os.environ.get("TACTUS_CUBLASLT", "libcublasLt.so.13")
    run.result["rates"] = rates = run.json_of("rates", "rates", [run.folder / "bin/rates", library])
    if rates is None:
        return
    try:
        bandwidth, rate = floors.card_rates(rates)
    except (KeyError, ValueError) as fault:
        return run.fault("rates", f"no floors, since {fault!r}: {rates.get('products_left_out', '')}")
    run.result["read_bytes_per_s"], run.result["bf16_flop_per_s"] = bandwidth, rate
    print(f"gpu: {bandwidth * 1e-12:.2f} TB/s read, {rate * 1e-12:.0f} TFLOP/s in bf16")


def measure_steps(run):
    limit_s = max(5, int(min(MOST_S["steps"], run.left_s()) - 10))  # the program ends by itself
    found = run.json_of("steps", "steps", [
        run.folder / "bin/step_cells", run.model, "cuda", run.shrink, limit_s, run.attention,
    ])  # fmt: skip
    if found is None:
        return
    run.result["steps"] = found
    if "read_bytes_per_s" in run.result:
        model = floors.Model(json.loads((run.model / "config.json").read_text()))
        floors.add_floors(found["cells"], model, run.result["read_bytes_per_s"], run.result["bf16_flop_per_s"])
    print(floors.table(found["cells"]))


def measure_products(run):
    config = run.model / "config.json"
    found = run.json_of("products", "products", [run.folder / "bin/product_cells", config, run.shrink])
    if found is None:
        return
    run.result["products"] = found
    found["invariance_costs"] = costs = floors.costs_of_invariance(found["cells"])
    print(
        "gpu: a layer's products with batch invariance over those without, by tokens:",
        ", ".join(f"{tokens}: {cost:.3f}" for tokens, cost in costs.items()),
    )


def engine_options(run):
    return ["--load-format", "dummy", "--device", "cuda", "--max-num-seqs", run.of(SLOTS),
            "--max-model-len", run.of(MODEL_LEN), "--attention-backend", run.attention]  # fmt: skip


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ready(url):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return direct.open(url + "/v1/models", timeout=2).status == 200
    except OSError:
        return False


def measure_served(run):
    limit_s = run.limit_s("served", "start")
    if limit_s is None:
        return
    url = f"http://127.0.0.1:{free_port()}"
    log_path = run.log("server")
    command = [run.folder / "bin/tactus", "serve", run.model, *engine_options(run), "--port", url.rsplit(":", 1)[1]]
    with open(log_path, "w") as log:
        server = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, env=run.environment)
        try:
            start = time.monotonic()
            while not ready(url):
                if server.poll() is not None or time.monotonic() - start > limit_s:
                    why = "ended" if server.poll() is not None else f"was not ready after {limit_s:.0f} s"
                    return run.fault("served", f"the server {why}: {end_of(log_path)}")
                time.sleep(0.1)
            run.result["seconds"]["start of the server"] = time.monotonic() - start
            for load in SERVED:
                measure_load(run, url, *map(run.of, load))
            if server.poll() is not None:
                run.fault("served", f"the server ended with {server.returncode}: {end_of(log_path)}")
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def measure_load(run, url, streams, prompt, answer, requests):
    part = f"served {streams} x {prompt}/{answer}"
    found = run.json_of(part, "served", [
        run.folder / "bin/tactus", "bench", "--url", url, "--concurrency", streams, "--workload",
        f"random:in={prompt},out={answer}", "--requests", requests, "--ignore-eos", "on",
        "--vocab-size", vocabulary(run), "--json",
    ])  # fmt: skip
    if found is not None:
        run.result.setdefault("served", []).append(
            {"streams": streams, "prompt_tokens": prompt, "answer_tokens": answer} | found
        )
        run.save()


def vocabulary(run):
    return json.loads((run.model / "config.json").read_text())["vocab_size"]


def measure_peer(run):
    program = pathlib.Path(__file__).with_name("peer_transformers.py")
    found = run.json_of("transformers", "transformers", [sys.executable, program, run.model, *map(run.of, PEER)])
    if found is not None:
        run.result["transformers"] = found
        if "error" in found:
            run.fault("transformers", found["error"])


def measure_offline(run, requests, prompt, answer):
    part = f"offline {requests} x {prompt}/{answer}"
    job = run.log(part).with_suffix(".jsonl")
    draw, most = random.Random(part), vocabulary(run)
    with open(job, "w") as file:
        for i in range(requests):
            body = {"prompt": [draw.randrange(most // 10, most) for _ in range(prompt)], "max_tokens": answer}
            body |= {"ignore_eos": True, "temperature": 0}
            file.write(json.dumps({"custom_id": f"{i}", "method": "POST", "url": "/v1/completions", "body": body}))
            file.write("\n")
    answers = job.with_suffix(".answers.jsonl")
    found = run.json_of(part, "offline", [
        run.folder / "bin/tactus", "batch", job, run.model, *engine_options(run), "-o", answers, "--overwrite",
        "--sample", "0", "--json",
    ])  # fmt: skip
    if found is not None:
        run.result.setdefault("offline", []).append(
            {"requests": requests, "prompt_tokens": prompt, "answer_tokens": answer} | found
        )
    for file in job.parent.glob(job.stem + ".*jsonl*"):
        file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=360)
    parser.add_argument("--shrink", type=int, default=1, help="divides all sizes, for a try on a small model")
    parser.add_argument("--model", type=pathlib.Path, help="a folder with config.json")
    parser.add_argument("--attention-backend", default="tactus", help="as of tactus serve")
    run = Run(parser.parse_args())
    parts = [measure_rates, measure_steps, measure_served, measure_peer, measure_products]
    parts += [lambda run, job=job: measure_offline(run, *map(run.of, job)) for job in OFFLINE]
    for part in parts:
        part(run)
        run.save()
    run.result["aims"] = aims.compare(run.result)
    run.result["seconds"]["all"] = time.monotonic() - run.start
    run.save()
    print(aims.table(run.result["aims"]))
    faults, left_out = len(run.result["faults"]), len(run.result["left_out"])
    print(f"gpu: {run.out}; {faults} faults, {left_out} parts left out")
    return 1 if faults or left_out else 0


if __name__ == "__main__":
    sys.exit(main())
