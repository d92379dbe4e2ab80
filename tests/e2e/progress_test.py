"""Long commands show how far they are: one line on a terminal, nothing in a pipe."""

import json
import re
import signal
import subprocess
import time
import unittest

from command_case import BINARY, ENVIRONMENT, Folder, tactus
from pseudo_terminal import PseudoTerminal

SIM = ["--model", "llama-3-8b", "--device", "a100", "--workload", "chat", "--rate", "4"]


class ProgressTest(Folder):
    def terminal(self, *args):
        terminal = PseudoTerminal(BINARY, *args, columns=120, environment={**ENVIRONMENT, "TERM": "xterm"})
        self.addCleanup(terminal.close)
        return terminal

    def test_a_simulation_has_rate_and_time_left_and_ends_on_ctrl_c(self):
        terminal = self.terminal("sim", *SIM, "--requests", "1000000")
        terminal.wait_for(lambda text: "/1000000 requests, " in text and " left; " in text, "rate and time left")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 130)
        lines = terminal.screen.text().split("\n")
        self.assertEqual(sum("/1000000 requests" in line for line in lines), 1, "the progress is one line")
        self.assertIn("interrupted after", terminal.screen.text())

    def test_a_sweep_counts_its_runs(self):
        terminal = self.terminal(
            "sim", "sweep", *SIM, "--requests", "3000", "--seeds", "1000", "--vary", "scheduler=vllm"
        )
        terminal.wait_for(lambda text: " left" in text and " runs, " in text, "rate and time left")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 130)

    def test_a_search_for_the_capacity_counts_its_runs_beside_its_results(self):
        terminal = self.terminal(
            "sim", "capacity", *SIM[:-2], "--requests", "20000", "--until", "p99(tbt) < 100ms", "--jobs", "1"
        )
        terminal.wait_for(lambda text: " runs, " in text and " left" in text, "rate and time left")
        terminal.wait_for(lambda text: "seed 0: " in text, "the verdict of a run")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 130)
        lines = terminal.screen.text().split("\n")
        self.assertEqual([line for line in lines if "seed 0" in line and "[" in line], [], "results have own lines")

    def test_a_profile_has_the_time_left(self):
        terminal = self.terminal(
            "profile", *map(str, self.dummy), "--time-limit", "60s", "-o", str(self.folder / "profile.csv")
        )
        terminal.wait_for(lambda text: " steps, round " in text and " left" in text, "the time left")
        terminal.type("\x03")
        self.assertNotEqual(terminal.exit_status(), 0)

    def batch(self, count, max_tokens):
        """The command of a job with that many lines."""
        lines = [
            {
                "custom_id": str(i),
                "method": "POST",
                "url": "/v1/completions",
                "body": {"prompt": "x", "max_tokens": max_tokens, "ignore_eos": True},
            }
            for i in range(count)
        ]
        job = self.folder / "in.jsonl"
        job.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return ["batch", str(job), "-o", str(self.folder / "out.jsonl"), *map(str, self.dummy), "--max-num-seqs", "1"]

    def test_a_batch_has_a_bar_with_the_time_left_on_a_terminal(self):
        terminal = self.terminal(*self.batch(2000, 20))
        terminal.wait_for(lambda text: " of 2000 lines, 0 failed; " in text and " to go" in text, "the time left")
        terminal.type("\x03")
        self.assertEqual(terminal.exit_status(), 130)

    def test_a_batch_in_a_pipe_has_no_progress_but_its_result(self):
        process = subprocess.Popen(
            [BINARY, *self.batch(20_000, 20)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.addCleanup(process.kill)
        time.sleep(7)  # longer than the time between two lines of progress would be
        self.assertIsNone(process.poll(), "the job is too short for this test")
        process.send_signal(signal.SIGINT)
        out, lines = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, lines)
        self.assertEqual(len(re.findall(r"\d % .* of 20000 lines", lines)), 1, lines)  # the figures at the end
        self.assertRegex(out, r"^20000 lines in = \d+ out .* left")

    def test_a_pipe_gets_no_progress(self):
        done = tactus("sim", *SIM, "--requests", "3000")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("requests, ", done.stderr)


if __name__ == "__main__":
    unittest.main()
