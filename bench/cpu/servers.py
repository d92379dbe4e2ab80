"""The servers under load, all behind one interface: start, send a request of token ids, get token times, stop.

tactus, llama-server and the fork speak HTTP with server-sent events; OpenVINO GenAI has no server and is driven by
lines (openvino_driver.py). Times are CLOCK_MONOTONIC seconds: when bytes arrive here, or when a step ends in the
driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import signal
import socket
import time
import typing

import engines


@dataclasses.dataclass
class Request:
    prompt: list[int]
    max_tokens: int
    due_s: float = 0.0  # since the scenario's start
    label: str = ""


@dataclasses.dataclass
class Served:
    """The received answer. token_times has one entry per arrival with text, counts the number of tokens of each."""

    request: Request
    sent_s: float
    token_times: list[float] = dataclasses.field(default_factory=list)
    tokens: int = 0
    done_s: float | None = None
    error: str = ""

    @property
    def ttft_s(self) -> float | None:
        return self.token_times[0] - self.sent_s if self.token_times else None

    def gaps(self) -> list[tuple[float, float]]:
        """(end, length) of every gap between arrivals."""
        return [(b, b - a) for a, b in zip(self.token_times, self.token_times[1:])]


class Server:
    """One running server. `send` returns when the request has ended or was cancelled."""

    name = ""
    settings = ""

    async def start(self) -> None:
        raise NotImplementedError

    async def send(self, request: Request, on_token: typing.Callable[[Served], None] | None = None) -> Served:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError


class HttpServer(Server):
    """A process that listens on a port: subclasses define its command line and its requests."""

    ready_path = "/health"
    path = "/v1/completions"

    def __init__(self, name: str, command: list[str], settings: str, log: pathlib.Path):
        self.name, self.command, self.settings, self.log = name, command, settings, log
        self.process: asyncio.subprocess.Process | None = None
        self.port = 0

    def body(self, request: Request) -> dict:
        raise NotImplementedError

    def count(self, event: dict) -> int:
        """The number of tokens in an event; 0: none."""
        raise NotImplementedError

    async def start(self) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                stdout=log,
                stderr=log,
                cwd=self.log.resolve().parent,  # ik_llama.cpp writes a llama.log into its working folder
                start_new_session=True,
            )  # the run handles Ctrl-C
        end = time.monotonic() + 180
        while time.monotonic() < end:
            if self.process.returncode is not None:
                raise engines.CellError(f"{self.name} ended with status {self.process.returncode}; see {self.log}")
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                if await self._status(self.ready_path) == 200:
                    return
            await asyncio.sleep(0.2)
        await self.stop()
        raise engines.CellError(f"{self.name} was not ready after 180 s")

    async def _status(self, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async def send(self, request: Request, on_token: typing.Callable[[Served], None] | None = None) -> Served:
        served = Served(request, time.monotonic())
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
            body = json.dumps(self.body(request)).encode()
            writer.write(
                f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length:"
                f" {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            if status != 200:
                served.error = f"HTTP {status}: {(await reader.read(2000)).decode(errors='replace')[-300:]}"
                return served
            while line := await reader.readline():  # chunk sizes and headers are lines too; events begin with "data:"
                if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
                    continue
                now = time.monotonic()
                count = self.count(json.loads(line[5:]))
                if count:
                    served.token_times.append(now)
                    served.tokens += count
                    if on_token:
                        on_token(served)
            served.done_s = time.monotonic()
        except asyncio.CancelledError:
            served.error = "cancelled"
        except (OSError, ValueError) as error:
            served.error = f"{type(error).__name__}: {error}"
        finally:
            if writer:
                writer.close()
        return served

    async def stop(self) -> None:
        if self.process and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), 10)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


class Completions(HttpServer):
    """A server with OpenAI's completions, prompts as token ids."""

    def body(self, request: Request) -> dict:
        return {
            "model": "x",
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
        }

    def count(self, event: dict) -> int:
        return 1 if event.get("choices") and event["choices"][0].get("text") else 0


