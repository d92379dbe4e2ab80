#!/usr/bin/env python3
"""Prefill and decode speed beside llama.cpp, in one run: the same GGUF files, the same threads, interleaved repetitions.

  python3 bench/compare_llama_cpp.py --llama-bench PATH --llama-batched-bench PATH [--default-model GGUF] [-o FILE.json]

Writes seeded dummy weights of TinyLlama's shape (hidden 2048, 22 layers, 32 heads, 4 KV heads, FFN 5632, vocabulary 32000) as
BF16 and Q8_0 GGUF files with Python's `gguf`, runs both programs on each, in turn, and prints a markdown table of medians
and ratios. Needs: pip install gguf numpy; a build of this project with -DTACTUS_BUILD_BENCH=ON; llama.cpp built from the
source package of `llama-cpp-python` (PyPI) with GGML_NATIVE.
"""
import argparse
import json
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = dict(hidden=2048, layers=22, heads=32, kv_heads=4, ffn=5632, vocab=32000, context=2048)


def write_dummy(path, quantization):
    import gguf
    import numpy as np
    rng = np.random.default_rng(1)
    s = SHAPE
    kv = s["hidden"] // s["heads"] * s["kv_heads"]
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tinyllama-shape dummy")
    w.add_context_length(s["context"])
    w.add_embedding_length(s["hidden"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv_heads"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(s["hidden"] // s["heads"])
    w.add_vocab_size(s["vocab"])
    w.add_tokenizer_model("llama")
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    types = [2, 3, 3] + [6] * 256
    tokens += [f"t{i}" for i in range(s["vocab"] - len(tokens))]
    types += [1] * (s["vocab"] - len(types))
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * s["vocab"])
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    kind = {"bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}[quantization]

    def matrix(name, rows, cols):
        data = (rng.standard_normal((rows, cols), dtype=np.float32) * 0.02)
        w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    def ones(name, n):
        w.add_tensor(name, np.ones(n, dtype=np.float32))

    matrix("token_embd.weight", s["vocab"], s["hidden"])
    matrix("output.weight", s["vocab"], s["hidden"])
    ones("output_norm.weight", s["hidden"])
    for i in range(s["layers"]):
        p = f"blk.{i}."
        ones(p + "attn_norm.weight", s["hidden"])
        ones(p + "ffn_norm.weight", s["hidden"])
        matrix(p + "attn_q.weight", s["hidden"], s["hidden"])
        matrix(p + "attn_k.weight", kv, s["hidden"])
        matrix(p + "attn_v.weight", kv, s["hidden"])
        matrix(p + "attn_output.weight", s["hidden"], s["hidden"])
        matrix(p + "ffn_gate.weight", s["ffn"], s["hidden"])
        matrix(p + "ffn_up.weight", s["ffn"], s["hidden"])
        matrix(p + "ffn_down.weight", s["hidden"], s["ffn"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def ours(args, model):
    result = json.loads(run([args.model_speed, model, "--threads", args.threads, "--prefill", 512, "--context", 128, "--repeat", 1,
                             "--batches", ",".join(map(str, args.batches)), "--steps", args.steps]))
    out = {"prefill 512": result["prefill"]["tokens_per_s"]}
    for b in args.batches:
        out[f"decode {b}"] = result[f"decode_{b}"]["tokens_per_s"]
    return out


def theirs(args, model):
    out = {}
    rows = json.loads(run([args.llama_bench, "-m", model, "-t", args.threads, "-p", 512, "-n", 0, "-r", 1, "-o", "json"]))
    out["prefill 512"] = rows[0]["avg_ts"]
    text = run([args.llama_batched_bench, "-m", model, "-t", args.threads, "-tb", args.threads, "-c", (128 + args.steps) * max(args.batches) + 512,
                "-npp", 128, "-ntg", args.steps, "-npl", ",".join(map(str, args.batches)), "--output-format", "jsonl"])
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            out[f"decode {row['pl']}"] = row["speed_tg"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--llama-batched-bench", required=True)
    parser.add_argument("--model-speed", default=ROOT / "build/bench/bench/model/model_speed")
    parser.add_argument("--default-model", help="the default model's GGUF, measured too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batches", type=lambda t: [int(x) for x in t.split(",")], default=[1, 8, 16])
    parser.add_argument("--dummy-folder", help="keep the dummy files here and reuse them")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()

    folder = pathlib.Path(args.dummy_folder or tempfile.mkdtemp(prefix="tactus-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    models = []
    for quantization in ("bf16", "q8_0"):
        path = folder / f"tinyllama-shape-{quantization}.gguf"
        if not path.exists():
            print(f"writing {path}", file=sys.stderr)
            write_dummy(path, quantization)
        models.append((f"1.1B {quantization}", path))
    if args.default_model:
        models.append(("smollm2-135m q4_1", pathlib.Path(args.default_model)))

    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    commit = run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"]).strip()
    result = {"commit": commit, "cpu": cpu.group(1) if cpu else platform.processor(), "threads": args.threads, "cells": {}}
    print(f"\ncommit {commit}, {result['cpu']}, {args.threads} threads, {args.repeat} interleaved repetitions; tokens/s, median (min-max)\n")
    print("| model | test | tactus | llama.cpp | ratio |\n|---|---|---|---|---|")
    for name, path in models:
        samples = {"tactus": {}, "llama.cpp": {}}
        for i in range(args.repeat):
            print(f"{name}: repetition {i + 1} of {args.repeat}", file=sys.stderr)
            for who, measure in (("tactus", ours), ("llama.cpp", theirs)):
                for test, value in measure(args, path).items():
                    samples[who].setdefault(test, []).append(value)
        for test in samples["tactus"]:
            a, b = samples["tactus"][test], samples["llama.cpp"].get(test)
            cell = lambda v: f"{statistics.median(v):.1f} ({min(v):.1f}-{max(v):.1f})"
            ratio = statistics.median(x / y for x, y in zip(a, b))
            result["cells"][f"{name} {test}"] = {"tactus": a, "llama.cpp": b, "ratio": ratio}
            print(f"| {name} | {test} | {cell(a)} | {cell(b)} | {ratio:.2f} |", flush=True)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
