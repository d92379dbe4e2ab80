"""`tactus top`: the screen on a pseudo-terminal, its keys and sizes, stops by a shell, lines in a pipe, and errors."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import termios
import threading
import unittest
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from certificates import Authority
from command_case import BINARY, ENVIRONMENT, tactus
from pseudo_terminal import PseudoTerminal
from router_process import Router
from server_process import ServerProcess, TakenPort, wait_until

LIMIT_S = 60


class Load:
    """Requests that run until stop(), one thread each."""

    def __init__(self, url, names, key=None):
        self.url, self.key, self.stopped = url, key, False
        self.threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in names]
        for thread in self.threads:
            thread.start()

    def _run(self, name):
        while not self.stopped:
            body = {
                "prompt": "x" * 50,
                "max_tokens": 1500,
                "ignore_eos": True,
                "stream": True,
                "slo": {"class": f"class-{name}", "ttft_ms": 0.001, "tbt_ms": 10_000},
            }
            headers = {"Content-Type": "application/json", "X-Request-Id": name}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), headers)
            try:
                with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                    for _ in answer:
                        if self.stopped:
                            return
            except OSError:
                return  # the server has stopped

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(LIMIT_S)


class TopCase(unittest.TestCase):
    def serve(self, *options, port=0):
        fixed = ("--threads", "1", "--scheduler", "sarathi-serve", "--tbt-slo", "none")
        server = ServerProcess(*options, *fixed, real_model=False, port=port)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def load(self, server, *names, key=None):
        load = Load(server.url, names, key)
        self.addCleanup(load.stop)
        return load

    def top(self, *args, lines=30, columns=110, **environment):
        environment = {**ENVIRONMENT, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}
        terminal = PseudoTerminal(
            BINARY, "top", *args, lines=lines, columns=columns, environment={k: v for k, v in environment.items() if v}
        )
        self.addCleanup(terminal.close)
        return terminal

    def assert_given_back(self, terminal):
        self.assertFalse(terminal.screen.alternate, "the alternate screen was not left")
        self.assertTrue(terminal.screen.cursor, "the cursor is hidden")
        self.assertEqual(terminal.settings(), terminal.before, "the terminal's settings were not restored")


class ScreenTest(TopCase):
    def test_the_screen_shows_requests_and_ends_as_the_terminal_was(self):
        server = self.serve()
        self.load(server, "one", "two")
        terminal = self.top(server.url)
        shown = terminal.wait_for(lambda text: "one " in text and "two " in text, "both requests")
        for part in ("test-model", "scheduler sarathi-serve", "running 2", "tokens/s", "KV cache", "class-one"):
            self.assertIn(part, shown)
        terminal.wait_for(lambda text: "█" in text, "the chart of step times")
        self.assertTrue(terminal.screen.alternate)
        self.assertIn("\x1b[1m", terminal.shown)
        terminal.type("q")
        self.assertEqual(terminal.exit_status(), 0)
        self.assert_given_back(terminal)

    def test_keys_filter_sort_and_hold_the_view(self):
        server = self.serve()
        load = self.load(server, "alpha", "beta")
        terminal = self.top(server.url)
        terminal.wait_for(lambda text: "alpha " in text and "beta " in text, "both requests")
        terminal.type("/alx\x7f\n")
        terminal.wait_for(lambda text: "beta " not in text and "/ filter: al" in text, "the filter")
        self.assertRegex(terminal.screen.text(), r"(?m)^alpha ")
        terminal.type("\x1b")
        terminal.wait_for_text("beta ")
        terminal.type("s")
        terminal.wait_for_text("s sort: tokens")
        terminal.type("\x1b[D")
        terminal.wait_for_text("s sort: newest")
        terminal.type("\x1b[C\x1b[C")
        terminal.wait_for_text("s sort: prompt")
        terminal.type("r")
        terminal.wait_for_text("prompt, reversed")
        terminal.type("p")
        held = terminal.wait_for_text("paused")
        load.stop()
        terminal.resize(31, 110)  # is drawn again, from the same state
        again = terminal.wait_for(lambda text: "paused" in text and "p go on" in text, "the held view")
        tokens = re.compile(r"(?m)^(?:alpha|beta) .*$")
        self.assertEqual(tokens.findall(again), tokens.findall(held))
        terminal.type("p")
        terminal.wait_for(lambda text: "no request runs" in text, "the newest state")
        terminal.type("\x04")
        self.assertEqual(terminal.exit_status(), 0)

    def test_the_view_follows_the_size_of_the_terminal(self):
        server = self.serve()
        self.load(server, *(f"request-{i:02}" for i in range(12)))
        terminal = self.top(server.url, lines=40, columns=120)
        rows = lambda text: len(set(re.findall(r"(?m)^request-\d\d", text)))  # noqa: E731
        terminal.wait_for(lambda text: rows(text) == 12, "every request")
        terminal.resize(14, 50)
        small = terminal.wait_for(lambda text: 1 <= rows(text) < 12 and "q quit" in text, "a smaller view")
        self.assertIn("q quit", small.splitlines()[-1])
        first = re.search(r"(?m)^request-\d\d", small).group()
        terminal.type("\x1b[B" * 3)
        terminal.wait_for(
            lambda text: rows(text) > 0 and re.search(r"(?m)^request-\d\d", text).group() != first, "scrolled rows"
        )
        for lines, columns in ((1, 1), (3, 10), (200, 300)):
            terminal.resize(lines, columns)
            terminal.wait_for(lambda text: text.strip() != "", f"a view of {columns} x {lines}")
        terminal.wait_for(lambda text: rows(text) == 12, "every request again")

    def test_signals_give_the_terminal_back(self):
        server = self.serve()
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, -3)):
            with self.subTest(signal=number):
                terminal = self.top(server.url)
                terminal.wait_for_text("no request runs")
                terminal.process.send_signal(number)
                self.assertEqual(terminal.exit_status(), status)
                self.assert_given_back(terminal)

    def test_ctrl_c_and_ctrl_z_are_keys_of_the_terminal(self):
        server = self.serve()
        terminal = self.top(server.url)
        terminal.wait_for_text("no request runs")
        terminal.type("\x1a")
        state = pathlib.Path(f"/proc/{terminal.process.pid}/stat")
        stopped = lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T"  # noqa: E731
        # A process of an orphaned group ignores SIGTSTP: then it goes on at once.
        terminal.wait_for(lambda _: stopped() or terminal.shown.count("\x1b[?1049h") > 1, "the stop")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda text: terminal.screen.alternate and "no request runs" in text, "the view again")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 130)
        self.assert_given_back(terminal)

    def test_an_ignored_sigtstp_stays_ignored(self):
        server = self.serve()
        environment = {**ENVIRONMENT, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        command = f"trap '' TSTP; exec {BINARY} top {server.url}"
        terminal = PseudoTerminal("sh", "-c", command, lines=30, columns=110, environment=environment)
        self.addCleanup(terminal.close)
        terminal.wait_for_text("no request runs")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.type("\x1a/abc")
        terminal.wait_for_text("filter: abc")
        self.assertEqual(terminal.shown.count("\x1b[?1049h"), 1, "the terminal was given back and taken again")
        terminal.type("\x1b")
        terminal.type("q")
        self.assertEqual(terminal.exit_status(), 0)

    def test_it_connects_again_when_the_server_restarts(self):
        server = self.serve()
        port = int(server.url.rsplit(":", 1)[1])
        terminal = self.top(server.url)
        terminal.wait_for_text("no request runs")
        self.assertEqual(server.stop(), 0)
        terminal.wait_for_text("connecting again")
        again = self.serve(port=port)
        terminal.wait_for(lambda text: "connecting again" not in text and "no request runs" in text, "the new server")
        self.load(again, "after")
        terminal.wait_for_text("after ")
        terminal.type("q")
        self.assertEqual(terminal.exit_status(), 0)

    def test_a_silent_server_is_reported_after_ten_seconds_and_the_view_comes_again(self):
        server = self.serve()
        terminal = self.top(server.url)
        terminal.wait_for_text("no request runs")
        pipe = subprocess.Popen(
            [BINARY, "top", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        self.addCleanup(pipe.communicate)
        self.addCleanup(pipe.kill)
        pipe.stdout.readline()
        os.kill(server.process.pid, signal.SIGSTOP)  # its connections stay open
        self.addCleanup(server.process.send_signal, signal.SIGCONT)
        held = terminal.wait_for_text("no event for 10 s; connecting again")
        self.assertIn("no request runs", held, "the last state is shown on")
        self.assertEqual(pipe.stderr.readline(), "no event for 10 s; connecting again\n")
        os.kill(server.process.pid, signal.SIGCONT)
        terminal.wait_for(lambda text: "no event" not in text and "no request runs" in text, "the view again")
        terminal.type("q")
        self.assertEqual(terminal.exit_status(), 0)

    def test_colours_and_block_characters_can_be_off(self):
        server = self.serve()
        self.load(server, "one")
        terminal = self.top(server.url, NO_COLOR="1", LC_ALL="C")
        terminal.wait_for(lambda text: "one " in text and "@" in text, "the view")
        self.assertIsNone(re.search(r"\x1b\[[1-9][0-9;]*m", terminal.shown), "a colour or a weight")
        self.assertNotIn("█", terminal.shown)

    def test_a_router_shows_its_replicas(self):
        server = self.serve()
        with TakenPort(listening=False) as closed:
            router = Router([server.url, f"http://127.0.0.1:{closed}"])
            self.addCleanup(router.stop)
            router.await_ready(1)
            terminal = self.top(router.url)
            shown = terminal.wait_for(lambda text: server.url in text and "ready 1 of 2" in text, "the replicas")
            self.assertIn("router", shown)
            terminal.type(f"/{server.url[-5:]}\n")
            terminal.wait_for(lambda text: f"127.0.0.1:{closed} " not in text, "the filter")
            terminal.type("q")
            self.assertEqual(terminal.exit_status(), 0)
            done = tactus("top", router.url, "--once")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(server.url, done.stdout)


@unittest.skipIf(shutil.which("bash") is None, "no bash")
class JobControlTest(TopCase):
    """As a job of a shell, whose process group is not orphaned: there a stop signal stops."""

    def setUp(self):
        self.server = self.serve()
        environment = {**ENVIRONMENT, "TERM": "xterm", "LC_ALL": "C.UTF-8", "PS1": "shell$ ", "HISTFILE": ""}
        self.shell = PseudoTerminal(
            "bash", "--norc", "--noprofile", "--noediting", lines=30, columns=110, environment=environment
        )
        self.addCleanup(self.shell.close)
        self.shell.wait_for_text("shell$")
        self.shell.type(f"exec 2>&1; {BINARY} top {self.server.url}\n")
        self.await_view("the first view")
        (self.pid,) = map(
            int,
            pathlib.Path(f"/proc/{self.shell.process.pid}/task/{self.shell.process.pid}/children").read_text().split(),
        )
        self.addCleanup(self.end)

    def end(self):
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def await_view(self, what, part="no request runs"):
        drawn = lambda text: self.shell.screen.alternate and part in text and "Stopped" not in text  # noqa: E731
        self.shell.wait_for(drawn, what)

    def await_stop(self, what, given_back=True):
        before = self.shell.shown.count("Stopped")
        self.shell.wait_for(lambda _: self.shell.shown.count("Stopped") > before, what)
        if not given_back:
            return
        self.assertFalse(self.shell.screen.alternate, f"{what}: the alternate screen was not left")
        self.assertTrue(self.shell.screen.cursor, f"{what}: the cursor is hidden")
        flags = self.shell.settings()[3]
        self.assertEqual(flags & (termios.ECHO | termios.ICANON), termios.ECHO | termios.ICANON, what)

    def go_on(self, what, part="no request runs"):
        self.shell.type("fg\n")
        self.await_view(f"the view after {what}", part)
        self.assertFalse(self.shell.screen.cursor, what)
        raw = lambda _: self.shell.settings()[3] & (termios.ECHO | termios.ICANON) == 0  # noqa: E731
        self.shell.wait_for(raw, f"keys without Enter after {what}")

    def test_a_stop_gives_the_terminal_back_and_the_view_comes_again(self):
        self.shell.type("\x1a")
        self.await_stop("Ctrl-Z")
        self.go_on("Ctrl-Z")
        self.shell.type("/abc\x1a")
        self.await_stop("Ctrl-Z while a filter is typed")
        self.go_on("Ctrl-Z while a filter is typed", "filter: abc")
        self.shell.type("\x1b")
        self.await_view("the view without the filter")
        os.kill(self.pid, signal.SIGTSTP)
        self.await_stop("SIGTSTP")
        self.go_on("SIGTSTP")
        os.kill(self.pid, signal.SIGSTOP)  # which no program sees
        self.await_stop("SIGSTOP", given_back=False)
        self.go_on("SIGSTOP")
        self.shell.type("q")
        self.shell.wait_for(lambda text: not self.shell.screen.alternate and "shell$" in text, "the end")
        self.shell.type("echo status $?\n")
        self.shell.wait_for_text("status 0")


class PipeTest(TopCase):
    def test_once_prints_the_view_as_plain_text(self):
        server = self.serve()
        self.load(server, "one", "two", "three")

        def once():
            done = tactus("top", server.url, "--once", "--interval", "200ms")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout

        shown = wait_until(lambda: re.search(r"(?s).*\n(one|two|three) .*", once()), "a request").group()
        self.assertNotIn("\x1b", shown)
        for part in ("test-model", "running ", "step times", "tokens/s"):
            self.assertIn(part, shown)

    def test_a_pipe_gets_a_line_at_every_interval(self):
        server = self.serve()
        process = subprocess.Popen(
            [BINARY, "top", server.url, "--interval", "100ms"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        lines = [process.stdout.readline() for _ in range(3)]
        for line in lines:
            self.assertRegex(line, r"^running 0, waiting 0, output .* tokens/s, .*KV cache .*steps\n$")
        self.assertEqual(server.stop(), 0)
        self.assertIn("connecting again", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130)
        self.assertNotIn("\x1b", rest)


class EndpointHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        status, kind, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ErrorsTest(TopCase):
    def endpoint(self, status, kind, body):
        endpoint = ThreadingHTTPServer(("127.0.0.1", 0), EndpointHandler)
        endpoint.answer = (status, kind, body)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        self.addCleanup(endpoint.server_close)
        self.addCleanup(endpoint.shutdown)
        return f"http://127.0.0.1:{endpoint.server_address[1]}"

    def assert_fails(self, status, message, *args, **environment):
        """In a pipe and on a terminal, where the screen is not taken first."""
        done = tactus("top", *args, timeout=LIMIT_S, **environment)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, message)
        terminal = self.top(*args, **environment)
        self.assertEqual(terminal.exit_status(), status)
        self.assertRegex(terminal.shown, message)
        self.assertNotIn("\x1b[?1049h", terminal.shown, "the error is on the alternate screen")

    def test_addresses_that_are_wrong_are_named(self):
        self.assert_fails(
            2, r"'localhost:8000': not an http:// or https:// URL; give http://host:port", "localhost:8000"
        )
        self.assert_fails(
            2, r"--interval 1ms is too short; give at least 50ms", "http://localhost:1", "--interval", "1ms"
        )
        with TakenPort(listening=False) as port:
            self.assert_fails(
                1, rf"cannot connect \(127.0.0.1:{port}\): Connection refused", f"http://127.0.0.1:{port}"
            )

    def test_other_servers_are_named(self):
        url = self.endpoint(404, "application/json", b'{"error":{"message":"no such thing"}}')
        self.assert_fails(1, r"answered 404: no such thing; it is not a server of Tactus, or an older one", url)
        url = self.endpoint(200, "text/html", b"<p>hello")
        self.assert_fails(1, r"/events has no events: it is not a server of Tactus", url)
        url = self.endpoint(200, "text/event-stream", b'data: {"a":1}\n\n')
        self.assert_fails(1, r"not an event of Tactus", url)

    def test_a_server_with_a_private_authority_is_watched_with_a_client_certificate(self):
        authority, other = Authority(), Authority("Another authority")
        self.addCleanup(authority.close)
        self.addCleanup(other.close)
        cert, key = authority.sign()
        server = self.serve("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.file)
        trust = ("--replica-ca", authority.file)
        client, client_key = authority.sign("a viewer")
        own = ("--replica-cert", client, "--replica-key", client_key)
        done = tactus("top", server.url, "--once", "--interval", "50ms", *trust, *own)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("test-model", done.stdout)
        terminal = self.top(server.url, *trust, *own)
        terminal.wait_for_text("no request runs")
        terminal.type("q")
        self.assertEqual(terminal.exit_status(), 0)
        self.assert_fails(
            1, r"the certificate is refused: .*; give the file of its authority as --replica-ca", server.url, *own
        )
        self.assert_fails(
            1,
            r"the certificate is refused: .*; give the file of its authority as --replica-ca",
            server.url,
            "--replica-ca",
            other.file,
            *own,
        )
        self.assert_fails(
            1,
            r"the certificate is refused: .*mismatch.*; give the name in it as --replica-tls-name",
            server.url,
            *trust,
            *own,
            "--replica-tls-name",
            "elsewhere",
        )
        self.assert_fails(1, r"answered 403: .*; give --replica-cert and --replica-key", server.url, *trust)
        self.assert_fails(2, r"--replica-key is missing: --replica-cert needs it", server.url, "--replica-cert", client)
        self.assert_fails(2, r"--replica-ca: .*/none", server.url, "--replica-ca", authority.folder / "none")

    def test_keys_are_needed_and_checked(self):
        server = self.serve("--api-key", "right")
        self.assert_fails(1, r"answered 401: .*; give --api-key", server.url)
        self.assert_fails(1, r"answered 401: .*; --api-key is another one", server.url, "--api-key", "wrong")
        done = tactus("top", server.url, "--once", TACTUS_API_KEY="right")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
