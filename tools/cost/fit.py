#!/usr/bin/env python3
"""Operator samples to coefficient files data/cost/<fit>[-<backend>].cost.json, with their leave-out errors, and the table of all errors.

  tools/cost/fit.py --wheel aiconfigurator_core-0.12.0-*.whl --data FOLDER/profiles [--only h100-vllm ...]

writes data/cost/*.cost.json and docs/measurements/cost_model_fits.md. The table PLAN below has the source of each part.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import textwrap

import attention_fit as attention
import data_file
import exchange_fit
import experts_fit
import gemm_fit as gemm
import numpy as np
import pandas as pd
from curves import fit_curve, number
from devices import DATA, ROOT, Device, devices
from import_aiconfigurator import BACKENDS, SYSTEMS, Wheel
from import_aiconfigurator import load as load_package
from import_profiles import Profiles
from samples import Samples, merged

MOST_SHAPES, ENOUGH = 80, 0.03
TWINS = {
    "h100": "h200",
    "h200": "h100",
    "b200": "b300",
    "b300": "b200",
    "gb200": "b200",
    "a100": "h100",
    "l40s": "rtxpro6000",
    "rtxpro6000": "l40s",
}

# Fits of devices without tables in the package: the source of each operator. "profile": the device's own; a device's
# name: that device's efficiencies (another part of the same generation), checked by the `device` errors of the parts
# that have both.
PLAN = {
    "a30": {"gemm": "profile", "attention": "profile"},
    "a40": {"gemm": "profile", "attention": "a100"},
    "a6000": {
        "gemm": "profile",
        "attention": "a100",
    },  # its profile's decode times beat the memory's bandwidth 8 times over
    "rtx3090": {"gemm": "profile", "attention": "a100"},
    "rtx4090": {"gemm": "profile", "attention": "profile"},
    "l4": {"gemm": "l40s", "attention": "l40s"},
}
# Kernels of current servers, which have no table in the package: overheads of vLLM 0.19 (profile of the RTX PRO 6000)
# and the rate of a plain streaming kernel. `add` is fused into the norm there.
ELEMENTWISE_FROM, STREAM_EFFICIENCY = "rtxpro6000", 0.8


TABLES = (
    "gemm",
    "experts",
    "prefill",
    "prefill_alone",
    "decode",
    "elementwise",
    "allreduce",
    "exchange",
    "sendrecv_us",
)  # in the file's order


def places(value: float) -> float | int:
    rounded = round(float(value), 4)
    return int(rounded) if rounded == int(rounded) else rounded


@dataclasses.dataclass
class Fit:
    name: str  # file stem
    device: Device
    backend: str
    sources: list[str]
    tables: dict[str, list]
    errors: list[tuple[str, str, np.ndarray]]

    def error(self, op: str, kind: str, values: np.ndarray) -> None:
        if len(values):
            self.errors.append((op, kind, values))

    def add(self, tables: dict[str, list]) -> None:
        for name, records in tables.items():
            self.tables.setdefault(name, []).extend(records)

    def document(self) -> dict:
        errors = [
            {
                "op": op,
                "left_out": kind,
                "median": places(np.median(v)),
                "p90": places(np.percentile(v, 90)),
                "rows": len(v),
            }
            for op, kind, v in self.errors
        ]
        head = {"tactus_cost": 2, "device": self.device.name} | ({"backend": self.backend} if self.backend else {})
        return data_file.in_order(
            head
            | {"sources": self.sources, "errors": errors, "floor_us": number(self.device.floor_us)}
            | {t: self.tables[t] for t in TABLES if t in self.tables}
        )


def fit_gemm(fit: Fit, rows: pd.DataFrame, twin: tuple[Device, pd.DataFrame] | None) -> None:
    pooled: dict[str, list[np.ndarray]] = {}
    for dtype in sorted(rows["dtype"].unique()):
        products = gemm.gather(fit.device, dtype, rows)
        if products is None:
            continue
        curves = gemm.records(products, gemm.choose(products, MOST_SHAPES, ENOUGH))
        table = gemm.parse(curves, fit.device, dtype)
        miss = gemm.relative(gemm.predict(table, fit.device, dtype, products.raw), products.raw["us"].to_numpy())
        inside = np.array([(n, k) in table for n, k in zip(products.raw["n"], products.raw["k"])])
        parts = {
            "fit": miss[inside],
            "shape": miss[~inside],
            "model": gemm.leave_out_models(products),
            "region": gemm.leave_out_bands(products),
        }
        if twin is not None and (other := gemm.gather(twin[0], dtype, twin[1])) is not None:
            parts["device"] = gemm.from_device(products, other)
        for kind, values in parts.items():
            fit.error(f"gemm.{dtype}", kind, values)
            pooled.setdefault(kind, []).append(values)
        fit.add({"gemm": curves})
    for kind, values in pooled.items():
        fit.error("gemm", kind, np.concatenate(values))


def fit_attention(
    fit: Fit, tables: dict[str, pd.DataFrame], twin: tuple[Device, dict[str, pd.DataFrame]] | None
) -> None:
    for kind, name in ((attention.Prefill, "prefill"), (attention.Decode, "decode")):
        rows = tables.get(name)
        if rows is None or not len(rows):
            continue
        pooled: dict[str, list[np.ndarray]] = {}
        for kv_dtype in sorted(rows["kv_dtype"].unique()):
            fitted = attention.fit(kind, fit.device, rows, kv_dtype)
            parts = attention.errors(kind, fitted, rows, kv_dtype)
            if twin is not None and name in twin[1]:
                parts["device"] = attention.from_device(
                    kind, fitted, attention.fit(kind, twin[0], twin[1][name], kv_dtype), rows, kv_dtype
                )
            for error_kind, values in parts.items():
                pooled.setdefault(error_kind, []).append(values)
            for own in fitted.values():
                fit.add(own.records())
        for error_kind, values in pooled.items():
            fit.error(name, error_kind, np.concatenate(values))


def fit_network(fit: Fit, tables: dict[str, pd.DataFrame]) -> None:
    for op in ("allreduce", "exchange"):
        if op in tables:
            curves = {int(gpus): fit_curve(rows) for gpus, rows in tables[op].groupby("gpus")}
            fit.add({op: [{"gpus": gpus, "us": knots} for gpus, (knots, _) in curves.items()]})
            fit.error(op, "region", np.concatenate([miss for _, miss in curves.values()]))
    if "sendrecv" in tables:
        knots, miss = fit_curve(tables["sendrecv"])
        fit.add({"sendrecv_us": knots})
        fit.error("sendrecv", "region", miss)


def elementwise_records(device: Device, rows: pd.DataFrame, modern: bool) -> list[dict]:
    """Overhead: the median of up to 16 tokens. Efficiency: of the largest quarter, without the overhead, at most 1; for
    a current server that of a stream, because the profile's sizes fit that device's cache."""
    records = []
    for op, r in rows.groupby("op"):
        overhead = r[r["tokens"] <= 16]["us"].median()
        large = r[r["bytes"] >= r["bytes"].quantile(0.75)]
        efficiency = float(
            np.median(large["bytes"] / device.bandwidth * 1e6 / np.maximum(large["us"] - overhead / 2, 1e-3))
        )
        if modern and op != "sample":
            efficiency = STREAM_EFFICIENCY
        records.append({"op": op, "overhead_us": number(overhead), "efficiency": number(min(efficiency, 1.0))})
    return records


def add_elementwise(fit: Fit, own: Samples | None, modern: Samples) -> None:
    if own is not None and "elementwise" in own.tables and fit.name in ("a30", "a40", "rtx4090"):
        records = elementwise_records(fit.device, own.table("elementwise"), fit.name == "rtx4090")
        source = own.source
    else:
        records, source = (
            elementwise_records(devices()[ELEMENTWISE_FROM], modern.table("elementwise"), True),
            modern.source,
        )
    known = {r["op"] for r in records}
    if "sample" not in known:
        records += [
            r
            for r in elementwise_records(devices()[ELEMENTWISE_FROM], modern.table("elementwise"), True)
            if r["op"] == "sample"
        ]
    if "kv_write" not in known:  # a scatter like the rotary embedding: one read, one write
        records.append(next(r for r in records if r["op"] == "rope") | {"op": "kv_write"})
    fit.sources.append(f"elementwise: {source}")
    fit.add({"elementwise": sorted(records, key=lambda r: r["op"])})


def moved(device: Device, donor: Device, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The donor's samples converted to this device with the same efficiencies."""
    out = {}
    if "gemm" in tables:
        rows = tables["gemm"]
        us = np.empty(len(rows))
        for dtype in rows["dtype"].unique():
            at = (rows["dtype"] == dtype).to_numpy()
            m, n, k = (rows.loc[at, c].to_numpy(float) for c in "mnk")
            us[at] = rows.loc[at, "us"] * (
                (gemm.roofline_us(device, dtype, m, n, k) + device.floor_us)
                / (gemm.roofline_us(donor, dtype, m, n, k) + donor.floor_us)
            )
        out["gemm"] = rows.assign(us=us)
    for name in ("prefill", "decode"):
        if name not in tables:
            continue
        rows = tables[name]
        floor = rows.groupby(["q", "kv", "hd", "kv_dtype"])["us"].transform("min")
        size = rows["kv_dtype"].map({"bfloat16": 2.0, "fp8": 1.0})
        if name == "decode":
            ratio = donor.bandwidth / device.bandwidth
        else:
            flops, data = (
                4 * rows["q"] * rows["hd"] * rows["chunk"] * (rows["context"] + rows["chunk"] / 2),
                2 * rows["kv"] * rows["hd"] * size * (rows["context"] + rows["chunk"]),
            )
            ratio = np.maximum(flops / device.bf16, data / device.bandwidth) / np.maximum(
                flops / donor.bf16, data / donor.bandwidth
            )
        out[name] = rows.assign(us=floor + (rows["us"] - floor) * ratio)
    return out


