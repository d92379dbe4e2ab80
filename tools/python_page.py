#!/usr/bin/env python3
"""Makes docs/reference/python_api.md from the signatures and docstrings of python/tactus.

    tools/python_page.py           prints the page
    tools/python_page.py --write   writes it

The rule `generated-pages` of tests/lint/lint.py fails while the page differs, and so does a public name, or a parameter
of a public class, without a description.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python/tactus"
PAGE = ROOT / "docs/reference/python_api.md"
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
# The order of the page; each group has the public names of these modules.
GROUPS = {
    "Generation": ("llm", "async_llm"),
    "Parameters": ("sampling_params",),
    "Answers": ("outputs",),
    "Simulation and planning": ("simulation", "planning"),
    "On a Ray cluster": ("ray",),
    "Errors": ("errors",),
}
INTRODUCTION = """\
Every public name of the package `tactus`, with parameters, types, defaults and errors.
[The guide](../how-to/python.md) shows how to install and use it.

This page is generated from the sources in `python/tactus` (`tools/python_page.py --write`).
"""


def module(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))


def exported() -> set[str]:
    """The names of `__all__`."""
    for node in module("__init__").body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise ValueError("python/tactus/__init__.py: there is no __all__")


def aliases() -> dict[str, tuple[str, str]]:
    """{name: (type, comment)} of every name that stands for a type in signatures."""
    found = {}
    for path in sorted(PACKAGE.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            name = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "")
            if not name or not re.fullmatch(r"[A-Z][a-z]\w+", name):
                continue
            above = re.fullmatch(r"# (.*)", lines[node.lineno - 2])
            behind = re.search(r"  # (.*)$", lines[node.end_lineno - 1])
            comment = behind or above
            found[name] = (union(node.value), comment.group(1) if comment else "")
    return found


def union(node: ast.expr) -> str:
    """A type as annotations write it: `A | B` for Union[A, B]."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Union":
        return " | ".join(ast.unparse(part) for part in node.slice.elts)
    return ast.unparse(node)


def plain(text: str) -> str:
    """Docstring marks as Markdown: ``x`` and :meth:`x` as `x`."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")


def parsed(doc: str) -> tuple[str, dict[str, str]]:
    """The text before the sections of a docstring, and the body of each section."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", doc, flags=re.M)
    return parts[0].strip(), {name: textwrap.dedent(body).strip() for name, body in zip(parts[1::2], parts[2::2])}


