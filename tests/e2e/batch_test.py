"""`tactus batch` as scripts call it: input and output files, errors, Ctrl-C, kill -9 at any moment. Every line of the
input has one line in the output or in the error file, with the answer of an uninterrupted run.

BATCH_KILLS: number of kills (10)."""

import collections
import gzip
import json
import os
import pathlib
import pty
import random
import resource
import select
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from server_process import CHAT_TEMPLATE, TINY_CONFIG, ServerProcess, wait_until

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
KILLS = int(os.environ.get("BATCH_KILLS", "10"))
LIMIT_S = 120


def chat(custom_id, text, **fields):
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": dict({"messages": [{"role": "user", "content": text}]}, **fields),
    }


def completion(custom_id, prompt, **fields):
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": dict({"prompt": prompt}, **fields),
    }


class BatchTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "config.json").write_text(json.dumps(TINY_CONFIG))
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE)
        self.output, self.errors, self.job = (
            self.folder / name for name in ("out.jsonl", "out.errors.jsonl", "out.jsonl.job")
        )

    def write(self, *lines, name="in.jsonl"):
        path = self.folder / name
        path.write_bytes(
            b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
        )
        return path

    def command(self, *args, input_name="in.jsonl", output="out.jsonl"):
        return [
            BINARY,
            "batch",
            str(self.folder / input_name),
            "-o",
            str(self.folder / output),
            str(self.folder),
            "--load-format",
            "dummy",
            "--chat-template",
            str(self.folder / "chat.jinja"),
            "--kv-cache-memory",
            "64MiB",
            "--served-model-name",
            "test-model",
            *map(str, args),
        ]

    def run_batch(self, *args, limits=None, **names):
        return subprocess.run(
            self.command(*args, **names),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=ENVIRONMENT,
            preexec_fn=limits,
        )

    def start(self, *args, **kwargs):
        process = subprocess.Popen(
            self.command(*args),
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

    @staticmethod
    def lines(path):
        return [json.loads(line) for line in path.read_bytes().decode().splitlines()] if path.exists() else []

    def answers(self):
        """By custom_id; a duplicate line fails the test."""
        found = {}
        for line in self.lines(self.output):
            self.assertNotIn(line["custom_id"], found, "twice in the output")
            found[line["custom_id"]] = [c.get("text", c.get("message")) for c in line["response"]["body"]["choices"]]
        return found

    def assert_refused(self, done, code, *expected):
        self.assertEqual(done.returncode, code, done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")

    # --- Results ---

    def test_answers_are_the_servers_and_every_line_is_accounted_for(self):
        good = [
            chat("c", "hello", max_tokens=9, seed=5),
            completion("p", ["one", "two"], max_tokens=7, n=2, seed=6, logprobs=2),
            completion("ids", [5, 6, 7], max_tokens=4, temperature=0, echo=True),
            chat("m", "x", max_tokens=3, temperature=0, model="test-model"),
        ]
        bad = [
            chat("long", "y" * 5000),
            completion("range", "x", n=0),
            chat("stream", "x", stream=True),
            completion("other", "x", model="gpt"),
        ]
        wrong = [
            {"custom_id": "get", "method": "GET", "url": "/v1/completions", "body": {}},
            {"custom_id": "url", "method": "POST", "url": "/v1/x", "body": {}},
            {"method": "POST", "url": "/v1/completions", "body": {}},
            b"{broken",
            b"",
            b"\xff\xfe",
            completion("c", "again"),
        ]
        self.write(*good, *bad, *wrong)
        done = self.run_batch("--json", "--seed", "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(
            result["lines"], {"in": 14, "out": 4, "errors": 10, "left": 0, "before": 0}, "empty lines do not count"
        )
        self.assertEqual(result["requests"]["completed"], 5, "the prompts of the good lines")
        self.assertIn("14 lines in = 4 out", done.stderr)
        self.assertRegex(
            done.stderr,
            r"\n100 %  14 of 14 lines, 10 failed; \d+ tokens/s in, \d+ out; \d+ s\n",
            "the last line of progress",
        )

        server = ServerProcess("--seed", "7", real_model=False)
        self.addCleanup(server.stop)

        def post(line):
            request = urllib.request.Request(
                server.url + line["url"], json.dumps(line["body"]).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return response.status, json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        by_id = {line["custom_id"]: line for line in self.lines(self.output)}
        for line in good:
            status, body = post(line)
            answer = by_id[line["custom_id"]]
            self.assertIsNone(answer["error"])
            self.assertEqual(answer["response"]["status_code"], status)
            for field in ("object", "model", "choices", "system_fingerprint"):
                self.assertEqual(answer["response"]["body"][field], body[field], line["custom_id"])
        errors = {line["error"]["line"]: line for line in self.lines(self.errors)}
        self.assertEqual(sorted(errors), [n for n in range(5, 16) if n != 13])
        for number, line in enumerate(bad, 5):
            self.assertEqual(errors[number]["custom_id"], line["custom_id"])
            self.assertTrue(errors[number]["error"]["message"].startswith(f"line {number}: "))
            if line["custom_id"] != "stream":  # which a server accepts
                status, body = post(line)
                self.assertEqual(
                    (errors[number]["response"]["status_code"], errors[number]["response"]["body"]), (status, body)
                )
        for number in (9, 10, 11, 12, 14, 15):
            self.assertIsNone(errors[number]["response"])

    def test_a_second_run_has_nothing_to_do_and_overwrite_starts_anew(self):
        self.write(*(completion(f"a{i}", "x", max_tokens=3) for i in range(5)))
        self.assertEqual(self.run_batch().returncode, 0)
        before = self.output.read_bytes()
        done = self.run_batch()
        self.assertEqual((done.returncode, self.output.read_bytes()), (0, before), done.stderr)
        self.assertIn("5 of 5 lines are done", done.stderr)
        self.assertNotIn("weights", done.stderr, "it loaded a model although nothing is left to do")
        self.assertEqual(self.run_batch("--overwrite").returncode, 0)
        self.assertEqual(len(self.lines(self.output)), 5)
        self.assertNotEqual(self.output.read_bytes(), before, "the ids are those of another job")

    def test_many_lines_pass_through_a_small_window(self):
        self.write(*(completion(f"a{i}", f"number {i}", max_tokens=1 + i % 5, temperature=0) for i in range(1500)))
        done = self.run_batch("--max-queue", "4", "--max-num-seqs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.answers()), 1500)

    # --- Orders and shards ---

    def mixed(self):
        """Two tasks with their own system prompts, lines with several sequences, and two invalid lines."""
        lines = []
        for i in range(120):
            system = "abc" * 30 if i % 2 else "xyz" * 20
            if i % 20 == 7:
                lines.append(completion(f"r{i}", [system + str(i), str(i)], n=2, max_tokens=3))
            else:
                lines.append(chat(f"r{i}", system + f" question {i}", max_tokens=2 + 5 * (i % 2) + i % 4))
        return [*lines, b"{broken", chat("long", "y" * 5000)]

    def test_answers_do_not_depend_on_the_order(self):
        self.write(*self.mixed())
        expected = None
        for order in ("fcfs", "dfs", "random", "balance", "blend", "blend-dual-scan"):
            done = self.run_batch("--json", "--seed", "7", "--order", order, "--overwrite", "--max-queue", "16")
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual(result["lines"], {"in": 122, "out": 120, "errors": 2, "left": 0, "before": 0}, order)
            self.assertEqual(
                result["requests"]["rejected"], 1, "a request that can never fit counts once, planned or not"
            )
            expected = expected or self.answers()
            self.assertEqual(self.answers(), expected, order)
            if order == "fcfs":
                self.assertNotIn("plan", result)
                continue
            plan = result["plan"]
            self.assertEqual((plan["order"], plan["requests"]), (order, 120 + 6 * 3), "one request per sequence")
            self.assertEqual(plan["sample"] > 0, order in ("balance", "blend", "blend-dual-scan"))
            self.assertGreater(plan["optimal_sharing"], 0.3)
            self.assertGreaterEqual(plan["optimal_sharing"], plan["planned_sharing"])
            self.assertIsNone(plan["share_of_bound"], "this machine has no profile")
            self.assertRegex(done.stderr, r"plan of 138 requests, \d+ of them a sample")

    def test_the_order_is_the_schedulers_and_may_change_on_resume(self):
        self.write(*self.long_lines(60))
        args = ["--max-num-seqs", "2", "--threads", "1", "--seed", "7"]
        process = self.start("--order", "dfs", *args)
        wait_until(lambda: self.output.exists() and len(self.lines_so_far()) >= 2, "the first answers", LIMIT_S)
        process.send_signal(signal.SIGTERM)  # as cluster managers stop a process: same as Ctrl-C
        _, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        before = len(self.answers())
        self.assertIn(before, range(2, 60))
        done = self.run_batch("--scheduler", "balance", "--json", "--verbose", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["plan"]["order"], result["plan"]["requests"]), ("balance", 60 - before))
        self.assertIn("scheduler balance: order balance", done.stderr)
        self.assertEqual(len(self.answers()), 60)

    def test_shards_have_separate_files_and_every_line_once(self):
        self.write(*self.mixed())
        whole = self.run_batch("--seed", "7")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        expected = self.answers()
        for path in (self.output, self.errors, self.job):
            path.unlink()
        found, cuts, errors = {}, set(), 0
        for i in (1, 2, 3):
            done = self.run_batch(
                "--shard", f"{i}/3", "--seed", "7", "--json", "--order", ("blend", "fcfs", "dfs")[i - 1]
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            lines = result["lines"]
            self.assertEqual(lines["in"] + result["shard"]["elsewhere"], 122)
            self.assertGreater(lines["in"], 20)
            self.assertEqual((lines["in"], lines["left"]), (lines["out"] + lines["errors"], 0))
            cuts.add(result["shard"]["cut"])
            self.output = self.folder / f"out.{i}-of-3.jsonl"
            answers = self.answers()
            self.assertEqual(len(answers), lines["out"])
            self.assertFalse(answers.keys() & found.keys(), "two shards have run the same line")
            found.update(answers)
            errors += len(self.lines(self.folder / f"out.{i}-of-3.errors.jsonl"))
            self.assertTrue((self.folder / f"out.{i}-of-3.jsonl.job").exists())
        self.assertEqual((found, errors), (expected, 2))
        self.assertEqual(len(cuts), 1, "the shards were cut differently")
        again = self.run_batch("--shard", "2/3", "--seed", "7")
        self.assertIn(f"{lines['in'] and len(self.lines(self.folder / 'out.2-of-3.jsonl'))} out", again.stdout)
        self.assertNotIn("weights", again.stderr, "a finished shard loads no model")

    def test_an_impossible_plan_is_refused_with_the_fix(self):
        self.write(*(completion(f"a{i}", "x", max_tokens=3) for i in range(5000)))
        for shard in ("0/3", "4/3", "3", "1/", "/2", "1/x", "1/2/3", "-1/2", "1/70000"):
            self.assert_refused(self.run_batch("--shard", shard), 2, f"--shard '{shard}'", "such as 2/4")
        done = self.run_batch("--planner-memory", "1MiB")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("do not fit the planner's memory of 1048576 bytes", done.stderr)
        self.assertIn("0 of 5000 lines are done", done.stderr)
        self.assertEqual(self.run_batch("--planner-memory", "1MiB", "--order", "fcfs").returncode, 0)

    def test_a_gzipped_file_of_responses_with_empty_lines_is_answered(self):
        response = {
            "custom_id": "r",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"input": "hi", "max_output_tokens": 2},
        }
        lines = [
            json.dumps(response),
            "",
            json.dumps(dict(chat("c", "hi", max_tokens=2), url="/chat/completions")),
            " ",
            "",
        ]
        (self.folder / "in.jsonl").write_bytes(gzip.compress("\n".join(lines).encode()))
        done = self.run_batch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 lines in = 2 out", done.stdout)
        answers = {line["custom_id"]: line for line in self.lines(self.output)}
        self.assertEqual(answers["r"]["response"]["body"]["object"], "response")
        self.assertEqual(answers["c"]["response"]["body"]["object"], "chat.completion")
        self.assertEqual(self.run_batch().returncode, 0, "the job goes on with the same file")
        (self.folder / "cut.jsonl").write_bytes((self.folder / "in.jsonl").read_bytes()[:-5])
        self.assert_refused(
            self.run_batch(input_name="cut.jsonl", output="cut"), 2, "cut.jsonl' is gzipped and cut off"
        )
        self.assertEqual(sorted(p.name for p in self.folder.iterdir() if "unpacked" in p.name), [])

    def test_fields_that_are_not_known_are_named_or_refused(self):
        known, unknown = completion("a", "x", max_tokens=2), completion("b", "x", max_tokens=2, wish=1)
        self.write(known, unknown, chat("c", "x", max_tokens=2, slo={"wish": 1}))
        done = self.run_batch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: fields of 2 lines were ignored, for example of line 2: wish", done.stderr)
        named = {line["custom_id"]: line["response"].get("headers") for line in self.lines(self.output)}
        self.assertEqual(named, {"a": None, "b": {"x-tactus-ignored": "wish"}, "c": {"x-tactus-ignored": "slo.wish"}})
        self.assert_refused(self.run_batch("--strict-fields"), 2, "began with --strict-fields 'off'", "--overwrite")
        done = self.run_batch("--strict-fields", "--overwrite")
        self.assertIn("3 lines in = 1 out", done.stdout)
        self.assertNotIn("ignored, for example", done.stderr)
        for line, field in zip(sorted(self.lines(self.errors), key=lambda e: e["custom_id"]), ("wish", "slo.wish")):
            self.assertEqual(line["response"]["status_code"], 400)
            self.assertEqual((line["error"]["code"], line["error"]["param"]), ("invalid_request", field))
            self.assertIn("--strict-fields", line["error"]["message"])

    def test_files_are_where_they_are_named(self):
        self.write(completion("a", "x", max_tokens=3), completion("b", "x", n=0))
        named = ["--errors", self.folder / "wrong", "--job", self.folder / "deep/state"]
        self.assertEqual(self.run_batch(*named, output="answers").returncode, 0)
        self.assertEqual(
            sorted(p.name for p in self.folder.iterdir() if p.name not in ("config.json", "chat.jinja", "in.jsonl")),
            ["answers", "deep", "wrong"],
        )
        self.assertEqual([line["custom_id"] for line in self.lines(self.folder / "wrong")], ["b"])
        self.assertIn("2 of 2 lines are done", self.run_batch(*named, output="answers").stderr)
        self.assertEqual(self.run_batch(output="other").returncode, 0)
        self.assertTrue((self.folder / "other.errors.jsonl").exists() and (self.folder / "other.job").exists())

    # --- Errors ---

    def test_an_impossible_job_is_refused_before_the_model_is_loaded(self):
        self.write(completion("a", "x", max_tokens=2))
        self.assert_refused(subprocess.run([BINARY, "batch"], capture_output=True, text=True, timeout=LIMIT_S), 2, "IN")
        self.assert_refused(
            subprocess.run([BINARY, "batch", "x.jsonl"], capture_output=True, text=True, timeout=LIMIT_S),
            2,
            "--output is missing",
        )
        self.assert_refused(self.run_batch(input_name="none.jsonl"), 1, "cannot open", "none.jsonl")
        self.write(name="empty.jsonl")
        self.assert_refused(self.run_batch(input_name="empty.jsonl", output="e.jsonl"), 2, "empty.jsonl' has no lines")
        self.assert_refused(
            self.run_batch("--job", self.folder / "in.jsonl"), 2, "the input and --job are the same file"
        )
        self.assert_refused(self.run_batch("--max-line", "0"), 2, "--max-line")
        self.output.write_text("precious")
        done = self.run_batch()
        self.assert_refused(done, 2, "out.jsonl' exists", "--overwrite")
        self.assertNotIn("memory plan", done.stderr)
        self.assertEqual(self.output.read_text(), "precious")

    def test_a_job_resumes_only_with_the_same_input_and_settings(self):
        self.write(*(completion(f"a{i}", "x", max_tokens=3) for i in range(5)))
        self.assertEqual(self.run_batch("--seed", "3").returncode, 0)
        before = self.output.read_bytes()
        self.assert_refused(self.run_batch("--seed", "4"), 2, "--seed '3'", "'4'", "--overwrite")
        self.assert_refused(self.run_batch("--seed", "3", "--dtype", "float32"), 2, "--dtype 'auto'")
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE + "!")
        self.assert_refused(self.run_batch("--seed", "3"), 2, "--chat-template")
        (self.folder / "chat.jinja").write_text(CHAT_TEMPLATE)
        config = self.folder / "config.json"
        config.write_text(config.read_text().replace("10000.0", "20000.0"))
        self.assert_refused(self.run_batch("--seed", "3"), 2, "a model of content")
        config.write_text(config.read_text().replace("20000.0", "10000.0"))
        self.write(completion("b", "x"), name="other.jsonl")
        self.assert_refused(self.run_batch("--seed", "3", input_name="other.jsonl"), 2, "is the job of another input")
        self.write(completion("b", "x"))
        self.assert_refused(self.run_batch("--seed", "3"), 2, "has changed since its job began")
        self.assertEqual(self.output.read_bytes(), before)

    def test_a_job_without_any_answer_has_failed(self):
        self.write(completion("a", "x", n=0))
        done = self.run_batch()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no line has an answer", done.stderr)
        self.assertIn("1 lines in = 0 out", done.stdout)
        self.assertEqual(self.run_batch().returncode, 1, "also if it is run again")

    # A limit on the file's size acts like a full disk.
    def test_a_full_disk_ends_the_run_and_loses_nothing(self):
        self.write(*(completion(f"a{i}", f"x{i}", max_tokens=20, ignore_eos=True) for i in range(400)))
        done = self.run_batch(
            "--seed", "3", limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertIn("of 400 lines are done and kept; the same command resumes with the rest", done.stderr)
        kept = self.answers()
        self.assertLess(len(kept), 400)
        self.assertEqual(self.run_batch("--seed", "3").returncode, 0)
        answers = self.answers()
        self.assertEqual(len(answers), 400)
        self.assertEqual({k: answers[k] for k in kept}, kept)

    # --- Ends ---

    def long_lines(self, count, tokens=1500):
        return [
            completion(f"a{i}", f"number {i}", max_tokens=tokens, temperature=0, ignore_eos=True) for i in range(count)
        ]

    def test_one_interrupt_drains_and_the_next_run_resumes(self):
        self.write(*self.long_lines(60))
        args = ["--max-num-seqs", "2", "--threads", "1"]
        process = self.start(*args)
        wait_until(lambda: self.output.exists() and len(self.lines_so_far()) >= 2, "the first answers", LIMIT_S)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("interrupted", stderr)
        self.assertIn(" left", stdout)
        kept = self.answers()
        self.assertTrue(2 <= len(kept) < 60, f"{len(kept)} lines")
        done = self.run_batch(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{len(kept)} of 60 lines are done", done.stderr)
        self.assertEqual(len(self.answers()), 60)

    def lines_so_far(self):
        return [line for line in self.output.read_bytes().split(b"\n") if line]

    def test_two_interrupts_stop_at_once_and_the_state_is_sound(self):
        self.write(*self.long_lines(40, tokens=1900))
        process = self.start("--max-num-seqs", "40")
        names = pathlib.Path(f"/proc/{process.pid}/task").glob
        wait_until(lambda: "tactus-engine\n" in [t.read_text() for t in names("*/comm")], "the engine to run", LIMIT_S)
        process.send_signal(signal.SIGINT)
        # Two pending signals of one kind are delivered once: the second is sent after the first was delivered.
        status = pathlib.Path(f"/proc/{process.pid}/status")
        wait_until(
            lambda: int(status.read_text().split("ShdPnd:")[1].split()[0], 16) >> (signal.SIGINT - 1) & 1 == 0,
            "the first signal to be taken",
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.run_batch("--max-num-seqs", "40").returncode, 0)
        self.assertEqual(len(self.answers()), 40)

    def test_progress_is_a_bar_on_a_terminal(self):
        self.write(*self.long_lines(30, tokens=1500))
        master, slave = pty.openpty()
        process = subprocess.Popen(
            self.command("--max-num-seqs", "4"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env=ENVIRONMENT,
        )
        os.close(slave)
        shown = b""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and select.select([master], [], [], 1)[0] is not None:
            try:
                if not (more := os.read(master, 65536)):
                    break
            except OSError:  # the other side is closed
                break
            shown += more
        os.close(master)
        self.assertEqual(process.wait(timeout=LIMIT_S), 0)
        text = shown.decode(errors="replace")
        self.assertRegex(text, r"\r\[#* *\] +\d+ %  \d+ of 30 lines, 0 failed; \d+ tokens/s in, \d+ out")
        self.assertIn("tokens/s in", text)

    def test_a_job_killed_at_any_moment_does_every_line_once(self):
        lines = []
        for i in range(600):
            if i % 5 == 0:
                lines.append(chat(f"c{i}", f"question {i}", max_tokens=20 + i % 40))  # sampled, with the job's seeds
            elif i % 7 == 0:
                lines.append(completion(f"e{i}", "x", n=0))
            else:
                lines.append(
                    completion(
                        f"p{i}",
                        [f"one {i}", f"two {i}"],
                        max_tokens=40 + i % 160,
                        ignore_eos=True,
                        temperature=i % 2 / 2,
                        seed=i,
                    )
                )
        lines[50] = b"{broken"
        lines[51] = completion("c45", "a duplicate")
        self.write(*lines)
        args = ["--seed", "11", "--max-num-seqs", "16", "--max-queue", "16"]
        started = time.monotonic()
        done = self.run_batch(*args)
        whole_s = time.monotonic() - started
        self.assertEqual(done.returncode, 0, done.stderr)
        expected, expected_errors = self.answers(), self.lines(self.errors)
        self.assertEqual(len(expected) + len(expected_errors), 600)
        draw = random.Random(os.urandom(8).hex())
        kills, jobs, at = 0, 0, collections.Counter()
        while kills < KILLS:
            for path in (self.output, self.errors, self.job):
                path.unlink(missing_ok=True)
            jobs += 1
            while True:
                killed = kills < KILLS
                before = self.output.stat().st_size if self.output.exists() else 0
                process = subprocess.Popen(
                    self.command(*args),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=ENVIRONMENT,
                )
                if not killed:
                    stderr = process.communicate(timeout=LIMIT_S)[1]
                elif draw.random() < 0.5:
                    # Kills after a part of a run, so that a job is killed several times.
                    stderr = self.kill_after(process, draw.uniform(0, whole_s * draw.choice([0.1, 0.3, 1.0])))
                else:
                    # Kills when results are in the file but may not be recorded yet.
                    stderr = self.kill_after_growth(process, before, draw.uniform(0, 0.004))
                if process.returncode != -signal.SIGKILL:
                    self.assertEqual(process.returncode, 0, stderr.decode())
                    break
                kills += 1
                at[
                    "with more results" if self.output.exists() and self.output.stat().st_size > before else "without"
                ] += 1
            self.assertEqual(self.answers(), expected, f"job {jobs} after {kills} kills")
            self.assertEqual(
                sorted(e["error"]["line"] for e in self.lines(self.errors)),
                sorted(e["error"]["line"] for e in expected_errors),
            )
        print(f"{kills} kills of {jobs} jobs, {dict(at)}; a whole run took {whole_s:.2f} s")

    @staticmethod
    def kill_after(process, delay_s):
        try:
            return process.communicate(timeout=delay_s)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate(timeout=LIMIT_S)[1]

    def kill_after_growth(self, process, bytes_before, delay_s):
        end = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < end:
            if self.output.exists() and self.output.stat().st_size > bytes_before:
                time.sleep(delay_s)
                break
            time.sleep(0.0002)
        process.kill()
        return process.communicate(timeout=LIMIT_S)[1]


if __name__ == "__main__":
    unittest.main()
