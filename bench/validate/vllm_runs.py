#!/usr/bin/env python3
"""Compares real vLLM servers with their simulation: per-request TTFT, mean TBT and end-to-end latency at P50, P90 and
P99.

  bench/validate/vllm_runs.py --tactus build/release/tactus --data DIR [-o FILE.json]

DIR/runs has the per-request records of six real servers (described in its README). Every run is simulated by `tactus
sim --scheduler vllm --backend vllm` with the recorded arrivals, lengths, token budget and sequence limit. The KV memory
is the recorded one (--plan-kv: ours). Nothing is fitted to these runs: operator times are those of data/cost, host time
per step is docs/concepts/cost_model.md's.

Not in the records: prompts of the two CodeLlama runs share their first 1,024 tokens, whose ids were not recorded, so
they form one prefix group; the runs on the RTX PRO 6000 have no KV memory, so ours is used.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import subprocess
import tempfile

RUNS = {
    "vllm_h100_llama2-7b_budget4096": ("llama-2-7b", "h100", 0),
    "vllm_h100_codellama34b_budget4096_prefillheavy": ("codellama-34b", "h100", 1024),
    "vllm_h100_codellama34b_budget64": ("codellama-34b", "h100", 1024),
    "vllm_rtx4090_llama3.1-8b": ("llama-3.1-8b", "rtx4090", 0),
    "vllm_rtxpro6000_llama3.1-8b": ("llama-3.1-8b", "rtxpro6000", 0),
    "vllm_rtxpro6000_qwen3-30b-a3b": ("qwen3-30b-a3b", "rtxpro6000", 0),
}
# What is known of a run's machine apart from the run. Two RTX PRO 6000: an all-gather or a reduce-scatter takes 13.2 us
# and its bytes at 15.92 GB/s. Both figures are a fit to NCCL's three collectives in CUDA graphs, with residuals up to
# 15 % (profiler/perf/RTXPRO6000/hardware.yaml of casys-kaist/LLMServingSim, e08dc388 of 2026-09-08). That these are the
# run's boards is inferred: the file names none. 2 of the 13.2 us are the launch, which the cost model adds.
MACHINES = {
    "vllm_rtxpro6000_qwen3-30b-a3b": ["--peer-gbytes-per-s", "15.92", "--peer-latency", "11.2us"],
}
QUANTILES = (0.5, 0.9, 0.99)
METRICS = ("ttft", "tbt", "e2e")
# vLLM's defaults, if a run's record has none.
DEFAULT_UTILIZATION = 0.9


def quantile(values: list[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Milliseconds. rows: ttft, e2e in seconds, output tokens; TBT is a request's mean gap, as recorded."""
    series = {
        "ttft": [r["ttft"] for r in rows],
        "tbt": [(r["e2e"] - r["ttft"]) / (r["output"] - 1) for r in rows if r["output"] > 1],
        "e2e": [r["e2e"] for r in rows],
    }
    return {m: {f"p{round(q * 100)}": 1e3 * quantile(series[m], q) for q in QUANTILES} for m in METRICS}


def recorded(path: pathlib.Path) -> list[dict[str, float]]:
    with path.open() as f:
        return [
            {
                "arrival": float(r["arrival_s"]),
                "prompt": int(r["prompt_tokens"]),
                "output": int(r["output_tokens"]),
                "ttft": float(r["ttft_s"]),
                "e2e": float(r["e2e_s"]),
            }
            for r in csv.DictReader(f)
        ]


