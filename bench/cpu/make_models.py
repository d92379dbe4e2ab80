#!/usr/bin/env python3
"""Writes the models of the comparison, seeded noise in the shapes of shape.py, for every engine: GGUF files (bf16,
Q8_0, Q4_0) and OpenVINO folders (bf16, int8 per channel, int4 in groups of 64), the latter in the form of `optimum-cli
export openvino`.

  make_models.py --out DIR [--model dense|mixture|all] [--only gguf|openvino] [--formats bf16,int8,int4]

The dense models take 7 GB (2 more while they are written), the mixture 20 GB (6 more); existing files are kept. Every
engine gets the same seeds, not the same values: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

from shape import DENSE, GGUF_NAMES, MODELS, Shape


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


WEIGHT_SCALE = 0.02


def embedding_scale(s: Shape) -> float:
    """A mixture's stream is mostly the token's embedding, so that sequences with the same context choose different
    experts."""
    return 1.0 if s.experts else WEIGHT_SCALE


def vocabulary(s: Shape) -> tuple[list[str], list[int]]:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [2, 3, 3] + [6] * 256
    tokens += [f"t{i}" for i in range(s.vocab - len(tokens))]
    types += [1] * (s.vocab - len(types))
    return tokens, types


def write_gguf(path: pathlib.Path, fmt: str, s: Shape) -> None:
    import gguf
    import numpy as np

    rng = np.random.default_rng(1)
    part = path.with_suffix(".part")
    w = gguf.GGUFWriter(part, "qwen3moe" if s.experts else "llama")
    w.add_name(path.stem)
    w.add_file_type(gguf.LlamaFileType[f"MOSTLY_{GGUF_NAMES[fmt]}"])  # OpenVINO GenAI rejects files without it
    w.add_context_length(s.context)
    w.add_embedding_length(s.hidden)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.inner)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(s.head_dim)
    w.add_vocab_size(s.vocab)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.chosen)
        w.add_expert_feed_forward_length(s.inner)
    w.add_tokenizer_model("llama")
    tokens, types = vocabulary(s)
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * s.vocab)
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    kind = gguf.GGMLQuantizationType[GGUF_NAMES[fmt]]

    def noise(*size: int, scale: float = WEIGHT_SCALE) -> np.ndarray:
        return rng.standard_normal(size, dtype=np.float32) * scale

    def matrix(name: str, *size: int, scale: float = WEIGHT_SCALE) -> None:
        each = size[-2:]
        data = [gguf.quants.quantize(noise(*each, scale=scale), kind) for _ in range(size[0] if len(size) == 3 else 1)]
        w.add_tensor(name, np.stack(data) if len(size) == 3 else data[0], raw_dtype=kind)

    def ones(name: str, size: int) -> None:
        w.add_tensor(name, np.ones(size, dtype=np.float32))

    matrix("token_embd.weight", s.vocab, s.hidden, scale=embedding_scale(s))
    matrix("output.weight", s.vocab, s.hidden)
    ones("output_norm.weight", s.hidden)
    for i in range(s.layers):
        p = f"blk.{i}."
        ones(p + "attn_norm.weight", s.hidden)
        ones(p + "ffn_norm.weight", s.hidden)
        matrix(p + "attn_q.weight", s.heads * s.head_dim, s.hidden)
        matrix(p + "attn_k.weight", s.kv_width, s.hidden)
        matrix(p + "attn_v.weight", s.kv_width, s.hidden)
        matrix(p + "attn_output.weight", s.hidden, s.heads * s.head_dim)
        if s.experts:
            ones(p + "attn_q_norm.weight", s.head_dim)
            ones(p + "attn_k_norm.weight", s.head_dim)
            w.add_tensor(p + "ffn_gate_inp.weight", noise(s.experts, s.hidden))
        sizes, kind_of = ([s.experts], "_exps") if s.experts else ([], "")
        matrix(p + f"ffn_gate{kind_of}.weight", *sizes, s.inner, s.hidden)
        matrix(p + f"ffn_up{kind_of}.weight", *sizes, s.inner, s.hidden)
        matrix(p + f"ffn_down{kind_of}.weight", *sizes, s.hidden, s.inner)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    part.rename(path)


def hugging_face_model(s: Shape):
    import transformers

    common = dict(
        hidden_size=s.hidden,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        head_dim=s.head_dim,
        vocab_size=s.vocab,
        max_position_embeddings=s.context,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    if not s.experts:
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(intermediate_size=s.inner, **common))
    experts = dict(num_experts=s.experts, num_experts_per_tok=s.chosen, moe_intermediate_size=s.inner)
    config = transformers.Qwen3MoeConfig(intermediate_size=s.inner, norm_topk_prob=True, **experts, **common)
    return transformers.Qwen3MoeForCausalLM(config)


def write_hugging_face(folder: pathlib.Path, s: Shape) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(1)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    model = hugging_face_model(s)
    torch.set_default_dtype(default)
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=embedding_scale(s))
    model.save_pretrained(folder)
    tokens, _ = vocabulary(s)
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def write_openvino(hugging_face: pathlib.Path, folder: pathlib.Path, fmt: str) -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    how = {
        "bf16": dict(load_in_8bit=False),
        "int8": dict(quantization_config=OVWeightQuantizationConfig(bits=8, sym=False)),
        "int4": dict(quantization_config=OVWeightQuantizationConfig(bits=4, sym=True, group_size=64, ratio=1.0)),
    }[fmt]
    model = OVModelForCausalLM.from_pretrained(hugging_face, export=True, compile=False, **how)
    model.save_pretrained(part)
    write_openvino_tokenizer(hugging_face, part)
    part.rename(folder)


def write_openvino_tokenizer(hugging_face: pathlib.Path, folder: pathlib.Path) -> None:
    """GenAI's pipelines need a tokenizer next to the model, although the drivers pass token ids."""
    import openvino
    import openvino_tokenizers
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(hugging_face)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        if (hugging_face / name).exists() and not (folder / name).exists():
            shutil.copy(hugging_face / name, folder / name)
    encoder, decoder = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    openvino.save_model(encoder, folder / "openvino_tokenizer.xml")
    openvino.save_model(decoder, folder / "openvino_detokenizer.xml")


