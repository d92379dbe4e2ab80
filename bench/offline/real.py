#!/usr/bin/env python3
"""Jobs of many requests on this machine: every order of `tactus batch`, llama.cpp's server and OpenVINO GenAI's
pipeline, on the same prompts in one run. Prints a Markdown table of tokens per second (prompt and answer tokens over
the time from the first request to the last answer, including planning, without loading the model).

  SERVING=on bench/cpu/setup.sh CACHE                       once: the peers and the weights of the 1.1B shape
  bench/offline/real.py --cache CACHE [-o FILE.json]        everything
  bench/offline/real.py --cache CACHE --models default --jobs dense-shared --repeats 1

Four jobs of three kinds of requests (counts below): `classify` has one of 32 long instructions before a short question,
and a word as its answer; `chat` is short both ways; `write` generates much. Prompts are token ids, answers end only by
length, and every engine shares prefixes as well as it can. Tactus has too little KV memory (--kv-cache-memory) for all
instructions, or the order would not matter; the peers have as much as they need. Engines take turns job by job, and
each repeat starts with a different one.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))
import engines  # noqa: E402
import make_models  # noqa: E402
import servers  # noqa: E402
from engines import CellError, warn  # noqa: E402
from result_file import ResultFile  # noqa: E402
from servers import Request  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORDERS = ("blend", "dfs", "balance", "random", "fcfs")
PEERS = ("llama.cpp", "OpenVINO GenAI")
VOCABULARY = 32000
SLOTS = 32  # concurrent sequences, for every engine
TIMEOUT_S = 600  # per job
SLOT_CONTEXT = 1536  # the longest request fits
INSTRUCTIONS = 32
# Requests of each kind.
JOBS = {
    "dense-shared": {"classify": 400, "chat": 60, "write": 24},
    "heavy-shared": {"classify": 200, "chat": 30, "write": 64},
    "dense": {"classify": 20, "chat": 300, "write": 24},
    "heavy": {"classify": 10, "chat": 100, "write": 80},
}


def job(name: str, seed: int, scale: float) -> list[Request]:
    draw = random.Random(f"{seed} {name}")
    ids = lambda n: [draw.randrange(300, VOCABULARY) for _ in range(n)]
    instructions = [ids(draw.randint(400, 640)) for _ in range(INSTRUCTIONS)]
    requests = []
    for kind, count in JOBS[name].items():
        for _ in range(max(1, round(count * scale))):
            if kind == "classify":
                requests.append(
                    Request(draw.choice(instructions) + ids(draw.randint(16, 64)), draw.randint(1, 4), label=kind)
                )
            elif kind == "chat":
                requests.append(Request(ids(draw.randint(32, 256)), draw.randint(16, 64), label=kind))
            else:
                requests.append(Request(ids(draw.randint(16, 48)), draw.randint(100, 300), label=kind))
    draw.shuffle(requests)
    return requests


def tokens_of(requests: list[Request]) -> int:
    return sum(len(r.prompt) + r.max_tokens for r in requests)


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    file: pathlib.Path
    tokenizer: pathlib.Path | None = None  # for OpenVINO GenAI, which reads the tokenizer of some GGUF files only


class LlamaServer(servers.Llama):
    """llama.cpp's server with its prompt cache, and SLOTS slots."""

    def __init__(self, places: engines.Places, model: Model, log: pathlib.Path):
        flags = [
            "-t",
            str(places.threads),
            "-tb",
            str(places.threads),
            "-np",
            str(SLOTS),
            "-c",
            str(SLOTS * SLOT_CONTEXT),
            "-fa",
            "on",
            "--kv-unified",
        ]
        servers.HttpServer.__init__(
            self,
            "llama.cpp",
            [str(places.llama / "bin/llama-server"), "-m", str(model.file), *flags],
            "llama-server " + " ".join(flags),
            log,
        )

    def body(self, request: Request) -> dict:
        return servers.Llama.body(self, request) | {"cache_prompt": True}


