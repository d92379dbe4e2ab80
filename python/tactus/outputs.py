"""What comes back: the classes and names that users of vLLM know. Equal answers are equal objects; all can be
pickled."""

from __future__ import annotations

from dataclasses import dataclass, field


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
class ToolCall:
    """A call of a tool in an answer.

    Attributes:
        id: of the call; the message with its result says it.
        name: of the function.
        arguments: JSON, as the model wrote it; broken off where the answer was.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a call of a tool.

    Attributes:
        index: which call of the answer, from 0.
        id: of the call, in its first piece; else None.
        name: of the function, in its first piece; else None.
        arguments: more of the JSON.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class CompletionOutput:
    """One answer.

    Attributes:
        index: from 0, of ``SamplingParams.n``.
        text: all of it as the model wrote it, without what ended it.
        token_ids: tokens of the answer, with the end-of-text or stop token that ended it.
        cumulative_logprob: sum over the tokens; None where ``logprobs`` was not asked for.
        logprobs: a dict per token, by token id; None where it was not asked for.
        finish_reason: "stop", "length", or "tool_calls" where it stopped and has called a tool.
        stop_reason: the stop string or stop token id that ended it; None: the model's end of text, or max_tokens.
        content: the text without reasoning and calls of tools, as the server has it in a chat's message.
        reasoning: what a reasoning model wrote before it, in a chat; None: nothing.
        tool_calls: of a chat with ``SamplingParams.tools``.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)

    def finished(self) -> bool:
        """Whether it has ended, which answers of ``generate`` and ``chat`` always have."""
        return self.finish_reason is not None


@dataclass(frozen=True)
class RequestOutput:
    """The answers to one prompt.

    Attributes:
        request_id: the prompt's place in the call, from "0".
        prompt: its text; of a chat with the template's. None where token ids were given.
        prompt_token_ids: as the model saw them.
        outputs: ``SamplingParams.n`` answers.
        finished: True.
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
        finish_reason: of the last piece of an answer "stop", "length" or "tool_calls", else None.
        stop_reason: as CompletionOutput's.
        content: more of the content; it may lag behind the text, where that may become reasoning or a call.
        reasoning: more of the reasoning.
        tool_calls: more of the calls.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
