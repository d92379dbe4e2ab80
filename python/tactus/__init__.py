"""Tactus: an engine for large language models on CPUs, its simulator, and the planner of offline jobs.

from tactus import LLM, SamplingParams

with LLM() as llm:
    for output in llm.chat([{"role": "user", "content": "What is the capital of France?"}]):
        print(output.outputs[0].text)
"""

from ._native import version as __version__
from ._requests import Message, Prompt
from .async_llm import AsyncAnswerStream, AsyncLLM
from .errors import (
    ArgumentTypeError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    TactusError,
    UnavailableError,
    UnimplementedError,
)
from .llm import LLM, AnswerStream
from .outputs import CompletionOutput, Logprob, OutputDelta, RequestOutput, ToolCall, ToolCallDelta
from .planning import Plan, PlanCosts, plan
from .sampling_params import SamplingParams, StructuredOutputsParams
from .simulation import simulate

__all__ = [
    "LLM",
    "AsyncLLM",
    "AnswerStream",
    "AsyncAnswerStream",
    "Prompt",
    "Message",
    "SamplingParams",
    "StructuredOutputsParams",
    "RequestOutput",
    "CompletionOutput",
    "OutputDelta",
    "Logprob",
    "ToolCall",
    "ToolCallDelta",
    "simulate",
    "plan",
    "Plan",
    "PlanCosts",
    "TactusError",
    "InvalidArgumentError",
    "ArgumentTypeError",
    "NotFoundError",
    "ResourceExhaustedError",
    "UnavailableError",
    "CancelledError",
    "DeadlineExceededError",
    "DataLossError",
    "UnimplementedError",
    "InternalError",
    "__version__",
]
