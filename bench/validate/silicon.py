#!/usr/bin/env python3
"""Real serving results against simulation: TTFT and TPOT of vLLM, SGLang and TensorRT-LLM on H100, H200 and B200.

  bench/validate/silicon.py --tactus build/release/tactus --wheel aiconfigurator_core-0.12.0-*.whl

The wheel (PyPI aiconfigurator-core, Apache-2.0) carries systems/silicon_sample.csv: measured TTFT and TPOT at a
concurrency, an input and an output length. Each dense-model row is simulated by `tactus sim` in a closed loop at its
concurrency, with all requests starting at once, and the means are compared. Nothing is fitted to these rows;
docs/measurements/validation_silicon.md has the assumptions for each group. Without --wheel the wheel is fetched by pip
into --cache.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import csv
import dataclasses
import io
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE, VERSION = "aiconfigurator-core", "0.12.0"
MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "Qwen/Qwen3-32B": "qwen3-32b",
}
SYSTEMS = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200"}
SEED = 1
PROMPTS_PER_CLIENT = 10
BATCH_WAIT_STEPS = 20
OUTPUT_SPREAD = 0.0
OVERLAPPED_HOST = "100us"


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured row and the settings of its simulation."""

    key: str
    group: tuple[str, str, str]  # model, system, backend
    device: str
    model: str
    backend: str
    tp: int
    concurrency: int
    isl: int
    osl: int
    ttft_ms: float
    tpot_ms: float
    dtype: str
    kv_dtype: str
    token_budget: int
    max_seqs: int
    overlapped: bool  # the host prepares a step while the device runs the previous one
    batch_wait: bool  # a prompt waits 20 steps for others if any sequence decodes
    memory: float  # share of the device's memory
    spread: bool  # lengths uniform in [0.8, 1] of isl and osl instead of fixed
    suspect: bool


