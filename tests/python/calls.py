"""Valid calls of every kind: typing_test.py checks them with mypy --strict and runs them."""

import asyncio
import decimal
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tactus import (
    LLM,
    AnswerStream,
    AsyncLLM,
    CompletionOutput,
    Message,
    OutputDelta,
    PlanCosts,
    Prompt,
    RequestOutput,
    SamplingParams,
    StructuredOutputsParams,
    TactusError,
    ToolCall,
    plan,
    simulate,
)


class Whole:
    def __index__(self) -> int:
        return 2


class Array:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def tolist(self) -> list[Any]:
        return self._values


def sampling() -> None:
    SamplingParams()
    params = SamplingParams(n=1, temperature=0.5, top_p=1, top_k=Whole(), min_p=decimal.Decimal("0.1"), max_tokens=None)
    temperature: float | None = params.temperature
    assert temperature == 0.5
    SamplingParams(stop="a", stop_token_ids=[1, 2], seed=Whole(), logprobs=1, logit_bias={1: 1, 2: 0.5})
    SamplingParams(stop=["a", "b"], stop_token_ids=(1, 2), min_tokens=1.0, ignore_eos=True)
    SamplingParams(stop=("a",), stop_token_ids=Array([1]), presence_penalty=1, frequency_penalty=0.5)
    SamplingParams(structured_outputs={"json": {"type": "object"}}, slo={"ttft_ms": 500, "class": "chat"})
    SamplingParams(structured_outputs=StructuredOutputsParams(choice=["a", "b"]))
    SamplingParams(response_format={"type": "json_object"})
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    SamplingParams(tools=[tool], tool_choice="auto", parallel_tool_calls=False)
    SamplingParams(tools=[tool], tool_choice={"type": "function", "function": {"name": "f"}})
    stops: list[str] = ["a"]
    bias: dict[int, float] = {1: 2.0}
    SamplingParams(stop=stops, logit_bias=bias)
    counts: dict[int, int] = {1: 2}
    SamplingParams(logit_bias=counts)


def whole_answers(llm: LLM) -> None:
    params = SamplingParams(max_tokens=2)
    outputs: list[RequestOutput] = llm.generate("a")
    llm.generate(["a", "b"], params)
    llm.generate(("a", "b"), [params, params], use_tqdm=False)
    llm.generate([1, 2], params, use_tqdm=lambda **_: Bar())
    llm.generate([[1, 2], [3]], params, priority=[1, 2])
    llm.generate([[1, 2], (3,), range(1, 4)], params, priority=(1, Whole(), 3))
    llm.generate({"prompt": "a", "cache_salt": "mine"}, params)
    llm.generate([{"prompt": "a"}, {"prompt": "b"}], params)
    llm.generate([{"prompt_token_ids": [1, 2]}], params)
    llm.generate([{"prompt": "a"}, "b", [1, 2]], params)
    llm.generate(Array([[1, 2], [3, 4]]), params, priority=Array([1, 2]))
    llm.generate([Array([1, 2])], params)
    llm.generate([Whole(), Whole()], params)
    llm.generate((text for text in ["a", "b"]), iter([params, params]))
    llm.generate([], params)
    mixed: list[Prompt] = ["a", [1, 2], {"prompt": "b"}]
    llm.generate(mixed, params, places=[(0, 1), (1, 2), (2, 3)])
    llm.generate(["a"], params, places=[[0, 1]])
    texts: list[str] = ["a"]
    ids: list[list[int]] = [[1]]
    dicts: list[dict[str, str]] = [{"prompt": "a"}]
    sequences: Sequence[Sequence[int]] = ids
    for prompts in (llm.generate(texts), llm.generate(ids), llm.generate(dicts), llm.generate(sequences)):
        outputs += prompts
    first: CompletionOutput = outputs[0].outputs[0]
    text: str = first.text + first.content
    calls: list[ToolCall] = first.tool_calls
    assert first.finished() and not calls and text
    message = {"role": "user", "content": "a"}
    messages: list[Message] = [message]
    llm.chat([{"role": "user", "content": "a"}])
    llm.chat([message], params, use_tqdm=False, add_generation_prompt=True, chat_template_kwargs={"a": 1})
    llm.chat([[message], [message]], [params, params])
    llm.chat(messages, params)
    llm.chat([messages, messages], params)
    llm.chat([{"role": "user", "content": [{"type": "text", "text": "a"}]}])
    llm.chat((message,), params)
    for answer in llm.answer_each(["a", [1], {"prompt": "b"}], params, places=[(0, 1)] * 3):
        assert not isinstance(answer, TactusError)
    llm.answer_each([[message]], chat=True)


