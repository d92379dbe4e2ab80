#!/usr/bin/env python3
"""Measured mixtures of experts to the "experts" table of a coefficient file.

  tools/cost/experts_fit.py --data FOLDER/profiles --file data/cost/rtxpro6000.cost.json

replaces that table, its errors and its source, and nothing else (fit.py writes whole files).
"""

from __future__ import annotations

import argparse
import pathlib

import data_file
import numpy as np
import pandas as pd
from curves import monotone, number, pairs
from devices import WEIGHT_BYTES
from import_profiles import Profiles
from samples import Samples

# Last-level cache by device (NVIDIA's data sheet).
CACHE_BYTES = {"rtxpro6000": 128 << 20}


def read_from_memory(curves: list[dict], cache_bytes: int) -> None:
    """A profile repeats one layer, so the weights of few experts may stay in the cache; in a step all other layers' are
    read in between. Assumed: curves whose weights fit the cache were measured from there. They get at least their share
    of the next curve's time. (The 8 experts of Qwen3-30B-A3B have 75 MB and 50 us, which the memory's bandwidth allows
    too; LLMServingSim measured 70 us later, with rotated weights.)"""
    shape = lambda curve: [curve[k] for k in ("dtype", "hidden", "inner", "chosen")]
    for curve, following in reversed(list(zip(curves, curves[1:]))):
        bytes_read = 3 * curve["hidden"] * curve["inner"] * curve["touched"] * WEIGHT_BYTES[curve["dtype"]]
        if shape(curve) != shape(following) or bytes_read > cache_bytes:
            continue
        x, us = np.array(following["us"], float).T
        share = curve["touched"] / following["touched"]
        curve["us"] = [[t, number(max(y, share * np.interp(t, x, us)))] for t, y in curve["us"]]


def records(rows: pd.DataFrame, cache_bytes: int) -> tuple[list[dict], np.ndarray]:
    """One curve for each number of touched experts, with time monotone in tokens, and the relative errors of points
    that are predicted from their neighbours in tokens."""
    keys = ["dtype", "hidden", "inner", "chosen", "touched"]
    curves, errors = [], []
    for key, r in rows.groupby(keys):
        r = r.sort_values("tokens")
        x, us = r["tokens"].to_numpy(float), monotone(r["tokens"].to_numpy(), r["us"].to_numpy())
        curves.append({k: v if isinstance(v, str) else int(v) for k, v in zip(keys, key)} | {"us": pairs(x, us)})
        guess = [np.interp(x[i], np.delete(x, i), np.delete(us, i)) for i in range(1, len(x) - 1)]
        errors.append(np.abs(np.array(guess) / r["us"].to_numpy()[1:-1] - 1))
    read_from_memory(curves, cache_bytes)
    return curves, np.concatenate(errors)


def error_record(errors: np.ndarray) -> dict:
    return {
        "op": "experts",
        "left_out": "region",
        "median": round(float(np.median(errors)), 4),
        "p90": round(float(np.percentile(errors, 90)), 4),
        "rows": len(errors),
    }


def source_of(samples: Samples) -> str:
    return f"experts: {samples.source}"


def replaced(document: dict, samples: Samples) -> dict:
    curves, errors = records(samples.table("experts"), CACHE_BYTES[document["device"]])
    return data_file.replaced(document, "experts", "gemm", curves, error_record(errors), source_of(samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder of the CSV files")
    parser.add_argument("--file", type=pathlib.Path, required=True, help="the coefficient file to change")
    arguments = parser.parse_args()
    document = data_file.read(arguments.file)
    samples = Profiles(arguments.data).load(document["device"])
    data_file.write(arguments.file, replaced(document, samples))


if __name__ == "__main__":
    main()
