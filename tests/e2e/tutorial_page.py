"""Runs a page of docs/tutorials as its reader does, and compares what is printed with what the page shows.

The first words of a fenced block are its kind:

    sh              commands, run by bash in a folder that is like a clone after `scripts/build.sh release programs`
    sh server       a command that does not end: it runs beside the blocks after it, and Ctrl-C ends it after the last
    sh untested     commands that need what a test does not have
    python          a program, run by this Python
    text            what the block before it prints on standard output (a server: on both of its outputs)
    cpp             a part of the source file that the page links last before it

In a text block, a line `...` stands for any lines, and `...` within a line for any text. Ports 8000 to 8009 of a page
with servers stand for free ones. Other kinds are not looked at.
"""

import dataclasses
import difflib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from server_process import START_LIMIT_S, STOP_LIMIT_S, default_model, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_LIMIT_S = 200
RUN_KINDS = ("sh", "sh server", "python")
PORTS = range(8000, 8010)
LEFT_OUT = "..."


class StalePage(AssertionError):
    """The page shows something else than what happens."""

    def __init__(self, page, line, expected, got):
        super().__init__(f"{page}:{line}\n  expected: {expected}\n  got:      {got}")


@dataclasses.dataclass
class Block:
    kind: str
    at: int  # number of its first line in the page, from 1
    lines: list[str]

    @property
    def text(self):
        return "\n".join(self.lines)


def blocks_of(text):
    blocks, is_open = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_open = not is_open
            if is_open:
                blocks.append(Block(line[3:].strip(), number + 1, []))
        elif is_open:
            blocks[-1].lines.append(line)
    return blocks


def matches(expected, printed):
    return re.fullmatch(".*".join(map(re.escape, expected.rstrip().split(LEFT_OUT))), printed.rstrip()) is not None


def first_difference(expected, printed, more_may_follow=False):
    """(index of the expected line, the line, the printed line) of the first line that is not printed; None: all are."""
    at, skips = 0, False
    for index, line in enumerate(expected):
        if line == LEFT_OUT:
            skips = True
            continue
        candidates = range(at, len(printed) if skips else min(at + 1, len(printed)))
        found = next((i for i in candidates if matches(line, printed[i])), None)
        if found is None:
            nearest = difflib.get_close_matches(line, [printed[i] for i in candidates], 1, 0)
            return index, line, nearest[0] if nearest else "(the end of the output)"
        at, skips = found + 1, False
    if at < len(printed) and not skips and not more_may_follow:
        return len(expected), "(the end of the output)", printed[at]
    return None


class Ports:
    """Free ports with consecutive numbers, in place of those that a page names."""

    def __init__(self):
        def is_free(port):
            with socket.socket() as s:
                try:
                    s.bind(("127.0.0.1", port))
                except OSError:
                    return False
            return True

        for _ in range(100):  # four digits, as in the page: tables keep their widths
            self.base = random.randrange(2000, 8000, len(PORTS))
            if all(is_free(self.base + i) for i in range(len(PORTS))):
                return
        raise RuntimeError("no ten free ports in a row")

    def for_machine(self, text):
        return re.sub(r"\b800\d\b", lambda m: str(self.base + int(m[0]) - PORTS[0]), text)

    def for_page(self, text):
        addresses = rf"(?<=127\.0\.0\.1:){self.base // 10}\d\b"
        return re.sub(addresses, lambda m: str(PORTS[0] + int(m[0]) - self.base), text)


class Server:
    """A command in the background, with its outputs in one file."""

    def __init__(self, command, folder, environment, output):
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def stop(self):
        """Like Ctrl-C in its terminal. Returns the exit status, or None if it had to be killed."""
        try:
            os.killpg(self.process.pid, signal.SIGINT)
            return self.process.wait(timeout=STOP_LIMIT_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            return self.process.poll()
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


class PageRun:
    def __init__(self, page):
        self.page = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        self.text = page.read_text()
        self.blocks = blocks_of(self.text)
        self.servers = []  # with their blocks, in the order of their starts
        has_servers = any(block.kind == "sh server" for block in self.blocks)
        self.ports = Ports() if has_servers else None

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            self._make_clone()
            try:
                for block, follows in zip(self.blocks, [*self.blocks[1:], None]):
                    shown = follows if follows is not None and follows.kind == "text" else None
                    self._run_block(block, shown)
            finally:
                statuses = [(block, server.stop()) for block, server in reversed(self.servers)]
            for block, status in statuses:
                if status != 0:
                    raise StalePage(self.page, block.at, "exit status 0 after Ctrl-C", f"exit status {status}")

    def _make_clone(self):
        """What is installed, built and fetched is there already; the other scripts are the real ones."""
        binary = pathlib.Path(os.environ["TACTUS_BINARY"]).resolve()
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(binary.parent)
        scripts = self.folder / "scripts"
        shutil.copytree(ROOT / "scripts", scripts)
        for script in scripts.glob("*.sh"):
            if script.name in ("setup.sh", "build.sh", "get_llguidance.sh"):
                script.write_text("#!/bin/sh\n")
            elif self.ports:
                script.write_text(self.ports.for_machine(script.read_text()))
        cache = self.folder / ".cache"
        if default_model():
            model_folder = pathlib.Path(default_model()).parent
            (cache / "tactus" / "models").mkdir(parents=True)
            (cache / "tactus" / "models" / model_folder.name).symlink_to(model_folder)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
        self.environment["XDG_CACHE_HOME"] = str(cache)
        if self.ports:
            self.environment["TACTUS_PORT"] = str(self.ports.base)
            self.environment["TACTUS_ROUTER"] = f"http://127.0.0.1:{self.ports.base}"

    def _run_block(self, block, shown):
        if block.kind == "cpp":
            self._check_source(block)
        if block.kind not in RUN_KINDS:
            return
        text = self.ports.for_machine(block.text) if self.ports else block.text
        if block.kind == "sh server":
            self._start_server(block, text, shown)
            return
        command = ["bash", "-ec", text] if block.kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=BLOCK_LIMIT_S
        )
        if done.returncode != 0:
            raise StalePage(self.page, block.at, "exit status 0", f"{done.returncode}: {done.stderr[-2000:]}")
        if shown:
            self._compare(shown, done.stdout)

    def _start_server(self, block, text, shown):
        if shown is None:
            raise StalePage(self.page, block.at, "a text block that shows when the server is ready", "none")
        server = Server(text, self.folder, self.environment, self.folder / f".server{len(self.servers)}")
        self.servers.append((block, server))

        def is_ready():
            return server.process.poll() is not None or not self._difference(shown, server.output.read_text(), True)

        try:
            wait_until(is_ready, "ready", START_LIMIT_S)
        except AssertionError:
            pass  # the comparison reports the line
        self._compare(shown, server.output.read_text(), True)

    def _difference(self, shown, output, more_may_follow):
        output = self.ports.for_page(output) if self.ports else output
        return first_difference(shown.lines, output.rstrip("\n").split("\n"), more_may_follow)

    def _compare(self, shown, output, more_may_follow=False):
        if difference := self._difference(shown, output, more_may_follow):
            index, expected, got = difference
            raise StalePage(self.page, shown.at + index, expected, got)

    def _check_source(self, block):
        before = "\n".join(self.text.splitlines()[: block.at - 1])
        linked = re.findall(r"\]\(\.\./\.\./((?:src|include|tests)/[^)#]+)\)", before)
        if not linked:
            raise StalePage(self.page, block.at, "a link to the source file before the block", "none")
        if block.text not in (ROOT / linked[-1]).read_text():
            raise StalePage(self.page, block.at, block.text, f"not in {linked[-1]}")