def gguf_path(out: pathlib.Path, fmt: str, s: Shape = DENSE) -> pathlib.Path:
    return out / f"{s.file}-{GGUF_NAMES[fmt].lower()}.gguf"


def openvino_path(out: pathlib.Path, fmt: str, s: Shape = DENSE) -> pathlib.Path:
    return out / f"{s.file}-openvino-{fmt}"


def write_models(out: pathlib.Path, formats: list[str], only: str | None, s: Shape) -> None:
    if only != "openvino":
        for path, fmt in ((gguf_path(out, fmt, s), fmt) for fmt in formats):
            if not path.exists():
                say(f"writing {path}")
                write_gguf(path, fmt, s)
    missing = [f for f in formats if not openvino_path(out, f, s).exists()]
    if only != "gguf" and missing:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        with tempfile.TemporaryDirectory(dir=out, prefix="hugging-face-") as temporary:
            say("writing the Hugging Face folder (removed at the end)")
            write_hugging_face(pathlib.Path(temporary), s)
            for fmt in missing:
                say(f"exporting {openvino_path(out, fmt, s)}")
                write_openvino(pathlib.Path(temporary), openvino_path(out, fmt, s), fmt)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=["gguf", "openvino"])
    parser.add_argument("--formats", default="bf16,int8,int4")
    parser.add_argument("--model", choices=[*MODELS, "all"], default="dense")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    formats = args.formats.split(",")
    written = {}
    for name in MODELS if args.model == "all" else [args.model]:
        s = MODELS[name]
        write_models(args.out, formats, args.only, s)
        written[name] = {
            f: {"gguf": str(gguf_path(args.out, f, s)), "openvino": str(openvino_path(args.out, f, s))} for f in formats
        }
    print(json.dumps(written))


if __name__ == "__main__":
    main()
