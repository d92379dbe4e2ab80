#!/usr/bin/env python3
"""bench/cpu: counted work, verdicts, statistics, and the clients against servers and engines that are made up here."""
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
import cells  # noqa: E402
import engines  # noqa: E402
import load  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import served  # noqa: E402
import servers  # noqa: E402
import shape  # noqa: E402


class Shape(unittest.TestCase):
    def test_parameters_are_those_of_tinyllama(self):
        norms = (2 * shape.LAYERS + 1) * shape.HIDDEN
        self.assertEqual(shape.LAYERS * shape.layer_weights() + 2 * shape.VOCAB * shape.HIDDEN + norms, 1_100_048_384)

    def test_prefill_counts_every_pair_once(self):
        work = shape.prefill(5)
        self.assertEqual(work.pairs, sum(position + 1 for position in range(5)))
        self.assertEqual((work.tokens, work.rows), (5, 1))

    def test_a_decode_reads_each_context_and_its_own_token(self):
        work = shape.decode(3, 128)
        self.assertEqual((work.tokens, work.rows, work.pairs, work.kv_tokens), (3, 3, 387, 387))
        without = shape.bytes_read(shape.decode(0, 0), "bf16")
        self.assertEqual(shape.bytes_read(work, "bf16") - without - 2 * shape.VOCAB * shape.HIDDEN, 387 * 22 * 2 * 256 * 2)

    def test_int8_keys_and_values_are_half_the_bytes(self):
        contexts = lambda kv: shape.bytes_read(shape.decode(4, 1000), "int4", kv) - shape.bytes_read(shape.Work(4, 4, 0, 0), "int4", kv)
        self.assertEqual(contexts("bf16"), 2 * contexts("int8"))

    def test_the_larger_of_arithmetic_and_bytes(self):
        slow_memory = shape.Ceilings(bf16=1e15, int8=1e15, read=1e9)
        slow_arithmetic = shape.Ceilings(bf16=1e9, int8=2e9, read=1e15)
        work = shape.decode(1, 128)
        self.assertAlmostEqual(shape.least_s(work, "int8", slow_memory), shape.bytes_read(work, "int8") / 1e9)
        self.assertAlmostEqual(shape.least_s(work, "int8", slow_arithmetic), shape.linear_ops(work) / 2e9 + shape.attention_ops(work) / 1e9)


def cell(ours: float, theirs: float, tokens: int, ceilings: dict) -> dict:
    return {"tactus int8": {"all": [tokens / ours] * 3}, "OpenVINO GenAI": {"all": [tokens / theirs] * 3}, "llama.cpp": {"all": [tokens / (theirs / 2)] * 3}, "ceilings": ceilings}


