"""Help at the terminal's width, common options first, words that are nearest to misspelt ones, completion scripts and
man pages."""

import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from fcntl import ioctl
from termios import TIOCSWINSZ

from command_case import BINARY, tactus

ROOT = pathlib.Path(__file__).resolve().parents[2]


def in_terminal(columns, *args):
    """What the program prints on a terminal of this width."""
    parent, child = pty.openpty()
    ioctl(child, TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen([BINARY, *args], stdout=child, stderr=child, stdin=subprocess.DEVNULL)
    os.close(child)
    out = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    process.wait()
    os.close(parent)
    return out.decode().replace("\r\n", "\n")


class HelpTest(unittest.TestCase):
    def test_help_is_wrapped_at_the_width_of_the_terminal(self):
        for columns, limit in ((70, 70), (300, 120), (20, 60)):
            with self.subTest(columns=columns):
                lines = in_terminal(columns, "serve", "--help").splitlines()
                wide = [line for line in lines if len(line) > limit and len(line.split()) > 2]
                self.assertEqual(wide, [])
                self.assertGreater(max(map(len, lines)), limit - 15)

    def test_help_shows_common_options_and_help_all_the_rest(self):
        for command in (
            ["serve"],
            ["run"],
            ["batch"],
            ["sim"],
            ["sim", "sweep"],
            ["sim", "capacity"],
            ["fit"],
            ["profile"],
        ):
            with self.subTest(command=command):
                few = re.findall(r"(?m)^  --([\w-]+)", tactus(*command, "--help").stdout)
                every = re.findall(r"(?m)^  --([\w-]+)", tactus(*command, "--help-all").stdout)
                known = json.loads(tactus(*command, "--describe-options").stdout)["options"]
                self.assertLessEqual(len(few), 42)
                self.assertGreaterEqual(len(few), 15)
                self.assertEqual(set(few) - set(every), set())
                self.assertLessEqual({o["name"] for o in known if len(o["name"]) > 1}, set(every))
                rest = len(known) - sum(o["common"] for o in known)
                self.assertIn(
                    f"{rest} more options with --help-all", " ".join(tactus(*command, "--help").stdout.split())
                )

    def test_misspelt_words_name_the_nearest(self):
        for args, expected in [
            (["serve", "--prot", "80"], "unknown option --prot; did you mean --port?"),
            (["serve", "--max-num-sequences=8"], "did you mean --max-num-seqs?"),
            (["sim", "--shceduler", "vllm"], "did you mean --scheduler?"),
            (["sevre"], "unknown command 'sevre'; did you mean 'serve'?"),
            (["serve", "--zzzzzz", "1"], "unknown option --zzzzzz; 'tactus serve --help-all' lists all options"),
        ]:
            done = tactus(*args)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("prot = 80\n")
            file.flush()
            self.assertIn("unknown key 'prot'; did you mean 'port'?", tactus("serve", "--config", file.name).stderr)

    def test_a_missing_value_is_named(self):
        for args in (["serve", "--port"], ["serve", "--port", "--verbose"]):
            done = tactus(*args)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--port: the value is missing; give --port=VALUE", done.stderr)


class OptionsPageTest(unittest.TestCase):
    """docs/reference/options.md."""

    def test_every_command_is_on_it_as_the_program_describes_it(self):
        sys.path.insert(0, str(ROOT / "tools"))
        import options_page

        _, *parts = re.split(r"(?m)^## tactus ", options_page.PAGE.read_text(encoding="utf-8"))
        on_page = {part.partition("\n")[0]: part.strip() for part in parts}
        made = {words: text.removeprefix("## tactus ").strip() for words, text in options_page.sections(BINARY).items()}
        fix = "run tools/options_page.py build/release/tactus --write"
        self.assertLessEqual(set(on_page) - set(made), {"epp"}, fix)  # its program may not be built
        for words, text in made.items():
            with self.subTest(command=words):
                self.assertMultiLineEqual(on_page.get(words, ""), text, fix)


class CompletionTest(unittest.TestCase):
    def complete(self, *words):
        """What bash offers for the last of the words."""
        line = " ".join(f"'{w}'" for w in words)
        script = (
            f"PATH={pathlib.Path(BINARY).parent}:$PATH; source <(tactus completion bash)\n"
            f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tactus; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_bash_completes_commands_options_and_words(self):
        self.assertEqual(self.complete("tactus", "ser"), ["serve"])
        self.assertIn("--max-num-seqs", self.complete("tactus", "serve", "--max-n"))
        self.assertIn("bfloat16", self.complete("tactus", "serve", "--dtype", ""))
        self.assertEqual(self.complete("tactus", "serve", "--verbose", "of"), ["off"])
        self.assertIn("--vary", self.complete("tactus", "sim", "sweep", "--va"))

    def test_scripts_of_other_shells_are_well_formed(self):
        for shell in ("bash", "zsh", "fish"):
            done = tactus("completion", shell)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("serve", done.stdout)
            self.assertNotIn("COMMANDS", done.stdout)
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True)
                self.assertEqual(checked.stderr, "", shell)
        done = tactus("completion", "tcsh")
        self.assertEqual(done.returncode, 2)
        self.assertIn("give one of bash, zsh, fish", done.stderr)


class ManTest(unittest.TestCase):
    def test_man_pages_name_every_option_and_pass_the_linter(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "tools/make_man.py", BINARY, folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            pages = sorted(pathlib.Path(folder).glob("*.1"))
            self.assertLessEqual({"tactus.1", "tactus-serve.1", "tactus-sim-sweep.1"}, {p.name for p in pages})
            text = (pathlib.Path(folder) / "tactus-serve.1").read_text().replace("\\-", "-")
            for o in json.loads(tactus("serve", "--describe-options").stdout)["options"]:
                self.assertIn(f"Fl -{o['name']}" if len(o["name"]) > 1 else f"Fl {o['name']}", text)
            if shutil.which("mandoc") is None:
                self.skipTest("mandoc is not installed: the pages were made, not linted")
            linted = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True)
            self.assertEqual(linted.stdout + linted.stderr, "")


if __name__ == "__main__":
    unittest.main()
