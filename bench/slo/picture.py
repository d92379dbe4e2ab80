"""The picture of a run, as SVG, of its cells with bursts. For each model a bar per server at the load that most of them had: goodput, best
first, and the chat's TBT P99. Below, for the servers that had several loads, both over load. Medians over repeats, with a line from least to
largest.
"""
from __future__ import annotations

import html
import statistics

import report

WIDTH, NAMES, GAP, MARGIN = 300, 230, 60, 12       # of a panel; of the bars' names; between panels; around all
HEIGHT, BAR = 200, 17                              # of a panel with lines; of a bar with its distance
COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#1f78b4"]
PEER_COLOURS = {"llama.cpp": "#000000", "OpenVINO GenAI": "#777777"}
PANELS = [("goodput, requests/s", ("goodput",)), ("chat TBT P99, ms", ("classes", "chat", "tbt_ms", "p99"))]
Point = tuple[float, float, float, float]          # load, median, least, largest


def points(cells: list[dict], who: str, path: tuple[str, ...]) -> list[Point]:
    found = []
    for load in sorted(report.distinct(cells, "load")):
        values = [v for c in report.select(cells, who=who, load=load) if (v := report.value_of(c, *path)) is not None]
        if values:
            found.append((load, statistics.median(values), min(values), max(values)))
    return found


def tidy_top(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    return next((f * power for f in (1, 2, 5, 10) if f * power >= value), power) if value > 0 else 1.0


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def colour_of(names: list[str], who: str) -> str:
    return PEER_COLOURS.get(who) or COLOURS[[n for n in names if n not in PEER_COLOURS].index(who) % len(COLOURS)]


def usual_load(cells: list[dict]) -> float:
    """The one that most servers had; of several the highest."""
    return max(report.distinct(cells, "load"), key=lambda load: (len(report.distinct(report.select(cells, load=load), "who")), load))


def bars(cells: list[dict], names: list[str], title: str, path: tuple[str, ...], x0: float, y0: float, labelled: bool) -> list[str]:
    of = {who: (points(cells, who, path) or [None])[0] for who in names}
    top = tidy_top(max((p[3] for p in of.values() if p), default=1.0))
    x = lambda value: x0 + WIDTH * value / top
    out = [text(x0, y0 - 8, title, more='font-weight="bold"')]
    out += [piece for i in range(5) for piece in (line(x(top * i / 4), y0, x(top * i / 4), y0 + BAR * len(names), "#ddd"),
                                                  text(x(top * i / 4), y0 + BAR * len(names) + 14, f"{top * i / 4:g}", "middle"))]
    for row, who in enumerate(names):
        y = y0 + BAR * row
        if labelled:
            out.append(text(x0 - 6, y + BAR - 5, who, "end"))
        if p := of[who]:
            out.append(f'<rect x="{x0}" y="{y + 2:.1f}" width="{x(p[1]) - x0:.1f}" height="{BAR - 4}" fill="{PEER_COLOURS.get(who, COLOURS[0])}" fill-opacity="0.8"/>')
            out.append(line(x(p[2]), y + BAR / 2, x(p[3]), y + BAR / 2, "#d95f02", 2))
        else:
            out.append(text(x0 + 4, y + BAR - 5, "no answer in time"))
    return out


def lines(cells: list[dict], names: list[str], title: str, path: tuple[str, ...], x0: float, y0: float) -> list[str]:
    of = {who: points(cells, who, path) for who in names}
    loads = sorted(report.distinct(cells, "load"))
    top = tidy_top(max((p[3] for found in of.values() for p in found), default=1.0))
    x = lambda load: x0 + 20 + (WIDTH - 40) * (load - loads[0]) / (loads[-1] - loads[0])
    y = lambda value: y0 + HEIGHT * (1 - value / top)
    out = [text(x0, y0 - 8, title, more='font-weight="bold"')]
    for i in range(5):
        out += [line(x0, y(top * i / 4), x0 + WIDTH, y(top * i / 4), "#ddd"), text(x0 - 6, y(top * i / 4) + 4, f"{top * i / 4:g}", "end")]
    out += [text(x(load), y0 + HEIGHT + 16, f"{load:g}", "middle") for load in loads]
    for i, (who, found) in enumerate(of.items()):
        colour, shift = colour_of(names, who), 3 * (i - (len(names) - 1) / 2)
        if len(found) > 1:
            out.append(f'<polyline points="{" ".join(f"{x(p[0]) + shift:.1f},{y(p[1]):.1f}" for p in found)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for load, middle, least, most in found:
            out += [line(x(load) + shift, y(least), x(load) + shift, y(most), colour), f'<circle cx="{x(load) + shift:.1f}" cy="{y(middle):.1f}" r="3" fill="{colour}"/>']
    return out


def model_rows(cells: list[dict], model: str, y: float) -> tuple[list[str], float]:
    """What is drawn of a model from `y` on, and where that ends."""
    out, x0 = [], MARGIN + NAMES
    load = usual_load(cells)
    now = report.select(cells, load=load)
    names = sorted(report.distinct(now, "who"), key=lambda who: -(points(now, who, PANELS[0][1]) or [(0, -1, 0, 0)])[0][1])
    y += 40
    for column, (title, path) in enumerate(PANELS):
        out += bars(now, names, f"{model}, load {load:g}: {title}", path, x0 + column * (WIDTH + GAP + 40), y, column == 0)
    y += BAR * len(names) + 30
    several = [who for who in report.distinct(cells, "who") if len(report.distinct(report.select(cells, who=who), "load")) > 1]
    if several:
        y += 30
        for column, (title, path) in enumerate(PANELS):
            out += lines(cells, several, f"{model}, over load: {title}", path, x0 + column * (WIDTH + GAP + 40), y)
        for row, who in enumerate(several):
            out += [line(MARGIN, y + 10 + BAR * row, MARGIN + 22, y + 10 + BAR * row, colour_of(several, who), 3), text(MARGIN + 28, y + 14 + BAR * row, who)]
        y += max(HEIGHT, BAR * len(several)) + 30
    return out, y


def svg(result: dict) -> str:
    """Where a run has no cells with bursts, of what it has."""
    cells = report.select(result["cells"], scenario="bursts") or result["cells"]
    out, y = [], 0.0
    for model in report.distinct(cells, "model"):
        more, y = model_rows(report.select(cells, model=model), model, y)
        out += more
    width, height = 2 * MARGIN + NAMES + 2 * WIDTH + GAP + 40, y + MARGIN
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height:.0f}" fill="#fff"/>']
    return "\n".join([*head, *out, "</svg>", ""])