class OpenVino(servers.OpenVino):
    def __init__(self, places: engines.Places, model: Model, log: pathlib.Path):
        flags = [
            "--threads",
            str(places.threads),
            "--chunk",
            "512",
            "--max-seqs",
            str(SLOTS),
            "--cache-gib",
            "2",
            "--prefix-caching",
            *(["--tokenizer", str(model.tokenizer)] if model.tokenizer else []),
        ]
        self.name, self.log, self.settings = "OpenVINO GenAI", log, "ContinuousBatchingPipeline " + " ".join(flags)
        self.command = [str(places.openvino_python), str(engines.HERE / "openvino_driver.py"), str(model.file), *flags]
        self.process = self.reader = None
        self.waiting, self.next_id = {}, 0


async def run_peer(server: servers.Server, requests: list[Request]) -> dict:
    """All requests are present from the start; twice the peer's number of sequences are in flight."""
    await server.start()
    try:
        warm = await server.send(Request([7] * 32, 4))
        if warm.error:
            raise CellError(f"{server.name}: {warm.error}")
        gate = asyncio.Semaphore(2 * SLOTS)
        errors = []

        async def one(request: Request) -> None:
            async with gate:
                served = await server.send(request)
                if served.error or served.tokens < request.max_tokens:
                    errors.append(served.error or f"{served.tokens} of {request.max_tokens} tokens")

        start = time.monotonic()
        try:
            await asyncio.wait_for(asyncio.gather(*(one(r) for r in requests)), TIMEOUT_S)
        except TimeoutError:
            raise CellError(f"{server.name} was not done after {TIMEOUT_S} s") from None
        seconds = time.monotonic() - start
    finally:
        await server.stop()
    if errors:
        raise CellError(f"{server.name}: {len(errors)} of {len(requests)} requests failed: {errors[0]}")
    return {"seconds": seconds, "settings": server.settings}


