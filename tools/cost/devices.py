"""The device and model tables of the cost model (data/cost/devices.txt, models.txt), as Python sees them."""

from __future__ import annotations

import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "cost"

# Bytes of one matrix element; the activations' own format is folded into the measured efficiency.
WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_static": 1.0, "fp8_block": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 0.5}
KV_BYTES = {"bfloat16": 2.0, "fp8": 1.0}


def read_table(path: pathlib.Path, columns: int) -> list[dict[str, str]]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    header = lines[0].split()
    rows = []
    for line in lines[1:]:
        fields = line.split(None, len(header) - 1)
        if len(fields) < columns:
            raise ValueError(f"{path}: {len(fields)} columns where {columns} are needed: {line}")
        rows.append(dict(zip(header, fields)))
    return rows


@dataclasses.dataclass(frozen=True)
class Device:
    name: str
    bf16: float  # FLOP/s
    fp8: float  # FLOP/s; bf16's where the device has no fp8 units
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
    for row in read_table(DATA / "devices.txt", 14):
        bf16 = float(row["bf16_tflops"]) * 1e12
        other = {c: bf16 if row[c] == "-" else float(row[c]) * 1e12 for c in ("fp8_tflops", "int8_tops")}
        table[row["device"]] = Device(row["device"], bf16, other["fp8_tflops"], other["int8_tops"],
                                      float(row["bw_gbps"]) * 1e9, int(row["sms"]), float(row["launch_us"]), row["fit"])
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
        """(n, k) of the layer's matrices on one of tp ranks; empty where tp does not divide the heads."""
        if self.q_heads % tp or self.ffn % tp:
            return []
        q, kv = self.q_heads // tp, max(1, self.kv_heads // tp)
        return [((q + 2 * kv) * self.head_dim, self.hidden), (self.hidden, q * self.head_dim),
                ((2 if self.gated else 1) * self.ffn // tp, self.hidden), (self.hidden, self.ffn // tp)]


def models() -> dict[str, Model]:
    table = {}
    for row in read_table(DATA / "models.txt", 12):
        table[row["model"]] = Model(row["model"], int(row["hidden"]), int(row["q_heads"]), int(row["kv_heads"]),
                                    int(row["head_dim"]), int(row["ffn"]), row["gated"] == "1", int(row["vocab"]))
    return table
