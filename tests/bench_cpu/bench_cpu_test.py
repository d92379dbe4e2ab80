#!/usr/bin/env python3
"""bench/cpu: counted work, verdicts, statistics, and the clients against simulated servers and engines."""

import argparse
import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/cpu"))
import aims  # noqa: E402
import cells  # noqa: E402
import engines  # noqa: E402
import load  # noqa: E402
import long_contexts  # noqa: E402
import make_models  # noqa: E402
import parts  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import served  # noqa: E402
import servers  # noqa: E402
import shape  # noqa: E402
import tables  # noqa: E402


def cell(ours: float, theirs: float, tokens: int, ceilings: dict) -> dict:
    return {
        "tactus int8": {"all": [tokens / ours] * 3},
        "OpenVINO GenAI": {"all": [tokens / theirs] * 3},
        "llama.cpp": {"all": [tokens / (theirs / 2)] * 3},
        "ceilings": ceilings,
    }


class Verdicts(unittest.TestCase):
    """Verdicts on made-up figures. `fast` is a machine without relevant ceilings, where reading is the lower one."""

    fast = {"bf16_ops": [1e30], "int8_ops": [1e30], "f32_ops": [1e30], "read_bytes": [1e18]}

    def judge(self, key: str, ours: float, ceilings: dict, fmt: str = "int8") -> dict[str, dict]:
        """Aims of one cell in which the best peer has 100 tokens/s, by their subject."""
        name = "tactus" if fmt == "bf16" else f"tactus {fmt}"
        tokens = aims.work_of(key)[1]
        found = {
            n: {"all": [tokens / speed] * 3} for n, speed in ((name, ours), ("OpenVINO GenAI", 100), ("llama.cpp", 50))
        }
        judged = report.judged({"first": aims.DEFAULT, "cells": {fmt: {key: {**found, "ceilings": ceilings}}}})
        self.assertTrue(all(a["who"] == name and a["basis"] == aims.DEFAULT for a in judged))
        return {a["what"].split(", ")[1]: a for a in judged}

    def test_ratios_just_above_and_below_the_aim(self):
        wanted = {
            ("bf16", "prefill 128"): 1.15,
            ("bf16", "prefill 2048"): 1.15,
            ("int8", "prefill 128"): 1.5,
            ("int8", "prefill 512"): 1.5,
            ("int4", "prefill 2048"): 1.5,
            ("bf16", "decode 8 at 128"): 1.4,
            ("bf16", "decode 32 at 128"): 1.4,
            ("int8", "decode 8 at 128"): 2,
            ("int4", "decode 16 at 128"): 2,
            ("int8", "decode 32 at 128"): 2,
            ("bf16", "decode 8 at 1024"): 2.5,
            ("int8", "decode 4 at 1024"): 2.5,
            ("int4", "decode 32 at 1024"): 2.5,
            ("bf16", "decode 1 at 128"): 1.05,
            ("int4", "decode 1 at 1024"): 1.05,
        }
        for (fmt, key), ratio in wanted.items():
            with self.subTest(fmt=fmt, key=key):
                (met,) = self.judge(key, 100 * ratio + 0.1, self.fast, fmt).values()
                self.assertEqual(
                    (met["what"], met["met"], met["verdict"], met["aim"]),
                    (f"{fmt} {key}, times the best peer", True, "met", f"at least {ratio:g}"),
                )
                (missed,) = self.judge(key, 100 * ratio - 0.1, self.fast, fmt).values()
                self.assertFalse(missed["met"])
                self.assertRegex(missed["verdict"], "short by 0.[01] %")
        self.assertEqual(self.judge("decode 4 at 128", 500, self.fast), {})
        missed = self.judge("decode 16 at 128", 150, self.fast)["times the best peer"]
        self.assertEqual((missed["found"], missed["verdict"]), ("1.50 (OpenVINO GenAI)", "short by 25.0 %"))

    def bound(self, key: str, limit: float, arithmetic: float) -> dict:
        """Ceilings at which reading allows `limit` tokens/s, and arithmetic takes `arithmetic` times as long as
        reading."""
        work, tokens = aims.work_of(key)
        seconds = tokens / limit
        ops = (shape.linear_ops(work) + shape.attention_ops(work)) / (seconds * arithmetic)
        return {
            "bf16_ops": [ops],
            "int8_ops": [ops],
            "f32_ops": [ops],
            "read_bytes": [shape.bytes_read(work, "int8") / seconds],
        }

    def test_the_share_of_the_ceiling_is_a_separate_aim_of_cells_bound_by_arithmetic(self):
        ceilings = self.bound("decode 16 at 128", 202, 1.01)  # arithmetic allows 200 tokens/s
        near = self.judge("decode 16 at 128", 150.2, ceilings)
        self.assertEqual(
            (
                near["share of the ceiling"]["found"],
                near["share of the ceiling"]["met"],
                near["share of the ceiling"]["aim"],
            ),
            ("75.1 %", True, "at least 75 %"),
        )
        self.assertFalse(near["times the best peer"]["met"])  # 1.5 times is not 2, whatever the share
        short = self.judge("decode 16 at 128", 149.8, ceilings)["share of the ceiling"]
        self.assertEqual((short["found"], short["met"], short["verdict"]), ("74.9 %", False, "short by 0.1 %"))
        self.assertEqual(
            list(self.judge("decode 16 at 128", 90, self.bound("decode 16 at 128", 200, 0.99))), ["times the best peer"]
        )  # reading is the bound

    def test_a_share_without_a_peer_and_no_aim_of_ratio(self):
        tokens = aims.work_of("decode 4 at 128")[1]
        cell = {"tactus int8": {"all": [tokens / 100]}, "ceilings": self.bound("decode 4 at 128", 202, 1.01)}
        self.assertEqual(
            [
                (a["what"], a["met"])
                for a in report.judged({"first": aims.DEFAULT, "cells": {"int8": {"decode 4 at 128": cell}}})
            ],
            [("int8 decode 4 at 128, share of the ceiling", False)],
        )

    def test_a_share_is_taken_against_the_ceilings_of_its_own_turn(self):
        """The machine's read rate halves between two turns: both turns reach 90 % of their own ceiling."""
        work, tokens = aims.work_of("decode 1 at 128")
        at = lambda rate: {"bf16_ops": 1e18, "int8_ops": 1e18, "f32_ops": 1e18, "read_bytes": rate}
        least = lambda rate: shape.bytes_read(work, "int8") / rate
        ours = {"all": [[least(60e9) / 0.9] * 4, [least(30e9) / 0.9] * 4], "ceilings": [at(60e9), at(30e9)]}
        (row,) = aims.cell_rows(
            "int8",
            {
                "decode 1 at 128": {
                    "tactus int8": ours,
                    "ceilings": {"read_bytes": [60e9, 30e9], "bf16_ops": [1e18], "int8_ops": [1e18], "f32_ops": [1e18]},
                }
            },
        )
        self.assertAlmostEqual(row["share"], 0.9)
        self.assertEqual(len(aims.speeds({"tactus int8": ours}, "tactus int8", 1)), 8)

    def test_verdicts_name_the_numerics_they_judge(self):
        names = [
            "tactus int8",
            "tactus int8, int8 activations",
            "tactus int8, int16 activations",
            "tactus int8, default numerics",
        ]
        self.assertEqual([aims.basis(n, aims.DEFAULT) for n in names], [aims.DEFAULT, aims.LIKE, None, aims.DEFAULT])
        self.assertEqual(
            [aims.basis(n, aims.first_of({})) for n in names], [aims.LIKE, aims.LIKE, aims.DEFAULT, aims.DEFAULT]
        )  # results of earlier versions
        tokens = aims.work_of("decode 16 at 128")[1]
        rates = dict(zip([*names[:3], "OpenVINO GenAI"], (150, 201, 150, 100)))
        cells = {
            "int8": {
                "decode 16 at 128": (
                    {"ceilings": self.fast} | {n: {"all": [tokens / rate] * 3} for n, rate in rates.items()}
                )
            }
        }
        result = {"first": aims.DEFAULT, "cells": cells}
        self.assertEqual(
            [(a["who"], a["basis"], a["met"]) for a in report.judged(result)],
            [(names[0], aims.DEFAULT, False), (names[1], aims.LIKE, True)],
        )
        text = "\n".join(report.aims_tables(result))
        self.assertLess(text.index("Default settings"), text.index("| tactus int8 |"))
        self.assertLess(text.index("| tactus int8 |"), text.index("Like for like"))
        self.assertLess(text.index("Like for like"), text.index("| tactus int8, int8 activations |"))

    def test_saturation_counts_a_server_that_was_cut(self):
        row = lambda rate, completed, cut=False: {
            "output_tokens_per_s": rate,
            "completed": completed,
            "requests": 20,
            "cut": cut,
        }
        rows = {
            "tactus": row(51, 20),
            "tactus, int8 activations": row(57.7, 20),
            "OpenVINO GenAI, chunks of 256": row(30, 20),
            "OpenVINO GenAI, no split fuse": row(34, 20),
            "llama.cpp, default": row(20, 9, True),
            "broken": row(90, 3),
        }
        result = lambda: {"first": aims.DEFAULT, "served": {"saturation": rows}}
        # The default is compared with the peers' defaults, the matched settings with the best peer.
        self.assertEqual(
            [(a["who"], a["basis"], a["found"], a["met"]) for a in aims.saturation(result())],
            [
                ("tactus", aims.DEFAULT, "1.70 (OpenVINO GenAI, chunks of 256)", True),
                ("tactus, int8 activations", aims.LIKE, "1.70 (OpenVINO GenAI, no split fuse)", False),
            ],
        )
        rows["llama.cpp, default"]["output_tokens_per_s"] = 30.1
        self.assertEqual(
            [(a["found"], a["verdict"]) for a in aims.saturation(result())][0],
            ("1.69 (llama.cpp, default)", "short by 0.3 %"),
        )

    def test_the_loaded_server_may_cost_three_percent(self):
        judged = lambda loss: aims.loaded(
            {"first": aims.DEFAULT, "loaded": {"bare_step_s": [1.0, 1.0], "served": [{"step_s": 1 + loss}]}}
        )[0]
        self.assertEqual(
            [(judged(x)["met"], judged(x)["found"], judged(x)["verdict"]) for x in (0.0299, 0.031)],
            [(True, "+3.0 %", "met"), (False, "+3.1 %", "short by 0.1 points")],
        )

    def test_int8_keys_and_values_have_a_separate_ceiling(self):
        seconds = {"all": [1.0]}
        cells = {
            "decode 1 at 32768": {
                "tactus int8": seconds,
                "tactus int8, int8 KV": seconds,
                "ceilings": {"bf16_ops": [1e18], "int8_ops": [1e18], "f32_ops": [1e18], "read_bytes": [1e9]},
            }
        }
        limits = [row["limit"] for row in aims.cell_rows("int8", cells)]
        work = shape.decode(1, 32768)
        for limit, kv in zip(limits, ("bf16", "int8")):
            self.assertAlmostEqual(limit, 1e9 / shape.bytes_read(work, "int8", kv))

    def test_trade_off_curve(self):
        row = lambda gap, ttft: {
            "quiet": {"p50_s": 0.05, "p99_s": 0.05},
            "disturbed": {"p50_s": gap, "p99_s": gap, "max_s": gap},
            "ttft_s": [ttft, ttft],
            "settings": "",
        }
        theirs = {"OpenVINO GenAI, chunks of 256": row(1.2, 9), "llama.cpp, default": row(16, 17)}
        self.assertEqual(aims.undominated({"tactus, budget 64": row(0.2, 9)}, theirs), [])
        self.assertEqual(
            aims.undominated({"tactus, budget 64": row(0.2, 10)}, theirs), ["OpenVINO GenAI, chunks of 256"]
        )
        text = "\n".join(
            tables.trade_off({"stall": {"tactus": row(2, 5), "tactus, budget 64": row(0.2, 10), **theirs}})
        )
        self.assertIn("| OpenVINO GenAI, chunks of 256 | 1200 | 9.00 | 2000 (default) | 10.00 (budget 64) |", text)
        self.assertIn("| llama.cpp, default | 16000 | 17.00 | 200 (budget 64) | 5.00 (default) |", text)
        found = [
            a["met"]
            for a in aims.stall(
                {"first": aims.DEFAULT, "stall": {"tactus": row(2, 5), "tactus, --tbt-slo": row(0.07, 8.9), **theirs}}
            )
        ]
        self.assertEqual(found, [True, True, True])
        found = [
            a["met"]
            for a in aims.stall({"stall": {"tactus": row(2, 5), "tactus, --tbt-slo": row(0.08, 9.1), **theirs}})
        ]
        self.assertEqual(
            found, [False, False, False]
        )  # 0.08 s is too long, 9.1 s too late, and nothing else beats (1.2, 9)
        like = {
            "first": aims.DEFAULT,
            "stall": {"tactus, int8 activations": row(0.1, 1), "tactus": row(2, 5), **theirs},
        }
        self.assertFalse(aims.stall(like)[0]["met"])  # the curve belongs to the default

    def test_a_report_of_everything_renders(self):
        result = {
            "date": "",
            "command": "",
            "machine": {"cpu": "", "cores": 2, "memory_gib": 1, "load_average": 0},
            "threads": 2,
            "versions": {},
            "settings": {},
            "load_s": {},
            "first": aims.DEFAULT,
            "cells": {"int8": {"prefill 512": cell(100, 100, 512, self.fast)}},
            "long": {"int8": {"decode 1 at 8192": cell(50, 25, 1, self.fast)}},
            "hybrid": {
                "int8": {"tactus int8": {"chunk": [1.0], "decode": [0.2], "hybrid": [1.1]}, "ceilings": self.fast}
            },
            "operators": [],
            "stall": {},
            "served": {},
            "loaded": {},
            "notes": [],
        }
        text = report.markdown(result)
        self.assertIn("| int8 hybrid step, times its chunk alone | tactus int8 | 1.10 | at most 1.15 | met |", text)
        self.assertIn(
            "| int8 prefill 512, times the best peer | tactus int8 | 1.00 (OpenVINO GenAI) | at least 1.5 | short by"
            " 33.3 % |",
            text,
        )
        self.assertIn("## Long contexts", text)
        self.assertIn(
            "| decode 1 at 8192 | 50.0 (50.0-50.0; 3) | 25.0 (25.0-25.0; 3) | 12.5 (12.5-12.5; 3) | 2.00 |", text
        )
        self.assertIn("| 100 (100-100; 3) |", text)
        report.check(result)
        with self.assertRaisesRegex(ValueError, "lacks cells"):
            report.check({k: v for k, v in result.items() if k != "cells"})