class Fitter:
    def __init__(self, wheel: Wheel, profiles: Profiles):
        self.wheel, self.profiles, self.table = wheel, profiles, devices()
        self.package_cache: dict[tuple[str, str], Samples | None] = {}
        self.modern = profiles.load(ELEMENTWISE_FROM)

    def package(self, device: str, backend: str) -> Samples | None:
        key = (device, backend)
        if key not in self.package_cache:
            self.package_cache[key] = load_package(self.wheel, device, backend)
        return self.package_cache[key]

    def from_package(self, device: str, backend: str) -> Fit:
        samples, own = (
            self.package(device, backend),
            self.profiles.load(device) if device in ("a100", "h100", "rtxpro6000") else None,
        )
        fit = Fit(
            device if backend == "vllm" else f"{device}-{backend}",
            self.table[device],
            backend,
            [samples.source],
            {},
            [],
        )
        twin = self.package(TWINS[device], backend)
        twin_device = self.table[TWINS[device]]
        rows = samples.table("gemm")
        if own is not None and backend == "vllm" and device in ("a100", "h100"):
            # The package's grid ends at 16384 except for two widths: products of 70B models come from the profile. Both
            # overlap elsewhere, and the fits page shows their differences.
            extra = own.table("gemm")
            wide = extra[(extra["version"] == "vidur") & (extra[["n", "k"]].max(axis=1) > 16384)]
            rows = merged(pd.concat([rows, wide]), "gemm")
            fit.sources.append(f"gemm with n or k beyond 16384: {own.source}")
            both = samples.table("gemm").query("dtype == 'bfloat16'").merge(extra, on=["m", "n", "k"])
            fit.error("gemm.bfloat16", "source", np.abs(both["us_x"] / both["us_y"] - 1).to_numpy())
        if device not in ("h100", "h200", "b200"):
            rows = rows[rows["dtype"] != "fp8_static"]  # saves 12 KB per file
        fit_gemm(fit, rows, (twin_device, twin.table("gemm")))
        tables = dict(samples.tables)
        if device == "rtxpro6000" and backend == "vllm":
            behind = own.table("prefill")
            behind = behind[(behind["context"] > 0) & behind["q"].isin(tables["prefill"]["q"])]
            tables["prefill"] = pd.concat([tables["prefill"], behind])
            fit.sources.append(f"prefill behind a context: {own.source}")
        fit_attention(fit, tables, (twin_device, twin.tables))
        network = {k: v for k, v in samples.tables.items() if k in ("allreduce", "exchange")}
        if "exchange" in network:
            fit.sources.append(exchange_fit.source_of(samples))
        if own is not None and "sendrecv" in own.tables:
            network["sendrecv"] = own.table("sendrecv")
            fit.sources.append(f"sendrecv: {own.source}")
        fit_network(fit, network)
        add_elementwise(fit, own, self.modern)
        if own is not None and "experts" in own.tables and backend == "vllm":
            curves, errors = experts_fit.records(own.table("experts"), experts_fit.CACHE_BYTES[device])
            fit.add({"experts": curves})
            fit.error("experts", "region", errors)
            fit.sources.append(experts_fit.source_of(own))
        return fit

    def from_plan(self, device: str) -> Fit:
        plan, own = (
            PLAN[device],
            self.profiles.load(device) if device in ("a30", "a40", "a6000", "rtx3090", "rtx4090") else None,
        )
        fit = Fit(device, self.table[device], "", [], {}, [])
        tables, names = {}, {}
        for part, kinds in (("gemm", ("gemm",)), ("attention", ("prefill", "decode"))):
            if plan[part] == "profile":
                source, origin = own.source, own.tables
            else:
                donor = self.package(plan[part], "vllm")
                source = f"efficiencies of {plan[part]}: {donor.source}"
                origin = moved(fit.device, self.table[plan[part]], donor.tables)
            for kind in kinds:
                tables[kind] = origin[kind]
            names[part] = source
        fit.sources = [f"{part}: {source}" for part, source in names.items()]
        fit_gemm(fit, tables["gemm"], None)
        fit_attention(fit, {k: tables[k] for k in ("prefill", "decode")}, None)
        add_elementwise(fit, own, self.modern)
        return fit


