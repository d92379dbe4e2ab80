#!/usr/bin/env python3
"""Makes docs/reference/messages.md, every error message of the programs and of the Python package, from the sources.

    tools/messages_page.py           prints the page
    tools/messages_page.py --write   writes it
    tools/messages_page.py --bare    prints the messages that state neither a value nor a fix, with file and line

A message is the first text of a call that makes a Status (include/tactus/status.h). Values are shown as {name}. Where
a function of the same file adds words around a text, such as `Bad(path, "is empty")`, the whole message is shown. The
rule `generated-pages` of tests/lint/lint.py fails while the page differs.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/messages.md"
KINDS = {
    "InvalidArgument": "invalid",
    "kInvalidArgument": "invalid",
    "Unimplemented": "unsupported",
    "kUnimplemented": "unsupported",
    "NotFound": "not found",
    "kNotFound": "not found",
    "kTooLarge": "too large",
    "DataLoss": "damaged",
    "kDataLoss": "damaged",
    "kResourceExhausted": "exhausted",
    "kTooManyRequests": "too many",
    "kUnavailable": "unavailable",
    "kUnauthenticated": "unauthenticated",
    "kCancelled": "cancelled",
    "kDeadlineExceeded": "deadline",
    "Internal": "internal",
    "kInternal": "internal",
}
MAKER = re.compile(
    r"\b(InvalidArgument|Unimplemented|NotFound|DataLoss|Internal)\(|\bStatus(?:\s+\w+)?\s*[({]\s*StatusCode::(k\w+),\s*"
)
HELPER = re.compile(
    r"(?:\b(?:Status|void|Result<[^;{}()]*>)\s+(?:\w+::)*(\w+)|\bauto\s+(\w+)\s*=\s*\[[^\]]*\]\s*)"
    r"\(([^(){};]*)\)[\w\s>:-]*?(?:->\s*[\w:<>]+\s*)?\{"
)
# Members of one class that other files call: (files that call them, name) and the whole message.
MEMBERS = (
    (re.compile(r"^(compute/config/arch/|compute/config/architecture)"), "Refuse", "{file}: '{key}' {1}", "damaged"),
    (re.compile(r"^api/"), "Refuse", "{field}: not supported; {1}", "unsupported"),
)
SIMPLE = re.compile(
    r"^(?:Printable|Shown|Quoted|std::string|std::string_view|std::move|Escaped|std::to_string)\((.*)\)$", re.S
)
PASSED_ON = re.compile(r"^(?:\{[^{}]*\}|[\s:.])*$")  # words of another message alone
INTRODUCTION = """\
# Messages

Every error message of the programs, the API and the Python package, by the part of the program that makes it. A value
that a message states is shown by its name in the code, as `{port}`; `[a | b]` is one of two texts.

A message states what happened with the value, then the limit or what is possible, then what to do, and names the
option, the field or the file. If one does not, that is an error of this project.

Its kind decides what a caller sees. A command prints `tactus COMMAND: MESSAGE` on standard error.

| kind | exit status | HTTP | exception in Python |
|---|---|---|---|
| invalid | 2; 1 where the model or a file is at fault | 400 | `InvalidArgumentError` |
| unsupported | 1 | 400 | `UnimplementedError` |
| not found | 1 | 404 | `NotFoundError` |
| damaged | 1 | 500 | `DataLossError` |
| too large | 1 | 413 | `InvalidArgumentError` |
| too many | 1 | 429 | `ResourceExhaustedError` |
| exhausted | 1 | 503 | `ResourceExhaustedError` |
| unavailable | 1 | 503 | `UnavailableError` |
| unauthenticated | 1 | 401 | `InternalError` |
| deadline | 1 | 408 | `DeadlineExceededError` |
| cancelled | 1 | 499 (log only) | `CancelledError` |
| internal | 1 | 500 | `InternalError` |

