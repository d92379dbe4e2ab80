"""How an answer is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _native
from ._body import body_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the answers to one prompt are made. Names and meanings are those of vLLM and of the HTTP API.

    ``None`` is the LLM's value, else the model's own (its ``generation_config.json``), else the built-in one. Values
    are
    checked when the object is made, but for what depends on the model (token ids, the room in its context).

    Args:
        n: answers to the same prompt, 1 to 128; the prompt is computed once.
        temperature: 0 (greedy) to 2.
        top_p: share of the probability that is sampled from, above 0, up to 1.
        top_k: the most likely tokens that are sampled from; 0 or -1: all.
        min_p: least probability of a token, as a share of the likeliest one's, 0 to 1.
        max_tokens: longest answer, in tokens. None: what the prompt leaves of the context.
        min_tokens: so many tokens come before a stop or the end of text may end the answer.
        stop: strings that end the answer, up to 16; they are not part of it.
        stop_token_ids: token ids that end the answer; the id is in ``token_ids``, its text not in ``text``.
        ignore_eos: go on to max_tokens.
        seed: the same seed gives the same answer, whatever runs beside it. None: drawn from the LLM's seed.
        logprobs: log probabilities of each token: its own and those of the so many best, 0 to 20. None: none.
        presence_penalty: -2 to 2, of tokens that the answer has.
        frequency_penalty: -2 to 2, for each time that the answer has them.
        repetition_penalty: 0.01 to 10, of tokens that prompt or answer have; 1 is none.
        logit_bias: by token id, -100 to 100.

    Raises:
        ValueError: a value that is out of its range or of another type (InvalidArgumentError), with its name and limit.
        TypeError: a name that there is not, or a value that is no JSON.
    """

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        _native.check_body(body_text({"prompt": [0], **self.fields(chat=False)}), False)

    def fields(self, chat: bool) -> dict[str, Any]:
        """The fields of a request of the HTTP API that mean the same."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if chat and self.logprobs is not None:
            fields["logprobs"] = True
            fields["top_logprobs"] = self.logprobs
        return {name: value for name, value in fields.items() if value is not None}
