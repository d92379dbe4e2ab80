"""Converts answers of the native part to the objects of outputs.py."""

from __future__ import annotations

from . import _native
from .outputs import CompletionOutput, Logprob, OutputDelta, PositionLogprobs, RequestOutput, ToolCall, ToolCallDelta

# Kinds of parts (src/api/chat/answer_parts.h).
_TEXT, _REASONING, _CALL_BEGIN, _CALL_ARGUMENTS = range(4)


def request_output(engine: _native.Engine, ended: _native.Ended, text: str | None) -> RequestOutput:
    index, ids, cached, choices, _ = ended
    outputs = [_completion(engine, i, choice) for i, choice in enumerate(choices)]
    return RequestOutput(str(index), text, ids, outputs, True, cached)


def _completion(engine: _native.Engine, index: int, choice: _native.Choice) -> CompletionOutput:
    text, ids, rows, finish, stop, parts = choice
    content, reasoning, calls = text, None, []
    if parts is not None:
        content = "".join(part[1] for part in parts if part[0] == _TEXT)
        reasoning = "".join(part[1] for part in parts if part[0] == _REASONING) or None
        for kind, _, name, call_id, call in parts:
            if kind == _CALL_BEGIN:
                arguments = "".join(p[1] for p in parts if p[0] == _CALL_ARGUMENTS and p[4] == call)
                calls.append(ToolCall(call_id, name, arguments))
    cumulative = None if rows is None else sum(row[0][1] for row in rows)
    return CompletionOutput(
        index,
        text,
        ids,
        cumulative,
        None if rows is None else _logprobs(engine, rows),
        finish,
        stop,
        content,
        reasoning,
        calls,
    )


def output_delta(engine: _native.Engine, piece: _native.Piece, with_logprobs: bool) -> OutputDelta:
    _, index, text, ids, rows, finish, stop, parts, _ = piece
    content, reasoning, calls = text, "", []
    if parts is not None:
        content = "".join(part[1] for part in parts if part[0] == _TEXT)
        reasoning = "".join(part[1] for part in parts if part[0] == _REASONING)
        for kind, more, name, call_id, call in parts:
            if kind == _CALL_BEGIN:
                calls.append(ToolCallDelta(call, call_id, name))
            elif kind == _CALL_ARGUMENTS:
                calls.append(ToolCallDelta(call, arguments=more))
    logprobs = _logprobs(engine, rows) if with_logprobs else None
    return OutputDelta(index, text, ids, logprobs, finish, stop, content, reasoning, calls)


def _logprobs(engine: _native.Engine, rows: _native.LogprobRows) -> list[PositionLogprobs]:
    positions = []
    for chosen, *best in rows:
        ranks = {token: rank for rank, (token, _) in enumerate(best, 1)}
        positions.append(
            {
                token: Logprob(logprob, ranks.get(token), engine.token_string(token))
                for token, logprob in [chosen, *best]
            }
        )
    return positions
