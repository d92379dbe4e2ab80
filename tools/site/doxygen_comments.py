#!/usr/bin/env python3
"""Prints a header with its plain comments in Doxygen's form: a comment above a declaration or behind it describes it,
the first one the file. tools/site/Doxyfile names this as the filter of its input.
"""

import pathlib
import re
import sys

BEHIND = re.compile(r'^(\s*(?:[^\s/"]|"(?:[^"\\]|\\.)*"|/(?!/)|\s)*?[;,{}])(\s+)//\s?(.*)$')
FORWARD = re.compile(r"^\s*(?:class|struct) \w+;")  # a comment behind it would go to the next class
ABOVE = re.compile(r"^(\s*)//\s?(.*)$")


def escaped(text):
    """A comment's text without what Doxygen takes for a command, a tag or a link."""
    parts = re.split(r"(`[^`]*`)", text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\@<>#&])", r"\\\1", parts[at]).replace("--", r"\--")
    return "".join(parts)


def in_doxygens_form(text, name):
    """The lines of a header. `name`: of its file."""
    lines, behind_at, is_code = [], -1, False
    for number, line in enumerate(text.splitlines()):
        if match := ABOVE.match(line):
            begin, comment = match.groups()
            mark = "///<" if len(begin) == behind_at else "///"
            if comment.startswith("  ") != is_code and mark == "///":  # an example, indented
                is_code = not is_code
                lines.append(f"{begin}/// {'@code{.cpp}' if is_code else '@endcode'}")
            if number == 0:
                lines.append(f"/// @file {name}")
            lines.append(f"{begin}{mark} {comment if is_code else escaped(comment)}".rstrip())
            continue
        if is_code:
            lines.append("/// @endcode")
            is_code = False
        match = None if FORWARD.match(line) else BEHIND.match(line)
        behind_at = len(match.group(1) + match.group(2)) if match else -1
        lines.append(f"{match.group(1)}{match.group(2)}///< {escaped(match.group(3))}" if match else line)
    return lines


if __name__ == "__main__":
    source = pathlib.Path(sys.argv[1])
    print("\n".join(in_doxygens_form(source.read_text(encoding="utf-8"), source.name)))
