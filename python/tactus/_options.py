"""Options by the names of their flags: ``max_num_seqs=64`` is ``--max-num-seqs 64``."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import SupportsFloat, SupportsIndex, Union

from ._check import Array, number, plain, shown, wrong
from .errors import ArgumentTypeError, InvalidArgumentError, TactusError

OptionScalar = Union[str, bool, SupportsIndex, SupportsFloat, "os.PathLike[str]", "os.PathLike[bytes]"]
OptionValue = Union[OptionScalar, Sequence[OptionScalar], Array, None]


def _text(name: str, given: object) -> bytes:
    value = plain(given)
    if isinstance(value, bool):
        return b"on" if value else b"off"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
        if isinstance(value, bytes):
            return _without_nul(name, value)
    if isinstance(value, str):
        try:
            return _without_nul(name, value.encode("utf-8", "surrogateescape"))  # a path may be no UTF-8
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"{name}: {value[error.start]!a} at position {error.start} is half of a surrogate pair, which is no "
                "text; give it without",
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
        raise InvalidArgumentError(f"{name}: {shown(value)} has a NUL character; give text without", name)
    return value


def option_texts(call: str, options: Mapping[str, OptionValue], known: Iterable[str]) -> list[tuple[str, bytes]]:
    """What a command line would have. ``None`` leaves an option at its default.

    Raises:
        ArgumentTypeError: an option that ``call`` does not have, or a value that is no text, number or bool.
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
        texts += [(names[name], _text(name, item)) for item in values]
    return texts


@contextmanager
def argument_names(known: Iterable[str]) -> Iterator[None]:
    """Messages name options as Python spells them: --max-num-seqs is max_num_seqs."""
    flags = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    try:
        yield
    except TactusError as error:
        spelled = re.sub(rf"--({flags})(?![\w-])", lambda m: m[1].replace("-", "_"), error.message)
        raise type(error)(spelled, error.param.replace("-", "_")) from None
