#!/usr/bin/env python3
"""Makes the tiny random models and golden outputs under tests/golden/data.

Only for regenerating them: the output is committed. Needs torch, transformers, safetensors, tokenizers and gguf.

    tools/make_tiny_models.py OUT                      all tiny models
    tools/make_tiny_models.py OUT llama-gqa gguf-q4_k  some of them
    tools/make_tiny_models.py OUT --default FILE.gguf  only the goldens of the default model, out of its GGUF file
    tools/make_tiny_models.py OUT --gemma3 FILE.gguf   only those of Gemma 3 270M (scripts/get_gemma3.sh)

The reference is transformers' own implementation in float32 with eager attention. tests/golden/data/README.md describes
the files.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

PROMPT_TOKENS = 48
GREEDY_TOKENS = 24
MIN_MARGIN = 0.01  # seeds are tried until every greedy choice has this margin, so that a test can require equal tokens
LOGIT_STRIDE = 4
SHAPE = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    initializer_range=0.02,
)


def rope(kind, theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


LLAMA3_ROPE = rope(
    "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
)

# name -> (config class, differences from SHAPE, storage dtype, shards)
HF_MODELS = {
    "llama-mha": (LlamaConfig, dict(num_key_value_heads=4), "bf16", 1),
    "llama-gqa": (LlamaConfig, dict(vocab_size=320, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True), "f32", 1),
    "llama-gqa-bf16": (LlamaConfig, dict(rope_parameters=LLAMA3_ROPE), "bf16", 1),
    "llama-gqa-f16": (LlamaConfig, dict(rope_parameters=LLAMA3_ROPE), "f16", 1),
    "llama-sharded": (LlamaConfig, dict(), "bf16", 3),
    "llama-bias": (LlamaConfig, dict(attention_bias=True, mlp_bias=True), "bf16", 1),
    "llama-mqa-linear": (
        LlamaConfig,
        dict(num_key_value_heads=1, rope_parameters=rope("linear", factor=4.0)),
        "bf16",
        1,
    ),
    "llama-dynamic": (
        LlamaConfig,
        dict(max_position_embeddings=32, rope_parameters=rope("dynamic", factor=4.0)),
        "bf16",
        1,
    ),
    "mistral-window": (MistralConfig, dict(sliding_window=16), "bf16", 1),
    "qwen2": (Qwen2Config, dict(tie_word_embeddings=True, rope_parameters=rope("default", 1000000.0)), "bf16", 1),
    "qwen2-window": (Qwen2Config, dict(use_sliding_window=True, sliding_window=12, max_window_layers=1), "bf16", 1),
    "qwen3": (Qwen3Config, dict(head_dim=16, rope_parameters=rope("default", 1000000.0), rms_norm_eps=1e-6), "bf16", 1),
    "yi": (
        LlamaConfig,
        dict(rope_parameters=rope("default", 5000000.0), num_attention_heads=8, num_key_value_heads=1),
        "bf16",
        1,
    ),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def randomize(model, seed):
    """Weights for which every part matters: spread logits, attention that is neither flat nor one-hot."""
    # tied and large, the model would only repeat its input
    embedding_gain = 0.25 if model.config.tie_word_embeddings else 0.7
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("norm.weight") or "layernorm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                p.copy_(0.3 * noise)
            elif "embed_tokens" in name:
                p.copy_(embedding_gain * noise)
            else:
                gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
                p.copy_(noise * gain / p.shape[1] ** 0.5)


def prompt_ids(vocab, count, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    return [1] + torch.randint(3, vocab, (count - 1,), generator=generator).tolist()


def run_case(model, name, prompt, max_model_len, greedy_count, out, top=None):
    """Logits of the prompt and a greedy continuation; returns the entry of golden.json."""
    with torch.no_grad():
        if (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") == "dynamic":
            # One pass over max_model_len tokens fixes the RoPE base that Tactus uses for all of them.
            model(torch.ones((1, max_model_len), dtype=torch.long))
        ids = torch.tensor([prompt])
        result = model(ids, use_cache=True)
        logits = result.logits[0].float().numpy()
        greedy, margins = [], []
        last, cache = logits[-1], result.past_key_values
        for _ in range(greedy_count):
            order = np.argsort(-last, kind="stable")
            greedy.append(int(order[0]))
            margins.append(round(float(last[order[0]] - last[order[1]]), 6))
            step = model(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True)
            last, cache = step.logits[0, -1].float().numpy(), step.past_key_values
    case = {"name": name, "max_model_len": max_model_len, "prompt": prompt, "greedy": greedy, "greedy_margin": margins}
    if top is None:
        positions = sorted(set(range(0, len(prompt), LOGIT_STRIDE)) | {len(prompt) - 1})
        file = f"{name}.logits.f32"
        logits[positions].astype("<f4").tofile(out / file)
        case.update(logits_file=file, logit_positions=positions)
    else:
        order = np.argsort(-logits[-1], kind="stable")[:top]
        case["top_logits"] = [[int(i), round(float(logits[-1][i]), 5)] for i in order]
    return case


def write_golden(model, out, note):
    vocab = model.config.get_text_config().vocab_size
    total = PROMPT_TOKENS + GREEDY_TOKENS
    cases = [run_case(model, "full", prompt_ids(vocab, PROMPT_TOKENS, 0), total, GREEDY_TOKENS, out)]
    if (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope"):
        cases.append(run_case(model, "short", prompt_ids(vocab, 20, 1), 32, 12, out))
    golden = {"vocab_size": vocab, "reference": note, "cases": cases}
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
    return min(min(case["greedy_margin"]) for case in cases) >= MIN_MARGIN and len(set(cases[0]["greedy"])) > 4


def with_clear_choices(make, first_seed):
    seed = first_seed
    while not make(seed):
        seed += 1000


def fresh(out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def config_json(config, storage):
    """config.json in the form of most published models; two models keep the newer form."""
    values = config.to_dict()
    keep = [
        "model_type",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "max_position_embeddings",
        "rms_norm_eps",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "use_sliding_window",
        "sliding_window",
        "max_window_layers",
    ]
    result = {k: values[k] for k in keep if k in values}
    result["architectures"] = [values["architectures"][0]]
    result["torch_dtype"] = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[storage]
    if config.model_type == "qwen2" and values["use_sliding_window"]:
        result["sliding_window"] = config.sliding_window
    return result


def spell_rope(result, parameters, name):
    parameters = dict(parameters)
    if name in ("llama-gqa-bf16", "yi"):
        result["rope_parameters"] = parameters
        return
    result["rope_theta"] = parameters.pop("rope_theta", 10000.0)
    kind = parameters.pop("rope_type")
    if kind != "default":
        parameters["type" if name == "llama-mqa-linear" else "rope_type"] = kind
        result["rope_scaling"] = parameters


def save_hf(model, name, storage, shards, out):
    state = {k: v.detach().to(DTYPES[storage]).contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    if shards == 1:
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    else:
        names = sorted(state)
        weight_map = {}
        for i in range(shards):
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            part = {k: state[k] for k in names[i::shards]}
            save_file(part, out / file, metadata={"format": "pt"})
            weight_map.update({k: file for k in part})
        size = sum(v.numel() * v.element_size() for v in state.values())
        (out / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}, indent=1) + "\n"
        )
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    config = config_json(model.config, storage)
    spell_rope(config, model.config.rope_parameters, name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return state


TOKENIZER_TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France? Paris is the capital.",
    "Hello there, how are you today? I am fine, thank you.",
    "user assistant system message question answer",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tokenizer(vocab, out):
    """A byte-level BPE of exactly `vocab` tokens, so that the model can be served in tests."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=1,
        special_tokens=specials,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TOKENIZER_TEXT, trainer)
    assert tokenizer.get_vocab_size() == vocab, tokenizer.get_vocab_size()
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<|im_start|>",
                "eos_token": "<|im_end|>",
                "chat_template": CHAT_TEMPLATE,
            },
            indent=2,
        )
        + "\n"
    )
    (out / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": [2, 0], "temperature": 0.7, "top_p": 0.9}, indent=2) + "\n"
    )


