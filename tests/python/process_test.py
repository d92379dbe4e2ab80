"""Tests that need a separate process: Ctrl-C, forks, interpreter shutdown. Each runs a small program with a time
limit."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest

from tiny_model import TinyModel

LIMIT_S = 60
HEAD = """
import os, signal, sys, threading, time
import tactus
from tactus import _native
from tactus import LLM, SamplingParams
def llm(**options):
    return LLM({path!r}, **dict({options!r}, **options))
LONG = SamplingParams(n=64, max_tokens=2000, ignore_eos=True, seed=1)
"""


class ProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()

    @classmethod
    def tearDownClass(cls):
        cls.tiny.close()

    def start(self, program):
        text = HEAD.format(path=str(self.tiny.path), options=self.tiny.options) + textwrap.dedent(program)
        # A separate process group, so that a signal reaches no other process.
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.stdout.close)
        return process

    def end(self, process, status=0):
        """Its output; AssertionError if it does not end, or with another status."""
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate(timeout=LIMIT_S)
            self.fail(f"it did not end within {LIMIT_S} s:\n{text}")
        self.assertEqual(process.returncode, status, text)
        # The end of text of a tiny model is not a control token, which causes a warning.
        return "".join(line for line in text.splitlines(keepends=True) if "end of text is token" not in line)

    def interrupt_when_it_says(self, process, word):
        killer = threading.Timer(LIMIT_S, lambda: os.killpg(process.pid, signal.SIGKILL))
        killer.start()
        read = ""
        for line in process.stdout:
            read += line
            if line.strip() == word:
                process.send_signal(signal.SIGINT)
                break
        else:
            self.fail(f"it never printed {word}:\n{read}")
        killer.cancel()

    def test_ctrl_c_ends_generate_and_cancels_its_requests(self):
        process = self.start("""
            llm = llm()
            def tell():
                while llm.outcome()["steps"] < 3:
                    time.sleep(0.01)
                print("running")
            threading.Thread(target=tell).start()
            try:
                llm.generate(["a"] * 30, LONG, use_tqdm=False)
                print("it went on to the end")
            except KeyboardInterrupt:
                def busy():
                    return [line for line in llm.metrics_text().splitlines()
                            if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting"))
                            and not line.endswith(" 0")]
                end = time.monotonic() + 30
                while busy() and time.monotonic() < end:
                    time.sleep(0.01)
                print("interrupted:", busy(), llm.outcome()["requests"]["failed"] > 0)
                print("still answers:", len(llm.generate("a", SamplingParams(max_tokens=2), use_tqdm=False)))
            """)
        self.interrupt_when_it_says(process, "running")
        self.assertEqual(self.end(process), "interrupted: [] True\nstill answers: 1\n")

    def test_ctrl_c_ends_a_stream_and_a_simulation(self):
        process = self.start("""
            with llm() as llm:
                try:
                    for i, piece in enumerate(llm.stream("a", LONG)):
                        if i == 3:
                            print("running")
                    print("it went on to the end")
                except KeyboardInterrupt:
                    print("interrupted")
            """)
        self.interrupt_when_it_says(process, "running")
        self.assertEqual(self.end(process), "interrupted\n")
        process = self.start("""
            threading.Timer(0.2, lambda: print("running")).start()
            try:
                tactus.simulate(model="llama-3.1-8b", device="a100", workload="chat", rate=2, requests=100000000)
            except KeyboardInterrupt:
                print("interrupted")
            """)
        self.interrupt_when_it_says(process, "running")
        self.assertEqual(self.end(process), "interrupted\n")

    def test_ctrl_c_ends_the_longest_prompt(self):
        process = self.start("""
            llm = llm()
            text = "some words " * 5_000_000
            def tell():
                while not _native.calls_under_way():
                    time.sleep(0.001)
                print("running")
            threading.Thread(target=tell).start()
            try:
                llm.encode(text)
                print("it went on to the end")
            except KeyboardInterrupt:
                print("interrupted:", _native.calls_under_way())
                print("still answers:", len(llm.generate("a", SamplingParams(max_tokens=2), use_tqdm=False)))
            """)
        self.interrupt_when_it_says(process, "running")
        self.assertEqual(self.end(process), "interrupted: 0\nstill answers: 1\n")

    def test_use_after_fork_raises_and_the_child_exits(self):
        text = self.end(
            self.start("""
            llm = llm()
            params = SamplingParams(temperature=0, max_tokens=3)
            before = llm.generate("a", params, use_tqdm=False)[0].outputs[0].token_ids
            stream = llm.stream("a", LONG)
            def read():
                list(llm.stream("b", LONG))
            threading.excepthook = lambda args: None
            threading.Thread(target=read, daemon=True).start()
            while not _native.calls_under_way():
                pass
            child = os.fork()
            if child == 0:
                print("calls:", _native.calls_under_way())   # the end of the interpreter waits for them
                for call in (lambda: llm.generate("a", params, use_tqdm=False), lambda: next(stream),
                             lambda: llm.model):
                    try:
                        call()
                        print("no error")
                    except tactus.UnavailableError as error:
                        print("forked" in str(error))
                sys.exit(7)
            print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            stream.close()
            print("parent:", llm.generate("a", params, use_tqdm=False)[0].outputs[0].token_ids == before)
            """)
        )
        self.assertEqual(text, "calls: 0\nTrue\nTrue\nTrue\nchild: 7\nparent: True\n")

    def test_the_interpreter_exits_with_open_objects(self):
        self.assertEqual(
            self.end(
                self.start("""
            llm = llm()
            stream = llm.stream("a", LONG)
            next(stream)
            def generate():
                try:
                    llm.generate(["b"] * 20, LONG, use_tqdm=False)
                except tactus.TactusError:
                    pass
            def read():
                try:
                    list(llm.stream("c", LONG))
                except tactus.TactusError:
                    pass
            def simulate():
                tactus.simulate(model="llama-3.1-8b", device="a100", workload="chat", rate=2, requests=100000000)
            threading.excepthook = lambda args: None   # the simulation is stopped by the exit
            for call in (generate, read, simulate):
                threading.Thread(target=call, daemon=True).start()
            while llm.outcome()["steps"] < 3:
                time.sleep(0.01)
            print("end")
            """)
            ),
            "end\n",
        )
        self.assertEqual(
            self.end(
                self.start("""
            def leak():
                kept = llm()
                kept.myself = kept          # a cycle, which only the collector ends
                kept.stream_ = kept.stream("a", LONG)
            leak()
            print("end")
            """)
            ),
            "end\n",
        )


if __name__ == "__main__":
    unittest.main()
