"""The load: a chat, bursts of long prompts and best-effort work, drawn from a seed, as a workload file of `tactus
bench` and `tactus sim`.

Chat and batch arrivals do not depend on bursts: a run without them ("calm") has the same chat at the same times.
"""

from __future__ import annotations

import csv
import dataclasses
import pathlib
import random

SHARES = {"chat": 0.70, "batch": 0.25, "long": 0.05}  # of requests
BURST = 2  # simultaneous long prompts
LONG_PROMPT, LONG_ANSWER = 2000, 32
SCENARIOS = ("calm", "bursts")
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "slo_ttft_ms", "slo_tbt_ms", "slo_jct_ms", "slo_class")


@dataclasses.dataclass(frozen=True)
class Row:
    arrival_s: float
    prompt: int
    answer: int
    label: str


def lengths(draw: random.Random, label: str) -> tuple[int, int]:
    if label == "chat":
        return clip(draw.lognormvariate(4.8, 0.6), 20, 600), clip(draw.lognormvariate(3.7, 0.5), 8, 120)
    if label == "batch":
        return draw.randint(200, 500), draw.randint(40, 120)
    return LONG_PROMPT, LONG_ANSWER


def clip(value: float, low: int, high: int) -> int:
    return max(low, min(high, round(value)))


def draw_rows(seed: int, rate: float, seconds: float, scenario: str) -> list[Row]:
    """`rate`: requests per second of all classes together, including bursts."""
    found = []
    for label in ("chat", "batch"):
        draw = random.Random(f"{seed} {label}")
        at = draw.expovariate(rate * SHARES[label])
        while at < seconds:
            found.append(Row(round(at, 4), *lengths(draw, label), label))
            at += draw.expovariate(rate * SHARES[label])
    if scenario == "bursts":
        count = max(1, round(rate * SHARES["long"] * seconds / BURST))
        for b in range(count):  # evenly spread, so that each has time to take effect
            found += [Row(round(seconds * (b + 0.5) / count, 4), *lengths(random.Random(), "long"), "long")] * BURST
    return sorted(found, key=lambda r: r.arrival_s)


def parse_objectives(text: str) -> dict[str, dict[str, float]]:
    """ "chat:ttft=1s,tbt=100ms;long:ttft=10s" as milliseconds; raises ValueError."""
    found: dict[str, dict[str, float]] = {}
    for part in filter(None, text.split(";")):
        label, _, values = part.partition(":")
        if label not in SHARES:
            raise ValueError(f"'{label}' is no class; classes: {', '.join(SHARES)}")
        found[label] = {}
        for value in filter(None, values.split(",")):
            name, _, duration = value.partition("=")
            if name not in ("ttft", "tbt", "jct"):
                raise ValueError(f"'{name}' is no objective; objectives: ttft, tbt, jct")
            found[label][name] = milliseconds(duration)
    return found


def milliseconds(text: str) -> float:
    number, factor = (
        (text[:-2], 1.0) if text.endswith("ms") else (text[:-1], 1000.0) if text.endswith("s") else ("", 0.0)
    )
    try:
        value = float(number) * factor
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError(f"'{text}' is no duration above 0, as in 500ms or 2s")
    return value


def write(path: pathlib.Path, rows: list[Row], objectives: dict[str, dict[str, float]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for r in rows:
            of = objectives.get(r.label, {})
            out.writerow(
                [
                    r.arrival_s,
                    r.prompt,
                    r.answer,
                    *(f"{of[n]:g}" if n in of else "" for n in ("ttft", "tbt", "jct")),
                    r.label,
                ]
            )


def hopeless_after_s(rows: list[Row], objectives: dict[str, dict[str, float]]) -> float:
    """A request that takes longer has certainly missed all its objectives."""
    latest = [30.0]
    for r in rows:
        of = objectives.get(r.label, {})
        if "jct" in of:
            latest.append(of["jct"] / 1000)
        elif "ttft" in of and "tbt" in of:
            latest.append((of["ttft"] + of["tbt"] * r.answer) / 1000)
        elif "ttft" in of:
            latest.append(1.5 * of["ttft"] / 1000)
    return max(latest)


def counts(rows: list[Row]) -> dict[str, int]:
    return {label: sum(r.label == label for r in rows) for label in SHARES}
