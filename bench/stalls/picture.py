"""Draws the tokens of streams over time as SVG: a panel per server, in it a row per stream with a mark for every token,
and a row for the long prompts, each a bar from its arrival to its first token. All panels have one axis of time.
"""

from __future__ import annotations

import html

LEFT, RIGHT, TOP, WIDTH = 118, 16, 30, 860  # margins of a panel; of the time axis
ROW, BAR, BETWEEN = 13, 13, 26  # heights: of a stream, of a prompt's bar, between panels
TOKEN, PROMPT, HOLE, GREY = "#1f78b4", "#e69f00", "#fbdcd3", "#555"


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def panel(run: dict, end_s: float, stall_s: float, y: float) -> tuple[list[str], float]:
    """The drawing of a run from `y` on, and its bottom. Gaps above stall_s are shaded."""

    def x(at: float) -> float:
        return LEFT + WIDTH * min(at, end_s) / end_s

    about = f"{run['name']}: longest gap {seconds(run['longest_gap_s'])}, P99 {seconds(run['gap_p99_s'])}"
    out = [text(LEFT, y + 18, about, more='font-weight="bold"')]
    y += TOP
    for row, times in enumerate(run["streams"]):
        out.append(text(LEFT - 8, y + 10, f"stream {row + 1}", "end"))
        shown = [at for at in times if at <= end_s]
        for before, after in zip(shown, shown[1:]):
            if after - before > stall_s:
                out.append(rectangle(x(before), y + 1, x(after) - x(before), ROW - 2, HOLE))
        marks = "".join(f"M{x(at):.1f} {y + 2:.0f}v{ROW - 4}" for at in shown)
        out.append(f'<path d="{marks}" stroke="{TOKEN}" stroke-width="0.8"/>')
        y += ROW
    out.append(text(LEFT - 8, y + 14, "long prompts", "end"))
    for arrived, first in run["prompts"]:
        out.append(rectangle(x(arrived), y + 4, max(1.0, x(first) - x(arrived)), BAR, PROMPT))
        out.append(text(x(arrived) + 3, y + 14, seconds(first - arrived), more='font-size="10"'))
    return out, y + ROW + 6


def svg(title: str, runs: list[dict], end_s: float, stall_s: float) -> str:
    """runs: {name, streams: [[time of a token, s]], prompts: [[arrival, first token]], gap_p99_s, longest_gap_s}."""
    out, y = [text(LEFT, 20, title, more=f'fill="{GREY}"')], 24.0
    for run in runs:
        drawn, y = panel(run, end_s, stall_s, y)
        out += drawn
        y += BETWEEN - TOP + 12
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if end_s / s <= 12)
    for tick in range(0, int(end_s) + 1, step):
        out.append(text(LEFT + WIDTH * tick / end_s, y + 12, f"{tick} s", "middle", f'fill="{GREY}"'))
    width, height = LEFT + WIDTH + RIGHT, y + 24
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" viewBox="0 0 {width}'
        f' {height:.0f}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, rectangle(0, 0, width, height, "#fff"), *out, "</svg>", ""])
