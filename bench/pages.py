#!/usr/bin/env python3
"""Runs the commands that a page of docs/measurements names for its tables, and reports cells that have changed.

    bench/pages.py PAGE.md ... [--tactus build/release/tactus] [--tolerance 1] [--only TEXT] [--needing TEXT]
                               [--also "ARGUMENTS"] [--narrow "ARGUMENTS"] [--write] [--list]

A page links a table to its command in a comment on the lines directly before it, which may be several:

    <!-- table: bench/policies/accelgen.py --setting opt-13b -->
    | | 0.25/s | of the first | of the best fixed |

The command is a script of this repository that prints Markdown tables. The table is the printed one with the same
header; if several have it, `<!-- table "load 0.7": ... -->` selects the one whose last preceding line of text contains
that. Rows are matched by their first cells, as many as distinguish the page's rows; if they match two printed rows the
table is rejected. A table that needs more than a simulation has `<!-- table, needs a GPU: ... -->` and is skipped with
a message. Tables without a comment are ignored.

A cell has changed if a number in it differs by more than `--tolerance` percent, or other text differs. The exit status
is 1 if a cell has changed, the command failed, or a table or row is missing in its output; 0 otherwise. `--write` puts
the printed rows in the page's place, command by command; rows that only one of the two has stay as they are. `--only`
runs the commands that contain the text. `--also` adds arguments to each that do not change what is printed (`--jobs
1`), `--narrow` such as leave rows out (`--only 13B`): then rows of the page that are not printed are not missed, and
tables that sum up all that a command runs, marked `<!-- table, whole: ... -->`, are skipped. Nothing is kept between
two runs. An interrupted one leaves the page as the last whole command left it (exit status 130).
"""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMENT = re.compile(
    r'^<!--\s*table(?P<title>\s+"[^"]*")?(?P<whole>,\s*whole)?(?:,\s*needs\s+(?P<needs>[^:]*))?\s*:'
    r"\s*(?P<command>.*?)\s*-->",
    re.S | re.M,
)
LOOKS_LIKE = re.compile(r"^<!--\s*table\b(?!\s*-->)", re.M)  # not the place of a table written by a program
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


class PageError(Exception):
    pass


class Table:
    """A Markdown table: header, rule, rows."""

    def __init__(self, lines, at=0, title=""):
        self.at, self.title = at, title  # line of the header, from 0; the last line of text before it
        self.header, *rows = [cells_of(line) for line in (lines[0], *lines[2:])]
        self.rows = rows

    def keyed(self, cells):
        return {tuple(row[:cells]): row for row in self.rows}

    def key_cells(self):
        """The smallest number of first cells that distinguishes all rows."""
        for cells in range(1, len(self.header)):
            if len(self.keyed(cells)) == len(self.rows):
                return cells
        raise PageError(f"two rows of the table | {' | '.join(self.header)} | are the same")


def cells_of(line):
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def tables_in(lines):
    """Every table in a Markdown text."""
    tables, title, at = [], "", 0
    while at < len(lines):
        line = lines[at].strip()
        if line.startswith("|") and at + 1 < len(lines) and re.fullmatch(r"\|[-: |]+", lines[at + 1].strip()):
            end = at
            while end < len(lines) and lines[end].strip().startswith("|"):
                end += 1
            tables.append(Table(lines[at:end], at, title))
            at = end
            continue
        if line:
            title = line
        at += 1
    return tables


class Link:
    def __init__(self, where, command, match, table):
        self.where, self.command, self.table = where, command, table
        self.title = (match["title"] or "").strip().strip('"')
        self.whole, self.needs = match["whole"] is not None, match["needs"]


def links_of(path):
    """The tables of a page with a command."""
    text = path.read_text()
    lines = text.splitlines()
    tables = {table.at: table for table in tables_in(lines)}
    links = []
    found = list(COMMENT.finditer(text))
    known = {match.start() for match in found}
    for match in LOOKS_LIKE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match.start() not in known:
            raise PageError(f"{path}:{line}: this comment is no '<!-- table: COMMAND -->'")
    for match in found:
        line = text.count("\n", 0, match.start()) + 1
        after = text.count("\n", 0, match.end()) + 1
        if after not in tables:
            raise PageError(f"{path}:{line}: no table begins on the line after this comment")
        command = " ".join(match["command"].split())
        if not command:
            raise PageError(f"{path}:{line}: this comment names no command")
        script = ROOT / command.split()[0]
        if not match["needs"] and not script.is_file():
            raise PageError(f"{path}:{line}: there is no {command.split()[0]} in this repository")
        links.append(Link(f"{path}:{line}", command, match, tables[after]))
    return links


def arguments_of(command, args):
    script, *rest = shlex.split(command)
    return [str(ROOT / script), str(args.tactus), *rest, *shlex.split(args.also), *shlex.split(args.narrow)]


def run(arguments):
    """A command's standard output; its progress goes to our standard error. The command and its children end with this
    program."""
    child = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        printed = child.communicate()[0]
    except BaseException:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise
    if child.returncode != 0:
        raise PageError(f"exit status {child.returncode}")
    return printed


def printed_for(link, tables):
    same = [table for table in tables if table.header == link.table.header and link.title in table.title]
    if len(same) == 1:
        return same[0]
    header = f"| {' | '.join(link.table.header)} |"
    if not same:
        printed = "; ".join(f"| {' | '.join(table.header)} |" for table in tables) or "none"
        raise PageError(f"it prints no table with the header {header}; it prints: {printed}")
    raise PageError(
        f'it prints {len(same)} tables with the header {header}: name one as <!-- table "TITLE": ... -->; their '
        "titles: " + "; ".join(table.title for table in same)
    )


