#!/usr/bin/env python3
"""data/cost/host.json: the time that the host of a Python engine with Ray workers adds to a step (`--backend
vllm-ray`).

    tools/cost/host_fit.py --data DIR --wheel aiconfigurator_core-0.12.0-*.whl     (DIR/profiles/cpu_overhead.csv,
    e2e_splitwise.csv)

Three parts, each a line over the step's sequences (Theil and Sen: the median of all slopes, then of what is left), by
device and tp:
  step     the driver's, once: scheduling, taking results in, and the round to the workers (`schedule`,
  `process_model_outputs`, `ray_comm`)
  stage    each worker's: preparing its inputs (`prepare_inputs_e2e`)
  sampler  the last stage's (`sampler_e2e`)
No kernel hides any of them: a worker waits for its device before it answers. `model_execution_e2e` is left out: it
waits for the device.

`all_reduce_us`: what launching an all-reduce from the host costs beyond a captured graph's, the median of the package's
eager less its graph rows of up to 1 MiB.
`layer_us`: the host launches a layer's kernels one by one, and where they are short the device waits for it. Decode
steps of Llama-2-70B on four and eight devices take as long: that time less the host's parts above, by layer.

Errors, of the three parts: `fit`; `model`, each model hidden in turn. Whole steps that nothing was fitted to:
bench/validate/engine_steps.py.
"""

from __future__ import annotations

import argparse
import pathlib

import data_file
import numpy as np
import pandas as pd
from curves import number
from devices import DATA, ROOT
from import_aiconfigurator import SYSTEMS, Wheel

PARTS = {
    "step": ["schedule_ms", "process_model_outputs_ms", "ray_comm_time_ms"],
    "stage": ["prepare_inputs_e2e_ms"],
    "sampler": ["sampler_e2e_ms"],
}
LAUNCHED = ("a100", "h100")
MOST_BYTES = 1 << 20
WHOLE = ("llama2-70b", 80, {"a100": "a100-80gb", "h100": "h100-80gb"})  # model, layers, hardware of e2e_splitwise.csv
LAUNCH_BOUND = 8  # devices with the shortest kernels
MOST_BATCH = 8


def line(n: np.ndarray, us: np.ndarray) -> tuple[float, float]:
    """(at no sequences, per sequence), neither below 0."""
    i, j = np.triu_indices(len(n), 1)
    apart = n[i] != n[j]
    slope = max(0.0, float(np.median((us[j] - us[i])[apart] / (n[j] - n[i])[apart])))
    return max(0.0, float(np.median(us - slope * n))), slope


def lines(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    n = rows["batch_size"].to_numpy(float)
    return {part: line(n, rows[part].to_numpy()) for part in PARTS}


def misses(rows: pd.DataFrame, fitted: dict[str, tuple[float, float]]) -> np.ndarray:
    """Relative error of the sum of the three parts."""
    predicted = sum(base + slope * rows["batch_size"] for base, slope in fitted.values())
    return np.abs(predicted / rows[list(PARTS)].sum(axis=1) - 1).to_numpy()


def error(fit: str, left_out: str, parts: list[np.ndarray]) -> dict:
    miss = np.concatenate(parts)
    return {
        "op": fit,
        "left_out": left_out,
        "median": number(np.median(miss)),
        "p90": number(np.quantile(miss, 0.9)),
        "rows": len(miss),
    }


def launch_us(wheel: Wheel, device: str) -> float:
    rows = wheel.read(SYSTEMS[device], "comm", "vllm", "custom_allreduce")
    rows = rows[rows["message_size"] * 2 <= MOST_BYTES].assign(eager=rows["kernel_source"].str.contains("eager"))
    table = rows.pivot_table(
        index=["num_gpus", "message_size"], columns="eager", values="latency", aggfunc="median"
    ).dropna()
    return float(np.median(table[True] - table[False])) * 1e3


def layer_us(whole: pd.DataFrame, hardware: str, host: dict) -> float:
    model, layers, _ = WHOLE
    rows = whole[
        (whole["model"] == model)
        & (whole["hardware"] == hardware)
        & (whole["tp"] == LAUNCH_BOUND)
        & (whole["batch_size"] <= MOST_BATCH)
    ]
    host_us = sum(host[f"{part}_us"] + host[f"{part}_sequence_us"] * rows["batch_size"] for part in PARTS)
    return float(((rows["token_ms"] * 1e3 - host_us) / layers).median())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    args = parser.parse_args()
    rows = pd.read_csv(args.data / "profiles" / "cpu_overhead.csv")
    for part, columns in PARTS.items():
        rows[part] = rows[columns].sum(axis=1) * 1e3
    host, errors = [], []
    for fit, of_device in rows.groupby("hardware"):
        own, models = [], []
        for tp, group in of_device.groupby("tp"):
            found = lines(group)
            own.append(misses(group, found))
            for model, hidden in group.groupby("model"):
                rest = group[group["model"] != model]
                if len(rest):
                    models.append(misses(hidden, lines(rest)))
            record = {"backend": "vllm-ray", "fit": fit, "tp": int(tp)}
            for part, (base, slope) in found.items():
                record |= {f"{part}_us": number(base), f"{part}_sequence_us": number(slope)}
            host.append(record)
        errors += [error(fit, "fit", own), error(fit, "model", models)]
    wheel = Wheel(args.wheel)
    source = (
        f"cpu_overhead.csv of microsoft/vidur 6d98aa8 (MIT); all-reduces: aiconfigurator-core {wheel.version}"
        " (Apache-2.0), eager less graph; layers: e2e_splitwise.csv of Mutinifni/splitwise-sim 8f99e7d (MIT)"
    )
    launched = [{"fit": fit, "us": number(launch_us(wheel, fit))} for fit in LAUNCHED]
    whole = pd.read_csv(args.data / "profiles" / "e2e_splitwise.csv")
    widest = next(
        record for record in reversed(host) if record["fit"] == "a100"
    )  # the host of the h100 was not measured
    layers = [{"fit": fit, "us": number(layer_us(whole, hardware, widest))} for fit, hardware in WHOLE[2].items()]
    data_file.write(
        DATA / "host.json", {"source": source, "host": host, "all_reduce": launched, "layer": layers, "errors": errors}
    )
    print(f"wrote {(DATA / 'host.json').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
