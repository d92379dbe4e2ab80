#!/usr/bin/env python3
"""Accuracy and arithmetic of each tried rounding of activations: the KL divergence to f32.

Emulated in f32 (rounding_model.py), so that a rounding can be tried before a kernel has it. Texts are files of token
ids, separated by white space, one text per line, or golden files (tests/golden/data); --calibrate needs other texts
than the measured ones.

  bench/cpu/setup.sh CACHE                     once: CACHE/venv has torch and gguf
  roundings.py MODEL.gguf --text TEXT.ids --text CHAT.ids --calibrate OTHER.ids [--only centred] [--threads 2]

"Arithmetic" is integer multiplications per prompt token (of a decode: with the output matrix), relative to 8 bits
everywhere: two planes count twice. The first positions of a sequence are excluded where a rounding treats them
separately.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rounding_model import SITES, Cache, Model, Rounding, bf16_cache, exact, f32_cache
from torch.nn import functional

LIMIT, MOST_SHIFT = 127, 7


@dataclass(frozen=True)
class Scheme:
    name: str
    scale_columns: int = 128  # columns under one f32 scale
    shift_columns: int = 32  # columns under one power of two; 0: none
    planes: frozenset[str] = frozenset({"kv", "lm"})  # sites with 16 bits
    layers: tuple[int, ...] = ()  # with 16 bits; negative: from the end
    first: int = 0  # positions with 16 bits at a sequence's start
    centred: bool = False  # the mean of the calibration's activations is subtracted, and restored as a bias
    crest: float = (
        math.inf
    )  # 16 bits for 32 columns whose largest exceeds this multiple of the token's root mean square
    blocks: float = 0  # share of a matrix's blocks of 128 columns with 16 bits, by the calibration's error
    wide: int = 0  # columns of each 32 with 16 bits, those of the largest mean square in the calibration
    wide_by: str = "calibration"  # or "weights": columns made largest by norms and earlier weights; "token": see groups
    # with "token": number of groups of four neighbours in each 32 columns, those with the token's largest values
    groups: int = 0
    groups_down: int = 0  # the number for d; 0: as for all
    hadamard: int = 0  # columns turned before rounding, like the weights that can be turned
    asymmetric: bool = False  # a zero point beside each scale
    clipped: bool = False  # each scale is the best of 8


def blocks_of(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Returns [tokens, blocks, columns], the last block padded with zeros."""
    return functional.pad(x, (0, -x.shape[1] % columns)).view(len(x), -1, columns)


