"""Converts arguments to plain values, or raises an error with the argument, its type and the expected value. Numbers
are converted by ``__index__`` or ``__float__``, arrays (numpy, torch) by ``tolist``. Bytes are neither text nor a list
of ids."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NoReturn, Protocol, SupportsFloat, SupportsIndex, Union, runtime_checkable

from .errors import ArgumentTypeError, InvalidArgumentError

MOST_ID = 2**31 - 1
_DEEPEST = 64  # limit of a JSON value's nesting, as in the parser
_BYTES = (bytes, bytearray, memoryview)
# checked first, because most values have these types
_PLAIN = frozenset((str, int, float, bool, list, tuple, dict, type(None)))

Whole = Union[SupportsIndex, SupportsFloat]  # a whole number: int, numpy's integers, 4.0
Number = Union[SupportsFloat, SupportsIndex]  # int, float, numpy's numbers


@runtime_checkable
class Array(Protocol):
    """Objects that convert to a list of numbers: numpy arrays, torch tensors."""

    def tolist(self) -> Any: ...


_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


def shown(value: object) -> str:
    return _shown.repr(value).encode("utf-8", "backslashreplace").decode()


def wrong(name: str, value: object, give: str) -> ArgumentTypeError:
    kind = type(value).__name__
    article = "" if isinstance(value, _BYTES) else "an " if kind[:1].lower() in "aeiou" else "a "
    return ArgumentTypeError(f"{name}: {shown(value)} is {article}{kind}; give {give}", name)


def plain(value: Any) -> Any:
    """Converts arrays and numbers of numpy, torch and so on to lists and numbers; returns anything else unchanged."""
    if type(value) in _PLAIN or isinstance(value, (type, memoryview)) or not hasattr(value, "tolist"):
        return value
    return value.tolist()


def utf8(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name}: {value[error.start]!a} at position {error.start} is a lone surrogate, which is not text; "
            "remove it (text.encode('utf-8', 'replace') puts '?' there)",
            name,
        ) from None


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    utf8(name, value)
    return str(value)


def flag(name: str, value: object) -> bool:
    value = plain(value)
    if not isinstance(value, bool):
        raise wrong(name, value, "True or False")
    return value


def _converted(name: str, value: Any, give: str) -> int | float:
    """Converts by __index__, else by __float__."""
    found = plain(value)
    if not isinstance(found, (bool, str, complex, *_BYTES)):
        try:
            if hasattr(type(found), "__index__"):
                return operator.index(found)
            if hasattr(type(found), "__float__"):
                return float(found)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise wrong(name, value, give) from error
    raise wrong(name, value, give)


def whole(name: str, value: Any, least: int, most: int | None = None, give: str = "") -> int:
    if not give:
        give = f"a whole number of {least} or more" if most is None else f"a whole number from {least:,} to {most:,}"
    number = _converted(name, value, give)
    if isinstance(number, float):
        if not number.is_integer():
            raise wrong(name, value, give)
        number = int(number)
    if number < least or (most is not None and number > most):
        raise InvalidArgumentError(f"{name}: {number} is out of range; give {give}", name)
    return number


def number(name: str, value: Any, infinite: bool = False) -> int | float:
    """A number, not NaN; infinite only with `infinite`."""
    found = _converted(name, value, "a finite number")
    if isinstance(found, float) and (math.isnan(found) or (math.isinf(found) and not infinite)):
        raise InvalidArgumentError(f"{name}: {found} is not finite; give a finite number", name)
    return found


def items(name: str, value: Any, give: str) -> list[Any]:
    """The items of a list or another ordered iterable."""
    if type(value) is list:
        return list(value)
    value = plain(value)
    if isinstance(value, (str, *_BYTES, Mapping, Set)) or not isinstance(value, Iterable):
        raise wrong(name, value, give)
    return list(value)


def ids(name: str, value: Any) -> list[int]:
    """Token ids from 0; the model's vocabulary is checked elsewhere."""
    listed = items(name, value, "a list of token ids")
    if not (set(map(type, listed)) <= {int} and (not listed or (min(listed) >= 0 and max(listed) <= MOST_ID))):
        listed = [_id(name, item) for item in listed]
    return listed


def _id(name: str, value: Any) -> int:
    found = _converted(name, value, "whole numbers as token ids")
    if isinstance(found, float):
        if not found.is_integer():
            raise wrong(name, value, "whole numbers as token ids")
        found = int(found)
    if not 0 <= found <= MOST_ID:
        raise InvalidArgumentError(f"{name}: {found} is not a token id; give whole numbers from 0", name)
    return found


def _key(name: str, value: object) -> str:
    """A key of the dict `name`; errors name the dict."""
    try:
        if isinstance(value, str):
            return text(f"{name}: its key", value)
        raise wrong(f"{name}: its key", value, "strings as keys")
    except InvalidArgumentError as error:
        raise type(error)(error.message, name) from None


def json_value(name: str, value: Any, depth: int = 0) -> Any:
    """Converts a value to JSON types."""
    if depth > _DEEPEST:
        raise InvalidArgumentError(f"{name[:60]}: it is nested deeper than {_DEEPEST}; give less", name[:60])
    value = plain(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(name, value)
    if isinstance(value, (int, float)):
        return number(name, value)
    if isinstance(value, Mapping):
        members = {}
        for key, member in value.items():
            members[_key(name, key)] = json_value(f"{name}.{key}", member, depth + 1)
        return members
    if isinstance(value, Sequence) and not isinstance(value, _BYTES):
        return [json_value(f"{name}[{i}]", item, depth + 1) for i, item in enumerate(value)]
    if hasattr(type(value), "__index__") or hasattr(type(value), "__float__"):
        return number(name, value)
    raise wrong(name, value, "plain numbers, strings, lists or dicts")


def no_pickle(what: str, instead: str) -> NoReturn:
    raise ArgumentTypeError(f"{what} cannot be pickled: {instead}")
