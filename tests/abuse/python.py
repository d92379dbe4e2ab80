"""The Python package: interpreters that end while threads are in calls, invalid values, signals, forks and threads.
Every program is a separate process; its end is checked.

TACTUS_PYTHON_PACKAGE names another folder with the package than build/release/python.
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

from program import ROOT

PACKAGE = os.environ.get("TACTUS_PYTHON_PACKAGE", str(ROOT / "build/release/python"))
TESTS = ROOT / "tests/python"
EXITS, QUICK_EXITS = 15, 1  # rounds per call
LIMIT_S = 120


def run(tally, seed):
    sys.path[:0] = [PACKAGE, str(TESTS)]
    os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE, str(TESTS)])
    try:
        import tactus
        from tiny_model import TinyModel
    except ImportError as error:
        tally.check("the package is there", False, f"{error}: run scripts/test.sh abuse, which builds it")
        return
    tiny = TinyModel()
    try:
        exits_(tally, tiny, random.Random(seed))
        wrong_values(tally, tactus, tiny)
        signals(tally, tiny, random.Random(seed))
        forks(tally, tiny)
        readers(tally, tiny)
    finally:
        tiny.close()


def exits_(tally, tiny, rng):
    """Daemon threads in each call at the end of the interpreter, with the model closed and left open."""
    import exits

    rounds = QUICK_EXITS if tally.quick else EXITS
    counted = 0
    for name, call in exits.CALLS.items():
        for i in range(rounds):
            closes = i % 2 == 0
            text = exits.program(tiny, call, rng.uniform(0, 30), closes)
            wrong = exits.run(text)
            counted += 1
            tally.check(f"exit {i} beside {name}, model {'closed' if closes else 'open'}", not wrong, wrong, text)
    # Everything at once.
    calls = [call for call in exits.CALLS.values() if "10**8" not in call]
    for i in range(rounds):
        chosen = rng.sample(calls, 6)
        text = exits.program(tiny, f"exec({chosen!r}[(i + begun[i]) % 6], globals())", rng.uniform(0, 60), i % 2 == 0)
        wrong = exits.run(text)
        counted += 1
        tally.check(f"exit {i} beside six calls", not wrong, wrong, text)
    tally.figure("interpreters ended", counted)


def wrong_values(tally, tactus, tiny):
    import wrong_inputs

    llm = tiny.llm()
    awaited = tactus.AsyncLLM(str(tiny.path), **tiny.options)

    def make(model=str(tiny.path), **options):
        return tactus.LLM(model, **dict(tiny.options, **options))

    counted = 0
    for case in wrong_inputs.cases(llm, awaited, make):
        for value in case.values:
            counted += 1
            wrong = wrong_inputs.fault(case, value)
            shown = tactus._check.shown(value)
            tally.check(f"{case.label} {shown}", not wrong, wrong, f"{case.label} {shown}")
    (output,) = llm.generate("a", tactus.SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    tally.check("afterwards it answers", len(output.outputs[0].token_ids) == 2)
    llm.close()
    awaited.close()
    tally.figure("wrong values refused", counted)


class Program:
    """A program in a separate interpreter."""

    HEAD = """
        import os, signal, sys, threading, time
        import tactus
        from tactus import LLM, SamplingParams, _native, simulate
        LONG = SamplingParams(n=32, max_tokens=1500, ignore_eos=True, seed=1)
        def llm(**options):
            return LLM({path!r}, **dict({options!r}, **options))
        def again(call, value):
            while True:
                try:
                    call(value)
                except tactus.InvalidArgumentError:
                    pass
        """

    def __init__(self, tiny, text):
        head = textwrap.dedent(self.HEAD).format(path=str(tiny.path), options=tiny.options)
        self.text = head + textwrap.dedent(text)
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", self.text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.killer = threading.Timer(LIMIT_S, lambda: os.killpg(self.process.pid, signal.SIGKILL))
        self.killer.start()

    def wait_for(self, word):
        for line in self.process.stdout:
            if line.strip() == word:
                return True
        return False

    def end(self, said):
        """Empty if it ended with status 0 after these lines, else the fault."""
        text, _ = self.process.communicate()
        self.killer.cancel()
        lines = [line for line in text.splitlines() if "end of text is token" not in line]
        if self.process.returncode == 0 and lines == said:
            return ""
        return f"exit status {self.process.returncode}: {text[-2000:]}"


def signals(tally, tiny, rng):
    """Ctrl-C at any moment of a long call: KeyboardInterrupt soon after, and the model remains usable."""
    long = '"some words " * 4_000_000'
    calls = {
        "generate": 'model.generate(["a"] * 20, LONG, use_tqdm=False)',
        "a long prompt": f"model.encode({long})",
        # Refused as soon as it is parsed, because it cannot fit; therefore repeated.
        "a prompt that cannot fit": f"again(lambda text: model.generate(text, use_tqdm=False), {long})",
        "a long conversation": f'again(lambda text: model.encode_chat([{{"role": "user", "content": text}}]), {long})',
        "token ids": "again(lambda ids: model.generate([ids], use_tqdm=False), [5] * 4_000_000)",
        "a stream": 'list(model.stream("a", LONG))',
        "simulate": 'simulate(model="llama-3.1-8b", device="a100", workload="chat", rate=2, requests=10**8)',
    }
    sent = tiny.path / "sent"  # time of the signal
    for name, call in calls.items():
        for i in range(1 if tally.quick else 6):
            program = Program(
                tiny,
                f"""
                model = llm()
                print("running")
                try:
                    {call}
                    print("it went on")
                except KeyboardInterrupt:
                    seen = time.time()
                    print("ms", round(1000 * (seen - float(open({str(sent)!r}).read()))))
                print(len(model.generate("a", SamplingParams(max_tokens=2), use_tqdm=False)))
                """,
            )
            if program.wait_for("running"):
                time.sleep(rng.uniform(0.3, 0.8))  # creating the text of a prompt takes a while
                sent.write_text(str(time.time()))
                program.process.send_signal(signal.SIGINT)
            text, _ = program.process.communicate()
            program.killer.cancel()
            lines = [line for line in text.splitlines() if "end of text is token" not in line]
            said = len(lines) == 2 and lines[0].startswith("ms ") and lines[1] == "1"
            well = said and program.process.returncode == 0
            wrong = "" if well else f"exit status {program.process.returncode}: {text[-1000:]}"
            if tally.check(f"Ctrl-C {i} in {name}", well, wrong, program.text):
                tally.worst("ms until KeyboardInterrupt", int(lines[0].split()[1]))


def forks(tally, tiny):
    for i in range(1 if tally.quick else 5):
        program = Program(
            tiny,
            """
            model = llm()
            def work():
                while True:
                    try:
                        model.generate(["a"] * 3, SamplingParams(max_tokens=5), use_tqdm=False)
                        SamplingParams(n=2)
                    except tactus.TactusError:
                        pass
            for _ in range(4):
                threading.Thread(target=work, daemon=True).start()
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    try:
                        model.encode("a")
                        os._exit(3)
                    except tactus.UnavailableError:
                        sys.exit(7)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if status != 7:
                    print("child:", status)
            print("end")
            """,
        )
        wrong = program.end(["end"])
        tally.check(f"forks {i} beside calls", not wrong, wrong, program.text)


def readers(tally, tiny):
    for i in range(1 if tally.quick else 5):
        program = Program(
            tiny,
            """
            sys.setswitchinterval(1e-5)
            model = llm()
            for _ in range(10):
                stream = model.stream("a", SamplingParams(max_tokens=400, ignore_eos=True))
                whole, refused = [], []
                together = threading.Barrier(8)
                def read():
                    together.wait()
                    try:
                        whole.append(sum(len(piece.token_ids) for piece in stream))
                    except tactus.UnavailableError:
                        refused.append(1)
                threads = [threading.Thread(target=read) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if (whole, len(refused)) != ([400], 7):
                    print(whole, refused)
            print("end")
            """,
        )
        wrong = program.end(["end"])
        tally.check(f"readers {i} of one stream", not wrong, wrong, program.text)
