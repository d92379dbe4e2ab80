#!/usr/bin/env python3
"""Writes tests/compute/kernels/data/quant_golden.txt: blocks of every GGUF format as bytes, with their values by
gguf.quants. Writes also tests/fuzz/corpus/gguf/formats.gguf, which has a tensor of every format.

Needs `pip install gguf numpy`. Run from the repository root; the output depends only on the seed below.

One line per case, hexadecimal, little endian:
  dequantize NAME BLOCK_BYTES VALUES_F32
  quantize   NAME VALUES_F32 BLOCK_BYTES
  hashes     NAME SEED MASKED HASH...
MASKED are the bytes of a block, counted from 0, whose second highest bit is cleared: the scales are then finite. Blocks
are bytes of splitmix64 from SEED on, HASH is FNV-1a (64 bits) of the bytes of the values of 64 blocks each.
"""

import pathlib

import numpy as np
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

# Formats without a row in SCALES_AT have scales that are finite whatever their bytes.
FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
BLOCK_FORMATS = ["Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS"]
BLOCK_FORMATS += ["IQ2_XXS", "IQ1_M", "IQ1_S", "TQ1_0", "TQ2_0", "Q1_0"]
QUANTIZED = ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0"]
SCALES_AT = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "IQ3_S": [0],
    "IQ3_XXS": [0],
    "IQ2_S": [0],
    "IQ2_XS": [0],
    "IQ2_XXS": [0],
    "IQ1_M": [54],  # the highest 4 of 16 bits that are in four places
    "IQ1_S": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "Q1_0": [0],
}
HASHED_BLOCKS, HASHES = 64, 16


def hex_of(array: np.ndarray) -> str:
    return array.tobytes().hex()


def dequantize(data: np.ndarray, name: str) -> np.ndarray:
    """The values of blocks [count, block_bytes]."""
    kind = Type[name]
    if name != "Q1_0":  # which the package knows by its sizes only
        return quants.dequantize(data.reshape(1, -1), kind).astype(np.float32)
    d = np.ascontiguousarray(data[:, :2]).view(np.float16).astype(np.float32)
    return np.where(np.unpackbits(data[:, 2:], axis=1, bitorder="little") == 1, d, -d)


def random_bytes(seed: int, count: int) -> np.ndarray:
    """splitmix64's numbers, little endian."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.view(np.uint8)[:count].copy()


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def block_lines(rng: np.random.Generator, name: str) -> list[str]:
    """A block of random bytes with an ordinary scale, one with an extreme scale."""
    data = rng.integers(0, 256, (2, GGML_QUANT_SIZES[Type[name]][1]), dtype=np.uint8)
    for at in SCALES_AT.get(name, []):
        scales = np.array([rng.uniform(1e-3, 0.1), 6e-8]).astype(np.float16)
        if name == "IQ1_M":
            for i, nibble in enumerate((0, 4, 8, 12)):
                high = ((scales.view(np.uint16) >> nibble) & 0xF).astype(np.uint8)
                data[:, 49 + 2 * i] = (data[:, 49 + 2 * i] & 0xF) | (high << 4)
        else:
            data[:, at : at + 2] = scales.view(np.uint8).reshape(2, 2)
    return [f"dequantize {name.lower()} {hex_of(data)} {hex_of(dequantize(data, name))}"]


def hash_line(seed: int, name: str) -> str:
    size = GGML_QUANT_SIZES[Type[name]][1]
    masked = [at + 1 for at in SCALES_AT.get(name, [])]
    blocks = random_bytes(seed, HASHES * HASHED_BLOCKS * size).reshape(-1, size)
    blocks[:, masked] &= 0xBF
    values = dequantize(blocks, name).reshape(HASHES, -1)
    hashes = " ".join(f"{fnv1a(part.tobytes()):016x}" for part in values)
    return f"hashes {name.lower()} {seed} {','.join(map(str, masked)) or '-'} {hashes}"


def write_seed(path: str) -> None:
    writer = GGUFWriter(path, "llama")
    for name in FORMATS + BLOCK_FORMATS:
        size = GGML_QUANT_SIZES[Type[name]][1]
        data = random_bytes(0, 2 * size).reshape(2, size)
        writer.add_tensor(f"{name.lower()}.weight", data, raw_shape=(2, size), raw_dtype=Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
            for at in SCALES_AT.get(name, []):
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
    rng = np.random.default_rng(20250102)
    for name in BLOCK_FORMATS:
        lines += block_lines(rng, name)
    for seed, name in enumerate(FORMATS[3:] + BLOCK_FORMATS):
        lines.append(hash_line(seed, name))
    path = pathlib.Path("tests/compute/kernels/data/quant_golden.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    write_seed("tests/fuzz/corpus/gguf/formats.gguf")
    print(f"{path}: {len(lines)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
