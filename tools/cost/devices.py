"""The device and model tables of the cost model (data/cost/devices.json, models.json), for Python."""

from __future__ import annotations

import dataclasses
import pathlib

import data_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "cost"

# Bytes of one matrix element; the activations' own format is folded into the measured efficiency.
WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_static": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "nvfp4": 0.5,
}
KV_BYTES = {"bfloat16": 2.0, "fp8": 1.0}


@dataclasses.dataclass(frozen=True)
class Device:
    name: str
    bf16: float  # FLOP/s
    fp8: float  # FLOP/s; that of bf16 if the device has no fp8 units
    int8: float
    bandwidth: float  # bytes/s
    sms: int
    floor_us: float
    fit: str

    def peak(self, dtype: str) -> float:
        if dtype in ("fp8", "fp8_static", "fp8_block"):
            return self.fp8
        if dtype == "int8":
            return self.int8
        return 2 * self.fp8 if dtype == "nvfp4" else self.bf16


def devices() -> dict[str, Device]:
    table = {}
    for row in data_file.read(DATA / "devices.json")["devices"]:
        bf16 = row["bf16_tflops"] * 1e12
        other = {c: row[c] * 1e12 if c in row else bf16 for c in ("fp8_tflops", "int8_tops")}
        table[row["device"]] = Device(
            row["device"],
            bf16,
            other["fp8_tflops"],
            other["int8_tops"],
            row["bw_gbps"] * 1e9,
            row["sms"],
            float(row["launch_us"]),
            row["fit"],
        )
    return table


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    vocab: int

    def gemms(self, tp: int) -> list[tuple[int, int]]:
        """(n, k) of the layer's matrices on one of tp ranks; empty if tp does not divide the heads."""
        if self.q_heads % tp or self.ffn % tp:
            return []
        q, kv = self.q_heads // tp, max(1, self.kv_heads // tp)
        return [
            ((q + 2 * kv) * self.head_dim, self.hidden),
            (self.hidden, q * self.head_dim),
            ((2 if self.gated else 1) * self.ffn // tp, self.hidden),
            (self.hidden, self.ffn // tp),
        ]


def models() -> dict[str, Model]:
    """Those with a uniform shape; the others are given as a config.json."""
    table = {}
    for row in data_file.read(DATA / "models.json")["models"]:
        if "config" in row:
            continue
        table[row["model"]] = Model(
            row["model"],
            row["hidden"],
            row["q_heads"],
            row["kv_heads"],
            row["head_dim"],
            row["ffn"],
            row.get("gated", True),
            row["vocab"],
        )
    return table
