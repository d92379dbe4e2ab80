"""A model of transformers as a GGUF file, with tensors and metadata as llama.cpp's converter writes them.

For make_family_models.py; the models are tiny.
"""

import pathlib
import re
import tempfile

import numpy as np
import torch
from make_tiny_models import permute_qk
from safetensors.torch import load_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SLIDING, FULL = "sliding_attention", "full_attention"
STORED_AROUND_ZERO_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text")  # norm weights are w - 1
PAIRED_ROPE = (
    "granite",
    "smollm3",
    "ministral3",
    "mistral",
    "mixtral",
    "granitemoeshared",
)  # q and k rows permuted for pairs


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


MIXTURES = (
    "qwen3_moe qwen2_moe mixtral olmoe gpt_oss glm4_moe dots1 ernie4_5_moe granitemoeshared hunyuan_v1_moe llama4_text "
    "minimax_m2 phimoe".split()
)


GEMMA4_EXPERTS = {
    ".experts.gate_up_proj": "ffn_gate_up_exps.weight",
    ".experts.down_proj": "ffn_down_exps.weight",
    ".router.scale": "ffn_gate_inp.scale",
    ".router.per_expert_scale": "ffn_down_exps.scale",
}


def saved_tensors(model):
    """The model's tensors under the names of its files: each expert by itself, where files have it so."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def stacked_experts(kind, state):
    """The tensors with those of all experts of a layer as one, under the GGUF name, as llama.cpp's converter has it."""
    parts = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
    out, experts = {}, {}
    for name, value in state.items():
        layer = name.split(".")[2] if ".layers." in name else ""
        one = re.search(r"\.experts\.(\d+)\.(\w+)\.weight$", name)
        if one:
            experts.setdefault(f"blk.{layer}.ffn_{parts[one[2]]}_exps.weight", {})[int(one[1])] = value
        elif kind == "gemma4_text" and name.endswith(tuple(GEMMA4_EXPERTS)):
            ends = [new for end, new in GEMMA4_EXPERTS.items() if name.endswith(end)]
            out[f"blk.{layer}.{ends[0]}"] = value
        elif "altup_projections." in name or "altup_unembed_projections." in name:
            part = "proj" if "altup_projections" in name else "unembd_proj"
            experts.setdefault(f"altup_{part}.weight", {})[int(name.split(".")[-2])] = value
        elif ".experts.gate_up_proj" in name:  # [experts, hidden, gate then up, or in gpt-oss alternating]
            end = ".bias" if name.endswith("bias") else ".weight"
            alternate = (value[..., ::2], value[..., 1::2])
            for part, half in zip(("gate", "up"), alternate if kind == "gpt_oss" else value.chunk(2, dim=-1)):
                out[f"blk.{layer}.ffn_{part}_exps{end}"] = half if end == ".bias" else half.transpose(1, 2)
        elif ".experts.down_proj" in name:
            bias = name.endswith("bias")
            out[f"blk.{layer}.ffn_down_exps{'.bias' if bias else '.weight'}"] = value if bias else value.transpose(1, 2)
        elif name.endswith("input_linear.weight"):  # Granite: gate, then up
            end = "exps" if "block_sparse" in name else "shexp"
            gate, up = value.chunk(2, dim=-2)
            out[f"blk.{layer}.ffn_gate_{end}.weight"], out[f"blk.{layer}.ffn_up_{end}.weight"] = gate, up
        elif name.endswith("output_linear.weight"):
            out[f"blk.{layer}.ffn_down_{'exps' if 'block_sparse' in name else 'shexp'}.weight"] = value
        elif name.endswith("e_score_correction_bias"):
            out[f"blk.{layer}.exp_probs_b.bias"] = value.reshape(-1)
        else:
            out[name] = value
    for name, stack in experts.items():
        out[name] = torch.stack([stack[i] for i in range(len(stack))])
    return out


