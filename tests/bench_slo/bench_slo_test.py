#!/usr/bin/env python3
"""bench/slo: the load, reports, and whole runs with a fake program (fake_tactus.py)."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "bench/slo"
sys.path.insert(0, str(SCRIPTS))
import contenders  # noqa: E402
import openvino_server  # noqa: E402
import picture  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import workload  # noqa: E402


class Load(unittest.TestCase):
    def test_equal_seeds_draw_equal_loads(self):
        self.assertEqual(workload.draw_rows(3, 4.0, 50, "bursts"), workload.draw_rows(3, 4.0, 50, "bursts"))
        self.assertNotEqual(workload.draw_rows(3, 4.0, 50, "bursts"), workload.draw_rows(4, 4.0, 50, "bursts"))

    def test_a_calm_load_is_the_burst_load_without_long_prompts(self):
        bursts = workload.draw_rows(3, 4.0, 50, "bursts")
        self.assertEqual(workload.draw_rows(3, 4.0, 50, "calm"), [r for r in bursts if r.label != "long"])

    def test_class_rates_are_shares_of_the_total_rate(self):
        counts = workload.counts(workload.draw_rows(1, 10.0, 1000, "bursts"))
        self.assertAlmostEqual(counts["chat"] / 1000, 7.0, delta=0.3)
        self.assertAlmostEqual(counts["batch"] / 1000, 2.5, delta=0.2)
        self.assertEqual(counts["long"], 500)

    def test_long_prompts_arrive_in_evenly_spread_bursts(self):
        at = [r.arrival_s for r in workload.draw_rows(1, 4.0, 60, "bursts") if r.label == "long"]
        self.assertEqual(at, [5.0, 5.0, 15.0, 15.0, 25.0, 25.0, 35.0, 35.0, 45.0, 45.0, 55.0, 55.0])
        self.assertEqual(
            sum(r.label == "long" for r in workload.draw_rows(1, 0.2, 20, "bursts")),
            workload.BURST,
            "a slow model has a burst all the same",
        )
        self.assertTrue(all(r.prompt == 2000 for r in workload.draw_rows(1, 4.0, 60, "bursts") if r.label == "long"))

    def test_rows_are_sorted_by_arrival_and_have_tokens(self):
        rows = workload.draw_rows(7, 20.0, 100, "bursts")
        self.assertEqual([r.arrival_s for r in rows], sorted(r.arrival_s for r in rows))
        self.assertTrue(
            all(r.prompt >= 20 and r.answer >= 8 and r.prompt + r.answer <= contenders.SLOT_CONTEXT for r in rows)
        )

    def test_the_workload_file_has_the_objectives_of_each_class(self):
        objectives = workload.parse_objectives("chat:ttft=1s,tbt=100ms;long:jct=10s")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "w.csv"
            workload.write(
                path,
                [
                    workload.Row(0.5, 20, 8, "chat"),
                    workload.Row(1, 2000, 32, "long"),
                    workload.Row(2, 200, 40, "batch"),
                ],
                objectives,
            )
            self.assertEqual(
                path.read_text().splitlines(),
                [
                    "arrival_s,prompt_tokens,output_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,slo_class",
                    "0.5,20,8,1000,100,,chat",
                    "1,2000,32,,,10000,long",
                    "2,200,40,,,,batch",
                ],
            )

    def test_errors_of_objectives_name_the_wrong_part(self):
        for text, said in (
            ("talk:ttft=1s", "'talk' is no class"),
            ("chat:ttft", "'' is no duration"),
            ("chat:tpot=1s", "'tpot' is no objective"),
            ("chat:ttft=0s", "'0s'"),
            ("chat:ttft=soon", "'soon'"),
            ("chat:ttft=nans", "'nans'"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                workload.parse_objectives(text)

    def test_the_wait_for_requests_ends_when_all_have_missed_their_objectives(self):
        row = lambda label, answer: workload.Row(0, 10, answer, label)
        objectives = workload.parse_objectives("chat:ttft=10s,tbt=1s;long:jct=90s")
        self.assertEqual(workload.hopeless_after_s([row("chat", 50)], objectives), 60)
        self.assertEqual(workload.hopeless_after_s([row("chat", 50), row("long", 1)], objectives), 90)
        self.assertEqual(workload.hopeless_after_s([row("batch", 500)], objectives), 30)


class Contenders(unittest.TestCase):
    HELP = (
        "Options\n\nSchedulers (--scheduler), each:\n  one-two          a preset\n                   fcfs, x\n  two    "
        "          another; simulation only\n\n--order:\n  fcfs   first\n"
    )

    def test_presets_are_those_that_the_program_lists(self):
        self.assertEqual(contenders.presets_in(self.HELP), ["one-two"])
        self.assertEqual(contenders.presets_in("something else"), [])

    def test_presets_have_flags(self):
        found = contenders.parse_presets("a,b+tbt-slo=60ms+order=slack", ["a", "b"])
        self.assertEqual([c.name for c in found], ["tactus a", "tactus b --tbt-slo=60ms --order=slack"])
        self.assertEqual([c.preset for c in contenders.parse_presets("all,b+x=1", ["a", "b"])], ["a", "b", "b"])
        for text, said in (("c", "'c' is no preset of this build; presets: a, b"), ("a+fast", "NAME=VALUE")):
            with self.assertRaisesRegex(ValueError, said):
                contenders.parse_presets(text, ["a", "b"])

    def test_the_cpu_time_of_a_server_includes_its_child_processes(self):
        child = (
            "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True);"
            " time.sleep(30)"
        )
        parent = (
            f"import subprocess, sys\nc = subprocess.Popen([sys.executable, '-c', {child!r}],"
            " stdout=subprocess.PIPE)\nc.stdout.readline(); print(c.pid, flush=True); c.wait()"
        )
        process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
        grandchild = int(process.stdout.readline())
        try:
            self.assertGreaterEqual(contenders.tree_cpu_s(process.pid), 0.25)
        finally:
            os.kill(grandchild, signal.SIGKILL)
            process.communicate(timeout=20)

    def test_all_servers_run_with_the_same_threads_and_model_file(self):
        shop = contenders.Workshop(
            pathlib.Path("/b/tactus"),
            pathlib.Path("/l"),
            pathlib.Path("/v/python"),
            3,
            pathlib.Path("/tmp"),
            ["--activation-dtype", "int8"],
        )
        model = contenders.Model("m", pathlib.Path("/m/m.gguf"), "", 100, pathlib.Path("/t.gguf"))
        commands = [
            shop.server(c, model, pathlib.Path("/p.csv")).command
            for c in (
                contenders.Contender("tactus", "vllm", ("--tbt-slo=9ms",)),
                contenders.Contender("llama.cpp"),
                contenders.Contender("OpenVINO GenAI"),
            )
        ]
        self.assertTrue(all("/m/m.gguf" in c and "3" in c for c in commands))
        self.assertEqual(
            commands[0][:9],
            [
                "/b/tactus",
                "serve",
                "/m/m.gguf",
                "--threads",
                "3",
                "--scheduler",
                "vllm",
                "--tbt-slo=9ms",
                "--activation-dtype",
            ],
        )
        self.assertIn("/p.csv", commands[0])
        self.assertEqual(commands[1][commands[1].index("-c") + 1], str(contenders.SLOTS * contenders.SLOT_CONTEXT))
        self.assertEqual(commands[2][-2:], ["--tokenizer", "/t.gguf"])


def cell(who, repeat, goodput, tbt=10.0, scenario="bursts", load=1.0, attainment=0.5):
    latency = {"p50": tbt, "p90": tbt, "p99": tbt}
    chat = {"stated": 20, "kept": 10, "slo_attainment": attainment, "ttft_ms": latency, "tbt_ms": latency}
    return {
        "model": "m",
        "repeat": repeat,
        "load": load,
        "scenario": scenario,
        "who": who,
        "others_cores": 0.1,
        "result": {
            "goodput": goodput,
            "slo_attainment": attainment,
            "requests": {"completed": 5, "failed": 1, "rejected": 0},
            "classes": {"chat": chat},
        },
    }


class Report(unittest.TestCase):
    def result(self, cells, simulated=()):
        return {"runs": [], "models": {}, "cells": cells, "simulated": list(simulated), "notes": ["a note"]}

    def found(self, cells, judge="tactus tactus"):
        return {a["aim"]: (a["found"], a["met"]) for a in report.aims(self.result(cells), judge)}

    def test_goodput_is_divided_repeat_by_repeat(self):
        cells = [cell("tactus tactus", r, g) for r, g in ((0, 4.0), (1, 9.0), (2, 1.6))] + [
            cell("tactus vllm", r, g) for r, g in ((0, 2.0), (1, 3.0), (2, 1.0))
        ]
        aim = self.found(cells)["goodput at least 1.5 times the best other preset's (vllm)"]
        self.assertEqual(aim, ("2.00 (1.60 to 3.00)", True))
        cells[0]["result"]["goodput"] = 2.8  # 1.4, 3, 1.6
        self.assertEqual(
            self.found(cells)["goodput at least 1.5 times the best other preset's (vllm)"],
            ("1.60 (1.40 to 3.00)", True),
        )
        cells[2]["result"]["goodput"] = 1.2
        self.assertFalse(self.found(cells)["goodput at least 1.5 times the best other preset's (vllm)"][1])

    def test_the_best_other_preset_is_neither_a_peer_nor_the_judged_one(self):
        cells = [
            cell("tactus tactus", 0, 9.0),
            cell("tactus vllm", 0, 2.0),
            cell("tactus orca", 0, 3.0),
            cell("llama.cpp", 0, 5.0),
        ]
        self.assertEqual(report.best_other(cells, "tactus tactus", [1.0]), "tactus orca")

    def test_a_peer_without_goodput_has_no_ratio(self):
        cells = [cell("tactus tactus", 0, 3.0), cell("llama.cpp", 0, 0.0)]
        self.assertEqual(
            self.found(cells)["goodput beside llama.cpp's"], ("llama.cpp kept no request's objectives", True)
        )
        cells[0]["result"]["goodput"] = 0.0
        self.assertFalse(self.found(cells)["goodput beside llama.cpp's"][1], "nothing is not three times nothing")
        cells[0]["result"]["goodput"], cells[1]["result"]["goodput"] = 3.0, 1.01
        self.assertEqual(self.found(cells)["goodput at least 3 times llama.cpp's"], ("2.97", False))

    def test_tbt_with_bursts_is_compared_with_tbt_without(self):
        cells = [cell("tactus tactus", 0, 1.0, tbt=16.0), cell("tactus tactus", 0, 1.0, tbt=10.0, scenario="calm")]
        self.assertEqual(self.found(cells)["chat TBT P99 with bursts at most 1.5 times that without"], ("1.60", False))
        cells[0]["result"]["classes"]["chat"]["tbt_ms"]["p99"] = 15.0
        self.assertTrue(self.found(cells)["chat TBT P99 with bursts at most 1.5 times that without"][1])

    def test_the_judged_preset_is_tactus_or_the_default(self):
        self.assertEqual(
            report.judged(
                self.result([cell("llama.cpp", 0, 1), cell("tactus sarathi-serve", 0, 1), cell("tactus tactus", 0, 1)])
            ),
            "tactus tactus",
        )
        self.assertEqual(
            report.judged(self.result([cell("tactus vllm", 0, 1), cell("tactus sarathi-serve", 0, 1)])),
            "tactus sarathi-serve",
        )
        self.assertEqual(report.judged(self.result([cell("llama.cpp", 0, 1)])), "")

    def test_simulated_and_served_are_compared_cell_by_cell(self):
        served = [cell("tactus a", 0, 1, attainment=0.5), cell("tactus a", 1, 1, attainment=0.7)]
        simulated = [cell("tactus a", 0, 1, attainment=0.56), cell("tactus a", 1, 1, attainment=0.66)]
        self.assertEqual([round(d["points"], 6) for d in report.differences(self.result(served, simulated))], [6, -4])
        self.assertIn(
            "within 5 points of the served one in 1 of 2 cells; median difference +1.0 points, median of its size 5.0,"
            " largest +6.0",
            report.markdown(self.result(served, simulated)),
        )

    def test_token_counts_other_than_requested_are_errors(self):
        found = {
            "duration_s": 2.0,
            "input_token_throughput": 300.0,
            "output_token_throughput": 12.0,
            "requests": {"completed": 3},
        }
        report.check_tokens(found, 3, 600, 24)
        for wrong in ((3, 603, 24), (3, 600, 25), (4, 600, 24)):
            with self.assertRaisesRegex(ValueError, "counted 600 and 24"):
                report.check_tokens(found, *wrong)
        with self.assertRaisesRegex(ValueError, "completed 0"):
            report.check_tokens(
                found | {"requests": {"completed": 0}, "input_token_throughput": None, "output_token_throughput": None},
                3,
                600,
                24,
            )

    def test_served_steps_are_compared_with_the_profile(self):
        rows = "".join(f"{p},0,1,5,{ms},10\n" for p, ms in [(9, 10 + i) for i in range(10)] + [(0, 5)])
        self.assertEqual(
            report.step_ratios(
                "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms,predicted_ms\n" + rows
            ),
            {
                "with prompts": {"count": 10, "p10": 1.0, "p50": 1.4, "p90": 1.8},
                "decodes only": {"count": 1, "p10": 0.5, "p50": 0.5, "p90": 0.5},
            },
        )

    def test_the_page_has_a_row_for_each_server_best_first(self):
        text = report.markdown(
            self.result([cell("llama.cpp", 0, 1.0), cell("tactus a", 0, 2.0), cell("tactus a", 1, 4.0)])
        )
        self.assertLess(
            text.index("| tactus a | 3.00 (2.00 to 4.00) | 50 (50 to 50) | - |"),
            text.index("| llama.cpp | 1.00 | 50 | - |"),
        )
        self.assertIn("| tactus a | 50 (50 to 50) | 10 / 10 / 10 | 10 / 10 / 10 | 10 of 12 |", text)
        self.assertIn("- a note", text)

    def test_a_file_that_is_no_result_is_refused(self):
        for wrong in ([], {"runs": []}):
            with self.assertRaisesRegex(ValueError, "it lacks"):
                report.check(wrong)

    def test_the_picture_is_well_formed_and_shows_every_server(self):
        cells = [
            cell(who, r, g + load, load=load)
            for who, g in (("tactus <a>", 1.0), ("llama.cpp", 0.0))
            for r in (0, 1)
            for load in (0.5, 1.0)
        ]
        root = xml.etree.ElementTree.fromstring(picture.svg(self.result(cells)))
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(root.findall(f"{space}polyline")), 4)  # two servers with two loads, two panels
        self.assertEqual(
            sum(t.text == "tactus <a>" for t in root.iter(f"{space}text")), 2, "a bar's name, and the lines' key"
        )
        self.assertEqual(
            sum(float(r.get("height")) < 20 for r in root.iter(f"{space}rect")), 4, "a bar each in two panels"
        )
        xml.etree.ElementTree.fromstring(picture.svg(self.result([cell("tactus a", 0, None)])))
        self.assertEqual([picture.tidy_top(v) for v in (0, 0.3, 1, 3, 17, 100, 510)], [1, 0.5, 1, 5, 20, 100, 1000])

    def test_a_logarithmic_scale_ends_at_powers_of_ten(self):
        ticks, share = picture.scale([30.0, 0.0, 700.0], True)
        self.assertEqual(ticks, [10.0, 100.0, 1000.0])
        self.assertEqual([round(share(v), 6) for v in (10, 100, 1000, 0)], [0, 0.5, 1, 0])
        self.assertEqual(picture.scale([10.0], True)[0], [10.0, 100.0])
        self.assertEqual(picture.scale([3.0], False)[0][-1], 5)

    def test_bars_show_the_most_common_load(self):
        cells = [cell("tactus a", 0, 1.0, load=load) for load in (0.2, 0.6, 1.0)] + [
            cell("llama.cpp", 0, 1.0, load=load) for load in (0.2, 0.6)
        ]
        self.assertEqual(picture.usual_load(cells), 0.6)


class Turns(unittest.TestCase):
    def test_every_second_repeat_has_the_reverse_order(self):
        args = run.argparse.Namespace(repeats=2, first_repeat=0, loads=[0.5], scenarios=["calm", "bursts"])
        found = [(r, s, c) for r, _, s, c in run.cells_of(args, ["a", "b"])]
        self.assertEqual(
            found,
            [
                (0, "calm", "a"),
                (0, "calm", "b"),
                (0, "bursts", "a"),
                (0, "bursts", "b"),
                (1, "calm", "b"),
                (1, "calm", "a"),
                (1, "bursts", "b"),
                (1, "bursts", "a"),
            ],
        )

    def test_added_repeats_continue_the_numbering(self):
        args = run.argparse.Namespace(repeats=1, first_repeat=1, loads=[0.5], scenarios=["calm"])
        self.assertEqual([(r, c) for r, _, _, c in run.cells_of(args, ["a", "b"])], [(1, "b"), (1, "a")])

    def test_a_cell_that_is_measured_again_replaces_the_first(self):
        cells = [{"who": "a", "load": 1, "result": 1}, {"who": "b", "load": 1, "result": 2}]
        run.put(cells, {"who": "a", "load": 1}, {"result": 3})
        self.assertEqual(cells, [{"who": "b", "load": 1, "result": 2}, {"who": "a", "load": 1, "result": 3}])

    def test_a_command_is_reported_without_this_machines_folders(self):
        self.assertEqual(
            run.public(["--cache", "/a", "--tactus=/b", "--profile", "default=/c", "-o", "x", "--seconds", "3"]),
            ["--cache", "CACHE", "--tactus=TACTUS", "--profile", "default=FILE", "-o", "FILE", "--seconds", "3"],
        )


class MadeUpProgram(unittest.TestCase):
    """Whole runs with fake_tactus.py instead of the program."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.program = self.folder / "tactus"
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_tactus.py"}" "$@"\n')
        self.program.chmod(0o755)
        (self.folder / "model.gguf").touch()
        (self.folder / "calls").touch()
        self.out = self.folder / "out.json"

    def command(self, *words):
        return [
            sys.executable,
            "-B",
            str(SCRIPTS / "run.py"),
            "--cache",
            str(self.folder),
            "--tactus",
            str(self.program),
            "--default-model",
            str(self.folder / "model.gguf"),
            "-o",
            str(self.out),
            "--models",
            "default",
            *words,
        ]

    def environment(self, **more):
        return os.environ | {"FAKE_DIR": str(self.folder), "TMPDIR": str(self.folder), **more}

    def run_it(self, *words, status=0, **more):
        done = subprocess.run(
            self.command(*words), env=self.environment(**more), capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def calls(self, command):
        return [line for line in (self.folder / "calls").read_text().splitlines() if line.startswith(command)]

    @staticmethod
    def rows_of(call):
        return pathlib.Path(call.split("trace:")[1].split()[0]).read_text()


class WholeRuns(MadeUpProgram):
    def check_servers(self, count):
        """Checks that this number was started and none is left."""
        pids = [int(line) for line in (self.folder / "server-pids").read_text().split()]
        self.assertEqual(len(pids), count)
        try:
            wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "a server still runs")
        finally:
            for pid in filter(lambda p: pathlib.Path(f"/proc/{p}").exists(), pids):
                os.kill(pid, signal.SIGKILL)

    def test_a_run_writes_result_page_and_picture(self):
        done = self.run_it("--quick", "--presets", "all", "--scenarios", "bursts", "--repeats", "2")
        result = json.loads(self.out.read_text())
        report.check(result)
        self.assertEqual(
            [(c["who"], c["repeat"]) for c in result["cells"]],
            [("tactus sarathi-serve", 0), ("tactus fast", 0), ("tactus fast", 1), ("tactus sarathi-serve", 1)],
        )
        self.assertEqual(
            [c["result"]["slo_attainment"] for c in result["cells"] + result["simulated"]], [0.8] * 4 + [0.5] * 4
        )
        self.assertTrue(
            all("--step-noise profile" in c for c in self.calls("sim") if "trace:" in c),
            "simulated steps vary as the profile says",
        )
        self.assertEqual(result["simulated"][0]["step_noise"], {"with_prompts": 0.174, "decodes_only": 0.118})
        self.assertEqual(
            [(c["seed"], c["warmup_s"], c["measured_s"]) for c in result["cells"][1:3]],
            [(1, 3.0, 10.0), (2, 3.0, 10.0)],
        )
        self.assertEqual(
            (
                result["models"]["default"]["capacity"],
                result["models"]["default"]["kv_blocks"],
                result["models"]["default"]["context"],
            ),
            (2.0, 777, 4096),
        )
        self.assertIn("llama.cpp is not in the cache: not measured", result["notes"])
        self.assertIn("| tactus fast | 1.60 (1.60 to 1.60) | 80 (80 to 80) | 50 (50 to 50) |", done.stdout)
        self.assertIn("Steps of 4 of 4 simulated cells vary, by 17 % with prompts and 12 % without", done.stdout)
        xml.etree.ElementTree.fromstring(self.out.with_suffix(".svg").read_text())
        loads = [c for c in self.calls("bench") if "trace:" in c]
        self.assertTrue(all("--send-slo" in c and "--warmup 3s" in c for c in loads))
        files = [next(w for w in c.split() if w.startswith("trace:")) for c in loads]
        self.assertEqual(
            files[:2] + files[2:], [files[0]] * 2 + [files[2]] * 2, "the same arrivals for all in a repeat"
        )
        self.assertNotEqual(files[0], files[2])
        self.assertEqual(
            [c for c in self.calls("sim") if "trace:" in c][0].split("trace:")[1].split()[0],
            files[0].removeprefix("trace:"),
            "simulated: the file that was served",
        )
        self.assertEqual(
            result["simulated"][0]["steps"],
            {
                "with prompts": {"count": 1, "p10": 1.5, "p50": 1.5, "p90": 1.5},
                "decodes only": {"count": 1, "p10": 0.5, "p50": 0.5, "p90": 0.5},
            },
        )
        self.assertIn("Served steps with prompts took 1.50 times what the profile says", done.stdout)
        self.check_servers(4)
        self.run_it("--quick", "--append", "--presets", "fast", "--scenarios", "bursts", "--first-repeat", "2")
        self.assertEqual(len(json.loads(self.out.read_text())["cells"]), 5)

    def test_a_server_that_counts_other_tokens_is_left_out(self):
        self.run_it("--quick", "--scenarios", "bursts", status=1, FAKE_TOKENS="2")
        result = json.loads(self.out.read_text())
        self.assertEqual(result["cells"], [])
        self.assertIn("counted 1200 and 24", result["notes"][-1])

    def test_an_interrupt_stops_the_server_and_keeps_finished_cells(self):
        process = subprocess.Popen(
            self.command("--quick"),
            env=self.environment(FAKE_HANG="1"),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: (self.folder / "load-began").exists(), "the load has not begun")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, errors)
        report.check(json.loads(self.out.read_text()))
        self.check_servers(1)

    def test_wrong_arguments_are_reported_before_anything_runs(self):
        for words, said in (
            (["--engines", "llama.cpp"], "llama.cpp is not in"),
            (["--engines", "vllm"], "vllm unknown; engines: tactus, llama.cpp, OpenVINO GenAI"),
            (["--presets", "trail-oracle"], "'trail-oracle' is no preset of this build; presets: sarathi-serve, fast"),
            (["--loads", "0.5,x"], "--loads 0.5,x"),
            (["--loads", "0"], "--loads"),
            (["--scenarios", "storm"], "some of calm, bursts"),
            (["--objectives", "default=chat:ttft"], "no duration"),
            (["--objectives", "chat:ttft=1s"], "MODEL=VALUE"),
            (["--profile", "default=/nowhere"], "no file /nowhere"),
            (["--repeats", "-1"], "must be above 0"),
            (["--models", "7b"], "some of default, 1.1b"),
            (["--models", "1.1b"], "setup.sh"),
            (["--tactus", "/nowhere"], "no such program"),
            (["--cache", "/nowhere"], "setup.sh"),
        ):
            done = self.run_it(*words, status=2)
            self.assertIn(said, done.stderr.splitlines()[-1])
        self.assertFalse(self.out.exists())
        self.assertEqual([c for c in self.calls("") if not c.endswith("--help-all")], [], "nothing was started")


