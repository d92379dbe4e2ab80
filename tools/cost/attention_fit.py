"""Attention: converts measured kernel times to `prefill`, `prefill_alone` and `decode` records, with their errors.

Prefill. A kernel that computes chunks c_i after contexts x_i takes max(t0 + sum g(c_i, x_i), max alone(c_i, x_i)): g is
the time of an additional chunk once the device is full, alone is the time with that chunk only, t0 the kernel's minimum
time. Both grow linearly in the context: g by the chunk's arithmetic at the rate that long prompts reach, alone by the
same or, for chunks too short to fill the device, by as much as a chunk that just fills it. The package's tables have
only context 0; if a profile measured chunks after a context, both rates come from it.

Decode. Time by batch and context, monotone in both; beyond the measured contexts at the best measured rate.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from curves import monotone, pairs, pick_knots
from devices import KV_BYTES, Device, models

FAR = 16384  # the second context of a prefill record; linear in between and beyond
REACH = 131072  # the last context of a decode record
QUERY_TILE = 128
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_KNOTS = 9
WORST_KNOT_ERROR = 0.03


def prefill_roofline_us(device: Device, q, kv, hd, kv_dtype, chunk, context):
    chunk, context = np.asarray(chunk, float), np.asarray(context, float)
    return (
        np.maximum(
            4 * q * hd * chunk * (context + chunk / 2) / device.bf16,
            2 * kv * hd * KV_BYTES[kv_dtype] * (context + chunk) / device.bandwidth,
        )
        * 1e6
    )


def decode_roofline_us(device: Device, kv, hd, kv_dtype, batch, context):
    return (
        np.asarray(batch, float)
        * np.asarray(context, float)
        * 2
        * kv
        * hd
        * KV_BYTES[kv_dtype]
        / device.bandwidth
        * 1e6
    )


def geometries(rows: pd.DataFrame) -> list[tuple[int, int, int]]:
    """(q, kv, hd) of known models at any tp, and the extremes of the others, so that every geometry has a neighbour."""
    wanted = {
        (m.q_heads // tp, max(1, m.kv_heads // tp), m.head_dim)
        for m in models().values()
        for tp in (1, 2, 4, 8)
        if m.q_heads % tp == 0
    }
    measured = sorted(set(zip(rows["q"], rows["kv"], rows["hd"])))
    chosen = [g for g in measured if g in wanted]
    if len(chosen) < 4:
        chosen = measured
    extra = [g for g in ((64, 8, 64), (8, 1, 64)) if g in measured]
    return sorted({*chosen, *extra})


def heads(fitted) -> dict:
    return {
        "q_heads": int(fitted.q),
        "kv_heads": int(fitted.kv),
        "head_dim": int(fitted.hd),
        "kv_dtype": fitted.kv_dtype,
    }


class Prefill:
    """One geometry's curves: chunk -> alone and g at context 0, and their slopes in the context."""

    def __init__(self, device: Device, geometry, kv_dtype: str, rows: pd.DataFrame):
        self.device, (self.q, self.kv, self.hd), self.kv_dtype = device, geometry, kv_dtype
        first = (
            rows[rows["context"] == 0]
            if (rows["context"] == 0).any()
            else rows[rows["context"] == rows["context"].min()]
        )
        alone = first[first["batch"] == 1].sort_values("chunk")
        self.chunk = alone["chunk"].to_numpy(float)
        self.alone = monotone(self.chunk, alone["us"].to_numpy())
        self.t0 = self.alone[0]
        self.many = self._many(first)
        self.rate = self._rate(rows)  # us per context token and chunk token, device full
        self.least_rate = self._least_rate(rows)  # us per context token of a chunk that leaves the device part empty

    def roofline(self, chunk, context):
        return prefill_roofline_us(self.device, self.q, self.kv, self.hd, self.kv_dtype, chunk, context)

    def _many(self, first: pd.DataFrame) -> np.ndarray:
        """g by chunk: the slope of time over batch once the batch fills the device; if only batch 1 was measured, the
        chunk's time minus t0, once it fills the device."""
        slope = []
        for chunk, own in zip(self.chunk, self.alone):
            b = first[(first["chunk"] == chunk) & (first["batch"] > 1)].sort_values("batch").tail(3)
            fill = QUERY_TILE * self.device.sms / self.q
            if len(b):
                slope.append(float(np.median((b["us"] - self.t0) / b["batch"])))
            else:
                slope.append(max(own - self.t0, 0.0) * min(1.0, max(chunk, QUERY_TILE) / fill))
        least = self.roofline(self.chunk, 0) / 2
        return monotone(self.chunk, np.maximum(np.asarray(slope), np.maximum(least, 1e-3)))

    def _rate(self, rows: pd.DataFrame) -> float:
        flops = 4 * self.q * self.hd / self.device.bf16 * 1e6
        behind = rows[
            (rows["context"] >= 1024) & (rows["batch"] == 1) & (rows["chunk"] * self.q >= QUERY_TILE * self.device.sms)
        ]
        if len(behind) >= 8:
            at_zero = np.interp(behind["chunk"], self.chunk, self.alone)
            rates = (behind["us"] - at_zero) / (behind["context"] * behind["chunk"])
            return float(np.median(rates[rates > 0]))
        long = self.chunk >= min(4096, self.chunk[-1])
        return float(np.median(self.many[long] / (flops * self.chunk[long] ** 2 / 2)) * flops)

    def _least_rate(self, rows: pd.DataFrame) -> float:
        behind = rows[(rows["context"] >= 1024) & (rows["batch"] == 1) & (rows["chunk"] <= 64) & (rows["chunk"] > 1)]
        if len(behind) >= 8:
            rates = (behind["us"] - self.t0) / behind["context"]
            return float(np.median(rates[rates > 0]))
        return self.rate * QUERY_TILE * self.device.sms / self.q

    def g(self, chunk, context):
        base = np.exp(np.interp(np.log(chunk), np.log(self.chunk), np.log(self.many)))
        beyond = np.asarray(chunk, float) > self.chunk[-1]
        base = np.where(beyond, self.many[-1] * self.roofline(chunk, 0) / self.roofline(self.chunk[-1], 0), base)
        return base + self.rate * np.asarray(chunk, float) * np.asarray(context, float)

    def alone_us(self, chunk, context):
        base = np.exp(np.interp(np.log(chunk), np.log(self.chunk), np.log(self.alone)))
        slope = np.maximum(
            self.rate * np.asarray(chunk, float),
            np.minimum(self.least_rate, self.rate * QUERY_TILE * self.device.sms / self.q),
        )
        return base + slope * np.asarray(context, float)

    def predict(self, batch, chunk, context) -> np.ndarray:
        return np.maximum(self.t0 + np.asarray(batch) * self.g(chunk, context), self.alone_us(chunk, context))

    def records(self) -> dict[str, list[dict]]:
        logs, out = np.log2(self.chunk), {"prefill": [], "prefill_alone": []}
        for context in (0, FAR):
            g, alone = self.g(self.chunk, context), self.alone_us(self.chunk, context)
            a = pick_knots(logs, np.log(g) + 20, WORST_KNOT_ERROR / 20, MOST_KNOTS)
            b = pick_knots(logs, np.log(alone) + 20, WORST_KNOT_ERROR / 20, MOST_KNOTS)
            head = heads(self) | {"context": context}
            out["prefill"].append(
                head | {"efficiency": pairs(self.chunk[a], self.roofline(self.chunk[a], context) / g[a])}
            )
            out["prefill_alone"].append(head | {"us": pairs(self.chunk[b], alone[b])})
        return out


