"""Evaluates a result: speeds, ratios to the best peer, shares of the ceiling, and each aim with "met" or its shortfall.
Measures nothing.
"""

from __future__ import annotations

import math
import statistics

import shape

FORMATS = ["bf16", "int8", "int4"]
DEFAULT, LIKE = "default", "like for like"
CEILING_SHARE = 0.75  # in every cell bound by arithmetic
LOADED = 0.03


def first_of(result: dict) -> str:
    """The activations of our variants without activations in their name. In results before 2026-11-25 they had 8-bit
    activations."""
    return result.get("first", LIKE)


def basis(name: str, first: str) -> str | None:
    """Whether a variant of ours is the default, or has the peers' 8-bit activations; None: neither. bf16 is both and
    counts as the default."""
    if "int8 activations" in name:
        return LIKE
    if "default numerics" in name:
        return DEFAULT  # older name; 16-bit activations were the default before
    if "int16 activations" in name:
        return None if first == DEFAULT else DEFAULT
    return first


def is_ours(name: str) -> bool:
    return name.startswith("tactus")


def is_peers_default(name: str) -> bool:
    """Whether a served peer has its default settings: llama-server without extra flags, and OpenVINO with its step of
    256 tokens."""
    return name.endswith((", default", ", chunks of 256"))


def turns_of(samples: list) -> list[list[float]]:
    """Steps by turn; older results have one flat list."""
    return samples if samples and isinstance(samples[0], list) else [samples] if samples else []


def flat(samples: list) -> list[float]:
    return [s for turn in turns_of(samples) for s in turn]


def ceilings_from(c: dict[str, float]) -> shape.Ceilings:
    bf16 = c.get("bf16_ops") or c["f32_ops"]
    return shape.Ceilings(bf16, c.get("int8_ops") or bf16, c["read_bytes"])


def ceilings_of(cell: dict) -> shape.Ceilings | None:
    """The medians over a whole cell."""
    c = {k: statistics.median(v) for k, v in cell.get("ceilings", {}).items() if v}
    return ceilings_from(c) if c else None


def ceilings_of_turns(cell: dict, name: str) -> list[shape.Ceilings]:
    """The ceilings of each turn of this engine, else of the whole cell; [] if none were measured."""
    own = [ceilings_from(c) for c in cell.get(name, {}).get("ceilings", []) if c]
    whole = ceilings_of(cell)
    return own or ([whole] if whole else [])


def kv_of(name: str, kv: str) -> str:
    """The format of K and V: the run's, unless a variant of ours names its own."""
    return "int8" if "int8 KV" in name else kv


def work_of(key: str) -> tuple[shape.Work, int]:
    """A cell's work and the tokens that it counts: "prefill 512", "decode 16 at 128"."""
    words = key.split()
    if words[0] == "prefill":
        return shape.prefill(int(words[1])), int(words[1])
    # The measured steps start right after the context.
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


def cell_rows(fmt: str, cells: dict, kv: str = "bf16", model: str = "dense") -> list[dict]:
    """One row per cell and engine of ours: tokens/s, the best peer's name and our ratio to it, the ceiling in tokens/s
    and our share of it,
    and whether the cell is bound by arithmetic (in most of our turns)."""
    rows, weights = [], shape.MODELS[model]
    for key, cell in cells.items():
        work, tokens = work_of(key)
        theirs = {
            n: statistics.median(speeds(cell, n, tokens))
            for n in cell
            if n != "ceilings" and not is_ours(n) and speeds(cell, n, tokens)
        }
        best = max(theirs, key=theirs.get, default=None)
        for name in [n for n in cell if is_ours(n) and speeds(cell, n, tokens)]:
            value = statistics.median(speeds(cell, name, tokens))
            ceilings, own_kv = ceilings_of_turns(cell, name), kv_of(name, kv)
            limits = [shape.least_s(work, fmt, c, own_kv, weights) for c in ceilings]
            by_arithmetic = [
                shape.arithmetic_s(work, fmt, c, weights) > shape.reading_s(work, fmt, c, own_kv, weights)
                for c in ceilings
            ]
            rows.append(
                {
                    "format": fmt,
                    "cell": key,
                    "name": name,
                    "value": value,
                    "best": best,
                    "limit": tokens / statistics.median(limits) if limits else math.nan,
                    "share": share_of(cell, name, limits),
                    "ratio": value / theirs[best] if best else math.nan,
                    "compute_bound": 2 * sum(by_arithmetic) > len(by_arithmetic),
                }
            )
    return rows


