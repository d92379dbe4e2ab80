"""Draws the cells with bursts of a run as SVG. For each model a bar per server at the most common load: goodput, best
first, and the chat's TBT P99 (logarithmic). Below, both over load for the servers measured at several loads. Medians
over repeats, with a line from minimum to maximum.
"""

from __future__ import annotations

import html
import math
import statistics
import typing

from cells import distinct, select, value_of

WIDTH, GAP, MARGIN, LETTER = 300, 100, 12, 7  # of a panel; between panels; around all; of a letter, about
HEIGHT, BAR = 200, 17  # of a panel with lines; of a bar with its distance
COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#1f78b4"]
PEER_COLOURS = {"llama.cpp": "#000000", "OpenVINO GenAI": "#777777"}
PANELS = [
    ("goodput, requests/s", ("goodput",), False),
    ("chat TBT P99, ms", ("classes", "chat", "tbt_ms", "p99"), True),
]  # the last is logarithmic
Point = tuple[float, float, float, float]  # load, median, minimum, maximum


def points(cells: list[dict], who: str, path: tuple[str, ...]) -> list[Point]:
    found = []
    for load in sorted(distinct(cells, "load")):
        values = [v for c in select(cells, who=who, load=load) if (v := value_of(c, *path)) is not None]
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


def scale(values: list[float], logarithmic: bool) -> tuple[list[float], typing.Callable[[float], float]]:
    """Ticks, and a function from a value to its position: 0 at the first tick, 1 at the last."""
    above = [v for v in values if v > 0]
    if not logarithmic or not above:
        top = tidy_top(max(values, default=1.0))
        return [top * i / 4 for i in range(5)], lambda value: value / top
    low, high = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
    high = max(high, low + 1)
    return [10.0**e for e in range(low, high + 1)], lambda value: max(
        0.0, (math.log10(max(value, 1e-9)) - low) / (high - low)
    )


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def colour_of(names: list[str], who: str) -> str:
    return PEER_COLOURS.get(who) or COLOURS[[n for n in names if n not in PEER_COLOURS].index(who) % len(COLOURS)]


def usual_load(cells: list[dict]) -> float:
    """The load measured for the most servers; the highest on a tie."""
    return max(distinct(cells, "load"), key=lambda load: (len(distinct(select(cells, load=load), "who")), load))


def bars(
    cells: list[dict], names: list[str], panel: tuple, title: str, x0: float, y0: float, labelled: bool
) -> list[str]:
    name, path, logarithmic = panel
    of = {who: (points(cells, who, path) or [None])[0] for who in names}
    ticks, share = scale([v for p in of.values() if p for v in p[1:]], logarithmic)
    x = lambda value: x0 + WIDTH * share(value)
    out = [text(x0, y0 - 8, f"{title}: {name}", more='font-weight="bold"')]
    out += [
        piece
        for tick in ticks
        for piece in (
            line(x(tick), y0, x(tick), y0 + BAR * len(names), "#ddd"),
            text(x(tick), y0 + BAR * len(names) + 14, f"{tick:g}", "middle"),
        )
    ]
    for row, who in enumerate(names):
        y = y0 + BAR * row
        if labelled:
            out.append(text(x0 - 6, y + BAR - 5, who, "end"))
        if p := of[who]:
            out.append(
                f'<rect x="{x0}" y="{y + 2:.1f}" width="{x(p[1]) - x0:.1f}" height="{BAR - 4}"'
                f' fill="{PEER_COLOURS.get(who, COLOURS[0])}" fill-opacity="0.8"/>'
            )
            out.append(line(x(p[2]), y + BAR / 2, x(p[3]), y + BAR / 2, "#d95f02", 2))
        else:
            out.append(text(x0 + 4, y + BAR - 5, "no answer in time"))
    return out


def lines(cells: list[dict], names: list[str], panel: tuple, title: str, x0: float, y0: float) -> list[str]:
    name, path, logarithmic = panel
    of = {who: points(cells, who, path) for who in names}
    loads = sorted(distinct(cells, "load"))
    ticks, share = scale([v for found in of.values() for p in found for v in p[1:]], logarithmic)
    x = lambda load: x0 + 20 + (WIDTH - 40) * (load - loads[0]) / (loads[-1] - loads[0])
    y = lambda value: y0 + HEIGHT * (1 - share(value))
    out = [text(x0, y0 - 8, f"{title}: {name}", more='font-weight="bold"')]
    for tick in ticks:
        out += [line(x0, y(tick), x0 + WIDTH, y(tick), "#ddd"), text(x0 - 6, y(tick) + 4, f"{tick:g}", "end")]
    out += [text(x(load), y0 + HEIGHT + 16, f"{load:g}", "middle") for load in loads]
    for i, (who, found) in enumerate(of.items()):
        colour, shift = colour_of(names, who), 3 * (i - (len(names) - 1) / 2)
        if len(found) > 1:
            out.append(
                f'<polyline points="{" ".join(f"{x(p[0]) + shift:.1f},{y(p[1]):.1f}" for p in found)}" fill="none"'
                f' stroke="{colour}" stroke-width="2"/>'
            )
        for load, middle, least, most in found:
            out += [
                line(x(load) + shift, y(least), x(load) + shift, y(most), colour),
                f'<circle cx="{x(load) + shift:.1f}" cy="{y(middle):.1f}" r="3" fill="{colour}"/>',
            ]
    return out


def names_width(cells: list[dict]) -> float:
    return 34 + LETTER * max(len(who) for who in distinct(cells, "who"))


def model_rows(cells: list[dict], model: str, x0: float, y: float) -> tuple[list[str], float]:
    """The drawing of a model from `y` on, and its bottom."""
    out: list[str] = []
    load = usual_load(cells)
    now = select(cells, load=load)
    names = sorted(distinct(now, "who"), key=lambda who: -(points(now, who, PANELS[0][1]) or [(0, -1, 0, 0)])[0][1])
    y += 40
    for column, panel in enumerate(PANELS):
        out += bars(now, names, panel, f"{model}, load {load:g}", x0 + column * (WIDTH + GAP), y, column == 0)
    y += BAR * len(names) + 30
    several = [who for who in distinct(cells, "who") if len(distinct(select(cells, who=who), "load")) > 1]
    if several:
        y += 30
        for column, panel in enumerate(PANELS):
            out += lines(cells, several, panel, f"{model}, over load", x0 + column * (WIDTH + GAP), y)
        for row, who in enumerate(several):
            out += [
                line(MARGIN, y + 10 + BAR * row, MARGIN + 22, y + 10 + BAR * row, colour_of(several, who), 3),
                text(MARGIN + 28, y + 14 + BAR * row, who),
            ]
        y += max(HEIGHT, BAR * len(several)) + 30
    return out, y


def svg(result: dict) -> str:
    """Draws the other cells if a run has none with bursts."""
    cells = select(result["cells"], scenario="bursts") or result["cells"]
    out, x0, y = [], MARGIN + names_width(cells), 0.0
    for model in distinct(cells, "model"):
        more, y = model_rows(select(cells, model=model), model, x0, y)
        out += more
    width, height = x0 + 2 * WIDTH + GAP + 3 * MARGIN, y + MARGIN
    head = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" viewBox="0 0 {width}'
            f' {height:.0f}" font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height:.0f}" fill="#fff"/>',
    ]
    return "\n".join([*head, *out, "</svg>", ""])
