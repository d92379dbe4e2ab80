"""The planner of offline jobs: finds the order and the shards in which a job runs fastest (docs/how-to/batch.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _native
from ._check import Array, Number, Whole, ids, items, number, plain, shown, text, whole, wrong
from ._options import OptionValue, argument_names, option_texts
from ._requests import Wholes
from .errors import ArgumentTypeError, InvalidArgumentError, TactusError

TokenIds = Union[Sequence[Whole], Array]

_INT32, _INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, kw_only=True, init=False)
class PlanCosts:
    """The cost of a token on a device (docs/how-to/batch.md, "Density").

    Attributes:
        flops_per_token: linear operators: 2 x parameters.
        attention_flops: attention of a prompt of p tokens, divided by p^2: 4 x hidden size x layers.
        kv_bytes_per_token: bytes of K and V per token.
        flops_per_s: arithmetic rate that steps reach on the device.
        bytes_per_s: memory bandwidth that steps reach.
        overlap: (linear, quadratic): a step of compute c and memory m takes longer x (1 + linear x + quadratic x^2),
            x = shorter / longer. (0, 0): perfect overlap; (1, 0): none.
    """

    flops_per_token: float
    attention_flops: float
    kv_bytes_per_token: float
    flops_per_s: float
    bytes_per_s: float
    overlap: tuple[float, float] = (0.0, 0.0)

    def __init__(
        self,
        *,
        flops_per_token: Number,
        attention_flops: Number,
        kv_bytes_per_token: Number,
        flops_per_s: Number,
        bytes_per_s: Number,
        overlap: Sequence[Number] = (0.0, 0.0),
    ) -> None:
        for name, value in (
            ("flops_per_token", flops_per_token),
            ("attention_flops", attention_flops),
            ("kv_bytes_per_token", kv_bytes_per_token),
            ("flops_per_s", flops_per_s),
            ("bytes_per_s", bytes_per_s),
        ):
            object.__setattr__(self, name, _figure(name, value))
        object.__setattr__(self, "overlap", _overlap(overlap))

    @staticmethod
    def of(model: str, device: str, tensor_parallel_size: Whole = 1, **options: OptionValue) -> PlanCosts:
        """From the cost model of ``simulate``: a job has the same bound there (``offline=True``) and in :func:`plan`.

        Args:
            model: a name of ``tactus sim --list``, a model folder or a config.json.
            device: a name of ``tactus sim --list``.
            tensor_parallel_size: devices over which the model is sharded.
            options: other options of :func:`simulate` that affect step times, such as ``weight_dtype``, ``backend``,
                ``overlap`` or ``token_budget``.

        Raises:
            InvalidArgumentError: an unknown model, device or value, with the known ones.
        """
        named: dict[str, OptionValue] = {
            "model": text("model", model),
            "device": text("device", device),
            "tensor_parallel_size": whole("tensor_parallel_size", tensor_parallel_size, 1, _INT32),
            **options,
        }
        known = _native.simulation_options()
        with argument_names(known):
            figures, overlap = _native.plan_costs(option_texts("PlanCosts.of", named, known))
        compute, attention, memory, flops, bandwidth = figures
        return PlanCosts(
            flops_per_token=compute,
            attention_flops=attention,
            kv_bytes_per_token=memory,
            flops_per_s=flops,
            bytes_per_s=bandwidth,
            overlap=overlap,
        )


@dataclass(frozen=True)
class Plan:
    """The result of :func:`plan`. Requests are numbered by their index in the job, from 0.

    Attributes:
        order: requests sorted by density; with "blend", "blend-dual-scan" and "balance" the job starts from both ends.
        start_order: requests in the order in which to submit them to an engine.
        places: (position in start_order, KV tokens read per step) of each request, for ``LLM.generate(places=...)``.
        shards: the requests of each shard, in planned order; all shards have about the same work and density.
        summary: requests, prompt_tokens, output_tokens, compute_s, memory_s (without sharing), density (of the whole
            job), optimal_sharing and planned_sharing (shares of prompt tokens), planned_compute_s, and lower bounds on
            the job's time: bound_s (unreachable), practical_bound_s, sequential_s (no overlap). Times are device
            seconds.
    """

    order: list[int]
    start_order: list[int]
    places: list[tuple[int, int]]
    shards: list[list[int]]
    summary: dict[str, Any]


def plan(
    prompts: Iterable[TokenIds] | Array,
    *,
    max_tokens: Whole | Wholes = 16,
    output_lengths: Wholes | None = None,
    costs: PlanCosts,
    order: str = "blend",
    shards: Whole = 1,
    kv_tokens: Whole,
    groups: Wholes | None = None,
    split_share: Number = 0.01,
    overlap: Sequence[Number] | None = None,
    seed: Whole = 0,
    planner_memory_bytes: Whole = 0,
) -> Plan:
    """Plans a job. The same job, costs and seed give the same plan. Ctrl-C takes effect after planning.

    Args:
        prompts: token ids of each request; read one by one.
        max_tokens: longest answer, for all or per request; used as estimate without output_lengths.
        output_lengths: known or expected tokens of each answer, instead of max_tokens.
        costs: costs of a token on the device: ``PlanCosts.of("llama-3.1-8b", "a100")``, or explicit values.
        order: "blend" (shares prefixes, keeps compute and memory busy), "balance", "dfs", "fcfs" or "random";
            "blend-dual-scan" plans like "blend" (its scanner runs in ``tactus batch`` and ``tactus sim``).
        shards: processes that will share the job. With more shards than requests some are empty.
        kv_tokens: capacity of a device's KV memory in tokens.
        groups: requests of different groups share no prefixes (different ``cache_salt``).
        split_share: share of the unique prompt tokens that may be recomputed for a better order.
        overlap: instead of ``costs.overlap``.
        seed: for "random".
        planner_memory_bytes: most memory for prompts; beyond it prefixes are compared in coarser steps. 0: no limit.

    Raises:
        InvalidArgumentError: an invalid argument, with its limit; its subclass ArgumentTypeError if the type is
            invalid.
    """
    if not isinstance(costs, PlanCosts):
        raise wrong("costs", costs, "PlanCosts.of(model, device) or PlanCosts(...)")
    text("order", order)
    job = _native.PlannedJob(whole("planner_memory_bytes", planner_memory_bytes, 0, _INT64))
    name = "max_tokens" if output_lengths is None else "output_lengths"
    lengths = _OfEach(name, max_tokens if output_lengths is None else output_lengths, 1, one=output_lengths is None)
    group_of = _OfEach("groups", 0 if groups is None else groups, 0, one=groups is None)
    count = 0
    for prompt in _prompts(prompts):
        job.add(_ids(prompt, count), lengths[count], output_lengths is not None, group_of[count])
        count += 1
    for values in (lengths, group_of):
        values.check_length(count)
    made = job.plan(
        (
            costs.flops_per_token,
            costs.attention_flops,
            costs.kv_bytes_per_token,
            costs.flops_per_s,
            costs.bytes_per_s,
        ),
        order,
        whole("shards", shards, 1, _INT32),
        whole("kv_tokens", kv_tokens, 1, _INT64),
        _share("split_share", split_share),
        costs.overlap if overlap is None else _overlap(overlap),
        whole("seed", seed, 0, _INT64),
    )
    places: list[tuple[int, int]] = [(-1, 0)] * count
    for request, place in zip(made["start_order"], made["places"]):
        places[request] = place
    return Plan(made["order"], made["start_order"], places, made["shards"], made["summary"])


class _OfEach:
    """A number per request, or one for all if `one`."""

    def __init__(self, name: str, values: Any, least: int, one: bool) -> None:
        self._name, self._least = name, least
        values = plain(values)
        single = one and not isinstance(values, Iterable)
        self._all = whole(name, values, least, _INT32) if single else None
        give = "a number of tokens, or a list of them" if one else "a list of whole numbers, one for each prompt"
        self._listed = [] if single else items(name, values, give)

    def __getitem__(self, index: int) -> int:
        if self._all is not None:
            return self._all
        if index >= len(self._listed):
            raise InvalidArgumentError(
                f"{self._name}: {len(self._listed)} for more prompts than that; give one for each", self._name
            )
        return whole(self._name, self._listed[index], self._least, _INT32)

    def check_length(self, count: int) -> None:
        if self._all is None and len(self._listed) != count:
            raise InvalidArgumentError(
                f"{self._name}: {len(self._listed)} for {count} prompts; give one for each", self._name
            )


def _prompts(prompts: Any) -> Iterable[Any]:
    prompts = plain(prompts)
    give = "a list with the token ids of each request"
    if isinstance(prompts, Iterable) and not isinstance(prompts, (str, bytes, Sequence)):
        return prompts if hasattr(prompts, "__next__") else items("prompts", prompts, give)
    return items("prompts", prompts, give)


def _ids(prompt: Any, count: int) -> list[int]:
    if isinstance(prompt, (str, bytes)):
        raise ArgumentTypeError(
            f"prompts: {shown(prompt)} of request {count} is {'text' if isinstance(prompt, str) else 'bytes'}; give "
            "token ids (LLM.encode makes them)",
            "prompts",
        )
    try:
        return ids("prompts", prompt)
    except ArgumentTypeError as error:
        message = error.message.replace("prompts: ", f"prompts: request {count} is not a list of token ids:  ", 1)
    except TactusError as error:
        message = f"{error.message} (request {count})"
    raise ArgumentTypeError(message, "prompts")


def _figure(name: str, value: Any) -> float:
    try:
        return float(number(name, value))
    except OverflowError:
        raise InvalidArgumentError(f"{name}: {shown(value)} is out of range; give a finite number", name) from None


def _share(name: str, value: Any) -> float:
    figure = _figure(name, value)
    if figure < 0:
        raise InvalidArgumentError(f"{name}: {value} is out of range; give 0 or more", name)
    return figure


def _overlap(overlap: Any) -> tuple[float, float]:
    figures = items("overlap", overlap, "a pair of numbers (linear, quadratic)")
    if len(figures) != 2:
        raise InvalidArgumentError(f"overlap: {len(figures)} numbers; give a pair (linear, quadratic)", "overlap")
    return _share("overlap", figures[0]), _share("overlap", figures[1])
