"""Cells with and without a neighbour, a busy process on one core, in turns, in --serve-format. The neighbour is bound
to the first core, the engines are not; every process has its own session.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time

import engines
import plan
from cells import Bench

ALONE = "alone"
NEIGHBOURS = {
    "computing": "while True: pass",
    "copying memory": "a, b = memoryview(bytearray(1 << 28)), memoryview(bytearray(1 << 28))\nwhile True: a[:] = b",
}
BATCHES = [32, 8, 1]  # descending: OpenVINO reduces its larger set
PROMPT = 512
SETTLES_S = 0.5  # until the neighbour is running


@contextlib.contextmanager
def neighbour(kind: str):
    if kind == ALONE:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOURS[kind]], start_new_session=True)
    try:
        os.sched_setaffinity(process.pid, [min(os.sched_getaffinity(0))])
        time.sleep(SETTLES_S)
        yield
    finally:
        process.kill()
        process.wait()


def kinds(quick: bool) -> list[str]:
    return [ALONE, *NEIGHBOURS][: 2 if quick else None]


def lines() -> dict[str, str]:
    """Cell and command; the first step of a decode is not counted."""
    return {
        **{f"decode {b} at 128": f"decode batch={b} context=128 steps={9 if b > 1 else 25}" for b in BATCHES},
        f"prefill {PROMPT}": f"prefill tokens={PROMPT} repeat=1",
    }


def run_neighbours(run) -> None:
    fmt = run.args.serve_format
    cells = run.result["neighbours"].setdefault(fmt, {})
    cells.clear()
    with Bench(run, fmt, label=f"{fmt}, neighbours") as bench:
        bench.load()
        for key, line in lines().items():  # all contexts first
            for process in bench.processes:
                bench.ask(process, key, line)
        for turn in range(run.args.rounds):
            for kind in kinds(run.args.quick):
                run.progress(f"{fmt}: {kind}, turn {turn + 1} of {run.args.rounds}")
                with neighbour(kind):
                    for process in bench.processes:
                        for key, line in lines().items():
                            seconds = bench.ask(process, key, line)
                            if seconds:
                                counted = seconds[1:] if key.startswith("decode") else seconds
                                cells.setdefault(key, {}).setdefault(process.spec.name, {}).setdefault(kind, []).append(
                                    round(statistics.mean(counted), 7)
                                )
                run.save()


def planned(run) -> list[tuple[str, float]]:
    fmt = run.args.serve_format
    names = [s.name for s in engines.specs(run.places, fmt, run.args.engines)]
    once = sum(8 * plan.decode_step_s(n, b, 128) * (1 if b > 1 else 3) for n in names for b in BATCHES) + sum(
        PROMPT / plan.prefill_rate(n, fmt) for n in names
    )
    turns = 1 + run.args.rounds * (1 + 1.7 * (len(kinds(run.args.quick)) - 1))
    return [(f"{fmt}: beside a neighbour", plan.loading_s(names, fmt) + once * turns)]


def kept(row: dict) -> dict[str, float]:
    """The share of the undisturbed speed with each neighbour: medians over the turns."""
    if not row.get(ALONE):
        return {}
    return {kind: statistics.median(row[ALONE]) / statistics.median(row[kind]) for kind in NEIGHBOURS if row.get(kind)}