def targets() -> list[tuple[str, str]]:
    backends = [(d, b) for d in SYSTEMS for b in BACKENDS if b == "vllm" or d in ("h100", "h200", "b200")]
    return backends + [(d, "") for d in PLAN]


SOURCES = """## Which source for what

| devices | products, attention, all-reduce | why |
|---|---|---|
| a100 h100 h200 b200 b300 gb200 l40s rtxpro6000 | the package's tables of vLLM; for h100, h200, b200 also of TensorRT-LLM and SGLang in files of their own | kernels of today's servers, 50 head geometries, KV and weights in 8 bits |
| a100, h100: products with n or k beyond 16,384; sends | profile (vidur) | the package's grid has only 51,200 and 65,536 there, and no sends. Where both measured one product they are *source* apart, below |
| those: the exchange of experts' tokens | the package's table of NCCL, whatever the backend | vLLM exchanges them with NCCL |
| rtxpro6000: experts | profile (vLLM 0.19, Qwen3-30B-A3B) | the package's tables of mixtures are not read |
| rtxpro6000: prefill behind a context | profile (vLLM 0.19) | the package measured context 0 only. Elsewhere a context costs what long prompts cost per query and key |
| a30, rtx4090 | profile | not in the package |
| a40 a6000 rtx3090 | products from the profile, attention with a100's efficiencies | no usable attention: the a6000 and h100 profiles of one source have decode times that do not depend on the context and beat the memory's bandwidth eight times over |
| l4 | l40s's efficiencies | nothing was measured; the same generation |
"""
NOT_USED = """\
Not used: a100's profile of attention (one geometry, an older kernel that reaches 0.19 of the peak at 4,096 tokens), the profiles' all-reduces (NCCL started from the host: 20-60 us at
any size), norms and activations of unfused Hugging Face layers, the package's all-reduces without graphs and vLLM's `fp8_block` (three kernels under one name, without graphs).
Small operators are nowhere in the package: their overheads are vLLM 0.19's on an RTX PRO 6000 (profile), their rate 80 % of the bandwidth; a30 and a40 have their own.
"""


def paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def error_page(files: dict[str, dict], wheel: Wheel) -> str:
    twins = ", ".join(f"{a} from {b}" for a, b in TWINS.items())
    intro = (
        f"Written by `tools/cost/fit.py` together with the files in `data/cost/` (aiconfigurator-core {wheel.version}"
        " and public profiles). Relative errors of operator times, median / 90th percentile in percent, rows in"
        " brackets. *fit*: measured rows of what the file holds. *shape*: shapes (n, k) or head geometries that the"
        " file does not hold, met through their neighbours. *model*: every known model's shapes, at every tp, hidden"
        " in turn. *region*: a band of m, of the chunk or of the context hidden and refitted. *device*: predicted with"
        f" the efficiencies of the nearest other device ({twins}). *source*: the package against the profile where both"
        " measured one product. Sources and licences are in each file's head."
    )
    out = [
        "# How far the fitted operator times are off",
        "",
        *paragraph(intro),
        "",
        *SOURCES.splitlines(),
        "",
        *paragraph(NOT_USED),
        "",
    ]
    ops = ["gemm", "experts", "prefill", "decode", "allreduce", "exchange", "sendrecv"]
    kinds = {
        "gemm": ["fit", "shape", "model", "region", "device"],
        "experts": ["region"],
        "prefill": ["fit", "shape", "region", "device"],
        "decode": ["fit", "shape", "region", "device"],
        "allreduce": ["region"],
        "exchange": ["region"],
        "sendrecv": ["region"],
    }
    parsed = {
        name: {(e["op"], e["left_out"]): (e["median"], e["p90"], e["rows"]) for e in document["errors"]}
        for name, document in files.items()
    }
    cell = lambda e: "" if e is None else f"{100 * e[0]:.1f} / {100 * e[1]:.1f} ({e[2]:,})"
    for op in ops:
        held = {n: e for n, e in parsed.items() if any(o == op for o, _ in e)}
        if not held:
            continue
        out += [f"## {op}", "", "| file | " + " | ".join(kinds[op]) + " |", "|---|" + "---|" * len(kinds[op])]
        out += [
            f"| {name} | " + " | ".join(cell(errors.get((op, kind))) for kind in kinds[op]) + " |"
            for name, errors in sorted(held.items())
        ]
        out.append("")
    out += [
        "## gemm by dtype",
        "",
        "| file | dtype | " + " | ".join(kinds["gemm"]) + " | source |",
        "|---|---|" + "---|" * 6,
    ]
    for name, errors in sorted(parsed.items()):
        for dtype in sorted({o.split(".")[1] for o, _ in errors if o.startswith("gemm.")}):
            out.append(
                f"| {name} | {dtype} | "
                + " | ".join(cell(errors.get((f"gemm.{dtype}", kind))) for kind in [*kinds["gemm"], "source"])
                + " |"
            )
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the public profiles")
    parser.add_argument(
        "--only",
        nargs="*",
        help="files to write, such as h100 or b200-trtllm; the error page then covers what is there",
    )
    parser.add_argument("-o", "--output", type=pathlib.Path, default=DATA)
    arguments = parser.parse_args()
    fitter = Fitter(Wheel(arguments.wheel), Profiles(arguments.data))
    for device, backend in targets():
        name = device if backend in ("", "vllm") else f"{device}-{backend}"
        if arguments.only and name not in arguments.only:
            continue
        fit = fitter.from_package(device, backend) if backend else fitter.from_plan(device)
        data_file.write(arguments.output / f"{name}.cost.json", fit.document())
        print(
            f"{name}: {len(data_file.text_of(fit.document())):,} bytes, "
            + ", ".join(
                f"{op} {kind} {100 * np.median(v):.1f}/{100 * np.percentile(v, 90):.1f} %"
                for op, kind, v in fit.errors
                if "." not in op
            ),
            file=sys.stderr,
        )
    files = {p.name.removesuffix(".cost.json"): data_file.read(p) for p in sorted(arguments.output.glob("*.cost.json"))}
    if arguments.output == DATA:
        (ROOT / "docs/measurements/cost_model_fits.md").write_text(error_page(files, fitter.wheel))
    return 0


if __name__ == "__main__":
    sys.exit(main())
