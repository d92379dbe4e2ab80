"""Matrix products: converts measured times to `gemm` records, with their errors where nothing was measured.

A shape (n, k) is a monotone curve of time over m. Time is never interpolated across shapes: a missing shape uses the
efficiency, (roofline + floor) / time, of the four nearest in (log n, log k), weighted by the inverse square of the
distance.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from curves import at, monotone, pairs, pick_knots, without_hiccups
from devices import WEIGHT_BYTES, Device, models

NEIGHBOURS = 4
WORST_KNOT_ERROR = 0.03
MOST_KNOTS = 14
TP = (1, 2, 4, 8)


def roofline_us(device: Device, dtype: str, m, n, k) -> np.ndarray:
    m = np.asarray(m, float)
    return (
        np.maximum(2 * m * n * k / device.peak(dtype), (m * k + k * n + m * n) * WEIGHT_BYTES[dtype] / device.bandwidth)
        * 1e6
    )


@dataclasses.dataclass
class Products:
    """One dtype's measured shapes on one device; every curve on the common grid m."""

    device: Device
    dtype: str
    shapes: np.ndarray  # [shapes, 2] n, k
    m: np.ndarray  # [grid]
    us: np.ndarray  # [shapes, grid] monotone; NaN beyond a shape's last measured m
    raw: pd.DataFrame  # m n k us

    @property
    def floored(self) -> np.ndarray:
        n, k = self.shapes[:, :1], self.shapes[:, 1:]
        return roofline_us(self.device, self.dtype, self.m[None], n, k) + self.device.floor_us

    def log_efficiency(self) -> np.ndarray:
        e = np.log(self.floored / self.us)
        # Beyond the last measured m the last efficiency applies.
        for row in e:
            known = np.flatnonzero(~np.isnan(row))
            row[known[-1] + 1 :] = row[known[-1]]
        return e


def gather(device: Device, dtype: str, rows: pd.DataFrame, least_m: int = 8) -> Products | None:
    rows = rows[(rows["dtype"] == dtype) & (rows["n"] >= 256) & (rows["k"] >= 128)]
    counts = rows.groupby(["n", "k"])["m"].nunique()
    shapes = [s for s, c in counts.items() if c >= least_m]
    if len(shapes) < NEIGHBOURS + 1:
        return None
    per_shape = {s: g.sort_values("m") for s, g in rows.groupby(["n", "k"])}
    grid = np.unique(np.concatenate([per_shape[s]["m"].to_numpy() for s in shapes]))
    if len(grid) > 200:  # profiles measure every 8 tokens: keeps both sides of each multiple of 64, and powers of two
        keep = {1, 2, 4, 8, 16, 24, 32, 48, int(grid[-1])}
        for edge in [
            *range(64, 1025, 64),
            *range(1280, 4097, 256),
            *range(5120, 16385, 1024),
            *range(18432, 32769, 4096),
        ]:
            keep |= {edge, edge + 8 if edge <= 1024 else edge}
        grid = np.array([m for m in grid if m in keep])
    curves = np.full((len(shapes), len(grid)), np.nan)
    for i, s in enumerate(shapes):
        g = per_shape[s]
        g = g[without_hiccups(g["m"].to_numpy(), g["us"].to_numpy())]
        m, us = g["m"].to_numpy(), monotone(g["m"].to_numpy(), g["us"].to_numpy())
        curves[i] = np.where(grid <= m[-1], np.interp(grid, m, us), np.nan)
    keys = pd.DataFrame(shapes, columns=["n", "k"])
    return Products(
        device, dtype, np.asarray(shapes, float), grid.astype(float), curves, rows.merge(keys, on=["n", "k"])
    )


def transfer(targets: np.ndarray, sources: np.ndarray, log_efficiency: np.ndarray) -> np.ndarray:
    """log efficiency [targets, grid] of shapes [targets, 2] from that [sources, grid] of the nearest of [sources,
    2]."""
    d = np.sqrt(((np.log(targets)[:, None] - np.log(sources)[None]) ** 2).sum(-1))
    nearest = np.argsort(d, axis=1, kind="stable")[:, :NEIGHBOURS]
    near = np.take_along_axis(d, nearest, axis=1)
    weight = 1 / np.maximum(near, 1e-6) ** 2
    weight /= weight.sum(axis=1, keepdims=True)
    return np.einsum("ij,ijm->im", weight, log_efficiency[nearest])


