#!/usr/bin/env python3
"""Tests of the fits on made-up measurements: python3 -m unittest discover -s tools/cost (needs
tools/cost/requirements.txt)."""

import json
import unittest

import attention_fit as attention
import data_file
import exchange_fit
import experts_fit
import gemm_fit as gemm
import numpy as np
import pandas as pd
from curves import monotone, number, pairs, pick_knots, without_hiccups
from devices import DATA, devices, models
from fit import TABLES, Fit, moved
from import_aiconfigurator import allreduce, exchange, static_scales, version_key
from samples import Samples

H100 = devices()["h100"]
M = np.array([1, 8, 16, 64, 128, 256, 257, 512, 1024, 4096])
SHAPES = [(n, k) for n in (1024, 4096, 8192, 16384) for k in (1024, 4096, 8192)]


def products(efficiency, dtype="bfloat16", shapes=SHAPES):
    """Measured products whose efficiency is a given function of n, k, m."""
    rows = [
        (dtype, m, n, k, (gemm.roofline_us(H100, dtype, m, n, k) + H100.floor_us) / efficiency(n, k, m), "x")
        for n, k in shapes
        for m in M
    ]
    return pd.DataFrame(rows, columns=["dtype", "m", "n", "k", "us", "version"])


class Curves(unittest.TestCase):
    def test_a_dip_is_shared_and_nothing_falls(self):
        us = monotone(np.array([1, 2, 3, 4]), np.array([1.0, 4.0, 1.0, 8.0]))
        self.assertTrue((np.diff(us) >= 0).all())
        self.assertAlmostEqual(us[1], 2.0)  # the geometric mean of 4 and 1
        self.assertAlmostEqual(us[3], 8.0)

    def test_a_hiccup_is_dropped_and_a_dip_is_not(self):
        x = np.arange(1.0, 9)
        us = np.array([10, 30, 10, 12.5, 10, 11, 11, 12.0])
        self.assertEqual(without_hiccups(x, us).tolist(), [True, False, True, True, True, True, True, True])

    def test_knots_meet_every_point_within_the_bound(self):
        x = np.arange(1, 200.0)
        us = np.where(x <= 128, 10 + x / 50, 20 + x / 20)
        knots = pick_knots(x, us, 0.02, 50)
        self.assertLessEqual(np.abs(np.interp(x, x[knots], us[knots]) / us - 1).max(), 0.02)
        self.assertLess(len(knots), 8)
        self.assertTrue({127, 128} <= set(knots))  # both sides of the edge

    def test_numbers_are_short_and_read_back(self):
        for value in (0.7321, 1.0, 123456.0, 0.000123, 12.345):
            self.assertAlmostEqual(float(number(value)) / value, 1, delta=0.005)
        self.assertEqual(json.dumps(pairs(np.array([1, 128]), np.array([0.5, 12.0]))), "[[1, 0.5], [128, 12]]")


class Products(unittest.TestCase):
    def test_a_shape_in_the_file_comes_back(self):
        rows = products(lambda n, k, m: 0.7 if m <= 256 else 0.55)  # a step at a tile's edge
        fitted = gemm.gather(H100, "bfloat16", rows)
        table = gemm.parse(gemm.records(fitted, list(range(len(SHAPES)))), H100, "bfloat16")
        self.assertLess(gemm.relative(gemm.predict(table, H100, "bfloat16", rows), rows["us"].to_numpy()).max(), 0.04)

    def test_a_left_out_shape_takes_efficiency_not_time(self):
        rows = products(lambda n, k, m: 0.6)
        fitted = gemm.gather(H100, "bfloat16", rows)
        inside = [i for i, s in enumerate(fitted.shapes) if tuple(s) != (8192, 4096)]
        table = gemm.parse(gemm.records(fitted, inside), H100, "bfloat16")
        hidden = rows[(rows["n"] == 8192) & (rows["k"] == 4096)]
        self.assertLess(
            gemm.relative(gemm.predict(table, H100, "bfloat16", hidden), hidden["us"].to_numpy()).max(), 0.05
        )

    def test_leaving_a_model_out_sees_what_its_shapes_alone_do(self):
        odd = {s for tp in gemm.TP for s in models()["llama-3.1-8b"].gemms(tp)}
        even = gemm.leave_out_models(gemm.gather(H100, "bfloat16", products(lambda n, k, m: 0.6)))
        uneven = gemm.leave_out_models(
            gemm.gather(H100, "bfloat16", products(lambda n, k, m: 0.3 if (n, k) in odd else 0.6))
        )
        self.assertLess(even.max(), 1e-6)
        self.assertGreater(np.max(uneven), 0.3)

    def test_another_devices_efficiency_moves_with_the_peaks(self):
        rows = products(lambda n, k, m: 0.5)
        there = moved(devices()["a100"], H100, {"gemm": rows})["gemm"]
        fitted = gemm.gather(devices()["a100"], "bfloat16", there)
        self.assertTrue(np.allclose(np.exp(fitted.log_efficiency()), 0.5, rtol=1e-6))


