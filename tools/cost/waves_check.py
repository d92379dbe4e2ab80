#!/usr/bin/env python3
"""How to go between the measured knots of a matrix product's time over m: a straight line, the tiles' waves, or some of
each.

    tools/cost/waves_check.py --data DIR     (DIR/profiles/mlp_*.csv: products measured every 8 tokens)

Of each measured product only powers of two are kept as knots; all other rows between 64 and 2,048 tokens are predicted
and compared. src/cost/fitted.cc
takes half of each (kWaveShare); src/cost/roofline.cc has the waves (TiledGemmNs without split_k), repeated here.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import numpy as np
import pandas as pd
from devices import devices

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (64, 128, 0.8), (64, 64, 0.65))
KNOTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SHARES = (0, 0.3, 0.5, 0.7, 1)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    args = parser.parse_args()
    for name in ("a100", "h100", "a40"):
        device, errors = devices()[name], {share: [] for share in SHARES}
        for n, k, m, us in products(args.data, name):
            at = np.flatnonzero(np.isin(m, KNOTS))
            if len(at) < 8:
                continue
            waves = np.array([waves_us(device, int(x), n, k) for x in m])
            for i in np.flatnonzero((m > 64) & (m < min(2048, m[at[-1]])) & ~np.isin(m, KNOTS)):
                low, high = at[at < i].max(), at[at > i].min()
                line = (m[i] - m[low]) / (m[high] - m[low])
                rise = waves[high] - waves[low]
                stairs = (waves[i] - waves[low]) / rise if rise > 0 else line
                for share in SHARES:
                    guess = us[low] + (us[high] - us[low]) * (line + share * (stairs - line))
                    errors[share].append(abs(guess / us[i] - 1))
        print(
            name,
            f"{len(errors[0]):,} rows; share of the waves: mean / median / P90 error:",
            "; ".join(
                f"{share:g}: {100 * np.mean(e):.1f} / {100 * np.median(e):.1f} / {100 * np.quantile(e, 0.9):.1f} %"
                for share, e in errors.items()
            ),
        )


if __name__ == "__main__":
    main()
