"""The program under attack: a tiny random model, `tactus serve` on a free loopback port, and readers of /proc and
/metrics.

TACTUS_BINARY names another program than build/release/tactus. Every wait has a limit, after which the process is killed
by its id.
"""

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from server_process import CHAT_TEMPLATE, TINY_CONFIG  # noqa: E402  (the model of the end-to-end tests)

BINARY = os.environ.get("TACTUS_BINARY", str(ROOT / "build/release/tactus"))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
MODEL = "abuse-model"
START_LIMIT_S = 60
STOP_LIMIT_S = 60


def tactus(*args, timeout=60, binary_output=False):
    """Runs one command to its end. A command that hangs is killed and has the return code None."""
    command = [BINARY, *map(str, args)]
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=not binary_output,
            errors=None if binary_output else "replace",
            timeout=timeout,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, None, late.stdout or "", f"no end within {timeout} s")


_help = {}


def has_flag(flag, command="serve"):
    """Whether the program has an option: without a new flag a case fails instead of the whole tier."""
    if command not in _help:
        _help[command] = tactus(command, "--help-all").stdout
    return re.search(re.escape(flag) + r"\b", _help[command]) is not None


def dummy_model(folder, **changes):
    """Writes config.json and chat.jinja of a random model; returns the arguments that load it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(TINY_CONFIG, **changes)))
    (folder / "chat.jinja").write_text(CHAT_TEMPLATE)
    return [str(folder), "--load-format", "dummy", "--chat-template", str(folder / "chat.jinja")]


_libc = ctypes.CDLL(None)
running = set()  # server processes; an interrupt kills them, so that no client waits for their answers


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed test run leaves no server behind


class DidNotStart(Exception):
    """Has the program's output and its exit status (None: killed at the limit)."""

    def __init__(self, status, text):
        super().__init__(f"the server did not start (exit status {status}):\n{text}")
        self.status, self.text = status, text


class Server:
    def __init__(self, *args, model=None, kv_memory="64MiB", port=0, start_limit_s=START_LIMIT_S, **config):
        self.folder = tempfile.TemporaryDirectory(prefix="tactus-abuse-")
        model = model or dummy_model(pathlib.Path(self.folder.name) / "model", **config)
        command = [
            BINARY,
            "serve",
            *map(str, model),
            "--port",
            str(port),
            "--kv-cache-memory",
            kv_memory,
            "--served-model-name",
            MODEL,
            *map(str, args),
        ]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=ENVIRONMENT,
            preexec_fn=_die_with_parent,
        )
        running.add(self.process)
        self.lines, self.port, self._ready = [], None, threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(start_limit_s) or self.port is None:
            if self.process.poll() is None and self.port is None and self._ready.is_set():
                self._wait(5)
            status = self.process.poll()
            self.kill()
            raise DidNotStart(status, "".join(self.lines[-20:]))
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.match(r"ready: .* on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match.group(1))
                self._ready.set()
        self._ready.set()

    def _wait(self, limit_s):
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None

    # --- output and memory

    def get(self, path, timeout=30):
        with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
            return answer.read().decode()

    def post(self, path, body, timeout=60):
        """(status, parsed JSON) of one request."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"{}")

    def metric(self, name, text=None):
        """The sum over a metric's labels, 0 when it is absent."""
        text = text or self.get("/metrics")
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(name) + r"[ {]", line)
        )

    def wait_for_metrics(self, limit_s=60, **wanted):
        """Polls until all metrics have these values; False at the limit. Colons of names are written as __."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                text = self.get("/metrics")
            except OSError:
                return False
            if all(self.metric(name.replace("__", ":"), text) == value for name, value in wanted.items()):
                return True
            time.sleep(0.1)
        return False

    def idle(self, limit_s=60):
        return self.wait_for_metrics(
            limit_s,
            vllm__num_requests_running=0,
            vllm__num_requests_waiting=0,
            vllm__kv_cache_usage_perc=0,
            tactus_http_exchanges=1,
        )  # the exchange of this request

    def memory_mib(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def forget_peak(self):
        """Resets VmHWM, so that it is the peak from now on."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as refs:
            refs.write("5")

    def alive(self):
        return self.process.poll() is None

    # --- end

    def stop(self):
        """Sends SIGTERM and returns the exit status; None if it had to be killed at the limit. A negative status is the
        signal that ended it."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        status = self._wait(STOP_LIMIT_S)
        self.kill()
        return status

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()
        running.discard(self.process)
        self._reader.join(10)
        self.process.stderr.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
