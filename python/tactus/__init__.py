"""Tactus: an engine for large language models on CPUs, its simulator, and the planner of offline jobs.

from tactus import LLM, SamplingParams

with LLM() as llm:
    for output in llm.chat([{"role": "user", "content": "What is the capital of France?"}]):
        print(output.outputs[0].text)
"""

from ._native import PlanCosts
from ._native import version as __version__
from .errors import (
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
from .llm import LLM, AnswerStream, Message, Prompt
from .outputs import CompletionOutput, Logprob, OutputDelta, RequestOutput
from .planning import Plan, plan
from .sampling_params import SamplingParams
from .simulation import simulate

__all__ = [
    "LLM",
    "AnswerStream",
    "Prompt",
    "Message",
    "SamplingParams",
    "RequestOutput",
    "CompletionOutput",
    "OutputDelta",
    "Logprob",
    "simulate",
    "plan",
    "Plan",
    "PlanCosts",
    "TactusError",
    "InvalidArgumentError",
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
