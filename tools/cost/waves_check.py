#!/usr/bin/env python3
"""Compares interpolations of a matrix product's time between measured m: linear, by waves of tiles, or a mix.

    tools/cost/waves_check.py --data DIR     (DIR/profiles/mlp_*.csv: products measured every 8 tokens)

Far knots: only powers of two of each product are kept; all other rows between 64 and 2,048 tokens are predicted and
compared. src/cost/fitted.cc uses half of each (kWaveShare); src/cost/roofline.cc has the waves (TiledGemmNs without
split_k), repeated here.

Near knots: two measured sizes of 64 to 1,024 tokens, 16 apart, with a multiple of 64 between them (or the lower one at
it); the row between them is hidden. fitted.cc places the whole rise at that edge (kUnmeasured).

Single tokens: DIR/profiles/layers_hf_*.csv have every size up to 128. For products that rise by more than 5 % from 64
to 72 tokens: the share of the rise reached at 65. --wheel FILE (the package of import_aiconfigurator.py) measured both
sides of larger edges: how much longer 257 tokens take than 256, and 512 than 257, of products with n and k from 2,048
on.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import numpy as np
import pandas as pd
from devices import devices
from import_aiconfigurator import Wheel, load

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (64, 128, 0.8), (64, 64, 0.65))
KNOTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SHARES = (0, 0.3, 0.5, 0.7, 1)
TILE_ROWS = 64
NEAR = 16
EDGE = ((225, 256), (256, 257), (257, 512))


def waves_us(device, m: int, n: int, k: int) -> float:
    memory = 2 * (m * k + k * n + m * n) / (device.bandwidth * 0.85)
    compute = min(
        2
        * rows
        * columns
        * k
        / (device.bf16 * 0.8 * efficiency / device.sms)
        * math.ceil(math.ceil(m / rows) * math.ceil(n / columns) / device.sms)
        for rows, columns, efficiency in TILES
    )
    return max(memory, compute) * 1e6 + device.floor_us


def products(data: pathlib.Path, name: str):
    """(n, k, m, us) of every product of a profile, times made monotone."""
    shapes = pd.read_csv(data / "profiles" / "models.csv").set_index("model")
    for (model, tp), rows in pd.read_csv(data / "profiles" / f"mlp_{name}.csv").groupby(["model", "tp"]):
        if model not in shapes.index:
            continue
        s = shapes.loc[model]
        q, kv, ffn = s.q_heads * s.head_dim // tp, s.kv_heads * s.head_dim // tp, s.ffn // tp
        columns = {
            "attn_pre_proj_ms": (q + 2 * kv, s.hidden),
            "attn_post_proj_ms": (s.hidden, q),
            "mlp_up_proj_ms": ((2 if s.gated_mlp else 1) * ffn, s.hidden),
            "mlp_down_proj_ms": (s.hidden, ffn),
        }
        for column, (n, k) in columns.items():
            own = rows[["num_tokens", column]].dropna().sort_values("num_tokens")
            yield int(n), int(k), own["num_tokens"].to_numpy(), np.maximum.accumulate(own[column].to_numpy() * 1e3)


def between(low: int, high: int, at: int, us, waves, share: float) -> float:
    """Time at `at` by linear interpolation between two knots, with `share` of it following the waves."""
    line = (at - low) / (high - low)
    rise = waves[high] - waves[low]
    stairs = (waves[at] - waves[low]) / rise if rise > 0 else line
    return us[low] + (us[high] - us[low]) * (line + share * (stairs - line))


def near_knots(data: pathlib.Path, name: str) -> None:
    device, errors = devices()[name], {"a line": [], "half of the waves": [], "at the edge": []}
    for n, k, sizes, times in products(data, name):
        us = dict(zip(map(int, sizes), times))
        waves = {m: waves_us(device, m, n, k) for m in us}
        for low in us:
            edge = math.ceil(low / TILE_ROWS) * TILE_ROWS
            high = low + NEAR
            if low < 64 or high > 1024 or high not in us or edge >= high:
                continue
            for m in (m for m in us if low < m < high):
                for rule, guess in (
                    ("a line", between(low, high, m, us, waves, 0)),
                    ("half of the waves", between(low, high, m, us, waves, 0.5)),
                    ("at the edge", us[high] if m > edge else us[low]),
                ):
                    errors[rule].append(abs(guess / us[m] - 1))
    print(f"{name} near knots: {len(errors['a line']):,} rows; mean / P90 error: {summary(errors)}")


def summary(errors) -> str:
    return "; ".join(
        f"{rule}: {100 * np.mean(e):.1f} / {100 * np.quantile(e, 0.9):.1f} %" for rule, e in errors.items()
    )


def single_tokens(data: pathlib.Path, name: str) -> None:
    rows = pd.read_csv(data / "profiles" / f"layers_hf_{name}.csv")
    columns = [c for c in rows if c.endswith("_proj_ms") or c == "lm_head_ms"]
    shares, of = [], 0
    for _, own in rows.groupby(["model", "tp"]):
        own = own.set_index("num_tokens")
        for us in (own[c] for c in columns):
            if not {64, 65, 72} <= set(us.dropna().index):
                continue
            of += 1
            if us[72] > 1.05 * us[64]:
                shares.append((us[65] - us[64]) / (us[72] - us[64]))
    share = f"; at 65 there is {100 * np.median(shares):.0f} % of it in the median" if shares else ""
    print(f"{name} single tokens: {len(shares)} of {of} products rise by more than 5 % from 64 to 72{share}")


def both_sides(wheel: Wheel, name: str) -> None:
    rows = load(wheel, name, "vllm").table("gemm")
    us = rows[(rows["dtype"] == "bfloat16") & (rows["n"] >= 2048) & (rows["k"] >= 2048)].pivot_table(
        index=["n", "k"], columns="m", values="us"
    )
    rises = [f"{low} to {high}: {100 * ((us[high] / us[low]).median() - 1):+.0f} %" for low, high in EDGE]
    print(f"{name} both sides of an edge: {len(us)} products; median rise from {', '.join(rises)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--wheel", type=pathlib.Path, help="aiconfigurator_core-0.12.0-*.whl")
    args = parser.parse_args()
    for name in ("a100", "h100", "a40"):
        device, errors = devices()[name], {share: [] for share in SHARES}
        for n, k, m, us in products(args.data, name):
            at = np.flatnonzero(np.isin(m, KNOTS))
            if len(at) < 8:
                continue
            us_at, waves_at = dict(zip(m, us)), {x: waves_us(device, int(x), n, k) for x in m}
            for i in np.flatnonzero((m > 64) & (m < min(2048, m[at[-1]])) & ~np.isin(m, KNOTS)):
                low, high = m[at[at < i].max()], m[at[at > i].min()]
                for share in SHARES:
                    errors[share].append(abs(between(low, high, m[i], us_at, waves_at, share) / us[i] - 1))
        print(
            name,
            f"{len(errors[0]):,} rows; share of the waves: mean / median / P90 error:",
            "; ".join(
                f"{share:g}: {100 * np.mean(e):.1f} / {100 * np.median(e):.1f} / {100 * np.quantile(e, 0.9):.1f} %"
                for share, e in errors.items()
            ),
        )
        near_knots(args.data, name)
    for name in ("a6000", "rtx3090", "h100"):
        single_tokens(args.data, name)
    for name in ("h100", "h200", "b200") if args.wheel else ():
        both_sides(Wheel(args.wheel), name)


if __name__ == "__main__":
    main()
