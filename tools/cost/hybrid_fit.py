#!/usr/bin/env python3
"""data/cost/hybrid.json: the slowdown of decodes' attention when a prompt chunk shares their kernel.

A server with one attention kernel for all sequences of a step uses the kernel for long queries as soon as a step
contains a prompt chunk. A decode is then one query in a tile for many, its KV is not split over thread blocks, and
query heads that share a KV head read it separately. Model, with p the time of the chunk alone, q of the decodes alone
and t0 the smallest q:

    both together = p + factor(batch) (q - t0)

    tools/cost/hybrid_fit.py --data DIR     (DIR/profiles/vllm_attention_*.csv*; writes data/cost/hybrid.json)

The factor is the median over the measured steps of one batch. Left-out errors: `region`: every second decode context is
hidden from the fit;
`model`: the factors of the nearest other geometry of that device stand in; `device`: those of the nearest geometry of
the other device.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import data_file
import numpy as np
import pandas as pd
from curves import number, pairs
from devices import DATA, ROOT

FILES = {"rtx4090": "vllm_attention_rtx4090.csv", "rtxpro6000": "vllm_attention_rtxpro6000.csv.gz"}
SOURCE = "profiles of casys-kaist/LLMServingSim 5daddb2 (MIT), vLLM 0.19, bf16"
SHAPES = {"Llama-3.1-8B": (32, 8, 128), "Qwen3-32B": (64, 8, 128), "Qwen3-30B-A3B-Instruct-2507": (32, 4, 128)}
FLOOR = 3.0  # only steps whose decodes take at least this multiple of the minimum determine the factor


def steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Mixed steps with the times of their two parts alone, if both were measured: columns n, context, p, q, us."""
    rows = rows.assign(us=rows["attn_ms"] * 1e3)
    p = rows[rows["n_decode"] == 0].groupby(["prefill_chunk", "kv_prefill"])["us"].median()
    q = rows[rows["prefill_chunk"] == 0].groupby(["n_decode", "kv_decode"])["us"].median()
    both = rows[(rows["n_decode"] > 0) & (rows["prefill_chunk"] > 0)]
    both = both.join(p.rename("p"), on=["prefill_chunk", "kv_prefill"]).join(
        q.rename("q"), on=["n_decode", "kv_decode"]
    )
    return both.dropna(subset=["p", "q"])[["n_decode", "kv_decode", "p", "q", "us"]], float(q.min())


def factors(both: pd.DataFrame, t0: float) -> dict[int, float]:
    busy = both[both["q"] > FLOOR * t0]
    found = ((busy["us"] - busy["p"]) / (busy["q"] - t0)).groupby(busy["n_decode"]).median()
    return {int(n): max(1.0, float(f)) for n, f in found.items()}


def factor_at(table: dict[int, float], n) -> np.ndarray:
    x = np.log(sorted(table))
    return np.exp(np.interp(np.log(n), x, np.log([table[k] for k in sorted(table)])))


def misses(both: pd.DataFrame, t0: float, table: dict[int, float]) -> np.ndarray:
    us = both["p"] + np.maximum(factor_at(table, both["n_decode"]) * (both["q"] - t0), both["q"] - both["p"])
    return np.abs(us / both["us"] - 1).to_numpy()


def error(fit: str, left_out: str, parts: list[np.ndarray]) -> dict:
    miss = np.concatenate(parts)
    return {
        "op": fit,
        "left_out": left_out,
        "median": number(np.median(miss)),
        "p90": number(np.quantile(miss, 0.9)),
        "rows": len(miss),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    args = parser.parse_args()
    beside, errors, by_fit = [], [], {}

    def nearest(shape, shapes):
        return min(
            shapes,
            key=lambda s: (
                abs(math.log(s[0] / s[1]) - math.log(shape[0] / shape[1])),
                abs(math.log(s[1] / shape[1])),
                s,
            ),
        )

    for fit, name in FILES.items():
        data = pd.read_csv(args.data / "profiles" / name)
        fitted, own, region, plain = {}, [], [], []
        # Heads of one rank, which two models may share.
        heads = [
            (q // tp, kv // tp, hd)
            for (q, kv, hd), tp in zip(data["model"].str.split("/").str[-1].map(SHAPES), data["tp"])
        ]
        for shape, rows in data.groupby(pd.Series(heads, index=data.index)):
            both, t0 = steps(rows)
            if len(both) < 500:
                continue
            table = factors(both, t0)
            fitted[shape] = (table, both, t0)
            own.append(misses(both, t0, table))
            plain.append(np.abs((both["p"] + both["q"]) / both["us"] - 1).to_numpy())
            contexts = sorted(both["kv_decode"].unique())
            hidden = both["kv_decode"].isin(contexts[1::2])
            region.append(misses(both[hidden], t0, factors(both[~hidden], t0)))
        for (q, kv, hd), (table, _, _) in sorted(fitted.items()):
            beside.append(
                {
                    "fit": fit,
                    "q_heads": q,
                    "kv_heads": kv,
                    "head_dim": hd,
                    "kv_dtype": "bfloat16",
                    "factor": pairs(sorted(table), [table[n] for n in sorted(table)]),
                }
            )
        errors += [error(fit, "sum", plain), error(fit, "fit", own), error(fit, "region", region)]
        if len(fitted) > 1:
            others = {shape: [s for s in fitted if s != shape] for shape in fitted}
            errors.append(
                error(
                    fit,
                    "model",
                    [
                        misses(both, t0, fitted[nearest(shape, others[shape])][0])
                        for shape, (_, both, t0) in fitted.items()
                    ],
                )
            )
        by_fit[fit] = fitted
    for fit, fitted in by_fit.items():
        there = {shape: rows for other, shapes in by_fit.items() if other != fit for shape, rows in shapes.items()}
        errors.append(
            error(
                fit,
                "device",
                [misses(both, t0, there[nearest(shape, there)][0]) for shape, (_, both, t0) in fitted.items()],
            )
        )
    data_file.write(DATA / "hybrid.json", {"source": SOURCE, "beside": beside, "errors": errors})
    print(f"wrote {(DATA / 'hybrid.json').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
