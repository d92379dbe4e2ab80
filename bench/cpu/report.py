#!/usr/bin/env python3
"""A run's JSON as Markdown: every cell beside the best peer and beside the cell's own ceiling, the stall test's trade-off curve, the load
tests, the operators' shares, and each aim with "met" or by how much it is missed.

  report.py FILE.json
"""
from __future__ import annotations

import json
import math
import pathlib
import statistics
import sys

import plan
import shape

FORMATS = ["bf16", "int8", "int4"]
LIKE, DEFAULT = "like for like", "default"


def check(result: object) -> None:
    """Raises ValueError with what is missing in something that run.py did not write."""
    keys = {"date", "command", "machine", "versions", "threads", "cells", "hybrid", "operators", "stall", "served", "loaded", "settings", "load_s", "notes"}
    missing = sorted(keys - set(result)) if isinstance(result, dict) else ["everything"]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")


def is_ours(name: str) -> bool:
    return name.startswith("tactus")


def basis(name: str) -> str:
    """Whether a way of ours rounds as the peers do (8-bit activations under 8- and 4-bit weights, bf16 under bf16) or is what a user gets
    who asks for nothing."""
    return DEFAULT if plan.is_default(name) else LIKE


def turns_of(samples: list) -> list[list[float]]:
    """Steps turn by turn; results of before turns were kept apart are one flat list."""
    return samples if samples and isinstance(samples[0], list) else [samples] if samples else []


def flat(samples: list) -> list[float]:
    return [s for turn in turns_of(samples) for s in turn]


def ceilings_from(c: dict[str, float]) -> shape.Ceilings:
    bf16 = c.get("bf16_ops") or c["f32_ops"]
    return shape.Ceilings(bf16, c.get("int8_ops") or bf16, c["read_bytes"])


def ceilings_of(cell: dict) -> shape.Ceilings | None:
    """Of a whole cell: the medians."""
    c = {k: statistics.median(v) for k, v in cell.get("ceilings", {}).items() if v}
    return ceilings_from(c) if c else None


def limits_of(cell: dict, name: str, work: shape.Work, fmt: str, kv: str) -> list[float]:
    """Seconds that each turn of this engine would have taken at its own turn's ceilings; [] where none were measured."""
    own = [ceilings_from(c) for c in cell.get(name, {}).get("ceilings", []) if c]
    whole = ceilings_of(cell)
    return [shape.least_s(work, fmt, c, kv) for c in (own or ([whole] if whole else []))]


def work_of(key: str) -> tuple[shape.Work, int]:
    """A cell's work and the tokens that it counts: "prefill 512", "decode 16 at 128"."""
    words = key.split()
    if words[0] == "prefill":
        return shape.prefill(int(words[1])), int(words[1])
    # Steps after the context: the measured ones begin right there.
    return shape.decode(int(words[1]), int(words[3])), int(words[1])


def engines_of(cells: dict) -> list[str]:
    names: list[str] = []
    for cell in cells.values():
        names += [n for n in cell if n != "ceilings" and n not in names]
    return sorted(names, key=lambda n: (not is_ours(n), names.index(n)))


def speeds(cell: dict, name: str, tokens: int) -> list[float]:
    return sorted(tokens / s for s in flat(cell.get(name, {}).get("all", [])) if s > 0)


def share_of(cell: dict, name: str, limits: list[float]) -> float:
    """Share of the ceiling: the median over turns, each against the ceilings measured around it."""
    turns = turns_of(cell[name]["all"])
    if len(limits) == len(turns):
        return statistics.median(limit / statistics.median(turn) for limit, turn in zip(limits, turns))
    return limits[0] / statistics.median(flat(turns)) if limits else math.nan


def cell_rows(fmt: str, cells: dict, kv: str = "bf16") -> list[dict]:
    """One row per cell and engine of ours: speed, best peer, ceiling."""
    rows = []
    for key, cell in cells.items():
        work, tokens = work_of(key)
        theirs = {n: statistics.median(speeds(cell, n, tokens)) for n in cell if n != "ceilings" and not is_ours(n) and speeds(cell, n, tokens)}
        best = max(theirs, key=theirs.get, default=None)
        for name in [n for n in cell if is_ours(n) and speeds(cell, n, tokens)]:
            value = statistics.median(speeds(cell, name, tokens))
            limits = limits_of(cell, name, work, fmt, kv)
            rows.append({"format": fmt, "cell": key, "name": name, "value": value, "best": best, "limit": tokens / statistics.median(limits) if limits else math.nan,
                         "share": share_of(cell, name, limits), "ratio": value / theirs[best] if best else math.nan})
    return rows