class Statistics(unittest.TestCase):
    def test_percentiles_interpolate(self):
        self.assertEqual([load.percentile([4, 1, 3, 2], q) for q in (0, 0.5, 1)], [1, 2.5, 4])
        self.assertAlmostEqual(load.percentile(list(range(101)), 0.99), 99)

    def test_load_report(self):
        def served(sent, times, tokens, error=""):
            s = servers.Served(
                servers.Request([1] * 10, tokens), sent, list(times), tokens, times[-1] if times else None, error
            )
            return s

        server = servers.Server()
        out = load.load_report(
            [served(0, [1, 1.5, 3], 3), served(1, [2, 4], 2), served(2, [], 5, "HTTP 503")], 0, server
        )
        self.assertEqual(
            (out["requests"], out["completed"], out["seconds"], out["output_tokens_per_s"]), (3, 2, 4, 5 / 4)
        )
        self.assertEqual((out["ttft"]["p50_s"], out["tbt"]["max_s"], out["tbt"]["n"]), (1, 2, 3))
        self.assertEqual(out["errors"], ["HTTP 503"])

    def test_every_server_gets_the_same_requests(self):
        a, b = load.poisson_requests(20, 0.5, 2), load.poisson_requests(20, 0.5, 2)
        self.assertEqual(a, b)
        self.assertEqual(sum(r.label == "burst" for r in a), 4)
        self.assertTrue(all(256 <= len(r.prompt) <= 1024 for r in a if not r.label))
        self.assertEqual(sorted(r.due_s for r in a), [r.due_s for r in a])