def make_hf(name, seed, root):
    config_class, changes, storage, shards = HF_MODELS[name]
    out = root / name
    fresh(out)
    config = config_class(**{**SHAPE, **changes})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    config.architectures = [type(model).__name__]
    model.config.architectures = config.architectures
    randomize(model, seed)
    state = save_hf(model, name, storage, shards, out)
    model.load_state_dict({**model.state_dict(), **{k: v.float() for k, v in state.items()}})  # the rounded values
    model.tie_weights()
    if name == "llama-gqa":
        save_tokenizer(config.vocab_size, out)
    return write_golden(model, out, f"transformers {type(model).__name__}, float32, eager")


# ---- GGUF ----------------------------------------------------------------------------------------------------------


def permute_qk(w, heads):
    """transformers' halves (i, i + d/2) to GGUF Llama's pairs (2i, 2i + 1), by rows."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def unpermute_qk(w, heads):
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


K_BLOCK_BYTES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}


def random_k_blocks(kind, rows, cols, generator):
    """Random but valid blocks: any bits are valid except the f16 scales, which give values a spread of 1/16."""
    blocks = generator.integers(0, 256, size=(rows, cols // 256, K_BLOCK_BYTES[kind]), dtype=np.uint8)
    d = generator.uniform(0.5, 1.5, size=blocks.shape[:2])
    if kind == "Q6_K":  # d * int8 scale * (q - 32)
        blocks[..., 208:210] = (d / 16 / (74 * 18)).astype("<f2")[..., None].view(np.uint8)
    else:  # d * scale * q - dmin * min; 6-bit scales and mins, q of 4 or 5 bits
        largest = 15 if kind == "Q4_K" else 31
        blocks[..., 0:2] = (d / 16 / (36 * largest / 3)).astype("<f2")[..., None].view(np.uint8)
        blocks[..., 2:4] = (d / 16 / (36 * 2 / 3)).astype("<f2")[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


GGUF_MODELS = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "mixed"]
# mixed: every format in one file, as in Q4_K_M files.
MIXED = ["Q4_K", "Q6_K", "Q5_K", "Q8_0", "F16", "Q4_0", "BF16", "Q5_1", "Q4_1", "Q5_0"]


def make_gguf(kind, seed, root):
    import gguf
    from gguf import quants

    out = root / f"gguf-{kind}"
    fresh(out)
    k_quant = kind in ("q4_k", "q5_k", "q6_k", "mixed")
    config = LlamaConfig(
        **{
            **SHAPE,
            **(
                dict(
                    hidden_size=256,
                    intermediate_size=32,
                    num_attention_heads=2,
                    num_key_value_heads=1,
                    head_dim=16,
                    num_hidden_layers=2 if kind == "mixed" else 1,
                    vocab_size=96,
                )
                if k_quant
                else {}
            ),
        }
    )
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, seed)
    generator = np.random.Generator(np.random.PCG64(seed))
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads

    writer = gguf.GGUFWriter(out / "model.gguf", "llama")
    writer.add_name(f"tiny {kind}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    factors = None
    if kind == "f16":  # one file with the llama3 frequency factors
        factors = np.linspace(1.0, 4.0, config.head_dim // 2, dtype=np.float32)
        writer.add_tensor("rope_freqs.weight", factors)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    state, matrices = {}, 0
    for hf_name, value in sorted(model.state_dict().items()):
        name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        w = value.numpy()
        if w.ndim == 1:
            writer.add_tensor(name, w.astype(np.float32))
            state[hf_name] = w
            continue
        permuted_heads = heads if "q_proj" in hf_name else kv_heads if "k_proj" in hf_name else 0
        if permuted_heads:
            w = permute_qk(w, permuted_heads)
        want = MIXED[matrices % len(MIXED)] if kind == "mixed" else kind.upper()
        matrices += 1
        if want in K_BLOCK_BYTES and w.shape[1] % 256 != 0:
            want = "Q8_0"
        qtype = gguf.GGMLQuantizationType[want]
        if want in K_BLOCK_BYTES:
            raw = random_k_blocks(want, *w.shape, generator)
        else:
            raw = quants.quantize(np.ascontiguousarray(w), qtype)
        back = quants.dequantize(raw, qtype).reshape(w.shape).astype(np.float32)
        assert np.isfinite(back).all() and 0.01 < back.std() < 3, (kind, hf_name, want, back.std())
        writer.add_tensor(name, raw, raw_dtype=qtype)
        state[hf_name] = unpermute_qk(back, permuted_heads) if permuted_heads else back
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()})
    if factors is not None:
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.inv_freq / torch.from_numpy(factors)
    return write_golden(
        model, out, "transformers LlamaForCausalLM, float32, eager, weights dequantised by the gguf package"
    )


# ---- the default model -------------------------------------------------------------------------------------------

DEFAULT_PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Name three primary colours.",
    "Explain why the sky is blue in one sentence.",
    "What is 12 times 12?",
]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def make_default(gguf_path, root):
    """Greedy tokens and top logits of a few chats; token ids come from the file's vocabulary and merges."""
    path = pathlib.Path(gguf_path).resolve()
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = tokenizer_of(path)
    cases = []
    for i, prompt in enumerate(DEFAULT_PROMPTS):
        text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = run_case(model, f"chat{i}", ids, 8192, 40, root, top=64)
        case["text"] = prompt
        case["answer"] = tokenizer.decode(case["greedy"], skip_special_tokens=False)
        cases.append(case)
    golden = {
        "vocab_size": model.config.vocab_size,
        "reference": "transformers, float32, eager, weights dequantised from the GGUF",
        "cases": cases,
    }
    (root / "smollm2-135m.json").write_text(json.dumps(golden) + "\n")


