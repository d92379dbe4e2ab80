#!/usr/bin/env python3
"""OpenVINO GenAI's ContinuousBatchingPipeline behind the part of the OpenAI API that `tactus bench` speaks. The wrapper is ours: GenAI has
no server in Python, and OpenVINO Model Server is not on PyPI. The pipeline steps on the main thread; HTTP has a thread of its own.

  openvino_server.py MODEL --port N [--threads 2] [--chunk 256] [--max-seqs 64] [--cache-gib 2] [--tokenizer GGUF]

POST /v1/completions takes token ids and streams one event per step and request. The text of a token is a placeholder, which saves it
the detokenizer. A client that goes away cancels its request.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import queue
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))


class Request:
    """One answer: the pipeline's thread puts counts of tokens, None at the end, or a message of what went wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop, prompt: list[int], max_tokens: int):
        self.loop, self.prompt, self.max_tokens = loop, prompt, max_tokens
        self.events: asyncio.Queue = asyncio.Queue()
        self.cancelled = False

    def put(self, event: int | str | None) -> None:
        self.loop.call_soon_threadsafe(self.events.put_nowait, event)


class Front:
    """HTTP. `arrived` takes requests to the pipeline's thread."""

    def __init__(self, name: str, arrived: queue.Queue):
        self.name, self.arrived = name, arrived

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            method, path, body = await read_request(reader)
            if method == "GET" and path == "/health":
                answer(writer, 200, {"status": "ok"})
            elif method == "GET" and path == "/v1/models":
                answer(writer, 200, {"object": "list", "data": [{"id": self.name, "object": "model"}]})
            elif method == "POST" and path == "/v1/completions":
                await self.complete(reader, writer, body)
            else:
                answer(writer, 404, {"error": {"message": f"no route {method} {path}"}})
            await writer.drain()
        writer.close()

    async def complete(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        try:
            fields = json.loads(body)
            prompt, max_tokens = fields["prompt"], int(fields["max_tokens"])
            if not isinstance(prompt, list) or not prompt or not all(isinstance(t, int) for t in prompt) or max_tokens < 1 or not fields.get("stream"):
                raise ValueError("prompt must be token ids, max_tokens above 0, stream true")
        except (ValueError, KeyError, TypeError) as error:
            answer(writer, 400, {"error": {"message": f"{type(error).__name__}: {error}"}})
            return
        request = Request(asyncio.get_running_loop(), prompt, max_tokens)
        self.arrived.put(request)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        gone = asyncio.create_task(reader.read(1))
        gone.add_done_callback(lambda _: request.events.put_nowait("the client went away"))
        tokens = 0
        while isinstance(event := await request.events.get(), int):
            tokens += event
            send(writer, {"choices": [{"index": 0, "text": "token " * event}]})
            await writer.drain()
        request.cancelled = True
        if event is not None:
            send(writer, {"error": {"message": event}})
        else:
            send(writer, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
            send(writer, {"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": tokens, "total_tokens": len(prompt) + tokens}})
            send(writer, None)
        writer.write(b"0\r\n\r\n")
        gone.cancel()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    method, path, _ = (await reader.readline()).decode("latin-1").split(" ", 2) if not reader.at_eof() else ("", "", "")
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return method, path, await reader.readexactly(length)


def answer(writer: asyncio.StreamWriter, status: int, body: dict) -> None:
    data = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                 "Connection: close\r\n\r\n".encode() + data)


def send(writer: asyncio.StreamWriter, event: dict | None) -> None:
    data = f"data: {'[DONE]' if event is None else json.dumps(event)}\n\n".encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def listen(front: Front, host: str, port: int, ready: threading.Event) -> None:
    async def serve() -> None:
        server = await asyncio.start_server(front.handle, host, port, limit=1 << 22)
        ready.set()
        async with server:
            await server.serve_forever()
    asyncio.run(serve())


def run_pipeline(driver, arrived: queue.Queue) -> None:
    """Steps as long as anything runs; takes what has arrived before each."""
    import numpy as np
    import openvino as ov
    import openvino_driver
    import openvino_genai as genai

    running: list[tuple[Request, object]] = []
    number = 0
    while True:
        waited = not running
        with contextlib.suppress(queue.Empty):
            while True:
                request = arrived.get(block=waited, timeout=1.0 if waited else None)
                waited = False
                number += 1
                try:
                    ids = ov.Tensor(np.array([request.prompt], dtype=np.int64))
                    running.append((request, driver.pipeline.add_request(number, ids, openvino_driver.generation(request.max_tokens))))
                except Exception as error:      # this request's fault or no memory for it: the others go on
                    request.put(f"{type(error).__name__}: {error}")
        for request, handle in running:
            if request.cancelled:
                handle.cancel()
        if driver.pipeline.has_non_finished_requests():
            driver.pipeline.step()
        still = []
        for request, handle in running:
            if request.cancelled:
                continue
            if count := openvino_driver.drain(handle):
                request.put(count)
            if handle.get_status() == genai.GenerationStatus.RUNNING or handle.can_read():
                still.append((request, handle))
            else:
                request.put(None if handle.get_status() == genai.GenerationStatus.FINISHED else f"the pipeline ended it: {handle.get_status()}")
        running = still


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="MODEL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=256, help="max_num_batched_tokens; GenAI's own default")
    parser.add_argument("--max-seqs", type=int, default=64)
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--tokenizer", help="a GGUF file whose tokenizer is used, where GenAI cannot read the model's; the text is not looked at")
    args = parser.parse_args()
    args.split_fuse, args.vocab = True, 32000

    import openvino_driver

    arrived: queue.Queue = queue.Queue()
    driver = openvino_driver.Driver(args)
    ready = threading.Event()
    threading.Thread(target=listen, args=(Front(pathlib.Path(args.folder).name, arrived), args.host, args.port, ready), daemon=True).start()
    if not ready.wait(30):
        sys.exit(f"could not listen on {args.host}:{args.port}")
    run_pipeline(driver, arrived)


if __name__ == "__main__":
    main()