# Types for which tokens are rounded differently, by the end of the name; others are bf16.
MIXED = {"ffn_gate_exps.weight": "Q8_0", "ffn_up_exps.weight": "F16", "ffn_down_exps.weight": "Q4_1"}


def type_of(name, mixed):
    import gguf

    ends = [MIXED[end] for end in MIXED if mixed and name.endswith(end)]
    return gguf.GGMLQuantizationType[ends[0] if ends else "BF16"]


def round_experts(model):
    """The experts' matrices as their types in MIXED hold them."""
    import gguf

    def rounded(w, kind):
        kind = gguf.GGMLQuantizationType[kind]
        return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(w.numpy(), kind), kind))

    for name, p in model.named_parameters():
        if name.endswith("experts.gate_up_proj"):
            half = p.shape[1] // 2
            p[:, :half] = rounded(p[:, :half].contiguous(), "Q8_0")
            p[:, half:] = rounded(p[:, half:].contiguous(), "F16")
        elif name.endswith("experts.down_proj"):
            p.copy_(rounded(p.contiguous(), "Q4_1"))


def write_experts(writer, kind, config):
    import gguf

    def first(*keys):
        return next((getattr(config, key) for key in keys if getattr(config, key, None) is not None), None)

    inner = first("moe_intermediate_size", "intermediate_size")
    writer.add_expert_count(first("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"))
    writer.add_expert_used_count(first("num_experts_per_tok", "moe_k", "top_k_experts"))
    writer.add_expert_feed_forward_length(inner)
    if kind in ("glm4_moe", "dots1", "minimax_m2"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if kind in ("glm4_moe", "dots1"):
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_shared_count(config.n_shared_experts)
    if kind == "hunyuan_v1_moe":
        writer.add_expert_shared_feed_forward_length(inner)
    if kind == "llama4_text":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    if kind == "ernie4_5_moe":
        writer.add_leading_dense_block_count(config.moe_layer_start_index)
        writer.add_expert_shared_count(config.moe_num_shared_experts)
    shared = first("shared_expert_intermediate_size", "shared_intermediate_size")
    if shared:
        writer.add_expert_shared_feed_forward_length(shared)


def add_gemma4(writer, config):
    layers = range(config.num_hidden_layers)
    own = [config.per_layer_config[i] for i in layers]
    first_shared = config.num_hidden_layers - config.num_kv_shared_layers
    wide = [2 if config.use_double_wide_mlp and i >= first_shared else 1 for i in layers]
    size = own[-1].head_dim  # the last layer has no window
    writer.add_feed_forward_length([config.intermediate_size * w for w in wide])
    writer.add_head_count_kv([o.num_key_value_heads for o in own])
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_key_length_swa(own[0].head_dim)
    writer.add_value_length_swa(own[0].head_dim)
    writer.add_rope_dimension_count(size)
    writer.add_rope_dimension_count_swa(own[0].head_dim)
    writer.add_rope_freq_base_swa(config.rope_parameters[SLIDING]["rope_theta"])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(getattr(config, "hidden_size_per_layer_input", 0))
    writer.add_sliding_window_pattern([t == SLIDING for t in config.layer_types])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    turning = int(size * config.rope_parameters[FULL]["partial_rotary_factor"]) // 2
    factors = [1.0] * turning + [1e30] * (size // 2 - turning)
    writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))


def add_gemma3n(writer, config):
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_altup_active_idx(config.altup_active_idx)
    writer.add_altup_num_inputs(config.altup_num_inputs)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_sliding_window_pattern([t == SLIDING for t in config.layer_types])
    normal = torch.distributions.normal.Normal(0, 1)
    writer.add_activation_sparsity_scale(
        [normal.icdf(torch.tensor(s)).item() for s in config.activation_sparsity_pattern]
    )


