"""Messages to systemd: the datagrams that `tactus serve` and `tactus route` send to NOTIFY_SOCKET."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import unittest

from command_case import BINARY, ENVIRONMENT, Folder
from server_process import ServerProcess, wait_until


class Manager:
    """The service manager's side: a datagram socket, in a folder or, with abstract=True, without a file."""

    def __init__(self, abstract=False):
        self.temporary = tempfile.TemporaryDirectory()
        self.address = str(pathlib.Path(self.temporary.name) / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.address if abstract else self.address)
        self.socket.settimeout(60)
        self.variables = {"NOTIFY_SOCKET": "@" + self.address if abstract else self.address}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.temporary.cleanup()

    def next(self, what):
        """The next message that has `what`; the messages before it are dropped."""
        while what not in (message := self.socket.recv(65536).decode()):
            pass
        return dict(line.split("=", 1) for line in message.splitlines())


class NotifyTest(Folder):
    def test_a_server_reports_ready_reloads_and_its_stop(self):
        for abstract in (False, True):
            with self.subTest(abstract=abstract), Manager(abstract) as manager:
                server = ServerProcess(real_model=False, environment=manager.variables)
                ready = manager.next("READY=1")
                self.assertEqual(ready["STATUS"], f"serving test-model on {server.url}")
                server.process.send_signal(signal.SIGHUP)
                self.assertGreater(int(manager.next("RELOADING=1")["MONOTONIC_USEC"]), 0)
                manager.next("READY=1")
                server.process.send_signal(signal.SIGTERM)
                manager.next("STOPPING=1")
                self.assertEqual(server.stop(send=False), 0, server.last_lines())

    def test_a_server_that_loads_is_not_ready(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with Manager() as manager:
            process = subprocess.Popen(
                [BINARY, "serve", *map(str, self.dummy), "--port", "0", "--chat-template", str(pipe)],
                stderr=subprocess.PIPE,
                env=ENVIRONMENT | manager.variables,
            )
            with open(pipe, "w") as writer:  # opens once the program reads it
                manager.socket.settimeout(0.5)
                with self.assertRaises(TimeoutError):
                    manager.next("")
                writer.write("{{ messages[0].content }}")
            manager.socket.settimeout(60)
            manager.next("READY=1")
            process.terminate()
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)

    def test_the_watchdog_is_served_if_it_is_for_this_process(self):
        with Manager() as manager:
            variables = manager.variables | {"WATCHDOG_USEC": "400000"}
            server = ServerProcess(real_model=False, environment=variables)
            for _ in range(5):
                manager.next("WATCHDOG=1")
            self.assertEqual(server.stop(), 0, server.last_lines())
        with Manager() as manager:
            server = ServerProcess(
                real_model=False, environment=manager.variables | {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
            )
            self.assertEqual(server.stop(), 0, server.last_lines())
            manager.socket.settimeout(0.1)
            with self.assertRaises(TimeoutError):
                manager.next("WATCHDOG=1")

    def test_a_router_reports_too(self):
        with Manager() as manager:
            process = subprocess.Popen(
                [BINARY, "route", "--replicas", "http://127.0.0.1:9", "--port", "0"],
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT | manager.variables | {"WATCHDOG_USEC": "400000"},
            )
            self.assertIn("routing on http://127.0.0.1:", manager.next("READY=1")["STATUS"])
            manager.next("WATCHDOG=1")
            manager.next("WATCHDOG=1")
            process.terminate()
            manager.next("STOPPING=1")
            self.assertEqual(process.wait(60), 0, process.communicate()[1])

    def test_a_manager_that_is_gone_changes_nothing(self):
        for address in ("/nonexistent/socket", "x" * 300, "@" + "y" * 300):
            server = ServerProcess(
                real_model=False, environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "nonsense"}
            )
            wait_until(lambda server=server: server.url, "ready")
            self.assertEqual(server.stop(), 0, server.last_lines())


if __name__ == "__main__":
    unittest.main()