class Attention(unittest.TestCase):
    def test_prefill_adds_up_when_the_device_is_full_and_overlaps_when_not(self):
        rows = [
            (32, 8, 128, "bfloat16", b, c, 0, max(10 + b * c * c / 1e5, 12 + c / 50), "x")
            for b in (1, 2, 4, 8, 16)
            for c in (1, 64, 256, 1024, 4096)
        ]
        rows = pd.DataFrame(rows, columns=["q", "kv", "hd", "kv_dtype", "batch", "chunk", "context", "us", "version"])
        fitted = attention.Prefill(H100, (32, 8, 128), "bfloat16", rows)
        few, many = fitted.predict(1, 256, 0), fitted.predict(16, 1024, 0)
        self.assertAlmostEqual(float(few), 12 + 256 / 50, delta=0.5)
        self.assertAlmostEqual(float(many) / (10 + 16 * 1024**2 / 1e5), 1, delta=0.05)
        self.assertGreater(float(fitted.predict(1, 1024, 8192)), float(fitted.predict(1, 1024, 0)))

    def test_decode_goes_on_at_the_best_rate_seen(self):
        per_token = 2 * 8 * 128 * 2 / H100.bandwidth * 1e6 / 0.8
        rows = [
            (32, 8, 128, "bfloat16", b, c, 10 + b * c * per_token, "x")
            for b in (1, 8, 64)
            for c in (16, 256, 4096, 16384)
        ]
        rows = pd.DataFrame(rows, columns=["q", "kv", "hd", "kv_dtype", "batch", "context", "us", "version"])
        fitted = attention.Decode(H100, (32, 8, 128), "bfloat16", rows)
        self.assertAlmostEqual(float(fitted.predict([64], [65536])[0]) / (10 + 64 * 65536 * per_token), 1, delta=0.05)
        self.assertEqual(len(fitted.records()["decode"]), 3)
        # Twice the KV heads are as twice the sequences; half of one sequence is half of what exceeds the least time.
        moved = lambda geometry, batch, context: float(attention.moved_decode(fitted, geometry, [batch], [context])[0])
        at = lambda batch, context: float(fitted.predict([batch], [context])[0])
        self.assertAlmostEqual(moved((64, 16, 128), 32, 4096), at(64, 4096))
        least = at(1, 16)
        self.assertAlmostEqual(moved((16, 4, 128), 1, 4096), least + (at(1, 4096) - least) / 2)


class Experts(unittest.TestCase):
    def samples(self):
        rows = [(2, 1, 10.0), (2, 4, 16.0), (2, 2, 24.0), (8, 4, 40.0), (8, 8, 44.0)]
        table = pd.DataFrame(rows, columns=["touched", "tokens", "us"])
        table = table.assign(dtype="bfloat16", hidden=64, inner=32, chosen=2, version="x")
        return Samples("h100", "profile", "made up", {"experts": table})

    def test_a_curve_for_each_number_of_experts(self):
        curves, errors = experts_fit.records(self.samples().table("experts"), 0)
        self.assertEqual([c["touched"] for c in curves], [2, 8])
        self.assertEqual(curves[1]["us"], [[4, 40], [8, 44]])
        self.assertEqual([x for x, _ in curves[0]["us"]], [1, 2, 4])
        us = [y for _, y in curves[0]["us"]]
        self.assertEqual(us[1], us[2], "a dip is shared")
        self.assertEqual(len(errors), 1, "one point has two neighbours")

    def test_only_its_table_changes(self):
        before = {"device": "rtxpro6000", "sources": ["a", "experts: old"]}
        before |= {"errors": [{"op": "gemm"}], "gemm": [1], "prefill": [2]}
        after = experts_fit.replaced(before, self.samples())
        self.assertEqual(list(after), ["device", "sources", "errors", "gemm", "experts", "prefill"])
        self.assertEqual(after["sources"], ["a", "experts: made up"])
        self.assertEqual([e["op"] for e in after["errors"]], ["gemm", "experts"])
        self.assertEqual(experts_fit.replaced(after, self.samples()), after)

    def test_weights_that_fit_the_cache_take_their_share_of_those_that_do_not(self):
        shape = {"dtype": "bfloat16", "hidden": 64, "inner": 32}
        curve = lambda touched, us, chosen=2: shape | {"chosen": chosen, "touched": touched, "us": us}
        curves = [curve(2, [[1, 5.0], [4, 6.0], [8, 50.0]]), curve(4, [[4, 20.0], [8, 40.0]]), curve(8, [[8, 50.0]])]
        experts_fit.read_from_memory(curves, 3 * 64 * 32 * 2 * 2)
        self.assertEqual(curves[0]["us"], [[1, 10], [4, 10], [8, 50]])
        self.assertEqual(curves[1]["us"], [[4, 20], [8, 40]], "four experts exceed the cache")
        curves = [curve(1, [[8, 5.0]]), curve(2, [[8, 5.0]]), curve(4, [[8, 40.0]]), curve(2, [[8, 50.0]], 3)]
        experts_fit.read_from_memory(curves, 3 * 64 * 32 * 2 * 4)
        self.assertEqual([c["us"][0][1] for c in curves], [10, 20, 40, 50], "from the most experts of each shape down")


