#!/usr/bin/env python3
"""Makes a tiny random model of each family beyond Llama's, with golden outputs, under tests/golden/data.

Only for regenerating them: the output is committed. Needs torch, transformers, safetensors and tokenizers.

    tools/make_family_models.py OUT              all families
    tools/make_family_models.py OUT gemma2 opt   some of them

The reference is transformers' implementation in float32 with eager attention. config.json is what transformers writes.
"""

import argparse
import pathlib

import torch
from make_tiny_models import fresh, with_clear_choices, write_golden
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

# The shape under the names that most families use.
SHAPE = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
SLIDING, FULL = "sliding_attention", "full_attention"
NAMED_OTHERWISE = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, vocab_size=128)

# name -> (model type, differences from SHAPE); "only" in place of SHAPE.
FAMILIES = {
    "gemma": ("gemma", dict(head_dim=16)),
    "gemma2": ("gemma2", dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=16)),
    "gemma3": (
        "gemma3_text",
        dict(head_dim=16, num_hidden_layers=3, layer_types=[SLIDING, FULL, SLIDING], sliding_window=12),
    ),
    "granite": (
        "granite",
        dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=0.5),
    ),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0])),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", dict(sliding_window=16, layer_types=[SLIDING, FULL])),
    "phi3": ("phi3", dict(sliding_window=20)),
    "phi4-mini": ("phi3", dict(partial_rotary_factor=0.5, tie_word_embeddings=True)),
    "cohere": ("cohere", dict(logit_scale=0.5)),
    "stablelm": ("stablelm", dict(use_qkv_bias=True)),
    "stablelm-parallel": ("stablelm", dict(use_parallel_residual=True, partial_rotary_factor=0.5)),
    "starcoder2": ("starcoder2", dict(sliding_window=16)),
    "seed-oss": ("seed_oss", dict(head_dim=16)),
    "exaone4": (
        "exaone4",
        dict(sliding_window=16, sliding_window_pattern=2, layer_types=[SLIDING, FULL], head_dim=8),
    ),
    "glm4": ("glm4", dict(head_dim=16, attention_bias=True)),
    "gpt-neox": ("gpt_neox", dict(rotary_pct=0.5)),
    "pythia-serial": ("gpt_neox", dict(use_parallel_residual=False)),
    "falcon-7b": ("falcon", dict(num_kv_heads=1)),
    "falcon-40b": ("falcon", dict(num_kv_heads=2, new_decoder_architecture=True)),
    "falcon-rw": ("falcon", dict(alibi=True, multi_query=False, parallel_attn=False, bias=True)),
    "bloom": (
        "bloom",
        dict(only=dict(NAMED_OTHERWISE, hidden_size=32, n_layer=2, n_head=4, tie_word_embeddings=False)),
    ),
    "opt": ("opt", dict(ffn_dim=64, word_embed_proj_dim=32)),
    "gpt2": ("gpt2", dict(only=dict(NAMED_OTHERWISE, n_embd=32, n_layer=2, n_head=4, n_positions=256))),
}
STORED_AROUND_ZERO = ("gemma",)  # norm weights are w - 1


def randomize(model, seed):
    """Weights for which every part matters, as make_tiny_models.randomize, for any names."""
    kind = model.config.model_type
    embedding_gain = 0.25 if model.config.tie_word_embeddings else 0.7
    if kind.startswith(STORED_AROUND_ZERO):
        embedding_gain /= model.config.hidden_size**0.5  # the model multiplies by it
    embedding_gain /= getattr(model.config, "embedding_multiplier", 1.0)
    generator = torch.Generator().manual_seed(seed)
    transposed = {id(m.weight) for m in model.modules() if type(m).__name__ == "Conv1D"}
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("bias"):
                p.copy_(0.3 * noise)
            elif p.dim() == 1:
                p.copy_((0.0 if kind.startswith(STORED_AROUND_ZERO) else 1.0) + 0.2 * noise)
            elif id(p) in embeddings:
                p.copy_(embedding_gain * noise)
            else:
                gain = 1.6 if any(part in name for part in ("q_proj", "k_proj", "qkv", "query_key", "c_attn")) else 1.0
                p.copy_(noise * gain / p.shape[0 if id(p) in transposed else 1] ** 0.5)


def make(name, seed, root):
    kind, changes = FAMILIES[name]
    out = root / name
    fresh(out)
    values = changes["only"] if "only" in changes else {**SHAPE, **changes}
    config = AutoConfig.for_model(kind, **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, seed)
    model = model.to(torch.bfloat16)
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    return write_golden(model, out, f"transformers {type(model).__name__}, float32, eager")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="families; default: all")
    args = parser.parse_args()
    logging.disable_progress_bar()
    for name in args.names or FAMILIES:
        with_clear_choices(lambda seed, name=name: make(name, seed, args.out), 1)
        print(name, flush=True)


if __name__ == "__main__":
    main()
