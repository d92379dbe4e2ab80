#!/usr/bin/env python3
"""OpenVINO GenAI's ContinuousBatchingPipeline behind the part of the OpenAI API that `tactus bench` uses. The wrapper
is ours: GenAI has no server in Python, and OpenVINO Model Server is not on PyPI. HTTP runs here and the pipeline in a
separate process (bench/cpu/openvino_driver.py): a step holds its interpreter's lock, which would delay events.

  openvino_server.py MODEL --port N [options of the driver: --threads 2, --chunk 256, --max-seqs 64, --cache-gib 2,
  --tokenizer GGUF]

POST /v1/completions takes token ids and streams one event per step and request. The text of a token is a placeholder,
which avoids detokenization. A disconnect of the client cancels its request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import signal
import sys

DRIVER = pathlib.Path(__file__).resolve().parents[1] / "cpu/openvino_driver.py"


class Pipeline:
    """The driver's process. An answer's queue receives counts of tokens, then None, or an error message."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.answers: dict[int, asyncio.Queue] = {}
        self.next_id = 0

    def start(self, prompt: list[int], max_tokens: int) -> tuple[int, asyncio.Queue]:
        self.next_id += 1
        self.answers[self.next_id] = asyncio.Queue()
        self.send({"id": self.next_id, "prompt": prompt, "max_tokens": max_tokens})
        return self.next_id, self.answers[self.next_id]

    def cancel(self, number: int) -> None:
        self.answers.pop(number, None)
        self.send({"id": number, "cancel": True})

    def send(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def read(self) -> None:
        """Runs until the driver ends; the driver does not end by itself."""
        while line := await self.process.stdout.readline():
            if not line.startswith(b"{"):  # libraries also print to stdout
                continue
            message = json.loads(line)
            answer = self.answers.get(message.get("id"))
            if answer and message.get("done"):
                self.answers.pop(message["id"]).put_nowait(None)
            elif answer:
                answer.put_nowait(message["tokens"])
        for answer in self.answers.values():
            answer.put_nowait("the pipeline ended")


class Front:
    """The HTTP front end of the pipeline."""

    def __init__(self, name: str, pipeline: Pipeline):
        self.name, self.pipeline = name, pipeline

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
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
            if (
                not isinstance(prompt, list)
                or not prompt
                or not all(isinstance(t, int) for t in prompt)
                or max_tokens < 1
                or not fields.get("stream")
            ):
                raise ValueError("prompt must be token ids, max_tokens above 0, stream true")
        except (ValueError, KeyError, TypeError) as error:
            answer(writer, 400, {"error": {"message": f"{type(error).__name__}: {error}"}})
            return
        number, events = self.pipeline.start(prompt, max_tokens)
        gone = asyncio.create_task(reader.read(1))
        gone.add_done_callback(lambda _: events.put_nowait("the client disconnected"))
        try:
            await stream(writer, events, len(prompt), max_tokens)
        finally:
            if number in self.pipeline.answers:
                self.pipeline.cancel(number)
            gone.cancel()


async def stream(writer: asyncio.StreamWriter, events: asyncio.Queue, prompt_tokens: int, max_tokens: int) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    tokens = 0
    while isinstance(event := await events.get(), int):
        tokens += event
        send(writer, {"choices": [{"index": 0, "text": "token " * event}]})
        await writer.drain()
    if event is None and tokens < max_tokens:
        event = f"the pipeline ended the answer after {tokens} of {max_tokens} tokens"
    if event is not None:
        send(writer, {"error": {"message": event}})
    else:
        send(writer, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        send(
            writer,
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": tokens,
                    "total_tokens": prompt_tokens + tokens,
                },
            },
        )
        send(writer, None)
    writer.write(b"0\r\n\r\n")


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    method, path, _ = (await reader.readline()).decode("latin-1").split(" ", 2) if not reader.at_eof() else ("", "", "")
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return method, path, await reader.readexactly(length)


def answer(writer: asyncio.StreamWriter, status: int, body: dict) -> None:
    data = json.dumps(body).encode()
    writer.write(
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: application/json\r\nContent-Length:"
        f" {len(data)}\r\nConnection: close\r\n\r\n".encode()
        + data
    )


def send(writer: asyncio.StreamWriter, event: dict | None) -> None:
    data = f"data: {'[DONE]' if event is None else json.dumps(event)}\n\n".encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def serve(args: argparse.Namespace, options: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        args.model,
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.kill)
    pipeline = Pipeline(process)
    while line := await process.stdout.readline():
        if line.startswith(b"{"):  # ready
            break
    process.stdin.write(b"serve\n")
    async with await asyncio.start_server(
        Front(pathlib.Path(args.model).name, pipeline).handle, args.host, args.port, limit=1 << 22
    ):
        await pipeline.read()
    return await process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    args, options = parser.parse_known_args()
    return asyncio.run(serve(args, options))


if __name__ == "__main__":
    sys.exit(main())