class Tactus(Completions):
    ready_path = "/ready"

    def __init__(
        self, places: engines.Places, model: list[str], log: pathlib.Path, args: list[str], label: str = "tactus"
    ):
        flags = [
            "--threads",
            str(places.threads),
            "--kv-cache-memory",
            "1GiB",
            "--prefix-caching",
            "off",
            *places.tactus_args,
            *args,
        ]
        if "--max-num-seqs" not in flags:
            flags += ["--max-num-seqs", "8"]
        super().__init__(
            label,
            [str(places.tactus), "serve", *model, "--served-model-name", "x", *flags],
            "tactus serve " + " ".join([pathlib.Path(model[0]).name, *model[1:], *flags]),
            log,
        )


class Llama(HttpServer):
    path = "/completion"

    def __init__(
        self, label: str, folder: pathlib.Path, places: engines.Places, fmt: str, log: pathlib.Path, args: list[str]
    ):
        flags = [
            "-t",
            str(places.threads),
            "-tb",
            str(places.threads),
            "-c",
            str(8 * 2816),
            "-np",
            "8",
            "-fa",
            "on",
            *args,
        ]
        if label == "llama.cpp":
            flags += ["--cache-ram", "0", "--no-kv-unified"]
        else:
            flags += ["--cache-ram", "0", "-rtr"]
        super().__init__(
            label,
            [str(folder / "bin/llama-server"), "-m", str(places.gguf(fmt)), *flags],
            "llama-server " + " ".join(flags),
            log,
        )

    def body(self, request: Request) -> dict:
        return {
            "prompt": request.prompt,
            "n_predict": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
        }

    def count(self, event: dict) -> int:
        if event.get("stop"):
            return 0
        return len(event["tokens"]) if event.get("tokens") else 1 if event.get("content") else 0


class OpenVino(Server):
    def __init__(self, places: engines.Places, fmt: str, log: pathlib.Path, chunk: int, split_fuse: bool = True):
        self.name = f"OpenVINO GenAI, {f'chunks of {chunk}' if split_fuse else 'no split fuse'}"
        self.log = log
        self.command = [
            str(places.openvino_python),
            str(engines.HERE / "openvino_driver.py"),
            str(places.openvino(fmt)),
            "--threads",
            str(places.threads),
            "--max-seqs",
            "8",
            "--chunk",
            str(chunk),
            "--cache-gib",
            "1",
            *([] if split_fuse else ["--no-split-fuse"]),
        ]
        self.settings = (
            f"ContinuousBatchingPipeline in its own process, max_num_batched_tokens {chunk}, dynamic_split_fuse"
            f" {split_fuse}, max_num_seqs 8"
        )
        self.process: asyncio.subprocess.Process | None = None
        self.waiting: dict[int, tuple[Served, asyncio.Event, typing.Callable | None]] = {}
        self.next_id = 0
        self.reader: asyncio.Task | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        while line := await asyncio.wait_for(self.process.stdout.readline(), 180):
            if line.startswith(b"{"):
                break
        else:
            raise engines.CellError(f"{self.name} ended; see {self.log}")
        self.process.stdin.write(b"serve\n")
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self.process.stdout.readline():
            if not line.startswith(b"{"):
                continue
            message = json.loads(line)
            served, event, on_token = self.waiting.get(message["id"], (None, None, None))
            if served is None:
                continue
            if message.get("done"):
                served.done_s = message["time"]
                event.set()
            else:
                served.token_times.append(message["time"])
                served.tokens += message["tokens"]
                if on_token:
                    on_token(served)
        for served, event, _ in self.waiting.values():
            served.error = served.error or "the driver ended"
            event.set()

    async def send(self, request: Request, on_token: typing.Callable[[Served], None] | None = None) -> Served:
        self.next_id += 1
        number, event = self.next_id, asyncio.Event()
        served = Served(request, time.monotonic())
        self.waiting[number] = (served, event, on_token)
        try:
            self.process.stdin.write(
                json.dumps({"id": number, "prompt": request.prompt, "max_tokens": request.max_tokens}).encode() + b"\n"
            )
            await self.process.stdin.drain()
            await event.wait()
        except asyncio.CancelledError:
            served.error = "cancelled"
            if not self.process.stdin.is_closing():
                self.process.stdin.write(json.dumps({"id": number, "cancel": True}).encode() + b"\n")
        finally:
            self.waiting.pop(number, None)
        return served

    async def stop(self) -> None:
        if self.process and self.process.returncode is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 5)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        if self.reader:
            self.reader.cancel()
