"""A conversation in the terminal sends the engine the same requests as the same conversation over HTTP."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import tempfile
import termios
import time
import unittest
import urllib.request

from server_process import CHAT_TEMPLATE, TINY_CONFIG, ServerProcess

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
QUESTIONS = ["x", 'and "y"?']


class TerminalTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "config.json").write_text(json.dumps(TINY_CONFIG))
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE)

    def run_tactus(self, *args, stdin=""):
        return subprocess.run(
            [
                BINARY,
                "run",
                str(self.folder),
                "--load-format",
                "dummy",
                "--kv-cache-memory",
                "64MiB",
                "--chat-template",
                str(self.folder / "chat.jinja"),
                "--temperature",
                "1.5",
                "--seed",
                "7",
                *args,
            ],
            input=stdin.encode(),
            capture_output=True,
            timeout=120,
            env={**ENVIRONMENT, "TACTUS_CACHE_DIR": str(self.folder / "cache")},
        )

    def test_chat_answers_equal_the_servers(self):
        server = ServerProcess("--seed", "7", real_model=False)  # seed of the dummy weights
        self.addCleanup(server.stop)

        def post(path, body):
            request = urllib.request.Request(
                server.url + path,
                headers={"Content-Type": "application/json"},
                data=json.dumps(dict(body, max_tokens=6, temperature=1.5, seed=7)).encode(),
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["choices"][0]

        raw = post("/v1/completions", {"prompt": "Hello"})["text"]
        messages = [{"role": "system", "content": "be brief"}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            messages.append(
                {
                    "role": "assistant",
                    "content": post("/v1/chat/completions", {"messages": messages})["message"]["content"],
                }
            )
        answers = [m["content"] for m in messages if m["role"] == "assistant"]
        self.assertNotEqual(*answers)
        done = self.run_tactus("--max-tokens", "6", "--raw", "-p", "Hello")
        self.assertEqual((done.returncode, done.stdout.decode()), (0, raw + "\n"), done.stderr)
        done = self.run_tactus("--max-tokens", "6", "--system", "be brief", "-p", QUESTIONS[0])
        self.assertEqual((done.returncode, done.stdout.decode()), (0, answers[0] + "\n"), done.stderr)
        done = self.run_tactus("--max-tokens", "6", "--system", "be brief", stdin="\n".join(QUESTIONS))
        self.assertEqual((done.returncode, done.stdout.decode()), (0, "".join(a + "\n" for a in answers)), done.stderr)

    def test_a_question_beyond_the_context_is_removed_and_the_chat_continues(self):
        done = self.run_tactus("--max-tokens", "2", stdin="x\n" + "y" * 5000 + "\nx\n/clear\n" + "y" * 5000 + "\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        refusals = [line for line in done.stderr.decode().splitlines() if "exceed the context of 2048 tokens" in line]
        self.assertEqual(len(refusals), 2, done.stderr)
        self.assertIn("shorten the prompt", refusals[0])
        self.assertEqual(len(done.stdout.decode().split("\n")), 5, "four lines: two answers, two refusals")

    def test_a_full_context_slides(self):
        """The oldest messages are dropped, the system message is kept, and every question is answered."""
        questions = [f"{i} " + "y" * 300 for i in range(12)]
        done = self.run_tactus("--max-tokens", "4", "--system", "be brief", stdin="\n".join(questions))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("exceed the context", done.stderr.decode())
        self.assertIn("[the context is full: the oldest 2 messages are dropped from now on]", done.stderr.decode())
        self.assertEqual(done.stdout.count(b"\n"), 12, done.stdout)

    def test_a_length_beyond_the_context_is_cut_to_the_rest(self):
        done = self.run_tactus("--max-model-len", "200", stdin="/set max_tokens 500\nx\n/set max_tokens 3\nx\n")
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        self.assertIn("max_tokens 500 is more than the context of 200 tokens: answers get the rest of it", said)
        self.assertNotIn("exceed the context", said)
        self.assertEqual(said.count("is more than the context"), 1)

    def test_verbose_prints_the_start_and_without_it_a_pipe_gets_only_warnings(self):
        quiet = self.run_tactus("--max-tokens", "1", "--raw", "-p", "x").stderr.decode()
        loud = self.run_tactus("--max-tokens", "1", "--raw", "-p", "x", "--verbose").stderr.decode()
        for line in ("model ", "scheduler ", "ready after "):
            self.assertNotIn(f"\n{line}", "\n" + quiet)
            self.assertIn(f"\n{line}", "\n" + loud)

    def test_a_session_continues_where_it_was_left(self):
        options = ("--max-tokens", "6", "--system", "be brief")
        whole = self.run_tactus(*options, stdin="\n".join(QUESTIONS))
        first = self.run_tactus(*options, "--session", "mine", stdin=QUESTIONS[0])
        second = self.run_tactus("--max-tokens", "6", "--session", "mine", "-p", QUESTIONS[1])
        self.assertEqual((first.returncode, second.returncode), (0, 0), second.stderr)
        self.assertEqual((first.stdout + second.stdout).decode(), whole.stdout.decode())
        file = self.folder / "cache" / "sessions" / "mine.json"
        kept = json.loads(file.read_text())["messages"]
        self.assertEqual([m["role"] for m in kept], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual([m["content"] for m in kept if m["role"] == "user"], QUESTIONS)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600, "others could read the conversation")

    def test_sessions_are_saved_loaded_and_listed_within_a_chat(self):
        path = self.folder / "elsewhere.json"
        done = self.run_tactus(
            "--max-tokens",
            "2",
            stdin=f"x\n/save one\ny\n/clear\n/save {path}\n/load one\n/sessions\n/load none\n/save a b\n",
        )
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        for line in ("one.json has 2 messages", "elsewhere.json has 0 messages", "one.json has 0 messages", "\none\n"):
            self.assertIn(line, said)
        self.assertIn("none.json", said, "a session that is not there is named")
        self.assertIn("'a b' is not a name of a session", said)
        self.assertEqual(json.loads(path.read_text()), {"messages": []})

    def test_wrong_sessions_and_files_are_named_before_the_model_is_loaded(self):
        bad = self.folder / "bad.json"
        binary = self.folder / "binary"
        binary.write_bytes(b"\xff\x00")
        for text, why in (
            ("{", "is not a session of tactus run"),
            ('{"messages": [{"role": "assistant", "content": "x"}]}', "'assistant' where 'user' is due"),
            ('{"messages": [{"role": "user", "content": "x"}]}', "the last message has no answer"),
        ):
            bad.write_text(text)
            done = self.run_tactus("--session", str(bad), "-p", "x")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(why, done.stderr.decode())
            self.assertEqual(bad.read_text(), text, "a file that is not a session was replaced")
        for options, status, why in (
            (("--session", ".x"), 2, "'.x' is not a name of a session"),
            (("--session", "x", "--raw"), 2, "--raw has no messages"),
            (("--file", str(self.folder / "none")), 1, "none"),
            (("--file", str(binary)), 1, "is not a text file in UTF-8"),
        ):
            done = self.run_tactus(*options, "-p", "x")
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(why, done.stderr.decode())

    def test_files_go_before_the_next_message_only(self):
        (self.folder / "note.txt").write_text("a note")
        session = self.folder / "session.json"
        for how, stdin in (
            (("--file", str(self.folder / "note.txt")), "what?\nand?\n"),
            ((), f"/file {self.folder / 'note.txt'}\nwhat?\nand?\n"),
        ):
            session.unlink(missing_ok=True)
            done = self.run_tactus("--max-tokens", "2", "--session", str(session), *how, stdin=stdin)
            self.assertEqual(done.returncode, 0, done.stderr)
            asked = [m["content"] for m in json.loads(session.read_text())["messages"] if m["role"] == "user"]
            self.assertEqual(asked, ["note.txt:\n\na note\n\nwhat?", "and?"])

    def test_a_pipe_has_commands_too(self):
        done = self.run_tactus(
            "--max-tokens",
            "2",
            stdin="/help\n/set temperature 9\n/set top_k 3\n/set\n/set speed 1\n/nonsense\n /x\n/quit\nz\n",
        )
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        for line in [
            "/clear          forgets the conversation",
            "/set temperature: 9 is out of range; give a value from 0 to 2",
            "temperature 1.5\n",
            "top_k 3\n",
            "min_p 0.05\n",
            "seed 7\n",
            "max_tokens 2\n",
            "'speed' is not a setting",
            "'/nonsense' is not a command",
        ]:
            self.assertIn(line, said)
        self.assertEqual(done.stdout.count(b"\n"), 1, "one answer, to ' /x'")


class Terminal:
    """A chat on a pseudo-terminal. The program's output is in `shown`, including the terminal's control sequences."""

    def __init__(self, *args, kind="xterm", **environment):
        master, slave = pty.openpty()
        self.file = os.fdopen(master, "r+b", buffering=0)
        self.process = subprocess.Popen(
            [BINARY, "run", *map(str, args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**ENVIRONMENT, "TERM": kind, **environment},
        )
        os.close(slave)
        self.shown, self.seen = "", 0

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.file.close()

    def type(self, text):
        self.file.write(text.encode())

    def read(self, until, limit_s=60):
        """Returns the output up to `until`, searched after earlier output."""
        end = time.monotonic() + limit_s
        while until not in self.shown[self.seen :]:
            ready, _, _ = select.select([self.file], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{until!r} did not come within {limit_s} s after:\n{self.shown}")
            try:
                self.shown += self.file.read(65536).decode(errors="replace")
            except OSError:  # the program has closed the terminal
                raise AssertionError(f"the program ended before {until!r} came, after:\n{self.shown}")
        at = self.shown.index(until, self.seen) + len(until)
        text, self.seen = self.shown[self.seen : at], at
        return text

    def exit_status(self, limit_s=60):
        """Keeps reading, so that a full terminal does not block the program."""
        end = time.monotonic() + limit_s
        while select.select([self.file], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                self.shown += self.file.read(65536).decode(errors="replace")
            except OSError:  # the program has closed the terminal
                return self.process.wait(limit_s)
        raise AssertionError(f"the program did not end within {limit_s} s, after:\n{self.shown}")


class PromptTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "config.json").write_text(json.dumps(dict(TINY_CONFIG, max_position_embeddings=65536)))
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE)

    def chat(self, *args, kind="xterm"):
        terminal = Terminal(
            self.folder,
            "--load-format",
            "dummy",
            "--kv-cache-memory",
            "64MiB",
            "--chat-template",
            self.folder / "chat.jinja",
            "--temperature",
            "0",
            *args,
            kind=kind,
            TACTUS_CACHE_DIR=str(self.folder / "cache"),
        )
        self.addCleanup(terminal.close)
        terminal.read("Ctrl-D ends.")
        terminal.read("> ")
        return terminal

    def sent(self):
        """The messages of the history file, in vis(3) encoding."""
        lines = (self.folder / "cache" / "run_history").read_text().splitlines()
        return [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), line) for line in lines[1:]]

    def editing(self):
        terminal = self.chat("--max-tokens", "2")
        if "\x1b[?2004h" not in terminal.shown:
            self.skipTest("the program was built without libedit")
        return terminal

    def test_a_line_can_be_edited_and_recalled(self):
        terminal = self.editing()
        terminal.type("helo wörld")
        terminal.type("\x1b[D" * 7 + "l\x05!\r")  # left, Ctrl-E
        terminal.read("prompt tokens")
        terminal.read("> ")
        terminal.type("\x1b[A?\r")  # up
        terminal.read("prompt tokens")
        terminal.read("> ")
        terminal.type("\x04")
        self.assertEqual(terminal.exit_status(), 0)
        # vis(3) encodes bytes beyond ASCII
        self.assertEqual([re.sub("w.*rld", "world", line) for line in self.sent()], ["hello world!", "hello world!?"])
        again = self.chat("--max-tokens", "2")
        again.type("\x1b[A\r")
        again.read("prompt tokens")
        self.assertEqual(len(self.sent()), 2, "the same message again, of an earlier chat")

    def test_a_paste_of_several_lines_is_one_message(self):
        terminal = self.editing()
        terminal.type("see: \x1b[200~first\rsecond\r\rfourth\r\x1b[201~")
        terminal.type(" ok\r")
        terminal.read("prompt tokens")
        terminal.read("> ")
        terminal.type("a\x1b\rb\r")  # Alt-Enter
        terminal.read("prompt tokens")
        terminal.read("> ")
        self.assertEqual(terminal.shown.count("prompt tokens"), 2)
        self.assertEqual(self.sent(), ["see: first\nsecond\n\nfourth ok", "a\nb"])

    def test_ctrl_c_clears_the_line_and_ends_on_an_empty_one(self):
        terminal = self.editing()
        terminal.type("not this")
        terminal.read("this")
        terminal.type("\x03")
        terminal.read("^C")
        terminal.read("> ")
        terminal.type("but this\r")
        terminal.read("prompt tokens")
        terminal.read("> ")
        self.assertEqual(self.sent(), ["but this"])
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 0)

    def test_ctrl_c_stops_an_answer_and_not_the_chat(self):
        for kind in ("xterm", "dumb"):
            with self.subTest(terminal=kind):
                terminal = self.chat("--max-tokens", "60000", kind=kind)
                terminal.type("go on\r")
                terminal.read("go on")
                select.select([terminal.file], [], [], 60)
                time.sleep(0.5)  # during the answer; earlier it would clear an empty line and stop the chat
                terminal.type("\x03\x03")  # the second one simulates an impatient user
                terminal.read(", stopped]")
                terminal.read("> ")
                terminal.type("/exit\r")
                self.assertEqual(terminal.exit_status(), 0)

    def test_a_terminal_without_editing_clears_and_ends_too(self):
        terminal = self.chat("--max-tokens", "2", kind="dumb")
        self.assertNotIn("\x1b[?2004h", terminal.shown)
        terminal.type("not this")
        terminal.read("this")
        terminal.type("\x03")
        terminal.read("Ctrl-C again or Ctrl-D ends the chat.")
        terminal.read("> ")
        terminal.type("but this\r")
        terminal.read("prompt tokens")
        terminal.read("> ")
        for _ in range(2):
            terminal.type("\x03")
            time.sleep(0.2)  # two signals at once would count as one
        self.assertEqual(terminal.exit_status(), 0)

    def test_the_start_is_one_line(self):
        terminal = self.chat("--max-tokens", "2", "--history", "off")
        for line in terminal.shown.split("Chat with ")[0].split("\r\n")[:-1]:
            self.assertTrue(line.split("\x1b[K")[-1].startswith("warning: "), terminal.shown)
        terminal.type("/exit\r")
        self.assertEqual(terminal.exit_status(), 0)

    def test_help_and_settings(self):
        terminal = self.chat("--max-tokens", "2", "--history", "off")
        for line, answer in [
            ("/help", "/system TEXT"),
            ("/set", "temperature 0\r\n"),
            ("/set temperature 0.25", "> "),
            ("/set", "temperature 0.25\r\n"),
            ("/set temperature default", "> "),
            ("/set", "temperature 0\r\n"),
            ("/system be brief", "> "),
            ("/set", "system be brief"),
        ]:
            terminal.type(line + "\r")
            terminal.read(answer)
        terminal.type("/exit\r")
        self.assertEqual(terminal.exit_status(), 0)
        self.assertFalse((self.folder / "cache" / "run_history").exists())


if __name__ == "__main__":
    unittest.main()
