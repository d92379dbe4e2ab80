"""SIGHUP: keys, their classes and objectives of classes change without a restart; a wrong file changes nothing."""

import json
import os
import pty
import signal
import unittest
import urllib.error
import urllib.request

from command_case import BINARY, ENVIRONMENT, Folder
from fake_endpoint import FakeEndpoint
from router_process import Router
from server_process import ServerProcess, wait_until

# A model whose stream of 2,000 tokens takes seconds on any machine.
SLOW = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "max_position_embeddings": 4096}


def status_of(url, path, key=None, body=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class ReloadTest(Folder):
    def reload(self, process, *lines):
        seen = len(process.lines)
        process.process.send_signal(signal.SIGHUP)
        for line in lines:
            wait_until(
                lambda line=line: any(line in said for said in process.lines[seen:]),
                f"'{line}'",
                about=process.last_lines,
            )

    def metric(self, url, start):
        text = status_of(url, "/metrics")[1]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))

    def test_keys_and_classes_change_and_running_requests_continue(self):
        config = self.folder / "serve.toml"

        def write(keys, classes, slo, more=""):
            config.write_text(f"api-key = {keys}\napi-key-class = {classes}\nslo-class = {slo}\n{more}")

        write(["one", "two"], ["chat", "none"], ["chat:jct=100s", "bulk:jct=100s"])
        server = ServerProcess("--config", config, real_model=False, config=SLOW)
        url = server.url

        def ask(key):
            return status_of(url, "/v1/completions", key, {"prompt": "x", "max_tokens": 200, "ignore_eos": True})[0]

        self.assertEqual([ask(key) for key in ("one", "two", "three")], [200, 200, 401])
        self.assertEqual(
            self.metric(url, 'tactus_slo_requests_total{model_name="test-model",engine="0",class="chat"'), 1
        )
        request = urllib.request.Request(
            url + "/v1/completions",
            json.dumps({"prompt": "x", "max_tokens": 2000, "stream": True, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer one"},
        )
        with urllib.request.urlopen(request, timeout=120) as stream:
            stream.readline()
            # The first key is gone, the order is another, and the objectives are tighter.
            write(["three", "two"], ["bulk", "chat"], ["chat:jct=50ms", "bulk:jct=100s"])
            self.reload(server, "reloaded: the log, certificates, keys, classes")
            self.assertEqual([ask(key) for key in ("one", "two", "three")], [401, 200, 200])
            self.assertEqual(self.metric(url, "vllm:num_requests_running"), 1, "the stream had ended before the reload")
            self.assertIn(b"[DONE]", stream.read(), "the stream of the key that is gone broke off")
        missed = 'tactus_slo_requests_total{model_name="test-model",engine="0",class="chat",kept="false"}'
        wait_until(lambda: self.metric(url, missed) == 1, "a miss of the new objective", about=server.last_lines)
        for bad, reason in (
            (lambda: write(["four"], ["other"], ["chat:jct=50ms", "bulk:jct=100s"]), "declared by no --slo-class"),
            (lambda: write(["four"], ["none", "none"], ["chat:jct=50ms", "bulk:jct=100s"]), "2 classes for 1 keys"),
            (lambda: config.write_text("api-key = ['four'"), "serve.toml"),
            (lambda: config.write_text("api-kee = 5\n"), "api-kee"),
            (lambda: config.unlink(), "serve.toml"),
            (lambda: config.write_text("port = 0\n"), "no key is left"),
        ):
            bad()
            self.reload(server, "error: reload:", reason)
            self.assertEqual([ask(key) for key in ("two", "three", "four")], [200, 200, 401], reason)
        write(["two"], ["none"], ["chat:jct=50ms,weight=3", "bulk:jct=100s"], "max-queue = 5\n")
        self.reload(server, "only objectives", "--max-queue changed; a restart applies that")
        self.assertEqual([ask(key) for key in ("two", "three")], [200, 401], "keys are applied beside a bad class")
        self.assertEqual(server.stop(), 0, server.last_lines())

    def test_files_stay_with_their_key_after_a_reload(self):
        config = self.folder / "serve.toml"
        config.write_text('api-key = ["one", "two"]\n')
        server = ServerProcess("--config", config, "--files-dir", self.folder / "files", real_model=False)

        def upload(key):
            body = (
                b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: '
                b'form-data; name="file"; filename="f.jsonl"\r\n\r\n{}\n\r\n--b--\r\n'
            )
            request = urllib.request.Request(
                server.url + "/v1/files",
                body,
                {"Content-Type": "multipart/form-data; boundary=b", "Authorization": f"Bearer {key}"},
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())["id"]

        def listed(key):
            return [f["id"] for f in json.loads(status_of(server.url, "/v1/files", key)[1])["data"]]

        of_two = upload("two")
        config.write_text('api-key = ["three", "two"]\n')
        self.reload(server, "keys")
        self.assertEqual((listed("two"), listed("three")), ([of_two], []))
        of_three = upload("three")
        self.assertEqual((listed("two"), listed("three")), ([of_two], [of_three]))
        self.assertEqual(server.stop(), 0, server.last_lines())

    def test_keys_of_a_router_change(self):
        config = self.folder / "route.toml"
        config.write_text('api-key = "one"\nadmin-key = "root"\n')
        with FakeEndpoint(["ok"]) as endpoint:
            router = Router([endpoint], "--config", str(config))

            def seen(key, admin):
                return (
                    status_of(router.url, "/v1/models", key)[0] != 401,
                    status_of(router.url, "/fleet/replicas", admin)[0],
                )

            self.assertEqual(seen("one", "root"), (True, 200))
            config.write_text('api-key = "two"\nadmin-key = "other"\nbalancer = "random"\n')
            self.reload(router, "keys", "--balancer changed")
            self.assertEqual(seen("one", "root"), (False, 401))
            self.assertEqual(seen("two", "other"), (True, 200))
            config.write_text('api-key = "two"\n')
            self.reload(router, "--admin-key: no key is left")
            self.assertEqual(seen("two", "other"), (True, 200))
            self.assertEqual(router.stop(), 0)

    def test_a_server_whose_terminal_closes_ends(self):
        for command in (
            ["serve", *self.dummy, "--port", 0],
            ["route", "--replicas", "http://127.0.0.1:9", "--port", 0],
        ):
            with self.subTest(command[0]):
                log = self.folder / f"{command[0]}.log"
                child, terminal = pty.fork()
                if child == 0:  # the leader of a session with a terminal
                    os.execve(BINARY, [BINARY, *map(str, command), "--log-file", str(log)], ENVIRONMENT)
                try:
                    wait_until(
                        lambda log=log: (
                            log.exists() and ("ready: " in log.read_text() or "routing on" in log.read_text())
                        ),
                        "the server to be ready",
                    )
                    os.kill(child, signal.SIGHUP)  # not by the terminal: a reload
                    wait_until(lambda log=log: "reloaded: " in log.read_text(), "the reload", about=log.read_text)
                finally:
                    os.close(terminal)
                ended = wait_until(lambda child=child: ends(child), "its end", about=log.read_text)
                self.assertEqual(ended, "exit 0", log.read_text())
                self.assertIn("stopped", log.read_text())


def ends(child):
    done, status = os.waitpid(child, os.WNOHANG)
    if done == 0:
        return None
    return f"exit {os.WEXITSTATUS(status)}" if os.WIFEXITED(status) else f"signal {os.WTERMSIG(status)}"


if __name__ == "__main__":
    unittest.main()
