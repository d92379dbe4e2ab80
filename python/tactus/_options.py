"""Options named like flags: ``max_num_seqs=64`` is ``--max-num-seqs 64``."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import SupportsFloat, SupportsIndex, Union

from ._check import Array, number, plain, shown, whole, wrong
from .errors import ArgumentTypeError, InvalidArgumentError, TactusError

_ANY = 2**200  # accepted range; the option's real limits are checked elsewhere

OptionScalar = Union[str, bool, SupportsIndex, SupportsFloat, "os.PathLike[str]", "os.PathLike[bytes]"]
OptionValue = Union[OptionScalar, Sequence[OptionScalar], Array, None]


_GIVE = {
    "flag": "True or False",
    "whole": "a whole number",
    "number": "a number",
    "duration": "text with a unit, such as '50ms'",
    "size": "text such as '2GiB', or a number of bytes",
    "name": "a string",
    "path": "a string or a path",
}  # by kind; "text": anything with a text form


def _check(name: str, given: object, kind: str) -> None:
    """Rejects types that can never be valid. The content of texts and the range of numbers are checked with the
    limits."""
    value = plain(given)
    if isinstance(value, str) or kind not in _GIVE:
        return
    if isinstance(value, bool):
        right = kind == "flag"
    elif isinstance(value, os.PathLike):
        right = kind == "path"
    else:
        right = kind not in ("flag", "name", "path")
    if right and kind == "whole":
        whole(name, value, -_ANY, _ANY, _GIVE[kind])
    if not right:
        raise wrong(name, given, _GIVE[kind])


def _text(name: str, given: object, kind: str) -> bytes:
    _check(name, given, kind)
    value = plain(given)
    if isinstance(value, bool):
        return b"on" if value else b"off"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
        if isinstance(value, bytes):
            return _without_nul(name, value)
    if isinstance(value, str):
        try:
            return _without_nul(name, value.encode("utf-8", "surrogateescape"))  # a path may be invalid UTF-8
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"{name}: {value[error.start]!a} at position {error.start} is a lone surrogate, which is not "
                "text; remove it",
                name,
            ) from None
    if isinstance(value, (bytes, bytearray, memoryview)) or not (
        hasattr(type(value), "__index__") or hasattr(type(value), "__float__")
    ):
        raise wrong(name, given, "a string, a number or a bool")
    found = number(name, value, infinite=True)
    if isinstance(found, float) and math.isinf(found):
        return b"inf" if found > 0 else b"-inf"
    if isinstance(found, float) and not (found.is_integer() and abs(found) < 2**63):
        return repr(found).encode()
    return str(int(found)).encode()


def _without_nul(name: str, value: bytes) -> bytes:
    if b"\0" in value:
        raise InvalidArgumentError(f"{name}: {shown(value)} has a NUL character; remove it", name)
    return value


def option_texts(call: str, options: Mapping[str, OptionValue], known: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """The option texts of a command line. ``None`` leaves an option at its default. ``known``: names with kinds.

    Raises:
        ArgumentTypeError: an unknown option of ``call``, or a value of an invalid type.
    """
    names = {name.replace("-", "_"): name for name in known}
    texts: list[tuple[str, bytes]] = []
    for name, value in options.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ArgumentTypeError(f"{call}() got an unexpected keyword argument '{name}'{meant}", name)
        value = plain(value)
        if value is None:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        texts += [(names[name], _text(name, item, known[names[name]])) for item in values]
    return texts


@contextmanager
def argument_names(known: Iterable[str]) -> Iterator[None]:
    """Within it, messages use Python names: max_num_seqs for --max-num-seqs."""
    flags = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    try:
        yield
    except TactusError as error:
        spelled = re.sub(rf"--({flags})(?![\w-])", lambda m: m[1].replace("-", "_"), error.message)
        raise type(error)(spelled, error.param.replace("-", "_")) from None