class Verdicts(unittest.TestCase):
    fast = {"bf16_ops": [1e18], "int8_ops": [1e18], "f32_ops": [1e18], "read_bytes": [1e18]}

    def judge(self, ours: float, theirs: float, ceilings: dict, key: str = "decode 16 at 128") -> dict:
        tokens = report.work_of(key)[1]
        (aim,) = report.aims({"cells": {"int8": {key: cell(ours, theirs, tokens, ceilings)}}})
        return aim

    def test_ratio_to_the_best_peer(self):
        self.assertTrue(self.judge(201, 100, self.fast)["met"])
        missed = self.judge(150, 100, self.fast)
        self.assertFalse(missed["met"])
        self.assertEqual(missed["verdict"], "short by 25 %")
        self.assertIn("1.50 times OpenVINO GenAI", missed["found"])

    def test_four_fifths_of_the_ceiling_will_do(self):
        work, tokens = report.work_of("decode 16 at 128")
        read = shape.bytes_read(work, "int8") / (tokens / 150)     # a ceiling of 150 tokens/s
        ceilings = {"bf16_ops": [1e18], "int8_ops": [1e18], "f32_ops": [1e18], "read_bytes": [read]}
        self.assertTrue(self.judge(121, 100, ceilings)["met"])
        self.assertFalse(self.judge(119, 100, ceilings)["met"])

    def test_a_share_is_taken_against_the_ceilings_of_its_own_turn(self):
        """The machine halves its read rate between two turns: both turns are at 90 % of what there was."""
        work, tokens = report.work_of("decode 1 at 128")
        at = lambda rate: {"bf16_ops": 1e18, "int8_ops": 1e18, "f32_ops": 1e18, "read_bytes": rate}
        least = lambda rate: shape.bytes_read(work, "int8") / rate
        ours = {"all": [[least(60e9) / 0.9] * 4, [least(30e9) / 0.9] * 4], "ceilings": [at(60e9), at(30e9)]}
        (row,) = report.cell_rows("int8", {"decode 1 at 128": {"tactus int8": ours, "ceilings": {"read_bytes": [60e9, 30e9], "bf16_ops": [1e18], "int8_ops": [1e18], "f32_ops": [1e18]}}})
        self.assertAlmostEqual(row["share"], 0.9)
        self.assertEqual(len(report.speeds({"tactus int8": ours}, "tactus int8", 1)), 8)

    def test_verdicts_say_whose_numerics_they_judge(self):
        tokens = report.work_of("decode 16 at 128")[1]
        both = cell(201, 100, tokens, self.fast)
        both["tactus int8, default numerics"] = {"all": [tokens / 150] * 3}
        found = {a["who"]: (a["basis"], a["met"]) for a in report.aims({"cells": {"int8": {"decode 16 at 128": both}}})}
        self.assertEqual(found, {"tactus int8": (report.LIKE, True), "tactus int8, default numerics": (report.DEFAULT, False)})

    def test_saturation_counts_a_server_that_was_cut(self):
        row = lambda rate, completed, cut=False: {"output_tokens_per_s": rate, "completed": completed, "requests": 20, "cut": cut}
        rows = {"tactus": row(60, 20), "tactus, default numerics": row(33, 20), "OpenVINO GenAI, chunks of 256": row(30, 20), "llama.cpp, default": row(20, 9, True), "broken": row(90, 3)}
        self.assertEqual([(a["who"], a["found"], a["met"]) for a in report.saturation_aims(rows)],
                         [("tactus", "2.00 times OpenVINO GenAI, chunks of 256", True), ("tactus, default numerics", "1.10 times OpenVINO GenAI, chunks of 256", False)])

    def test_wanted_ratios(self):
        wanted = report.wanted_ratio
        self.assertEqual([wanted("bf16", "prefill 512"), wanted("int4", "prefill 128"), wanted("bf16", "decode 8 at 128"), wanted("bf16", "decode 8 at 1024"),
                          wanted("int8", "decode 32 at 128"), wanted("int8", "decode 1 at 1024"), wanted("int8", "decode 4 at 128")], [1.1, 1.6, 1.4, 2.0, 2.0, 1.0, None])

    def test_trade_off_curve(self):
        row = lambda gap, ttft: {"quiet": {"p50_s": 0.05, "p99_s": 0.05}, "disturbed": {"p50_s": gap, "p99_s": gap, "max_s": gap}, "ttft_s": [ttft, ttft], "settings": ""}
        theirs = {"OpenVINO GenAI, chunks of 256": row(1.2, 9), "llama.cpp, default": row(16, 17)}
        self.assertEqual(report.undominated({"tactus, budget 64": row(0.2, 9)}, theirs), [])
        self.assertEqual(report.undominated({"tactus, budget 64": row(0.2, 10)}, theirs), ["OpenVINO GenAI, chunks of 256"])
        text = "\n".join(report.trade_off({"tactus": row(2, 5), "tactus, budget 64": row(0.2, 10), **theirs}))
        self.assertIn("| OpenVINO GenAI, chunks of 256 | 1200 | 9.00 | 2000 (default) | 10.00 (budget 64) |", text)
        self.assertIn("| llama.cpp, default | 16000 | 17.00 | 200 (budget 64) | 5.00 (default) |", text)
        found = {a["aim"][:30]: a["met"] for a in report.stall_aims({"tactus": row(2, 5), "tactus, --tbt-slo": row(0.07, 8.9), **theirs})}
        self.assertEqual(list(found.values()), [True, True, True])
        found = [a["met"] for a in report.stall_aims({"tactus": row(2, 5), "tactus, --tbt-slo": row(0.08, 9.1), **theirs})]
        self.assertEqual(found, [False, False, False])   # 0.08 s is too long, 9.1 s too late, and nothing else beats (1.2, 9)

    def test_a_report_of_everything_renders(self):
        result = {"date": "", "command": "", "machine": {"cpu": "", "cores": 2, "memory_gib": 1, "load_average": 0}, "threads": 2, "versions": {}, "settings": {}, "load_s": {},
                  "cells": {"int8": {"prefill 512": cell(100, 100, 512, self.fast)}},
                  "hybrid": {"int8": {"tactus int8": {"chunk": [1.0], "decode": [0.2], "hybrid": [1.1]}, "ceilings": self.fast}}, "operators": [], "stall": {}, "served": {}, "loaded": {}, "notes": []}
        text = report.markdown(result)
        self.assertIn("| int8 hybrid step: at most 1.15 times its chunk alone | tactus int8 | 1.10 | met |", text)
        self.assertIn("1.00 times OpenVINO GenAI", text)
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
            s = servers.Served(servers.Request([1] * 10, tokens), sent, list(times), tokens, times[-1] if times else None, error)
            return s
        server = servers.Server()
        out = load.load_report([served(0, [1, 1.5, 3], 3), served(1, [2, 4], 2), served(2, [], 5, "HTTP 503")], 0, server)
        self.assertEqual((out["requests"], out["completed"], out["seconds"], out["output_tokens_per_s"]), (3, 2, 4, 5 / 4))
        self.assertEqual((out["ttft"]["p50_s"], out["tbt"]["max_s"], out["tbt"]["n"]), (1, 2, 3))
        self.assertEqual(out["errors"], ["HTTP 503"])

    def test_every_server_gets_the_same_requests(self):
        a, b = load.poisson_requests(20, 0.5, 2), load.poisson_requests(20, 0.5, 2)
        self.assertEqual(a, b)
        self.assertEqual(sum(r.label == "burst" for r in a), 4)
        self.assertTrue(all(256 <= len(r.prompt) <= 1024 for r in a if not r.label))
        self.assertEqual(sorted(r.due_s for r in a), [r.due_s for r in a])


