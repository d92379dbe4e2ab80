#!/usr/bin/env python3
"""Writes tests/compute/kernels/data/quant_golden.txt: blocks of every GGUF format as bytes, with their values by
gguf.quants.

Needs `pip install gguf numpy`. Run from the repository root; the output depends only on the seed below.

One line per case, hexadecimal, little endian:
  dequantize NAME BLOCK_BYTES VALUES_F32
  quantize   NAME VALUES_F32 BLOCK_BYTES
"""

import pathlib

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
QUANTIZED = ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0"]
HALF_SCALES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def hex_of(array: np.ndarray) -> str:
    return array.tobytes().hex()


def main() -> None:
    rng = np.random.default_rng(20250101)
    lines = []
    for name in FORMATS:
        kind = Type[name]
        block, size = GGML_QUANT_SIZES[kind]
        count = 3 if block > 1 else 16
        for case in range(2):
            data = rng.integers(0, 256, (count, size), dtype=np.uint8)
            # Random bytes with finite scales: first ordinary, then extreme ones (subnormal, large, negative).
            for at in HALF_SCALES.get(name, []):
                scale = rng.uniform(1e-3, 0.1, count) if case == 0 else np.array([6e-8, -30000.0, -0.0])
                data[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(count, 2)
            if name in ("F32", "F16", "BF16"):
                values = (rng.standard_normal(count) * (1e-39 if case else 1.0)).astype(np.float32)
                source = values if name == "F32" else values.astype(np.float16) if name == "F16" else None
                if source is None:
                    source = quants.quantize(values, kind)
                data = np.ascontiguousarray(source).view(np.uint8).reshape(count, size)
            out = quants.dequantize(data.reshape(1, -1), kind).astype(np.float32)
            lines.append(f"dequantize {name.lower()} {hex_of(data)} {hex_of(out)}")
    for name in QUANTIZED:
        kind = Type[name]
        for scale in (1.0, 1e-3, 300.0):
            values = (rng.standard_normal(64) * scale).astype(np.float32)
            lines.append(f"quantize {name.lower()} {hex_of(values)} {hex_of(quants.quantize(values, kind))}")
        zeros = np.zeros(32, dtype=np.float32)
        lines.append(f"quantize {name.lower()} {hex_of(zeros)} {hex_of(quants.quantize(zeros, kind))}")
    path = pathlib.Path("tests/compute/kernels/data/quant_golden.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
