"""Long contexts: decode after 8,192 and 32,768 tokens and prompts of these lengths, in --serve-format, ours with K and
V in bf16 and in int8. Every engine's limit is a setting of its process; model files are unchanged. Positions beyond the
file's `context_length` cost the same as others.
"""

from __future__ import annotations

import dataclasses
import statistics

import engines
import plan
from cells import Bench


@dataclasses.dataclass(frozen=True)
class Shape:
    context: int
    batches: list[int]  # descending: OpenVINO reduces its larger set
    prompt_box_s: int  # time limit of a whole prompt; 0: none


SHAPES = [Shape(8192, [4, 1], 0), Shape(32768, [1], 300)]


def shapes(quick: bool) -> list[Shape]:
    """--quick has no prompts, only contexts that most engines fill with copies."""
    return [Shape(8192, [1], 0)] if quick else SHAPES


def run_long(run) -> None:
    fmt, quick = run.args.serve_format, run.args.quick
    cells = run.result["long"].setdefault(fmt, {})
    for shape in shapes(quick):
        with Bench(
            run,
            fmt,
            engines.Limits(shape.context, shape.context, max(shape.batches)),
            f"{fmt}, context {shape.context}",
        ) as bench:
            bench.load()
            if not quick:
                prompt(run, bench, cells, shape)
            for batch in shape.batches:
                run.progress(f"{fmt}: decode {batch} at context {shape.context}")
                turns, steps = turns_of(run.args.rounds)
                cell = f"decode batch={batch} context={shape.context}"
                bench.turns(
                    cells,
                    f"decode {batch} at {shape.context}",
                    {"all": f"{cell} steps={steps + 1}"},
                    turns,
                    warm=f"{cell} steps=1",
                    skip=1,
                )


def prompt(run, bench: Bench, cells: dict, shape: Shape) -> None:
    key = f"prefill {shape.context}"
    for process in bench.processes if shape.prompt_box_s else []:
        name = process.spec.name
        least = least_s(cells, name, shape.context)
        if least > shape.prompt_box_s:
            bench.broken.add((name, key))
            run.note(
                f"{bench.label} {name}, {key}: not measured, it would take more than {shape.prompt_box_s} s"
                f" ({least:.0f} by the shorter prompt's speed)"
            )
    run.progress(f"{bench.fmt}: {key}")
    bench.turns(cells, key, {"all": f"prefill tokens={shape.context} repeat=1 box={shape.prompt_box_s}"}, 1)


def least_s(cells: dict, name: str, tokens: int) -> float:
    """Lower bound of a prompt's time, with the seconds per token of the longest shorter one. 0 if there is none."""
    known = {
        int(key.split()[1]): cell[name]["all"]
        for key, cell in cells.items()
        if key.startswith("prefill") and name in cell
    }
    shorter = max((n for n in known if n < tokens), default=None)
    return statistics.median(s for turn in known[shorter] for s in turn) * tokens / shorter if shorter else 0.0


def turns_of(rounds: int) -> tuple[int, int]:
    """The number of turns, and of counted steps in each."""
    return rounds, 4


def planned(run) -> list[tuple[str, float]]:
    fmt, rows = run.args.serve_format, []
    for shape in shapes(run.args.quick):
        limits = engines.Limits(shape.context, shape.context, max(shape.batches))
        names = [s.name for s in engines.specs(run.places, fmt, run.args.engines, limits)]
        seconds = plan.loading_s(names, fmt)
        for name in names:
            whole = plan.prompt_s(name, fmt, shape.context)
            asked = not run.args.quick and (not shape.prompt_box_s or whole <= shape.prompt_box_s)
            seconds += (whole if asked else 0) + plan.long_fill_s(
                name, fmt, max(shape.batches), shape.context, has_prompt=asked
            )
            for batch in shape.batches:
                turns, steps = turns_of(run.args.rounds)
                seconds += turns * ((steps + 1) * plan.decode_step_s(name, batch, shape.context) + plan.CEILINGS_S)
        rows.append((f"{fmt}: contexts of {shape.context} tokens, {', '.join(names)}", seconds))
    return rows