def simulate(tactus: str, run: str, args, rows, folder: pathlib.Path):
    model, device, shared = RUNS[run]
    meta = json.loads((args.data / "runs" / f"{run}.meta.json").read_text())
    engine = meta.get("engine_kwargs") or meta["non_default_args"]
    kv = meta.get("kv_cache", {})
    blocks = int((meta.get("num_gpu_blocks") or [kv.get("num_gpu_blocks", 0)])[0])
    trace, log = folder / "trace.csv", folder / "requests.csv"
    with trace.open("w") as f:
        f.write("arrival_s,prompt_tokens,output_tokens,prefix_id,shared_tokens\n")
        start = min(r["arrival"] for r in rows)
        for r in rows:
            group = f"1,{min(shared, r['prompt'])}" if shared else ","
            f.write(f"{r['arrival'] - start:.9f},{r['prompt']},{r['output']},{group}\n")
    command = [
        tactus,
        "sim",
        "--as-paper",
        "--model",
        model,
        "--device",
        device,
        "--backend",
        "vllm",
        "--scheduler",
        "vllm",
        "--token-budget",
        str(engine["max_num_batched_tokens"]),
        "--max-num-seqs",
        str(engine["max_num_seqs"]),
        "--gpu-memory-utilization",
        str(DEFAULT_UTILIZATION),
        "--prefix-caching",
        "on",
        "--identities",
        "all",
        "--workload",
        f"trace:{trace}",
        "--ignore-eos",
        "on",
        "--requests-out",
        str(log),
        "--cost",
        args.cost,
        "--json",
        *([] if args.usual_machine else MACHINES.get(run, [])),
        *args.extra,
    ]
    if engine.get("data_parallel_size", 1) > 1:
        replicas = str(engine["data_parallel_size"])
        command += ["--replicas", replicas, "--ep", replicas if engine["enable_expert_parallel"] else "1"]
    if engine.get("max_model_len"):
        command += ["--max-model-len", str(engine["max_model_len"])]
    if blocks and not args.plan_kv:
        command += ["--kv-blocks", str(blocks)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    with log.open() as f:
        got = [
            {
                "arrival": float(r["arrival_s"]),
                "prompt": int(r["prompt_tokens"]),
                "output": int(r["output_tokens"]),
                "ttft": float(r["first_token_s"]) - float(r["arrival_s"]),
                "e2e": float(r["done_s"]) - float(r["arrival_s"]),
            }
            for r in csv.DictReader(f)
            if r["finish"] != "rejected"
        ]
    return got, json.loads(done.stdout), blocks, command


def given(args: argparse.Namespace) -> list[str]:
    """The command line without paths."""
    words = ["bench/validate/vllm_runs.py", *(f"--run {run}" for run in args.run or [])]
    words += [f"--cost {args.cost}"] if args.cost != "auto" else []
    words += [f"--{flag}" for flag in ("plan-kv", "usual-machine") if getattr(args, flag.replace("-", "_"))]
    return words + args.extra


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tactus", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--cost", default="auto", help="auto, fitted or roofline")
    parser.add_argument("--plan-kv", action="store_true", help="KV memory from our plan instead of the recorded blocks")
    parser.add_argument("--usual-machine", action="store_true", help="nothing of MACHINES, the devices' usual figures")
    parser.add_argument("--run", action="append", choices=sorted(RUNS), help="only these")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args, args.extra = parser.parse_known_args()
    results, errors = [], []
    print("| run | requests | metric | P50 recorded / predicted (error) | P90 | P99 |\n|---|---|---|---|---|---|")
    for run in args.run or RUNS:
        rows = recorded(args.data / "runs" / f"{run}.requests.csv")
        with tempfile.TemporaryDirectory() as folder:
            got, result, blocks, command = simulate(args.tactus, run, args, rows, pathlib.Path(folder))
        real, sim = summary(rows), summary(got)
        for metric in METRICS:
            cells = []
            for q in real[metric]:
                error = sim[metric][q] / real[metric][q] - 1
                errors.append((metric, error))
                cells.append(f"{real[metric][q]:,.1f} / {sim[metric][q]:,.1f} ({100 * error:+.1f} %)")
            print(
                f"| {run if metric == 'ttft' else ''} | {f'{len(got)} of {len(rows)}' if metric == 'ttft' else ''} |"
                f" {metric} ms | {' | '.join(cells)} |",
                flush=True,
            )
        results.append(
            {
                "run": run,
                "requests": len(got),
                "recorded_ms": real,
                "predicted_ms": sim,
                "recorded_kv_blocks": blocks,
                "cost": result.get("cost"),
                "preemptions": result.get("preemptions"),
                "steps": result.get("steps"),
            }
        )
    for metric in METRICS:
        own = sorted(abs(e) for m, e in errors if m == metric)
        print(
            f"{metric}: mean absolute error {100 * sum(own) / len(own):.1f} %, median {100 * own[len(own) // 2]:.1f} %,"
            f" largest {100 * own[-1]:.1f} %"
        )
    if args.output:
        args.output.write_text(
            json.dumps({"command": " ".join(given(args)), "cost": args.cost, "runs": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