class Slow(servers.Server):
    """Sends a token every 20 ms on the real clock."""

    name = "slow"

    async def send(self, request, on_token=None):
        s = servers.Served(request, load.time.monotonic())
        try:
            for _ in range(request.max_tokens):
                await asyncio.sleep(0.02)
                s.token_times.append(load.time.monotonic())
                s.tokens += 1
            s.done_s = s.token_times[-1]
        except asyncio.CancelledError:
            s.error = "cancelled"
        return s


class TimeBoxes(unittest.TestCase):
    def play(self, box_s, max_tokens):
        requests = [servers.Request([1] * 10, m) for m in max_tokens]
        return asyncio.run(load.saturate(Slow(), requests, at_once=2, box_s=box_s))

    def test_tokens_received_before_the_box_closed_count(self):
        out = self.play(0.5, [1, 10000, 10000, 10000])  # one ends, two run, one was never sent
        self.assertEqual((out["requests"], out["completed"], out["cut"], out["errors"]), (4, 1, True, []))
        self.assertAlmostEqual(out["output_tokens_per_s"] * out["seconds"], out["streamed_tokens"])
        self.assertGreater(out["streamed_tokens"], 3)
        self.assertEqual(out["ttft"]["n"], 3)
        self.assertAlmostEqual(out["all_tokens_per_s"] * out["seconds"], out["streamed_tokens"] + 30)

    def test_a_box_that_is_large_enough_changes_nothing(self):
        out = self.play(60, [2, 3])
        self.assertEqual((out["completed"], out["cut"], out["streamed_tokens"]), (2, False, 5))


