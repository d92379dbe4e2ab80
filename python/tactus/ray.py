"""Tactus on a Ray cluster: workers for Ray Data, jobs that the planner shards, and a Ray Serve deployment.

Needs Ray (``pip install 'tactus[ray]'``), and Tactus installed on every machine. Each worker is an independent LLM in
one process: the cluster places processes, distributes rows and restarts processes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._check import items, whole, wrong
from .errors import InvalidArgumentError, ResourceExhaustedError, TactusError, UnavailableError
from .llm import LLM, AnswerStream
from .outputs import OutputDelta, RequestOutput
from .planning import Plan, PlanCosts, plan
from .sampling_params import SamplingParams

PLACE_COLUMN = "tactus_place"  # the row's place in the plan of its job
ROW_COLUMN = "tactus_row"  # its index in the given job


def _params(params: SamplingParams | Mapping[str, Any] | None) -> SamplingParams:
    if params is None or isinstance(params, SamplingParams):
        return params or SamplingParams()
    if not isinstance(params, Mapping):
        raise wrong("sampling_params", params, "SamplingParams, or a dict of its arguments")
    return SamplingParams(**params)


class BatchWorker:
    """One LLM that answers the rows of batches, for ``Dataset.map_batches``::

        ds.map_batches(
            BatchWorker,
            fn_constructor_kwargs={"llm": {"model": "model.gguf"}, "sampling_params": {"max_tokens": 64}},
            batch_size=64, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=2)

    Several batches are in the engine at once, so that it is never idle between batches.

    Args:
        llm: arguments of LLM. Set ``threads`` and ``kv_cache_memory`` if several workers share a machine.
        sampling_params: SamplingParams or its arguments, for every row; a column "sampling_params" sets those of single
            rows, as JSON.
        prompt_column: column of texts, lists of token ids, or with ``chat`` JSON texts or lists of messages.
        answer_column: column for the text of a row's first answer. ``finish_reason``, ``prompt_tokens``,
            ``cached_tokens``, ``output_tokens`` and ``error`` are added too. A row that cannot be answered has its
            error in ``error``; the others run.
        chat: prompts are conversations.
    """

    def __init__(
        self,
        llm: Mapping[str, Any] | None = None,
        sampling_params: SamplingParams | Mapping[str, Any] | None = None,
        *,
        prompt_column: str = "prompt",
        answer_column: str = "answer",
        chat: bool = False,
    ) -> None:
        self._llm = LLM(**(llm or {}))
        self._params = _params(sampling_params)
        self._prompt_column, self._answer_column, self._chat = prompt_column, answer_column, chat

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        answers = await asyncio.to_thread(self._answer, batch)
        return {**{name: values for name, values in batch.items() if name != PLACE_COLUMN}, **answers}

    def _answer(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        count = len(batch[self._prompt_column])
        outputs: list[RequestOutput | TactusError | None] = [None] * count
        prompts, params, places, rows = [], [], [], []
        for row in range(count):
            try:
                text = batch["sampling_params"][row] if "sampling_params" in batch else None
                params.append(self._params if text is None else SamplingParams(**json.loads(text)))
                prompts.append(self._prompt(batch[self._prompt_column][row]))
            except (TypeError, ValueError) as error:
                del params[len(prompts) :]
                outputs[row] = InvalidArgumentError(str(error))
                continue
            rows.append(row)
            if PLACE_COLUMN in batch:
                position, kv_tokens = batch[PLACE_COLUMN][row]
                places.append((int(position), int(kv_tokens)))
        for row, output in zip(rows, self._llm.answer_each(prompts, params, chat=self._chat, places=places or None)):
            outputs[row] = output
        columns: dict[str, list[Any]] = {
            name: []
            for name in (
                self._answer_column,
                "finish_reason",
                "prompt_tokens",
                "cached_tokens",
                "output_tokens",
                "error",
            )
        }
        for answer in outputs:
            for column, value in zip(columns.values(), _row(answer)):
                column.append(value)
        return columns

    def _prompt(self, value: Any) -> Any:
        if self._chat:
            return json.loads(value) if isinstance(value, str) else [dict(message) for message in value]
        return value


def _row(
    output: RequestOutput | TactusError | None,
) -> tuple[str | None, str | None, int, int, int, str | None]:
    if not isinstance(output, RequestOutput):
        return None, None, 0, 0, 0, output.message if output is not None else "not answered"
    first = output.outputs[0]
    return (
        first.text,
        first.finish_reason,
        len(output.prompt_token_ids),
        output.num_cached_tokens,
        sum(len(choice.token_ids) for choice in output.outputs),
        None,
    )


def shard_dataset(rows: Sequence[Mapping[str, Any]], planned: Plan) -> Any:
    """A dataset with one block per shard of the plan, in its order; each worker gets whole blocks.

    Map it with ``batch_size=None`` and ``ActorPoolStrategy(size=shards, max_tasks_in_flight_per_actor=1)``, and pass
    the plan's ``order`` to the workers' LLM. Column ROW_COLUMN has each row's index in the job.

    Args:
        rows: the rows of the job, in the order in which the plan numbers them.
        planned: a plan of as many requests.

    Raises:
        InvalidArgumentError: the plan has another number of requests.
    """
    import pyarrow
    import ray.data

    if len(rows) != len(planned.places):
        raise InvalidArgumentError(
            f"rows: {len(rows)} for a plan of {len(planned.places)}; give the planned rows", "rows"
        )
    blocks = []
    for shard in planned.shards:
        if shard:
            blocks.append(
                pyarrow.Table.from_pylist(
                    [{**rows[r], ROW_COLUMN: r, PLACE_COLUMN: list(planned.places[r])} for r in shard]
                )
            )
    return ray.data.from_arrow(blocks)


def _encode(llm: Mapping[str, Any], prompts: list[Any], chat: bool) -> tuple[list[list[int]], int]:
    with LLM(**llm) as engine:
        ids = [engine.encode_chat(p) if chat else engine.encode(p) if isinstance(p, str) else list(p) for p in prompts]
        return ids, int(engine.model["kv_tokens"])


def generate(
    prompts: Sequence[Any],
    sampling_params: SamplingParams | Mapping[str, Any] | None = None,
    *,
    workers: int,
    costs: PlanCosts,
    llm: Mapping[str, Any] | None = None,
    order: str = "blend",
    chat: bool = False,
    output_lengths: Sequence[int] | None = None,
    cpus_per_worker: float = 1,
) -> list[dict[str, Any]]:
    """Runs a job on several workers, each with one shard of a plan: about the same work and density, with shared
    prefixes in one shard. The caller initialises Ray.

    Args:
        prompts: texts, lists of token ids, or with ``chat`` conversations.
        sampling_params: for all prompts.
        workers: number of LLMs that share the job, each with ``cpus_per_worker`` of Ray's CPUs.
        costs: costs of a token on a worker, for the plan.
        llm: arguments of each worker's LLM.
        order: of the plan and the workers' engines: "blend", "balance" or "dfs".
        chat: the prompts are conversations.
        output_lengths: expected tokens of each answer; otherwise max_tokens.
        cpus_per_worker: Ray's CPUs that each worker reserves.

    Returns:
        Rows in the order of the prompts, with the columns of BatchWorker.
    """
    import ray
    import ray.data

    options, params = dict(llm or {}), _params(sampling_params)
    listed = items("prompts", prompts, "a list of prompts")
    workers = whole("workers", workers, 1)
    # Runs on a worker, because the caller's machine may not have the model.
    ids, kv_tokens = ray.get(ray.remote(num_cpus=cpus_per_worker)(_encode).remote(options, listed, chat))
    planned = plan(
        ids,
        max_tokens=params.max_tokens or 1024,
        output_lengths=output_lengths,
        costs=costs,
        order=order,
        shards=workers,
        kv_tokens=kv_tokens,
    )
    mapped = shard_dataset([{"prompt": tokens} for tokens in ids], planned).map_batches(
        BatchWorker,
        batch_size=None,
        num_cpus=cpus_per_worker,
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
        fn_constructor_kwargs={"llm": {"order": order, **options}, "sampling_params": dataclasses.asdict(params)},
    )
    rows: list[dict[str, Any]] = sorted(mapped.take_all(), key=lambda row: row[ROW_COLUMN])
    return [{name: value for name, value in row.items() if name not in (ROW_COLUMN, "prompt")} for row in rows]


class Answerer:
    """The replica of a Ray Serve deployment (:func:`deployment`). A request is a JSON object: ``prompt`` (text or token
    ids) or ``messages``, any argument of SamplingParams, and ``stream``.

    The answer is ``{"outputs": [{"index", "text", "token_ids", "finish_reason", "stop_reason"}], "usage": {...}}``, or
    with ``stream`` one JSON line per piece. A client that disconnects cancels its request.

    Args:
        llm: arguments of LLM.
        threads: most concurrent requests.
    """

    def __init__(self, llm: Mapping[str, Any] | None = None, threads: int = 64) -> None:
        self._llm = LLM(**(llm or {}))
        self._threads = ThreadPoolExecutor(threads, "tactus-answers")  # each waits for one request

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        loop = asyncio.get_running_loop()
        try:
            body = json.loads(await request.body())
            if not isinstance(body, dict):
                raise ValueError("the body must be a JSON object")
            if body.pop("stream", False):
                stream = await loop.run_in_executor(self._threads, self._stream, body)
                return StreamingResponse(self._lines(stream), media_type="application/x-ndjson")
            return JSONResponse(await self._whole(request, body))
        except (ValueError, TypeError, TactusError) as error:
            status = (
                503
                if isinstance(error, (UnavailableError, ResourceExhaustedError))
                else 400
                if isinstance(error, (ValueError, TypeError, NotImplementedError))
                else 500
            )
            return JSONResponse({"error": {"message": str(error), "param": getattr(error, "param", "")}}, status)

    def outcome(self) -> dict[str, Any]:
        """The results of this replica's engine so far (LLM.outcome), for a deployment handle."""
        return self._llm.outcome()

    def _stream(self, body: dict[str, Any]) -> AnswerStream:
        prompt, messages = body.pop("prompt", None), body.pop("messages", None)
        if (prompt is None) == (messages is None):
            raise ValueError("give either prompt or messages")
        params = SamplingParams(**body)
        return self._llm.stream(prompt, params) if messages is None else self._llm.stream_chat(messages, params)

    async def _whole(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        stream = await loop.run_in_executor(self._threads, self._stream, body)
        try:
            outputs: dict[int, dict[str, Any]] = {}
            async for piece in self._pieces(stream):
                output = outputs.setdefault(piece.index, {"index": piece.index, "text": "", "token_ids": []})
                output["text"] += piece.text
                output["token_ids"] += piece.token_ids
                output["finish_reason"], output["stop_reason"] = piece.finish_reason, piece.stop_reason
        finally:
            stream.close()
        tokens = sum(len(output["token_ids"]) for output in outputs.values())
        return {"outputs": [outputs[index] for index in sorted(outputs)], "usage": {"completion_tokens": tokens}}

    async def _lines(self, stream: AnswerStream) -> AsyncIterator[str]:
        try:
            async for piece in self._pieces(stream):
                yield json.dumps(dataclasses.asdict(piece)) + "\n"
        except TactusError as error:
            yield json.dumps({"error": {"message": error.message, "param": error.param}}) + "\n"
        finally:
            stream.close()

    async def _pieces(self, stream: AnswerStream) -> AsyncIterator[OutputDelta]:
        loop = asyncio.get_running_loop()
        while (piece := await loop.run_in_executor(self._threads, next, stream, None)) is not None:
            yield piece


def deployment(llm: Mapping[str, Any] | None = None, *, threads: int = 64, **options: Any) -> Any:
    """A Ray Serve application: ``serve.run(deployment({"model": "model.gguf"}, num_replicas=2))``.

    Args:
        llm: arguments of each replica's LLM.
        threads: most concurrent requests per replica.
        options: options of ``serve.deployment``: num_replicas, ray_actor_options, ...
    """
    from ray import serve

    return serve.deployment(Answerer, name="tactus", **{"max_ongoing_requests": threads, **options}).bind(llm, threads)
