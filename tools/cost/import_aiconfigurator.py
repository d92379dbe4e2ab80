#!/usr/bin/env python3
"""Operator samples out of the wheel of the PyPI package aiconfigurator-core (Apache-2.0, NVIDIA; 82 MB).

  pip download --no-deps aiconfigurator-core==0.12.0 -d CACHE
  tools/cost/import_aiconfigurator.py --wheel CACHE/aiconfigurator_core-*.whl -o CACHE/samples

reads the parquet tables inside the wheel without unpacking it. Left out, with reasons:
- all-reduce rows that were timed without CUDA graphs ("eager": 20-45 us of launch where a graph takes 5);
- attention with a window, with head dimensions other than 64 and 128, and cross-filled rows: only the newest version of
a table is
  read, and rows keep the version that they carry;
- vLLM's fp8_block products: three kernels under one name, timed without graphs (30 us of launch at any size);
- fp8 KV of TensorRT-LLM and SGLang with bf16 arithmetic, where the same table has fp8 arithmetic (what those engines
  run by default).
fp8 products include the quantisation of their activations with a scale found on the way. Checkpoints with stored
activation scales (ModelOpt's, what TensorRT-LLM and vLLM run of Llama and Qwen in FP8) skip the search for the scale,
which the package measures by itself (compute_scale): dtype fp8_static is the difference. heads = kv_heads is stored as
kv = 0 in some versions; repeated keys become their median.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import re
import sys
import zipfile

import numpy as np
import pandas as pd
from samples import Samples, merged

SYSTEMS = {
    "a100": "a100_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "l40s": "l40s",
    "rtxpro6000": "rtx_pro_6000_server",
}
BACKENDS = ("vllm", "trtllm", "sglang")
GEMM_DTYPES = {
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int8_wo": None,
    "int4_wo": "int4",
    "sq": None,
}


def version_key(version: str) -> list[tuple[int, int | str]]:
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.findall(r"\d+|[a-z]+", version)]


class Wheel:
    """The wheel's tables by system, family, backend; always from the newest version with the table."""

    def __init__(self, path: pathlib.Path):
        self.zip = zipfile.ZipFile(path)
        self.version = re.search(r"-(\d+\.\d+\.\d+)-", path.name).group(1)
        self.names = [n for n in self.zip.namelist() if n.endswith(".parquet")]

    def read(self, system: str, family: str, backend: str, table: str) -> pd.DataFrame | None:
        pattern = re.compile(rf"systems/data/{system}/{family}/{backend}/([^/]+)/{table}_perf\.parquet$")
        found = {m.group(1): n for n in self.names if (m := pattern.search(n))}
        if not found:
            return None
        newest = max(found, key=version_key)
        return pd.read_parquet(io.BytesIO(self.zip.read(found[newest])))

    def silicon(self) -> pd.DataFrame:
        name = next(n for n in self.zip.namelist() if n.endswith("systems/silicon_sample.csv"))
        return pd.read_csv(io.BytesIO(self.zip.read(name)))


def gemm(raw: pd.DataFrame) -> pd.DataFrame:
    rows = raw.assign(dtype=raw["gemm_dtype"].map(GEMM_DTYPES), us=raw["latency"] * 1e3)
    rows = rows[rows["dtype"].notna() & (rows["us"] > 0)]
    if (rows["framework"].str.upper() == "VLLM").all():
        rows = rows[rows["dtype"] != "fp8_block"]
    return merged(rows, "gemm")


def static_scales(rows: pd.DataFrame, compute_scale: pd.DataFrame) -> pd.DataFrame:
    """fp8 products of a checkpoint with stored activation scales: without the search for the scale, by (m, k), at most
    half of the time."""
    search = (
        compute_scale.assign(search=np.maximum(0, compute_scale["latency"] * 1e3))
        .groupby(["m", "k"], as_index=False)["search"]
        .median()
    )
    fp8 = rows[rows["dtype"] == "fp8"].merge(search, on=["m", "k"])
    return fp8.assign(dtype="fp8_static", us=np.maximum(fp8["us"] - fp8["search"], fp8["us"] / 2)).drop(
        columns="search"
    )