def known_shapes() -> np.ndarray:
    wanted = set()
    for model in models().values():
        for tp in TP:
            wanted.update(model.gemms(tp))
        wanted.update((-(-model.vocab // tp), model.hidden) for tp in TP)
    return np.asarray(sorted(wanted), float)


def choose(products: Products, most: int, enough: float) -> list[int]:
    """The shapes that go into the file: corners of the measured field, then repeatedly the shape that the chosen ones
    predict worst, with double weight near a known model's shapes, until the mean error is below `enough` or `most` are
    chosen.
    """
    e = products.log_efficiency()
    logs = np.log(products.shapes)
    near = np.sqrt(((logs[:, None] - np.log(known_shapes())[None]) ** 2).sum(-1)).min(axis=1)
    relevance = np.where(near < 0.35, 2.0, 1.0)
    chosen = list(
        dict.fromkeys(
            int(np.argmax(a * logs[:, 0] + b * logs[:, 1])) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0.1, 0))
        )
    )
    while len(chosen) < min(most, len(logs)):
        others = np.setdiff1d(np.arange(len(logs)), chosen)
        if not len(others):
            break
        miss = np.abs(np.exp(transfer(products.shapes[others], products.shapes[chosen], e[chosen]) - e[others]) - 1)
        mean = np.nanmean(miss, axis=1)
        if (mean * relevance[others]).sum() / relevance[others].sum() < enough and len(chosen) >= 2 * NEIGHBOURS:
            break
        chosen.append(int(others[np.argmax(mean * relevance[others])]))
    return sorted(chosen)


def records(products: Products, chosen: list[int]) -> list[dict]:
    out = []
    for i in chosen:
        n, k = products.shapes[i].astype(int)
        known = ~np.isnan(products.us[i])
        m, us = products.m[known], products.us[i][known]
        knots = pick_knots(m, us, WORST_KNOT_ERROR, MOST_KNOTS)
        eff = (roofline_us(products.device, products.dtype, m[knots], n, k) + products.device.floor_us) / us[knots]
        out.append({"dtype": products.dtype, "n": int(n), "k": int(k), "efficiency": pairs(m[knots], eff)})
    return out


def parse(curves: list[dict], device: Device, dtype: str) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Back from the file's records: (n, k) -> knots of m and us. Errors are measured on the file's values, not on the
    fit's."""
    table = {}
    for curve in curves:
        if curve["dtype"] == dtype:
            n, k = curve["n"], curve["k"]
            m, eff = np.array(curve["efficiency"], float).T
            table[n, k] = (m, (roofline_us(device, dtype, m, n, k) + device.floor_us) / eff)
    return table


def predict(table, device: Device, dtype: str, rows: pd.DataFrame) -> np.ndarray:
    """us of each row (m, n, k) as computed by the file's reader."""
    sources = np.asarray(sorted(table), float)
    grid = np.unique(rows["m"].to_numpy()).astype(float)
    e = np.empty((len(sources), len(grid)))
    for i, (n, k) in enumerate(sources):
        floored = lambda m, n=n, k=k: roofline_us(device, dtype, m, n, k) + device.floor_us
        e[i] = np.log(floored(grid) / at(grid, *table[int(n), int(k)], floored))
    targets = rows[["n", "k"]].drop_duplicates().to_numpy(float)
    moved = transfer(targets, sources, e)
    for i, (n, k) in enumerate(targets):
        if (int(n), int(k)) in table:
            moved[i] = e[np.flatnonzero((sources == (n, k)).all(axis=1))[0]]
    us = (roofline_us(device, dtype, grid[None], targets[:, :1], targets[:, 1:]) + device.floor_us) / np.exp(moved)
    us = np.maximum.accumulate(us, axis=1)
    where = {tuple(t): i for i, t in enumerate(targets)}
    row = [where[t] for t in zip(rows["n"].to_numpy(float), rows["k"].to_numpy(float))]
    return us[row, np.searchsorted(grid, rows["m"].to_numpy(float))]


# --- errors where nothing was measured ---


def relative(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    return np.abs(predicted / measured - 1)


def leave_out_models(products: Products) -> np.ndarray:
    """Each known model in turn: its measured shapes (all tp) are hidden and predicted from the rest."""
    misses, e, done = [], products.log_efficiency(), set()
    for model in models().values():
        own = {s for tp in TP for s in model.gemms(tp)}
        hidden = np.array([tuple(map(int, s)) in own for s in products.shapes])
        key = tuple(np.flatnonzero(hidden))
        if not hidden.any() or key in done or (~hidden).sum() <= NEIGHBOURS:
            continue
        done.add(key)
        moved = transfer(products.shapes[hidden], products.shapes[~hidden], e[~hidden])
        us = np.maximum.accumulate(products.floored[hidden] / np.exp(moved), axis=1)
        misses.append(relative(us, products.us[hidden]).ravel())
    out = np.concatenate(misses) if misses else np.array([])
    return out[~np.isnan(out)]


def leave_out_bands(products: Products) -> np.ndarray:
    """Each octave-and-a-half of m in turn: hidden inside, predicted by the line between its edges."""
    misses = []
    for low, high in ((2, 16), (16, 48), (48, 128), (128, 512), (512, 1536), (1536, 4096)):
        inside = (products.m > low) & (products.m < high)
        if not inside.any() or inside[0] or inside[-1]:
            continue
        for us in products.us:
            guess = np.interp(products.m[inside], products.m[~inside], us[~inside])
            misses.append(relative(guess, us[inside]))
    out = np.concatenate(misses) if misses else np.array([])
    return out[~np.isnan(out)]


def from_device(products: Products, other: Products) -> np.ndarray:
    """Every shape and m of this device predicted with the other device's efficiency of the same shape."""
    index = {tuple(s): i for i, s in enumerate(other.shapes)}
    theirs = other.log_efficiency()
    misses = []
    for i, s in enumerate(products.shapes):
        if tuple(s) in index:
            e = np.interp(products.m, other.m, theirs[index[tuple(s)]])
            misses.append(relative(products.floored[i] / np.exp(e), products.us[i]))
    out = np.concatenate(misses) if misses else np.array([])
    return out[~np.isnan(out)]
