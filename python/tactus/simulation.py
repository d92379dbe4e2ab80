"""``tactus sim`` as a function."""

from __future__ import annotations

import json
import logging
from typing import Any

from . import _native
from ._options import OptionValue, argument_names, option_texts

_log = logging.getLogger("tactus")


def simulate(**options: OptionValue) -> dict[str, Any]:
    """Simulates serving a workload on a model, device and scheduler, on a virtual clock.

    Args:
        options: those of ``tactus sim``, named like flags with underscores, such as ``model="llama-3.1-8b"``,
            ``device="a100"``, ``tensor_parallel_size=2``, ``workload="chat"``, ``rate=4`` (requests per second),
            ``requests=500``, ``scheduler="sarathi-serve"``, ``slo="ttft=500ms,tbt=100ms"``, ``seed=1``.

    Returns:
        The result object that ``tactus sim --json`` prints (docs/reference/api.md, "Result"). Unknown values are None.

    Raises:
        ArgumentTypeError: an unknown option, or a value of an invalid type.
        InvalidArgumentError: an invalid value, with its limit and the fix; a run in which no request completed.
        NotFoundError: a file that does not exist.
    """
    known = _native.simulation_options()
    with argument_names(known):
        text, notes = _native.simulate(option_texts("simulate", options, known))
    for note in notes:
        _log.info("%s", note)
    result: dict[str, Any] = json.loads(text)
    return result
