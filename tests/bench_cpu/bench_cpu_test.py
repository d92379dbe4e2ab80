#!/usr/bin/env python3
"""bench/cpu: counted work, verdicts, statistics, and the clients against servers and engines that are made up here."""
import asyncio
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/cpu"))
import engines  # noqa: E402
import load  # noqa: E402
import report  # noqa: E402
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

    def test_wanted_ratios(self):
        wanted = report.wanted_ratio
        self.assertEqual([wanted("bf16", "prefill 512"), wanted("int4", "prefill 128"), wanted("bf16", "decode 8 at 128"), wanted("bf16", "decode 8 at 1024"),
                          wanted("int8", "decode 32 at 128"), wanted("int8", "decode 1 at 1024"), wanted("int8", "decode 4 at 128")], [1.1, 1.6, 1.4, 2.0, 2.0, 1.0, None])

    def test_trade_off_curve(self):
        row = lambda gap, ttft: {"quiet": {"p50_s": 0.05, "p99_s": 0.05}, "disturbed": {"p50_s": gap, "p99_s": gap, "max_s": gap}, "ttft_s": [ttft, ttft], "settings": ""}
        theirs = {"OpenVINO GenAI, chunks of 256": row(1.2, 9), "llama.cpp, default": row(16, 17)}
        self.assertEqual(report.undominated({"tactus, budget 64": row(0.2, 9)}, theirs), [])
        self.assertEqual(report.undominated({"tactus, budget 64": row(0.2, 10)}, theirs), ["OpenVINO GenAI, chunks of 256"])
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