def wanted_ratio(fmt: str, key: str) -> float | None:
    words = key.split()
    if words[0] == "prefill":
        return 1.1 if fmt == "bf16" else 1.6
    batch, context = int(words[1]), int(words[3])
    if batch == 1:
        return 1.0
    if batch < 8:
        return None
    return 2.0 if context >= 1024 or fmt != "bf16" else 1.4


def verdict(met: bool, short: str) -> str:
    return "met" if met else f"short by {short}"


def cell_aims(fmt: str, cells: dict, kv: str) -> list[dict]:
    found = []
    for row in cell_rows(fmt, cells, kv):
        want = wanted_ratio(fmt, row["cell"])
        reached = [part for part in (row["ratio"] / want if want else math.nan, row["share"] / 0.8) if not math.isnan(part)]
        if want is None or not reached:
            continue
        part = max(reached)      # the lesser of the two demands will do
        text = ([f"{row['ratio']:.2f} times {row['best']}"] if row["best"] else []) + ([] if math.isnan(row["share"]) else [f"{row['share'] * 100:.0f} % of the ceiling"])
        found.append({"aim": f"{fmt} {row['cell']}: {want:g} times the best peer, or 80 % of the ceiling", "who": row["name"], "basis": basis(row["name"]),
                      "found": ", ".join(text), "met": part >= 1, "verdict": verdict(part >= 1, f"{(1 - part) * 100:.0f} %")})
    return found


def saturation_aims(saturation: dict) -> list[dict]:
    """A server that its time box cut counts with what it had done by then."""
    theirs = {n: r["output_tokens_per_s"] for n, r in saturation.items() if not is_ours(n) and (r["completed"] == r["requests"] or r.get("cut"))}
    best = max(theirs, key=theirs.get, default=None)
    found = []
    for name in [n for n in saturation if is_ours(n)] if best else []:
        ratio = saturation[name]["output_tokens_per_s"] / theirs[best] if theirs[best] else math.inf
        found.append({"aim": "served tokens/s at saturation: 1.7 times the best peer", "who": name, "basis": basis(name), "found": f"{ratio:.2f} times {best}", "met": ratio >= 1.7,
                      "verdict": verdict(ratio >= 1.7, f"{(1 - ratio / 1.7) * 100:.0f} %")})
    return found


def aims(result: dict) -> list[dict]:
    """Every aim that this run can judge."""
    found = []
    for fmt in FORMATS:
        found += cell_aims(fmt, result["cells"].get(fmt, {}), result.get("kv", "bf16"))
    for fmt, cell in result.get("hybrid", {}).items():
        for name in [n for n in cell if is_ours(n)]:
            ratio = statistics.median(flat(cell[name]["hybrid"])) / statistics.median(flat(cell[name]["chunk"]))
            found.append({"aim": f"{fmt} hybrid step: at most 1.15 times its chunk alone", "who": name, "basis": basis(name), "found": f"{ratio:.2f}", "met": ratio <= 1.15,
                          "verdict": verdict(ratio <= 1.15, f"{ratio - 1.15:.2f}")})
    found += stall_aims(result.get("stall", {}))
    found += saturation_aims(result.get("served", {}).get("saturation", {}))
    loaded = loaded_loss(result.get("loaded", {}))
    if loaded is not None:
        found.append({"aim": "32 streams through the server: at most 5 % slower than the bare engine", "who": "tactus", "basis": LIKE, "found": f"{loaded * 100:+.1f} %", "met": loaded <= 0.05,
                      "verdict": verdict(loaded <= 0.05, f"{(loaded - 0.05) * 100:.1f} points")})
    return found


def loaded_loss(loaded: dict) -> float | None:
    if not loaded.get("served") or not loaded.get("bare_step_s"):
        return None
    return statistics.mean(r["step_s"] for r in loaded["served"]) / statistics.mean(loaded["bare_step_s"]) - 1


