"""The model shapes of every engine, and the minimum cost of a cell: its counted operations and bytes.

The dense shape is TinyLlama's (1.1B). The mixture has Qwen3-MoE's blocks, 3.1B parameters and 0.6B of them per token.
Weights are seeded noise: speed does not depend on their values.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder; with `experts` every feed-forward block has that number, each `inner` wide, `chosen` per token."""

    file: str  # the beginning of its files' names
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int = 32000
    context: int = 4096
    experts: int = 0
    chosen: int = 0

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    def attention_weights(self) -> int:
        """The attention weights of a layer."""
        return self.hidden * (2 * self.heads * self.head_dim + 2 * self.kv_width)

    def router_weights(self) -> int:
        return self.hidden * self.experts

    def expert_weights(self) -> int:
        """The weights of a layer's one gated feed-forward block, or of one expert."""
        return 3 * self.hidden * self.inner

    def token_weights(self) -> int:
        """The weights of a layer that a token is multiplied with."""
        return self.attention_weights() + self.router_weights() + max(1, self.chosen) * self.expert_weights()

    def read_weights(self, tokens: int) -> float:
        """The weights of a layer that a step of `tokens` must read. A mixture's are those of the expected number of
        distinct experts, each equally probable."""
        distinct = self.experts * (1 - (1 - self.chosen / self.experts) ** tokens) if self.experts else 1
        return self.attention_weights() + self.router_weights() + distinct * self.expert_weights()


MODELS = {
    "dense": Shape("tinyllama-shape", 2048, 22, 32, 4, 64, 5632),
    "mixture": Shape("mixture-shape", 2048, 14, 16, 4, 128, 512, experts=64, chosen=8),
}
DENSE = MODELS["dense"]

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


def linear_ops(w: Work, model: Shape = DENSE) -> float:
    return 2.0 * (w.tokens * model.layers * model.token_weights() + w.rows * model.vocab * model.hidden)


def attention_ops(w: Work, model: Shape = DENSE) -> float:
    return 4.0 * w.pairs * model.layers * model.heads * model.head_dim


def bytes_read(w: Work, fmt: str, kv: str = "bf16", model: Shape = DENSE) -> float:
    output = model.vocab * model.hidden if w.rows else 0
    weights = FORMATS[fmt] * (model.layers * model.read_weights(w.tokens) + output)
    return weights + w.kv_tokens * model.layers * 2 * model.kv_width * KV_BYTES[kv]


def arithmetic_s(w: Work, fmt: str, c: Ceilings, model: Shape = DENSE) -> float:
    """Linear operators in the format's own arithmetic; attention in bf16, for any format of weights."""
    return linear_ops(w, model) / c.arithmetic(fmt) + attention_ops(w, model) / c.bf16


def reading_s(w: Work, fmt: str, c: Ceilings, kv: str = "bf16", model: Shape = DENSE) -> float:
    return bytes_read(w, fmt, kv, model) / c.read


def least_s(w: Work, fmt: str, c: Ceilings, kv: str = "bf16", model: Shape = DENSE) -> float:
    """The minimum time of this work: the larger of its arithmetic's and its bytes' time."""
    return max(arithmetic_s(w, fmt, c, model), reading_s(w, fmt, c, kv, model))