This page is generated from the sources (`tools/messages_page.py --write`). Words that come from libraries and from the
operating system (`{error}`, `{why}`) are not listed.
"""


def end_of(text: str, at: int) -> int:
    """The index after the bracket that closes the one at `at`."""
    depth, quoted = 0, False
    while at < len(text):
        letter = text[at]
        if quoted:
            if letter == "\\":
                at += 1
            elif letter == '"':
                quoted = False
        elif letter == '"':
            quoted = True
        elif letter == "'" and not text[at - 1].isalnum():
            at = text.index("'", at + (2 if text[at + 1] == "\\" else 1) + 0)
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)


def split(text: str, mark: str) -> list[str]:
    """The parts of an expression between the marks that are in no brackets and no quotes."""
    parts, begin, at = [], 0, 0
    while at < len(text):
        if text[at] in "([{":
            at = end_of(text, at)
        elif text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
            at += 1
        elif text[at] == "'" and at + 2 < len(text):
            at = text.index("'", at + (2 if text[at + 1] == "\\" else 1)) + 1
        elif text.startswith(mark, at) and not (mark == ":" and "::" in (text[at : at + 2], text[at - 1 : at + 1])):
            parts.append(text[begin:at].strip())
            at += len(mark)
            begin = at
        else:
            at += 1
    return [*parts, text[begin:].strip()]


def literal(text: str) -> str | None:
    """The text of one or more string literals behind each other; None: it is something else."""
    if not re.fullmatch(r'(?:(?:u8)?"(?:[^"\\]|\\.)*"s?\s*)+', text, flags=re.S):
        return None
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"', text, flags=re.S)
    return "".join(
        re.sub(r"\\(.)", lambda m: {"n": " ", "t": " "}.get(m.group(1), m.group(1)), piece) for piece in pieces
    )


def named(text: str) -> str:
    """A short name for the value of an expression."""
    text = " ".join(text.split())
    while match := SIMPLE.match(text):
        text = split(match.group(1), ",")[0]
    if match := re.fullmatch(r"fmt::join\((.*)\)", text):
        return named(split(match.group(1), ",")[0])
    if match := re.fullmatch(r"(?:\w+(?:\.|->))*(\w+)\.size\(\)", text):
        return "{number of " + match.group(1).strip("_") + "}"
    if match := re.fullmatch(r"std::strerror\(.*\)", text):
        return "{error}"
    text = re.sub(r"^(?:\w+::)*(\w+)\(.*\)$", r"\1", text) if re.fullmatch(r"(?:\w+::)*\w+\(.*\)", text) else text
    text = re.sub(r"\.(?:c_str|string|value|message|ToString|status)\(\)", "", text)
    words = re.findall(r"[A-Za-z]\w*", text)
    return "{" + (words[-1].strip("_") if words else "value") + "}"


def shown(text: str) -> str:
    """What the expression of a message prints."""
    text = text.strip()
    if (found := literal(text)) is not None:
        return found
    if text.startswith("(") and end_of(text, 0) == len(text):
        return shown(text[1:-1])
    parts = split(text, "+")
    if len(parts) > 1 and all(parts):
        return "".join(map(shown, parts))
    condition = split(text, "?")
    if len(condition) == 2 and len(sides := split(condition[1], ":")) == 2:
        first, second = map(shown, sides)
        return f"[{first} | {second}]" if first or second else ""
    if match := re.match(r"(?:fmt::format|Format)\(", text):
        if end_of(text, match.end() - 1) == len(text):
            return formatted(split(text[match.end() : -1], ","))
    if match := re.match(r"std::string(?:_view)?[({]", text):
        if end_of(text, match.end() - 1) == len(text):
            return shown(text[match.end() : -1]) if text[match.end() : -1].strip() else ""
    return named(text)


def formatted(arguments: list[str]) -> str:
    form, values = literal(arguments[0]), arguments[1:]
    if form is None:
        return named(arguments[0])
    form, counter = form.replace("{{", "\0").replace("}}", "\1"), iter(range(99))

    def value(match: re.Match) -> str:
        at = int(match.group(1)) if match.group(1) else next(counter)
        return shown(values[at]) if at < len(values) else "{value}"

    return re.sub(r"\{(\d*)(?::[^{}]*(?:\{\}[^{}]*)?)?\}", value, form).replace("\0", "{").replace("\1", "}")


def without_comments(text: str) -> str:
    """The text with blanks in place of comments; places and lines stay."""
    form = r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"'
    blank = lambda m: m.group() if m.group()[0] == '"' else re.sub(r"[^\n]", " ", m.group())
    return re.sub(form, blank, text, flags=re.S)


def made(text: str, begin: int = 0, end: int | None = None) -> list[tuple[int, str, str]]:
    """(place, kind, message) of the calls that make a Status."""
    found = []
    for match in MAKER.finditer(text, begin, len(text) if end is None else end):
        if text[: match.start()].rstrip().endswith(("Status", "static")):  # a declaration
            continue
        kind = KINDS.get(match.group(1) or match.group(2))
        bracket = text.index("(" if match.group(1) else match.group(0).strip()[-1] == "{" and "{" or "(", match.start())
        if match.group(2):
            bracket = next(at for at in range(match.start(), match.end()) if text[at] in "({")
        arguments = split(text[bracket + 1 : end_of(text, bracket) - 1], ",")
        if match.group(2):
            arguments = arguments[1:]
        if kind and arguments and arguments[0]:
            found.append((match.start(), kind, shown(arguments[0])))
    return found


CONSTANT = re.compile(
    r'\bconstexpr\s+[\w:*\s]+?\s\*?(k[A-Z]\w*)(?:\[\])?\s*=\s*((?:"(?:[^"\\]|\\.)*"\s*)+|[\d\'.]+);', flags=re.S
)


def with_constants(message: str, text: str) -> str:
    """The message with the values of the constants that its file defines by a literal."""
    for name, given in CONSTANT.findall(text) if "{k" in message else ():
        message = message.replace(
            "{" + name + "}", given.replace("'", ",") if (words := literal(given.strip())) is None else words
        )
    return message


class Helper:
    """A function of a file that adds words around a text of its callers."""

    def __init__(self, name: str, parameters: list[str], kind: str, message: str, begin: int, end: int):
        self.name, self.parameters, self.kind, self.message = name, parameters, kind, message
        self.begin, self.end = begin, end

    def of(self, arguments: list[str]) -> str:
        text = self.message
        for parameter, argument in zip(self.parameters, arguments):
            text = text.replace("{" + parameter + "}", shown(argument))
        return text

    def words(self) -> bool:
        """Whether a call says something in a literal."""
        return any("{" + parameter + "}" in self.message for parameter in self.parameters)


def helpers(text: str) -> list[Helper]:
    found = []
    for match in HELPER.finditer(text):
        name, parameters = match.group(1) or match.group(2), match.group(3)
        begin, end = match.end() - 1, end_of(text, match.end() - 1)
        words = [re.findall(r"\w+", part.split("=")[0]) for part in split(parameters, ",")]
        names = [each[-1] for each in words if each]
        texts = {each[-1] for each in words if each and set(each) & {"string", "string_view", "char", "auto"}}
        inside = made(text, begin, end)
        if (
            len(inside) == 1
            and any("{" + one + "}" in inside[0][2] for one in texts)
            and text[begin:end].count("\n") < 12
        ):
            found.append(Helper(name, names, inside[0][1], inside[0][2], begin, end))
    return found


def messages_of(text: str, name: str) -> list[tuple[int, str, str]]:
    """(line, kind, message) of a source's text. `name`: its path below src/."""
    text = without_comments(text)
    own = helpers(text)
    own = [helper for helper in own if called(text, helper)]
    found = [item for item in made(text) if not any(helper.begin <= item[0] < helper.end for helper in own)]
    for helper in own:
        for at, arguments in called(text, helper):
            found.append((at, helper.kind, helper.of(arguments)))
    for files, member, message, kind in MEMBERS:
        if not files.match(name) or any(helper.name == member for helper in own):
            continue
        for match in re.finditer(rf"(?:\.|->){member}\(", text):
            arguments = split(text[match.end() : end_of(text, match.end() - 1) - 1], ",")
            if len(arguments) > 1:
                key = shown(arguments[0])
                whole = message.replace("{1}", shown(arguments[1])).replace("{field}", key)
                found.append((match.start(), kind, whole))
    found = [(at, kind, with_constants(message, text)) for at, kind, message in sorted(found)]
    return [(text[:at].count("\n") + 1, kind, message) for at, kind, message in found if not PASSED_ON.match(message)]


