"""Events that end or block long-running commands: few file descriptors, SIGHUP. A part of `replicas`."""

import json
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import hostile
from hostile import WHOLE, sound
from program import BINARY, ENVIRONMENT, MODEL, _die_with_parent, dummy_model
from watched import LIMIT_S, POLLS, Watched, outcome, route, until
from wire import Lost, Wire, ask, request

BYSTANDER = "127.0.0.2"
FEW_FILES = 128
IDLE = 150


# --- few descriptors, hang-ups


def few_descriptors(tally):
    """Idle connections of one client use its share; other clients are answered, and a further connection of that client
    gets an error."""
    with tempfile.TemporaryDirectory() as folder, sound() as good:
        doors = {
            "serve": lambda: Watched(
                *("serve", *dummy_model(folder), "--port", 0, "--kv-cache-memory", "64MiB"), files=FEW_FILES
            ),
            "route": lambda: route([good.url], files=FEW_FILES),
            "epp": lambda: Watched(
                *("epp", "--grpc-port", 0, "--health-port", 0, "--metrics-port", 0, "--replicas", good.url, *POLLS),
                files=FEW_FILES,
            ),
        }
        for command, start in doors.items():
            with start() as door:
                for port in door.ports:
                    idle = []
                    for _ in range(IDLE):
                        try:
                            idle.append(Wire(port, source=BYSTANDER))
                        except OSError:
                            break
                    tally.check(f"{command}: {IDLE} idle connections to port {port} are taken", len(idle) == IDLE)
                    tally.check(f"{command} answers another client meanwhile", door.health(), door.last_lines())
                    if port != door.ports[-1]:  # gRPC
                        tally.check(f"{command}: gRPC greets another client meanwhile", greets(port), door.last_lines())
                    for wire in idle:
                        wire.close()
                if command == "route":
                    kind = hostile.Kind("sound", hostile.OK, WHOLE)
                    idle = [Wire(door.port, source=BYSTANDER) for _ in range(IDLE)]
                    got = [outcome(door.port, kind) for _ in range(10)]
                    tally.check(
                        "route forwards beside idle connections", all(g == WHOLE for g, _ in got), repr(got[:3])
                    )
                    for wire in idle:
                        wire.close()
                tally.check(f"{command} lives with few descriptors", door.alive(), door.last_lines())
                tally.check(f"{command} with few descriptors ends in order", door.stop() == 0, door.last_lines())


def greets(port):
    """Whether an HTTP/2 server answers the client's preface with settings that are not those of a GOAWAY."""
    try:
        wire = Wire(port)
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
        frame = wire._take(9, time.monotonic() + LIMIT_S)
        wire.close()
        return frame[3] == 4 and frame != b"\0\0\0\x04\0\0\0\0\0"  # the settings before a GOAWAY are empty
    except (OSError, Lost):
        return False


def hang_ups(tally):
    """SIGHUP, once or often: a server reloads and loses no stream, other running work ends in order, and no process
    ends by a signal. (tests/e2e/reload_test.py closes a server's terminal.)"""
    slow = hostile.twice(
        hostile.events(hostile.token(), last=b""), hostile.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", 1.0
    )
    with tempfile.TemporaryDirectory() as folder, sound(slow) as good:
        folder = pathlib.Path(folder)
        model = dummy_model(folder / "model")
        serve = ["serve", *model, "--port", 0, "--kv-cache-memory", "64MiB", "--served-model-name", MODEL]
        doors = {
            "serve": lambda: Watched(*serve),
            "route": lambda: route([good.url]),
            "epp": lambda: Watched(
                "epp", "--grpc-port", 0, "--health-port", 0, "--metrics-port", 0, "--replicas", good.url, *POLLS
            ),
        }
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}
        for command, start in doors.items():
            for times in (1, 5):
                with start() as door:
                    wire = None
                    if command != "epp":
                        until(lambda: ask(door.port, "GET", "/ready").status == 200)  # noqa: B023
                        wire = Wire(door.port, LIMIT_S)
                        wire.send(request("POST", "/v1/completions", body))
                        wire.socket.recv(1, socket.MSG_PEEK)  # the answer has begun
                    for _ in range(times):
                        if door.alive():
                            door.process.send_signal(signal.SIGHUP)
                            time.sleep(0.05)
                    if wire:
                        try:
                            about = wire.read()
                            whole = about.status == 200 and about.body.endswith(b"data: [DONE]\n\n")
                        except Lost as lost:
                            about, whole = lost, False
                        tally.check(f"{command}, {times} x SIGHUP: its stream is whole", whole, repr(about))
                        wire.close()
                    tally.check(f"{command}, {times} x SIGHUP: it goes on", door.alive(), door.last_lines())
                    status = door.stop()
                    tally.check(f"{command}, {times} x SIGHUP: it ends in order", status == 0, f"exit status {status}")
        with Watched(*serve, nohup=True) as door:
            door.process.send_signal(signal.SIGHUP)
            tally.check("serve under nohup goes on", door.health(), door.last_lines())
            tally.check("serve under nohup ends in order", door.stop() == 0, door.last_lines())
        lines = [
            json.dumps(
                {
                    "custom_id": str(i),
                    "method": "POST",
                    "url": "/v1/completions",
                    "body": {"prompt": "x", "max_tokens": 800},
                }
            )
            for i in range(400)
        ]
        (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
        answers, asked = folder / "out.jsonl", good.times_asked("/v1/completions")
        # A command that is still loading ends at once (tests/e2e/signals_test.py); here the work has begun.
        for name, begun, arguments in (
            (
                "batch",
                lambda: answers.exists() and answers.stat().st_size > 0,
                ["batch", folder / "in.jsonl", *model, "-o", answers],
            ),
            (
                "bench",
                lambda: good.times_asked("/v1/completions") > asked,
                ["bench", "--url", good.url, "--model", "m", "--concurrency", 1, "--requests", 1000],
            ),
        ):
            process = subprocess.Popen(
                [BINARY, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
                preexec_fn=_die_with_parent,
            )
            running = until(lambda: begun() or process.poll() is not None)  # noqa: B023
            for _ in range(3):
                if process.poll() is None:
                    process.send_signal(signal.SIGHUP)
                    time.sleep(0.05)
            try:
                _, said = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _, said = process.communicate()
            in_order = running and process.returncode in (0, 1, 130)
            tally.check(
                f"{name}, SIGHUP: it ends in order", in_order, f"exit status {process.returncode}: {said[-500:]}"
            )