class FakeRun:
    """The part of a run that cells.Bench uses."""

    def __init__(self, rounds=2):
        self.args = argparse.Namespace(rounds=rounds, quick=False, contexts=[128, 1024])
        self.result, self.notes = {"cells": {}}, []
        self.note = self.notes.append
        self.progress = self.save = lambda *_: None


class Fake:
    """An engine that answers with given times, or with the ceilings."""

    def __init__(self, name, answers):
        self.spec, self.answers, self.lines = engines.Spec(name, [], ""), iter(answers), []
        self.process = argparse.Namespace(poll=lambda: None)

    def ask(self, line, timeout_s=0):
        self.lines.append(line)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


class Turns(unittest.TestCase):
    def test_turns_rotate_and_each_has_separate_ceilings(self):
        bench = cells.Bench(FakeRun(), "int8")
        a = Fake("tactus int8", [{"seconds": [9.0]}, {"seconds": [8.0, 1.0]}, {"seconds": [8.0, 1.5]}])
        b = Fake("OpenVINO GenAI", [{"seconds": [9.0]}, {"seconds": [8.0, 2.0]}, engines.CellError("no memory")])
        bench.processes = [a, b]
        bench.ceilings = Fake("ceilings", [{"read_bytes": x} for x in (10.0, 20.0, 30.0, 40.0, 50.0)])
        found = {}
        bench.turns(found, "decode 1 at 128", {"all": "decode steps=2"}, 2, warm="decode steps=1", skip=1)
        cell = found["decode 1 at 128"]
        self.assertEqual(
            cell["tactus int8"], {"all": [[1.0], [1.5]], "ceilings": [{"read_bytes": 15.0}, {"read_bytes": 45.0}]}
        )  # second in the second turn
        self.assertEqual(cell["OpenVINO GenAI"], {"all": [[2.0]], "ceilings": [{"read_bytes": 25.0}]})
        self.assertEqual(a.lines, ["decode steps=1", "decode steps=2", "decode steps=2"])
        self.assertEqual(bench.run.notes, ["int8 OpenVINO GenAI, decode 1 at 128: no memory"])

    def test_operators_of_both_roundings_replace_those_of_their_format(self):
        bench = cells.Bench(FakeRun(), "int8")
        bench.run.result["operators"] = [
            {"format": f, "name": "old"} for f in ("bf16", "int8", "int8, int8 activations")
        ]
        bench.ceilings = Fake("ceilings", [{"operators": [{"name": "mixed"}]}, {"operators": [{"name": "8 bits"}]}])
        cells.run_operators(bench.run, bench)
        self.assertEqual(
            [(o["format"], o["name"]) for o in bench.run.result["operators"]],
            [("bf16", "old"), ("int8", "mixed"), ("int8, int8 activations", "8 bits")],
        )
        self.assertEqual(
            bench.ceilings.lines, ["operators format=int8 rounding=mixed", "operators format=int8 rounding=int8"]
        )

    def test_a_slow_engine_has_one_turn(self):
        bench = cells.Bench(FakeRun(), "int8")
        bench.processes = [Fake("tactus int8", [{"seconds": [1.0]}] * 3), Fake("llama.cpp", [{"seconds": [13.0]}])]
        found = {}
        bench.turns(found, "prefill 2048", {"all": "prefill"}, 3)
        self.assertEqual(
            (
                len(found["prefill 2048"]["tactus int8"]["all"]),
                found["prefill 2048"]["llama.cpp"]["all"],
                bench.run.notes,
            ),
            (3, [[13.0]], []),
        )


