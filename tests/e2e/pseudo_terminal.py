"""A program on a pseudo-terminal: its output as text, and as the screen that a terminal of that size would show."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

LIMIT_S = 60


class Screen:
    """The lines that a terminal shows. It knows the sequences that `tactus top` writes; another one is an error."""

    def __init__(self, lines, columns):
        self.resize(lines, columns)
        self.rest = ""
        self.alternate = False
        self.cursor = True

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.rows = [" " * columns for _ in range(lines)]
        self.row = self.column = 0

    def text(self):
        return "\n".join(row.rstrip() for row in self.rows)

    def _put(self, character):
        if self.column < self.columns and self.row < self.lines:
            line = self.rows[self.row]
            self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def _control(self, sequence):
        if sequence == "[H":
            self.row = self.column = 0
        elif sequence == "[K":
            self.rows[self.row] = self.rows[self.row][: self.column].ljust(self.columns)
        elif sequence in ("[J", "[2J"):
            first = self.row if sequence == "[J" else 0
            if sequence == "[J":
                self.rows[first] = self.rows[first][: self.column].ljust(self.columns)
                first += 1
            for row in range(first, self.lines):
                self.rows[row] = " " * self.columns
        elif sequence in ("[?1049h", "[?1049l"):
            self.alternate = sequence.endswith("h")
            self.resize(self.lines, self.columns)
        elif sequence in ("[?25h", "[?25l"):
            self.cursor = sequence.endswith("h")
        elif not re.fullmatch(r"\[[0-9;]*m|\[\?7[hl]", sequence):
            raise AssertionError(f"an unknown control sequence: ESC {sequence!r}")

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            character = text[at]
            if character == "\x1b":
                match = re.compile(r"\[[0-?]*[@-~]").match(text, at + 1)
                if not match:
                    if len(text) - at > 20:
                        raise AssertionError(f"an unknown escape: {text[at : at + 20]!r}")
                    self.rest = text[at:]
                    return
                self._control(match.group())
                at = match.end()
                continue
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self.row = min(self.row + 1, self.lines - 1)
            else:
                self._put(character)
            at += 1


class PseudoTerminal:
    def __init__(self, *command, lines=24, columns=100, environment=None):
        master, slave = pty.openpty()
        self.file = os.fdopen(master, "r+b", buffering=0)
        self.screen = Screen(lines, columns)
        self._set_size(lines, columns)
        self.slave = slave  # kept open, so that its settings can be read after the program's end
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=environment,
        )
        self.shown = ""

    def _set_size(self, lines, columns):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, lines, columns):
        self.screen.resize(lines, columns)
        self._set_size(lines, columns)

    def type(self, text):
        self.file.write(text.encode())

    def _read(self, wait_s):
        if select.select([self.file], [], [], wait_s)[0]:
            text = self.file.read(65536).decode(errors="replace")
            self.shown += text
            self.screen.feed(text)
            return True
        return False

    def wait_for(self, condition, what, limit_s=LIMIT_S):
        """Reads until the screen's text fulfils the condition, which it returns."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            self._read(0.1)
            if condition(self.screen.text()):
                return self.screen.text()
        raise AssertionError(
            f"{what}: not within {limit_s} s; the screen is:\n{self.screen.text()}\n{self.shown[-500:]!r}"
        )

    def wait_for_text(self, text, limit_s=LIMIT_S):
        return self.wait_for(lambda shown: text in shown, f"{text!r} on the screen", limit_s)

    def exit_status(self, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)
        while self._read(0):
            pass
        if self.process.poll() is None:
            raise AssertionError(f"the program did not end within {limit_s} s; the screen is:\n{self.screen.text()}")
        return self.process.returncode

    def settings(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.file.close()
        os.close(self.slave)