def run_tactus(
    args: argparse.Namespace, places: engines.Places, model: Model, order: str, requests: list[Request]
) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
        with source.open("w") as file:
            for i, r in enumerate(requests):
                body = {"prompt": r.prompt, "max_tokens": r.max_tokens, "temperature": 0, "ignore_eos": True}
                file.write(
                    json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n"
                )
        flags = [
            "--order",
            order,
            "--threads",
            str(places.threads),
            "--max-num-seqs",
            str(SLOTS),
            "--kv-cache-memory",
            args.kv_cache_memory,
            *args.tactus_args,
        ]
        done = subprocess.run(
            [str(places.tactus), "batch", str(source), "-o", str(out), str(model.file), *flags, "--json"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise CellError(
                f"tactus batch ended with status {done.returncode}: {done.stderr.strip().splitlines()[-1][:300]}"
            )
    result = json.loads(done.stdout)
    if result["lines"]["out"] != len(requests):
        raise CellError(f"tactus batch: {result['lines']}")
    planning_s = (result.get("plan") or {}).get("planning_s") or 0
    return {
        "seconds": result["duration_s"] + planning_s,
        "settings": "tactus batch " + " ".join(flags),
        "planning_s": planning_s,
        "plan": result.get("plan"),
        "steps": result.get("steps"),
        "prefix": result.get("prefix_cache"),
    }


def table(result: dict) -> str:
    names = [*(f"tactus {o}" for o in ORDERS), *PEERS]
    lines = [
        "Tokens per second: the median of the repeats (least to most).",
        "",
        f"| model, job | {' | '.join(names)} | blend over the best peer |",
        f"|---|{'---|' * len(names)}---|",
    ]
    for model in sorted({c["model"] for c in result["cells"]}):
        for name in JOBS:
            found = {
                n: [
                    c["tokens"] / c["seconds"]
                    for c in result["cells"]
                    if (c["model"], c["job"], c["who"]) == (model, name, n)
                ]
                for n in names
            }
            if not any(found.values()):
                continue
            cells = [f"{statistics.median(v):.0f} ({min(v):.0f} to {max(v):.0f})" if v else "" for v in found.values()]
            peers = [statistics.median(found[p]) for p in PEERS if found[p]]
            ours = found["tactus blend"]
            factor = f"{statistics.median(ours) / max(peers):.2f}" if ours and peers else ""
            lines.append(f"| {model}, {name} | {' | '.join(cells)} | {factor} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument(
        "--default-model", type=pathlib.Path, help="a GGUF file; by default what scripts/get_default_model.sh fetches"
    )
    parser.add_argument("--models", default="default,1.1b")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--who", default=",".join([*ORDERS, *PEERS]), help="orders of tactus batch, and peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of requests of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kv-cache-memory",
        default="256MiB",
        help="KV memory of tactus; 256 MiB are 11,900 tokens of the default model",
    )
    parser.add_argument("--tactus-args", type=str.split, default=[])
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    default = args.default_model or pathlib.Path(
        subprocess.run(
            [str(ROOT / "scripts/get_default_model.sh")], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    places = engines.Places(
        args.cache / "models",
        args.build,
        args.threads,
        args.cache / "venv/bin/python",
        args.cache / "llama.cpp",
        None,
        [],
    )
    known = {
        "default": Model("default", default),
        "1.1b": Model("1.1b", make_models.gguf_path(args.cache / "models", "int4"), default),
    }
    who, jobs = args.who.split(","), args.jobs.split(",")
    for kind, names, all_names in (
        ("model", args.models.split(","), known),
        ("job", jobs, JOBS),
        ("contender", who, (*ORDERS, *PEERS)),
    ):
        if unknown := [n for n in names if n not in all_names]:
            sys.exit(f"real.py: {kind} '{unknown[0]}' is unknown; known are {', '.join(all_names)}")
    with tempfile.TemporaryDirectory() as folder:
        run = ResultFile(args.output or pathlib.Path(folder) / "result.json")
        run.result = {
            "runs": [
                {
                    "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                    "command": " ".join(["bench/offline/real.py", *sys.argv[1:]]),
                    "machine": engines.machine(),
                    "versions": engines.versions(places),
                }
            ],
            "cells": [],
            "notes": [],
        }
        turns = [(m, j, r) for r in range(args.repeats) for m in args.models.split(",") for j in jobs]
        for n, (model_name, job_name, repeat) in enumerate(turns):
            requests = job(job_name, args.seed + repeat, args.scale)
            shift = repeat % len(who)
            for name in who[shift:] + who[:shift]:
                label = name if name in PEERS else f"tactus {name}"
                run.progress(
                    f"{n + 1} of {len(turns)}: {model_name}, {job_name}, {label}: {len(requests)} requests,"
                    f" {tokens_of(requests)} tokens"
                )
                model, log = known[model_name], pathlib.Path(folder) / f"{label.replace(' ', '-')}.log"
                try:
                    if name in PEERS:
                        server = (LlamaServer if name == "llama.cpp" else OpenVino)(places, model, log)
                        cell = asyncio.run(run_peer(server, requests))
                    else:
                        cell = run_tactus(args, places, model, name, requests)
                except (CellError, OSError) as error:
                    run.note(f"{model_name}, {job_name}, {label}: {error}")
                    continue
                run.result["cells"].append(
                    {
                        "model": model_name,
                        "job": job_name,
                        "who": label,
                        "repeat": repeat,
                        "requests": len(requests),
                        "tokens": tokens_of(requests),
                        **cell,
                    }
                )
                run.save()
                warn(f"    {tokens_of(requests) / cell['seconds']:.0f} tokens/s in {cell['seconds']:.1f} s")
        print(table(run.result))


if __name__ == "__main__":
    main()
