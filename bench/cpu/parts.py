"""The parts of a run, in execution order. A new part needs an entry here and its module."""

from __future__ import annotations

import asyncio
import dataclasses
import typing

import aims
import cells
import long_contexts
import neighbours
import served
import tables

SERVER, EXECUTOR, OPERATORS = "tactus", "bench/model/model_speed", "bench/cpu/cpu_operators"


def alone(scenario: typing.Callable) -> typing.Callable:
    """A scenario of servers as a part's `play`."""
    return lambda run: asyncio.run(scenario(run))


def no_aims(result: dict) -> list[dict]:
    return []


@dataclasses.dataclass(frozen=True)
class Part:
    """A part stores its measurements in result[name] and calls run.save() after each.

    Parts with `per_format` run one after the other in the loaded engines of each of --formats: `planned` then is (run,
    format, engines' names) -> seconds and `play` (run, cells.Bench) -> None. The others start their own engines, in
    --serve-format: `planned` is (run) -> [(what, seconds)] and `play` (run) -> None. The estimates are plan.py's.
    """

    name: str
    planned: typing.Callable
    play: typing.Callable
    section: typing.Callable[
        [dict], list[str]
    ]  # of the whole result, as lines of Markdown; [] without this part's measurements
    aims: typing.Callable[[dict], list[dict]] = no_aims  # of the whole result, in the form of aims.aim()
    programs: tuple[str, ...] = ()  # of --build
    per_format: bool = False
    empty: typing.Callable[[], dict | list] = dict


PARTS = [
    Part("served", served.plan_served, alone(served.run_served), tables.served, aims.saturation, (SERVER,)),
    Part("stall", served.plan_stall, alone(served.run_stall), tables.stall, aims.stall, (SERVER,)),
    Part("loaded", served.plan_loaded, alone(served.run_loaded), tables.loaded, aims.loaded, (SERVER, EXECUTOR)),
    Part(
        "operators",
        cells.operators_s,
        cells.run_operators,
        tables.operators,
        programs=(OPERATORS,),
        per_format=True,
        empty=list,
    ),
    Part("cells", cells.cells_s, cells.run_cells, tables.cells, aims.cells, (EXECUTOR, OPERATORS), per_format=True),
    Part(
        "hybrid", cells.hybrid_s, cells.run_hybrid, tables.hybrid, aims.hybrid, (EXECUTOR, OPERATORS), per_format=True
    ),
    Part("long", long_contexts.planned, long_contexts.run_long, tables.long, programs=(EXECUTOR, OPERATORS)),
    Part(
        "neighbours",
        neighbours.planned,
        neighbours.run_neighbours,
        tables.beside_neighbours,
        programs=(EXECUTOR, OPERATORS),
    ),
]
NAMES = [p.name for p in PARTS]
