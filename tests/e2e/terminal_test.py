"""A conversation in the terminal asks the engine for what the same conversation over HTTP asks it for."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request

from server_process import CHAT_TEMPLATE, ServerProcess, TINY_CONFIG

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
QUESTIONS = ["x", "and \"y\"?"]


class TerminalTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "config.json").write_text(json.dumps(TINY_CONFIG))
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE)

    def run_tactus(self, *args, stdin=""):
        return subprocess.run([BINARY, "run", str(self.folder), "--load-format", "dummy", "--kv-cache-memory", "64MiB", "--chat-template",
                               str(self.folder / "chat.jinja"), "--temperature", "1.5", "--seed", "7", *args],
                              input=stdin.encode(), capture_output=True, timeout=120, env=ENVIRONMENT)

    def test_it_answers_as_the_server_does(self):
        server = ServerProcess("--seed", "7", real_model=False)   # of the dummy weights
        self.addCleanup(server.stop)

        def post(path, body):
            request = urllib.request.Request(server.url + path, headers={"Content-Type": "application/json"},
                                             data=json.dumps(dict(body, max_tokens=6, temperature=1.5, seed=7)).encode())
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["choices"][0]

        raw = post("/v1/completions", {"prompt": "Hello"})["text"]
        messages = [{"role": "system", "content": "be brief"}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": post("/v1/chat/completions", {"messages": messages})["message"]["content"]})
        answers = [m["content"] for m in messages if m["role"] == "assistant"]
        self.assertNotEqual(*answers)
        done = self.run_tactus("--max-tokens", "6", "--raw", "-p", "Hello")
        self.assertEqual((done.returncode, done.stdout.decode()), (0, raw + "\n"), done.stderr)
        done = self.run_tactus("--max-tokens", "6", "--system", "be brief", "-p", QUESTIONS[0])
        self.assertEqual((done.returncode, done.stdout.decode()), (0, answers[0] + "\n"), done.stderr)
        done = self.run_tactus("--max-tokens", "6", "--system", "be brief", stdin="\n".join(QUESTIONS))
        self.assertEqual((done.returncode, done.stdout.decode()), (0, "".join(a + "\n" for a in answers)), done.stderr)

    def test_a_question_beyond_the_context_is_taken_back_and_the_chat_goes_on(self):
        done = self.run_tactus("--max-tokens", "2", stdin="x\n" + "y" * 5000 + "\nx\n/clear\n" + "y" * 5000 + "\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        refusals = [line for line in done.stderr.decode().splitlines() if "exceed the context of 2048 tokens" in line]
        self.assertEqual(len(refusals), 2, done.stderr)
        self.assertIn("shorten the prompt; /clear starts anew", refusals[0])
        self.assertNotIn("/clear", refusals[1])   # nothing is there to clear
        self.assertEqual(len(done.stdout.decode().split("\n")), 5, "four lines: two answers, two refusals")


if __name__ == "__main__":
    unittest.main()