def mean_ttft(row: dict) -> float:
    return statistics.mean(row["ttft_s"]) if row["ttft_s"] else math.inf


def stall_aims(stall: dict) -> list[dict]:
    ours = {n: r for n, r in stall.items() if is_ours(n) and r["ttft_s"]}
    theirs = {n: r for n, r in stall.items() if not is_ours(n) and r["ttft_s"]}
    found = []
    if "tactus, --tbt-slo" in ours and "tactus" in ours:
        row = ours["tactus, --tbt-slo"]
        limit = 1.5 * max(ours["tactus"]["quiet"]["p99_s"], min((r["quiet"]["p99_s"] for r in theirs.values()), default=0.0))
        met = row["disturbed"]["p99_s"] <= limit
        openvino = [mean_ttft(r) for n, r in theirs.items() if n.startswith("OpenVINO")]
        slow = bool(openvino) and mean_ttft(row) > min(openvino)
        found.append({"aim": "stall test: the gap's P99 at most 1.5 times the undisturbed one, by --tbt-slo", "who": "tactus, --tbt-slo", "basis": LIKE,
                      "found": f"{row['disturbed']['p99_s'] * 1000:.0f} ms, limit {limit * 1000:.0f} ms", "met": met, "verdict": verdict(met, f"{(row['disturbed']['p99_s'] / limit - 1) * 100:.0f} %")})
        if openvino:
            found.append({"aim": "stall test: that prompt's TTFT no worse than OpenVINO's best", "who": "tactus, --tbt-slo", "basis": LIKE, "found": f"{mean_ttft(row):.2f} s beside {min(openvino):.2f} s",
                          "met": not slow, "verdict": verdict(not slow, f"{(mean_ttft(row) / min(openvino) - 1) * 100:.0f} %")})
    if ours and theirs:
        above = undominated(ours, theirs)
        found.append({"aim": "stall test: the trade-off curve lies wholly below theirs", "who": "tactus, all budgets", "basis": LIKE, "found": "no point of theirs beats ours" if not above else "not below: " + "; ".join(above),
                      "met": not above, "verdict": verdict(not above, f"{len(above)} of {len(theirs)} points")})
    return found


def undominated(ours: dict, theirs: dict) -> list[str]:
    """The peers' points (gap P99, TTFT) that no point of ours is at least as good as in both."""
    return [n for n, t in theirs.items() if not any(o["disturbed"]["p99_s"] <= t["disturbed"]["p99_s"] and mean_ttft(o) <= mean_ttft(t) for o in ours.values())]


# --- Tables ----------------------------------------------------------------------------------------------------------

def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(r) + " |" for r in rows)])


def spread(values: list[float], digits: int = 0) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f}-{values[-1]:.{digits}f}; {len(values)})"


def cells_tables(result: dict) -> list[str]:
    out = []
    for fmt in [f for f in FORMATS if result["cells"].get(f)]:
        cells = result["cells"][fmt]
        names = engines_of(cells)
        rows = []
        for key, cell in cells.items():
            tokens = work_of(key)[1]
            ours = cell_rows(fmt, {key: cell}, result.get("kv", "bf16"))
            known = [r for r in ours if not math.isnan(r["share"])]
            read = cell.get("ceilings", {}).get("read_bytes", [])
            rows.append([key, *(spread(speeds(cell, n, tokens), 0 if tokens > 1 else 1) for n in names), "; ".join(f"{r['ratio']:.2f}" for r in ours), f"{known[0]['limit']:.0f}" if known else "",
                         "; ".join(f"{r['share'] * 100:.0f} %" for r in known), f"{statistics.median(read) / 1e9:.0f} ({min(read) / 1e9:.0f}-{max(read) / 1e9:.0f})" if read else ""])
        out += [f"### {fmt}", "", table(["tokens/s", *names, "ours / best peer", "ceiling", "our share", "reading, GB/s"], rows), ""]
    return out


