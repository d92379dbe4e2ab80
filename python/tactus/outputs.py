"""What comes back: the classes and names that users of vLLM know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logprob:
    """Of one token at one place.

    Attributes:
        logprob: natural logarithm of its probability, before temperature and penalties.
        rank: its place among the likeliest, from 1; None: it is not among those that were asked for.
        decoded_token: its text; bytes that are not UTF-8 are replaced.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


PositionLogprobs = dict[int, Logprob]  # by token id


@dataclass(frozen=True)
class CompletionOutput:
    """One answer.

    Attributes:
        index: from 0, of ``SamplingParams.n``.
        text: without what ended it.
        token_ids: tokens of the answer, with the end-of-text or stop token that ended it.
        cumulative_logprob: sum over the tokens; None where ``logprobs`` was not asked for.
        logprobs: a dict per token, by token id; None where it was not asked for.
        finish_reason: "stop" or "length".
        stop_reason: the stop string or stop token id that ended it; None: the model's end of text, or max_tokens.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True)
class RequestOutput:
    """The answers to one prompt.

    Attributes:
        request_id: the prompt's place in the call, from "0".
        prompt: its text; of a chat with the template's. None where token ids were given.
        prompt_token_ids: as the model saw them.
        outputs: ``SamplingParams.n`` answers.
        num_cached_tokens: tokens of the prompt that the prefix cache had.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class OutputDelta:
    """A piece of an answer, as it comes. The pieces of one index add up to its CompletionOutput.

    Attributes:
        index: which answer, from 0.
        text: whole characters; empty where a character or a stop string is undecided.
        token_ids: usually one.
        logprobs: a dict per token; None where they were not asked for.
        finish_reason: of the last piece of an answer "stop" or "length", else None.
        stop_reason: as CompletionOutput's.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