class SimulatedAgain(MadeUpProgram):
    served, loads = "", {}  # computed once for all tests

    def profile(self, spread="# spread of steps with prompts: 0.174\n"):
        path = self.folder / "again.csv"
        path.write_text(f"{spread}steps\n")
        return f"default={path}"

    def serve_without_spread(self):
        """Two loads of two presets, served and simulated with an earlier profile, in the format of an earlier file
        without seed and times."""
        if not SimulatedAgain.served:
            self.run_it("--quick", "--presets", "all", "--scenarios", "bursts", "--loads", "0.5,0.8", FAKE_OLD="1")
            result = json.loads(self.out.read_text())
            self.assertEqual([s["result"]["slo_attainment"] for s in result["simulated"]], [0.75] * 4)
            self.assertFalse(any("--step-noise" in c for c in self.calls("sim")))
            SimulatedAgain.loads = {
                (c["load"], c["who"]): self.rows_of(call)
                for c, call in zip(result["cells"], [c for c in self.calls("bench") if "trace:" in c])
            }
            for cell in result["cells"]:
                for name in ("seed", "warmup_s", "measured_s"):
                    del cell[name]
            result["simulated"][0]["steps"]["with prompts"]["p50"] = 9.5  # known only from the recording
            SimulatedAgain.served = json.dumps(result)
        self.out.write_text(self.served)
        (self.folder / "calls").write_text("")
        return json.loads(self.served)

    def test_cells_are_simulated_again_without_a_server(self):
        before = self.serve_without_spread()
        done = self.run_it("--quick", "--append", "--parts", "sim", "--profile", self.profile())
        self.assertEqual(
            [c.split()[0] for c in self.calls("") if "--help" not in c],
            ["version"] + ["sim"] * 4,
            "nothing is served, measured or replayed",
        )
        result = json.loads(self.out.read_text())
        self.assertEqual(result["cells"], before["cells"])
        self.assertEqual([s["result"]["slo_attainment"] for s in result["simulated"]], [0.5] * 4)
        self.assertEqual(
            [s.get("steps") for s in result["simulated"]],
            [s["steps"] for s in before["simulated"]],
            "what the recordings said stays",
        )
        self.assertEqual(len(result["runs"]), 2)
        for cell, call in zip(result["simulated"], self.calls("sim")):
            self.assertIn("--kv-blocks 777 --max-model-len 4096", call)
            self.assertIn("--step-noise profile", call)
            self.assertIn(" --seed 1 --warmup 3s ", call)
            self.assertIn(f"--scheduler {cell['who'].removeprefix('tactus ')}", call)
            self.assertEqual(self.rows_of(call), self.loads[cell["load"], cell["who"]], "the load that was served")
        self.assertIn("| tactus fast | 1.60 | 80 | 50 |", done.stdout)

    def test_a_cells_stored_load_overrides_the_flags(self):
        self.run_it("--quick", "--presets", "fast+x=1", "--scenarios", "calm", "--seed", "5")
        served = self.rows_of(next(c for c in self.calls("bench") if "trace:" in c))
        (self.folder / "calls").write_text("")
        self.run_it("--append", "--parts", "sim", "--profile", self.profile(), "--seconds", "50", "--warmup", "9")
        (call,) = self.calls("sim")
        self.assertIn(" --seed 5 --warmup 3s ", call)
        self.assertIn("--scheduler fast --x=1", call)
        self.assertEqual(self.rows_of(call), served)

    def test_only_selected_cells_are_simulated_again(self):
        self.serve_without_spread()
        self.run_it(
            "--quick", "--append", "--parts", "sim", "--profile", self.profile(), "--presets", "fast", "--loads", "0.8"
        )
        result = json.loads(self.out.read_text())
        again = {(s["load"], s["who"]): s["result"]["slo_attainment"] for s in result["simulated"]}
        self.assertEqual(
            again,
            {
                (0.5, "tactus sarathi-serve"): 0.75,
                (0.5, "tactus fast"): 0.75,
                (0.8, "tactus sarathi-serve"): 0.75,
                (0.8, "tactus fast"): 0.5,
            },
        )

    def test_a_load_other_than_the_served_one_is_refused(self):
        before = self.serve_without_spread()
        self.run_it("--quick", "--append", "--parts", "sim", "--profile", self.profile(), FAKE_SIMULATED="12")
        result = json.loads(self.out.read_text())
        self.assertEqual(result["simulated"], before["simulated"])
        self.assertIn(
            "all: 10 served, 12 simulated; chat with objectives: 10 served, 12 simulated requests): pass the --seconds,"
            " --warmup and --seed",
            result["notes"][-1],
        )

    def test_a_profile_without_step_variation_is_noted(self):
        self.serve_without_spread()
        self.run_it("--quick", "--append", "--parts", "sim", "--profile", self.profile(""))
        self.assertFalse(any("--step-noise" in c for c in self.calls("sim")))
        self.assertIn("does not state the variation", " ".join(json.loads(self.out.read_text())["notes"]))

    def test_missing_inputs_of_a_resimulation_are_reported_before_anything_runs(self):
        self.serve_without_spread()
        for words, said in (
            (["--append"], "give --profile default=FILE"),
            (["--profile", self.profile()], "add --append"),
            (["--append", "--profile", self.profile(), "--loads", "0.3"], "no selected cell of ours"),
            (["--append", "--models", "1.1b", "--profile", self.profile()], "no selected cell of ours for model 1.1b"),
        ):
            done = self.run_it("--quick", "--parts", "sim", *words, status=2)
            self.assertIn(said, done.stderr.splitlines()[-1])
        result = json.loads(self.out.read_text())
        del result["models"]["default"]["kv_blocks"]
        self.out.write_text(json.dumps(result))
        done = self.run_it("--quick", "--parts", "sim", "--append", "--profile", self.profile(), status=2)
        self.assertIn("lacks kv_blocks of model default", done.stderr.splitlines()[-1])
        self.assertEqual([c for c in self.calls("") if not c.endswith("--help-all")], [], "nothing was started")


