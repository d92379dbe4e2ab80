#!/usr/bin/env python3
"""NCCL's all-gather and reduce-scatter to the "exchange" table of coefficient files: what replicas that share experts
need for the exchange of their tokens.

  tools/cost/exchange_fit.py --wheel aiconfigurator_core-0.12.0-*.whl [--only rtxpro6000 ...]

replaces that table, its errors and its source in the files of every device that the package measured, and nothing else
(fit.py writes whole files).
"""

from __future__ import annotations

import argparse
import pathlib

import data_file
import numpy as np
from curves import fit_curve
from devices import DATA
from import_aiconfigurator import SYSTEMS, Wheel, load
from samples import Samples

OP = "exchange"


def source_of(samples: Samples) -> str:
    return f"{OP}: {samples.source.split(', ')[0]}, nccl {'/'.join(samples.versions(OP))}"


def replaced(document: dict, samples: Samples) -> dict:
    curves = {int(gpus): fit_curve(rows) for gpus, rows in samples.table(OP).groupby("gpus")}
    missed = np.concatenate([miss for _, miss in curves.values()])
    error = {
        "op": OP,
        "left_out": "region",
        "median": round(float(np.median(missed)), 4),
        "p90": round(float(np.percentile(missed, 90)), 4),
        "rows": len(missed),
    }
    table = [{"gpus": gpus, "us": knots} for gpus, (knots, _) in curves.items()]
    return data_file.replaced(document, OP, "allreduce", table, error, source_of(samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", help="these devices")
    arguments = parser.parse_args()
    wheel = Wheel(arguments.wheel)
    for device in arguments.only or SYSTEMS:
        samples = load(wheel, device, "vllm")
        if samples is None or OP not in samples.tables:
            continue
        for path in sorted([DATA / f"{device}.cost.json", *DATA.glob(f"{device}-*.cost.json")]):
            data_file.write(path, replaced(data_file.read(path), samples))


if __name__ == "__main__":
    main()