def entries(body: str) -> list[tuple[str, str]]:
    """(name, description) of the entries of a section; a paragraph without a name has an empty one."""
    found: list[tuple[str, str]] = []
    for line in body.splitlines():
        match = re.match(r"([\w.]+): (.*)", line)
        if match:
            found.append((match.group(1), match.group(2)))
        elif line.startswith(" ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            previous = found.pop()[1] + " " if found and not found[-1][0] else ""
            found.append(("", previous + line.strip()))
    return found


def cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{cell(text)}`" if text else ""


def prose(text: str) -> str:
    """Paragraphs wrapped at the page's width; an indented block is code."""
    paragraphs = []
    for part in re.split(r"\n\s*\n", text):
        if part.startswith("    "):
            paragraphs.append("```python\n" + textwrap.dedent(part) + "\n```")
        else:
            line = re.sub(r"::$", ":", plain(" ".join(part.split())))
            paragraphs.append(textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(paragraphs)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, tuple[str, str]]:
    """{name: (type, default)} of a function; * and ** stay in front of the name."""
    given, found = function.args, {}

    def add(arg: ast.arg, default: ast.expr | None, mark: str = "") -> None:
        kind = ast.unparse(arg.annotation) if arg.annotation else ""
        found[mark + arg.arg] = (kind, ast.unparse(default) if default else "")

    places = [*given.posonlyargs, *given.args]
    for arg, default in zip(places, [None] * (len(places) - len(given.defaults)) + list(given.defaults)):
        if arg.arg not in ("self", "cls"):
            add(arg, default)
    if given.vararg:
        add(given.vararg, None, "*")
    for arg, default in zip(given.kwonlyargs, given.kw_defaults):
        add(arg, default)
    if given.kwarg:
        add(given.kwarg, None, "**")
    return found


def signature(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> str:
    """The call as a block of code; one parameter per line if it is long."""
    given, shown = parameters(function) if function else {}, []
    named_only = {arg.arg for arg in function.args.kwonlyargs} if function else set()
    for parameter, (_, default) in given.items():
        if parameter in named_only and "*" not in shown:
            shown.append("*")
        shown.append(parameter + (f"={default}" if default else ""))
    constructor = function is None or function.name == "__init__"
    result = "" if constructor or not function.returns else f" -> {ast.unparse(function.returns)}"
    begin = "await " if isinstance(function, ast.AsyncFunctionDef) and "Iterator" not in result else ""
    line = f"{begin}{name}({', '.join(shown)}){result}"
    if len(line) > 110:
        lines = "".join(f"    {part},\n" for part in shown)
        line = f"{begin}{name}(\n{lines}){result}"
    return f"```python\n{line}\n```"


def table(title: str, kinds: dict[str, tuple[str, str]], described: dict[str, str]) -> str:
    defaults = any(default for _, default in kinds.values())
    lines = [f"| {title} | type | {'default | ' if defaults else ''}|", "|---|---|---|" + ("---|" if defaults else "")]
    for name, (kind, default) in kinds.items():
        middle = f"{code(default)} | " if defaults else ""
        lines.append(f"| `{name}` | {code(kind)} | {middle}{cell(described.get(name.lstrip('*'), ''))} |")
    return "\n".join(lines)


def errors(body: str) -> str:
    if all(not name for name, _ in entries(body)):
        return "Raises: " + prose(body[0].lower() + body[1:])
    lines = ["| raises | when |", "|---|---|"]
    return "\n".join([*lines, *(f"| {code(name)} | {cell(text)} |" for name, text in entries(body))])


def fields(node: ast.ClassDef) -> dict[str, tuple[str, str]]:
    """{name: (type, default)} of a dataclass."""
    found = {}
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            default = ast.unparse(part.value) if part.value else ""
            default = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", default)
            found[part.target.id] = (ast.unparse(part.annotation), default)
    return found


def described(place: str, doc: str | None, kinds: dict[str, tuple[str, str]]) -> list[str]:
    """The text of a docstring with its tables. Every parameter must have a description."""
    if not doc:
        raise ValueError(f"{place} has no docstring")
    text, sections = parsed(doc)
    about = dict(entries(sections.get("Args", sections.get("Attributes", ""))))
    kinds = {name: kind for name, kind in kinds.items() if name != "**unknown"}  # collects names that are refused
    missing = {name for name in kinds if name.lstrip("*") not in about}
    if missing and not about and re.search(r"\b([Ll]ike|[Ss]ee|As) :\w+:`", doc):  # another name's docstring has them
        kinds, missing = {}, set()
    if missing:
        raise ValueError(f"{place} does not describe {', '.join(sorted(missing))}")
    if unknown := set(about) - {name.lstrip("*") for name in kinds} - {""}:
        if "Args" in sections or kinds:
            raise ValueError(f"{place} describes {', '.join(sorted(unknown))}, which it does not have")
        kinds = {name: ("", "") for name in about}
    parts = [prose(text)]
    if kinds:
        parts.append(table("parameter" if "Args" in sections or not about else "attribute", kinds, about))
    for name in ("Returns", "Yields"):
        if name in sections:
            parts.append(f"{name}: " + prose(sections[name]))
    if "Raises" in sections:
        parts.append(errors(sections["Raises"]))
    return parts


def class_text(node: ast.ClassDef) -> list[str]:
    functions = [
        part
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(ast.unparse(mark) == "overload" for mark in part.decorator_list)
    ]
    made = next((part for part in functions if part.name == "__init__"), None)
    doc = ast.get_docstring(node)
    is_data = any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
    bases = [ast.unparse(base) for base in node.bases]
    is_error = any(base.endswith("Error") or base == "Exception" for base in bases)
    kinds = parameters(made) if made and not is_error else fields(node) if is_data else {}
    parts = [f"### {node.name}"]
    if made and not is_error and "Args:" in (doc or ""):
        parts.append(signature(node.name, made))
    elif bases and is_error:
        parts.append(f"Bases: {', '.join(f'`{base}`' for base in bases)}.")
    internal = "Args:" not in (doc or "") and not is_data  # made by the package alone
    parts += described(node.name, doc, {} if internal else kinds)
    for part in functions:
        if part.name.startswith("_"):
            continue
        if not ast.get_docstring(part):
            raise ValueError(f"{node.name}.{part.name} has no docstring")
        is_property = any(ast.unparse(mark) == "property" for mark in part.decorator_list)
        parts.append(f"#### {node.name}.{part.name}")
        owner = node.name[0].lower() + node.name[1:] if not node.name.isupper() else node.name.lower()
        if is_property:
            parts.append(f"```python\n{owner}.{part.name}: {ast.unparse(part.returns)}\n```")
            parts += described(f"{node.name}.{part.name}", ast.get_docstring(part), {})
        else:
            static = any(ast.unparse(mark) in ("staticmethod", "classmethod") for mark in part.decorator_list)
            parts.append(signature(f"{node.name if static else owner}.{part.name}", part))
            parts += described(f"{node.name}.{part.name}", ast.get_docstring(part), parameters(part))
    return parts


def page() -> str:
    public, known, parts = exported(), aliases(), ["# The Python API", INTRODUCTION.strip()]
    seen = set()
    for title, modules in GROUPS.items():
        parts.append(f"## {title}")
        for name in modules:
            tree = module(name)
            if name == "ray":
                parts.append(prose(ast.get_docstring(tree) or ""))
            for node in tree.body:
                if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if node.name not in public and (name != "ray" or node.name.startswith("_")):
                    continue
                seen.add(node.name)
                if isinstance(node, ast.ClassDef):
                    parts += class_text(node)
                else:
                    parts += [f"### {node.name}", signature(node.name, node)]
                    parts += described(node.name, ast.get_docstring(node), parameters(node))
    text = "\n\n".join(parts)
    used, before = set(), None
    while used != before:
        before = set(used)
        where = text + " ".join(known[name][0] for name in used)
        used = {name for name in known if re.search(rf"\b{name}\b", where)}
    rows = ["| name | type | |", "|---|---|---|"]
    rows += [f"| `{name}` | {code(known[name][0])} | {cell(known[name][1])} |" for name in sorted(used)]
    text += "\n\n## Names of types\n\nSignatures name these types:\n\n" + "\n".join(rows)
    if missing := public - seen - set(known) - {"__version__"}:
        raise ValueError(f"no group of tools/python_page.py has {', '.join(sorted(missing))}")
    return text + "\n"


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
