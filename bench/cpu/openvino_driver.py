#!/usr/bin/env python3
"""OpenVINO GenAI's ContinuousBatchingPipeline behind the line protocol of engines.py, and as the serving back end of
servers.py: it has no server, so this process is one, with lines instead of HTTP (which is in its favour).

  openvino_driver.py FOLDER [--threads 2] [--chunk N | --no-split-fuse] [--cache-gib 3] [--max-seqs 33]

Cells (one JSON line per answer, {"seconds": [...]} of every step):
  prefill tokens=N repeat=R [box=T] | decode batch=B context=C steps=S | hybrid chunk=N batch=B context=C steps=S
A prompt that exceeds T seconds is an error.
Serving: "serve" switches to it permanently. Then every line {"id": 7, "prompt": [ids], "max_tokens": 32} is a request,
and the answers are {"id": 7, "tokens": n, "time": t} as tokens appear and {"id": 7, "done": true}; t is CLOCK_MONOTONIC
in seconds, taken here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

STEPS = 2048  # more than any set of decodes needs


def generation(max_tokens: int) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.min_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


class Driver:
    """Owns the pipeline; everything except the reader of stdin runs on the main thread."""

    def __init__(self, args: argparse.Namespace):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = args.cache_gib
        scheduler.max_num_seqs = args.max_seqs
        scheduler.max_num_batched_tokens = args.chunk
        scheduler.dynamic_split_fuse = args.split_fuse
        scheduler.enable_prefix_caching = args.prefix_caching
        properties = {
            "INFERENCE_NUM_THREADS": args.threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16",
        }
        if args.tokenizer:
            self.pipeline = genai.ContinuousBatchingPipeline(
                args.folder, genai.Tokenizer(args.tokenizer), scheduler, "CPU", **properties
            )
        else:
            self.pipeline = genai.ContinuousBatchingPipeline(args.folder, scheduler, "CPU", properties, {})
        self.vocabulary = args.vocab
        self.random = random.Random(7)
        self.next_id = 0
        self.running: list[genai.GenerationHandle] = []
        self.context = -1

    def add(self, tokens: int, max_tokens: int) -> genai.GenerationHandle:
        ids = np.array([[self.random.randrange(300, self.vocabulary) for _ in range(tokens)]], dtype=np.int64)
        self.next_id += 1
        return self.pipeline.add_request(self.next_id, ov.Tensor(ids), generation(max_tokens))

    def step(self) -> float:
        start = time.monotonic()
        self.pipeline.step()
        return time.monotonic() - start

    def stop(self, handles: list) -> None:
        for handle in handles:
            handle.cancel()
        if handles:
            self.pipeline.step()  # cancelled requests leave in the next step
        for handle in handles:
            drain(handle)

    def prefill(self, tokens: int, repeat: int, box: int = 0) -> list[float]:
        self.stop(self.running)
        self.running, self.context = [], -1
        seconds = []
        for _ in range(repeat):
            handle = self.add(tokens, 1)
            total = 0.0
            while self.pipeline.has_non_finished_requests():
                total += self.step()
                if box and total > box and self.pipeline.has_non_finished_requests():
                    self.stop([handle])
                    raise TimeoutError(f"a prompt of {tokens} tokens takes longer than {box} s")
            drain(handle)
            seconds.append(total)
        return seconds

    def fill(self, batch: int, context: int) -> None:
        """Provides `batch` sequences with about `context` tokens; a larger set with the same context is reduced, which
        costs nothing."""
        if self.context == context and len(self.running) > batch:
            self.stop(self.running[batch:])
            del self.running[batch:]
        if self.context == context and len(self.running) == batch:
            return
        self.stop(self.running)
        self.running, self.context = [], context
        self.running = [self.add(context, STEPS) for _ in range(batch)]
        waiting = list(self.running)
        while waiting:  # the first ones decode a few tokens while the last prompts are computed
            self.pipeline.step()
            waiting = [h for h in waiting if not h.can_read()]
        self.drain_all()

    def drain_all(self) -> None:
        for handle in self.running:
            drain(handle)

    def decode(self, batch: int, context: int, steps: int) -> list[float]:
        self.fill(batch, context)
        seconds = [self.step() for _ in range(steps)]
        self.drain_all()
        return seconds

    def hybrid(self, chunk: int, batch: int, context: int, steps: int) -> list[float]:
        """Steps with a prompt's chunk and the decodes. The pipeline composes the steps: --chunk must leave room for
        chunk + batch, or the prompt needs several steps (their sum is the result)."""
        self.fill(batch, context)
        seconds = []
        for _ in range(steps):
            handle = self.add(chunk, 1)
            total = 0.0
            while not handle.can_read():
                total += self.step()
            drain(handle)
            self.drain_all()
            seconds.append(total)
        return seconds

    def serve(self, lines: Lines) -> None:
        running: dict[int, genai.GenerationHandle] = {}
        while lines.open or running:
            timeout = None if not running else 0.0
            while (line := lines.next(timeout)) is not None:
                timeout = 0.0
                message = json.loads(line)
                if message.get("cancel"):
                    if message["id"] in running:
                        running.pop(message["id"]).cancel()
                    continue
                ids = np.array([message["prompt"]], dtype=np.int64)
                running[message["id"]] = self.pipeline.add_request(
                    message["id"], ov.Tensor(ids), generation(message["max_tokens"])
                )
            if not self.pipeline.has_non_finished_requests():
                continue
            self.pipeline.step()
            now = time.monotonic()
            for request, handle in list(running.items()):
                count = drain(handle)
                if count:
                    say({"id": request, "tokens": count, "time": now})
                if handle.get_status() != genai.GenerationStatus.RUNNING and not handle.can_read():
                    say({"id": request, "done": True, "time": now})
                    del running[request]


class Lines:
    """Standard input by lines, without a thread: it would not run during the pipeline's steps, which hold the GIL."""

    def __init__(self, fd: int = 0):
        self.fd, self.buffer, self.open = fd, b"", True

    def next(self, timeout_s: float | None = None) -> str | None:
        """The next line, waiting at most this time (None: no limit); None on timeout or at the end of input."""
        while b"\n" not in self.buffer:
            if not self.open or not select.select([self.fd], [], [], timeout_s)[0]:
                return None
            data = os.read(self.fd, 1 << 20)
            self.open = bool(data)
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()


def drain(handle: genai.GenerationHandle) -> int:
    """The number of the handle's new tokens."""
    count = 0
    while handle.can_read():
        for output in handle.read().values():
            count += len(output.generated_ids)
    return count


def say(message: dict) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=2048 + 64, help="max_num_batched_tokens")
    parser.add_argument("--no-split-fuse", dest="split_fuse", action="store_false")
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--max-seqs", type=int, default=33)
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--tokenizer", help="a GGUF file whose tokenizer is used if GenAI cannot read the model's")
    args = parser.parse_args()
    start = time.monotonic()
    driver = Driver(args)
    say(
        {
            "ready": True,
            "load_seconds": time.monotonic() - start,
            "version": genai.get_version() if hasattr(genai, "get_version") else genai.__version__,
        }
    )
    lines = Lines()
    while (line := lines.next()) is not None:
        op, *words = line.split()
        if op == "serve":
            driver.serve(lines)
            return
        values = {key: int(value) for key, value in (word.split("=") for word in words)}
        try:
            cell = {"prefill": driver.prefill, "decode": driver.decode, "hybrid": driver.hybrid}[op]
            say({"seconds": cell(**values)})
        except Exception as error:  # the run continues with the other cells and reports this error
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
