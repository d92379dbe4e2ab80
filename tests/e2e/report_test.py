"""Run files and reports of the real program: the recordings of sim, bench and serve, and the output of `tactus
report`."""

import csv
import io
import json
import signal
import subprocess
import unittest
import xml.etree.ElementTree
import zipfile

from command_case import BINARY, ENVIRONMENT, Folder, tactus
from router_process import Router
from server_process import ServerProcess, wait_until

SIM = ("sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", "random:in=512,out=32", "--seed", "3")


def table(run, name):
    parts = sorted(part for part in run.namelist() if part.startswith(name + "/"))
    return [row for part in parts for row in csv.DictReader(io.TextIOWrapper(run.open(part)))]


class ReportTest(Folder):
    def record(self, name, *options, rate="20"):
        path = self.folder / name
        done = tactus(
            *SIM,
            "--rate",
            rate,
            "--requests",
            "60",
            "--slo",
            "ttft=200ms,tbt=20ms",
            "--json",
            "--run-out",
            path,
            *options,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, json.loads(done.stdout)

    def test_a_recorded_simulation_matches_its_result(self):
        path, result = self.record("a.run")
        with zipfile.ZipFile(path) as run:
            self.assertIsNone(run.testzip())
            about = json.loads(run.read("run.json"))
            requests, steps, series = (table(run, name) for name in ("requests", "steps", "timeseries"))
            self.assertEqual(json.loads(run.read("result.json")), result)
        self.assertEqual((about["format"], about["version"], about["command"]), ("tactus-run", 1, "sim"))
        self.assertEqual(about["options"]["rate"], "20")
        self.assertIn("slo", about["stated"])
        self.assertNotIn("balancer", about["stated"])
        self.assertEqual(len(requests), 60)
        self.assertEqual(len(steps), result["steps"])
        self.assertEqual(sum(int(row["completed"]) for row in series), result["requests"]["completed"])
        self.assertEqual(sum(int(row["output_tokens"]) for row in series), 60 * 32)
        self.assertEqual(sum(int(row["prompt_tokens"]) for row in steps), 60 * 512)
        kept = [row for row in requests if not (row["ttft_missed_by"] or row["tbt_missed_by"] or row["jct_missed_by"])]
        self.assertEqual(len(kept), result["classes"][""]["kept"])
        ttft = sorted(float(row["first_token_s"]) - float(row["arrival_s"]) for row in requests)
        self.assertAlmostEqual(1000 * ttft[29], result["ttft_ms"]["p50"], delta=0.01 * result["ttft_ms"]["p50"])

    def test_recording_changes_nothing(self):
        _, recorded = self.record("a.run")
        done = tactus(*SIM, "--rate", "20", "--requests", "60", "--slo", "ttft=200ms,tbt=20ms", "--json")
        self.assertEqual(json.loads(done.stdout)["plan_hash"], recorded["plan_hash"])

    def test_a_page_pictures_and_a_trace(self):
        path, _ = self.record("a.run")
        page, pictures, trace = self.folder / "page.html", self.folder / "pictures", self.folder / "trace.json"
        done = tactus("report", path, "-o", page, "--pictures", pictures, "--perfetto", trace)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        text = page.read_text()
        for asked in ("http:", "https:", "src=", "href=", "<script"):
            self.assertNotIn(asked, text)
        names = {p.name for p in pictures.iterdir()}
        self.assertLessEqual(
            {"tbt.svg", "tbt.csv", "batch.svg", "kv.svg", "queue.svg", "attainment.svg", "report.json"}, names
        )
        for svg in pictures.glob("*.svg"):
            self.assertTrue(xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg"), svg)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual(sum(e["ph"] == "b" and e["name"].startswith("request ") for e in events), 60)

    def test_pictures_as_png(self):
        path, _ = self.record("a.run")
        pictures = self.folder / "pictures"
        command = [BINARY, "report", path, "--pictures", pictures, "--png"]
        missing = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, "PATH": str(self.folder)})
        self.assertEqual(missing.returncode, 2)
        self.assertIn(
            "--png needs the program rsvg-convert, which is not in PATH: install it (Debian package librsvg2-bin)",
            missing.stderr,
        )
        self.assertFalse(pictures.exists(), "all pictures or none")
        # Any program of that name gets the picture and the path of its PNG.
        program = self.folder / "rsvg-convert"
        program.write_text('#!/bin/sh\necho "$1" "$2" > "$3"\necho "$5" >> "$3"\n')
        program.chmod(0o755)
        done = subprocess.run(
            command, capture_output=True, text=True, env={**ENVIRONMENT, "PATH": f"{self.folder}:/usr/bin:/bin"}
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual({p.stem for p in pictures.glob("*.svg")}, {p.stem for p in pictures.glob("*.png")})
        self.assertEqual((pictures / "tbt.png").read_text(), f"--zoom=2 --output\n{pictures / 'tbt.svg'}\n")
        program.write_text("#!/bin/sh\nexit 3\n")
        failed = subprocess.run(
            command, capture_output=True, text=True, env={**ENVIRONMENT, "PATH": f"{self.folder}:/usr/bin:/bin"}
        )
        self.assertEqual(failed.returncode, 1)
        drawn = len(list(pictures.glob("*.svg")))
        self.assertRegex(
            failed.stderr,
            rf"rsvg-convert could not make '.*' \(exit status 3\); 0 of {drawn} PNG pictures were made, and all {drawn}"
            r" as SVG",
        )
        # A program that reports success without output is a failure, and so is one that is killed.
        for script, made in (("exit 0", 0), (f'[ "$5" = {pictures}/kv.svg ] && kill -9 $$; echo x > "$3"', None)):
            for png in pictures.glob("*.png"):
                png.unlink()
            program.write_text(f"#!/bin/sh\n{script}\n")
            failed = subprocess.run(
                command, capture_output=True, text=True, env={**ENVIRONMENT, "PATH": f"{self.folder}:/usr/bin:/bin"}
            )
            self.assertEqual(failed.returncode, 1, failed.stderr)
            whole = len(list(pictures.glob("*.png")))
            self.assertIn(f"; {whole} of {drawn} PNG pictures were made", failed.stderr)
            self.assertEqual(made if made is not None else whole, whole)
            self.assertEqual(len(list(pictures.glob("*.csv"))), drawn)

    def test_a_time_series_in_the_result(self):
        path, result = self.record("a.run", "--timeseries", "500ms")
        series = result["timeseries"]
        self.assertEqual((series["interval_s"], series["left_out"]), (0.5, 0))
        with zipfile.ZipFile(path) as run:
            self.assertEqual(json.loads(run.read("run.json"))["interval_s"], 0.5)
            rows = table(run, "timeseries")
        self.assertEqual(len(rows), len(series["rows"]))
        for row, other in zip(rows, series["rows"]):
            self.assertEqual(
                {k: float(v) if v else None for k, v in row.items()},
                {k: round(v, 6) if isinstance(v, float) else v for k, v in other.items()},
            )
        self.assertEqual(sum(row["output_tokens"] for row in series["rows"]), 60 * 32)
        # Without a run file, as text.
        args = (*SIM, "--rate", "20", "--requests", "60", "--slo", "ttft=200ms,tbt=20ms", "--timeseries", "500ms")
        self.assertEqual(json.loads(tactus(*args, "--json").stdout)["timeseries"], series)
        text = tactus(*args).stdout
        self.assertIn("from (s)", text)
        self.assertIn(f"\n{0.5:12.3f} {series['rows'][1]['arrived']:8d}", text)
        for extra, why in (
            (["--timeseries", "1us"], "--timeseries is 1us; it must be between 1ms"),
            (["--timeseries", "1s", "--run-interval", "2s"], "a run has one time series"),
            (["--timeseries", "1s", "--seeds", "2"], "--timeseries describes one run"),
            (["--timeseries", "1s", "--scheduler", "oracle"], "--timeseries describes one simulated run"),
        ):
            done = tactus(*SIM, "--rate", "20", *extra)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(why, done.stderr)

    def test_a_time_series_of_a_recording(self):
        recording = self.folder / "a.trace"
        _, result = self.record("a.run", "--timeseries", "500ms", "--trace-out", recording)
        sums = lambda rows: [sum(row[name] for row in rows) for name in ("arrived", "completed", "output_tokens")]
        replay = ("sim", "--replay", str(recording), "--timeseries", "500ms")
        again = tactus(*replay, "--json")
        self.assertEqual(again.returncode, 0, again.stderr)
        series = json.loads(again.stdout)["timeseries"]
        self.assertEqual(sums(series["rows"]), sums(result["timeseries"]["rows"]))
        predicted = tactus(*replay, "--times", "model", *SIM[1:5], "--json")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        self.assertEqual(sums(json.loads(predicted.stdout)["timeseries"]["rows"]), [60, 60, 60 * 32])
        self.assertIn("from (s)", tactus(*replay).stdout)

    def test_a_request_of_a_run_file_is_explained(self):
        path, result = self.record("a.run")
        with zipfile.ZipFile(path) as run:
            requests, steps = table(run, "requests"), table(run, "steps")
        slowest = max(requests, key=lambda row: float(row["longest_gap_s"]))
        story = json.loads(tactus("explain", path, slowest["request"], "--json").stdout)
        as_slow = sum(row["longest_gap_s"] == slowest["longest_gap_s"] for row in requests)
        self.assertAlmostEqual(story["slower_than"]["longest_gap"], (60 - as_slow) / 59)
        answer = story["phases"][-1]
        during = [
            s
            for s in steps
            if float(s["end_s"]) > float(slowest["first_token_s"]) and float(s["start_s"]) < float(slowest["done_s"])
        ]
        self.assertEqual((answer["phase"], answer["steps"]), ("answer", len(during)))
        self.assertEqual(answer["decodes"], sum(int(s["decodes"]) for s in during))
        gap = story["longest_gap"]
        self.assertAlmostEqual(1000 * (gap["to_s"] - gap["from_s"]), story["longest_gap_ms"], places=5)
        within = [s for s in steps if gap["from_s"] + 1e-9 < float(s["end_s"]) < gap["to_s"] + 1e-9]
        self.assertEqual(
            (gap["steps"], gap["prompt_tokens"]), (len(within), sum(int(s["prompt_tokens"]) for s in within))
        )
        text = tactus("explain", path, slowest["request"]).stdout
        for told in ("waited", "computed its prompt", "longest gap", "others were faster", f"to step {gap['step']}:"):
            self.assertIn(told, text)

    def test_several_runs_are_compared(self):
        paths = [
            self.record(f"{s}-{r}.run", "--scheduler", s, rate=r)[0]
            for s in ("vllm", "sarathi-serve")
            for r in ("5", "10")
        ]
        page = self.folder / "page.html"
        self.assertEqual(tactus("report", *paths, "-o", page).returncode, 0)
        text = page.read_text()
        for shown in ("Time to first token (TTFT) against load", "1. vllm, rate 5", "Side by side"):
            self.assertIn(shown, text)

    def test_wrong_input_is_reported(self):
        other = self.folder / "other"
        other.write_text("{}")
        path, _ = self.record("a.run")
        newer = self.folder / "newer.run"
        with zipfile.ZipFile(newer, "w") as run:
            run.writestr("run.json", json.dumps({"format": "tactus-run", "version": 2, "program": "9.9"}))
        empty = self.folder / "empty.run"
        with zipfile.ZipFile(empty, "w") as run:
            run.writestr("run.json", json.dumps({"format": "tactus-run", "version": 1}))
        page = self.folder / "page.html"
        for args, code, why in (
            (["-o", page], 2, "no run to report"),
            ([path, "-o", page, "--png"], 2, "--png needs --pictures"),
            ([path, "-o", path], 2, "is one of the runs to report"),
            ([path, "--perfetto", path], 2, "is one of the runs to report"),
            ([path], 2, "nothing to write"),
            ([other, "-o", page], 2, "is not a run file"),
            ([newer, "-o", page], 2, "is of version 2, written by tactus 9.9; this program reads version 1"),
            ([empty, "-o", page], 2, "is empty"),
            ([self.folder / "none", "-o", page], 1, "none"),
            ([path, path, "--perfetto", page], 2, "--perfetto takes one run, and 2 are named"),
            ([path, "-o", page, "--perfetto", page], 2, "--output and --perfetto are one file"),
            (
                [path, "-o", self.folder / "p/report.json", "--pictures", self.folder / "p"],
                2,
                "would be overwritten by a file of --pictures",
            ),
        ):
            done = tactus("report", *args)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertIn(why, done.stderr)
            self.assertFalse(page.exists())
        done = tactus("explain", newer, "1")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("is of version 2, written by tactus 9.9; this program reads version 1", done.stderr)
        for args, why in (
            (["--run-out", self.folder / "x", "--run-interval", "0.1ms"], "--run-interval is"),
            (["--run-out", self.folder / "x", "--scheduler", "oracle"], "--run-out records one simulated run"),
        ):
            done = tactus(*SIM, "--rate", "20", *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(why, done.stderr)
        self.assertEqual(tactus(*SIM, "--rate", "20", "--run-out", "/dev/full").returncode, 1)

    def test_a_killed_recording_is_incomplete_and_shown(self):
        path, page = self.folder / "a.run", self.folder / "page.html"
        command = [BINARY, *SIM, "--rate", "20", "--requests", "100000000", "--run-out", str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        ) as process:
            wait_until(lambda: path.exists() and path.stat().st_size > 200_000, "a recording of some size")
            process.send_signal(signal.SIGKILL)
        done = tactus("report", path, "-o", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was not closed", done.stderr)
        self.assertIn("was not closed", page.read_text())

    def test_a_server_and_its_load_test_record_the_same_requests(self):
        served, sent = self.folder / "served.run", self.folder / "sent.run"
        server = ServerProcess("--run-out", served, real_model=False)
        try:
            done = tactus(
                "bench",
                "--url",
                server.url,
                "--vocab-size",
                "256",
                "--requests",
                "6",
                "--concurrency",
                "2",
                "--workload",
                "random:in=8,out=5",
                "--api-key",
                "a secret",
                "--run-out",
                sent,
                "--timeseries",
                "100ms",
                "--json",
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sum(row["output_tokens"] for row in json.loads(done.stdout)["timeseries"]["rows"]), 30)
        finally:
            self.assertEqual(server.stop(), 0)
        with zipfile.ZipFile(served) as run:
            requests, steps = table(run, "requests"), table(run, "steps")
            self.assertEqual(json.loads(run.read("result.json"))["requests"]["completed"], 6)
        self.assertEqual([row["output_tokens"] for row in requests], ["5"] * 6)
        self.assertGreaterEqual(sum(int(row["prompt_tokens"]) for row in steps), 6)
        with zipfile.ZipFile(sent) as run:
            self.assertNotIn("a secret", run.read("run.json").decode())
            about = json.loads(run.read("run.json"))
            self.assertEqual((about["interval_s"], "run-interval" in about["stated"]), (0.1, False))
            self.assertEqual([row["finish"] for row in table(run, "requests")], ["completed"] * 6)
            self.assertEqual(table(run, "steps"), [])
        page = self.folder / "page.html"
        self.assertEqual(tactus("report", served, sent, "-o", page).returncode, 0)

    def test_a_router_records_what_passes_through_it(self):
        routed, sent = self.folder / "routed.run", self.folder / "sent.run"
        server = ServerProcess(real_model=False)
        try:
            router = Router([server.url], "--run-out", routed)
            try:
                router.await_ready(1)
                done = tactus(
                    "bench",
                    "--url",
                    router.url,
                    "--vocab-size",
                    "256",
                    "--requests",
                    "6",
                    "--concurrency",
                    "2",
                    "--workload",
                    "random:in=8,out=5",
                    "--run-out",
                    sent,
                    "--json",
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                seen = json.loads(done.stdout)
                self.assertEqual(router.post("/v1/completions", {"model": "none", "prompt": "x"})[0], 404)
                router.get("/v1/models")
            finally:
                router.stop()
        finally:
            server.stop()
        with zipfile.ZipFile(routed) as run:
            about, result = json.loads(run.read("run.json")), json.loads(run.read("result.json"))
            requests, series = table(run, "requests"), table(run, "timeseries")
            self.assertEqual(table(run, "steps"), [])
        self.assertEqual(about["command"], "route")
        self.assertEqual([row["finish"] for row in requests], ["completed"] * 6 + ["failed"])
        self.assertEqual([row["output_tokens"] for row in requests[:6]], ["5"] * 6)
        self.assertEqual({row["prompt_tokens"] for row in requests[:6]}, {"8"})
        self.assertEqual([row["replica"] for row in requests], ["0"] * 7)
        self.assertEqual((result["requests"]["completed"], result["requests"]["failed"]), (6, 1))
        self.assertEqual(sum(int(row["arrived"]) for row in series), 7)
        # The router is between client and server: it cannot measure larger latencies than the client.
        ttft_ms = [1000 * (float(row["first_token_s"]) - float(row["arrival_s"])) for row in requests[:6]]
        self.assertLessEqual(max(ttft_ms), seen["ttft_ms"]["max"])
        page = self.folder / "page.html"
        self.assertEqual(tactus("report", routed, sent, "-o", page).returncode, 0)

    def test_a_replay_is_recorded_as_the_run_was(self):
        trace, first, again = (self.folder / name for name in ("a.trace", "first.run", "again.run"))
        path, result = self.record(first, "--trace-out", trace)
        done = tactus("sim", "--replay", trace, "--run-out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        with zipfile.ZipFile(path) as run, zipfile.ZipFile(again) as replay:
            self.assertEqual(json.loads(replay.read("result.json"))["requests"]["completed"], 60)
            for name, columns in (
                ("requests", ("arrival_s", "first_token_s", "done_s", "output_tokens", "ttft_missed_by")),
                ("steps", ("start_s", "end_s", "prompt_tokens", "decodes", "running")),
            ):
                a, b = table(run, name), table(replay, name)
                self.assertEqual(len(a), len(b), name)
                origin = float(table(run, "requests")[0]["arrival_s"])
                for row, other in zip(a, b):
                    for column in columns:
                        if column.endswith("_s"):
                            self.assertAlmostEqual(
                                float(row[column]) - origin, float(other[column]), 6, f"{name}: {column}"
                            )
                        else:
                            self.assertEqual(row[column], other[column], f"{name}: {column}")
        done = tactus(
            "sim",
            "--replay",
            trace,
            "--times",
            "model",
            "--model",
            "llama-3.1-8b",
            "--device",
            "a100",
            "--run-out",
            again,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        with zipfile.ZipFile(again) as run:
            slower = json.loads(run.read("result.json"))
        self.assertGreater(slower["e2e_ms"]["p50"], result["e2e_ms"]["p50"])


if __name__ == "__main__":
    unittest.main()