class Bar:
    def update(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


def pieces(llm: LLM) -> None:
    params = SamplingParams(max_tokens=2, logprobs=1)
    stream: AnswerStream = llm.stream("a", params)
    loop: Iterator[OutputDelta] = iter(stream)
    piece: OutputDelta = next(loop)
    text: str = piece.text
    ids: list[int] = piece.token_ids
    assert piece.logprobs and text is not None and ids
    with llm.stream([1, 2], params) as stream:
        next(stream)
    for piece in llm.stream({"prompt": "a"}):
        pass
    for piece in llm.stream(Array([1, 2])):
        pass
    for piece in llm.stream_chat([{"role": "user", "content": "a"}], params, add_generation_prompt=False):
        pass
    llm.stream("a").close()


def tokens(llm: LLM) -> None:
    ids: list[int] = llm.encode("a", add_special_tokens=False) + llm.encode_chat([{"role": "user", "content": "a"}])
    text: str = llm.decode(ids) + llm.decode(iter(ids)) + llm.decode(Array(ids)) + llm.decode((1, Whole()))
    assert llm.get_tokenizer().encode(text)
    context: int = llm.model["max_model_len"]
    assert context and llm.outcome()["steps"] and llm.metrics_text()


async def awaited(path: str, options: dict[str, Any]) -> None:
    async with AsyncLLM(path, **options) as llm:
        params = SamplingParams(max_tokens=2)
        outputs: list[RequestOutput] = await llm.generate(["a", "b"], params, priority=[1, 2], places=[(0, 1), (1, 1)])
        outputs += await llm.generate("a") + await llm.generate([1, 2], params)
        outputs += await llm.chat([{"role": "user", "content": "a"}], params)
        async for piece in llm.stream("a", params):
            text: str = piece.text
        async with llm.stream_chat([{"role": "user", "content": "a"}], params) as stream:
            async for piece in stream:
                text += piece.text
        await llm.stream("a").aclose()
        assert outputs and llm.decode(llm.encode("a")) and llm.model and llm.outcome() and llm.metrics_text()
    AsyncLLM(pathlib.Path(path), **options).close()


def planning() -> None:
    costs = PlanCosts.of("llama-3.1-8b", "a100", 2, weight_dtype="fp8")
    assert costs.flops_per_token > 0
    own = PlanCosts(flops_per_token=1, attention_flops=0, kv_bytes_per_token=1.5, flops_per_s=Whole(), bytes_per_s=1)
    shards: list[list[int]] = plan([[1, 2], [3]], costs=costs, kv_tokens=100, shards=2).shards
    made = plan(iter([[1], (2, 3)]), max_tokens=[1, 2], costs=own, kv_tokens=9, groups=(1, 2), overlap=(0.5, 0))
    plan([[1]], output_lengths=[3], costs=own, kv_tokens=9, order="dfs", split_share=0, seed=Whole(), overlap=[1, 0])
    plan(Array([[1, 2]]), max_tokens=Array([1]), costs=own, kv_tokens=Whole(), planner_memory_bytes=10**9)
    bound: float = made.summary["bound_s"]
    assert shards and bound > 0


def simulation() -> None:
    result: dict[str, Any] = simulate(
        model="llama-3.1-8b", device="a100", workload="chat", rate=2.5, requests=Whole(), exact_percentiles=True
    )
    assert result["requests"]["completed"] == 2
    simulate(model="llama-3.1-8b", device="a100", workload="chat", rate=2, requests=2, slo=None, slo_class=["a"])


def main(path: str) -> None:
    options: dict[str, Any] = {"load_format": "dummy", "chat_template": pathlib.Path(path) / "chat.jinja"}
    sampling()
    with LLM(path, kv_cache_memory="64MiB", threads=1, seed=Whole(), max_num_seqs=4.0, **options) as llm:
        whole_answers(llm)
        pieces(llm)
        tokens(llm)
    LLM(pathlib.Path(path), kv_cache_memory=64 << 20, dtype=None, prefix_caching=False, **options).close()
    asyncio.run(awaited(path, {"kv_cache_memory": "64MiB", **options}))
    planning()
    simulation()
    print("end")


if __name__ == "__main__":
    main(sys.argv[1])