def write_gguf(arch, kind, config, state, path, mixed=False):
    import gguf

    heads = config.num_attention_heads
    hidden = config.hidden_size
    layer = config.per_layer_config[0] if kind.startswith("gemma4") else config
    kv_heads = getattr(layer, "num_kv_heads", None) or getattr(layer, "num_key_value_heads", None) or heads
    head_dim = getattr(layer, "head_dim", None) or hidden // heads
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    if kind in ("falcon", "bloom", "gpt2"):
        inner = 4 * hidden
    if kind == "llama4_text":
        inner = config.intermediate_size_mlp
    rope = getattr(config, "rope_parameters", None) or {}
    full = rope.get(FULL, rope)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_block_count(config.num_hidden_layers)
    if not kind.startswith("gemma4") and kind != "gemma3n_text":
        writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    base = full.get("rope_theta", 10000.0)
    if kind in ("hunyuan_v1_dense", "hunyuan_v1_moe"):
        base *= full["alpha"] ** (head_dim / (head_dim - 2))
    writer.add_rope_freq_base(base)
    if kind.startswith("gemma4"):
        add_gemma4(writer, config)
    else:
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_rope_dimension_count(int(head_dim * full.get("partial_rotary_factor", 1.0)))
    if full.get("rope_type") == "longrope":
        original = full["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        growth = np.log(config.max_position_embeddings / original) / np.log(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1.0 + growth)))
        for key in ("short", "long"):
            writer.add_tensor(f"rope_factors_{key}.weight", np.array(full[f"{key}_factor"], dtype=np.float32))
    if full.get("rope_type") == "llama3":
        plain = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / ROPE_INIT_FUNCTIONS["llama3"](config)[0]).float().numpy())
    if kind == "llama4_text":  # llama.cpp's converter states none of these, but only whether there are chunks
        writer.add_sliding_window(config.attention_chunk_size)
        writer.add_attn_temperature_length(config.floor_scale)
        writer.add_attn_temperature_scale(config.attn_scale)
    if kind == "ministral3":
        writer.add_rope_scaling_yarn_beta_fast(full["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(full["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(full["mscale_all_dim"])
        writer.add_attn_temperature_scale(full["llama_4_scaling_beta"])
    for key in ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"):
        if getattr(config, key, None) is not None:
            writer.add_layer_norm_eps(getattr(config, key))
    if getattr(config, "rms_norm_eps", None) is not None:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        if kind == "phimoe":
            writer.add_layer_norm_eps(config.rms_norm_eps)
    if kind in MIXTURES or getattr(config, "enable_moe_block", False):
        write_experts(writer, kind, config)
    if full.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(full["factor"])
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
    window = getattr(config, "sliding_window", None)
    if window is not None and SLIDING in (getattr(config, "layer_types", None) or [SLIDING]):
        writer.add_sliding_window(window)
    if kind == "gemma3n_text":
        add_gemma3n(writer, config)
    if kind == "gemma3_text":
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind in ("granite", "granitemoe", "granitemoeshared"):
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
    for hf_name, value in sorted(stacked_experts(kind, state).items()):
        if config.tie_word_embeddings and hf_name in ("lm_head.weight", "embed_out.weight"):
            continue
        name = (
            hf_name
            if hf_name.startswith(("blk.", "altup_"))
            else names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        )
        name = name or names.get_name(hf_name.removeprefix("transformer."), try_suffixes=(".weight", ".bias"))
        if not name.endswith((".weight", ".bias", ".scale")):
            name += ".weight"  # attention sinks, a layer's scale
        w = gguf_tensor(kind, config, hf_name, value.float().numpy())
        if w.ndim == 1 or name.endswith(("bias", "_inp.weight", "_inp_shexp.weight")):
            writer.add_tensor(name, w.astype(np.float32))
        else:
            kind_of = type_of(name, mixed)
            raw = gguf.quants.quantize(np.ascontiguousarray(w), kind_of)
            if mixed:
                assert np.array_equal(gguf.quants.dequantize(raw, kind_of), w), name  # rounded before
            writer.add_tensor(name, raw, raw_dtype=kind_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
