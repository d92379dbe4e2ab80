"""A paper's claims as one picture (SVG): ours over the paper's value, one row per claim, on a logarithmic axis."""

import html
import math

from claims import DIRECTION, DISAGREES, REPRODUCED

LABEL, WIDTH, ROW, TOP, BOTTOM, MARGIN = 250, 520, 17, 66, 46, 14  # pixels; LABEL: width of the ids, WIDTH: of the axis
LEAST, MOST = 1 / 8, 8  # limits of the axis; values beyond are drawn at its end with their number
# Okabe and Ito's colours, which are distinguishable with colour-blindness; the marks also differ in form.
COLOUR = {REPRODUCED: "#0072B2", DIRECTION: "#B07800", DISAGREES: "#C04000"}
BAND, LINE, INK = "#e4e4e4", "#9a9a9a", "#222222"


def position(ratio):
    return LABEL + WIDTH * math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)


def text(x, y, words, anchor="start", size=11, colour=INK):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="{colour}">{html.escape(words)}</text>'
    )


def line(x1, y1, x2, y2, colour, width=1.0, more=""):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"{more}/>'
    )


def mark(x, y, verdict):
    colour = COLOUR[verdict]
    if verdict == REPRODUCED:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    if verdict == DIRECTION:
        return f'<path d="M{x - 4.5:.1f} {y + 4:.1f}h9l-4.5 -8z" fill="{colour}"/>'
    return line(x - 4, y - 4, x + 4, y + 4, colour, 2) + line(x - 4, y + 4, x + 4, y - 4, colour, 2)


def drawable(row):
    """Has a ratio above 0: the paper's value and ours are on one side of 0."""
    return row["verdict"] in COLOUR and (row["aim"]["value"] or 0) * (row["ours"] or 0) > 0


def claim(row, y):
    value, parts = row["aim"]["value"], []
    ends = [row["aim"]["low"], row["aim"]["high"]] if value > 0 else [row["aim"]["high"], row["aim"]["low"]]
    low, high = (outer if end is None else end / value for end, outer in zip(ends, (LEAST, MOST)))
    left, right = position(max(low, LEAST)), position(max(high, LEAST))
    parts.append(f'<rect x="{left:.1f}" y="{y - 6.5:.1f}" width="{right - left:.1f}" height="13" fill="{BAND}"/>')
    wrong = [v / value for v in row["variants"].values() if v is not None and v / value > 0]
    if wrong:
        parts.append(line(position(min(wrong)), y, position(max(wrong)), y, COLOUR[row["verdict"]], 1.5))
    ratio = row["ours"] / value
    parts.append(mark(position(ratio), y, row["verdict"]))
    if ratio > MOST:
        parts.append(text(position(MOST) - 9, y + 4, f"{ratio:.3g}", "end"))
    elif ratio < LEAST:
        parts.append(text(position(LEAST) + 9, y + 4, f"{ratio:.2g}"))
    return text(LABEL - 10, y + 4, row["id"], "end") + "".join(parts)


def svg(title, rows):
    """The picture; `rows` (run.py) without a ratio are left out and counted below."""
    shown = [row for row in rows if drawable(row)]
    bottom = TOP + ROW * len(shown)
    width, height = LABEL + WIDTH + 2 * MARGIN, bottom + BOTTOM
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="Helvetica, Arial, sans-serif" role="img"><title>{html.escape(title)}</title>'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(MARGIN, 20, title, size=13),
    ]
    x = float(MARGIN)
    for verdict in COLOUR:
        parts += [mark(x + 5, 38, verdict), text(x + 15, 42, verdict)]
        x += 40 + 6.2 * len(verdict)
    parts += [
        f'<rect x="{x:.1f}" y="31.5" width="24" height="13" fill="{BAND}"/>',
        text(x + 30, 42, "counts as reproduced"),
    ]
    parts += [line(x + 160, 38, x + 184, 38, COLOUR[REPRODUCED], 1.5), text(x + 190, 42, "with wrong step times")]
    for tick in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8):
        at = position(tick)
        parts += [
            line(at, TOP - 8, at, bottom, INK if tick == 1 else LINE, 1.2 if tick == 1 else 0.5),
            text(at, bottom + 14, f"{tick:g}", "middle"),
        ]
    parts += [claim(row, TOP + ROW * (i + 0.5)) for i, row in enumerate(shown)]
    left_out = len(rows) - len(shown)
    parts.append(
        text(
            position(1),
            bottom + 32,
            "ours / the paper's value"
            + (
                f" ({left_out} claims without one: the two lie on different sides of 0, or one is 0)"
                if left_out
                else ""
            ),
            "middle",
        )
    )
    return "\n".join(parts) + "\n</svg>\n"