def wait_until(condition, message, limit_s=20):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(message)
        time.sleep(0.02)


class OpenVinoFront(unittest.TestCase):
    """The wrapper's HTTP with a fake driver that answers its first request with `lines`."""

    def ask(self, body, lines=(), leave=False):
        driver = f"import sys\nprint('banner')\nsys.stdin.readline()\nprint({chr(10).join(lines)!r}, flush=True)\n" + (
            "print(sys.stdin.readline(), file=sys.stderr, flush=True)" if leave else ""
        )

        async def play():
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                driver,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            pipeline = openvino_server.Pipeline(process)
            reading = asyncio.create_task(pipeline.read())
            listener = await asyncio.start_server(openvino_server.Front("m", pipeline).handle, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.sockets[0].getsockname()[1])
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                + str(len(data)).encode()
                + b"\r\n\r\n"
                + data
            )
            try:
                if leave:
                    await asyncio.wait_for(reader.readuntil(b"token "), 10)
                    writer.close()
                    return (await asyncio.wait_for(process.stderr.readline(), 10)).decode()
                return (await asyncio.wait_for(reader.read(), 10)).decode()
            finally:
                writer.close()
                listener.close()
                reading.cancel()
                if process.returncode is None:
                    process.kill()
                await process.wait()

        return asyncio.run(play())

    def test_a_stream_has_an_event_per_step_and_reports_token_counts(self):
        text = self.ask(
            {"prompt": [5, 6, 7], "max_tokens": 3, "stream": True},
            [
                '{"id": 1, "tokens": 1, "time": 0}',
                '{"id": 1, "tokens": 2, "time": 0}',
                '{"id": 1, "done": true, "time": 0}',
            ],
        )
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        self.assertEqual([e["choices"][0]["text"] for e in events[:3]], ["token ", "token token ", ""])
        self.assertEqual(events[3]["usage"], {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6})
        self.assertIn("data: [DONE]", text)
        self.assertTrue(text.endswith("0\r\n\r\n"))

    def test_an_answer_that_ends_early_is_an_error(self):
        body = {"prompt": [5], "max_tokens": 3, "stream": True}
        early = self.ask(body, ['{"id": 1, "tokens": 1, "time": 0}', '{"id": 1, "done": true, "time": 0}'])
        self.assertIn("the pipeline ended the answer after 1 of 3 tokens", early)
        died = self.ask(body, ['{"id": 1, "tokens": 1, "time": 0}'])
        self.assertIn('{"error": {"message": "the pipeline ended"}}', died)
        self.assertNotIn("[DONE]", early + died)

    def test_bad_bodies_are_400(self):
        for body in (
            b"{",
            {"prompt": "text", "max_tokens": 1, "stream": True},
            {"prompt": [1], "max_tokens": 0, "stream": True},
            {"prompt": [1], "max_tokens": 1},
            {"max_tokens": 1},
        ):
            self.assertTrue(self.ask(body).startswith("HTTP/1.1 400"), body)

    def test_a_client_that_leaves_cancels_its_request(self):
        self.assertEqual(
            json.loads(
                self.ask(
                    {"prompt": [5], "max_tokens": 3, "stream": True}, ['{"id": 1, "tokens": 1, "time": 0}'], leave=True
                )
            ),
            {"id": 1, "cancel": True},
        )


if __name__ == "__main__":
    unittest.main()
