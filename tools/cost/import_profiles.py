#!/usr/bin/env python3
"""Operator samples out of a folder of public profiles (CSV; its README.md names each file's origin, version and
licence).

  tools/cost/import_profiles.py --data FOLDER/profiles -o CACHE/samples

Files, all per layer and one tensor-parallel rank, milliseconds:
- mlp_<device>.csv, attention_a100.csv, attention_a30.csv, network_*.csv: microsoft/vidur (MIT), torch-profiler kernel
times, fp16;
- layers_hf_<device>.csv, attention_{h100,a6000}.csv: casys-kaist/LLMServingSim (MIT), unfused Hugging Face layers: only
their matrix
  products are read, the norms and activations consist of several kernels each, unlike in a server;
- vllm_<kind>_<device>.csv: LLMServingSim's profiles of vLLM 0.19 (MIT), bf16.
The one known defect, h100_pairwise_nvlink/send_recv (a copy of a100's), is left out; a40's inter-GPU sends are PCIe and
kept as such.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import numpy as np
import pandas as pd
from samples import COLUMNS, Samples, merged

# The source of each device's samples; "vllm": the vLLM profiles.
DEVICES = ("a100", "a30", "a40", "a6000", "h100", "rtx3090", "rtx4090", "rtxpro6000")
# Mixtures, with the experts that a token uses.
CHOSEN = {"Qwen/Qwen3-30B-A3B-Instruct-2507": 8, "mistralai/Mixtral-8x7B-v0.1": 2}
MOE_MODELS = tuple(CHOSEN)


def read(folder: pathlib.Path, stem: str) -> pd.DataFrame | None:
    for name in (f"{stem}.csv", f"{stem}.csv.gz"):
        if (folder / name).exists():
            return pd.read_csv(folder / name)
    return None


class Profiles:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.models = pd.read_csv(folder / "models.csv").set_index("model")

    def architecture(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Adds the rank's hidden, q, kv, hd, ffn, gate (2 if gate and up are one product), vocab."""
        a = self.models.loc[rows["model"]].reset_index(drop=True)
        rows = rows.reset_index(drop=True)
        tp = rows["tp"]
        return rows.assign(
            hidden=a["hidden"],
            q=a["q_heads"] // tp,
            kv=np.maximum(1, a["kv_heads"] // tp),
            hd=a["head_dim"],
            ffn=a["ffn"] // tp,
            gate=a["gated_mlp"] + 1,
            vocab=-(-a["vocab"] // tp),
        )

    # --- linear layers ---
    @staticmethod
    def products(rows: pd.DataFrame, columns: dict[str, tuple], version: str) -> pd.DataFrame:
        parts = []
        for column, (n, k) in columns.items():
            if column in rows:
                parts.append(
                    pd.DataFrame(
                        {
                            "dtype": "bfloat16",
                            "m": rows["m"],
                            "n": n,
                            "k": k,
                            "us": rows[column] * 1e3,
                            "version": version,
                        }
                    )
                )
        out = pd.concat(parts).dropna()
        out = out[out["us"] > 0].astype({"m": int, "n": int, "k": int})
        return merged(out, "gemm")

    @staticmethod
    def elementwise(rows: pd.DataFrame, columns: dict[str, tuple], version: str) -> pd.DataFrame:
        parts = []
        for column, (op, size) in columns.items():
            if column in rows:
                parts.append(
                    pd.DataFrame(
                        {"op": op, "tokens": rows["m"], "bytes": size, "us": rows[column] * 1e3, "version": version}
                    )
                )
        out = pd.concat(parts).dropna()
        return merged(out[out["us"] > 0], "elementwise")

    def linear(self, device: str) -> dict[str, pd.DataFrame]:
        gemms, others = [], []
        mlp = read(self.folder, f"mlp_{device}")
        if mlp is not None:
            r = self.architecture(mlp).rename(columns={"num_tokens": "m"})
            qkv, size = (r["q"] + 2 * r["kv"]) * r["hd"], r["m"] * 2
            gemms.append(
                self.products(
                    r,
                    {
                        "attn_pre_proj_ms": (qkv, r["hidden"]),
                        "attn_post_proj_ms": (r["hidden"], r["q"] * r["hd"]),
                        "mlp_up_proj_ms": (r["gate"] * r["ffn"], r["hidden"]),
                        "mlp_down_proj_ms": (r["hidden"], r["ffn"]),
                    },
                    "vidur",
                )
            )
            gated = r[r["gate"] == 2]
            others.append(
                self.elementwise(
                    r,
                    {
                        "input_layernorm_ms": ("norm", 2 * r["hidden"] * size),
                        "add_ms": ("add", 3 * r["hidden"] * size),
                        "attn_rope_ms": ("rope", 2 * (r["q"] + r["kv"]) * r["hd"] * size),
                        "emb_ms": ("embed", 2 * r["hidden"] * size),
                    },
                    "vidur",
                )
            )
            others.append(self.elementwise(gated, {"mlp_act_ms": ("act", 3 * gated["ffn"] * gated["m"] * 2)}, "vidur"))
        hf = read(self.folder, f"layers_hf_{device}")
        if hf is not None:
            r = self.architecture(hf[~hf["model"].isin(MOE_MODELS)]).rename(columns={"num_tokens": "m"})
            gemms.append(
                self.products(
                    r,
                    {
                        "q_proj_ms": (r["q"] * r["hd"], r["hidden"]),
                        "k_proj_ms": (r["kv"] * r["hd"], r["hidden"]),
                        "o_proj_ms": (r["hidden"], r["q"] * r["hd"]),
                        "gate_proj_ms": (r["ffn"], r["hidden"]),
                        "down_proj_ms": (r["hidden"], r["ffn"]),
                        "lm_head_ms": (r["vocab"], r["hidden"]),
                    },
                    "hf",
                )
            )
        dense = read(self.folder, f"vllm_dense_{device}")
        if dense is not None:
            r = self.architecture(dense[~dense["model"].isin(MOE_MODELS)]).rename(columns={"num_tokens": "m"})
            qkv, size = (r["q"] + 2 * r["kv"]) * r["hd"], r["m"] * 2
            gemms.append(
                self.products(
                    r,
                    {
                        "qkv_proj_ms": (qkv, r["hidden"]),
                        "o_proj_ms": (r["hidden"], r["q"] * r["hd"]),
                        "gate_up_proj_ms": (2 * r["ffn"], r["hidden"]),
                        "down_proj_ms": (r["hidden"], r["ffn"]),
                    },
                    "vllm-0.19",
                )
            )
            others.append(
                self.elementwise(
                    r,
                    {
                        "layernorm_ms": ("norm", 4 * r["hidden"] * size),
                        "act_fn_ms": ("act", 3 * r["ffn"] * size),
                        "rotary_emb_ms": ("rope", 2 * (r["q"] + r["kv"]) * r["hd"] * size),
                        "embedding_ms": ("embed", 2 * r["hidden"] * size),
                    },
                    "vllm-0.19",
                )
            )
        sequences = read(self.folder, f"vllm_per_sequence_{device}")
        if sequences is not None:
            r = self.architecture(sequences[~sequences["model"].isin(MOE_MODELS)]).rename(columns={"num_seqs": "m"})
            gemms.append(self.products(r, {"lm_head_ms": (r["vocab"], r["hidden"])}, "vllm-0.19"))
            whole = r[r["tp"] == 1]
            others.append(
                self.elementwise(whole, {"sampler_ms": ("sample", whole["m"] * whole["vocab"] * 4)}, "vllm-0.19")
            )
        tables = {}
        if gemms:
            tables["gemm"] = merged(pd.concat(gemms), "gemm")
        if others:
            tables["elementwise"] = merged(pd.concat(others), "elementwise")
        return tables

    # --- attention ---
    def attention(self, device: str) -> dict[str, pd.DataFrame]:
        rows = read(self.folder, f"attention_{device}")
        if rows is not None:
            r = self.architecture(rows)
            version = "vidur" if device in ("a100", "a30") else "llmservingsim"
            base = r.assign(
                kv_dtype="bfloat16",
                batch=r["batch_size"],
                us=r["attn_ms"] * 1e3,
                version=version,
                chunk=r["prefill_chunk"],
                context=r["kv_cache"],
            )
            tables = {
                "prefill": merged(base[base["phase"] == "prefill"], "prefill"),
                "decode": merged(base[base["phase"] == "decode"], "decode"),
            }
            if "kv_cache_save_ms" in r and r["kv_cache_save_ms"].notna().any():
                save = r[r["kv_cache_save_ms"] > 0]
                tokens = np.where(save["phase"] == "prefill", save["prefill_chunk"], save["batch_size"])
                tables["elementwise"] = merged(
                    pd.DataFrame(
                        {
                            "op": "kv_write",
                            "tokens": tokens,
                            "bytes": 4 * save["kv"] * save["hd"] * tokens * 2,
                            "us": save["kv_cache_save_ms"] * 1e3,
                            "version": version,
                        }
                    ),
                    "elementwise",
                )
            return tables
        rows = read(self.folder, f"vllm_attention_{device}")
        if rows is None:
            return {}
        r = self.architecture(rows)
        base = r.assign(kv_dtype="bfloat16", us=r["attn_ms"] * 1e3, version="vllm-0.19")
        prefill = base[base["n_decode"] == 0].assign(batch=1, chunk=r["prefill_chunk"], context=r["kv_prefill"])
        decode = base[base["prefill_chunk"] == 0].assign(batch=r["n_decode"], context=r["kv_decode"])
        return {"prefill": merged(prefill, "prefill"), "decode": merged(decode, "decode")}

    # --- mixtures ---
    def experts(self, device: str) -> dict[str, pd.DataFrame]:
        rows = read(self.folder, f"vllm_moe_{device}")
        if rows is None:
            return {}
        r = self.architecture(rows)
        return {
            "experts": merged(
                pd.DataFrame(
                    {
                        "dtype": "bfloat16",
                        "hidden": r["hidden"],
                        "inner": r["ffn"],
                        "chosen": r["model"].map(CHOSEN),
                        "touched": r["activated_experts"],
                        "tokens": r["tokens"],
                        "us": r["moe_ms"] * 1e3,
                        "version": "vllm-0.19",
                    }
                ),
                "experts",
            )
        }

    # --- networks ---
    def network(self, device: str) -> dict[str, pd.DataFrame]:
        tables = {}
        reduce = read(self.folder, "network_all_reduce")
        rows = reduce[(reduce["node"] == f"{device}_dgx") & (reduce["num_workers"] == reduce["devices_per_node"])]
        if len(rows):
            tables["allreduce"] = merged(
                rows.assign(gpus=rows["num_workers"], us=rows["all_reduce_ms"] * 1e3, version="vidur"), "allreduce"
            )
        send = read(self.folder, "network_send_recv")
        rows = send[
            (send["node"] == f"{device}_dgx") & (send["devices_per_node"] == 2)
        ]  # a40's used PCIe: devices.json, peer_gbps
        if len(rows):
            tables["sendrecv"] = merged(rows.assign(us=rows["send_recv_ms"] * 1e3, version="vidur"), "sendrecv")
        return tables

    def load(self, device: str) -> Samples | None:
        tables = self.linear(device)
        for more in (self.experts(device), self.attention(device), self.network(device)):
            for kind, rows in more.items():
                tables[kind] = merged(pd.concat([tables[kind], rows]), kind) if kind in tables else rows
        if not tables:
            return None
        tables = {kind: rows[COLUMNS[kind]] for kind, rows in tables.items()}
        versions = sorted({v for t in tables.values() for v in t["version"].unique()})
        names = {
            "vidur": "microsoft/vidur 7d47513 (MIT)",
            "hf": "casys-kaist/LLMServingSim 5daddb2 (MIT)",
            "llmservingsim": "casys-kaist/LLMServingSim 5daddb2 (MIT)",
            "vllm-0.19": "casys-kaist/LLMServingSim 5daddb2 (MIT), vLLM 0.19",
        }
        source = "; ".join(dict.fromkeys(names[v] for v in versions))
        return Samples(device, "profile", f"profiles of {source}", tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder of the CSV files")
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, required=True, help="folder for the CSV files (outside the repository)"
    )
    arguments = parser.parse_args()
    profiles = Profiles(arguments.data)
    for device in DEVICES:
        samples = profiles.load(device)
        if samples is not None:
            samples.write(arguments.output)
            print(f"{device}: {samples.source}", {kind: len(t) for kind, t in samples.tables.items()}, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
