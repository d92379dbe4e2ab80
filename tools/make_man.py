#!/usr/bin/env python3
"""Writes the man pages of the programs: tactus.1 and a page for each command, from what the commands say of themselves.

    tools/make_man.py build/release/tactus FOLDER

`tactus COMMAND --describe-options` has the options as JSON. Needs tactus-tools beside the program, and tactus-epp if it
is built. `mandoc -T lint -W warning FOLDER/*.1` finds nothing (tests/e2e/help_test.py).
"""

import json
import pathlib
import re
import subprocess
import sys

PARTS = {"models": ["convert"], "sim": ["capacity", "sweep", "compare", "step", "chunk"]}
DATE = "$Mdocdate$"


def escaped(text):
    """Text as roff takes it: no escapes, no line that begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def sentences(text):
    """One sentence a line, as mdoc wants them."""
    return re.sub(r"([.?!]) +(?=[A-Z(`'])", r"\1\n", escaped(text))


def commands(program):
    """(name, summary) of every command of `tactus --help`."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z]+) +(\S.*)$", text, flags=re.M)


def described(program, words):
    """The options of a command as JSON; None where its program is not built."""
    done = subprocess.run([program, *words, "--describe-options"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else None


def head(name, about):
    return f".Dd {DATE}\n.Dt {name.upper()} 1\n.Os\n.Sh NAME\n.Nm {name}\n.Nd {about}\n"


def option(o):
    dashes = [("-" if len(n) == 1 else "--") + n for n in (o["name"], o["alias"]) if n]
    item = ".It " + " , ".join(f"Fl {escaped(d[1:])}" for d in dashes) + f" Ar {escaped(o['takes'])}\n"
    limits = " to ".join(f"{o[k]:.15g}" for k in ("least", "most") if k in o) if o["number"] else ""
    text = o["help"]
    if limits:
        text += f"; {'at least ' if 'most' not in o else ''}{limits}"
    if o["default"]:
        text += f"; default {o['default']}"
    return item + sentences(text[:1].upper() + text[1:]) + ".\n"


def page(words, about, options):
    name = "-".join(["tactus", *words])
    text = (
        head(name, escaped(about)) + ".Sh SYNOPSIS\n.Nm tactus\n" + escaped(" ".join([*words, options["usage"]])) + "\n"
    )
    text += ".Sh DESCRIPTION\n" + sentences(options["about"]) + "\n"
    if options["positionals"]:
        text += ".Bl -tag -width Ds\n"
        for p in options["positionals"]:
            text += f".It Ar {escaped(p['name'])}\n{sentences(p['help'][:1].upper() + p['help'][1:])}.\n"
        text += ".El\n"
    text += ".Sh OPTIONS\n"
    group = None
    for o in options["options"]:
        if o["group"] != group:
            text += ("" if group is None else ".El\n") + f".Ss {escaped(o['group'] or 'Options')}\n.Bl -tag -width Ds\n"
            group = o["group"]
        text += option(o)
    text += ".El\n" if group is not None else "None.\n"
    return text + (
        ".Ss General\n.Bl -tag -width Ds\n"
        ".It Fl \\-config Ar file\nReads options from a TOML file, by the same names.\n"
        ".It Fl \\-print\\-config\nPrints the effective configuration and exits.\n"
        ".It Fl \\-help , Fl \\-help\\-all\nPrints the common options, or all of them.\n.El\n"
        ".Sh ENVIRONMENT\nEvery option is also a variable:\n.Ev TACTUS_MAX_NUM_SEQS\nis\n.Fl \\-max\\-num\\-seqs .\n"
        "An option on the command line beats its variable, a variable beats the file, the file beats the default.\n"
        ".Sh EXIT STATUS\n0 if done, 1 if failed, 2 for wrong usage, 130 if interrupted.\n.Sh SEE ALSO\n.Xr tactus 1\n"
    )


def overview(pages):
    text = head("tactus", "serves large language models, and simulates serving them")
    text += ".Sh SYNOPSIS\n.Nm\n.Ar command\n.Op Ar arguments\n.Sh DESCRIPTION\n.Bl -tag -width Ds\n"
    for name, about in pages:
        text += f".It Cm {escaped(name)}\n{sentences(about[:1].upper() + about[1:])}.\n"
    return text + ".El\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    all_commands = commands(program)
    (folder / "tactus.1").write_text(overview(all_commands))
    for name, about in all_commands:
        for words in [[name], *([name, part] for part in PARTS.get(name, []))]:
            options = described(program, words)
            if options is not None:
                (folder / f"{'-'.join(['tactus', *words])}.1").write_text(page(words, about, options))


if __name__ == "__main__":
    main()
