#!/usr/bin/env python3
"""Accuracy and bytes of each tried rounding of cached K and V: the KL divergence to f32.

Everything else is f32 (rounding_model.py). Models and texts are those of roundings.py.

  bench/cpu/setup.sh CACHE                     once: CACHE/venv has torch and gguf
  kv_roundings.py MODEL.gguf --text tests/golden/data/smollm2-135m.json --text TEXT.ids [--only turned] [--threads 2]

"Bits" are per value that is old enough to be rounded, scales included, the mean of K and V; "bytes" are per token in
all layers. Scales and zero points are f16, those of int8 f32. A group is within one head, at most the whole head.
"Turned": by the head's Hadamard matrix before rounding, and back after it, as the engine does to K.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from rounding_model import Copies, Model, f32_cache
from roundings import add_inputs, kl_of, read_inputs, turned


@dataclass(frozen=True)
class Form:
    """How K or V are stored."""

    bits: int = 4  # 16: bf16
    group: int = 32  # values of a head under one scale; 0: the head
    positions: int = 0  # not 0: a group is this number of positions of one dimension
    asymmetric: bool = False  # a minimum beside each scale
    turned: bool = False
    searched: bool = False  # each scale is the best of 8

    def bits_of_value(self, head: int) -> float:
        if self.bits == 16:
            return 16
        count = self.positions or min(self.group or head, head)
        return self.bits + (32 if self.bits == 8 else 32 if self.asymmetric else 16) / count

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """x [positions, heads, head] after storing and reading it."""
        if self.bits == 16:
            return x.bfloat16().float()
        count, heads, head = x.shape
        if self.turned:
            there = turned(x.reshape(-1, head), head).view(x.shape)
            return turned(replace(self, turned=False).of(there).reshape(-1, head), head).view(x.shape)
        if self.positions:
            padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -count % self.positions))
            groups = padded.view(-1, self.positions, heads, head).transpose(1, 3)
            return self._rounded(groups).transpose(1, 3).reshape(padded.shape)[:count]
        return self._rounded(x.reshape(count, heads, -1, min(self.group or head, head))).view(x.shape)

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        """Rounds groups along the last dimension."""
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        if self.asymmetric:
            middle, step, least, most = low.half().float(), (high - low) / (2**self.bits - 1), 0, 2**self.bits - 1
        elif self.bits == 8:
            middle, step, least, most = torch.zeros_like(low), torch.maximum(-low, high) / 127, -127, 127
        else:  # the largest value is -8 steps, as in q4_0
            most = 2 ** (self.bits - 1) - 1
            middle, step, least = torch.zeros_like(low), torch.where(-low > high, low, high) / -(most + 1), -most - 1
        best, error = x, torch.full_like(low, torch.inf)
        for share in (1 - 0.04 * i for i in range(8)) if self.searched else (1.0,):
            scale = step * share if self.bits == 8 else (step * share).half().float()
            y = torch.round((x - middle) / torch.where(scale == 0, 1, scale)).clamp(least, most) * scale + middle
            off = (y - x).pow(2).sum(-1, keepdim=True)
            best, error = torch.where(off < error, y, best), torch.minimum(off, error)
        return best


BF16 = Form(16)
INT8 = Form(8, 0, turned=True), Form(8, 0)  # the engine's K and V


@dataclass(frozen=True)
class Scheme:
    name: str
    k: Form
    v: Form
    block: int = 1  # positions rounded together, once all of them exist and are old enough
    recent: int = 0  # blocks before a query's that have recent_forms; its own block has too if block > 1
    recent_forms: tuple[Form, Form] = (BF16, BF16)
    first: int = 0  # positions at a sequence's start that keep recent_forms
    centred: int = 0  # not 0: the mean K of this number of positions at the start is subtracted from K

    def bytes_of_token(self, model: Model) -> float:
        return (
            (self.k.bits_of_value(model.head) + self.v.bits_of_value(model.head))
            / 8
            * model.kv_heads
            * model.head
            * model.layers
        )

    def __call__(self, k: torch.Tensor, v: torch.Tensor) -> Copies:
        if self.centred:  # the same shift of all scores of a query, which softmax ignores
            k = k - k[: self.centred].mean(0)
        old = self.k.of(k), self.v.of(v)
        if self.block == 1 and not self.recent and not self.first:
            return [(*old, None)]
        at = torch.arange(len(k))
        age = at[:, None] // self.block - at[None] // self.block
        readers = (at[None] < self.first) | (age < self.recent + (1 if self.block > 1 else 0))
        return [(*old, ~readers), (self.recent_forms[0].of(k), self.recent_forms[1].of(v), readers)]


def schemes() -> Iterator[Scheme]:
    yield Scheme("bf16", BF16, BF16)
    yield Scheme("int8 (the engine's: a scale per head, K turned)", *INT8)
    yield Scheme("int8, K not turned", INT8[1], INT8[1])
    s32, s64 = Form(4, 32), Form(4, 64)
    a32, a64 = replace(s32, asymmetric=True), replace(s64, asymmetric=True)
    named = {"symmetric, 32": s32, "symmetric, 64": s64, "asymmetric, 32": a32, "asymmetric, 64": a64}
    for name, form in named.items():
        yield Scheme(f"int4, {name}", form, form)
    for name, form in named.items():
        yield Scheme(f"int4, {name}, K turned", replace(form, turned=True), form)
    for name, form in named.items():
        yield Scheme(f"int4, {name}, K and V turned", replace(form, turned=True), replace(form, turned=True))
    turned_32 = replace(a32, turned=True)
    turned_both = Scheme("int4, asymmetric, 32, K and V turned", turned_32, turned_32)
    searched = replace(turned_32, searched=True)
    yield Scheme("int4, asymmetric, 32, K and V turned, scales searched", searched, searched)
    yield Scheme("K int4, asymmetric, 32, turned; V bf16", turned_32, BF16)
    yield Scheme("K bf16; V int4, asymmetric, 32", BF16, a32)
    for count in (16, 32):
        yield Scheme(f"K int4 per dimension over {count} positions; V bf16", replace(a32, positions=count), BF16, count)
    for count in (16, 32):
        yield Scheme(
            f"K int4 per dimension over {count} positions; V int4, asymmetric, 32",
            replace(a32, positions=count),
            a32,
            count,
        )
    by_32 = Scheme(
        "K int4 per dimension over 32 positions; V int4, asymmetric, 32, turned",
        replace(a32, positions=32),
        turned_32,
        32,
    )
    yield by_32
    for blocks in (1, 4):
        yield replace(by_32, name=f"{by_32.name}; {32 * blocks} recent positions more bf16", recent=blocks)
    yield replace(by_32, name=by_32.name + "; recent positions int8", recent_forms=INT8)
    yield replace(by_32, name=by_32.name + "; 128 recent positions more int8", recent=4, recent_forms=INT8)
    yield replace(by_32, name=by_32.name + "; 128 recent positions more and the first 16 bf16", recent=4, first=16)
    yield replace(turned_both, name=turned_both.name + "; 128 recent positions bf16", recent=128)
    yield replace(turned_both, name=turned_both.name + "; first 16 positions bf16", first=16)
    for count in (16, 512):
        yield replace(turned_both, name=f"{turned_both.name}; less the mean K of {count} positions", centred=count)
    yield Scheme("int8; less the mean K of 16 positions", *INT8, centred=16)
    for name, form in named.items():
        yield Scheme(f"K int8; V int4, {name}", INT8[0], form)
    yield Scheme("K int8; V int4, asymmetric, 32, turned", INT8[0], turned_32)
    yield Scheme("K int8; V int4, asymmetric, 32, turned, scales searched", INT8[0], searched)
    yield Scheme(
        "K int8; V int4, asymmetric, 32, turned; 128 recent positions int8",
        INT8[0],
        turned_32,
        recent=128,
        recent_forms=INT8,
    )
    yield replace(by_32, name=by_32.name + "; first 16 positions bf16", first=16)
    yield replace(by_32, name=by_32.name + "; recent and first 16 positions int8", first=16, recent_forms=INT8)
    yield Scheme(
        "K int8; V int4, asymmetric, 32, turned; first 16 positions int8",
        INT8[0],
        turned_32,
        first=16,
        recent_forms=INT8,
    )
    yield Scheme("K bf16; V int4, asymmetric, 32, turned; first 16 positions bf16", BF16, turned_32, first=16)
    for bits in (5, 6):
        form = Form(bits, 32, asymmetric=True, turned=True)
        yield Scheme(f"int{bits}, asymmetric, 32, K and V turned", form, form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_inputs(parser)
    options = parser.parse_args()
    model, texts = read_inputs(options)
    reference = {
        name: [model.log_probabilities(ids, cache=f32_cache) for ids, _ in found] for name, found in texts.items()
    }
    print(f"{model.name}\n\n| K and V | bits | bytes |" + "".join(f" {name} |" for name in texts))
    print("|---|---|---|" + "---|" * len(texts), flush=True)
    for scheme in schemes():
        if options.only not in scheme.name:
            continue
        cells = "".join(f" {kl_of(model, found, reference[name], cache=scheme):.2e} |" for name, found in texts.items())
        size = scheme.bytes_of_token(model)
        print(
            f"| {scheme.name} | {size * 4 / (model.kv_heads * model.head * model.layers):.2f} | {size:,.0f} |{cells}",
            flush=True,
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the rows above are whole") from None
