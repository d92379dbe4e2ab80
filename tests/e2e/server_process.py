"""Starts the real `tactus serve` on a free port, for one test module, and stops it with SIGTERM. Every wait has a limit
and ends in an error that shows the server's last lines.

TACTUS_BINARY is the program. TACTUS_DEFAULT_MODEL is a model file; without it the tests use a tiny random model, which
generates random text of the right shape.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

CHAT_TEMPLATE = """{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
START_LIMIT_S = 120  # a real model on a busy machine
STOP_LIMIT_S = 60
LAST_LINES = 30


def default_model():
    path = os.environ.get("TACTUS_DEFAULT_MODEL", "")
    return path if path and pathlib.Path(path).is_file() else None


def wait_until(condition, what, limit_s=60, about=lambda: ""):
    """The first true value of condition(); AssertionError after limit_s."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit_s} s{about()}")


class TakenPort:
    """A loopback port that is in use; with listening=False one that refuses every connection."""

    def __init__(self, listening=True):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        if listening:
            self.socket.listen()
        self.number = self.socket.getsockname()[1]

    def __enter__(self):
        return self.number

    def __exit__(self, *_):
        self.socket.close()


class ServerProcess:
    """`config` changes the tiny model's configuration; `environment` adds variables to the server's, which has no other
    TACTUS_ variables. `ready()` returns the server's address once it is ready, if standard error does not say so."""

    def __init__(
        self,
        *args,
        real_model=True,
        model=None,
        name="test-model",
        port=0,
        config=None,
        kv_cache_memory="256MiB",
        environment=None,
        ready=None,
    ):
        self.folder = tempfile.TemporaryDirectory()
        self.real = real_model and default_model() is not None
        command = [os.environ["TACTUS_BINARY"], "serve"]
        if model:
            command.append(str(model))
        elif self.real:
            command.append(default_model())
        else:
            folder = pathlib.Path(self.folder.name)
            (folder / "config.json").write_text(json.dumps(dict(TINY_CONFIG, **(config or {}))))
            (folder / "chat.jinja").write_text(CHAT_TEMPLATE)
            command += [str(folder), "--load-format", "dummy", "--chat-template", str(folder / "chat.jinja")]
        command += [
            "--port",
            str(port),
            *(["--kv-cache-memory", kv_cache_memory] if kv_cache_memory else []),
            *(["--served-model-name", name] if name else []),
            *map(str, args),
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")} | (environment or {})
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines = []
        self.url = None
        self.output = ""
        self.heard = threading.Event()  # it is ready, or has closed its standard error
        # Both pipes are read continuously, so that a full one never blocks the server.
        self.readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_output, daemon=True),
        ]
        for reader in self.readers:
            reader.start()
        end = time.monotonic() + START_LIMIT_S
        while ready and not self.heard.wait(0.05) and time.monotonic() < end and self.url is None:
            self.url = ready()
        in_time = self.url is not None or self.heard.wait(START_LIMIT_S)
        if self.url is None:
            self._end(
                "the server did not start" if in_time else f"the server was not ready within {START_LIMIT_S} s",
                grace_s=10 if in_time else 0,
            )

    def _read_lines(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if self.url is None and (match := re.match(r"ready: .* on (https?://\S+)", line)):
                self.url = match.group(1)
                self.heard.set()
        self.heard.set()

    def _read_output(self):
        self.output = self.process.stdout.read()

    def last_lines(self):
        return "\nthe server's last lines:\n" + "".join(self.lines[-LAST_LINES:])

    def _close(self):
        for reader in self.readers:
            reader.join(STOP_LIMIT_S)
        if not any(reader.is_alive() for reader in self.readers):
            self.process.stdout.close()
            self.process.stderr.close()
        self.folder.cleanup()

    def _end(self, why, grace_s=0):
        """Kills it if it has not ended by itself, and reports why."""
        try:
            self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=STOP_LIMIT_S)
        self._close()
        raise RuntimeError(f"{why} (exit status {self.process.returncode}){self.last_lines()}")

    def stop(self, send=True):
        """Returns the exit status; send=False only waits for it."""
        if send and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._end(f"the server did not stop within {STOP_LIMIT_S} s")
        self._close()
        return status
