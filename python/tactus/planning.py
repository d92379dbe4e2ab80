"""The planner of offline jobs: in which order, and in which shards, a job runs fastest (docs/batch.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._body import unpacked
from ._native import PlanCosts


@dataclass(frozen=True)
class Plan:
    """What :func:`plan` found. Requests are the job's, by their place in it from 0.

    Attributes:
        order: requests in a row by density; with "blend" and "balance" the job starts from both ends.
        start_order: requests in the order in which they will start: what to feed an engine with.
        places: of each request (position in start_order, tokens of KV it reads per step), for
            ``LLM.generate(places=...)``.
        shards: requests of each shard, in planned order: about the same work and density in each.
        summary: requests, prompt_tokens, output_tokens, compute_s, memory_s (nothing shared), density (of the whole),
            optimal_sharing and planned_sharing (shares of prompt tokens), planned_compute_s, and the least time of the
            job: bound_s (cannot be reached), practical_bound_s, sequential_s (no overlap). Seconds of the device.
    """

    order: list[int]
    start_order: list[int]
    places: list[tuple[int, int]]
    shards: list[list[int]]
    summary: dict[str, Any]


def plan(
    prompts: Iterable[Sequence[int]],
    *,
    max_tokens: int | Sequence[int] = 16,
    output_lengths: Sequence[int] | None = None,
    costs: PlanCosts,
    order: str = "blend",
    shards: int = 1,
    kv_tokens: int,
    groups: Sequence[int] | None = None,
    split_share: float = 0.01,
    overlap: tuple[float, float] = (0.0, 0.0),
    seed: int = 0,
    planner_memory_bytes: int = 0,
) -> Plan:
    """Plans a job. The same job, figures and seed give the same plan.

    Args:
        prompts: token ids of each request; read one by one.
        max_tokens: longest answer, of all or of each: the estimate where nothing better is known.
        output_lengths: tokens that each answer has or is expected to have, instead of max_tokens.
        costs: what a token costs the device: ``PlanCosts.of("llama-3.1-8b", "a100")``, or its figures.
        order: "blend" (shares prefixes, keeps compute and memory busy), "balance", "dfs", "fcfs" or "random".
        shards: processes that will share the job. Where there are more of them than requests some are empty.
        kv_tokens: tokens whose K and V a device holds.
        groups: requests of different groups share nothing (another ``cache_salt``).
        split_share: of the unique prompt tokens, how many may be computed again for a better order.
        overlap: (linear, quadratic): a step of compute c and memory m takes longer * (1 + linear x + quadratic x^2), x
        =
            shorter / longer. (0, 0): perfect overlap; (1, 0): none.
        seed: of "random".
        planner_memory_bytes: most memory for prompts; beyond it they are told apart more coarsely. 0: no limit.

    Raises:
        TypeError, ValueError: an argument that cannot work, with its limit.
    """
    if not isinstance(costs, PlanCosts):
        raise TypeError(
            f"costs: {costs!r:.60} is a {type(costs).__name__}; give PlanCosts.of(model, device) or PlanCosts(...)"
        )
    job = _native.PlannedJob(_whole("planner_memory_bytes", planner_memory_bytes, 0))
    count = 0
    for prompt in prompts:
        if output_lengths is not None:
            tokens = _nth("output_lengths", output_lengths, count)
        else:
            tokens = max_tokens if isinstance(max_tokens, int) else _nth("max_tokens", max_tokens, count)
        group = 0 if groups is None else _nth("groups", groups, count)
        name = "max_tokens" if output_lengths is None else "output_lengths"
        ids, tokens, group = _ids(prompt), _whole(name, tokens, 1), _whole("groups", group, 0)
        try:
            job.add(ids, tokens, output_lengths is not None, group)
        except TypeError:
            raise TypeError(f"prompts: that of request {count} is no list of token ids") from None
        count += 1
    for name, values in (
        ("output_lengths", output_lengths),
        ("groups", groups),
        ("max_tokens", None if isinstance(max_tokens, int) else max_tokens),
    ):
        if values is not None and len(values) != count:
            raise ValueError(f"{name}: {len(values)} for {count} prompts; give one for each")
    options = _native.PlanOptions()
    options.cost = costs
    options.order = order
    options.shards = _whole("shards", shards, 1)
    options.kv_tokens = _whole("kv_tokens", kv_tokens, 1)
    options.split_share = _share("split_share", split_share)
    options.overlap_linear, options.overlap_quadratic = (_share("overlap", figure) for figure in overlap)
    options.seed = _whole("seed", seed, 0)
    made = job.plan(options)
    places: list[tuple[int, int]] = [(-1, 0)] * count
    for request, place in zip(made["start_order"], made["places"]):
        places[request] = place
    return Plan(made["order"], made["start_order"], places, made["shards"], made["summary"])


def _nth(name: str, values: Sequence[int], index: int) -> int:
    if index >= len(values):
        raise ValueError(f"{name}: {len(values)} for more prompts than that; give one for each")
    return values[index]


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; give a whole number")
    number = int(value)
    if not least <= number < 2**31 and not (
        name in ("seed", "planner_memory_bytes", "kv_tokens") and least <= number < 2**63
    ):
        raise ValueError(f"{name}: {number} is out of range; give {least} or more")
    return number


def _share(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; give a number")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}: {value} is out of range; give 0 or more")
    return float(value)


def _ids(prompt: Any) -> list[int]:
    if isinstance(prompt, (str, bytes)):
        raise TypeError("prompts: one is text; give token ids (LLM.encode makes them)")
    return list(unpacked(prompt))