def make_gemma3(gguf_path, root):
    """Perplexity of a text, and the greedy continuation of its first sentence."""
    path = pathlib.Path(gguf_path).resolve()
    source = dict(gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), **source, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    text = (root / "gemma3-270m.txt").read_text()
    ids = AutoTokenizer.from_pretrained(str(path.parent), **source).encode(text)[:192]
    case = run_case(model, "text", ids, 1024, 24, root, top=64)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    following = torch.tensor(ids[1:])
    nll = torch.nn.functional.cross_entropy(logits[:-1], following)
    case["perplexity"] = round(float(nll.exp()), 5)
    golden = {
        "vocab_size": model.config.vocab_size,
        "reference": "transformers, float32, eager, weights dequantised from the GGUF",
        "cases": [case],
    }
    (root / "gemma3-270m.json").write_text(json.dumps(golden) + "\n")


def tokenizer_of(path):
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    reader = gguf.GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, types) if k == 3])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(list(HF_MODELS) + ['gguf-' + g for g in GGUF_MODELS])}"
    )
    parser.add_argument("--default", metavar="FILE.gguf")
    parser.add_argument("--gemma3", metavar="FILE.gguf")
    args = parser.parse_args()
    torch.manual_seed(0)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.default:
        make_default(args.default, args.out)
        return
    if args.gemma3:
        make_gemma3(args.gemma3, args.out)
        return
    for name in args.names or list(HF_MODELS) + ["gguf-" + g for g in GGUF_MODELS]:
        if name.startswith("gguf-"):
            with_clear_choices(lambda seed: make_gguf(name[5:], seed, args.out), 100 + GGUF_MODELS.index(name[5:]))
        else:
            with_clear_choices(lambda seed: make_hf(name, seed, args.out), sorted(HF_MODELS).index(name))
        print("made", args.out / name)


if __name__ == "__main__":
    main()
