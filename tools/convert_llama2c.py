#!/usr/bin/env python3
"""Converts a llama2.c checkpoint (version 0, "legacy") and its tokenizer to a Hugging Face folder.

    tools/convert_llama2c.py stories260K.bin tok512.bin OUT_FOLDER

Writes config.json, model.safetensors (F32), tokenizer.model (SentencePiece BPE) and generation_config.json. llama2.c
rotates neighbouring pairs (2i, 2i + 1); transformers rotates halves (i, i + d/2), so the rows of q and k are reordered
within each head. Standard library only.
"""

import json
import pathlib
import struct
import sys

KINDS = [
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.down_proj",
    "mlp.up_proj",
]


class Checkpoint:
    def __init__(self, path):
        self.bytes = path.read_bytes()
        if len(self.bytes) < 28:
            raise SystemExit(f"{path}: {len(self.bytes)} bytes are too few for a llama2.c header of 28")
        header = struct.unpack_from("<7i", self.bytes)
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocab, self.context = header
        self.tied, self.vocab = vocab > 0, abs(vocab)
        if (
            min(self.dim, self.hidden, self.layers, self.heads, self.kv_heads, self.vocab, self.context) < 1
            or self.dim % self.heads
            or self.heads % self.kv_heads
        ):
            raise SystemExit(f"{path}: the header {header} is not one of a llama2.c checkpoint (version 0)")
        self.head_dim = self.dim // self.heads
        self.at, self.path = 28, path

    def take(self, *shape):
        """The next tensor as (shape, bytes)."""
        size = 4
        for dim in shape:
            size *= dim
        if self.at + size > len(self.bytes):
            raise SystemExit(
                f"{self.path}: a tensor {list(shape)} needs {size} bytes at {self.at}, the file has {len(self.bytes)}"
            )
        data = self.bytes[self.at : self.at + size]
        self.at += size
        return list(shape), data


def pairs_to_halves(tensor, heads):
    (rows, cols), data = tensor
    row = [data[i * cols * 4 : (i + 1) * cols * 4] for i in range(rows)]
    d = rows // heads
    order = [h * d + i for h in range(heads) for i in list(range(0, d, 2)) + list(range(1, d, 2))]
    return [rows, cols], b"".join(row[i] for i in order)


def read_tensors(c):
    kv_dim = c.kv_heads * c.head_dim
    shapes = {
        "input_layernorm": (c.dim,),
        "self_attn.q_proj": (c.dim, c.dim),
        "self_attn.k_proj": (kv_dim, c.dim),
        "self_attn.v_proj": (kv_dim, c.dim),
        "self_attn.o_proj": (c.dim, c.dim),
        "post_attention_layernorm": (c.dim,),
        "mlp.gate_proj": (c.hidden, c.dim),
        "mlp.down_proj": (c.dim, c.hidden),
        "mlp.up_proj": (c.hidden, c.dim),
    }
    tensors = {"model.embed_tokens.weight": c.take(c.vocab, c.dim)}
    for kind in KINDS:  # all layers of one kind, then the next kind
        for layer in range(c.layers):
            tensor = c.take(*shapes[kind])
            if kind.endswith(("q_proj", "k_proj")):
                tensor = pairs_to_halves(tensor, c.heads if kind.endswith("q_proj") else c.kv_heads)
            tensors[f"model.layers.{layer}.{kind}.weight"] = tensor
    tensors["model.norm.weight"] = c.take(c.dim)
    c.take(2, c.context, c.head_dim // 2)  # cosines and sines are recomputed
    if not c.tied:
        tensors["lm_head.weight"] = c.take(c.vocab, c.dim)
    return tensors


def write_safetensors(tensors, path):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            out.write(data)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    """One protobuf field: int (varint), float (32 bits) or bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece_model(tokenizer_path, vocab):
    """llama2.c's tokenizer.bin as a SentencePiece ModelProto (fields of sentencepiece_model.proto)."""
    data, at, pieces = tokenizer_path.read_bytes(), 4, b""
    for token in range(vocab):
        if at + 8 > len(data):
            raise SystemExit(f"{tokenizer_path}: ends at token {token} of {vocab}")
        score, length = struct.unpack_from("<fi", data, at)
        text = data[at + 8 : at + 8 + length]
        at += 8 + length
        kind = 1  # normal
        if token < 3:
            text, kind = (b"<unk>", b"<s>", b"</s>")[token], 2 if token == 0 else 3
        elif len(text) == 6 and text.startswith(b"<0x") and text.endswith(b">"):
            kind = 6  # byte
        else:
            text = text.replace(b" ", "\u2581".encode())
        pieces += field(1, field(1, text) + field(2, score) + field(3, kind))
    trainer = field(3, 2) + field(4, vocab) + field(35, 1) + field(40, 0) + field(41, 1) + field(42, 2)
    normalizer = field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1)
    return pieces + field(2, trainer) + field(3, normalizer)


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    checkpoint = Checkpoint(pathlib.Path(sys.argv[1]))
    out = pathlib.Path(sys.argv[3])
    tensors = read_tensors(checkpoint)
    tokenizer = sentencepiece_model(pathlib.Path(sys.argv[2]), checkpoint.vocab)
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(tensors, out / "model.safetensors")
    (out / "tokenizer.model").write_bytes(tokenizer)
    (out / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "torch_dtype": "float32",
                "hidden_act": "silu",
                "hidden_size": checkpoint.dim,
                "intermediate_size": checkpoint.hidden,
                "num_hidden_layers": checkpoint.layers,
                "num_attention_heads": checkpoint.heads,
                "num_key_value_heads": checkpoint.kv_heads,
                "vocab_size": checkpoint.vocab,
                "max_position_embeddings": checkpoint.context,
                "rms_norm_eps": 1e-5,
                "rope_theta": 10000.0,
                "tie_word_embeddings": checkpoint.tied,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            indent=2,
        )
        + "\n"
    )
    # llama2.c ends a text at BOS as well, because its training texts were concatenated.
    (out / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [1, 2]}) + "\n")


if __name__ == "__main__":
    main()
