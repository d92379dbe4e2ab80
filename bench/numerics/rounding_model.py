"""Forward passes in f32 whose linear operators read rounded activations: llama and gemma3 of GGUF files, and
llama2.c's.

A rounding is a function (site, layer, x) -> x' of the activations x [tokens, columns] that an operator reads. Sites: q,
kv (the same activations as q's), o, gu (gate and up), d (down), lm (the output matrix). Weights are exactly the file's.
A cache is a function of K and V [positions, heads, head] that returns the copies that attention reads.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

SITES = ("q", "kv", "o", "gu", "d", "lm")
Rounding = Callable[[str, int, torch.Tensor], torch.Tensor]
# K, V, and which (query, position) pairs read this copy [queries, positions], None: all. Each pair reads one copy.
Copies = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
Cache = Callable[[torch.Tensor, torch.Tensor], Copies]


def exact(_site: str, _layer: int, x: torch.Tensor) -> torch.Tensor:
    return x


def bf16_cache(k: torch.Tensor, v: torch.Tensor) -> Copies:
    return [(k.bfloat16().float(), v.bfloat16().float(), None)]


def f32_cache(k: torch.Tensor, v: torch.Tensor) -> Copies:
    return [(k, v, None)]


class Model:
    """Weights [rows, columns] by GGUF's names, and the shape that a pass needs."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        if path.suffix == ".bin":
            self._read_llama2c(path)
        else:
            self._read_gguf(path)
        self.output = self.weights.get("output.weight", self.weights["token_embd.weight"])

    def _read_gguf(self, path: Path) -> None:
        import gguf

        reader = gguf.GGUFReader(str(path))
        self.kind = reader.fields["general.architecture"].contents()
        if self.kind not in ("llama", "gemma3"):
            raise SystemExit(f"{path}: architecture '{self.kind}'; this emulates llama and gemma3")

        def field(name: str, default: float | None = None) -> float:
            found = reader.fields.get(f"{self.kind}.{name}")
            if found is None and default is None:
                raise SystemExit(f"{path}: no {self.kind}.{name}")
            return default if found is None else found.contents()

        self.weights = {
            t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32))
            for t in reader.tensors
        }
        self.layers, self.width = int(field("block_count")), int(field("embedding_length"))
        self.heads = int(field("attention.head_count"))
        self.kv_heads = int(field("attention.head_count_kv", self.heads))
        self.head = int(field("attention.key_length", self.width // self.heads))
        self.eps, self.base = float(field("attention.layer_norm_rms_epsilon")), float(field("rope.freq_base", 10000.0))
        self.window = int(field("attention.sliding_window", 0))

    def _read_llama2c(self, path: Path) -> None:
        data = path.read_bytes()
        self.width, inner, self.layers, self.heads, self.kv_heads, vocabulary, _ = struct.unpack("7i", data[:28])
        self.kind, self.eps, self.base, self.window = "llama", 1e-5, 10000.0, 0
        self.head = self.width // self.heads
        at = 28

        def take(*shape: int) -> torch.Tensor:
            nonlocal at
            count = math.prod(shape)
            values = np.frombuffer(data, np.float32, count, at).reshape(shape).copy()
            at += 4 * count
            return torch.from_numpy(values)

        self.weights = {"token_embd.weight": take(abs(vocabulary), self.width)}
        kv = self.kv_heads * self.head
        for name, shape in (
            ("attn_norm", (self.width,)),
            ("attn_q", (self.width, self.width)),
            ("attn_k", (kv, self.width)),
            ("attn_v", (kv, self.width)),
            ("attn_output", (self.width, self.width)),
            ("ffn_norm", (self.width,)),
            ("ffn_gate", (inner, self.width)),
            ("ffn_down", (self.width, inner)),
            ("ffn_up", (inner, self.width)),
        ):
            for layer, values in enumerate(take(self.layers, *shape)):
                self.weights[f"blk.{layer}.{name}.weight"] = values
        self.weights["output_norm.weight"] = take(self.width)

    def operators(self, site: str, layer: int) -> list[torch.Tensor]:
        """The weights that read a site's activations, each [rows, columns]."""
        names = {
            "q": ("attn_q",),
            "kv": ("attn_k", "attn_v"),
            "o": ("attn_output",),
            "gu": ("ffn_gate", "ffn_up"),
            "d": ("ffn_down",),
        }
        return [self.output] if site == "lm" else [self.weights[f"blk.{layer}.{name}.weight"] for name in names[site]]

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weights[name]

    def _rope(self, x: torch.Tensor, base: float, positions: torch.Tensor) -> torch.Tensor:
        """x: [tokens, heads, head]. Pairs are neighbours in llama's files, one of each half in gemma3's."""
        half = self.head // 2
        angle = positions[:, None].float() * base ** (-torch.arange(half).float() / half)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        if self.kind == "gemma3":
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def _attention(self, q: torch.Tensor, copies: Copies, seen: torch.Tensor) -> torch.Tensor:
        """Returns [tokens, heads * head] for q [tokens, heads, head] and seen [tokens, positions]."""

        def of_queries(x: torch.Tensor) -> torch.Tensor:
            return x.repeat_interleave(self.heads // self.kv_heads, 1)

        scores = torch.full((self.heads, *seen.shape), -torch.inf)
        for k, _, readers in copies:
            read = seen if readers is None else seen & readers
            scores = torch.where(read, torch.einsum("thd,shd->hts", q, of_queries(k)) / math.sqrt(self.head), scores)
        weights = scores.softmax(-1)
        mixed = [
            torch.einsum("hts,shd->thd", weights if readers is None else weights * readers, of_queries(v))
            for _, v, readers in copies
        ]
        return sum(mixed[1:], mixed[0]).reshape(len(q), -1)

    def log_probabilities(
        self, ids: torch.Tensor, rounding: Rounding = exact, cache: Cache = bf16_cache
    ) -> torch.Tensor:
        """Returns [tokens, vocabulary], after each token of `ids` [tokens] or [sequences, length] in this order."""
        gemma = self.kind == "gemma3"
        length, tokens = ids.shape[-1], ids.numel()
        positions = torch.arange(length)
        behind = positions[:, None] - positions[None, :]
        positions = positions.repeat(tokens // length)
        h = self.weights["token_embd.weight"][ids.reshape(-1)]
        if gemma:
            h = h * math.sqrt(self.width)
        for layer in range(self.layers):

            def linear(name: str, x: torch.Tensor, layer: int = layer) -> torch.Tensor:
                return x @ self.weights[f"blk.{layer}.{name}.weight"].T

            local = gemma and layer % 6 != 5
            seen = (behind >= 0) & (behind < self.window if local else behind < length)
            x = self._norm(h, f"blk.{layer}.attn_norm.weight")
            q = linear("attn_q", rounding("q", layer, x)).view(tokens, self.heads, self.head)
            kv = rounding("kv", layer, x)
            k = linear("attn_k", kv).view(tokens, self.kv_heads, self.head)
            v = linear("attn_v", kv).view(tokens, self.kv_heads, self.head)
            if gemma:
                q, k = (
                    self._norm(q, f"blk.{layer}.attn_q_norm.weight"),
                    self._norm(k, f"blk.{layer}.attn_k_norm.weight"),
                )
            base = 10000.0 if local else self.base
            q, k = self._rope(q, base, positions), self._rope(k, base, positions)
            mixed = torch.cat(
                [
                    self._attention(q[at : at + length], cache(k[at : at + length], v[at : at + length]), seen)
                    for at in range(0, tokens, length)
                ]
            )
            a = linear("attn_output", rounding("o", layer, mixed))
            h = h + (self._norm(a, f"blk.{layer}.post_attention_norm.weight") if gemma else a)
            x = rounding("gu", layer, self._norm(h, f"blk.{layer}.ffn_norm.weight"))
            gate = linear("ffn_gate", x)
            inner = (functional.gelu(gate, approximate="tanh") if gemma else functional.silu(gate)) * linear(
                "ffn_up", x
            )
            m = linear("ffn_down", rounding("d", layer, inner))
            h = h + (self._norm(m, f"blk.{layer}.post_ffw_norm.weight") if gemma else m)
        return torch.log_softmax(rounding("lm", self.layers, self._norm(h, "output_norm.weight")) @ self.output.T, -1)