class Slow(servers.Server):
    """Sends a token every 20 ms; nothing of it is real but the clock."""
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

    def test_what_arrived_before_the_box_closed_counts(self):
        out = self.play(0.5, [1, 10000, 10000, 10000])      # one ends, two run, one was never sent
        self.assertEqual((out["requests"], out["completed"], out["cut"], out["errors"]), (4, 1, True, []))
        self.assertAlmostEqual(out["output_tokens_per_s"] * out["seconds"], out["streamed_tokens"])
        self.assertGreater(out["streamed_tokens"], 3)
        self.assertEqual(out["ttft"]["n"], 3)
        self.assertAlmostEqual(out["all_tokens_per_s"] * out["seconds"], out["streamed_tokens"] + 30)

    def test_a_box_that_is_large_enough_changes_nothing(self):
        out = self.play(60, [2, 3])
        self.assertEqual((out["completed"], out["cut"], out["streamed_tokens"]), (2, False, 5))


class FakeRun:
    """What cells.Bench needs of a run."""

    def __init__(self, rounds=2):
        self.args = argparse.Namespace(rounds=rounds, quick=False)
        self.result, self.notes = {"cells": {}}, []
        self.note = self.notes.append
        self.progress = self.save = lambda *_: None


class Fake:
    """An engine that answers with the times it was given, or the ceilings."""

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
    def test_turns_rotate_and_each_has_its_own_ceilings(self):
        bench = cells.Bench(FakeRun(), "int8")
        a = Fake("tactus int8", [{"seconds": [9.0]}, {"seconds": [8.0, 1.0]}, {"seconds": [8.0, 1.5]}])
        b = Fake("OpenVINO GenAI", [{"seconds": [9.0]}, {"seconds": [8.0, 2.0]}, engines.CellError("no memory")])
        bench.processes = [a, b]
        bench.ceilings = Fake("ceilings", [{"read_bytes": x} for x in (10.0, 20.0, 30.0, 40.0, 50.0)])
        found = {}
        bench.turns(found, "decode 1 at 128", {"all": "decode steps=2"}, 2, warm="decode steps=1", skip=1)
        cell = found["decode 1 at 128"]
        self.assertEqual(cell["tactus int8"], {"all": [[1.0], [1.5]], "ceilings": [{"read_bytes": 15.0}, {"read_bytes": 45.0}]})   # second in the second turn
        self.assertEqual(cell["OpenVINO GenAI"], {"all": [[2.0]], "ceilings": [{"read_bytes": 25.0}]})
        self.assertEqual(a.lines, ["decode steps=1", "decode steps=2", "decode steps=2"])
        self.assertEqual(bench.run.notes, ["int8 OpenVINO GenAI, decode 1 at 128: no memory"])


    def test_operators_of_both_roundings_replace_those_of_their_format(self):
        bench = cells.Bench(FakeRun(), "int8")
        bench.run.result["operators"] = [{"format": f, "name": "old"} for f in ("bf16", "int8", "int8, default numerics")]
        bench.ceilings = Fake("ceilings", [{"operators": [{"name": "8 bits"}]}, {"operators": [{"name": "mixed"}]}])
        cells.run_operators(bench.run, bench)
        self.assertEqual([(o["format"], o["name"]) for o in bench.run.result["operators"]], [("bf16", "old"), ("int8", "8 bits"), ("int8, default numerics", "mixed")])
        self.assertEqual(bench.ceilings.lines, ["operators format=int8 rounding=int8", "operators format=int8 rounding=mixed"])

    def test_a_slow_engine_has_one_turn(self):
        bench = cells.Bench(FakeRun(), "int8")
        bench.processes = [Fake("tactus int8", [{"seconds": [1.0]}] * 3), Fake("llama.cpp", [{"seconds": [13.0]}])]
        found = {}
        bench.turns(found, "prefill 2048", {"all": "prefill"}, 3)
        self.assertEqual((len(found["prefill 2048"]["tactus int8"]["all"]), found["prefill 2048"]["llama.cpp"]["all"], bench.run.notes), (3, [[13.0]], []))