def aim(what: str, who: str, basis: str, found: str, wanted: str, met: bool, short: str) -> dict:
    return {
        "what": what,
        "who": who,
        "basis": basis,
        "found": found,
        "aim": wanted,
        "met": met,
        "verdict": "met" if met else f"short by {short}",
    }


def at_least(
    what: str, who: str, basis: str, value: float, wanted: float, unit: str = "", percent: bool = False
) -> dict:
    show = (lambda v: f"{v * 100:.1f} %") if percent else (lambda v: f"{v:.2f}")
    return aim(
        what,
        who,
        basis,
        (show(value) + unit),
        f"at least {f'{wanted * 100:g} %' if percent else f'{wanted:g}'}",
        value >= wanted,
        f"{(1 - value / wanted) * 100:.1f} %",
    )


def wanted_ratio(fmt: str, key: str, model: str = "dense") -> float | None:
    """The required ratio to the best peer; None: this cell has no aim."""
    words = key.split()
    if model == "mixture":
        return 1.6 if words[0] == "prefill" else 1.1 if words[1] == "1" else 2.0 if int(words[1]) >= 8 else None
    if words[0] == "prefill":
        return 1.15 if fmt == "bf16" else 1.5
    batch, context = int(words[1]), int(words[3])
    if batch == 1:
        return 1.05
    if context >= 1024:
        return 2.5
    return None if batch < 8 else 1.4 if fmt == "bf16" else 2.0


def cells(result: dict) -> list[dict]:
    found, first, model = [], first_of(result), result.get("model", "dense")
    for fmt in FORMATS:
        for row in cell_rows(fmt, result["cells"].get(fmt, {}), result.get("kv", "bf16"), model):
            of, want, what = basis(row["name"], first), wanted_ratio(fmt, row["cell"], model), f"{fmt} {row['cell']}"
            if of and want and row["best"]:
                found.append(
                    at_least(f"{what}, times the best peer", row["name"], of, row["ratio"], want, f" ({row['best']})")
                )
            if of and row["compute_bound"] and not math.isnan(row["share"]):
                found.append(
                    at_least(
                        f"{what}, share of the ceiling", row["name"], of, row["share"], CEILING_SHARE, percent=True
                    )
                )
    return found


def hybrid(result: dict) -> list[dict]:
    found = []
    for fmt, cell in result.get("hybrid", {}).items():
        for name in [n for n in cell if is_ours(n) and basis(n, first_of(result))]:
            ratio = statistics.median(flat(cell[name]["hybrid"])) / statistics.median(flat(cell[name]["chunk"]))
            found.append(
                aim(
                    f"{fmt} hybrid step, times its chunk alone",
                    name,
                    basis(name, first_of(result)),
                    f"{ratio:.2f}",
                    "at most 1.15",
                    ratio <= 1.15,
                    f"{ratio - 1.15:.2f}",
                )
            )
    return found


