"""Finds the sites of one translation unit with libclang: code to which an operator applies.

Excluded: constexpr and consteval functions, constants, static_assert, case labels, array bounds, template arguments,
default arguments, macro calls, assembly, and full expressions with co_await.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path

import cpp_text
import operators
from clang import cindex
from clang.cindex import Cursor, CursorKind, TypeKind
from mutation_site import Site

_FUNCTIONS = {
    CursorKind.FUNCTION_DECL,
    CursorKind.CXX_METHOD,
    CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION,
    CursorKind.FUNCTION_TEMPLATE,
}
_SCOPES = {
    CursorKind.NAMESPACE,
    CursorKind.CLASS_DECL,
    CursorKind.STRUCT_DECL,
    CursorKind.CLASS_TEMPLATE,
    CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
    CursorKind.LINKAGE_SPEC,
    CursorKind.UNEXPOSED_DECL,
}
_CLOSED = {
    CursorKind.STATIC_ASSERT,
    CursorKind.PARM_DECL,
    CursorKind.FIELD_DECL,
    CursorKind.ENUM_DECL,
    CursorKind.ASM_STMT,
    CursorKind.MS_ASM_STMT,
    CursorKind.TYPE_REF,
    CursorKind.TEMPLATE_REF,
    CursorKind.TYPEDEF_DECL,
    CursorKind.TYPE_ALIAS_DECL,
    CursorKind.DECL_REF_EXPR,
    CursorKind.CXX_UNARY_EXPR,
    CursorKind.STRING_LITERAL,
    CursorKind.ANNOTATE_ATTR,
}
_EXITS = {CursorKind.RETURN_STMT, CursorKind.CONTINUE_STMT, CursorKind.BREAK_STMT}
_POINTERS = {
    TypeKind.POINTER,
    TypeKind.CONSTANTARRAY,
    TypeKind.INCOMPLETEARRAY,
    TypeKind.VARIABLEARRAY,
    TypeKind.NULLPTR,
}
_CONSTANT = re.compile(r"\b(constexpr|constinit|consteval|static|thread_local)\b")
_SHARED_TEXT = re.compile(r"//|/\*|#")  # code that a rewriting duplicates must contain neither


class SourceText:
    """One file with its text and excluded ranges."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.text = path.read_bytes().decode("latin-1")
        self.blanked = cpp_text.blank(self.text)
        self._macros = cpp_text.macro_ranges(self.blanked)

    def open_to_change(self, begin: int, end: int) -> bool:
        if any(begin < last and first < end for first, last in self._macros):
            return False
        return "co_" not in cpp_text.full_expression(self.blanked, begin, end)


class _Finder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, SourceText | None] = {}
        self.sites: list[Site] = []

    def _source(self, path: str) -> SourceText | None:
        if path not in self._files:
            source = None
            full = Path(path).resolve()
            if full.is_relative_to(self._root / "src") and full.suffix in (".cc", ".h"):
                source = SourceText(full, str(full.relative_to(self._root)))
            self._files[path] = source
        return self._files[path]

    def declarations(self, cursor: Cursor) -> None:
        for child in cursor.get_children():
            if child.location.file is None:
                continue
            source = self._source(child.location.file.name)
            if source is None:
                continue
            if child.kind in _FUNCTIONS:
                self._function(child, source)
            elif child.kind in _SCOPES:
                self.declarations(child)

    def _function(self, function: Cursor, source: SourceText) -> None:
        children = list(function.get_children())
        if not children or children[-1].kind != CursorKind.COMPOUND_STMT:
            return
        body = children[-1]
        head = source.blanked[function.extent.start.offset : body.extent.start.offset]
        whole = source.blanked[function.extent.start.offset : body.extent.end.offset]
        if re.search(r"\b(constexpr|consteval)\b", head) or re.search(r"\b(__asm__|asm)\b", whole):
            return
        walk = _Body(source, _qualified(function), function.result_type.get_canonical().kind == TypeKind.BOOL)
        for child in children:
            if child.kind.is_expression() or child is body:
                walk.visit(child)
        self.sites += walk.sites