class CommandLine(unittest.TestCase):
    def refused(self, *words):
        script = pathlib.Path(__file__).resolve().parents[2] / "bench/cpu/run.py"
        done = subprocess.run([sys.executable, "-B", str(script), *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr.splitlines()[-1]

    def test_bad_input_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("setup.sh", self.refused("--cache", folder + "/nope"))
            self.assertIn("fp8 unknown; there are int8, bf16, int4", self.refused("--cache", folder, "--formats", "fp8"))
            self.assertIn("--parts: all unknown", self.refused("--cache", folder, "--parts", "all"))
            self.assertIn("--engines: vllm unknown", self.refused("--cache", folder, "--engines", "vllm"))
            self.assertIn("has no tactus", self.refused("--cache", folder, "--build", folder))

    def test_a_command_is_reported_without_this_machines_folders(self):
        self.assertEqual(run.public(["--cache", "/a/b", "--build=/c", "-o", "x.json", "--rounds", "3"]), ["--cache", "CACHE", "--build=BUILD", "-o", "FILE", "--rounds", "3"])

    def test_the_plan_grows_with_what_is_asked(self):
        names = ["tactus int8", "OpenVINO GenAI"]
        some = plan.cells_s(names, "int8", 2, [512], [16, 1], [128])
        self.assertGreater(plan.cells_s(names, "int8", 2, plan.PREFILLS, plan.BATCHES, plan.CONTEXTS), 2 * some)
        self.assertGreater(plan.cells_s([*names, "llama.cpp"], "int8", 2, [512], [16, 1], [128]), some)

    def test_poisson_takes_the_faster_of_the_llama_family(self):
        fake = argparse.Namespace(result={"served": {"saturation": {"llama.cpp, default": {"output_tokens_per_s": 9.0}, "ik_llama.cpp, default": {"output_tokens_per_s": 20.0}}}})
        rows = [(n, None) for n in ("tactus", "OpenVINO GenAI, chunks of 256", "llama.cpp, default", "ik_llama.cpp, default")]
        self.assertEqual([n for n, _ in served.poisson_rows(fake, rows)], ["tactus", "OpenVINO GenAI, chunks of 256", "ik_llama.cpp, default"])


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
            assert body["prompt"] == [5, 6] and body["ignore_eos"] is True and 4 in (body.get("max_tokens"), body.get("n_predict")), body
            writer.write(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            for event in events:
                data = f"data: {event}\n\n".encode()
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            writer.close()
        return handle

    def test_tactus_events(self):
        events = ['{"choices":[{"text":"a"}]}', '{"choices":[{"text":""}]}', '{"choices":[{"text":"b"}]}', '{"choices":[]}', "[DONE]"]
        served = self.serve(self.answering("200 OK", events), servers.Tactus)
        self.assertEqual((served.tokens, len(served.token_times), served.error), (2, 2, ""))
        self.assertGreaterEqual(served.ttft_s, 0)

    def test_llama_events(self):
        events = ['{"content":"a","tokens":[7,8],"stop":false}', '{"content":"b","stop":false}', '{"content":"","tokens":[],"stop":true}']
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
            process = engines.Process(engines.Spec("fake", [sys.executable, "-c", ENGINE], ""), pathlib.Path(folder) / "log")
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
                engines.Process(engines.Spec("fake", [sys.executable, "-c", "print(1)"], ""), pathlib.Path(folder) / "log")


if __name__ == "__main__":
    unittest.main()
