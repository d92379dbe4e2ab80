#!/usr/bin/env python3
"""Whole steps of Python engines that launch their kernels one by one, measured and predicted, with the kernels' times
only, and with the host's time.

  bench/validate/engine_steps.py --tactus build/release/tactus --data DIR [--rows]

DIR/profiles/e2e_splitwise.csv: decode steps and prompts of Llama-2-70B and BLOOM-176B on DGX machines (vLLM of 2023).
Decode steps of Llama-2-70B with tp 8 and up to 8 sequences are left out: a layer's launch time was fitted to them
(tools/cost/host_fit.py). sarathi_osdi_yi34b_a100_tp2.csv: steps of Sarathi-Serve's authors, Yi-34B on two A100; the
decodes' context is not stated: 1,024, the length of the prompts, is used.
"""

import argparse
import collections
import csv
import json
import pathlib
import statistics
import subprocess

MODELS = {"llama2-70b": "llama-2-70b", "bloom-176b": "bloom-176b"}
DEVICES = {"a100-80gb": "a100", "h100-80gb": "h100"}
KINDS = {
    "kernels": [],
    "vllm": ["--backend", "vllm", "--attention-kernels", "two"],
    "vllm-ray": ["--backend", "vllm-ray"],
}
YI_CONTEXT = 1024


def splitwise(data):
    """(name, flags, shape, measured ms)"""
    found = collections.defaultdict(list)
    with open(data / "profiles/e2e_splitwise.csv", newline="") as file:
        for r in csv.DictReader(file):
            if r["hardware"] not in DEVICES:
                continue  # reduced clocks
            tp, prompt, batch, output = (int(r[k]) for k in ("tp", "prompt_tokens", "batch_size", "output_tokens"))
            flags = (
                "--model",
                MODELS[r["model"]],
                "--device",
                DEVICES[r["hardware"]],
                "--tp",
                str(tp),
                "--override-context",
                "16384",
            )
            name = f"{MODELS[r['model']]}, {tp} {DEVICES[r['hardware']]}"
            found[f"{name}: prompts", flags, ("--chunk", f"{prompt}") * batch].append(float(r["prompt_ms"]))
            if r["model"] != "llama2-70b" or tp != 8 or batch > 8:
                found[f"{name}: decodes", flags, ("--decodes", f"{batch}x{prompt + output // 2}")].append(
                    float(r["token_ms"])
                )
    return [(*key, statistics.median(values)) for key, values in found.items()]


def sarathi_serve(data):
    with open(data / "profiles/sarathi_osdi_yi34b_a100_tp2.csv", newline="") as file:
        for r in csv.DictReader(file):
            flags = ("--model", "yi-34b", "--device", "a100-pcie", "--tp", "2", "--override-context", "32768")
            prompt, decodes = int(r["prefill_tokens"]), int(r["decode_tokens"])
            shape = (("--chunk", str(prompt)) if prompt else ()) + (
                ("--decodes", f"{decodes}x{YI_CONTEXT}") if decodes else ()
            )
            if r["experiment"].startswith("fig9") and r["chunk_size"] != "16384":
                continue  # several steps
            if r["experiment"] == "fig2_prefill" and prompt <= 256:
                continue  # its first step
            yield (
                "yi-34b, 2 a100: " + ("decodes" if not prompt else "prompts" if not decodes else "both"),
                flags,
                shape,
                float(r["exec_ms"]),
            )


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--tactus", required=True)
    parse.add_argument("--data", type=pathlib.Path, required=True)
    parse.add_argument("--rows", action="store_true", help="print every step")
    args = parse.parse_args()
    groups = collections.defaultdict(list)
    for name, flags, shape, measured in [*splitwise(args.data), *sarathi_serve(args.data)]:
        here = {}
        for kind, more in KINDS.items():
            done = subprocess.run(
                [args.tactus, "sim", "step", *flags, *shape, *more, "--json"],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            here[kind] = json.loads(done.stdout)["step_ms"]
        groups[name].append((measured, here))
        if args.rows:
            print(
                f"{name} {' '.join(shape[:2])} x {len(shape) // 2}: {measured:.1f} ms, "
                + ", ".join(f"{kind} {ms:.1f}" for kind, ms in here.items())
            )
    print("| steps | of | " + " | ".join(KINDS) + " |\n" + "|---" * (2 + len(KINDS)) + "|")
    groups["all"] = [row for rows in groups.values() for row in rows]
    for name, rows in groups.items():
        cells = []
        for kind in KINDS:
            ratios = [here[kind] / measured for measured, here in rows]
            cells.append(
                f"{100 * statistics.median(abs(r - 1) for r in ratios):.0f} % ({statistics.median(ratios):.2f})"
            )
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
