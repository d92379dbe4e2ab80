"""The log of `tactus serve` and `tactus route`: levels, text and JSON lines, a line for each request, rotation."""

import json
import re
import signal
import unittest
import urllib.error
import urllib.request

from command_case import Folder, tactus
from router_process import Router
from server_process import ServerProcess, wait_until

SECRET = "a secret prompt"
CAUSES = ("intake", "in_flight", "queue", "prefill", "decode")  # of a request that has the server to itself
KEY = "the-key-of-a-client"


def call(url, path, body=None, headers=()):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        url + path, data, {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **dict(headers)}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ready_line(log):
    """The address in the line that says that a server is ready, once the file has it."""
    found = re.search(r"ready: .* on (http://\S+) - ", log.read_text()) if log.exists() else None
    return found and found.group(1)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


class LogTest(Folder):
    def test_each_request_is_a_json_line_with_latencies_and_cause_and_without_texts(self):
        log = self.folder / "serve.log"
        server = ServerProcess(
            *("--log-file", log, "--log-format", "json", "--access-log", "--api-key", KEY, "--port", 0),
            real_model=False,
            ready=lambda: ready_line(log),
        )
        body = {"prompt": SECRET, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
        status, text = call(server.url, "/v1/completions", body, {"X-Request-Id": "one"})
        self.assertEqual(status, 200, text)
        generated = json.loads(text)["choices"][0]["text"]
        chat = {
            "messages": [{"role": "user", "content": SECRET}],
            "max_tokens": 200,
            "stream": True,
            "ignore_eos": True,
            "slo": {"jct_ms": 3},
        }
        self.assertEqual(call(server.url, "/v1/chat/completions", chat, {"X-Request-Id": "two"})[0], 200)
        self.assertEqual(call(server.url, "/v1/completions?key=" + SECRET.replace(" ", "+"), {"prompt": 5})[0], 400)
        self.assertEqual(call(server.url, "/v1/nothing")[0], 404)
        self.assertEqual(call(server.url, "/v1/models", headers={"Authorization": "Bearer wrong"})[0], 401)
        self.assertEqual(call(server.url, "/health")[0], 200)
        self.assertEqual(server.stop(), 0, log.read_text())
        self.assertEqual(server.lines, [], "with --log-file nothing is written to standard error")
        written = log.read_text()
        for hidden in (SECRET, SECRET.replace(" ", "+"), generated, KEY, "wrong"):
            self.assertNotIn(hidden, written)
        lines = json_lines(written)
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("info", "warning"))
            self.assertEqual("message" in line, "event" not in line, line)
        requests = [line for line in lines if line.get("event") == "request"]
        self.assertEqual([line["status"] for line in requests], [200, 200, 400, 404, 401])
        one, two = requests[:2]
        self.assertEqual(
            {name: one[name] for name in ("method", "path", "id", "peer", "client", "model", "stream", "finish")},
            {
                "method": "POST",
                "path": "/v1/completions",
                "id": "one",
                "peer": "127.0.0.1",
                "client": "key 1",
                "model": "test-model",
                "stream": False,
                "finish": "length",
            },
        )
        self.assertEqual((one["output_tokens"], one["cached_tokens"], one["preemptions"]), (20, 0, 0))
        self.assertGreater(one["prompt_tokens"], 0)
        self.assertLessEqual(0, one["queue_ms"])
        self.assertLessEqual(one["queue_ms"], one["ttft_ms"])
        self.assertLessEqual(one["ttft_ms"], one["ms"])
        self.assertGreater(one["longest_gap_ms"], 0)
        self.assertIn(one["cause"], CAUSES)
        self.assertNotIn("missed", one)
        self.assertEqual((two["stream"], two["missed"], two["id"]), (True, "jct", "two"))
        self.assertGreater(two["answer_bytes"], 500)
        self.assertEqual(requests[2]["path"], "/v1/completions", "the query is left out")

    def test_levels_select_lines(self):
        shown = {}
        for level in ("debug", "info"):
            log = self.folder / level
            server = ServerProcess(
                *("--log-level", level, "--access-log", "--log-file", log),
                real_model=False,
                ready=lambda: ready_line(log),
            )
            call(server.url, "/health")
            call(server.url, "/v1/models")
            self.assertEqual(server.stop(), 0)
            shown[level] = log.read_text()
        self.assertIn("path=/v1/models", shown["info"])
        self.assertNotIn("path=/health", shown["info"], "probes are lines of the level debug")
        self.assertIn("path=/health", shown["debug"])
        self.assertIn("listening on", shown["debug"], "details of the start are lines of the level debug")
        self.assertNotIn("listening on", shown["info"])
        for line in shown["debug"].splitlines():
            self.assertRegex(line, r"^\S+Z (debug|info|warning|error) +\S")

    def test_a_warning_is_shown_at_its_level_and_information_is_not(self):
        log = self.folder / "log"
        process = Router(
            ["http://127.0.0.1:9"],
            *("--host", "0.0.0.0", "--log-level", "warning", "--log-file", str(log)),
            ready=lambda: log.exists() and "warning" in log.read_text() and "http://127.0.0.1:1",
        )
        self.assertEqual(process.stop(), 0)
        lines = log.read_text().splitlines()
        self.assertTrue(lines and all(" warning " in line for line in lines), lines)
        self.assertIn("--api-key", lines[0])

    def test_sighup_continues_in_a_new_file_after_a_rotation(self):
        log, old = self.folder / "serve.log", self.folder / "serve.log.1"
        server = ServerProcess(
            *("--log-file", log, "--access-log"),
            real_model=False,
            ready=lambda: ready_line(log),
        )
        call(server.url, "/v1/models", headers={"X-Request-Id": "before"})
        wait_until(lambda: "id=before" in log.read_text(), "the first line")
        log.rename(old)
        call(server.url, "/v1/models", headers={"X-Request-Id": "between"})
        wait_until(lambda: "id=between" in old.read_text(), "a line in the renamed file")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: log.exists() and "reloaded: the log" in log.read_text(), "the new file")
        call(server.url, "/v1/models", headers={"X-Request-Id": "after"})
        wait_until(lambda: "id=after" in log.read_text(), "a line in the new file")
        self.assertNotIn("id=after", old.read_text())
        self.assertEqual(server.stop(), 0)

    def test_a_file_that_cannot_be_written_is_refused(self):
        for command in (["serve", *self.dummy], ["route", "--replicas", "http://127.0.0.1:9"]):
            done = tactus(*command, "--port", 0, "--log-file", self.folder / "none" / "log")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--log-file", done.stderr)

    def test_a_router_logs_the_replica_that_answered(self):
        server = ServerProcess(real_model=False)
        router = Router([server.url, "http://127.0.0.1:9"], "--slow-start", "0", "--access-log", "--api-key", KEY)
        wait_until(lambda: call(router.url, "/ready")[0] == 200, "a ready replica", about=router.last_lines)
        body = {"prompt": SECRET, "max_tokens": 7, "ignore_eos": True}
        self.assertEqual(call(router.url, "/v1/completions", body, {"X-Request-Id": "routed"})[0], 200)
        line = wait_until(
            lambda: next((line for line in router.lines if "id=routed" in line), None),
            "its line",
            about=router.last_lines,
        )
        fields = dict(word.split("=", 1) for word in line.split())
        self.assertEqual(
            (fields["status"], fields["output_tokens"], fields["replica"], fields["replicas_tried"], fields["client"]),
            ("200", "7", server.url.removeprefix("http://"), "1", "key_1"),
        )
        self.assertEqual(router.stop(), 0)
        self.assertNotIn(SECRET, "".join(router.lines))
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
