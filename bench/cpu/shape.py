"""The model shape of every engine, and the minimum cost of a cell: its counted operations and bytes.

The shape is TinyLlama's (1.1B). Weights are seeded noise: speed does not depend on their values.
"""

from __future__ import annotations

import dataclasses

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, CONTEXT = 2048, 22, 32, 4, 64, 5632, 32000, 4096
KV_WIDTH = KV_HEADS * HEAD_DIM

# Bytes per weight, in the best case of a format: int8 with negligible scales, int4 with one f16 scale per 64.
FORMATS = {"bf16": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 64}
# The formats' names in each engine.
GGUF_NAMES = {"bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
KV_BYTES = {"bf16": 2.0, "int8": 1.0}  # per element of K and V


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """The machine's speed in this run: operations per second (a multiply-add is two) and bytes read per second."""

    bf16: float
    int8: float
    read: float

    def arithmetic(self, fmt: str) -> float:
        return self.bf16 if fmt == "bf16" else self.int8


def layer_weights() -> int:
    return HIDDEN * (HIDDEN + 2 * KV_WIDTH) + HIDDEN * HIDDEN + 3 * HIDDEN * FFN


@dataclasses.dataclass(frozen=True)
class Work:
    """One step: `tokens` through the layers, `rows` through the output matrix; `pairs` query-key pairs of attention;
    `kv_tokens` contexts whose K and V must be read (each sequence's once)."""

    tokens: int
    rows: int
    pairs: int
    kv_tokens: int

    def __add__(self, other: Work) -> Work:
        return Work(
            self.tokens + other.tokens,
            self.rows + other.rows,
            self.pairs + other.pairs,
            self.kv_tokens + other.kv_tokens,
        )


def prefill(tokens: int) -> Work:
    return Work(tokens, 1, tokens * (tokens + 1) // 2, tokens)


def decode(batch: int, context: int) -> Work:
    return Work(batch, batch, batch * (context + 1), batch * (context + 1))


def linear_ops(w: Work) -> float:
    return 2.0 * (w.tokens * LAYERS * layer_weights() + w.rows * VOCAB * HIDDEN)


def attention_ops(w: Work) -> float:
    return 4.0 * w.pairs * LAYERS * HEADS * HEAD_DIM


def bytes_read(w: Work, fmt: str, kv: str = "bf16") -> float:
    weights = FORMATS[fmt] * (LAYERS * layer_weights() + (VOCAB * HIDDEN if w.rows else 0))
    return weights + w.kv_tokens * LAYERS * 2 * KV_WIDTH * KV_BYTES[kv]


def arithmetic_s(w: Work, fmt: str, c: Ceilings) -> float:
    """Linear operators in the format's own arithmetic; attention in bf16, for any format of weights."""
    return linear_ops(w) / c.arithmetic(fmt) + attention_ops(w) / c.bf16


def reading_s(w: Work, fmt: str, c: Ceilings, kv: str = "bf16") -> float:
    return bytes_read(w, fmt, kv) / c.read


def least_s(w: Work, fmt: str, c: Ceilings, kv: str = "bf16") -> float:
    """The minimum time of this work: the larger of its arithmetic's and its bytes' time."""
    return max(arithmetic_s(w, fmt, c), reading_s(w, fmt, c, kv))