def _qualified(cursor: Cursor) -> str:
    names = []
    while cursor is not None and cursor.kind != CursorKind.TRANSLATION_UNIT:
        if cursor.spelling and cursor.kind != CursorKind.LINKAGE_SPEC:
            names.append(cursor.spelling)
        cursor = cursor.semantic_parent
    return "::".join(reversed(names)).removeprefix("tactus::")


class _Body:
    """Walks one function's body."""

    def __init__(self, source: SourceText, function: str, returns_bool: bool) -> None:
        self._source = source
        self._function = function
        self._returns_bool = returns_bool
        self.sites: list[Site] = []

    def _code(self, cursor: Cursor) -> str:
        return self._source.text[cursor.extent.start.offset : cursor.extent.end.offset]

    def _add(
        self, operator: str, begin: int, end: int, rewriting: operators.Rewriting | None, once: bool = False
    ) -> None:
        """`once`: the rewriting contains the code once, so that comments in it keep their places."""
        original = self._source.text[begin:end]
        if rewriting is None or not original or not self._source.open_to_change(begin, end):
            return
        if not once and _SHARED_TEXT.search(original):
            return
        mutated, instrumented = rewriting
        if not once:  # the second copy is written in one line, so that line numbers stay the same
            instrumented = cpp_text.one_line(instrumented) + "\n" * original.count("\n")
        line = self._source.text.count("\n", 0, begin) + 1
        self.sites.append(
            Site(
                self._source.name,
                self._function,
                operator,
                begin,
                end,
                line,
                cpp_text.one_line(original),
                cpp_text.one_line(mutated),
                instrumented,
            )
        )

    def visit(self, cursor: Cursor) -> None:
        kind = cursor.kind
        if kind in _CLOSED:
            return
        children = list(cursor.get_children())
        if kind == CursorKind.VAR_DECL:
            head = self._source.blanked[cursor.extent.start.offset : cursor.location.offset]
            if _CONSTANT.search(head) or re.match(r"k[A-Z]", cursor.spelling):
                return
            children = [c for c in children if not self._is_type_part(cursor, c)]
        elif kind == CursorKind.CASE_STMT:
            children = children[1:]
        elif kind == CursorKind.IF_STMT:
            children = self._if(cursor, children)
        elif kind == CursorKind.CONDITIONAL_OPERATOR:
            self._negate(children[0])
        elif kind == CursorKind.BINARY_OPERATOR:
            self._binary(cursor, children)
        elif kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
            self._binary(cursor, children)
        elif kind == CursorKind.INTEGER_LITERAL:
            self._literal(cursor)
        elif kind == CursorKind.CXX_BOOL_LITERAL_EXPR:
            code = self._code(cursor)
            if code in ("true", "false"):
                self._add("bool", cursor.extent.start.offset, cursor.extent.end.offset, operators.swap_bool(code))
        elif kind == CursorKind.CALL_EXPR:
            code = self._code(cursor)
            self._add("min_max", cursor.extent.start.offset, cursor.extent.end.offset, operators.swap_min_max(code))
        elif kind == CursorKind.RETURN_STMT and children and self._returns_bool:
            self._returned_bool(children[0])
        elif kind == CursorKind.INIT_LIST_EXPR:
            children = [c for c in children if c.kind != CursorKind.INTEGER_LITERAL]  # a narrowed sum would not compile
        elif kind == CursorKind.LAMBDA_EXPR:
            outer, self._returns_bool = self._returns_bool, False
            for child in children:
                self.visit(child)
            self._returns_bool = outer
            return
        if kind == CursorKind.COMPOUND_STMT:
            for child in children:
                self._statement(child)
        elif (
            kind in (CursorKind.IF_STMT, CursorKind.FOR_STMT, CursorKind.CXX_FOR_RANGE_STMT, CursorKind.WHILE_STMT)
            and children
        ):
            if kind != CursorKind.IF_STMT:
                self._statement(children[-1])
        for child in children:
            self.visit(child)

    def _is_type_part(self, declaration: Cursor, child: Cursor) -> bool:
        """Template arguments come before the name, array bounds in brackets after it."""
        if child.extent.start.offset < declaration.location.offset:
            return True
        between = self._source.blanked[declaration.location.offset : child.extent.start.offset]
        return between.count("[") > between.count("]")

    def _if(self, cursor: Cursor, children: list[Cursor]) -> list[Cursor]:
        condition = children[0]
        opening = self._source.blanked[cursor.extent.start.offset : condition.extent.start.offset]
        if "constexpr" in opening:
            for branch in children[1:]:
                self._statement(branch)
            return children[1:]
        if ";" in opening or not condition.kind.is_expression() or len(children) not in (2, 3):
            return children
        for branch in children[1:]:
            self._statement(branch)
        self._negate(condition)
        body = children[1]
        if body.kind == CursorKind.COMPOUND_STMT:
            inside = list(body.get_children())
            body = inside[0] if len(inside) == 1 else body
        if len(children) == 2 and body.kind in _EXITS:
            code = self._code(condition)
            self._add(
                "early_exit",
                condition.extent.start.offset,
                condition.extent.end.offset,
                operators.never(code),
                once=True,
            )
        return children

    def _negate(self, condition: Cursor) -> None:
        code = self._code(condition)
        self._add(
            "condition", condition.extent.start.offset, condition.extent.end.offset, operators.negate(code), once=True
        )

    def _returned_bool(self, value: Cursor) -> None:
        code = self._code(value)
        if code not in ("true", "false"):
            self._add("return", value.extent.start.offset, value.extent.end.offset, operators.negate(code), once=True)

    def _literal(self, cursor: Cursor) -> None:
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        if self._source.blanked[end : end + 8].lstrip().startswith(">"):
            return  # a template argument
        self._add("constant", begin, end, operators.off_by_one(self._code(cursor)))

    def _binary(self, cursor: Cursor, children: list[Cursor]) -> None:
        if len(children) != 2:
            return
        left, right = children
        between = self._source.blanked[left.extent.end.offset : right.extent.start.offset].strip()
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        if between in operators.SWAPPED:
            pointers = left.type.get_canonical().kind in _POINTERS or right.type.get_canonical().kind in _POINTERS
            if between in "+-" and pointers:
                return
            rewriting = operators.swap_binary(self._code(left), between, self._code(right))
            self._add(operators.SWAPPED[between][0], begin, end, rewriting)
        elif between in operators.SWAPPED_ASSIGNMENT:
            self._add("assignment", begin, end, operators.swap_assignment(self._code(left), between, self._code(right)))

    def _statement(self, cursor: Cursor) -> None:
        """Removes an assignment, an increment or a call with an unused result."""
        inner = cursor
        while inner.kind == CursorKind.UNEXPOSED_EXPR:
            nested = list(inner.get_children())
            if len(nested) != 1:
                break
            inner = nested[0]
        code = self._code(cursor)
        if inner.kind == CursorKind.UNARY_OPERATOR:
            fits = code.startswith(("++", "--")) or code.endswith(("++", "--"))
        else:
            fits = inner.kind in (
                CursorKind.CALL_EXPR,
                CursorKind.BINARY_OPERATOR,
                CursorKind.COMPOUND_ASSIGNMENT_OPERATOR,
            )
        end = cursor.extent.end.offset
        semicolon = re.match(r"\s*;", self._source.blanked[end : end + 80])
        if fits and semicolon:
            self._add(
                "statement", cursor.extent.start.offset, end + semicolon.end(), operators.leave_out(code), once=True
            )


def builtin_headers() -> list[str]:
    """The compiler's own headers (stddef.h and the like); the libclang package has none."""
    return sorted(glob.glob("/usr/lib/gcc/*/*/include"))[-1:]


def sites_of(root: Path, arguments: list[str], file: Path) -> tuple[list[Site], list[str]]:
    """Every site of the translation unit `file` and of the headers of src/ that it includes; and the names of these
    files."""
    root = root.resolve()
    for folder in builtin_headers():
        arguments = [*arguments, "-idirafter", folder]
    unit = cindex.Index.create().parse(str(file), args=arguments)
    finder = _Finder(root)
    finder.declarations(unit.cursor)
    included = {Path(inclusion.include.name).resolve() for inclusion in unit.get_includes()} | {file.resolve()}
    return finder.sites, sorted(str(path.relative_to(root)) for path in included if path.is_relative_to(root))