def saturation(result: dict) -> list[dict]:
    """Our default against the best peer with its default, 8-bit activations against the best of all. A server cut off
    by its time box counts with its work until then."""
    rows = result.get("served", {}).get("saturation", {})
    done = {
        n: r["output_tokens_per_s"]
        for n, r in rows.items()
        if not is_ours(n) and (r["completed"] == r["requests"] or r.get("cut"))
    }
    found = []
    for name in [n for n in rows if is_ours(n)]:
        of = basis(name, first_of(result))
        theirs = {n: rate for n, rate in done.items() if rate > 0 and (of == LIKE or is_peers_default(n))}
        if not of or not theirs:
            continue
        best = max(theirs, key=theirs.get)
        found.append(
            at_least(
                "served tokens/s at saturation, times the best peer",
                name,
                of,
                rows[name]["output_tokens_per_s"] / theirs[best],
                1.7,
                f" ({best})",
            )
        )
    return found


def loaded(result: dict) -> list[dict]:
    loss = loaded_loss(result.get("loaded", {}))
    if loss is None:
        return []
    return [
        aim(
            "32 streams through the server, slower than the bare engine",
            "tactus",
            first_of(result),
            f"{loss * 100:+.1f} %",
            f"at most {LOADED * 100:g} %",
            loss <= LOADED,
            f"{(loss - LOADED) * 100:.1f} points",
        )
    ]


def loaded_loss(loaded: dict) -> float | None:
    if not loaded.get("served") or not loaded.get("bare_step_s"):
        return None
    return statistics.mean(r["step_s"] for r in loaded["served"]) / statistics.mean(loaded["bare_step_s"]) - 1


def mean_ttft(row: dict) -> float:
    return statistics.mean(row["ttft_s"]) if row["ttft_s"] else math.inf


def stall_points(result: dict) -> tuple[dict, dict]:
    """Our points of the stall test for one variant of the format, and the peers'."""
    first = first_of(result)
    rows = {n: r for n, r in result.get("stall", {}).items() if r["ttft_s"]}
    return {n: r for n, r in rows.items() if is_ours(n) and basis(n, first) == first}, {
        n: r for n, r in rows.items() if not is_ours(n)
    }


def stall(result: dict) -> list[dict]:
    ours, theirs = stall_points(result)
    first, found = first_of(result), []
    if "tactus, --tbt-slo" in ours and "tactus" in ours:
        row = ours["tactus, --tbt-slo"]
        gap, limit = (
            row["disturbed"]["p99_s"],
            1.5
            * max(ours["tactus"]["quiet"]["p99_s"], min((r["quiet"]["p99_s"] for r in theirs.values()), default=0.0)),
        )
        found.append(
            aim(
                "stall test: P99 of the gaps with --tbt-slo",
                "tactus, --tbt-slo",
                first,
                f"{gap * 1000:.0f} ms",
                f"at most {limit * 1000:.0f} ms, 1.5 times the undisturbed",
                gap <= limit,
                f"{(gap / limit - 1) * 100:.0f} %",
            )
        )
        openvino = min((mean_ttft(r) for n, r in theirs.items() if n.startswith("OpenVINO")), default=None)
        if openvino is not None:
            ttft = mean_ttft(row)
            found.append(
                aim(
                    "stall test: that prompt's TTFT",
                    "tactus, --tbt-slo",
                    first,
                    f"{ttft:.2f} s",
                    f"at most OpenVINO's best, {openvino:.2f} s",
                    ttft <= openvino,
                    f"{(ttft / openvino - 1) * 100:.0f} %",
                )
            )
    if ours and theirs:
        above = undominated(ours, theirs)
        found.append(
            aim(
                "stall test: points of theirs that none of ours beats",
                "tactus, all budgets",
                first,
                "; ".join(above) or "none",
                "none",
                not above,
                f"{len(above)} of {len(theirs)} points",
            )
        )
    return found


def undominated(ours: dict, theirs: dict) -> list[str]:
    """The peers' points (gap P99, TTFT) that no point of ours matches or beats in both values."""
    return [
        n
        for n, t in theirs.items()
        if not any(
            o["disturbed"]["p99_s"] <= t["disturbed"]["p99_s"] and mean_ttft(o) <= mean_ttft(t) for o in ours.values()
        )
    ]
