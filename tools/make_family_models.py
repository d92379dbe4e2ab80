#!/usr/bin/env python3
"""Makes a tiny random model of each family beyond Llama's, with golden outputs, under tests/golden/data.

Only for regenerating them: the output is committed. Needs torch, transformers, safetensors, tokenizers and gguf.

    tools/make_family_models.py OUT              all families
    tools/make_family_models.py OUT gemma2 opt   some of them

The reference is transformers' implementation in float32 with eager attention. config.json is what transformers writes.
"""

import argparse
import pathlib

import numpy as np
import torch
from make_tiny_models import fresh, permute_qk, with_clear_choices, write_golden
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
STORED_AROUND_ZERO_TYPES = ("gemma", "gemma2", "gemma3_text")


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
    # Eager attention of transformers 5.24 adds Falcon's ALiBi twice.
    attention = "sdpa" if values.get("alibi") else "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    randomize(model, seed)
    model = model.to(torch.bfloat16)
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation=attention).eval()
    return write_golden(model, out, f"transformers {type(model).__name__}, float32, {attention}")


# name -> (family, GGUF architecture, further differences, so that the shape is one that GGUF files can state)
GGUF = {
    "gguf-gemma": ("gemma", "gemma", {}),
    "gguf-gemma2": ("gemma2", "gemma2", dict(query_pre_attn_scalar=16)),
    "gguf-gemma3": ("gemma3", "gemma3", dict(query_pre_attn_scalar=16, layer_types=[SLIDING, FULL, SLIDING])),
    "gguf-granite": ("granite", "granite", {}),
    "gguf-smollm3": ("smollm3", "smollm3", dict(num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0])),
    "gguf-olmo2": ("olmo2", "olmo2", {}),
    "gguf-olmo3": (
        "olmo3",
        "olmo2",
        dict(num_hidden_layers=4, layer_types=[SLIDING, SLIDING, SLIDING, FULL]),
    ),
    "gguf-phi3": ("phi3", "phi3", {}),
    "gguf-command-r": ("cohere", "command-r", {}),
    "gguf-stablelm": ("stablelm", "stablelm", {}),
    "gguf-starcoder2": ("starcoder2", "starcoder2", dict(sliding_window=None)),
    "gguf-seed-oss": ("seed-oss", "seed_oss", {}),
    "gguf-exaone4": (
        "exaone4",
        "exaone4",
        dict(
            num_hidden_layers=4,
            sliding_window_pattern=4,
            layer_types=[SLIDING, SLIDING, SLIDING, FULL],
        ),
    ),
    "gguf-glm4": ("glm4", "glm4", {}),
    "gguf-gptneox": ("gpt-neox", "gptneox", {}),
    "gguf-falcon-7b": ("falcon-7b", "falcon", {}),
    "gguf-falcon-40b": ("falcon-40b", "falcon", {}),
    "gguf-bloom": ("bloom", "bloom", {}),
    "gguf-gpt2": ("gpt2", "gpt2", {}),
}
PAIRED_ROPE = ("granite", "smollm3")  # q and k rows permuted for pairs


def gguf_tensor(kind, config, name, w):
    """A tensor as llama.cpp's converter stores it."""
    heads = config.num_attention_heads
    if kind in STORED_AROUND_ZERO_TYPES and name.endswith("norm.weight"):
        return w + 1.0
    if kind in PAIRED_ROPE and ("q_proj" in name or "k_proj" in name):
        return permute_qk(w, heads if "q_proj" in name else config.num_key_value_heads)
    if "query_key_value" in name:  # head by head to q, k, v
        groups = heads if kind != "falcon" else config.num_kv_heads
        size = config.hidden_size // heads
        parts = w.reshape(groups, -1, size, *w.shape[1:])
        q = parts.shape[1] - 2
        return np.concatenate([p.reshape(-1, *w.shape[1:]) for p in (parts[:, :q], parts[:, q], parts[:, q + 1])])
    if kind == "gpt2" and w.ndim == 2 and ".h." in name:
        return np.ascontiguousarray(w.T)
    return w


def write_gguf(arch, kind, config, state, path):
    import gguf

    heads = config.num_attention_heads
    hidden = config.hidden_size
    kv_heads = getattr(config, "num_kv_heads", None) or getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    if kind in ("falcon", "bloom", "gpt2"):
        inner = 4 * hidden
    rope = getattr(config, "rope_parameters", None) or {}
    full = rope.get(FULL, rope)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * full.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(full.get("rope_theta", 10000.0))
    for key in ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"):
        if getattr(config, key, None) is not None:
            writer.add_layer_norm_eps(getattr(config, key))
    if getattr(config, "rms_norm_eps", None) is not None:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    window = getattr(config, "sliding_window", None)
    if window is not None and SLIDING in (getattr(config, "layer_types", None) or [SLIDING]):
        writer.add_sliding_window(window)
    if kind == "gemma3_text":
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if kind == "cohere":
        writer.add_logit_scale(config.logit_scale)
    if hasattr(config, "use_parallel_residual"):
        writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    archs = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(archs[arch], config.num_hidden_layers)
    for hf_name, value in sorted(state.items()):
        if config.tie_word_embeddings and hf_name in ("lm_head.weight", "embed_out.weight"):
            continue
        name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        w = gguf_tensor(kind, config, hf_name, value.float().numpy())
        if w.ndim == 1:
            writer.add_tensor(name, w.astype(np.float32))
        else:
            raw = gguf.quants.quantize(np.ascontiguousarray(w), gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_gguf(name, seed, root):
    family, arch, more = GGUF[name]
    kind, changes = FAMILIES[family]
    out = root / name
    fresh(out)
    values = changes["only"] if "only" in changes else {**SHAPE, **changes, **more}
    config = AutoConfig.for_model(kind, **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    write_gguf(arch, kind, model.config, model.state_dict(), out / "model.gguf")
    return write_golden(model, out, f"transformers {type(model).__name__}, float32, eager")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="families; default: all")
    args = parser.parse_args()
    logging.disable_progress_bar()
    for name in args.names or [*FAMILIES, *GGUF]:
        one = make if name in FAMILIES else make_gguf
        with_clear_choices(lambda seed, name=name, one=one: one(name, seed, args.out), 1)
        print(name, flush=True)


if __name__ == "__main__":
    main()
