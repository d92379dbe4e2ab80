#!/usr/bin/env python3
"""What more bytes improve in `--quantization int4`: the KL divergence to the file's weights, and bits per weight, for
variants of its rounding by least squares.

Emulated in f32 (rounding_model.py), with the engine's grid and algorithm (src/compute/kernels/fit/least_squares.h,
quantize_blocks.cc). Embedding and output matrix have 8 bits and a scale per row. --calibrate: sequences of one length,
one per line (the engine generates its own with the model).

  bench/cpu/setup.sh CACHE                     once: CACHE/venv has torch and gguf
  int4_bytes.py MODEL.gguf --text tests/golden/data/smollm2-135m.json --text TEXT.ids --calibrate WRITTEN.ids
    [--only down] [--threads 2]

Weights stored in blocks of 32 flatter groups of 32: a group's grid then equals its block's. "Apart" shifts the groups
by 16 columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rounding_model import Model, f32_cache
from roundings import add_inputs, kl_of, read_inputs, read_texts

SHORT = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


@dataclass(frozen=True)
class Variant:
    name: str
    group: int = 64
    apart: int = 0  # columns of the first group, which shifts the others
    eight: tuple[str, ...] = ()  # matrices in 8 bits, a scale per row
    layers: tuple[int, ...] = ()  # in 8 bits; negative: from the end
    columns: float = 0  # share of each matrix's columns in 8 bits, those with the largest expected error
    neighbours: int = 1  # columns chosen together
    output_8: bool = True  # embedding and output matrix in 8 bits; else as stored
    nearest: bool = False


def grid(x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A quarter step, and a zero point in quarter steps, for each row of x [rows, columns], as in QuantizeInt4."""

    def fit(step: torch.Tensor, minimum: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = (step / 4).half().float()
        zero = torch.where(d == 0, 0, torch.round((-minimum / d).clamp(0, 60)))
        q = codes(x, d, zero)
        error = (weights * ((4 * q - zero) * d - x).pow(2)).sum(1, keepdim=True)
        n, sum_q, sum_x = weights.sum(), (weights * q).sum(1, keepdim=True), (weights * x).sum(1, keepdim=True)
        spread = n * (weights * q * q).sum(1, keepdim=True) - sum_q * sum_q
        next_step = torch.where(spread > 0, (n * (weights * q * x).sum(1, keepdim=True) - sum_q * sum_x) / spread, step)
        return error, d, zero, next_step, (sum_x - next_step * sum_q) / n

    def better(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.where(b[0] < a[0], y, x) for x, y in zip(a, b))

    low, high = x.amin(1, keepdim=True).clamp_max(0), x.amax(1, keepdim=True).clamp_min(0)
    best = None
    for keep in (1.0, 0.9):
        step = (high - low) * keep / 15
        first = fit(step, (low + high) / 2 - 7.5 * step)
        best = better(first if best is None else better(best, first), fit(*first[3:]))
    best = better(best, fit(*best[3:]))
    return best[1], best[2]


def codes(x: torch.Tensor, d: torch.Tensor, zero: torch.Tensor, finer: int = 1) -> torch.Tensor:
    """Codes in steps of 1/finer; 8 bits have 16 steps per step of 4 bits."""
    at = torch.where(d == 0, 0, (x / d + zero) / 4)
    return (torch.round(at * finer) / finer).clamp(0, 15 + 1 - 1 / finer)


def factor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U above the diagonal, D, and the diagonal of H = (I + U) D (I + U)^T, as in FactorInputs."""
    h = x.T @ x
    h.diagonal().add_(0.01 * h.diagonal().mean())
    root = torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1)
    return root / root.diagonal(), root.diagonal().pow(2), h.diagonal()


def to_8_bits(w: torch.Tensor) -> torch.Tensor:
    scale = w.abs().amax(1, keepdim=True) / 127
    return torch.round(w / torch.where(scale == 0, 1, scale)) * scale


def starts(columns: int, v: Variant) -> list[int]:
    return [0, *range(v.apart or v.group, columns, v.group)]


def fine_columns(w: torch.Tensor, d: torch.Tensor, importance: torch.Tensor, v: Variant) -> torch.Tensor:
    """Marks the columns with 8 bits, by the error of a step in the operator's output after later columns compensate."""
    steps = torch.zeros(w.shape[1])
    at = starts(w.shape[1], v)
    for first, end in zip(at, [*at[1:], w.shape[1]]):
        steps[first:end] = grid(w[:, first:end], importance[first:end])[0].pow(2).mean()
    sizes = torch.nn.functional.pad(d * steps, (0, -len(d) % v.neighbours)).view(-1, v.neighbours).sum(1)
    marks = torch.zeros(len(sizes), dtype=torch.bool)
    marks[sizes.topk(round(v.columns * len(sizes))).indices] = True
    return marks.repeat_interleave(v.neighbours)[: len(d)]


def least_squares(
    w: torch.Tensor, u: torch.Tensor, d: torch.Tensor, importance: torch.Tensor, v: Variant
) -> torch.Tensor:
    """w [rows, columns] rounded, columns in order, as in RoundInt4."""
    fine = fine_columns(w, d, importance, v) if v.columns else torch.zeros(w.shape[1], dtype=torch.bool)
    done = torch.zeros_like(w)
    at = starts(w.shape[1], v)
    for first, end in zip(at, [*at[1:], w.shape[1]]):
        x = (w[:, first:end] + (w[:, :first] - done[:, :first]) @ u[:first, first:end]).contiguous()
        quarter, zero = grid(x, importance[first:end])
        for k in range(first, end):
            code = codes(x[:, k - first : k - first + 1], quarter, zero, 16 if fine[k] else 1)
            done[:, k] = ((4 * code - zero) * quarter)[:, 0]
            if k + 1 < end:
                x[:, k + 1 - first :].addr_(w[:, k] - done[:, k], u[k, k + 1 : end])
    return done


def nearest(w: torch.Tensor, v: Variant) -> torch.Tensor:
    done = torch.empty_like(w)
    for first in range(0, w.shape[1], v.group):
        x = w[:, first : first + v.group]
        quarter, zero = grid(x, torch.ones(x.shape[1]))
        done[:, first : first + v.group] = (4 * codes(x, quarter, zero) - zero) * quarter
    return done


class Done(Exception):
    pass


Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # results of factor()


class Rounder:
    """A rounding of activations that returns them unchanged and rounds each matrix once its input is known, so that
    later matrices compensate for earlier ones."""

    def __init__(self, model: Model, v: Variant) -> None:
        self.model, self.v = model, v
        self.bits = self.count = 0.0
        self.inputs: Inputs | None = None

    def _eight(self, name: str, layer: int) -> bool:
        return name in self.v.eight or layer in self.v.layers or layer - self.model.layers in self.v.layers

    def __call__(self, site: str, layer: int, x: torch.Tensor) -> torch.Tensor:
        if site == "lm":
            raise Done
        names = {"q": ["q"], "kv": ["k", "v"], "o": ["o"], "gu": ["gate", "up"], "d": ["down"]}[site]
        keys = {name: f"blk.{layer}.{SHORT[name]}.weight" for name in names}
        if site != "kv" and not self.v.nearest:
            self.inputs = factor(x)  # k and v have the input of q
        for name, key in keys.items():
            w = self.model.weights[key]
            self.count += w.numel()
            if self._eight(name, layer):
                self.bits += 8 * w.numel() + 32 * len(w)
                self.model.weights[key] = to_8_bits(w)
                continue
            self.bits += w.numel() * 4 + 24 * len(w) * len(starts(w.shape[1], replace(self.v, apart=0)))
            self.bits += 4 * len(w) * round(self.v.columns * w.shape[1])
            self.model.weights[key] = (
                nearest(w, self.v) if self.inputs is None else least_squares(w, *self.inputs, self.v)
            )
        return x


def variants(model: Model) -> Iterator[Variant]:
    plain = Variant("`int4`")
    yield replace(plain, name="`int4_nearest`", nearest=True)
    yield plain
    yield replace(plain, name="groups of 32", group=32)
    apart = replace(plain, name="groups of 64, apart", apart=16)
    yield apart
    yield replace(apart, name="groups of 32, apart", group=32)
    yield replace(apart, name="groups of 128, apart", group=128)
    for names in ("v",), ("o",), ("k", "v"), ("q", "k"), ("down",), ("gate", "up"):
        yield replace(plain, name=f"{' and '.join(names)} in 8 bits", eight=names)
    yield replace(plain, name="first and last layer in 8 bits", layers=(0, -1))
    for percent in (1, 5, 12.5):
        yield replace(plain, name=f"{percent} % of the columns in 8 bits", columns=percent / 100)
    yield replace(plain, name="12.5 % of the columns in 8 bits, four neighbours each", columns=0.125, neighbours=4)
    yield replace(plain, name="embedding and output matrix as stored", output_8=False)
    if model.kind == "llama":
        yield replace(apart, name="groups of 32, apart; 5 % of the columns in 8 bits", group=32, columns=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_inputs(parser)
    parser.add_argument("--calibrate", type=Path, required=True, help="token ids, sequences of equal length")
    options = parser.parse_args()
    model, texts = read_inputs(options)
    sequences = [ids for ids, _ in read_texts(options.calibrate, options.most, len(model.weights["token_embd.weight"]))]
    if len({len(ids) for ids in sequences}) > 1:
        raise SystemExit(f"{options.calibrate}: lines of different lengths; cut them to one length")
    calibration = torch.stack(sequences)
    reference = {
        name: [model.log_probabilities(ids, cache=f32_cache) for ids, _ in found] for name, found in texts.items()
    }
    stored, output = model.weights, model.output
    print(
        f"{model.name}, {calibration.numel()} tokens to calibrate\n\n| weights | bits of a layer's weight | MB of the"
        " model |" + "".join(f" {name} |" for name in texts) + "\n|---|---|---|" + "---|" * len(texts),
        flush=True,
    )
    for v in variants(model):
        if options.only not in v.name:
            continue
        model.weights = dict(stored)
        rounder = Rounder(model, v)
        try:
            model.log_probabilities(calibration, rounder, f32_cache)
        except Done:
            pass
        table = stored["token_embd.weight"]
        size = rounder.bits + (8 * table.numel() + 32 * len(table) if v.output_8 else 16 * table.numel())
        if v.output_8:
            model.weights["token_embd.weight"] = to_8_bits(table)
            model.output = model.weights["token_embd.weight"] if output is table else to_8_bits(output)
        cells = "".join(f" {kl_of(model, found, reference[name]):.2e} |" for name, found in texts.items())
        model.output = output
        print(f"| {v.name} | {rounder.bits / rounder.count:.3f} | {size / 8e6:.1f} |{cells}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the rows above are whole") from None
