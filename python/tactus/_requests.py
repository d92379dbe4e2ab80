"""Converts arguments of LLM and AsyncLLM to requests of the native part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _native
from ._body import body_text
from ._check import Array, Whole, flag, ids, items, json_value, plain, text, utf8, whole, wrong
from .errors import ArgumentTypeError, InvalidArgumentError, TactusError
from .sampling_params import SamplingParams

# A prompt: text, token ids, {"prompt": text} or {"prompt_token_ids": ids}; the dicts may have a "cache_salt".
Prompt = Union[str, Sequence[Whole], Array, Mapping[str, Any]]
Message = Mapping[str, Any]  # {"role": ..., "content": ...}
Messages = Iterable[Message]  # a conversation
Params = Union[SamplingParams, Iterable[SamplingParams], None]  # for all requests, or one for each
Places = Union[Iterable[tuple[Whole, Whole]], Iterable[Sequence[Whole]], Array]  # Plan.places
Wholes = Union[Iterable[Whole], Array]  # one for each request

_PROMPT = "a string, a list of token ids, or a dict with prompt or prompt_token_ids"
_MESSAGES = 'a list of messages, each a dict such as {"role": "user", "content": "text"}'
_INT32 = 2**31
_BYTES = (bytes, bytearray, memoryview)


@dataclass
class Asked:
    """One request. `prompt`: text or ids; None: a chat, whose messages are in the body."""

    body: dict[str, Any]
    params: SamplingParams
    prompt: str | list[int] | None = None

    @property
    def text(self) -> str | None:
        return self.prompt if isinstance(self.prompt, str) else None

    def prepare(self, engine: _native.Engine) -> _native.ReadyRequest:
        prompt = utf8("prompt", self.prompt) if isinstance(self.prompt, str) else self.prompt
        return engine.prepare(body_text(self.body), prompt, self.params.max_tokens is None, self.params.has_rule)


def one_params(params: SamplingParams | None) -> SamplingParams:
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        raise wrong("sampling_params", params, "one SamplingParams")
    return params


def params_of(params: Params, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [one_params(params)] * count
    give = "one SamplingParams, or one for each prompt"
    listed = items("sampling_params", params, give)
    for i, its in enumerate(listed):
        if not isinstance(its, SamplingParams):
            raise wrong(f"sampling_params[{i}]", its, give)
    if len(listed) != count:
        raise InvalidArgumentError(
            f"sampling_params: {len(listed)} for {count} prompts; give one for each, or one for all", "sampling_params"
        )
    return listed


def _is_ids(listed: list[Any]) -> bool:
    """A list whose first item is a number is one prompt of token ids."""
    first = plain(listed[0]) if listed else None
    numeric = hasattr(type(first), "__index__") or hasattr(type(first), "__float__")
    return numeric and not isinstance(first, str)


def prompts_of(prompts: Any) -> tuple[list[Any], bool]:
    """The list of prompts, and whether a single prompt was given."""
    prompts = plain(prompts)
    if isinstance(prompts, (str, Mapping)):
        return [prompts], True
    listed = items("prompts", prompts, f"{_PROMPT}, or a list of these")
    return ([listed], True) if _is_ids(listed) else (listed, False)


def completion(name: str, prompt: Any, params: SamplingParams) -> Asked:
    body = params.fields(chat=False)
    given = plain(prompt)
    if isinstance(given, Mapping):
        given, salt = _parts(name, given)
        if salt is not None:
            body["cache_salt"] = _salt(f"{name}: cache_salt", salt)
    if isinstance(given, str):
        text(name, given)
        return Asked({**body, "prompt": [0]}, params, given)
    if not isinstance(given, Sequence) or isinstance(given, _BYTES):
        raise wrong(name, given, _PROMPT)
    if not given:
        raise InvalidArgumentError(f"{name}: no token ids; give at least one token id, or text", name)
    if not _is_ids(list(given[:1])):
        raise wrong(f"{name}[0]", given[0], "whole numbers as token ids")
    return Asked({**body, "prompt": [0]}, params, ids(name, given))


def _salt(name: str, value: Any) -> Any:
    return (
        value if isinstance(value, (bool, int, float, list, dict)) else text(name, value)
    )  # otherwise the parser's error


def _parts(name: str, prompt: Mapping[Any, Any]) -> tuple[Any, Any]:
    """The text or the token ids, and the salt."""
    unknown = [key for key in prompt if key not in ("prompt", "prompt_token_ids", "cache_salt")]
    if unknown:
        raise ArgumentTypeError(
            f"{name}: unknown key {unknown[0]!r}; give prompt or prompt_token_ids, and cache_salt", name
        )
    if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
        raise InvalidArgumentError(f"{name}: give one of the keys prompt and prompt_token_ids", name)
    found = plain(prompt["prompt"] if "prompt" in prompt else prompt["prompt_token_ids"])
    if "prompt_token_ids" in prompt:
        found = ids(f"{name}: prompt_token_ids", found)
        if not found:
            raise InvalidArgumentError(f"{name}: prompt_token_ids must be a list of at least one token id", name)
    elif isinstance(found, Mapping):
        raise wrong(f"{name}: prompt", found, "a string or a list of token ids")
    return found, prompt.get("cache_salt")


def conversations_of(messages: Any) -> tuple[list[Any], bool]:
    """The list of conversations, and whether a single one was given."""
    listed = items("messages", messages, f"{_MESSAGES}, or a list of such lists")
    return ([listed], True) if listed and isinstance(listed[0], Mapping) else (listed, False)


def chat(
    name: str, messages: Any, params: SamplingParams, add_generation_prompt: Any, template_kwargs: Any = None
) -> Asked:
    listed = items(name, messages, _MESSAGES)
    for i, message in enumerate(listed):
        if not isinstance(message, Mapping):
            raise wrong(f"{name}[{i}]", message, 'a dict such as {"role": "user", "content": "text"}')
    body = {
        "messages": listed,
        "add_generation_prompt": flag("add_generation_prompt", add_generation_prompt),
        **params.fields(chat=True),
    }
    if template_kwargs is not None:
        if not isinstance(template_kwargs, Mapping):
            raise wrong("chat_template_kwargs", template_kwargs, "a dict of the template's variables")
        body["chat_template_kwargs"] = json_value("chat_template_kwargs", template_kwargs)
    return Asked(body, params)


def one_of_each(name: str, values: Any, count: int) -> list[Any]:
    listed = items(name, values, "a list with one for each prompt")
    if len(listed) != count:
        raise InvalidArgumentError(f"{name}: {len(listed)} for {count} prompts; give one for each", name)
    return listed


def set_priorities(asked: list[Asked], priority: Wholes | None) -> None:
    if priority is None:
        return
    for its, value in zip(asked, one_of_each("priority", priority, len(asked))):
        its.body["priority"] = value if isinstance(value, str) else whole("priority", value, -_INT32, _INT32 - 1)


def places_of(places: Places | None, count: int) -> list[tuple[int, int]] | None:
    if places is None:
        return None
    pairs = []
    for i, place in enumerate(one_of_each("places", places, count)):
        name = f"places[{i}]"
        pair = items(name, place, "a pair (position, tokens of KV), as in Plan.places")
        if len(pair) != 2:
            raise InvalidArgumentError(
                f"{name}: {len(pair)} numbers; give a pair (position, tokens of KV), as in Plan.places", name
            )
        pairs.append((whole(name, pair[0], -1, _INT32 - 1), whole(name, pair[1], 0, _INT32 - 1)))
    return pairs


def prepare_all(engine: _native.Engine, asked: list[Asked], one: bool) -> list[_native.ReadyRequest]:
    requests = []
    for i, its in enumerate(asked):
        try:
            requests.append(its.prepare(engine))
        except TactusError as error:
            if one or len(asked) == 1:
                raise
            what = "conversation" if its.prompt is None else "prompt"
            raise type(error)(f"{what} {i}: {error.message}", error.param) from None
    return requests