def turned(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Multiplies by an orthonormal Hadamard matrix of this number of columns, halved until it divides x's; its own
    inverse."""
    while x.shape[1] % columns:
        columns //= 2
    y, step = blocks_of(x, columns), 1
    while step < columns:
        a, b = y.view(*y.shape[:2], -1, 2, step).unbind(-2)
        y = torch.stack([a + b, a - b], -2).reshape(y.shape)
        step *= 2
    return (y / math.sqrt(columns)).reshape(len(x), -1)[:, : x.shape[1]]


def to_8_bits(x: torch.Tensor, s: Scheme) -> torch.Tensor:
    columns = s.shift_columns or s.scale_columns
    y = blocks_of(x, max(columns, s.scale_columns)).reshape(len(x), -1, columns)
    middle = torch.zeros_like(y[..., :1])
    if s.asymmetric:
        middle = (y.amax(-1, keepdim=True) + y.amin(-1, keepdim=True)) / 2
    largest = (y - middle).abs().amax(-1)
    if s.shift_columns:
        most = largest.view(len(x), -1, s.scale_columns // columns).amax(-1, keepdim=True)
        times = torch.floor(torch.log2(most / largest.view(len(x), -1, s.scale_columns // columns).clamp_min(1e-30)))
        largest = (most * 2.0 ** -times.clamp(0, MOST_SHIFT)).reshape(len(x), -1)
    best, least = None, None
    for share in (1 - 0.04 * i for i in range(8)) if s.clipped else (1.0,):
        step = (largest * share / LIMIT).clamp_min(1e-30)[..., None]
        z = torch.round((y - middle) / step).clamp(-LIMIT, LIMIT) * step + middle
        error = ((z - y) ** 2).sum(-1, keepdim=True)
        best = z if best is None else torch.where(error < least, z, best)
        least = error if least is None else torch.minimum(error, least)
    return best.reshape(len(x), -1)[:, : x.shape[1]]


class Calibration:
    """For each site and layer: the mean activation, and each block of 128 columns' relative error in the operator's
    output."""

    def __init__(self, model: Model, texts: Sequence[torch.Tensor]) -> None:
        kept: dict[tuple[str, int], list[torch.Tensor]] = {}

        def keep(site: str, layer: int, x: torch.Tensor) -> torch.Tensor:
            kept.setdefault((site, layer), []).append(x)
            return x

        for ids in texts:
            model.log_probabilities(ids, keep)
        self.mean: dict[tuple[str, int], torch.Tensor] = {}
        self.squares: dict[tuple[str, int], torch.Tensor] = {}
        self.errors: dict[tuple[str, int], torch.Tensor] = {}
        for (site, layer), parts in kept.items():
            x = torch.cat(parts)
            self.mean[site, layer] = x.mean(0)
            self.squares[site, layer] = x.pow(2).mean(0)
            w = torch.cat(model.operators(site, layer))
            weight = (w * w).sum(0)
            error = ((to_8_bits(x, Scheme("")) - x) ** 2 * weight).sum(0, keepdim=True) / ((x @ w.T) ** 2).sum()
            self.errors[site, layer] = blocks_of(error, 128).sum(-1)[0]


def column_sizes(model: Model, site: str, layer: int) -> torch.Tensor:
    """The likely sizes of an operator's input columns, from the weights of the norm or operators before it."""

    def w(name: str) -> torch.Tensor:
        return model.weights[f"blk.{layer}.{name}.weight"]

    if site == "lm":
        return model.weights["output_norm.weight"].abs()
    if site == "d":
        norm = w("ffn_norm")
        return (w("ffn_gate") * norm).norm(dim=1) * (w("ffn_up") * norm).norm(dim=1)
    if site == "o":
        rows = (w("attn_v") * w("attn_norm")).norm(dim=1)
        return rows.view(model.kv_heads, model.head).repeat_interleave(model.heads // model.kv_heads, 0).reshape(-1)
    return w("ffn_norm" if site == "gu" else "attn_norm").abs()


def largest_of_32(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """Marks the largest `count` of each 32 columns."""
    blocks = blocks_of(sizes[None], 32)[0]
    return (
        torch.zeros(blocks.shape, dtype=torch.bool)
        .scatter_(1, blocks.topk(count, -1).indices, True)
        .view(-1)[: len(sizes)]
    )


def largest_neighbours(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Marks the groups of four neighbours with the largest values in each 32 columns of each token."""
    tops = blocks_of(x, 32).abs().unflatten(-1, (8, 4)).amax(-1)
    chosen = torch.zeros_like(tops, dtype=torch.bool).scatter_(-1, tops.topk(groups, -1).indices, True)
    return chosen.repeat_interleave(4, -1).reshape(len(x), -1)[:, : x.shape[1]]


class Rounded:
    """A scheme as a rounding, which counts the elements with two planes."""

    def __init__(self, model: Model, calibration: Calibration, scheme: Scheme) -> None:
        self.model, self.calibration, self.scheme = model, calibration, scheme
        self.twice = dict.fromkeys(SITES, 0.0)  # sums of the shares of elements with two planes
        self.counted = dict.fromkeys(SITES, 0)

    def __call__(self, site: str, layer: int, x: torch.Tensor) -> torch.Tensor:
        s = self.scheme
        mean = self.calibration.mean[site, layer] if s.centred else torch.zeros(x.shape[1])
        r = turned(x - mean, s.hadamard) if s.hadamard else x - mean
        wide = None
        if s.wide_by == "token":
            count = s.groups_down if site == "d" and s.groups_down else s.groups
            wide = largest_neighbours(r, count)
        elif s.wide:
            squares = (
                self.calibration.squares[site, layer]
                if s.wide_by == "calibration"
                else column_sizes(self.model, site, layer)
            )
            wide = largest_of_32(squares, s.wide)
        y = to_8_bits(r if wide is None else torch.where(wide, 0, r), s)
        y = y if wide is None else torch.where(wide, r, y)
        two = torch.zeros(len(x), -(-x.shape[1] // 32), dtype=torch.bool)
        if site in s.planes or layer in s.layers or layer - self.model.layers in s.layers:
            two[:] = True
        rms = x.pow(2).mean(-1, keepdim=True).sqrt()
        two |= blocks_of(r, 32).abs().amax(-1) > s.crest * rms
        if s.blocks:
            errors = self.calibration.errors[site, layer]
            chosen = torch.zeros_like(errors, dtype=torch.bool)
            chosen[errors.topk(round(s.blocks * len(errors))).indices] = True
            two |= chosen.repeat_interleave(4)[: two.shape[1]]
        if len(x) > s.first:
            share = float(wide.float().mean()) if wide is not None else 0.0
            self.twice[site] += float(two[s.first :].float().mean()) * (1 - share) + share
            self.counted[site] += 1
        two[: s.first] = True
        y = torch.where(two.repeat_interleave(32, 1)[:, : x.shape[1]], r, y)
        return (turned(y, s.hadamard) if s.hadamard else y) + mean

    def arithmetic(self, sites: Sequence[str]) -> float:
        work = {
            site: sum(w.numel() for w in self.model.operators(site, 0)) * (1 if site == "lm" else self.model.layers)
            for site in sites
        }
        return sum(w * (1 + self.twice[site] / max(1, self.counted[site])) for site, w in work.items()) / sum(
            work.values()
        )


def schemes() -> list[Scheme]:
    none: frozenset[str] = frozenset()
    all_8 = Scheme("8 bits everywhere", planes=none)
    today = Scheme("16 bits for k, v and lm_head (`int8`)")
    rows = [all_8, today]
    rows += [replace(all_8, name=f"16 bits for {site}", planes=frozenset({site})) for site in SITES]
    rows += [
        replace(today, name=f"`int8`, and 16 bits for {n:.0%} of each matrix's blocks of 128 columns", blocks=n)
        for n in (0.05, 0.1, 0.15, 0.3)
    ]
    rows += [replace(today, name=f"`int8`, {n} columns turned (Hadamard)", hadamard=n) for n in (64, 128)]
    rows += [
        replace(today, name="`int8`, asymmetric", asymmetric=True),
        replace(today, name="`int8`, clipped by least error", clipped=True),
    ]
    for scale, shift in ((128, 16), (128, 8), (64, 16), (64, 8), (32, 0), (32, 8), (16, 0)):
        columns = f"{scale} columns" + (f", a shift for {shift}" if shift else "")
        rows.append(replace(today, name=f"`int8`, a scale for {columns}", scale_columns=scale, shift_columns=shift))
    first = replace(today, name="`int8`, 16 bits for the first 32 positions", first=32)
    rows += [first, replace(today, name="`int8`, centred", centred=True)]
    rows += [
        replace(today, name=f"`int8`, 16 bits for 32 columns above {c} times the rms", crest=c) for c in (8, 6, 5, 4)
    ]
    rows.append(replace(today, name="`int8`, 16 bits in the first and the last layer", layers=(0, -1)))
    for wide in (2, 4, 8):
        rows.append(replace(today, name=f"`int8`, 16 bits for {wide} of 32 columns", wide=wide))
    both = Scheme("first 32, 16 bits for 4 of 32 columns", planes=frozenset({"lm"}), first=32, wide=4)
    rows += [
        both,
        replace(both, name=both.name + " and for k and v", planes=frozenset({"lm", "kv"})),
        replace(both, name=both.name + ", chosen by weights alone", wide_by="weights"),
        replace(both, name=both.name + ", also in lm_head", planes=none),
        replace(both, name=both.name + ", centred", centred=True),
        replace(both, name=both.name + ", a scale for 64 columns", scale_columns=64),
        replace(both, name=both.name + ", a scale for 32 columns", scale_columns=32, shift_columns=0),
        replace(both, name=both.name + ", first and last layer", layers=(0, -1)),
        replace(both, name=both.name + ", above 6 times the rms", crest=6),
    ]
    token = Scheme(
        "four neighbours of 32, by token",
        planes=frozenset({"lm"}),
        scale_columns=32,
        shift_columns=0,
        wide_by="token",
        groups=1,
    )
    rows += [
        replace(token, name="four fixed columns of 32", wide_by="calibration", wide=4),
        token,
        replace(token, name=token.name + ", two such for down (`mixed`)", groups_down=2),
        replace(token, name=token.name + ", two such", groups=2),
    ]
    centred = replace(first, name="centred, first 32", centred=True)
    rows += [centred, replace(centred, name="centred, first 32, all of 8 bits", planes=none)]
    for scale, shift in ((128, 16), (128, 8), (64, 8), (32, 0), (32, 8), (16, 0)):
        finer = replace(centred, name=f"centred, first 32, {scale}/{shift}", scale_columns=scale, shift_columns=shift)
        rows += [finer, replace(finer, name=finer.name + ", k and v of 8 bits", planes=frozenset({"lm"}))]
        rows.append(replace(finer, name=finer.name + ", above 6 times the rms", crest=6))
        rows.append(
            replace(
                finer,
                name=finer.name + ", k and v of 8 bits, first and last layer",
                planes=frozenset({"lm"}),
                layers=(0, -1),
            )
        )
    return rows


def add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--text", type=Path, action="append", required=True, help="token ids to measure on; may be repeated"
    )
    parser.add_argument("--most", type=int, default=512, help="positions per text (default 512)")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


Texts = list[tuple[torch.Tensor, slice]]  # ids, and the positions that count


def read_inputs(options: argparse.Namespace) -> tuple[Model, dict[str, Texts]]:
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    if not options.model.is_file():
        raise SystemExit(f"{options.model}: no such file; give a GGUF file or llama2.c's .bin")
    model = Model(options.model)
    return model, {
        path.stem: read_texts(path, options.most, len(model.weights["token_embd.weight"])) for path in options.text
    }


def read_texts(path: Path, most: int, vocabulary: int) -> Texts:
    """Reads a file of ids, whose positions all count, or a golden file, whose texts are its conversations: those count
    from the position that predicts an answer's first token to the one that predicts its last."""
    give = "give ids, one text per line, as printed by 'tactus tokenize MODEL --ids on'"
    try:
        if path.suffix == ".json":
            cases = json.loads(path.read_text())["cases"]
            texts = [(case["prompt"] + case["greedy"], slice(len(case["prompt"]) - 1, -1)) for case in cases]
        else:
            texts = [
                ([int(word) for word in line.split()], slice(None))
                for line in path.read_text().splitlines()
                if line.strip()
            ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: {error}; {give}") from None
    if not texts:
        raise SystemExit(f"{path}: no ids; {give}")
    for text, _ in texts:
        if not 0 <= min(text) <= max(text) < vocabulary:
            raise SystemExit(
                f"{path}: ids from {min(text)} to {max(text)}, but the model has {vocabulary}: ids of another model?"
            )
    return [(torch.tensor(text[:most]), counts) for text, counts in texts]


def kl_of(
    model: Model, texts: Texts, reference: Sequence[torch.Tensor], rounding: Rounding = exact, cache: Cache = bf16_cache
) -> float:
    """The mean KL(reference || rounded) over the positions that count."""
    parts = []
    for (ids, counts), logs in zip(texts, reference):
        other = model.log_probabilities(ids, rounding, cache)
        parts.append((logs.exp() * (logs - other)).sum(-1)[counts])
    return float(torch.cat(parts).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_inputs(parser)
    parser.add_argument(
        "--calibrate",
        type=Path,
        action="append",
        default=[],
        help="token ids for the means and errors (default: two texts of 256 random ids)",
    )
    options = parser.parse_args()
    model, texts = read_inputs(options)
    vocabulary = len(model.weights["token_embd.weight"])
    random = [torch.randint(0, vocabulary, (256,), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    given = [ids for path in options.calibrate for ids, _ in read_texts(path, options.most, vocabulary)]
    calibration = Calibration(model, given or random)
    reference = {
        name: [model.log_probabilities(ids, cache=f32_cache) for ids, _ in found] for name, found in texts.items()
    }

    print(
        f"{model.name}\n\n| rounding | arithmetic of a prompt | of a decode |" + "".join(f" {name} |" for name in texts)
    )
    print("|---|---|---|" + "---|" * len(texts))
    none = "".join(f" {kl_of(model, found, reference[name]):.2e} |" for name, found in texts.items())
    print(f"| none (K and V bf16) | | |{none}", flush=True)
    for scheme in schemes():
        if options.only not in scheme.name:
            continue
        rounding = Rounded(model, calibration, scheme)
        cells = "".join(f" {kl_of(model, found, reference[name], rounding):.2e} |" for name, found in texts.items())
        print(
            f"| {scheme.name} | {rounding.arithmetic(SITES[:-1]):.3f} | {rounding.arithmetic(SITES):.3f} |{cells}",
            flush=True,
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the rows above are whole") from None
