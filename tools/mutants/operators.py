"""The small bugs: the rewriting of a piece of code by each operator. No parser here: callers pass the pieces.

Each function returns (mutated, instrumented): the code while the mutant is on, and code with both versions behind the
switch.
"""

from __future__ import annotations

import re

from mutation_site import ON

Rewriting = tuple[str, str]

SWAPPED = {
    "<": ("boundary", "<="),
    "<=": ("boundary", "<"),
    ">": ("boundary", ">="),
    ">=": ("boundary", ">"),
    "==": ("equality", "!="),
    "!=": ("equality", "=="),
    "+": ("arithmetic", "-"),
    "-": ("arithmetic", "+"),
    "&&": ("logical", "||"),
    "||": ("logical", "&&"),
}
SWAPPED_ASSIGNMENT = {"+=": "-=", "-=": "+="}
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)")
# Removing these changes only speed or nothing: such a mutant is equivalent by construction.
_NO_EFFECT = re.compile(
    r"(\.|->|::|\b)(reserve|shrink_to_fit|move|madvise|prefetch|__builtin_prefetch|yield|pause)\s*\("
)


def swap_binary(left: str, operator: str, right: str) -> Rewriting:
    mutated = f"{left} {SWAPPED[operator][1]} {right}"
    return mutated, f"({ON} ? {mutated} : {left} {operator} {right})"


def swap_assignment(left: str, operator: str, right: str) -> Rewriting:
    mutated = f"{left} {SWAPPED_ASSIGNMENT[operator]} {right}"
    return mutated, f"({ON} ? ({mutated}) : ({left} {operator} {right}))"


def negate(condition: str) -> Rewriting:
    return f"!({condition})", f"({ON} != static_cast<bool>({condition}))"


def never(condition: str) -> Rewriting:
    """Removes the early exit after the condition; the condition is still evaluated."""
    return "false", f"(static_cast<bool>({condition}) && !{ON})"


def off_by_one(literal: str) -> Rewriting | None:
    match = _INTEGER.fullmatch(literal)
    if match is None:
        return None
    digits = match.group(1).replace("'", "")
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        return None  # octal: file modes
    value = int(digits, 0) + 1
    larger = (hex(value) if digits[:2].lower() == "0x" else str(value)) + match.group(2)
    return larger, f"({ON} ? {larger} : {literal})"


def swap_bool(literal: str) -> Rewriting:
    return ("false", f"(!{ON})") if literal == "true" else ("true", f"({ON})")


def swap_min_max(call: str) -> Rewriting | None:
    match = re.match(r"std::(min|max)\b", call)
    if match is None:
        return None
    mutated = ("std::max" if match.group(1) == "min" else "std::min") + call[match.end() :]
    return mutated, f"({ON} ? {mutated} : {call})"


def leave_out(statement: str) -> Rewriting | None:
    """Removes `statement`, given without its semicolon."""
    if _NO_EFFECT.search(statement.split("(", 1)[0] + "(") or statement.startswith(("(void)", "static_cast<void>")):
        return None
    return "", f"{{ if (!{ON}) {statement}; }}"
