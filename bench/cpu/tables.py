"""The report's tables: each function gets a whole result and returns lines of Markdown, [] without measurements of its
part."""

from __future__ import annotations

import math
import statistics

import neighbours
from aims import FORMATS, cell_rows, engines_of, flat, loaded_loss, mean_ttft, speeds, stall_points, work_of


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(
        ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(r) + " |" for r in rows)]
    )


def spread(values: list[float], digits: int = 0) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f}-{values[-1]:.{digits}f}; {len(values)})"


def cells_tables(by_format: dict, kv: str, model: str) -> list[str]:
    out = []
    for fmt in [f for f in FORMATS if by_format.get(f)]:
        cells = by_format[fmt]
        names = engines_of(cells)
        rows = []
        for key, cell in cells.items():
            tokens = work_of(key)[1]
            ours = cell_rows(fmt, {key: cell}, kv, model)
            known = [r for r in ours if not math.isnan(r["share"])]
            read = cell.get("ceilings", {}).get("read_bytes", [])
            rows.append(
                [
                    key,
                    *(spread(speeds(cell, n, tokens), 0 if tokens > 1 else 1) for n in names),
                    "; ".join(f"{r['ratio']:.2f}" for r in ours),
                    f"{known[0]['limit']:.0f}" if known else "",
                    "; ".join(f"{r['share'] * 100:.0f} %" for r in known),
                    (
                        f"{statistics.median(read) / 1e9:.0f} ({min(read) / 1e9:.0f}-{max(read) / 1e9:.0f})"
                        if read
                        else ""
                    ),
                ]
            )
        out += [
            f"### {fmt}",
            "",
            table(["tokens/s", *names, "ours / best peer", "ceiling", "our share", "reading, GB/s"], rows),
            "",
        ]
    return out


CELLS = (
    "Tokens/s: median (least-most; samples) over all steps of all turns. The ceiling of a cell is what its counted"
    " operations or bytes need at the measured ceilings, whichever is longer, output matrix and attention included; the"
    " share is the median over our turns, each against the ceilings measured just before and after it. Several of ours"
    " are in the columns' order, the ceiling is the first's. The last column is the read rate during the cell."
)


def cells(result: dict) -> list[str]:
    tables = cells_tables(result["cells"], result.get("kv", "bf16"), result.get("model", "dense"))
    return ["## Prefill and decode", "", CELLS, "", *tables] if tables else []


def long(result: dict) -> list[str]:
    tables = cells_tables(result.get("long", {}), result.get("kv", "bf16"), result.get("model", "dense"))
    return (
        ["## Long contexts", "", "As above; a prompt is computed in steps of at most 2,048 tokens.", "", *tables]
        if tables
        else []
    )


def beside_neighbours(result: dict) -> list[str]:
    rows = []
    for fmt, cells_of in result.get("neighbours", {}).items():
        for key, cell in cells_of.items():
            for name, row in cell.items():
                shares = neighbours.kept(row)
                if shares:
                    rows.append(
                        [
                            fmt,
                            key,
                            name,
                            f"{statistics.median(row[neighbours.ALONE]) * 1000:.1f}",
                            *(f"{shares[k] * 100:.0f} %" if k in shares else "-" for k in neighbours.NEIGHBOURS),
                        ]
                    )
    text = (
        "The share of its undisturbed speed that an engine keeps while a process on the first core is busy, medians of"
        " turns."
    )
    return (
        [
            "## Beside a neighbour",
            "",
            text,
            "",
            table(["format", "cell", "engine", "alone, ms", *(f"kept, {k}" for k in neighbours.NEIGHBOURS)], rows),
            "",
        ]
        if rows
        else []
    )


def loaded(result: dict) -> list[str]:
    loss = loaded_loss(result.get("loaded", {}))
    return (
        [f"32 streams through the server: {loss * 100:+.1f} % per step against the bare engine.", ""]
        if loss is not None
        else []
    )


def hybrid(result: dict) -> list[str]:
    rows = []
    for fmt, cell in result["hybrid"].items():
        for name in engines_of({"x": cell}):
            m = {k: statistics.median(flat(v)) for k, v in cell[name].items() if k != "ceilings"}
            if {"chunk", "decode", "hybrid"} <= m.keys():
                rows.append(
                    [
                        fmt,
                        name,
                        *(f"{m[k] * 1000:.0f}" for k in ("chunk", "decode", "hybrid")),
                        f"{m['hybrid'] / m['chunk']:.2f}",
                        f"{m['hybrid'] / (m['chunk'] + m['decode']):.2f}",
                    ]
                )
    return (
        [
            "## The hybrid step: a prompt of 512 tokens and 16 decodes at context 128",
            "",
            table(
                [
                    "format",
                    "engine",
                    "chunk, ms",
                    "16 decodes, ms",
                    "together, ms",
                    "together / chunk",
                    "together / sum",
                ],
                rows,
            ),
            "",
        ]
        if rows
        else []
    )


def ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value * 1000:.0f}"


def seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def stall(result: dict) -> list[str]:
    rows = []
    for name, r in result["stall"].items():
        rows.append(
            [
                name,
                ms(r["quiet"]["p50_s"]),
                ms(r["quiet"]["p99_s"]),
                ms(r["disturbed"]["p50_s"]),
                ms(r["disturbed"]["p99_s"]),
                ms(r["disturbed"]["max_s"]),
                ", ".join(f"{t:.2f}" for t in r["ttft_s"]) or "-",
            ]
        )
    return (
        [
            "## Stalls: 6 streams are running, 2,048-token prompts arrive",
            "",
            table(
                ["server", "gap P50 without, ms", "P99", "gap P50 with, ms", "P99", "longest", "the prompt's TTFT, s"],
                rows,
            ),
            "",
            *trade_off(result),
        ]
        if rows
        else []
    )


def trade_off(result: dict) -> list[str]:
    """Compares the curves: for each point of theirs, our best gap at no later first token, and our best TTFT at no
    longer gap."""
    ours, theirs = stall_points(result)
    if not ours or not theirs:
        return []
    gap = lambda r: r["disturbed"]["p99_s"]

    def best(allowed: dict, value, show) -> str:
        name = min(allowed, key=lambda n: value(allowed[n]), default=None)
        return (
            f"{show(value(allowed[name]))} ({name.removeprefix('tactus, ').removeprefix('tactus') or 'default'})"
            if name
            else "none"
        )

    rows = [
        [
            n,
            ms(gap(t)),
            f"{mean_ttft(t):.2f}",
            best({m: o for m, o in ours.items() if mean_ttft(o) <= mean_ttft(t)}, gap, ms),
            best({m: o for m, o in ours.items() if gap(o) <= gap(t)}, mean_ttft, lambda v: f"{v:.2f}"),
        ]
        for n, t in sorted(theirs.items(), key=lambda x: gap(x[1]))
    ]
    return [
        (
            "Our curve is the budgets' (and `--tbt-slo`'s) points. For each point of a peer's curve: the smallest P99"
            " of the gap that ours has at no later a first token, and the earliest first token at no longer a gap;"
            ' "none" would be a point that beats all of ours.'
        ),
        "",
        table(
            [
                "a peer's point",
                "its gap's P99, ms",
                "its TTFT, s",
                "ours: gap's P99 at that TTFT or sooner, ms",
                "ours: TTFT at that gap or less, s",
            ],
            rows,
        ),
        "",
    ]


def completed(row: dict) -> str:
    return f"{row['completed']}/{row['requests']}" + (f", cut after {row['seconds']:.0f} s" if row.get("cut") else "")


def served(result: dict) -> list[str]:
    out = []
    titles = {
        "saturation": "## Served at saturation: 256-768 tokens in, 32-64 out, 8 at once",
        "poisson": (
            "## Served, Poisson arrivals of 256-1,024 tokens in and 32-64 out, with bursts of two 2,000-token prompts"
        ),
    }
    for scenario, servers in result["served"].items():
        rows = [
            [
                name,
                completed(r),
                f"{r['requests_per_s']:.2f}",
                f"{r['output_tokens_per_s']:.1f}",
                f"{r['all_tokens_per_s']:.0f}",
                seconds(r["ttft"]["p50_s"]),
                seconds(r["ttft"]["p99_s"]),
                ms(r["tbt"]["p50_s"]),
                ms(r["tbt"]["p99_s"]),
                ms(r["tbt"]["max_s"]),
                str(r["tbt"]["n"]),
            ]
            for name, r in servers.items()
        ]
        out += [
            titles.get(scenario, f"## {scenario}"),
            "",
            table(
                [
                    "server",
                    "completed",
                    "req/s",
                    "output tokens/s",
                    "with prompts'",
                    "TTFT P50, s",
                    "P99",
                    "TBT P50, ms",
                    "P99",
                    "longest",
                    "gaps",
                ],
                rows,
            ),
            "",
        ]
        if any(r.get("cut") for r in servers.values()):
            out += [
                (
                    "A server that was cut counts with the tokens that had arrived by then; its TTFT leaves out the"
                    " requests that had none."
                ),
                "",
            ]
    return out


def operators(result: dict) -> list[str]:
    rows = [
        [
            o["format"],
            o["name"],
            o["shape"],
            f"{o['seconds'] * 1e6:.0f}",
            f"{o['ops'] / o['seconds'] / 1e9:.0f}",
            f"{o['bytes'] / o['seconds'] / 1e9:.1f}",
            f"{o['share'] * 100:.0f} % of {o['bound']}" if o["share"] is not None else "in cache",
        ]
        for o in result["operators"]
    ]
    return (
        [
            "## Operators: share of the roofline",
            "",
            (
                "Operations and bytes are counted, the time is the least of many repetitions, the ceilings are those of"
                " just before and after; weights and KV rotate through more memory than the caches hold."
            ),
            "",
            table(["format", "operator", "shape", "us", "GOP/s", "GB/s", "share"], rows),
            "",
        ]
        if rows
        else []
    )