def hybrid_table(result: dict) -> list[str]:
    rows = []
    for fmt, cell in result["hybrid"].items():
        for name in engines_of({"x": cell}):
            m = {k: statistics.median(flat(v)) for k, v in cell[name].items() if k != "ceilings"}
            if {"chunk", "decode", "hybrid"} <= m.keys():
                rows.append([fmt, name, *(f"{m[k] * 1000:.0f}" for k in ("chunk", "decode", "hybrid")), f"{m['hybrid'] / m['chunk']:.2f}", f"{m['hybrid'] / (m['chunk'] + m['decode']):.2f}"])
    return ["## The hybrid step: a prompt of 512 tokens and 16 decodes at context 128", "",
            table(["format", "engine", "chunk, ms", "16 decodes, ms", "together, ms", "together / chunk", "together / sum"], rows), ""] if rows else []


def ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value * 1000:.0f}"


def seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def stall_table(result: dict) -> list[str]:
    rows = []
    for name, r in result["stall"].items():
        rows.append([name, ms(r["quiet"]["p50_s"]), ms(r["quiet"]["p99_s"]), ms(r["disturbed"]["p50_s"]), ms(r["disturbed"]["p99_s"]), ms(r["disturbed"]["max_s"]),
                     ", ".join(f"{t:.2f}" for t in r["ttft_s"]) or "-"])
    return ["## Stalls: 6 streams are running, 2,048-token prompts arrive", "",
            table(["server", "gap P50 without, ms", "P99", "gap P50 with, ms", "P99", "longest", "the prompt's TTFT, s"], rows), "", *trade_off(result["stall"])] if rows else []


def trade_off(stall: dict) -> list[str]:
    """Both curves, side by side: what each point of theirs pays for, and what ours gives for no more of the other."""
    ours = {n: r for n, r in stall.items() if is_ours(n) and r["ttft_s"]}
    theirs = {n: r for n, r in stall.items() if not is_ours(n) and r["ttft_s"]}
    if not ours or not theirs:
        return []
    gap = lambda r: r["disturbed"]["p99_s"]

    def best(allowed: dict, value, show) -> str:
        name = min(allowed, key=lambda n: value(allowed[n]), default=None)
        return f"{show(value(allowed[name]))} ({name.removeprefix('tactus, ').removeprefix('tactus') or 'default'})" if name else "none"

    rows = [[n, ms(gap(t)), f"{mean_ttft(t):.2f}", best({m: o for m, o in ours.items() if mean_ttft(o) <= mean_ttft(t)}, gap, ms),
             best({m: o for m, o in ours.items() if gap(o) <= gap(t)}, mean_ttft, lambda v: f"{v:.2f}")] for n, t in sorted(theirs.items(), key=lambda x: gap(x[1]))]
    return ["Our curve is the budgets' (and `--tbt-slo`'s) points. For each point of a peer's curve: the smallest P99 of the gap that ours has at no later a first token, and the earliest first token "
            "at no longer a gap; \"none\" would be a point that beats all of ours.", "",
            table(["a peer's point", "its gap's P99, ms", "its TTFT, s", "ours: gap's P99 at that TTFT or sooner, ms", "ours: TTFT at that gap or less, s"], rows), ""]


def completed(row: dict) -> str:
    return f"{row['completed']}/{row['requests']}" + (f", cut after {row['seconds']:.0f} s" if row.get("cut") else "")


def served_tables(result: dict) -> list[str]:
    out = []
    titles = {"saturation": "## Served at saturation: 256-768 tokens in, 32-64 out, 8 at once",
              "poisson": "## Served, Poisson arrivals of 256-1,024 tokens in and 32-64 out, with bursts of two 2,000-token prompts"}
    for scenario, servers in result["served"].items():
        rows = [[name, completed(r), f"{r['requests_per_s']:.2f}", f"{r['output_tokens_per_s']:.1f}",
                 f"{r['all_tokens_per_s']:.0f}", seconds(r["ttft"]["p50_s"]), seconds(r["ttft"]["p99_s"]), ms(r["tbt"]["p50_s"]), ms(r["tbt"]["p99_s"]), ms(r["tbt"]["max_s"]), str(r["tbt"]["n"])]
                for name, r in servers.items()]
        out += [titles.get(scenario, f"## {scenario}"), "", table(["server", "completed", "req/s", "output tokens/s", "with prompts'", "TTFT P50, s", "P99", "TBT P50, ms", "P99", "longest", "gaps"], rows), ""]
        if any(r.get("cut") for r in servers.values()):
            out += ["A server that was cut counts with the tokens that had arrived by then; its TTFT leaves out the requests that had none.", ""]
    return out


