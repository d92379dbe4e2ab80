"""Options by the names of their flags: ``max_num_seqs=64`` is ``--max-num-seqs 64``."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Union

from .errors import TactusError

OptionValue = Union[str, bool, int, float, "os.PathLike[str]", Sequence[str], None]


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; give a string, a number or a bool")


def option_texts(call: str, options: Mapping[str, OptionValue], known: Iterable[str]) -> list[tuple[str, str]]:
    """What a command line would have. ``None`` leaves an option at its default.

    Raises:
        TypeError: an option that ``call`` does not have, or a value that is no text, number or bool.
    """
    names = {name.replace("-", "_"): name for name in known}
    texts: list[tuple[str, str]] = []
    for name, value in options.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise TypeError(f"{call}() got an unexpected keyword argument '{name}'{meant}")
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