class LongContexts(unittest.TestCase):
    def test_a_prompt_that_cannot_end_in_its_box_is_noted_instead(self):
        bench = cells.Bench(FakeRun(), "int8")
        fast, slow, new = (
            Fake("tactus int8", [{"seconds": [50.0]}]),
            Fake("llama.cpp", []),
            Fake("OpenVINO GenAI", [engines.CellError("20480 of 32768 tokens took 61 s")]),
        )
        bench.processes = [fast, slow, new]
        found = {"prefill 8192": {"tactus int8": {"all": [[14.9]]}, "llama.cpp": {"all": [[15.1]]}}}
        long_contexts.prompt(bench.run, bench, found, long_contexts.Shape(32768, [1], 60))
        self.assertEqual(fast.lines, ["prefill tokens=32768 repeat=1 box=60"])
        self.assertEqual((slow.lines, len(new.lines)), ([], 1))
        self.assertEqual(found["prefill 32768"]["tactus int8"]["all"], [[50.0]])
        self.assertEqual(len(bench.run.notes), 2)
        self.assertIn("llama.cpp, prefill 32768: not measured, it would take more than 60 s (60 by", bench.run.notes[0])

    def test_every_engine_has_room_for_the_requested_cells(self):
        here = pathlib.Path("x")
        places = engines.Places(here, here, 2, here, here, here, [])
        for context, batch in ((8192, 4), (32768, 1)):
            specs = {
                s.name: s.command for s in engines.specs(places, "int8", [], engines.Limits(context, context, batch))
            }
            self.assertEqual(
                list(specs),
                [
                    "tactus int8",
                    "tactus int8, int8 activations",
                    "tactus int8, int8 KV",
                    "OpenVINO GenAI",
                    "llama.cpp",
                    "ik_llama.cpp",
                ],
            )
            flags = specs["tactus int8"]
            self.assertEqual(
                [flags[flags.index(f) + 1] for f in ("--max-prefill", "--max-context", "--max-batch")],
                [str(context), str(context), str(batch)],
            )
            for name in ("llama.cpp", "ik_llama.cpp"):
                sequences, each, unified = map(int, specs[name][-3:])
                self.assertGreaterEqual(sequences, batch + unified)  # one extra sequence, through which copies are made
                self.assertGreater(each * (sequences if unified else 1), context)
        self.assertEqual(
            [s.name for s in engines.specs(places, "int8", ["tactus"])],
            ["tactus int8", "tactus int8, int8 activations"],
        )


