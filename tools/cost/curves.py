"""Monotone curves of measured times, and the few knots that represent them in a coefficient file."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.isotonic import IsotonicRegression


def monotone(x: np.ndarray, us: np.ndarray) -> np.ndarray:
    """The non-decreasing curve nearest to the measured times in relative terms (isotonic regression of their
    logarithms).

    A measured dip (the library chooses a bad kernel just below a tile's edge) is averaged with its neighbours.
    """
    order = np.argsort(x, kind="stable")
    fitted = np.empty(len(x))
    fitted[order] = np.exp(IsotonicRegression().fit_transform(np.asarray(x, float)[order], np.log(us)[order]))
    return fitted


def without_hiccups(x: np.ndarray, us: np.ndarray, beyond: float = 1.35) -> np.ndarray:
    """Mask of the points to keep: drops points with `beyond` times the median of the next three larger problems. Such
    points are hiccups of the measurement (one clock tick of 20 us on a 10 us kernel), where a real kernel's dips stay
    within a quarter.
    """
    order = np.argsort(x, kind="stable")
    sorted_us, keep = us[order], np.ones(len(x), bool)
    for i in range(len(x) - 3):
        keep[order[i]] = sorted_us[i] <= beyond * np.median(sorted_us[i + 1 : i + 4])
    return keep


def pick_knots(x: np.ndarray, us: np.ndarray, worst: float, most: int) -> np.ndarray:
    """Indices of at most `most` points whose linear interpolation meets all others within `worst` (relative)."""
    if len(x) <= 2:
        return np.arange(len(x))
    chosen = [0, len(x) - 1]
    while len(chosen) < min(most, len(x)):
        miss = np.abs(np.interp(x, x[chosen], us[chosen]) / us - 1)
        next_one = int(np.argmax(miss))
        if miss[next_one] <= worst:
            break
        chosen = sorted({*chosen, next_one})
    return np.asarray(chosen)


def at(x: np.ndarray, knots_x: np.ndarray, knots_us: np.ndarray, roofline=None) -> np.ndarray:
    """Time at x as computed by a reader of the file: linear between knots, constant below the first; beyond the last
    constant efficiency (roofline: a function of x), or constant time without a roofline."""
    inside = np.interp(x, knots_x, knots_us)
    if roofline is None:
        return inside
    beyond = np.asarray(x) > knots_x[-1]
    if beyond.any():
        inside = np.where(beyond, roofline(x) * (knots_us[-1] / roofline(knots_x[-1])), inside)
    return inside


def number(value: float) -> float | int:
    """Three significant digits."""
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded == int(rounded) else rounded


def pairs(x: np.ndarray, y: np.ndarray) -> list[list[float | int]]:
    return [[int(a), number(b)] for a, b in zip(x, y)]


def fit_curve(rows: pd.DataFrame) -> tuple[list, np.ndarray]:
    """Knots of us by bytes, and the errors of every second point."""
    rows = rows.sort_values("bytes")
    x, us = rows["bytes"].to_numpy(float), monotone(rows["bytes"].to_numpy(), rows["us"].to_numpy())
    knots = pick_knots(x, us, 0.03, 16)
    # Every second point is predicted from its neighbours.
    guess = np.array([np.interp(x[i], np.delete(x, i), np.delete(us, i)) for i in range(1, len(x) - 1)])
    return pairs(x[knots], us[knots]), np.abs(guess / rows["us"].to_numpy()[1:-1] - 1)
