"""The picture of a run, as SVG: for each model goodput and the chat's TBT P99 over load, with bursts; a line per server, medians over repeats
with a bar from least to largest.
"""
from __future__ import annotations

import html
import statistics

import report

WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 260, 60, 40, 90
COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#1f78b4"]
PEER_COLOURS = {"llama.cpp": "#000000", "OpenVINO GenAI": "#777777"}
DASHES = ["", "6 3", "2 3"]
PANELS = [("goodput, requests/s that kept all objectives", ("goodput",)), ("chat TBT P99, ms", ("classes", "chat", "tbt_ms", "p99"))]


def points(cells: list[dict], who: str, path: tuple[str, ...]) -> list[tuple[float, float, float, float]]:
    """(load, median, least, largest)."""
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


def style(names: list[str], who: str) -> tuple[str, str]:
    if who in PEER_COLOURS:
        return PEER_COLOURS[who], ""
    at = [n for n in names if n not in PEER_COLOURS].index(who)
    return COLOURS[at % len(COLOURS)], DASHES[at // len(COLOURS) % len(DASHES)]


def panel(cells: list[dict], names: list[str], title: str, path: tuple[str, ...], x0: float, y0: float) -> list[str]:
    lines = {who: points(cells, who, path) for who in names}
    loads = sorted(report.distinct(cells, "load"))
    top = tidy_top(max((p[3] for line in lines.values() for p in line), default=1.0))
    low, high = min(loads), max(loads)
    x = lambda load: x0 + (WIDTH / 2 if high == low else 12 + (WIDTH - 24) * (load - low) / (high - low))
    y = lambda value: y0 + HEIGHT * (1 - min(value, top) / top)
    out = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{html.escape(title)}</text>', f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for i in range(5):
        value = top * i / 4
        out += [f'<line x1="{x0}" y1="{y(value):.1f}" x2="{x0 + WIDTH}" y2="{y(value):.1f}" stroke="#ddd"/>',
                f'<text x="{x0 - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>']
    out += [f'<text x="{x(load):.1f}" y="{y0 + HEIGHT + 16}" text-anchor="middle">{load:g}</text>' for load in loads]
    for i, (who, line) in enumerate(lines.items()):
        colour, dash = style(names, who)
        shift = (i - (len(names) - 1) / 2) * (2 if high > low else (WIDTH - 40) / max(1, len(names)))      # bars of equal loads side by side
        if len(line) > 1:
            out.append(f'<polyline points="{" ".join(f"{x(p[0]) + shift:.1f},{y(p[1]):.1f}" for p in line)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for load, middle, least, most in line:
            at = x(load) + shift
            out += [f'<line x1="{at:.1f}" y1="{y(least):.1f}" x2="{at:.1f}" y2="{y(most):.1f}" stroke="{colour}"/>',
                    f'<circle cx="{at:.1f}" cy="{y(middle):.1f}" r="3" fill="{colour}"><title>{html.escape(who)}: {middle:.4g}</title></circle>']
    return out


def svg(result: dict) -> str:
    """Of cells with bursts; where a run has none, of what it has."""
    cells = report.select(result["cells"], scenario="bursts") or result["cells"]
    names = report.distinct(cells, "who")
    models = report.distinct(cells, "model")
    rows = len(models)
    legend = TOP + rows * (HEIGHT + GAP)
    width = LEFT + 2 * (WIDTH + LEFT) + 10
    height = legend + 18 * ((len(names) + 2) // 3) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for row, model in enumerate(models):
        for column, (title, path) in enumerate(PANELS):
            x0, y0 = LEFT + column * (WIDTH + LEFT), TOP + row * (HEIGHT + GAP)
            of = report.select(cells, model=model)
            out += panel(of, names, f"{model}: {title}", path, x0, y0)
            out.append(f'<text x="{x0 + WIDTH / 2}" y="{y0 + HEIGHT + 36}" text-anchor="middle">load, share of what the machine can serve of it</text>')
    for i, who in enumerate(names):
        colour, dash = style(names, who)
        x0, y0 = LEFT + (i % 3) * (width - LEFT) / 3, legend + 18 * (i // 3)
        out += [f'<line x1="{x0}" y1="{y0 - 4}" x2="{x0 + 26}" y2="{y0 - 4}" stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"/>',
                f'<text x="{x0 + 32}" y="{y0}">{html.escape(who)}</text>']
    return "\n".join([*out, "</svg>", ""])
