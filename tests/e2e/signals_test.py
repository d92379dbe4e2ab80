"""Signals that stop a command while it loads: it ends with a line and its exit status, not by the signal, and leaves no
partial files. Reading from a pipe keeps a command loading for as long as the test needs."""

import os
import pathlib
import signal
import socket
import subprocess
import unittest

from command_case import BINARY, ENVIRONMENT, Folder
from server_process import wait_until

LIMIT_S = 60
HAS_EPP = (pathlib.Path(BINARY).parent / "tactus-epp").exists()
SPOKEN = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
SERVES = ("serve", "route", "epp")


class SignalsTest(Folder):
    def setUp(self):
        super().setUp()
        self.pipe, self.writer = self.folder / "pipe", None
        os.mkfifo(self.pipe)
        (self.folder / "in.jsonl").write_text(
            '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}\n'
        )

    def start(self, *args, **kwargs):
        process = subprocess.Popen(
            [BINARY, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            **kwargs,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def held(self, process):
        """Waits until the process reads from the pipe, which assert_stops closes."""

        def opened():
            self.assertIsNone(process.poll(), "it ended before it read the pipe")
            try:
                return os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # no reader yet
                return None

        self.writer = wait_until(opened, "a read of the pipe", LIMIT_S)

    def assert_stops(self, process, by, status, *says):
        process.send_signal(by)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        if self.writer is not None:
            os.close(self.writer)
            self.writer = None
        self.assertEqual(process.returncode, status, stderr)
        self.assertEqual(stdout, "")
        lines = [line for line in stderr.splitlines() if "stopped by" in line]
        self.assertEqual(len(lines), 1, stderr)
        for text in (f"stopped by {SPOKEN[by]}", *says):
            self.assertIn(text, lines[0])
        self.assertEqual([p.name for p in self.folder.rglob("*.tmp")], [])

    def commands(self):
        model = self.dummy
        commands = {
            "batch": ["batch", self.folder / "in.jsonl", "-o", self.folder / "out.jsonl", *model],
            "run": ["run", *model, "-p", "x"],
            "serve": ["serve", *model, "--port", 0],
            "profile": ["profile", *model],
            "bench": ["bench", "--url", "http://127.0.0.1:9", "--requests", 1],
            "route": ["route", "--replicas", "http://127.0.0.1:9", "--port", 0],
            "sim": ["sim", "--rate", 1],
        }
        if HAS_EPP:
            commands["epp"] = ["epp", "--replicas", "http://127.0.0.1:9", "--grpc-port", 0]
        return commands

    def test_commands_reading_a_configuration_end_with_a_line(self):
        for name, args in self.commands().items():
            for by in SPOKEN:
                with self.subTest(name, by=by):
                    process = self.start(*args, "--config", self.pipe)
                    self.held(process)
                    self.assert_stops(process, by, 0 if name in SERVES else 130, f"tactus {name}: ")

    def test_loading_a_model_does_not_delay_the_end(self):
        for name in ("run", "serve"):
            for by in SPOKEN:
                if (name, by) == ("serve", signal.SIGHUP):
                    continue  # without a terminal it requests a reload
                with self.subTest(name, by=by):
                    process = self.start(*self.commands()[name], "--chat-template", self.pipe)
                    self.held(process)
                    self.assert_stops(process, by, 0 if name == "serve" else 130)

    def test_a_reload_of_a_server_that_loads_waits_until_it_is_ready(self):
        process = self.start(*self.commands()["serve"], "--chat-template", self.pipe)
        self.held(process)
        process.send_signal(signal.SIGHUP)
        with self.assertRaises(subprocess.TimeoutExpired, msg="it ended"):
            process.wait(0.5)
        os.write(self.writer, b"{{ messages[0].content }}")
        os.close(self.writer)
        self.writer = None
        lines = []
        while not lines or not lines[-1].startswith("reloaded: "):
            lines.append(process.stderr.readline())
            self.assertTrue(lines[-1], "it ended: " + "".join(lines))
        self.assertTrue(any(line.startswith("ready: ") for line in lines), lines)
        process.terminate()
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)

    # While its model loads it already counts Ctrl-C, to end the reading of its input in order.
    def test_a_batch_ends_while_its_model_loads_and_resumes(self):
        for by in SPOKEN:
            with self.subTest(by=by):
                for path in self.folder.glob("out.*"):
                    path.unlink()
                process = self.start(*self.commands()["batch"], "--chat-template", self.pipe)
                os.close(os.open(self.pipe, os.O_WRONLY))  # the part of the template that the job stores
                wait_until(lambda: (self.folder / "out.jsonl.job").exists(), "the job", LIMIT_S)
                self.held(process)
                self.assert_stops(process, by, 130, "tactus batch: ")
        done = subprocess.run(
            [BINARY, *map(str, self.commands()["batch"]), "--overwrite"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=ENVIRONMENT,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_load_test_ends_while_it_waits_for_the_server(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(LIMIT_S)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            process = self.start("bench", "--url", url, "--concurrency", 1, "--vocab-size", 256)
            connection, _ = listener.accept()
            with connection:
                self.assert_stops(process, signal.SIGINT, 130, "tactus bench: ")

    def test_commands_reading_a_workload_end_with_a_line(self):
        process = self.start(
            "sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", f"lengths:{self.pipe}", "--rate", 1
        )
        self.held(process)
        self.assert_stops(process, signal.SIGINT, 130, "tactus sim: ")

    def test_an_unanswered_router_request_is_no_success(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(LIMIT_S)
            process = self.start("route", "list", "--router", f"http://127.0.0.1:{listener.getsockname()[1]}")
            connection, _ = listener.accept()
            with connection:
                self.assert_stops(process, signal.SIGINT, 130, "tactus route: ")

    def test_under_nohup_sighup_is_ignored(self):
        process = self.start(
            *self.commands()["run"],
            "--chat-template",
            self.pipe,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        self.held(process)
        process.send_signal(signal.SIGHUP)
        self.assert_stops(process, signal.SIGINT, 130)


if __name__ == "__main__":
    unittest.main()
