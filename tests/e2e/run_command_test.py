"""`tactus run -p`: one answer on stdout, and its errors."""

import os
import unittest

from command_case import Folder, tactus
from server_process import (
    default_model,
)


class RunTest(Folder):
    def test_one_answer_is_repeatable(self):
        args = ["run", *self.dummy, "--raw", "-p", "Hello", "--max-tokens", "12", "--seed", "7", "--temperature", "0.8"]
        first, second = tactus(*args), tactus(*args)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, second.stdout)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_the_default_model_knows_the_capital_of_france_in_every_numerics(self):
        for dtype in ("auto", "float32", "bfloat16"):
            done = tactus(
                "run",
                default_model(),
                "-p",
                "What is the capital of France?",
                "--temperature",
                "0",
                "--dtype",
                dtype,
                "--kv-cache-memory",
                "256MiB",
            )
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_a_chat_remembers_and_ends_with_its_input(self):
        done = tactus(
            "run",
            default_model(),
            "--temperature",
            "0",
            "--max-tokens",
            "24",
            "--kv-cache-memory",
            "256MiB",
            stdin="What is the capital of France?\n/nonsense\nAnd of Italy?\n/clear\nAnd of Italy?\n/exit\n",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.splitlines()[:2], ["The capital of France is Paris.", "The capital of Italy is Rome."]
        )
        self.assertNotIn("Rome", done.stdout.splitlines()[2])  # forgotten
        self.assertIn("is not a command", done.stderr)

    def test_an_unused_weight_cache_is_reported(self):
        done = tactus(
            "run",
            *self.dummy,
            "--raw",
            "-p",
            "x",
            "--max-tokens",
            "3",
            "--quantization",
            "int8",
            "--weight-cache",
            self.folder,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: --weight-cache is not used: dummy weights have no files", done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_an_unusable_weight_cache_is_reported_and_does_no_harm(self):
        def answer(*cache):
            done = tactus(
                "run",
                default_model(),
                "-p",
                "What is the capital of France?",
                "--temperature",
                "0",
                "--max-model-len",
                "256",
                "--kv-cache-memory",
                "64MiB",
                *cache,
            )
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)
            return done.stderr

        no_folder = self.folder / "file"
        no_folder.write_text("")
        self.assertRegex(
            answer("--weight-cache", no_folder), f"warning: {no_folder}/.* cannot be written: Not a directory"
        )
        cache = ["--weight-cache", self.folder / "cache"]
        self.assertNotIn("warning", answer(*cache))
        (written,) = cache[1].iterdir()
        with written.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        self.assertIn("its checksum is wrong", answer(*cache))
        self.assertNotIn("warning", answer(*cache))  # it was rewritten

    def test_a_thread_limit_is_reported_with_a_remedy(self):
        limited = ["bash", "-c", 'ulimit -c 0; ulimit -v "$0"; exec "$@"', "2000000"]
        done = tactus("run", *self.dummy, "--raw", "-p", "x", "--threads", "1024", under=limited)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"compute thread \d+ of 1024")
        self.assertIn("lower --threads", done.stderr)

    def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(self):
        done = tactus("run", *self.dummy, "--raw", "-p", "x" * 5000)
        self.assertEqual(done.returncode, 1)
        self.assertIn("5000", done.stderr)
        self.assertIn("2048", done.stderr)
