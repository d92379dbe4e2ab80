"""Lexical analysis of C++ text without a parser: comments, strings, macro calls, ends of full expressions.

Texts are bytes read as Latin-1, so that an index is a byte offset, as in libclang.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'",
    re.S,
)
_MACRO_CALL = re.compile(r"\b(?:[A-Z][A-Z0-9]*_[A-Z0-9_]*|[A-Z]{3,}|assert)\s*\(")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


def blank(text: str) -> str:
    """The text with comments and the insides of literals as spaces; lengths and line ends stay."""

    def spaces(match: re.Match[str]) -> str:
        token = match.group()
        keep = 0 if token.startswith("/") else 1
        inner = re.sub(r"[^\n]", " ", token[keep : len(token) - keep])
        return token[:keep] + inner + (token[-keep:] if keep else "")

    return _TOKENS.sub(spaces, text)


def closing(blanked: str, opening: int) -> int:
    """The index of the bracket that closes the one at `opening`; the end of the text if there is none."""
    depth = 0
    for index in range(opening, len(blanked)):
        if blanked[index] in "([{":
            depth += 1
        elif blanked[index] in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return len(blanked)


def macro_ranges(blanked: str) -> list[tuple[int, int]]:
    """Preprocessor lines, and calls of macros from name to closing parenthesis: their contents are not rewritten."""
    ranges = [match.span() for match in _DIRECTIVE.finditer(blanked)]
    for match in _MACRO_CALL.finditer(blanked):
        ranges.append((match.start(), closing(blanked, match.end() - 1) + 1))
    return ranges


def full_expression(blanked: str, begin: int, end: int) -> str:
    """The text around a range up to the next ; { or } on each side."""
    first = max(blanked.rfind(mark, 0, begin) for mark in ";{}") + 1
    ends = [at for at in (blanked.find(mark, end) for mark in ";{}") if at >= 0]
    return blanked[first : min(ends, default=len(blanked))]


def one_line(code: str) -> str:
    return re.sub(r"\s+", " ", code).strip()