class Exchange(unittest.TestCase):
    def test_a_file_is_as_a_full_fit_writes_it(self):
        table = pd.DataFrame([(2, 1024, 10.0), (2, 4096, 20.0), (2, 65536, 90.0)], columns=["gpus", "bytes", "us"])
        samples = Samples("h100", "package", "made up, nccl", {"exchange": table.assign(version="2.1")})
        fit = Fit("h100", H100, "vllm", ["a", "exchange: old", "sendrecv: b", "experts: c"], {}, [])
        fit.add({"allreduce": [1], "exchange": [2], "sendrecv_us": [3]})
        for op in ("allreduce", "exchange", "sendrecv", "experts"):
            fit.error(op, "region", np.array([0.5]))
        before = fit.document()
        after = exchange_fit.replaced(before, samples)
        self.assertEqual(list(after), list(before))
        self.assertEqual(after["exchange"], [{"gpus": 2, "us": [[1024, 10], [4096, 20], [65536, 90]]}])
        self.assertEqual(after["sources"], ["a", "sendrecv: b", "exchange: made up, nccl 2.1", "experts: c"])
        self.assertEqual([e["op"] for e in after["errors"]], ["allreduce", "sendrecv", "exchange", "experts"])
        self.assertEqual([e["op"] for e in before["errors"]], ["allreduce", "sendrecv", "exchange", "experts"])

    def test_every_file_is_in_the_order_of_a_full_fit(self):
        for path in DATA.glob("*.cost.json"):
            document = data_file.read(path)
            self.assertEqual(data_file.in_order(document), document, path.name)
            tables = [key for key in document if key in TABLES]
            self.assertEqual(tables, [t for t in TABLES if t in document], path.name)


class Import(unittest.TestCase):
    def test_an_exchange_is_a_gather_and_a_scatter(self):
        ops = ["all_gather", "reduce_scatter", "all_reduce", "all_gather"]
        raw = pd.DataFrame({"op_name": ops, "latency": [0.004, 0.005, 0.1, 0.2], "version": "1", "num_gpus": 2})
        raw = raw.assign(nccl_dtype="half", message_size=[128, 128, 128, 256])
        rows = exchange(pd.concat([raw, raw.assign(nccl_dtype="int8", latency=1)]))
        self.assertEqual(rows[["gpus", "bytes"]].values.tolist(), [[2, 256]], "512 has no scatter")
        self.assertAlmostEqual(rows["us"][0], 9)

    def test_eager_all_reduces_are_left_out_and_elements_become_bytes(self):
        raw = pd.DataFrame(
            {
                "kernel_source": ["a_graph", "a_eager"],
                "num_gpus": [2, 2],
                "message_size": [128, 128],
                "latency": [0.004, 0.02],
                "version": ["1", "1"],
            }
        )
        rows = allreduce(raw)
        self.assertEqual(rows[["bytes", "us"]].values.tolist(), [[256, 4.0]])

    def test_stored_scales_save_the_search_for_one(self):
        rows = products(lambda n, k, m: 0.5, "fp8", [(1024, 1024)])
        search = pd.DataFrame({"m": M, "k": 1024, "latency": 0.001})
        static = static_scales(rows, search)
        self.assertTrue((static["dtype"] == "fp8_static").all())
        expected = np.maximum(rows["us"] - 1, rows["us"] / 2)
        self.assertTrue(np.allclose(static["us"], expected))

    def test_versions_by_number(self):
        self.assertGreater(version_key("1.3.0rc20"), version_key("1.3.0rc3"))
        self.assertGreater(version_key("0.24.0"), version_key("0.9.0"))


if __name__ == "__main__":
    unittest.main()
