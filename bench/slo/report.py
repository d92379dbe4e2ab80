#!/usr/bin/env python3
"""A run's JSON as Markdown: goodput and attainment of every server at every load, latencies by class, each aim with its
result, and the errors of the simulations. `tactus bench` computes every figure of a request or a class; this program
adds only medians and ratios over repeats.

  report.py FILE.json [--judge PRESET] [--picture FILE.svg]
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import pathlib
import statistics

import picture
from cells import distinct, select, value_of

TBT_RATIO, GOODPUT_OVER_PRESETS, GOODPUT_OVER_LLAMA, POINTS = 1.5, 1.5, 3.0, 5.0  # the aims
LATENCIES = ("p50", "p90", "p99")


def check(result: object) -> None:
    """Raises ValueError with the missing fields if run.py did not write this file."""
    missing = (
        sorted({"runs", "models", "cells", "simulated", "notes"} - set(result))
        if isinstance(result, dict)
        else ["everything"]
    )
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")


def check_tokens(found: dict, requests: int, prompt: int, answer: int) -> None:
    """Raises ValueError if the server counted other tokens than requested: such an engine had another load."""
    said = {name: round((found[f"{name}_token_throughput"] or 0) * found["duration_s"]) for name in ("input", "output")}
    if (found["requests"]["completed"], said["input"], said["output"]) != (requests, prompt, answer):
        raise ValueError(
            f"of {requests} requests with {prompt} prompt and {answer} answer tokens together it completed"
            f" {found['requests']['completed']} and counted {said['input']} and {said['output']}:"
            f" {found.get('said') or 'no reason given'}"
        )


def check_same_load(served: dict, simulated: dict) -> None:
    """Raises ValueError if a cell was served and simulated under different loads: their measured parts have other
    requests. An arrival at the very edge may fall on either side."""

    def counts(found: dict) -> dict[str, int]:
        return {"all": sum(v or 0 for v in found["requests"].values())} | {
            f"{label} with objectives": f["stated"] for label, f in found["classes"].items()
        }

    a, b = counts(served), counts(simulated)
    if wrong := [
        f"{k}: {a.get(k, 0)} served, {b.get(k, 0)} simulated"
        for k in sorted(a | b)
        if abs(a.get(k, 0) - b.get(k, 0)) > 1
    ]:
        raise ValueError(
            f"not the load that was served ({'; '.join(wrong)} requests): pass the --seconds, --warmup and --seed of"
            " the serving run"
        )


# --- The stored part of a result ------------------------------------------------------------------------------------


def rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


def trimmed(found: dict) -> dict:
    """The fields used here, of the output of `tactus bench` or `tactus sim`."""
    keep = (
        "duration_s",
        "requests",
        "first_rejection",
        "goodput",
        "slo_attainment",
        "ttft_attainment",
        "tbt_attainment",
        "request_throughput",
        "output_token_throughput",
        "ttft_ms",
        "tbt_ms",
        "e2e_ms",
        "classes",
        "request_rate_achieved",
        "cached_prompt_tokens",
        "preemptions",
        "mean_batch",
        "extrapolation",
        "said",
    )
    return {k: rounded(found[k]) for k in keep if found.get(k) is not None}


def step_ratios(text: str) -> dict:
    """Percentiles of served step time over profiled step time (from a file of `tactus sim --steps-out`)."""
    found: dict[str, list[float]] = {"with prompts": [], "decodes only": []}
    for row in csv.DictReader(io.StringIO(text)):
        if float(row["predicted_ms"]) > 0:
            found["with prompts" if int(row["prefill_tokens"]) else "decodes only"].append(
                float(row["step_ms"]) / float(row["predicted_ms"])
            )
    return {
        kind: {
            "count": len(v),
            **{f"p{q}": round(sorted(v)[max(0, math.ceil(q * len(v) / 100) - 1)], 3) for q in (10, 50, 90)},
        }
        for kind, v in found.items()
        if v
    }


def in_one_line(cell: dict) -> str:
    r = cell["result"]
    chat = r["classes"].get("chat", {})
    return (
        f"goodput {number(r.get('goodput'))}/s, attainment {percent(r.get('slo_attainment'))}, chat TTFT P99"
        f" {at(chat, 'ttft_ms', 'p99')} ms, TBT P99 {at(chat, 'tbt_ms', 'p99')} ms; {r['requests']['completed']} done,"
        f" {r['requests']['failed']} failed, {r['requests']['rejected']} refused; others had"
        f" {cell.get('others_cores', 0):.2f} cores"
    )


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def at(figures: dict, name: str, which: str) -> str:
    summary = figures.get(name)
    return "-" if not summary else f"{summary[which]:.0f}"


# --- Medians and ratios over repeats --------------------------------------------------------------------------------


def spread(values: list[float], digits: int = 2) -> str:
    values = [v for v in values if v is not None]
    if not values:
        return "-"
    text = f"{statistics.median(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratios(cells: list[dict], over: list[dict], *path: str) -> list[float]:
    """Repeat by repeat, without repeats that one side lacks or whose divisor is 0."""
    below = {c["repeat"]: value_of(c, *path) for c in over}
    return [
        value_of(c, *path) / below[c["repeat"]]
        for c in cells
        if below.get(c["repeat"]) and value_of(c, *path) is not None
    ]


def is_ours(who: str) -> bool:
    return who.startswith("tactus ")


def best_other(cells: list[dict], judge: str, loads: list[float]) -> str | None:
    """The preset with the highest goodput other than `judge`, by the mean over loads of its medians."""

    def mean(who: str) -> float:
        of = [[value_of(c, "goodput") or 0.0 for c in select(cells, who=who, load=load)] for load in loads]
        return statistics.fmean(statistics.median(v) for v in of if v)

    return max((w for w in distinct(cells, "who") if is_ours(w) and w != judge), key=mean, default=None)


def judged(result: dict, asked: str | None = None) -> str:
    """The preset that is compared with the others: `tactus` if the run has it, else the default."""
    ours = [w for w in distinct(result["cells"], "who") if is_ours(w)]
    for name in [f"tactus {asked}"] if asked else ["tactus tactus", "tactus sarathi-serve"]:
        if name in ours:
            return name
    return ours[0] if ours else ""


# --- Aims -----------------------------------------------------------------------------------------------------------


def aims(result: dict, judge: str) -> list[dict]:
    """Each aim at each model and load: the result, and whether it is met."""
    found = []
    for model in distinct(result["cells"], "model"):
        cells = select(result["cells"], model=model)
        bursts = select(cells, scenario="bursts")
        for load in distinct(bursts, "load"):
            now = select(bursts, load=load)
            own = select(now, who=judge)
            calm = select(cells, scenario="calm", load=load, who=judge)
            where = f"{model}, load {load:g}"
            found += aim(
                where,
                f"chat TBT P99 with bursts at most {TBT_RATIO:g} times that without",
                ratios(own, calm, "classes", "chat", "tbt_ms", "p99"),
                most=TBT_RATIO,
            )
            if other := best_other(now, judge, [load]):
                found += aim(
                    where,
                    f"goodput at least {GOODPUT_OVER_PRESETS:g} times the best other preset's"
                    f" ({other.removeprefix('tactus ')})",
                    ratios(own, select(now, who=other), "goodput"),
                    least=GOODPUT_OVER_PRESETS,
                )
            for peer, least in (("llama.cpp", GOODPUT_OVER_LLAMA), ("OpenVINO GenAI", None)):
                of = select(now, who=peer)
                if own and of and not any(value_of(c, "goodput") for c in of):
                    found.append(
                        {
                            "where": where,
                            "aim": f"goodput beside {peer}'s",
                            "found": f"{peer} kept no request's objectives",
                            "met": any(value_of(c, "goodput") for c in own) if least else None,
                        }
                    )
                else:
                    found += aim(
                        where,
                        f"goodput at least {least:g} times {peer}'s" if least else f"goodput over {peer}'s",
                        ratios(own, of, "goodput"),
                        least=least,
                    )
    return found


def aim(
    where: str, text: str, values: list[float], least: float | None = None, most: float | None = None
) -> list[dict]:
    if not values:
        return []
    middle = statistics.median(values)
    met = (
        None
        if least is None and most is None
        else (least is None or middle >= least) and (most is None or middle <= most)
    )
    return [{"where": where, "aim": text, "found": spread(values), "met": met}]


def differences(result: dict) -> list[dict]:
    """Simulated minus served, in points of attainment, cell by cell."""
    found = []
    for s in result["simulated"]:
        key = {k: s[k] for k in ("model", "repeat", "load", "scenario", "who")}
        for c in select(result["cells"], **key):
            served, simulated = value_of(c, "slo_attainment"), value_of(s, "slo_attainment")
            if served is not None and simulated is not None:
                found.append(
                    key
                    | {
                        "served": served,
                        "simulated": simulated,
                        "points": 100 * (simulated - served),
                        "stated": sum(f["stated"] for f in c["result"]["classes"].values()),
                    }
                )
    return found


# --- The page -------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def goodput_table(result: dict, model: str, scenario: str) -> list[str]:
    cells = select(result["cells"], model=model, scenario=scenario)
    loads = sorted(distinct(cells, "load"))
    rows = []
    for who in distinct(cells, "who"):
        row = [who]
        for load in loads:
            of, sim = (
                select(cells, who=who, load=load),
                select(result["simulated"], model=model, scenario=scenario, who=who, load=load),
            )
            row.append(spread([value_of(c, "goodput") for c in of]))
            row.append(spread([100 * a for c in of if (a := value_of(c, "slo_attainment")) is not None], 0))
            row.append(spread([100 * a for c in sim if (a := value_of(c, "slo_attainment")) is not None], 0))
        rows.append(
            (
                -sum(
                    statistics.median(
                        [value_of(c, "goodput") or 0.0 for c in select(cells, who=who, load=load)] or [0.0]
                    )
                    for load in loads
                ),
                row,
            )
        )
    head = ["server", *(h for load in loads for h in (f"goodput at {load:g}, req/s", "kept, %", "simulated, %"))]
    return table(head, [row for _, row in sorted(rows, key=lambda r: r[0])])


def latency_table(result: dict, model: str, scenario: str, load: float) -> list[str]:
    cells = select(result["cells"], model=model, scenario=scenario, load=load)
    rows = []
    for who in distinct(cells, "who"):
        of = select(cells, who=who)
        row = [who]
        for label in ("chat", "long", "batch"):
            if not any(label in c["result"]["classes"] for c in of):
                continue
            if label != "batch":
                row.append(
                    spread(
                        [100 * v for c in of if (v := value_of(c, "classes", label, "slo_attainment")) is not None], 0
                    )
                )
            row.append(triple(of, label, "ttft_ms"))
            row.append(triple(of, label, "tbt_ms"))
        done = [
            (
                c["result"]["requests"]["completed"],
                sum(c["result"]["requests"].get(k) or 0 for k in ("completed", "failed", "rejected")),
            )
            for c in of
        ]
        row.append(f"{sum(d for d, _ in done)} of {sum(n for _, n in done)}")
        rows.append(row)
    classes = [label for label in ("chat", "long", "batch") if any(label in c["result"]["classes"] for c in cells)]
    head = [
        "server",
        *(
            h
            for label in classes
            for h in ([f"{label} kept, %"] if label != "batch" else []) + [f"{label} TTFT", f"{label} TBT"]
        ),
        "completed",
    ]
    return table(head, rows)


def triple(cells: list[dict], label: str, figure: str) -> str:
    """P50 / P90 / P99, medians over the repeats."""
    of = [[v for c in cells if (v := value_of(c, "classes", label, figure, p)) is not None] for p in LATENCIES]
    return "-" if not of[0] else " / ".join(f"{statistics.median(v):.0f}" for v in of)


def run_lines(result: dict) -> list[str]:
    lines = []
    for r in result["runs"]:
        m = r["machine"]
        lines += [
            (
                f"`{r['command']}`, commit {r['commit']}, {r['date']}, {r['seconds'] / 60:.0f} minutes; {m['cpu']},"
                f" {m['cores']} cores, {m['memory_gib']} GiB, load average at the start {m['load_average']:.1f}."
                f" {'; '.join(f'{k}: {v}' for k, v in r['versions'].items() if v)}"
            ),
            "",
        ]
    for name, info in result["models"].items():
        lines += [
            (
                f"Model {name}: {info['file']}; objectives {info['objectives']}; load 1 is"
                f" {info.get('capacity', 0):.3g} requests/s. Profile: {info.get('profile_said', 'given')}"
            ),
            "",
        ]
    busy = [c["others_cores"] for c in result["cells"] if "others_cores" in c]
    if busy:
        lines += [
            (
                f"Beside the cells other programs had {statistics.median(busy):.2f} cores (median; {min(busy):.2f} to"
                f" {max(busy):.2f})."
            ),
            "",
        ]
    return lines


def aim_lines(result: dict, judge: str) -> list[str]:
    lines = [f"### Aims, of {judge}", ""]
    verdict = {True: "met", False: "missed", None: "-"}
    lines += table(
        ["where", "aim", "found (median, least to largest)", ""],
        [[a["where"], a["aim"], a["found"], verdict[a["met"]]] for a in aims(result, judge)],
    )
    off = differences(result)
    if off:
        near = sum(abs(d["points"]) <= POINTS for d in off)
        worst = max(off, key=lambda d: abs(d["points"]))
        lines += [
            (
                f"Simulated attainment is within {POINTS:g} points of the served one in {near} of {len(off)} cells;"
                f" median difference {statistics.median(d['points'] for d in off):+.1f} points, median of its size"
                f" {statistics.median(abs(d['points']) for d in off):.1f}, largest {worst['points']:+.1f}"
                f" ({worst['who']}, {worst['model']}, load {worst['load']:g}, {worst['scenario']}). One request is"
                f" {100 / statistics.median(d['stated'] for d in off):.1f} points of a cell."
            ),
            "",
        ]
    noisy = [s["step_noise"] for s in result["simulated"] if s.get("step_noise")]
    if noisy:
        lines += [
            (
                f"Steps of {len(noisy)} of {len(result['simulated'])} simulated cells vary, by"
                f" {100 * statistics.median(n['with_prompts'] for n in noisy):.0f} % with prompts and"
                f" {100 * statistics.median(n['decodes_only'] for n in noisy):.0f} % without (standard deviations,"
                " medians over cells)."
            ),
            "",
        ]
    for kind in ("with prompts", "decodes only"):
        of = [s["steps"][kind] for s in result["simulated"] if kind in s.get("steps", {})]
        if of:
            lines += [
                (
                    f"Served steps {kind} took {statistics.median(s['p50'] for s in of):.2f} times what the profile"
                    f" says (medians over cells; P10 {statistics.median(s['p10'] for s in of):.2f}, P90"
                    f" {statistics.median(s['p90'] for s in of):.2f})."
                ),
                "",
            ]
    return lines


def markdown(result: dict, judge: str | None = None) -> str:
    lines = ["## Promises kept", "", *run_lines(result)]
    if judge := judged(result, judge):
        lines += aim_lines(result, judge)
    for model in distinct(result["cells"], "model"):
        of = select(result["cells"], model=model)
        for scenario in distinct(of, "scenario"):
            loads = sorted(distinct(select(of, scenario=scenario), "load"))
            lines += [f"### {model}, {scenario}", "", *goodput_table(result, model, scenario)]
            for load in loads:
                lines += [
                    f"Load {load:g}: milliseconds, P50 / P90 / P99",
                    "",
                    *latency_table(result, model, scenario, load),
                ]
    lines += [f"- {note}" for note in result["notes"]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--judge", help="the preset that the aims apply to; default: tactus, else sarathi-serve")
    parser.add_argument("--picture", type=pathlib.Path, help="writes the picture to this file")
    args = parser.parse_args()
    try:
        result = json.loads(args.file.read_text())
        check(result)
    except (OSError, ValueError) as error:
        parser.error(f"{args.file}: {error}")
    if args.judge and judged(result, args.judge) != f"tactus {args.judge}":
        parser.error(
            f"--judge {args.judge}: the run has {', '.join(w for w in distinct(result['cells'], 'who') if is_ours(w))}"
        )
    print(markdown(result, args.judge))
    if args.picture:
        args.picture.write_text(picture.svg(result))


if __name__ == "__main__":
    main()
