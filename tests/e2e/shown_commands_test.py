"""The commands of `tactus` that README.md and the pages of docs/ show exist, with the options that they show."""

import functools
import json
import re
import shlex
import unittest

from command_case import tactus
from tutorial_page import ROOT, blocks_of

SHELLS = ("sh", "bash", "console")
GENERAL = {"config", "print-config", "help", "help-all", "version", "describe-options"}
COMMAND = re.compile(r"(?:^|[;&|(])\s*(?:(?:sudo|nohup|\w+=\S*)\s+)*(?:\S*/)?tactus\s+(?=([a-z].*))")


def commands_of(text):
    """(line, words) of the commands in the blocks of shell commands of a page."""
    found = []
    blocks = [(block.at, block.text) for block in blocks_of(text) if block.kind.split(" ")[0] in SHELLS]
    blank = re.sub(r"(?ms)^```.*?^```", lambda m: "\n" * m.group().count("\n"), text)
    for match in re.finditer(r"(?m)(?:^ {4,}.*\n)+", blank):
        blocks.append((blank[: match.start()].count("\n") + 1, match.group()))
    for at, block in blocks:
        joined = re.sub(r"(?m)(^|\s)#.*$", "", block.replace("\\\n", " "))
        for number, line in enumerate(joined.splitlines()):
            for match in COMMAND.finditer(line):
                lexer = shlex.shlex(match.group(1), posix=True, punctuation_chars="|;&()<>")
                lexer.whitespace_split = True
                try:
                    words = list(lexer)
                except ValueError:  # a quote that ends in a later line
                    words = match.group(1).split()
                end = next((index for index, word in enumerate(words) if set(word) <= set("|;&()<>")), len(words))
                found.append((at + number, words[:end]))
    return found


@functools.cache
def options_of(words):
    """The names of a command's options; None: there is no such command."""
    done = tactus(*words, "--describe-options")
    if not done.stdout.startswith("{"):
        return None
    options = json.loads(done.stdout)["options"]
    return {name for option in options for name in (option["name"], option["alias"]) if name}


class ShownCommandsTest(unittest.TestCase):
    def test_options_that_pages_show_exist(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        faults, seen = [], 0
        known = set(re.findall(r"(?m)^  ([a-z]+) ", tactus("--help").stdout))
        for page in pages:
            for line, words in commands_of(page.read_text(encoding="utf-8")):
                where = f"{page.relative_to(ROOT)}:{line}"
                if words[0] not in known:
                    faults.append(f"{where}: there is no command 'tactus {words[0]}'")
                    continue
                parts = tuple(words[:2]) if len(words) > 1 and re.fullmatch("[a-z]+", words[1]) else tuple(words[:1])
                options = options_of(parts) or options_of(parts[:1])
                if options is None:  # its program is not built, or it has no options
                    continue
                for word in words[1:]:
                    name = re.match(r"--(?:no-)?([a-z][a-z0-9-]*)", word)
                    seen += bool(name)
                    if name and name.group(1) not in options | GENERAL:
                        faults.append(f"{where}: 'tactus {' '.join(parts)}' has no option --{name.group(1)}")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))
        self.assertGreater(seen, 100)

    def test_commands_are_found_in_blocks(self):
        text = (
            "```sh\nbuild/release/tactus sim --rate 4 \\\n  --seed 1 | cat --x   # y\n```\n"
            "```text\ntactus none --z\n```\n\n    tactus run -p x\n"
        )
        self.assertEqual(commands_of(text), [(2, ["sim", "--rate", "4", "--seed", "1"]), (9, ["run", "-p", "x"])])


if __name__ == "__main__":
    unittest.main()