class CommandLine(unittest.TestCase):
    def refused(self, *words):
        script = pathlib.Path(__file__).resolve().parents[2] / "bench/cpu/run.py"
        done = subprocess.run([sys.executable, "-B", str(script), *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr.splitlines()[-1]

    def test_bad_input_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("setup.sh", self.refused("--cache", folder + "/nope"))
            known = "fp8 unknown; there are int8, bf16, int4"
            self.assertIn(known, self.refused("--cache", folder, "--formats", "fp8"))
            self.assertIn("--parts: all unknown", self.refused("--cache", folder, "--parts", "all"))
            self.assertIn("--contexts: 64 unknown", self.refused("--cache", folder, "--contexts", "128,64"))
            self.assertIn("--engines: vllm unknown", self.refused("--cache", folder, "--engines", "vllm"))
            self.assertIn("has no tactus", self.refused("--cache", folder, "--build", folder))

    def test_parts_keep_their_order_and_share_their_engines(self):
        groups = run.wanted_parts(argparse.Namespace(parts=["long", "hybrid", "stall", "cells"]))
        self.assertEqual(
            [(per_format, [p.name for p in group]) for per_format, group in groups],
            [(False, ["stall"]), (True, ["cells", "hybrid"]), (False, ["long"])],
        )
        self.assertEqual(len(parts.NAMES), len(set(parts.NAMES)))

    def test_every_part_has_an_estimate_and_a_section(self):
        here = pathlib.Path("x")
        fake = FakeRun()
        fake.logs, fake.places = here, engines.Places(here, here, 2, here, here, here, [])
        vars(fake.args).update(
            parts=parts.NAMES, formats=["int8"], serve_format="int8", engines=[], poisson_requests=10, rate=0.15
        )
        whole = dict(run.planned(fake))
        for name in parts.NAMES:
            fake.args.parts = [name]
            rows = run.planned(fake)
            self.assertTrue(rows and all(seconds > 0 for _, seconds in rows), name)
        self.assertEqual(
            [what for what in whole if "contexts of" in what],
            [
                f"int8: contexts of {n} tokens, tactus int8, tactus int8, int8 activations, tactus int8, int8 KV, "
                "OpenVINO GenAI, llama.cpp, ik_llama.cpp"
                for n in (8192, 32768)
            ],
        )
        fake.args.quick = True
        self.assertLess(
            sum(s for _, s in run.planned(fake)), sum(s for what, s in whole.items() if "contexts of" in what)
        )
        empty = {"machine": {}, "cells": {}, "hybrid": {}, "operators": [], "stall": {}, "served": {}, "loaded": {}}
        self.assertEqual([part.section(empty) + part.aims(empty) for part in parts.PARTS], [[]] * len(parts.PARTS))

    def test_results_in_an_earlier_format_are_not_extended(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = (
                "date",
                "command",
                "machine",
                "versions",
                "threads",
                "cells",
                "hybrid",
                "operators",
                "stall",
                "served",
                "loaded",
                "settings",
                "load_s",
                "notes",
            )
            (pathlib.Path(folder) / "old.json").write_text(json.dumps(dict.fromkeys(keys, {})))
            done = argparse.Namespace(
                parts=[],
                formats=[],
                build=pathlib.Path(folder),
                cache=pathlib.Path(folder),
                engines=[],
                append=True,
                output=pathlib.Path(folder) / "old.json",
                serve_format="int8",
                model="dense",
            )
            (pathlib.Path(folder) / "models").mkdir()
            make_models.gguf_path(done.cache / "models", "bf16").touch()
            parser = argparse.ArgumentParser(exit_on_error=False)
            parser.error = lambda text: (_ for _ in ()).throw(ValueError(text))
            with self.assertRaisesRegex(ValueError, "older names.*give another file to -o"):
                run.check(parser, done)
            done.model = "mixture"
            make_models.gguf_path(done.cache / "models", "bf16", shape.MODELS["mixture"]).touch()
            with self.assertRaisesRegex(ValueError, "has the dense model, and --model is mixture"):
                run.check(parser, done)

    def test_a_command_is_reported_without_this_machines_folders(self):
        self.assertEqual(
            run.public(["--cache", "/a/b", "--build=/c", "-o", "x.json", "--rounds", "3"]),
            ["--cache", "CACHE", "--build=BUILD", "-o", "FILE", "--rounds", "3"],
        )

    def test_the_plan_grows_with_the_requested_work(self):
        names = ["tactus int8", "OpenVINO GenAI"]
        some = plan.cells_s(names, "int8", 2, [512], [16, 1], [128])
        self.assertGreater(plan.cells_s(names, "int8", 2, plan.PREFILLS, plan.BATCHES, plan.CONTEXTS), 2 * some)
        self.assertGreater(plan.cells_s([*names, "llama.cpp"], "int8", 2, [512], [16, 1], [128]), some)

    def test_arrivals_are_without_the_llama_family(self):
        rows = [
            (n, None)
            for n in ("tactus", "OpenVINO GenAI, chunks of 256", "llama.cpp, default", "ik_llama.cpp, default")
        ]
        self.assertEqual([n for n, _ in served.poisson_rows(rows)], ["tactus", "OpenVINO GenAI, chunks of 256"])


class Clients(unittest.TestCase):
    def serve(self, handler, server_class, *arguments):
        async def play():
            listener = await asyncio.start_server(handler, "127.0.0.1", 0)
            server = server_class.__new__(server_class)
            server.name, server.settings, server.port = "fake", "", listener.sockets[0].getsockname()[1]
            try:
                return await server.send(servers.Request([5, 6], 4))
            finally:
                listener.close()

        return asyncio.run(play())

    @staticmethod
    def answering(status: str, events: list[str]):
        async def handle(reader, writer):
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = json.loads(await reader.readexactly(length))
            assert (
                body["prompt"] == [5, 6]
                and body["ignore_eos"] is True
                and 4 in (body.get("max_tokens"), body.get("n_predict"))
            ), body
            writer.write(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            for event in events:
                data = f"data: {event}\n\n".encode()
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            writer.close()

        return handle

    def test_tactus_events(self):
        events = [
            '{"choices":[{"text":"a"}]}',
            '{"choices":[{"text":""}]}',
            '{"choices":[{"text":"b"}]}',
            '{"choices":[]}',
            "[DONE]",
        ]
        served = self.serve(self.answering("200 OK", events), servers.Tactus)
        self.assertEqual((served.tokens, len(served.token_times), served.error), (2, 2, ""))
        self.assertGreaterEqual(served.ttft_s, 0)

    def test_llama_events(self):
        events = [
            '{"content":"a","tokens":[7,8],"stop":false}',
            '{"content":"b","stop":false}',
            '{"content":"","tokens":[],"stop":true}',
        ]
        served = self.serve(self.answering("200 OK", events), servers.Llama)
        self.assertEqual((served.tokens, len(served.token_times)), (3, 2))

    def test_refusals_are_errors(self):
        served = self.serve(self.answering("503 Service Unavailable", ["busy"]), servers.Tactus)
        self.assertTrue(served.error.startswith("HTTP 503"), served.error)
        self.assertIsNone(served.ttft_s)


ENGINE = """
import sys
print("a library's banner"); print('{"ready": true, "load_seconds": 1.5}', flush=True)
for line in sys.stdin:
    if line.startswith("die"): print("last words", file=sys.stderr); sys.exit(3)
    print('{"seconds": [0.5]}' if line.startswith("prefill") else '{"error": "no such cell"}', flush=True)
"""


class Engines(unittest.TestCase):
    def test_line_protocol(self):
        with tempfile.TemporaryDirectory() as folder:
            process = engines.Process(
                engines.Spec("fake", [sys.executable, "-c", ENGINE], ""), pathlib.Path(folder) / "log"
            )
            try:
                self.assertEqual(process.about["load_seconds"], 1.5)
                self.assertEqual(process.ask("prefill tokens=1 repeat=1"), {"seconds": [0.5]})
                with self.assertRaisesRegex(engines.CellError, "no such cell"):
                    process.ask("hybrid")
                with self.assertRaisesRegex(engines.CellError, "last words"):
                    process.ask("die")
            finally:
                process.close()

    def test_an_engine_that_does_not_start(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(engines.CellError):
                engines.Process(
                    engines.Spec("fake", [sys.executable, "-c", "print(1)"], ""), pathlib.Path(folder) / "log"
                )


if __name__ == "__main__":
    unittest.main()