def attention_rows(raw: pd.DataFrame) -> pd.DataFrame:
    rows = raw[raw["head_dim"].isin((64, 128))]
    if "window_size" in rows:
        rows = rows[rows["window_size"] == 0]
    if "attn_dtype" in rows:
        wanted = rows["attn_dtype"] == "bfloat16"
        if ((rows["attn_dtype"] == "fp8") & (rows["kv_cache_dtype"] == "fp8")).any():
            wanted = rows["attn_dtype"] == rows["kv_cache_dtype"]
        rows = rows[wanted]
    kv = rows["num_key_value_heads"].where(rows["num_key_value_heads"] > 0, rows["num_heads"])
    rows = rows.assign(
        q=rows["num_heads"],
        kv=kv,
        hd=rows["head_dim"],
        kv_dtype=rows["kv_cache_dtype"].replace("float16", "bfloat16"),
        batch=rows["batch_size"],
        us=rows["latency"] * 1e3,
    )
    return rows[(rows["us"] > 0) & rows["kv_dtype"].isin(("bfloat16", "fp8"))]


def prefill(raw: pd.DataFrame) -> pd.DataFrame:
    rows = attention_rows(raw)
    return merged(rows.assign(chunk=rows["isl"], context=rows["step"]), "prefill")


def decode(raw: pd.DataFrame) -> pd.DataFrame:
    rows = attention_rows(raw)
    return merged(rows.assign(context=rows["isl"] + rows["step"]), "decode")


def allreduce(raw: pd.DataFrame) -> pd.DataFrame:
    rows = raw[~raw["kernel_source"].str.contains("eager", case=False)]
    if "op_name" in rows:
        rows = rows[rows["op_name"].str.contains("all_reduce")]
    rows = rows.assign(gpus=rows["num_gpus"], bytes=rows["message_size"] * 2, us=rows["latency"] * 1e3)
    return merged(rows, "allreduce")


def exchange(raw: pd.DataFrame) -> pd.DataFrame:
    """An all-gather and a reduce-scatter of a buffer of `bytes`, 2 for each of NCCL's elements."""
    rows = raw[(raw["nccl_dtype"] == "half") & raw["op_name"].isin(("all_gather", "reduce_scatter"))]
    rows = rows.groupby(["num_gpus", "message_size", "version", "op_name"], as_index=False)["latency"].median()
    both = rows.groupby(["num_gpus", "message_size", "version"], as_index=False).agg(
        latency=("latency", "sum"), halves=("latency", "size")
    )
    both = both[both["halves"] == 2]
    return merged(
        both.assign(gpus=both["num_gpus"], bytes=both["message_size"] * 2, us=both["latency"] * 1e3), "exchange"
    )


PARTS = {
    "gemm": ("gemm", "gemm", gemm),
    "prefill": ("attention", "context_attention", prefill),
    "decode": ("attention", "generation_attention", decode),
    "allreduce": ("comm", "custom_allreduce", allreduce),
}


def load(wheel: Wheel, device: str, backend: str) -> Samples | None:
    """One device's samples of one backend; None if the wheel has none."""
    tables = {}
    for kind, (family, table, convert) in PARTS.items():
        raw = wheel.read(SYSTEMS[device], family, backend, table)
        if raw is not None and len(raw):
            tables[kind] = convert(raw)
    search = wheel.read(SYSTEMS[device], "quantize", backend, "computescale")
    if search is not None and "gemm" in tables and (search["latency"] > 0).mean() > 0.5:
        tables["gemm"] = pd.concat([tables["gemm"], static_scales(tables["gemm"], search)], ignore_index=True)
    if not tables:
        return None
    source = f"aiconfigurator-core {wheel.version} (Apache-2.0), {SYSTEMS[device]}, {backend}: " + ", ".join(
        f"{kind} {'/'.join(sorted(t['version'].unique()))}" for kind, t in tables.items()
    )
    nccl = wheel.read(SYSTEMS[device], "comm", "nccl", "nccl")
    if nccl is not None:
        tables["exchange"] = exchange(nccl)
    return Samples(device, backend, source, tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, required=True, help="folder for the CSV files (outside the repository)"
    )
    arguments = parser.parse_args()
    wheel = Wheel(arguments.wheel)
    for device in SYSTEMS:
        for backend in BACKENDS:
            samples = load(wheel, device, backend)
            if samples is not None:
                samples.write(arguments.output)
                print(samples.source, {kind: len(t) for kind, t in samples.tables.items()}, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
