"""Migrations whose destination dies or stops responding, with real processes: `tactus route` drains one server towards
another, which is killed or stopped (a half-open peer) at a chosen message of the migration. The stream continues at the
source, to its last token.
"""

import os
import pathlib
import select
import signal
import socket
import tempfile
import threading
import unittest
import urllib.request

import openai
from route_test import MODEL, client_of
from router_process import Router
from server_process import ServerProcess, wait_until

# Long enough to be running when the migration starts.
SLOW = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
TOKENS = 1200


class Tap:
    """A port in front of a server that forwards everything, and calls `act` once, before it forwards an import message
    of this kind: the server cannot have answered it."""

    def __init__(self, server, kind, act):
        self.port = int(server.url.rsplit(":", 1)[1])
        self.mark = b'"kind":"%s"' % kind.encode()
        self.act, self.acted, self.lock = act, threading.Event(), threading.Lock()
        self.closing = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = []
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def _accept(self):
        while not self.closing:
            if not select.select([self.listener], [], [], 0.05)[0]:
                continue
            client = self.listener.accept()[0]
            thread = threading.Thread(target=self._pass, args=(client,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _pass(self, client):
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            except OSError:
                return
            with server:
                seen = b""
                try:
                    while not self.closing:
                        for side in select.select([client, server], [], [], 0.05)[0]:
                            data = side.recv(1 << 16)
                            if not data:
                                return
                            if side is client:
                                seen = (seen + data)[-(1 << 16) - len(self.mark) :]
                                self._look(seen)
                            (server if side is client else client).sendall(data)
                except OSError:
                    return

    def _look(self, seen):
        if self.mark not in seen:
            return
        with self.lock:
            if not self.acted.is_set():
                self.act()
                self.acted.set()

    def close(self):
        self.closing = True
        for thread in [self.acceptor, *self.threads]:
            thread.join(10)
        self.listener.close()


def metric(server, name):
    with urllib.request.urlopen(server.url + "/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def end(process, signal_number):
    """Returns when none of its threads runs: until one thread has received a SIGSTOP, the others continue."""
    process.send_signal(signal_number)
    if signal_number == signal.SIGKILL:
        process.wait(30)
        return
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    wait_until(
        lambda: all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir()),
        "the stop",
        30,
    )


class MoveFailuresTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.secret = os.path.join(cls.folder.name, "secret")
        with open(cls.secret, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("a secret that the fleet shares\n")
        cls.source = cls.start()
        cls.whole = cls.stream(
            openai.OpenAI(base_url=cls.source.url + "/v1", api_key="none", max_retries=0, timeout=120)
        )

    @classmethod
    def tearDownClass(cls):
        cls.source.stop()
        cls.folder.cleanup()

    @classmethod
    def start(cls):
        return ServerProcess(
            "--kv-secret-file", cls.secret, "--migration-timeout", "1s", "--threads", "1", real_model=False, config=SLOW
        )

    @staticmethod
    def stream(client, begun=lambda: None):
        """The text of the whole stream; begun() is called after its first tokens."""
        text, chunks = "", 0
        with (
            client,
            client.completions.create(
                model=MODEL,
                prompt="Once upon a time",
                max_tokens=TOKENS,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            ) as events,
        ):
            for event in events:
                text += event.choices[0].text if event.choices else ""
                chunks += 1
                if chunks == 40:  # some blocks of KV
                    begun()
        return text

    def move(self, signal_number, kind):
        """Starts a migration away from the source; the destination gets the signal after a message of this kind."""
        destination = self.start()
        tap = Tap(destination, kind, lambda: end(destination.process, signal_number))
        failed, out = (
            metric(self.source, f'tactus_fleet_migrations_total{{what="{what}"}}') for what in ("failed", "out")
        )
        router = Router(
            [self.source.url], "--kv-secret-file", self.secret, "--rebalance-interval", "50ms", "--dead-after", "5s"
        )
        try:
            router.await_ready(1)

            def drain():
                self.assertEqual(router.post("/fleet/replicas", {"url": tap.url})[0], 200)
                router.await_ready(2)
                self.assertEqual(router.post("/fleet/drain", {"url": self.source.url})[0], 200)
                wait_until(tap.acted.is_set, f"a message of kind {kind}", about=router.last_lines)

            try:
                text = self.stream(client_of(router).with_options(timeout=20), drain)
            except openai.APITimeoutError:
                self.fail("the stream has stalled for 20 s" + self.source.last_lines())
            self.assertTrue(tap.acted.is_set(), "no migration was about to start")
            self.assertEqual(text, self.whole, "the stream differs from that of a single server")
            wait_until(
                lambda: metric(self.source, 'tactus_fleet_migrations_total{what="failed"}') > failed,
                "the source to report a failed migration",
                about=self.source.last_lines,
            )
            self.assertEqual(metric(self.source, 'tactus_fleet_migrations_total{what="out"}'), out, "it moved")
            wait_until(self.idle, "the source to free its state", about=self.source.last_lines)
        finally:
            self.assertEqual(router.stop(), 0, router.last_lines())
            tap.close()
            destination.process.kill()
            destination.process.wait(60)
            destination._close()

    def idle(self):
        with urllib.request.urlopen(self.source.url + "/fleet/state", timeout=30) as answer:
            return b'"running":0,"waiting":0' in answer.read()

    def test_a_destination_that_is_killed_in_a_round(self):
        self.move(signal.SIGKILL, "blocks")

    def test_a_destination_that_is_killed_at_the_end(self):
        self.move(signal.SIGKILL, "finish")

    def test_a_destination_that_falls_silent_in_a_round(self):
        self.move(signal.SIGSTOP, "blocks")

    def test_a_destination_that_falls_silent_at_the_end(self):
        self.move(signal.SIGSTOP, "finish")


if __name__ == "__main__":
    unittest.main()
