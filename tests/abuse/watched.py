"""Long-running commands under attack: each is ready when its log line appears, and every wait has a limit."""

import json
import re
import resource
import signal
import subprocess
import threading
import time

from hostile import ERROR, WHOLE
from program import BINARY, ENVIRONMENT, _die_with_parent, running
from wire import Lost, Wire, ask, request

LIMIT_S = 60


class Watched:
    """A long-running command that is ready once a line of its standard error matches; `ports`: the line's numbers."""

    READY = {
        "serve": r"ready: .* on http://127\.0\.0\.1:(\d+)",
        "route": r"routing on http://127\.0\.0\.1:(\d+)",
        "epp": r"picking \(\S+\) on \S+: grpc (\d+), health (\d+), metrics (\d+)",
    }

    def __init__(self, command, *args, files=None, nohup=False, address_space_mib=None):
        def before():
            _die_with_parent()
            if nohup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if address_space_mib:
                resource.setrlimit(resource.RLIMIT_AS, (address_space_mib << 20, address_space_mib << 20))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        self.process = subprocess.Popen(
            [BINARY, command, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=ENVIRONMENT,
            preexec_fn=before,
        )
        running.add(self.process)
        self.pattern, self.lines, self.ports, self.heard = self.READY[command], [], None, threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.heard.wait(LIMIT_S) or self.ports is None:
            self.kill()
            raise RuntimeError(f"{command} did not start:\n" + self.last_lines())
        self.port = self.ports[-1]  # the HTTP port

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if self.ports is None and (match := re.match(self.pattern, line)):
                self.ports = tuple(map(int, match.groups()))
                self.heard.set()
        self.heard.set()

    def last_lines(self):
        return "".join(self.lines[-20:])

    def alive(self):
        return self.process.poll() is None

    def health(self, source="127.0.0.1"):
        """Whether it runs and /health returns 200."""
        try:
            return self.alive() and ask(self.port, "GET", "/health", None, source=source).status == 200
        except (OSError, Lost):
            return False

    def wait(self, limit_s=LIMIT_S):
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        """The exit status after SIGTERM; negative: the signal that ended it; None: it had to be killed."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        status = self.wait()
        self.kill()
        return status

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()
        running.discard(self.process)
        self.reader.join(10)
        self.process.stderr.close()

    def peak_mib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def until(condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


POLLS = ["--poll-interval", "20ms", "--poll-timeout", "300ms", "--slow-start", "0"]


def route(urls, *args, **more):
    return Watched("route", "--port", 0, "--replicas", ",".join(urls), *POLLS, *args, **more)


def outcome(port, kind, source="127.0.0.1"):
    """The result for a client of a proxy: (ERROR or WHOLE, details)."""
    body = {"prompt": "x", "stream": kind.streams, "n": kind.choices}
    wire = Wire(port, LIMIT_S, source=source)
    try:
        wire.send(request("POST", kind.path, body))
        answer = wire.read()
    except Lost as lost:
        return ERROR, f"connection: {lost}"
    finally:
        wire.close()
    about = repr(answer)
    if answer.status >= 400:
        text = answer.body
        try:
            error = json.loads(text).get("error") if text else None
        except (ValueError, AttributeError):
            error = None
        # A replica's own error is forwarded unchanged.
        return (ERROR if error or answer.status not in (502, 504) else "an error without a message"), about
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        text = b"\n" + answer.body
        return (ERROR if re.search(rb'\n(event: error|data: ?\{"error")', text) else WHOLE), about
    return WHOLE, about
