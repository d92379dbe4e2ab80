#!/usr/bin/env python3
"""Writes tests/compute/weights/data/quantised: a quantised weight of every format of Hugging Face folders, with its
values by a decoder in NumPy, and tests/fuzz/corpus/quantised_weights: the same files as seeds.

Needs `pip install numpy`. Run from the repository root; the output depends only on the seed below.

NAME.safetensors has the tensors of the module "m" as such a folder stores them, and "golden", its values in f32.
cases.json has for each NAME the configuration (`quantization_config`) and the format of rows that the reader chooses.
"""

import json
import pathlib
import struct

import numpy as np

ROWS, COLS = 8, 64
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the column of each nibble of a word
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
rng = np.random.default_rng(48)


def e4m3(codes: np.ndarray) -> np.ndarray:
    """The values of bytes; none is NaN."""
    exponent, fraction = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, (1 + fraction / 8) * np.exp2(exponent - 7.0))
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


def e2m1(pairs: np.ndarray) -> np.ndarray:
    """The values of bytes with two codes each, the first in the lower bits."""
    codes = np.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], -1)
    return np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7]).astype(np.float32)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Words of 32 bits along the last axis, the lowest bits first."""
    words = codes.reshape(*codes.shape[:-1], -1, 32 // bits).astype(np.uint32)
    return (words << (np.arange(32 // bits, dtype=np.uint32) * bits)).sum(-1, dtype=np.uint32).astype(np.int32)


def bf16(values: np.ndarray) -> np.ndarray:
    """Values cut to bf16, still f32."""
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def scales(shape: tuple, kind: str) -> np.ndarray:
    values = (rng.random(shape) * 0.01 + 1e-4).astype(np.float32)
    return values.astype(np.float16) if kind == "F16" else bf16(values) if kind == "BF16" else values


def integers(codes: np.ndarray, zeros: np.ndarray, scale: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """(code - zero) * scale; zeros and scales are [rows, groups]."""
    steps = codes.astype(np.int32) - zeros.astype(np.int32)[:, group_of]
    return steps.astype(np.float32) * scale.astype(np.float32)[:, group_of]


def floats8() -> np.ndarray:
    codes = rng.permutation(np.arange(ROWS * COLS, dtype=np.int64) % 256).astype(np.uint8).reshape(ROWS, COLS)
    return np.where(codes & 127 == 127, 5, codes).astype(np.uint8)


def fp8(block: tuple, suffix: str, shape: tuple, kind: str, config: dict) -> tuple:
    codes, scale = floats8(), scales(shape, kind)
    rows, cols = -(-ROWS // block[0]), -(-COLS // block[1])
    whole = np.repeat(np.repeat(scale.reshape(rows, cols), block[0], 0), block[1], 1)[:ROWS, :COLS]
    tensors = {"m.weight": ("F8_E4M3", codes), f"m.{suffix}": (kind, scale)}
    return config, "bf16", tensors, e4m3(codes) * whole


def compressed(kind: str, bits: int, group: int, rows: str, zero_points: bool = False, order: bool = False) -> tuple:
    groups = COLS // group
    codes = rng.integers(0, 1 << bits, (ROWS, COLS))
    zeros = np.full((ROWS, groups), 1 << (bits - 1))
    group_of = np.arange(COLS) // group
    scale = scales((ROWS, groups), kind)
    tensors = {
        "m.weight_packed": ("I32", packed(codes, bits)),
        "m.weight_shape": ("I64", np.array([ROWS, COLS], np.int64)),
        "m.weight_scale": (kind, scale),
    }
    if zero_points:
        zeros = rng.integers(0, 1 << bits, (ROWS, groups))
        tensors["m.weight_zero_point"] = ("I32", np.ascontiguousarray(packed(zeros.T, bits).T))
    if order:
        group_of = rng.permutation(group_of)
        tensors["m.weight_g_idx"] = ("I32", group_of.astype(np.int32))
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": not zero_points}
    return config_groups("pack-quantized", weights), rows, tensors, integers(codes, zeros, scale, group_of)


def config_groups(name: str, weights: dict) -> dict:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": name, "config_groups": groups, "ignore": ["lm_head"]}


def int8() -> tuple:
    codes, scale = rng.integers(-128, 128, (ROWS, COLS)).astype(np.int8), scales((ROWS, 1), "BF16")
    tensors = {"m.weight": ("I8", codes), "m.weight_scale": ("BF16", scale), "m.input_scale": ("BF16", scale)}
    config = config_groups("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"})
    return config, "i8_row", tensors, codes.astype(np.float32) * scale


def gptq(bits: int, symmetric: bool, order: bool, rows: str, version: str = "gptq", group: int = 32) -> tuple:
    groups = COLS // group
    codes = rng.integers(0, 1 << bits, (ROWS, COLS))
    zeros = np.full((ROWS, groups), 1 << (bits - 1)) if symmetric else rng.integers(1, 1 << bits, (ROWS, groups))
    group_of, scale = np.arange(COLS) // group, scales((ROWS, groups), "F16")
    if order:
        group_of = rng.permutation(group_of)
    stored = zeros - 1 if version == "gptq" else zeros
    tensors = {
        "m.qweight": ("I32", np.ascontiguousarray(packed(codes, bits).T)),
        "m.qzeros": ("I32", packed(stored.T, bits)),
        "m.scales": ("F16", np.ascontiguousarray(scale.T)),
        "m.g_idx": ("I32", group_of.astype(np.int32)),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order, "sym": symmetric}
    config["checkpoint_format"] = version
    return config, rows, tensors, integers(codes, zeros, scale, group_of)


def awq(group: int = 32) -> tuple:
    groups = COLS // group
    codes, zeros = rng.integers(0, 16, (ROWS, COLS)), rng.integers(0, 16, (ROWS, groups))
    scale = scales((ROWS, groups), "F16")
    scale[0] = np.float16(2.0**-14) * np.array([1, 1.5])  # a quarter of these has no f16
    in_order = [codes.T.reshape(COLS, -1, 8)[..., AWQ_ORDER], zeros.T.reshape(groups, -1, 8)[..., AWQ_ORDER]]
    tensors = {
        "m.qweight": ("I32", packed(in_order[0].reshape(COLS, -1), 4)),
        "m.qzeros": ("I32", packed(in_order[1].reshape(groups, -1), 4)),
        "m.scales": ("F16", np.ascontiguousarray(scale.T)),
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return config, "u4_f16", tensors, integers(codes, zeros, scale, np.arange(COLS) // group)


def nvfp4(compressed_tensors: bool) -> tuple:
    pairs = rng.integers(0, 256, (ROWS, COLS // 2)).astype(np.uint8)
    stored = rng.integers(1, 126, (ROWS, COLS // 16)).astype(np.uint8)
    factor = np.array([448 * 6 / 0.37 if compressed_tensors else 0.37 / (448 * 6)], np.float32)
    scale = e4m3(stored) / factor if compressed_tensors else e4m3(stored) * factor
    golden = e2m1(pairs) * np.repeat(scale, 16, 1)
    if compressed_tensors:
        config = config_groups("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 16})
        names = ["m.weight_packed", "m.weight_global_scale"]
    else:
        config, names = {"quant_method": "modelopt", "quant_algo": "NVFP4"}, ["m.weight", "m.weight_scale_2"]
    tensors = {names[0]: ("U8", pairs), "m.weight_scale": ("F8_E4M3", stored), names[1]: ("F32", factor)}
    return config, "bf16", tensors, golden


def mxfp4(leading: tuple, name: str) -> tuple:
    shape = (*leading, ROWS, COLS // 32, 16)
    pairs = rng.integers(0, 256, shape).astype(np.uint8)
    powers = rng.integers(100, 130, shape[:-1]).astype(np.uint8)
    golden = np.ldexp(e2m1(pairs), (powers.astype(np.int32) - 127)[..., None]).reshape(*leading, ROWS, COLS)
    if leading:
        return (
            {"quant_method": "mxfp4"},
            "mxfp4",
            {f"{name}_blocks": ("U8", pairs), f"{name}_scales": ("U8", powers)},
            golden,
        )
    config = config_groups("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 32})
    tensors = {"m.weight_packed": ("U8", pairs.reshape(ROWS, -1)), "m.weight_scale": ("U8", powers)}
    return config, "mxfp4", tensors, golden


def safetensors(tensors: dict) -> bytes:
    header, data = {}, b""
    for name, (kind, values) in tensors.items():
        if kind == "BF16":
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        raw = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def main() -> None:
    fp8_config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    channel = config_groups("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"})
    cases = {
        "fp8-block": fp8((3, 24), "weight_scale_inv", (3, 3), "F32", fp8_config | {"weight_block_size": [3, 24]}),
        "fp8-tensor": fp8((ROWS, COLS), "weight_scale_inv", (), "BF16", fp8_config),
        "fp8-channel": fp8((1, COLS), "weight_scale", (ROWS, 1), "F32", {"quant_method": "fbgemm_fp8"}),
        "compressed-fp8": fp8((1, COLS), "weight_scale", (ROWS, 1), "BF16", channel),
        "compressed-w4": compressed("BF16", 4, 32, "i4_bf16"),
        "compressed-w4-f16": compressed("F16", 4, 64, "q4_0"),
        "compressed-w4-zeros": compressed("BF16", 4, 32, "u4_bf16", zero_points=True),
        "compressed-w4-order": compressed("F16", 4, 32, "bf16", order=True),
        "compressed-w4-group-16": compressed("F16", 4, 16, "bf16"),
        "compressed-w8": compressed("BF16", 8, 32, "i8_bf16"),
        "compressed-int8": int8(),
        "compressed-nvfp4": nvfp4(True),
        "compressed-mxfp4": mxfp4((), "m"),
        "gptq-4": gptq(4, True, False, "q4_0"),
        "gptq-4-zeros": gptq(4, False, False, "u4_f16"),
        "gptq-4-order": gptq(4, False, True, "bf16", "gptq_v2"),
        "gptq-8": gptq(8, True, False, "q8_0"),
        "awq": awq(),
        "modelopt-nvfp4": nvfp4(False),
        "mxfp4": mxfp4((2,), "m"),
    }
    root = pathlib.Path("tests/compute/weights/data/quantised")
    corpus = pathlib.Path("tests/fuzz/corpus/quantised_weights")
    for folder in (root, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for name, (config, rows, tensors, golden) in cases.items():
        listed[name] = {"quantization_config": config, "rows": rows}
        (root / f"{name}.safetensors").write_bytes(
            safetensors(tensors | {"golden": ("F32", golden.astype(np.float32))})
        )
        seed = json.dumps({"quantization_config": config}, separators=(",", ":")).encode()
        (corpus / name).write_bytes(struct.pack("<H", len(seed)) + seed + safetensors(tensors))
    (root / "cases.json").write_text(json.dumps(listed, indent=1) + "\n")


if __name__ == "__main__":
    main()
