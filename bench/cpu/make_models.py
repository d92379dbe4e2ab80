#!/usr/bin/env python3
"""Writes the models of the comparison, seeded noise in TinyLlama's shape, for every engine: GGUF files (bf16, Q8_0,
Q4_0) and OpenVINO folders (bf16, int8 per channel, int4 in groups of 64), the latter in the form of `optimum-cli export
openvino`.

  make_models.py --out DIR [--only gguf|openvino] [--formats bf16,int8,int4]

About 8 GB with the Hugging Face folder in between, 7 GB without; existing files are kept. Every engine gets the same
seeds, not the same values: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

import shape as s


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def vocabulary() -> tuple[list[str], list[int]]:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [2, 3, 3] + [6] * 256
    tokens += [f"t{i}" for i in range(s.VOCAB - len(tokens))]
    types += [1] * (s.VOCAB - len(types))
    return tokens, types


def write_gguf(path: pathlib.Path, fmt: str) -> None:
    import gguf
    import numpy as np

    rng = np.random.default_rng(1)
    part = path.with_suffix(".part")
    w = gguf.GGUFWriter(part, "llama")
    w.add_name(f"tinyllama-shape-{fmt}")
    w.add_file_type(gguf.LlamaFileType[f"MOSTLY_{s.GGUF_NAMES[fmt]}"])  # OpenVINO GenAI rejects files without it
    w.add_context_length(s.CONTEXT)
    w.add_embedding_length(s.HIDDEN)
    w.add_block_count(s.LAYERS)
    w.add_feed_forward_length(s.FFN)
    w.add_head_count(s.HEADS)
    w.add_head_count_kv(s.KV_HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(s.HEAD_DIM)
    w.add_vocab_size(s.VOCAB)
    w.add_tokenizer_model("llama")
    tokens, types = vocabulary()
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * s.VOCAB)
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    kind = gguf.GGMLQuantizationType[s.GGUF_NAMES[fmt]]

    def matrix(name: str, rows: int, cols: int) -> None:
        data = rng.standard_normal((rows, cols), dtype=np.float32) * 0.02
        w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    matrix("token_embd.weight", s.VOCAB, s.HIDDEN)
    matrix("output.weight", s.VOCAB, s.HIDDEN)
    w.add_tensor("output_norm.weight", np.ones(s.HIDDEN, dtype=np.float32))
    for i in range(s.LAYERS):
        p = f"blk.{i}."
        w.add_tensor(p + "attn_norm.weight", np.ones(s.HIDDEN, dtype=np.float32))
        w.add_tensor(p + "ffn_norm.weight", np.ones(s.HIDDEN, dtype=np.float32))
        matrix(p + "attn_q.weight", s.HIDDEN, s.HIDDEN)
        matrix(p + "attn_k.weight", s.KV_WIDTH, s.HIDDEN)
        matrix(p + "attn_v.weight", s.KV_WIDTH, s.HIDDEN)
        matrix(p + "attn_output.weight", s.HIDDEN, s.HIDDEN)
        matrix(p + "ffn_gate.weight", s.FFN, s.HIDDEN)
        matrix(p + "ffn_up.weight", s.FFN, s.HIDDEN)
        matrix(p + "ffn_down.weight", s.HIDDEN, s.FFN)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    part.rename(path)


def write_hugging_face(folder: pathlib.Path) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=s.HIDDEN,
        num_hidden_layers=s.LAYERS,
        num_attention_heads=s.HEADS,
        num_key_value_heads=s.KV_HEADS,
        intermediate_size=s.FFN,
        vocab_size=s.VOCAB,
        max_position_embeddings=s.CONTEXT,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(default)
    model.save_pretrained(folder)
    tokens, _ = vocabulary()
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


def gguf_path(out: pathlib.Path, fmt: str) -> pathlib.Path:
    return out / f"tinyllama-shape-{s.GGUF_NAMES[fmt].lower()}.gguf"


def openvino_path(out: pathlib.Path, fmt: str) -> pathlib.Path:
    return out / f"tinyllama-shape-openvino-{fmt}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=["gguf", "openvino"])
    parser.add_argument("--formats", default="bf16,int8,int4")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    formats = args.formats.split(",")
    if args.only != "openvino":
        for fmt in formats:
            if not gguf_path(args.out, fmt).exists():
                say(f"writing {gguf_path(args.out, fmt)}")
                write_gguf(gguf_path(args.out, fmt), fmt)
    missing = [f for f in formats if not openvino_path(args.out, f).exists()]
    if args.only != "gguf" and missing:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        with tempfile.TemporaryDirectory(dir=args.out, prefix="hugging-face-") as temporary:
            say("writing the Hugging Face folder (removed at the end)")
            write_hugging_face(pathlib.Path(temporary))
            for fmt in missing:
                say(f"exporting {openvino_path(args.out, fmt)}")
                write_openvino(pathlib.Path(temporary), openvino_path(args.out, fmt), fmt)
    print(
        json.dumps(
            {f: {"gguf": str(gguf_path(args.out, f)), "openvino": str(openvino_path(args.out, f))} for f in formats}
        )
    )


if __name__ == "__main__":
    main()