class Decode:
    """One geometry's times on a grid of batch x context, extrapolated along the context after the last measurement."""

    def __init__(self, device: Device, geometry, kv_dtype: str, rows: pd.DataFrame):
        self.device, (self.q, self.kv, self.hd), self.kv_dtype = device, geometry, kv_dtype
        rows = rows[rows["context"] >= 1]
        counts = rows.groupby("batch")["context"].nunique()
        measured = [b for b in sorted(rows["batch"].unique()) if counts[b] >= 3]
        self.batch = np.asarray(_thin(measured), float)
        self.curves = {}
        for b in self.batch:
            g = rows[rows["batch"] == b].sort_values("context")
            self.curves[b] = (g["context"].to_numpy(float), monotone(g["context"].to_numpy(), g["us"].to_numpy()))
        self._raise_by_batch()
        self._extend()

    def _extend(self) -> None:
        """Beyond the measured range the kernel streams KV at the best measured rate; the last knot, at REACH,
        represents this."""
        efficiency = np.concatenate([self.roofline(b, x) / us for b, (x, us) in self.curves.items()])
        work = np.concatenate([self.roofline(b, x) for b, (x, us) in self.curves.items()])
        best = float(np.median(efficiency[work >= np.quantile(work, 0.9)]))
        self.measured = {b: c[0][-1] for b, c in self.curves.items()}
        for b, (x, us) in self.curves.items():
            if x[-1] < REACH:
                far = us[-1] + (self.roofline(b, REACH) - self.roofline(b, x[-1])) / best
                self.curves[b] = (np.append(x, REACH), np.append(us, far))

    def roofline(self, batch, context):
        return decode_roofline_us(self.device, self.kv, self.hd, self.kv_dtype, batch, context)

    def _raise_by_batch(self) -> None:
        for low, high in zip(self.batch, self.batch[1:]):
            x, us = self.curves[high]
            self.curves[high] = (
                x,
                np.maximum.accumulate(
                    np.maximum(us, np.where(x <= self.curves[low][0][-1], np.interp(x, *self.curves[low]), 0))
                ),
            )

    def _at(self, batch: float, context: np.ndarray) -> np.ndarray:
        x, us = self.curves[batch]
        beyond = us[-1] * context / x[-1]  # the last efficiency applies
        return np.where(context > x[-1], beyond, np.interp(context, x, us))

    def predict(self, batch, context) -> np.ndarray:
        """Linear in context within a batch's curve, linear in batch between curves; beyond the largest batch in
        proportion."""
        batch, context = np.asarray(batch, float), np.asarray(context, float)
        table = np.stack([self._at(b, context) for b in self.batch])
        hi = (
            np.clip(np.searchsorted(self.batch, batch), 1, len(self.batch) - 1)
            if len(self.batch) > 1
            else np.zeros(len(batch), int)
        )
        lo = np.maximum(hi - 1, 0)
        columns = np.arange(len(batch))
        if len(self.batch) == 1:
            return table[0] * np.maximum(1, batch / self.batch[0])
        share = np.clip((batch - self.batch[lo]) / (self.batch[hi] - self.batch[lo]), 0, 1)
        us = table[lo, columns] * (1 - share) + table[hi, columns] * share
        return us * np.maximum(1, batch / self.batch[-1])

    def records(self) -> dict[str, list[dict]]:
        out = []
        for b in self.batch:
            x, us = self.curves[b]
            knots = pick_knots(x, us, WORST_KNOT_ERROR, MOST_KNOTS)
            eff = self.roofline(b, x[knots]) / us[knots]
            out.append(heads(self) | {"batch": int(b), "efficiency": pairs(x[knots], eff)})
        return {"decode": out}


