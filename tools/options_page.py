#!/usr/bin/env python3
"""Makes docs/reference/options.md, a table of all options of every command, from what the commands say of themselves.

    tools/options_page.py build/release/tactus           prints the page
    tools/options_page.py build/release/tactus --write   writes it

Needs tactus-tools and tactus-epp beside the program. tests/e2e/help_test.py fails while the page differs from the
program.
"""

import pathlib
import sys
import textwrap

import make_man

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/options.md"
INTRODUCTION = """\
# Options

All options of every command, with default and range. [commands.md](commands.md) describes the commands, and how flags,
`TACTUS_*` variables and the file of `--config` go together.

Every command also has `--config FILE`, `--print-config`, `--help` and `--help-all`. This page is generated from the
program (`tools/options_page.py build/release/tactus --write`).
"""


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def span(text):
    """A text as code in a cell of a table."""
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def row(option):
    names = [("-" if len(name) == 1 else "--") + name for name in (option["name"], option["alias"]) if name]
    least, most = (f"{option[key]:.15g}" if key in option else "" for key in ("least", "most"))
    limits = f"{least} to {most}" if least and most else ""
    if bool(least) != bool(most):
        limits = f"at least {least}" if least else f"at most {most}"
    limits = limits if option["number"] else ""
    takes = option["takes"].strip("<>")
    columns = [", ".join(map(span, names)), span(takes), span(option["default"]), limits, cell(option["help"])]
    return f"| {' | '.join(columns)} |"


def section(words, options, known):
    """The part of the page about one command. `known`: the options of the command that it is a part of."""
    about = textwrap.fill(options["about"], 120, break_long_words=False, break_on_hyphens=False)
    text = f"## tactus {' '.join(words)}\n\n`{' '.join(['tactus', *words, options['usage']])}`\n\n{about}\n"
    group, own = None, [option for option in options["options"] if not known or row(option) not in known]
    if len(own) < len(options["options"]):
        rest = len(options["options"]) - len(own)
        text += (
            f"\n{rest} of its options are those of [`tactus {words[0]}`](#tactus-{words[0]}), with the same defaults.\n"
        )
    for option in own:
        if option["group"] != group or group is None:
            group = option["group"]
            text += f"\n{group or 'Options'}:\n\n| option | takes | default | range | |\n|---|---|---|---|---|\n"
        text += row(option) + "\n"
    return text


def sections(program):
    """{words: its section} of the commands that are built."""
    found = {}
    for name, _ in make_man.commands(program):
        known = set()  # the rows of the command, for its parts
        for words in [[name], *([name, part] for part in make_man.PARTS.get(name, []))]:
            if (options := make_man.described(program, words)) is not None:
                found[" ".join(words)] = section(words, options, known)
                if len(words) == 1:
                    known = {row(option) for option in options["options"]}
    return found


def page(program):
    return INTRODUCTION + "".join("\n" + text for text in sections(program).values())


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    if sys.argv[2:] == ["--write"]:
        PAGE.write_text(page(sys.argv[1]), encoding="utf-8")
    else:
        print(page(sys.argv[1]), end="")


if __name__ == "__main__":
    main()
