"""A fleet of `tactus serve` on Ray Serve (docs/how-to/ray_serve.md): each replica of the deployment runs the program on
its node and forwards requests, so that clients get the whole API, including streams. Needs Ray Serve and the program,
but not the Python package.

    serve run tactus_serve:app model=/models/model.gguf replicas=2 cpus=8
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

# Ends the program when the replica's process has ended in any way: its end of the pipe closes then.
GUARD = '"$@" < /dev/null & child=$!; exec > /dev/null 2>&1; cat; kill "$child"; wait "$child"'
LAST_LINES = 20
HEALTH_LIMIT_S = 5.0
# Headers of a connection, not of the request: each side has its own.
HOP_HEADERS = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "expect",
}
# All clients have one address, that of Ray's proxy.
CLIENT_LIMITS = ["--max-connections-per-client", "4096", "--max-streams-per-client", "2048"]
# Flags that this file sets and that may occur only once; the text says what to use instead.
OWN_FLAGS = {
    "--host": "give host=",
    "--port": "a free port is used",
    "--shutdown-timeout": "give stop_limit_s=",
    **{flag: "the limit applies to Ray's proxy, so to all clients together" for flag in CLIENT_LIMITS[::2]},
}


class TactusServer:
    """One replica: a `tactus serve` process on its own port.

    Args:
        arguments: command line of `tactus serve`, without --host and --port.
        binary: the program.
        host: address to listen on; other than the loopback makes it reachable for Prometheus and others, and needs an
            API key.
        targets_dir: a folder in which each replica writes a file with its address for Prometheus' file_sd_configs.
        start_limit_s: time limit for loading the model.
        stop_limit_s: time limit for running requests when the replica stops.
    """

    def __init__(
        self,
        arguments: list[str],
        binary: str = "tactus",
        host: str = "127.0.0.1",
        targets_dir: str | None = None,
        start_limit_s: float = 1800,
        stop_limit_s: float = 120,
    ) -> None:
        found = shutil.which(binary)
        if found is None:
            raise FileNotFoundError(
                f"binary: no program {binary!r} on {socket.gethostname()}; give its path, on every node"
            )
        with socket.socket() as free:  # a free port, chosen here because the program prints its own only for people
            free.bind((host, 0))
            port = free.getsockname()[1]
        self._stop_limit_s = stop_limit_s
        self._lines: list[str] = []
        self._session: aiohttp.ClientSession | None = None
        self._targets: pathlib.Path | None = None
        self.url = f"http://{host}:{port}"
        command = [
            found,
            "serve",
            *arguments,
            "--host",
            host,
            "--port",
            str(port),
            "--shutdown-timeout",
            f"{stop_limit_s:g}s",
        ]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "sh", *command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        try:
            self._wait_until_ready(time.monotonic() + start_limit_s)
        except BaseException:
            self._end()
            raise
        if targets_dir:
            self._targets = _tell(pathlib.Path(targets_dir), host, port)

    def _read_lines(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines = self._lines[1 - LAST_LINES :] + [line]

    def _wait_until_ready(self, end: float) -> None:
        # The log ends with the program: the guard does not keep it open.
        while time.monotonic() < end and self._reader.is_alive():
            if any(line.startswith("ready: ") for line in self._lines):
                return
            time.sleep(0.05)
        why = "did not start" if not self._reader.is_alive() else "was not ready in time (start_limit_s)"
        raise RuntimeError(f"tactus serve {why}; its last lines:\n{''.join(self._lines)}")

    async def check_health(self) -> None:
        """Ray restarts a replica that raises here three times."""
        if not self._reader.is_alive():
            raise RuntimeError(f"tactus serve has ended; its last lines:\n{''.join(self._lines)}")
        async with self._client().get(
            self.url + "/health", timeout=aiohttp.ClientTimeout(total=HEALTH_LIMIT_S)
        ) as answer:
            if answer.status != 200:
                raise RuntimeError(f"GET /health: {answer.status} {await answer.text()}")

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:  # created within the loop that uses it
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=HEALTH_LIMIT_S),
            )
        return self._session

    async def __call__(self, request: Request) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_HEADERS]
        body = await request.body()
        try:
            answer = await self._client().request(
                request.method, self.url + path, headers=headers, data=body or None, allow_redirects=False
            )
        except aiohttp.ClientError as error:
            message = {
                "message": f"this replica does not answer: {error}",
                "type": "server_error",
                "param": None,
                "code": 503,
            }
            return Response(json.dumps({"error": message}), 503, {"Retry-After": "1"}, "application/json")
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
        return StreamingResponse(self._pieces(answer), answer.status, kept)

    @staticmethod
    async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for piece in answer.content.iter_any():
                yield piece
        finally:
            answer.close()  # a client that disconnects cancels its request

    async def address(self) -> str:
        """The program's address, for a deployment handle."""
        return self.url

    def _end(self) -> None:
        """Stops the program; idempotent."""
        if self._targets is not None:
            self._targets.unlink(missing_ok=True)
        if self._process.stdin is not None:
            self._process.stdin.close()  # the guard sends SIGTERM: running requests may finish
        try:
            self._process.wait(self._stop_limit_s + 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(HEALTH_LIMIT_S)
        if self._process.stderr is not None and not self._reader.is_alive():
            self._process.stderr.close()

    def __del__(self) -> None:
        """Called by Ray when the replica stops and its requests have ended."""
        if getattr(self, "_process", None) is None:  # it never started
            return
        self._end()
        if self._session is None:
            return
        try:  # Ray may call this within the loop
            self._closing = asyncio.get_running_loop().create_task(self._session.close())
        except RuntimeError:
            self._session.detach()


def _tell(folder: pathlib.Path, host: str, port: int) -> pathlib.Path:
    """Writes the replica's file, and removes those of killed replicas of this node."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{socket.gethostname()}-*.json"):
        with socket.socket() as probe:
            if probe.connect_ex((host, int(left.stem.rsplit("-", 1)[1]))) == errno.ECONNREFUSED:
                left.unlink(missing_ok=True)
    file = folder / f"{socket.gethostname()}-{port}.json"
    part = file.with_suffix(".part")  # Prometheus reads only complete files
    part.write_text(json.dumps([{"targets": [f"{host}:{port}"], "labels": {}}]))
    part.replace(file)
    return file


def app(args: dict[str, str]) -> serve.Application:
    """The application for `serve run` and configuration files: model (a path, on every node), replicas or max_replicas,
    cpus per replica, and the arguments of TactusServer. `arguments` is text: further flags of `tactus serve`, separated
    by blanks, without OWN_FLAGS.
    """
    known = {
        "model",
        "replicas",
        "max_replicas",
        "cpus",
        "arguments",
        "binary",
        "host",
        "targets_dir",
        "start_limit_s",
        "stop_limit_s",
        "requests",
    }
    if unknown := set(args) - known:
        raise ValueError(f"unknown arguments {sorted(unknown)}; there are {sorted(known)}")
    if "model" not in args:
        raise ValueError("give model=PATH")
    cpus, replicas, requests = float(args.get("cpus", 1)), int(args.get("replicas", 1)), int(args.get("requests", 256))
    given = args.get("arguments", "").split()
    flags = {word.split("=")[0] for word in given}
    for flag, instead in OWN_FLAGS.items():
        if flag in flags:
            raise ValueError(f"arguments: {flag} cannot be given, because tactus_serve.py sets it: {instead}")
    arguments = [args["model"], *given, *CLIENT_LIMITS]
    if "--threads" not in flags:
        arguments += ["--threads", str(max(1, int(cpus)))]
    options: dict[str, Any] = {name: args[name] for name in ("binary", "host", "targets_dir") if name in args}
    options |= {name: float(args[name]) for name in ("start_limit_s", "stop_limit_s") if name in args}
    scale: dict[str, Any] = {"num_replicas": replicas}
    if "max_replicas" in args:
        scale = {
            "autoscaling_config": {
                "min_replicas": replicas,
                "max_replicas": int(args["max_replicas"]),
                "target_ongoing_requests": requests // 4,
                "upscale_delay_s": 30,
                "downscale_delay_s": 600,
            }
        }
    deployment = serve.deployment(
        TactusServer,
        name="tactus",
        max_ongoing_requests=requests,
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=float(options.get("stop_limit_s", 120)) + 20,
        ray_actor_options={"num_cpus": cpus, "runtime_env": {"env_vars": _keys()}},
        **scale,
    )
    return deployment.bind(arguments, **options)


def _keys() -> dict[str, str]:
    """Passes keys through the environment, because command lines are public. It is the environment of the process that
    runs app(): of `serve run` itself, or with `serve deploy` a process of the cluster, with the configuration's
    runtime_env."""
    keys = {name: os.environ[name] for name in ("TACTUS_API_KEY",) if name in os.environ}
    for name, value in keys.items():
        if not value:
            raise ValueError(
                f"{name} is empty: give a key, or leave out {name} to serve every client that reaches the port"
            )
    return keys