def setting(raw: dict[str, str]) -> Row | None:
    """The assumptions of docs/measurements/validation_silicon.md, row by row. None: the row is not simulated (another
    model, system or mode)."""
    model, device = MODELS.get(raw["model_path"]), SYSTEMS.get(raw["system"])
    if model is None or device is None or raw["mode"] != "agg":
        return None
    backend, quant, concurrency = raw["backend"], raw["gemm_quant_mode"], int(float(raw["batch_size"]))
    sweep = raw["silicon_data_source"].startswith(
        "source_file=2026-04-06.csv"
    )  # the public nightly sweep over Llama-70B
    dtype = {"": "bfloat16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}[quant]
    checkpoint_has_kv = backend == "trtllm" and dtype in ("fp8_static", "nvfp4")
    return Row(
        key=raw["id"],
        group=(raw["model_path"].split("/")[1], device, backend),
        device=device,
        model=model,
        backend=backend,
        tp=int(float(raw["tp_size"])),
        concurrency=concurrency,
        isl=int(raw["isl"]),
        osl=int(raw["osl"]),
        ttft_ms=float(raw["silicon_ttft_ms"]),
        tpot_ms=float(raw["silicon_tpot_ms"]),
        dtype=dtype,
        kv_dtype="fp8" if sweep or checkpoint_has_kv else "bfloat16",
        token_budget=16384 if sweep and backend == "trtllm" else 8192,
        max_seqs=concurrency if sweep and backend == "vllm" and device != "b200" else 1024,
        overlapped=sweep or backend != "vllm",
        batch_wait=sweep
        and backend == "trtllm"
        and raw["isl"] == raw["osl"] == "1024"
        and int(float(raw["tp_size"])) < 8,
        memory=0.88 if backend == "sglang" else 0.9,
        spread=sweep,
        suspect=raw["model_path"].startswith("nvidia/")
        or (backend == "vllm" and raw["gemm_quant_mode"] == "fp8" and model == "qwen3-32b"),
    )


def load(row: Row, lengths: pathlib.Path, cached: bool) -> list[str]:
    """`cached`: prompts of the suspect rows are the same except for their last block."""
    if not (cached and row.suspect):
        return ["--prefix-caching", "off", "--workload", f"lengths:{lengths}"]
    shared = (row.isl - 1) // 16 * 16
    return ["--prefix-caching", "on", "--workload", f"prefix:shared={shared},unique={row.isl - shared},out={row.osl}"]


def command(tactus: str, row: Row, lengths: pathlib.Path, cached: bool = False) -> list[str]:
    scheduler = {
        "vllm": ["vllm"],
        "sglang": ["vllm-v0"],
        "trtllm": ["no-preempt", "--composition", "whole-prompt-hybrid"],
    }[row.backend]
    # Servers are configured for the benchmark's requests. SGLang's prefill step has at most 8192 tokens, which
    # prefill-first gets from here.
    context = max(row.token_budget if row.backend == "sglang" else 0, row.isl + round(row.osl * 1.25) + 20)
    return [
        tactus,
        "sim",
        "--as-paper",
        "--model",
        row.model,
        "--device",
        row.device,
        "--tp",
        str(row.tp),
        "--backend",
        row.backend,
        "--weight-dtype",
        row.dtype,
        "--kv-cache-dtype",
        row.kv_dtype,
        "--scheduler",
        *scheduler,
        "--token-budget",
        str(row.token_budget),
        "--max-num-seqs",
        str(row.max_seqs),
        "--max-model-len",
        str(context),
        "--gpu-memory-utilization",
        str(row.memory),
        "--ignore-eos",
        "on",
        *load(row, lengths, cached),
        "--concurrency",
        str(row.concurrency),
        "--requests",
        str(PROMPTS_PER_CLIENT * row.concurrency),
        "--seed",
        str(SEED),
        *(["--cpu-overhead", OVERLAPPED_HOST] if row.overlapped else []),
        "--json",
    ]


def write_lengths(row: Row, path: pathlib.Path, output_spread: float) -> None:
    draw = random.Random(SEED)
    with path.open("w") as out:
        out.write("prompt_tokens,output_tokens\n")
        for _ in range(PROMPTS_PER_CLIENT * row.concurrency):
            if row.spread:
                prompt, output = (draw.randint(int(0.8 * n), n) for n in (row.isl, row.osl))
            else:
                prompt, output = row.isl, row.osl + round(draw.uniform(-output_spread, output_spread) * row.osl)
            out.write(f"{prompt},{output}\n")


def simulate(tactus: str, row: Row, output_spread: float, cached: bool, extra: list[str]) -> dict:
    """{ttft_ms, tpot_ms, seconds} or {error}."""
    with tempfile.TemporaryDirectory() as folder:
        lengths = pathlib.Path(folder) / "lengths.csv"
        write_lengths(row, lengths, output_spread)
        started = time.monotonic()
        try:
            done = subprocess.run(
                [*command(tactus, row, lengths, cached), *extra], capture_output=True, text=True, timeout=600
            )
        except subprocess.TimeoutExpired:
            return {"error": "no end within 600 s"}
        if done.returncode != 0:
            return {
                "error": (
                    done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else f"exit {done.returncode}"
                )
            }
        result = json.loads(done.stdout)
        if result["requests"]["completed"] != PROMPTS_PER_CLIENT * row.concurrency:
            return {"error": f"requests {result['requests']}"}
        ttft_ms, tpot_ms = result["ttft_ms"]["mean"], result["tpot_ms"]["mean"]
        if row.batch_wait:  # all but the first wave meet decoding sequences, whose steps take one TPOT
            ttft_ms += BATCH_WAIT_STEPS * tpot_ms * (1 - 1 / PROMPTS_PER_CLIENT)
        return {
            "ttft_ms": ttft_ms,
            "tpot_ms": tpot_ms,
            "steps": result["steps"],
            "preemptions": result["preemptions"],
            "seconds": round(time.monotonic() - started, 3),
        }


def quantile(values: list[float], q: float) -> float:
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def errors(pairs: list[tuple[Row, dict]], name: str) -> list[float]:
    return [abs(result[name] / getattr(row, name) - 1) * 100 for row, result in pairs]


def whole_request_errors(pairs: list[tuple[Row, dict]]) -> list[float]:
    end = lambda ttft, tpot, osl: ttft + tpot * (osl - 1)
    return [
        abs(end(r["ttft_ms"], r["tpot_ms"], row.osl) / end(row.ttft_ms, row.tpot_ms, row.osl) - 1) * 100
        for row, r in pairs
    ]


def summary(pairs: list[tuple[Row, dict]]) -> dict:
    out = {"rows": len(pairs)}
    for name, values in (
        ("ttft", errors(pairs, "ttft_ms")),
        ("tpot", errors(pairs, "tpot_ms")),
        ("request", whole_request_errors(pairs)),
    ):
        out[name] = {
            "mape": round(statistics.fmean(values), 1),
            "median": round(statistics.median(values), 1),
            "p90": round(quantile(values, 0.9), 1),
        }
    for name in ("ttft_ms", "tpot_ms"):  # direction: the median of predicted over measured
        out[name.replace("_ms", "_ratio")] = round(
            statistics.median(r[name] / getattr(row, name) for row, r in pairs), 3
        )
    return out


def table(pairs: list[tuple[Row, dict]], by: list[str]) -> list[str]:
    lines = [
        "| model, system, backend | rows | TTFT | TPOT | whole request | predicted / measured, median: TTFT, TPOT |",
        "|---|---|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for pair in pairs:
        groups[(*pair[0].group, *(f"{name} {getattr(pair[0], name)}" for name in by))].append(pair)
    regular = [pair for pair in pairs if not pair[0].suspect]
    for label, own in [
        *((" ".join(group), own) for group, own in sorted(groups.items())),
        ("all but the suspect rows", regular),
        ("all", pairs),
    ]:
        if not own:
            continue  # only suspect rows were requested
        s = summary(own)
        cells = [" / ".join(str(s[name][k]) for k in ("mape", "median", "p90")) for name in ("ttft", "tpot", "request")]
        lines.append(f"| {label} | {s['rows']} | {' | '.join(cells)} | {s['ttft_ratio']}, {s['tpot_ratio']} |")
    return lines


def fetch_wheel(cache: pathlib.Path) -> pathlib.Path:
    cache.mkdir(parents=True, exist_ok=True)
    found = sorted(cache.glob("aiconfigurator_core-*.whl"))
    if not found:
        subprocess.run(
            [sys.executable, "-m", "pip", "-q", "download", "--no-deps", f"{PACKAGE}=={VERSION}", "-d", str(cache)],
            check=True,
        )
        found = sorted(cache.glob("aiconfigurator_core-*.whl"))
    return found[0]


def read_rows(wheel: pathlib.Path) -> list[Row]:
    with zipfile.ZipFile(wheel) as z:
        name = next(n for n in z.namelist() if n.endswith("systems/silicon_sample.csv"))
        raw = csv.DictReader(io.TextIOWrapper(z.open(name), encoding="utf-8"))
        return [row for row in map(setting, raw) if row is not None]


def record_text(rows: list[Row], results: list[dict], done: list[tuple[Row, dict]], seconds: int) -> str:
    """JSON: the summaries, then one line per row: key, measured TTFT and TPOT, predicted ones (or the reason for
    none)."""
    head = {
        "package": f"{PACKAGE} {VERSION}",
        "seconds": seconds,
        "seed": SEED,
        "all": summary(done),
        "without_suspect": summary(regular) if (regular := [p for p in done if not p[0].suspect]) else None,
    }
    lines = [
        json.dumps(
            [
                row.key,
                round(row.ttft_ms, 2),
                round(row.tpot_ms, 3),
                *([round(r["ttft_ms"], 2), round(r["tpot_ms"], 3)] if "error" not in r else [r["error"]]),
            ]
        )
        for row, r in zip(rows, results)
    ]
    return json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def write_into_page(page: pathlib.Path, lines: list[str]) -> None:
    """Replaces the text between the page's two markers."""
    before, rest = page.read_text().split("<!-- table -->\n", 1)
    _, after = rest.split("<!-- end of table -->", 1)
    page.write_text(before + "<!-- table -->\n" + "\n".join(lines) + "\n<!-- end of table -->" + after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tactus", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "tactus-silicon")
    parser.add_argument(
        "--output-spread",
        type=float,
        default=OUTPUT_SPREAD,
        help="if the load generator is unknown: output lengths uniform within this share of osl",
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=0,
        help="tokens per step of vLLM if the server's settings are unknown, instead of its default",
    )
    parser.add_argument(
        "--suspect-cached",
        action="store_true",
        help="assume that prompts of the suspect rows are in the prefix cache except for their last block",
    )
    parser.add_argument("--every", type=int, default=1, help="simulate every n-th row only")
    parser.add_argument("--only", default="", help="groups whose name contains this, such as 'h100 vllm'")
    parser.add_argument("--by", default="", help="split the table further, such as tp,dtype or isl,osl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "-o",
        "--output",
        type=pathlib.Path,
        help="JSON with every row (default bench/results/<date>-silicon.json for a full run)",
    )
    arguments, extra = parser.parse_known_args()
    rows = [
        r for r in read_rows(arguments.wheel or fetch_wheel(arguments.cache)) if arguments.only in " ".join(r.group)
    ][:: arguments.every]
    if arguments.budget:
        rows = [
            r if r.spread or r.backend != "vllm" else dataclasses.replace(r, token_budget=arguments.budget)
            for r in rows
        ]
    started = time.monotonic()
    results: list[dict] = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(
            lambda row: simulate(arguments.tactus, row, arguments.output_spread, arguments.suspect_cached, extra), rows
        ):
            results.append(result)
            if len(results) % 50 == 0:
                print(f"{len(results)} of {len(rows)} rows, {time.monotonic() - started:.0f} s", file=sys.stderr)
    done = [(row, r) for row, r in zip(rows, results) if "error" not in r]
    failed = collections.Counter(
        (" ".join(row.group), f"tp {row.tp}", r["error"]) for row, r in zip(rows, results) if "error" in r
    )
    lines = table(done, arguments.by.split(",") if arguments.by else []) if done else ["no row could be simulated"]
    print("\n".join(lines))
    for (group, tp, error), count in sorted(failed.items()):
        print(f"not simulated: {count} rows of {group}, {tp}: {error}")
    output = arguments.output or (
        ROOT / f"bench/results/{time.strftime('%Y-%m-%d')}-silicon.json"
        if arguments.every == 1
        and not arguments.only
        and not extra
        and not arguments.suspect_cached
        and not arguments.budget
        else None
    )
    if output is not None:
        output.write_text(record_text(rows, results, done, round(time.monotonic() - started)))
        if arguments.output is None:
            write_into_page(ROOT / "docs/measurements/silicon.md", lines)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