def _thin(batches: list[int]) -> list[int]:
    """Powers of two if measured, else every batch; always the smallest and largest."""
    powers = [b for b in batches if b in BATCHES]
    chosen = powers if len(powers) >= 4 else batches[:: max(1, len(batches) // 12)]
    return sorted({*chosen, batches[0], batches[-1]})


def fit(kind, device: Device, rows: pd.DataFrame, kv_dtype: str) -> dict[tuple[int, int, int], Prefill | Decode]:
    out = {}
    for geometry in geometries(rows[rows["kv_dtype"] == kv_dtype]):
        own = rows[
            (rows["kv_dtype"] == kv_dtype)
            & (rows["q"] == geometry[0])
            & (rows["kv"] == geometry[1])
            & (rows["hd"] == geometry[2])
        ]
        if (
            kind is Prefill
            and own[own["batch"] == 1]["chunk"].nunique() < 4
            or kind is Decode
            and not (own.groupby("batch")["context"].nunique() >= 3).any()
        ):
            continue
        out[geometry] = kind(device, geometry, kv_dtype, own)
    return out


# --- errors where nothing was measured ---


def nearest(geometry, others):
    """The geometry whose efficiency replaces that of a missing one: nearest in (log kv, log q/kv, log hd)."""
    point = lambda g: np.log([g[1], g[0] / g[1], g[2] ** 2])
    return min(others, key=lambda o: (float(((point(geometry) - point(o)) ** 2).sum()), o))


def moved_prefill(source: Prefill, geometry, chunk, context, batch):
    q, kv, hd = geometry
    own = prefill_roofline_us(source.device, q, kv, hd, source.kv_dtype, chunk, context)
    scale = own / source.roofline(chunk, context)
    return np.maximum(
        source.t0 + batch * source.g(chunk, context) * scale,
        source.t0 + (source.alone_us(chunk, context) - source.t0) * scale,
    )


def moved_decode(source: Decode, geometry, batch, context):
    """KV heads times sequences fill the device: more heads equal more sequences with fewer heads."""
    sequences = np.asarray(batch, float) * geometry[1] / source.kv
    floor = min(c[1][0] for c in source.curves.values())
    part = np.minimum(1, sequences / source.batch[0]) * geometry[2] / source.hd
    return floor + (source.predict(sequences, context) - floor) * part


def rows_of(rows: pd.DataFrame, geometry, kv_dtype: str) -> pd.DataFrame:
    q, kv, hd = geometry
    return rows[(rows["q"] == q) & (rows["kv"] == kv) & (rows["hd"] == hd) & (rows["kv_dtype"] == kv_dtype)]


def errors(kind, fitted, rows: pd.DataFrame, kv_dtype: str) -> dict[str, np.ndarray]:
    """The fit's error; the error by shape (the nearest other geometry replaces each one); the error by region (a band
    of chunks or contexts is hidden and the fit repeated)."""
    out = {"fit": [], "shape": [], "region": []}
    for geometry, own in fitted.items():
        r = rows_of(rows, geometry, kv_dtype)
        c = (
            r["batch"].to_numpy(float),
            *([r["chunk"].to_numpy(float)] if kind is Prefill else []),
            r["context"].to_numpy(float),
        )
        out["fit"].append(np.abs(own.predict(*c) / r["us"] - 1))
        others = [g for g in fitted if g != geometry]
        if others:
            near = fitted[nearest(geometry, others)]
            if kind is Prefill:
                guess = moved_prefill(near, geometry, c[1], c[2], c[0])
            else:
                guess = moved_decode(near, geometry, *c)
            out["shape"].append(np.abs(guess / r["us"] - 1))
        bands = ((100, 700), (700, 3500)) if kind is Prefill else ((100, 1100), (1100, 9000))
        column = "chunk" if kind is Prefill else "context"
        for low, high in bands:
            hidden = (r[column] > low) & (r[column] < high)
            if kind is Decode:  # only contexts between measured ones of the batch: the rest would be extrapolation
                hidden &= r["context"] < r["batch"].map(r.groupby("batch")["context"].max())
            if hidden.any() and (~hidden).sum() >= 8 and r[~hidden & (r["batch"] == 1)][column].nunique() >= 4:
                refit = kind(own.device, geometry, kv_dtype, r[~hidden])
                at = tuple(v[hidden.to_numpy()] for v in c)
                out["region"].append(np.abs(refit.predict(*at) / r["us"][hidden] - 1))
    return {name: np.concatenate(parts) if parts else np.array([]) for name, parts in out.items()}


def from_device(kind, fitted, donors, rows: pd.DataFrame, kv_dtype: str) -> np.ndarray:
    """Every measured row predicted with another device's efficiency of the same geometry."""
    misses = []
    for geometry in fitted.keys() & donors.keys():
        r, donor, own = rows_of(rows, geometry, kv_dtype), donors[geometry], fitted[geometry]
        batch, context = r["batch"].to_numpy(float), r["context"].to_numpy(float)
        if kind is Prefill:
            chunk = r["chunk"].to_numpy(float)
            theirs, floor = donor.predict(batch, chunk, context), donor.t0
            scale = own.roofline(chunk, context) / donor.roofline(chunk, context)
        else:
            theirs, floor = donor.predict(batch, context), min(c[1][0] for c in donor.curves.values())
            scale = donor.device.bandwidth / own.device.bandwidth
        misses.append(np.abs((floor + (theirs - floor) * scale) / r["us"] - 1))
    return np.concatenate(misses) if misses else np.array([])
