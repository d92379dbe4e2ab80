"""Parameters of an answer."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never, Union

from . import _native
from ._body import body_text
from ._check import Array, Number, Whole, flag, ids, items, json_value, number, text, whole, wrong
from .errors import ArgumentTypeError, InvalidArgumentError

_ANY_INT = 2**63
Ids = Union[Sequence[Whole], Array]  # token ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams:
    """A constraint on the answer, in one of five forms; the names are vLLM's. A dict with these keys works as well.

    Args:
        json: JSON that matches this schema, a dict or its text.
        regex: a text that this expression matches.
        choice: one of these texts.
        grammar: a text of this grammar, in Lark's notation.
        json_object: any JSON object.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, init=False, repr=False)
class SamplingParams:
    """Parameters of the answers to one prompt. Names and meanings are those of vLLM and of the HTTP API.

    ``None`` means the LLM's value, else the model's (``generation_config.json``), else the built-in one. Values are
    checked on construction, except what depends on the model (token ids, the room in its context, whether a grammar is
    supported). numpy numbers are accepted and stored as Python numbers.

    Args:
        n: answers to the same prompt, 1 to 128; the prompt is computed once.
        temperature: 0 (greedy) to 2.
        top_p: share of the probability mass to sample from, above 0, up to 1.
        top_k: number of most likely tokens to sample from; 0 or -1: all.
        min_p: least probability of a token, relative to the most likely one, 0 to 1.
        max_tokens: longest answer, in tokens. None: the rest of the context after the prompt.
        min_tokens: number of tokens before a stop or the end of text may end the answer.
        stop: strings that end the answer, up to 16; they are not part of it.
        stop_token_ids: token ids that end the answer; the id is in ``token_ids``, its text not in ``text``.
        ignore_eos: continue to max_tokens.
        seed: the same seed gives the same answer, independent of concurrent requests. None: derived from the LLM's
            seed.
        logprobs: return the log probability of each token and of this number of most likely tokens, 0 to 20. None:
            none.
        presence_penalty: -2 to 2, for tokens that occur in the answer.
        frequency_penalty: -2 to 2, for each occurrence in the answer.
        repetition_penalty: 0.01 to 10, for tokens that occur in prompt or answer; 1 is none.
        logit_bias: by token id, -100 to 100.
        structured_outputs: a constraint on the answer: StructuredOutputsParams, or a dict with its keys. A grammar
            enforces it.
        response_format: the same in the form of OpenAI's API: ``{"type": "json_object"}``, or ``{"type": "json_schema",
            "json_schema": {"name": ..., "schema": ...}}``.
        tools: functions that the model may call, in chats, in the form of OpenAI's API: ``[{"type": "function",
            "function": {"name": ..., "description": ..., "parameters": schema}}]``. Calls are in ``tool_calls`` of the
            answer.
        tool_choice: "auto", "none", "required", or ``{"type": "function", "function": {"name": ...}}``.
        parallel_tool_calls: whether one answer may call several.
        slo: objectives of the request: a dict with ``ttft_ms`` (until the first token), ``tbt_ms`` (between two
            tokens), ``jct_ms`` (until the end) and ``class`` (a label). Some schedulers use them.

    Raises:
        InvalidArgumentError: a value out of range or of another type, with its name and limit.
        ArgumentTypeError: an unknown name, or a value of an invalid type.
    """

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    structured_outputs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    slo: dict[str, Any] | None = None

    def __init__(
        self,
        *,
        n: Whole = 1,
        temperature: Number | None = None,
        top_p: Number | None = None,
        top_k: Whole | None = None,
        min_p: Number | None = None,
        max_tokens: Whole | None = 16,
        min_tokens: Whole = 0,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Ids | None = None,
        ignore_eos: bool = False,
        seed: Whole | None = None,
        logprobs: Whole | None = None,
        presence_penalty: Number | None = None,
        frequency_penalty: Number | None = None,
        repetition_penalty: Number | None = None,
        logit_bias: Mapping[int, Number] | None = None,
        structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None,
        response_format: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        slo: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        given = locals()
        if unknown:
            raise _unknown(next(iter(unknown)))
        values = self.__dict__
        for name, kind in _KINDS.items():
            value = given[name]
            values[name] = value if value is None else kind(name, value)
        chat = self._for_chats() is not None
        asked = {"messages": [{"role": "user", "content": "a"}]} if chat else {"prompt": [0]}
        _native.check_body(body_text({**asked, **self.fields(chat)}), chat)

    def __repr__(self) -> str:
        given = [
            f"{f.name}={value!r}"
            for f in dataclasses.fields(self)
            if (value := getattr(self, f.name)) is not f.default and value != f.default
        ]
        return f"SamplingParams({', '.join(given)})"

    def __hash__(self) -> int:
        return hash(tuple(value for name in _NAMES if isinstance(value := getattr(self, name), (str, int, float))))

    def _for_chats(self) -> str | None:
        """The name of a set argument that is valid only for chats."""
        if self.tools is not None:
            return "tools"
        if self.tool_choice is not None:
            return "tool_choice"
        return None if self.parallel_tool_calls is None else "parallel_tool_calls"

    @property
    def has_rule(self) -> bool:
        """Whether a grammar constrains the answer; compiling it takes time."""
        return self.structured_outputs is not None or self.response_format is not None or self.tools is not None

    def fields(self, chat: bool) -> dict[str, Any]:
        """The equivalent fields of an HTTP API request.

        Args:
            chat: for the API's chats, else for its completions.
        """
        if not chat and (name := self._for_chats()) is not None:
            raise InvalidArgumentError(f"{name}: only in chats; use chat() or stream_chat(), or leave {name} out", name)
        fields = {name: value for name, value in self.__dict__.items() if value is not None}
        if chat and self.logprobs is not None:
            fields["logprobs"] = True
            fields["top_logprobs"] = self.logprobs
        return fields


def _unknown(name: str) -> ArgumentTypeError:
    near = difflib.get_close_matches(name, _NAMES, n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return ArgumentTypeError(f"SamplingParams() got an unexpected keyword argument '{name}'{meant}", name)


# Types are checked here; ranges are checked with the limits by the request parser.


def _whole(name: str, value: Any) -> Any:
    return value if type(value) is int else whole(name, value, -_ANY_INT, 2 * _ANY_INT - 1, "a whole number")


def _number(name: str, value: Any) -> Any:
    return value if type(value) is int else number(name, value)


def _stop(name: str, value: Any) -> Any:
    give = "a string or a list of strings"
    if isinstance(value, str):
        return text(name, value)
    return [_string(name, string, give) for string in items(name, value, give)]


def _string(name: str, value: Any, give: str) -> str:
    if not isinstance(value, str):
        raise wrong(name, value, give)
    return text(name, value)


def _ids(name: str, value: Any) -> Any:
    return ids(name, value)


def _bias(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a dict of token id: bias")
    bias: dict[Any, Any] = {}
    for key, its in value.items():
        token = key
        if isinstance(key, str):
            token = int(key) if key.isascii() and key.isdigit() and len(key) < 20 else key
        if not isinstance(token, str):
            (token,) = ids(name, [token])
        if token in bias:
            raise InvalidArgumentError(f"{name}: token {token} appears twice; give each once", name)
        bias[token] = _number(name, its)
    return bias


def _object(name: str, value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if not isinstance(value, StructuredOutputsParams) or name != "structured_outputs":
            raise wrong(name, value, "a dict")
        value = {f.name: its for f in dataclasses.fields(value) if (its := getattr(value, f.name)) is not None}
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a dict")
    return json_value(name, value)


def _tools(name: str, value: Any) -> Any:
    return json_value(name, items(name, value, "a list of tools, each a dict"))


def _choice(name: str, value: Any) -> Any:
    if not isinstance(value, (str, Mapping)):
        raise wrong(name, value, '"auto", "none", "required" or a dict that names a tool')
    return json_value(name, value)


_NAMES = tuple(field.name for field in dataclasses.fields(SamplingParams))
_KINDS: dict[str, Callable[[str, Any], Any]] = dict.fromkeys(_NAMES, _number)
for _its, _kind in (
    ("n top_k max_tokens min_tokens seed logprobs", _whole),
    ("ignore_eos parallel_tool_calls", flag),
    ("structured_outputs response_format slo", _object),
    ("stop", _stop),
    ("stop_token_ids", _ids),
    ("logit_bias", _bias),
    ("tools", _tools),
    ("tool_choice", _choice),
):
    _KINDS.update(dict.fromkeys(_its.split(), _kind))