def moved(old, new, tolerance):
    """None if the cell is unchanged, else the largest change of its numbers."""
    if old == new:
        return None
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return "other text"
    most = 0.0
    for a, b in zip(NUMBER.findall(old), NUMBER.findall(new)):
        a, b = float(a.replace(",", "")), float(b.replace(",", ""))
        change = 0.0 if a == b else float("inf") if a == 0 else 100 * (b - a) / abs(a)
        most = max(most, change, key=abs)
    return f"{most:+.1f} %" if abs(most) > tolerance else None


def compare(link, printed, tolerance, partly):
    """Messages about changes, and the page's rows by key with their new contents."""
    said, new_rows = [], {}
    cells = link.table.key_cells()
    for key, row in link.table.keyed(cells).items():
        name = ", ".join(key)
        found = [now for now in printed.rows if tuple(now[:cells]) == key]
        if not found:
            if not partly:
                said.append(f"{link.where}: {name}: this row is not printed any more")
            continue
        if len(found) > 1:
            raise PageError(
                f"it prints {len(found)} rows that begin with | {' | '.join(key)} |, and the page has one: "
                f"{'; '.join('| ' + ' | '.join(now) + ' |' for now in found)}. Put each of them on the page, with "
                "first cells that differ"
            )
        new_rows[key] = found[0]
        for column, old, new in zip(link.table.header, row, found[0]):
            change = moved(old, new, tolerance)
            if change:
                said.append(f"{link.where}: {name} | {column}: {old} -> {new} ({change})")
    if not new_rows:
        raise PageError("no row of the page is printed")
    return said, new_rows


def write(path, link, new_rows):
    """Writes the printed rows in place; the file is complete at any time."""
    lines = path.read_text().splitlines()
    cells = link.table.key_cells()
    for i, row in enumerate(link.table.rows):
        if (new := new_rows.get(tuple(row[:cells]))) and new != row:
            # An empty cell is a space.
            lines[link.table.at + 2 + i] = "|" + "".join(f" {cell} |" if cell else " |" for cell in new)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("\n".join(lines) + "\n")
    os.replace(fresh, path)


def parse_arguments():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("pages", nargs="+", type=pathlib.Path, metavar="PAGE.md")
    parse.add_argument("--tactus", type=pathlib.Path, default=ROOT / "build/release/tactus")
    parse.add_argument("--tolerance", type=float, default=1, help="percent by which a number may differ")
    parse.add_argument("--only", default="", help="commands that contain this text")
    parse.add_argument("--also", default="", help="arguments added to each command")
    parse.add_argument("--narrow", default="", help="the same, for arguments with which fewer rows are printed")
    parse.add_argument("--needing", help="also the commands whose need contains this text")
    parse.add_argument("--write", action="store_true", help="replace the page's rows by the printed ones")
    parse.add_argument("--list", action="store_true", help="print the commands without running them")
    args = parse.parse_args()
    args.tactus = args.tactus.resolve()
    if args.tolerance < 0:
        parse.error(f"--tolerance {args.tolerance:g}: percent, at least 0")
    for page in args.pages:
        if not page.is_file():
            parse.error(f"{page}: no such page")
    return args


def look_at(page, args):
    """The number of changed cells and failed tables."""
    links = [link for link in links_of(page) if args.only in link.command]
    if not links:
        raise PageError(f"{page}: no table names {'a command' if not args.only else repr(args.only)}")
    for link in links:
        if args.needing and link.needs and args.needing in link.needs:
            link.needs = None
        if link.whole and args.narrow and not link.needs:
            link.needs = "all that its command runs, and --narrow leaves some out"
    wrong = 0
    commands = list(dict.fromkeys(link.command for link in links if not link.needs))
    for link in links:
        if link.needs:
            print(f"{link.where}: skipped, needs {link.needs}: {link.command}")
    for number, command in enumerate(commands, 1):
        print(f"{page}, {number} of {len(commands)}: {command}", file=sys.stderr, flush=True)
        if args.list:
            continue
        began = time.monotonic()
        of_command = [link for link in links if link.command == command and not link.needs]
        try:
            tables = tables_in(run(arguments_of(command, args)).splitlines())
        except (PageError, OSError) as error:
            print(f"{of_command[0].where}: {command}: {error}")
            wrong += 1
            continue
        for link in of_command:
            try:
                said, new_rows = compare(link, printed_for(link, tables), args.tolerance, bool(args.narrow))
            except PageError as error:
                print(f"{link.where}: {command}: {error}")
                wrong += 1
                continue
            for line in said:
                print(line)
            wrong += len(said)
            stands = f"{len(said)} moved" if said else f"all within {args.tolerance:g} %"
            print(f"{link.where}: {len(new_rows)} of {len(link.table.rows)} rows printed, {stands}", flush=True)
            if args.write:
                write(page, link, new_rows)
        print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return wrong


def main():
    args = parse_arguments()
    # A plain `kill` also ends the running command.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wrong = 0
    try:
        for page in args.pages:
            wrong += look_at(page, args)
    except PageError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("interrupted; pages are as the last whole command left them", file=sys.stderr)
        return 130
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