def called(text: str, helper: Helper) -> list[tuple[int, list[str]]]:
    """The calls of a helper outside its own body that have a text."""
    found = []
    for match in re.finditer(rf"(?<![\w:]){helper.name}\(", text):
        if helper.begin - 200 < match.start() < helper.end and text[match.start() : helper.begin].count("\n") < 3:
            continue
        arguments = split(text[match.end() : end_of(text, match.end() - 1) - 1], ",")
        if len(arguments) == len(helper.parameters) and '"' in "".join(arguments):
            found.append((match.start(), arguments))
    return found


def python_messages(path: pathlib.Path) -> list[tuple[int, str, str]]:
    """(line, exception, message) of a module of the package."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if name.endswith("Error") and node.args and isinstance(node.args[0], ast.JoinedStr | ast.Constant):
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else named(ast.unparse(part.value)) for part in parts
            )
            found.append((node.lineno, name, text))
    return sorted(found)


def rooms() -> list[tuple[str, str, str]]:
    """(district, room, description) of src/layers.txt; the room "." of a district has the other files."""
    found, comment, district = [], "", ""
    for line in (ROOT / "src/layers.txt").read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("# "):
            comment = line.strip()[2:]
        elif match := re.match(r"([a-z_]+):", line):
            district = match[1]
            found.append((district, "", comment))
        elif match := re.match(r"  ([a-z_]+|\.):", line):
            found.append((district, match[1], comment))
    return found


def collected() -> dict[str, list[tuple[str, int, str, str]]]:
    """{heading: (file, line, kind, message)}."""
    found: dict[str, list[tuple[str, int, str, str]]] = {}
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        name = path.relative_to(ROOT / "src").as_posix()
        parts = name.split("/")
        heading = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        for line, kind, message in messages_of(path.read_text(encoding="utf-8"), name):
            found.setdefault(heading, []).append((f"src/{name}", line, kind, message))
    for path in sorted((ROOT / "python/tactus").glob("*.py")):
        for line, kind, message in python_messages(path):
            found.setdefault("the package", []).append((f"python/tactus/{path.name}", line, kind, message))
    return found


def page() -> str:
    found, parts = collected(), [INTRODUCTION]
    order = ["cli", "serve", "api", "http", "fleet", "hub", "engine", "offline", "sim", "cost", "compute", "language"]
    headings = sorted(found, key=lambda name: (order.index(d) if (d := name.split("/")[0]) in order else 50, name))
    for heading in headings:
        title = "Python package" if heading == "the package" else f"`src/{heading}`"
        parts.append(f"\n## {title}\n\n| message | kind | made in |\n|---|---|---|")
        rows = {}
        for file, _, kind, message in found[heading]:
            rows[(file, kind, " ".join(message.split()))] = None
        for file, kind, message in rows:
            shown_message = message.replace("|", "\\|").replace("`", "'")
            parts.append(f"| `{shown_message}` | {kind} | {file.rsplit('/', 1)[1]} |")
    return "\n".join(parts) + "\n"


def bare() -> list[str]:
    """Messages with neither a value nor a word about what to do."""
    fix = re.compile(
        r";|\b(give|use|must|at most|at least|limit|needs?|only|supported|possible|known|set|leave|choose|remove|try"
        r"|instead|expected|from \S+ to|is one of|are|possible)\b"
    )
    lines = []
    for rows in collected().values():
        for file, line, kind, message in rows:
            if kind not in ("internal",) and ("{" not in message or not fix.search(message)):
                lines.append(f"{file}:{line}: {kind}: {message}")
    return lines


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif sys.argv[1:] == ["--bare"]:
        print("\n".join(bare()))
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