def operator_table(result: dict) -> list[str]:
    rows = [[o["format"], o["name"], o["shape"], f"{o['seconds'] * 1e6:.0f}", f"{o['ops'] / o['seconds'] / 1e9:.0f}", f"{o['bytes'] / o['seconds'] / 1e9:.1f}",
             f"{o['share'] * 100:.0f} % of {o['bound']}" if o["share"] is not None else "in cache"] for o in result["operators"]]
    return ["## Operators: share of the roofline", "", "Operations and bytes are counted, the time is the least of many repetitions, the ceilings are those of just before and after; weights and KV rotate through more "
            "memory than the caches hold.", "", table(["format", "operator", "shape", "us", "GOP/s", "GB/s", "share"], rows), ""] if rows else []


def ceilings_line(result: dict) -> list[str]:
    everything: dict[str, list[float]] = {}
    for group in ("cells", "hybrid"):
        for cells in result[group].values():
            for cell in (cells.values() if group == "cells" else [cells]):
                for k, v in cell.get("ceilings", {}).items():
                    everything.setdefault(k, []).extend(v)
    parts = [f"{label} {spread(sorted(x / scale for x in everything[k] if x), 2)} {unit}" for k, label, scale, unit in
             (("bf16_ops", "bf16", 1e12, "TFLOP/s"), ("int8_ops", "int8", 1e12, "TOP/s"), ("f32_ops", "f32", 1e12, "TFLOP/s"), ("read_bytes", "reading", 1e9, "GB/s")) if any(everything.get(k, []))]
    return [f"Ceilings in this run, median (least-most): {'; '.join(parts)}.", ""] if parts else []


def head(result: dict) -> list[str]:
    """What was run where, when, and of which commit; one line for every command that added to the result."""
    out = []
    for run in result.get("runs") or [result]:
        m = run["machine"]
        out.append(f"- {run['date']}, commit {run['versions'].get('tactus', '?')}, {run.get('seconds', 0) / 60:.1f} minutes, {m['cpu']}, {result['threads']} threads of {m['cores']} cores, "
                   f"{m['memory_gib']} GiB, load average {m['load_average']:.1f} at the start: `{run['command']}`")
    return out + [f"- {name}: {text}" for name, text in result["versions"].items() if name != "tactus"] + [""]


def aims_tables(result: dict) -> list[str]:
    judged = aims(result)
    out = []
    for which, title in ((LIKE, "Like for like: 8-bit activations under 8- and 4-bit weights, as the peers have them"), (DEFAULT, "Our default, 16-bit activations, beside the same peers")):
        rows = [a for a in judged if a["basis"] == which]
        if rows:
            out += [f"### {title}", "", f"{sum(a['met'] for a in rows)} of {len(rows)} met.", "", table(["aim", "engine", "found", "verdict"], [[a["aim"], a["who"], a["found"], a["verdict"]] for a in rows]), ""]
    return ["## Aims", "", *out] if out else []


def markdown(result: dict) -> str:
    out = head(result) + ceilings_line(result)
    if any(result["cells"].values()):
        out += ["## Prefill and decode", "", "Tokens/s: median (least-most; samples) over all steps of all turns. The ceiling of a cell is what its counted operations or bytes need at the measured ceilings, whichever "
                "is longer, output matrix and attention included; the share is the median over our turns, each against the ceilings measured just before and after it. The last column is the read rate "
                "during the cell.", ""] + cells_tables(result)
    out += hybrid_table(result) + operator_table(result) + stall_table(result) + served_tables(result)
    loss = loaded_loss(result.get("loaded", {}))
    if loss is not None:
        out += [f"32 streams through the server: {loss * 100:+.1f} % per step against the bare engine.", ""]
    out += aims_tables(result)
    settings = dict(result["settings"]) | {f"stall, {n}": r["settings"] for n, r in result["stall"].items()} | {f"{s}, {n}": r["settings"] for s, rows in result["served"].items() for n, r in rows.items()}
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
