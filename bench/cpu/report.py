#!/usr/bin/env python3
"""A run's JSON as Markdown: each aim with "met" or its shortfall, every cell compared with the best peer and with the
cell's ceiling, the operators' shares, the stall test's trade-off curve and the load tests.

  report.py FILE.json
"""

from __future__ import annotations

import json
import pathlib
import sys

import aims
from parts import PARTS, Part
from tables import spread, table


def check(result: object) -> None:
    """Raises ValueError with the missing fields of a file that run.py did not write."""
    keys = {
        "date",
        "command",
        "machine",
        "versions",
        "threads",
        "cells",
        "hybrid",
        "operators",
        "stall",
        "served",
        "loaded",
        "settings",
        "load_s",
        "notes",
    }
    missing = sorted(keys - set(result)) if isinstance(result, dict) else ["everything"]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")


def cells_first() -> list[Part]:
    """The parts in the order of the report, independent of the measuring order."""
    return sorted(PARTS, key=lambda p: not p.per_format)


def judged(result: dict) -> list[dict]:
    """Every aim that this run can evaluate."""
    return [aim for part in cells_first() for aim in part.aims(result)]


def ceilings_line(result: dict) -> list[str]:
    everything: dict[str, list[float]] = {}
    for group in ("cells", "hybrid"):
        for cells in result[group].values():
            for cell in cells.values() if group == "cells" else [cells]:
                for k, v in cell.get("ceilings", {}).items():
                    everything.setdefault(k, []).extend(v)
    parts = [
        f"{label} {spread(sorted(x / scale for x in everything[k] if x), 2)} {unit}"
        for k, label, scale, unit in (
            ("bf16_ops", "bf16", 1e12, "TFLOP/s"),
            ("int8_ops", "int8", 1e12, "TOP/s"),
            ("f32_ops", "f32", 1e12, "TFLOP/s"),
            ("read_bytes", "reading", 1e9, "GB/s"),
        )
        if any(everything.get(k, []))
    ]
    return [f"Ceilings in this run, median (least-most): {'; '.join(parts)}.", ""] if parts else []


def head(result: dict) -> list[str]:
    """Command, machine, date and commit; one line for every command that added to the result."""
    out = []
    for run in result.get("runs") or [result]:
        m = run["machine"]
        limited = f", limited to {m['limited_to']}" if "limited_to" in m else ""
        out.append(
            f"- {run['date']}, commit {run['versions'].get('tactus', '?')}, {run.get('seconds', 0) / 60:.1f} minutes,"
            f" {m['cpu']}{limited}, {result['threads']} threads of {m['cores']} cores, {m['memory_gib']} GiB,"
            f" load average {m['load_average']:.1f} at the start: `{run['command']}`"
        )
    shapes = {"mixture": "- The model is the mixture of bench/cpu/shape.py: 3.1B parameters, 0.6B for each token"}
    out += [shapes[result["model"]]] if result.get("model") in shapes else []
    return out + [f"- {name}: {text}" for name, text in result["versions"].items() if name != "tactus"] + [""]


def aims_tables(result: dict) -> list[str]:
    out, everything = [], judged(result)
    titles = {
        aims.DEFAULT: "Default settings, beside the best peer at its default",
        aims.LIKE: "Like for like: 8-bit activations as the peers have them, beside the best peer",
    }
    for which, title in titles.items():
        rows = [a for a in everything if a["basis"] == which]
        if rows:
            out += [
                f"### {title}",
                "",
                f"{sum(a['met'] for a in rows)} of {len(rows)} met.",
                "",
                table(
                    ["what", "ours", "found", "aim", "verdict"],
                    [[a["what"], a["who"], a["found"], a["aim"], a["verdict"]] for a in rows],
                ),
                "",
            ]
    return ["## Aims", "", *out] if out else []


def markdown(result: dict) -> str:
    out = head(result) + ceilings_line(result) + aims_tables(result)
    for part in cells_first():
        out += part.section(result)
    settings = (
        dict(result["settings"])
        | {f"stall, {n}": r["settings"] for n, r in result["stall"].items()}
        | {f"{s}, {n}": r["settings"] for s, rows in result["served"].items() for n, r in rows.items()}
    )
    if settings:
        out += ["## What each ran with", ""] + [f"- {name}: {text}" for name, text in settings.items()] + [""]
    if result["load_s"]:
        out += ["Loading, s: " + ", ".join(f"{n} {t}" for n, t in result["load_s"].items()) + ".", ""]
    if result["notes"]:
        out += ["## Notes", ""] + [f"- {n}" for n in result["notes"]] + [""]
    return "\n".join(out)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        result = json.loads(pathlib.Path(sys.argv[1]).read_text())
        check(result)
    except (OSError, ValueError) as error:
        sys.exit(f"report.py: {sys.argv[1]} is not a result of run.py: {error}")
    print(markdown(result))


if __name__ == "__main__":
    main()
