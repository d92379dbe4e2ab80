"""The prompt cache on disk with the real program: killed while it writes, damaged files, and hits with the same text
after a restart."""

import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import unittest
import urllib.request

from server_process import ServerProcess, default_model, wait_until

BLOCK = 16
VOCABULARY = 500  # ids that every model has


def prompt(i, tokens=400):
    draw = random.Random(i)
    return [draw.randrange(10, VOCABULARY) for _ in range(tokens)]


# The tiny model of the harness differs at every start.
NEEDS_MODEL = unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL does not name the default model's file")


class PromptCacheTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "kv"

    def serve(self, *args):
        server = ServerProcess("--kv-cache-dir", self.folder, *args)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def ask(self, server, tokens, key=None, max_tokens=12):
        headers = {"Content-Type": "application/json", "x-tactus-explain": "1"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        body = {"prompt": tokens, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer = json.loads(answer.read())
        cache = answer["tactus_explain"]["cache"]
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], cache["cached_tokens"])
        self.assertEqual(cache["memory_tokens"] + cache["disk_tokens"], cache["cached_tokens"])
        return answer["choices"][0]["text"], cache

    def metric(self, server, name):
        with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def kill(self, server):
        server.process.send_signal(signal.SIGKILL)
        server.stop(send=False)

    def assert_hit(self, server, tokens, text, key=None):
        again, cache = self.ask(server, tokens, key)
        self.assertEqual(again, text)
        self.assertEqual(
            cache,
            {
                "cached_tokens": (len(tokens) - 1) // BLOCK * BLOCK,
                "memory_tokens": 0,
                "disk_tokens": (len(tokens) - 1) // BLOCK * BLOCK,
                "ended": "end_of_prompt",
            },
        )

    @NEEDS_MODEL
    def test_a_kill_during_a_write_keeps_earlier_entries(self):
        server = self.serve()
        early = {i: self.ask(server, prompt(i)) for i in range(4)}
        for text, cache in early.values():
            self.assertEqual(cache["cached_tokens"], 0)
        written = 4 * (400 // BLOCK)
        wait_until(
            lambda: self.metric(server, "tactus_disk_kv_written_blocks_total") >= written, "the prompts are written"
        )
        # Killed while it writes other prompts.
        stop = threading.Event()

        def go_on(i):
            while not stop.is_set():
                try:
                    self.ask(server, prompt(i))
                except OSError:
                    return
                i += 2

        others = [threading.Thread(target=go_on, args=(100 + i,)) for i in range(2)]
        for thread in others:
            thread.start()
        wait_until(
            lambda: self.metric(server, "tactus_disk_kv_written_blocks_total") > written + 3, "others are written"
        )
        self.kill(server)
        stop.set()
        for thread in others:
            thread.join(60)
        server = self.serve()
        self.assertGreaterEqual(self.metric(server, "tactus_disk_kv_blocks"), written)
        self.assertEqual(self.metric(server, "tactus_disk_kv_damaged_blocks_total"), 0, server.last_lines())
        for i, (text, _) in early.items():
            self.assert_hit(server, prompt(i), text)
        self.assertEqual(server.stop(), 0)

    @NEEDS_MODEL
    def test_an_orderly_end_keeps_all_and_keys_have_separate_entries(self):
        keys = ["--api-key", "one-key", "--api-key", "another-key"]
        server = self.serve(*keys)
        text, _ = self.ask(server, prompt(1), "one-key")
        self.assertEqual(server.stop(), 0)
        server = self.serve(*keys)
        _, cache = self.ask(server, prompt(1), "another-key")
        self.assertEqual(cache["cached_tokens"], 0, "one client's prompt was a hit of another")
        self.assert_hit(server, prompt(1), text, "one-key")
        server.stop()

    @NEEDS_MODEL
    def test_damaged_entries_are_reported_and_recomputed(self):
        server = self.serve()
        text, _ = self.ask(server, prompt(1))
        other, _ = self.ask(server, prompt(2))
        server.stop()
        (blocks,) = self.folder.glob("*/*.blocks")
        with blocks.open("r+b") as file:
            file.seek(blocks.stat().st_size // 100)  # within the first blocks of the first prompt
            file.write(os.urandom(16))
        server = self.serve()
        again, cache = self.ask(server, prompt(1))
        self.assertEqual(again, text)
        self.assertEqual(cache["ended"], "damaged")
        self.assert_hit(server, prompt(2), other)
        wait_until(
            lambda: any(
                "warning: KV cache" in line and blocks.name in line and "is damaged at byte" in line
                for line in server.lines
            ),
            "the damage is reported",
            about=server.last_lines,
        )
        server.stop()

    def test_a_folder_in_use_and_a_non_folder_are_refused(self):
        server = self.serve()
        command = [
            os.environ["TACTUS_BINARY"],
            "serve",
            default_model() or str(pathlib.Path(server.folder.name)),
            "--port",
            "0",
            "--kv-cache-dir",
        ]
        if not server.real:
            command[3:3] = [
                "--load-format",
                "dummy",
                "--chat-template",
                str(pathlib.Path(server.folder.name) / "chat.jinja"),
            ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}

        def refusal(folder, *args):
            done = subprocess.run(
                [*command, str(folder), *args], capture_output=True, text=True, timeout=120, env=environment
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr

        self.assertIn("another process uses it", refusal(self.folder))
        file = self.folder.parent / "file"
        file.write_text("text")
        self.assertIn("it is a file; choose a folder", refusal(file))
        self.assertIn(
            "--kv-cache-dir-size 1000 is too small",
            refusal(self.folder.parent / "small", "--kv-cache-dir-size", "1000"),
        )
        server.stop()


if __name__ == "__main__":
    unittest.main()
