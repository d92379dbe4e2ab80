#!/usr/bin/env python3
"""One run of everything: this engine beside OpenVINO GenAI, llama.cpp and ik_llama.cpp, taking turns cell by cell, with the machine's
ceilings measured in the same turns.

  bench/cpu/setup.sh CACHE                       once: Python packages, llama.cpp, models (about 16 GB)
  bench/cpu/run.py --cache CACHE [-o FILE.json] [--quick] [--parts cells,hybrid,operators,stall,served,loaded] [--formats bf16,int8,int4]
                   [--minutes N] [--append]

Prints a Markdown report and writes the JSON after every cell, so that Ctrl-C keeps what is done; `report.py FILE.json` prints the report
again. Nothing else should run on the machine. What each engine runs with is in the report.
"""
from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import engines
import load
import report
import servers
from engines import CellError, warn

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PARTS = ["cells", "hybrid", "operators", "stall", "served", "loaded"]
PREFILLS = [128, 512, 2048]
BATCHES = [32, 16, 8, 4, 1]          # descending: OpenVINO's larger set is cut down, which saves its prompts
CONTEXTS = [128, 1024]


class OutOfTime(Exception):
    """--minutes are over; what is done stays."""


def kv_format(tactus_args: str) -> str:
    """Of our K and V, which decides how many bytes a cell must read; the peers keep theirs as they do by default."""
    words = tactus_args.replace("=", " ").split()
    return "int8" if "--kv-cache-dtype" in words and words[words.index("--kv-cache-dtype") + 1:][:1] == ["int8"] else "bf16"


class Run:
    """The result so far and where it goes."""

    def __init__(self, args: argparse.Namespace, places: engines.Places):
        self.args, self.places = args, places
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="tactus-bench-"))
        self.start = time.monotonic()
        self.result: dict = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "command": " ".join(["bench/cpu/run.py", *args.public]),
                             "machine": engines.machine(), "threads": places.threads, "kv": kv_format(args.tactus_args), "versions": engines.versions(places), "settings": {}, "load_s": {},
                             "cells": {}, "hybrid": {}, "operators": [], "stall": {}, "served": {}, "loaded": {}, "notes": []}
        if args.append and args.output.exists():
            before = json.loads(args.output.read_text())
            for part in ("settings", "load_s", "cells", "hybrid", "operators", "stall", "served", "loaded", "notes"):
                self.result[part] = before[part]
            self.result["notes"].append(f"Begun {before['date']} by `{before['command']}` with {before['versions']['tactus']}.")

    def save(self) -> None:
        self.result["seconds"] = round(time.monotonic() - self.start, 1)
        part = self.args.output.with_suffix(".part")
        part.write_text(json.dumps(self.result, indent=1) + "\n")
        part.rename(self.args.output)

    def note(self, text: str) -> None:
        warn(f"  ! {text}")
        if text not in self.result["notes"]:
            self.result["notes"].append(text)

    def progress(self, text: str) -> None:
        if self.args.minutes and time.monotonic() - self.start > self.args.minutes * 60:
            raise OutOfTime
        warn(f"[{time.monotonic() - self.start:6.0f} s] {text}")


class Bench:
    """The processes of one format, plus the ceilings' process, which takes its turn like an engine."""

    def __init__(self, run: Run, fmt: str):
        self.run, self.fmt = run, fmt
        self.processes: list[engines.Process] = []
        self.ceilings: engines.Process | None = None
        self.broken: set[tuple[str, str]] = set()

    def __enter__(self) -> "Bench":
        return self

    def load(self) -> None:
        for spec in [engines.ceilings_spec(self.run.places), *engines.specs(self.run.places, self.fmt, self.run.args.engines)]:
            self.run.progress(f"{self.fmt}: loading {spec.name}")
            log = self.run.logs / f"{self.fmt}-{spec.name.replace(' ', '-')}.log"
            try:
                process = engines.Process(spec, log)
                if spec.name == "ceilings":
                    self.ceilings = process
                    continue
                process.ask("prefill tokens=128 repeat=1")      # touches every page once
            except (CellError, OSError) as error:
                self.run.note(f"{self.fmt} {spec.name}: {error}")
                continue
            self.processes.append(process)
            self.run.result["settings"][f"{self.fmt} {spec.name}"] = spec.settings
            self.run.result["load_s"][f"{self.fmt} {spec.name}"] = round(process.about.get("load_seconds", 0), 2)

    def __exit__(self, *_) -> None:
        for process in [*self.processes, *([self.ceilings] if self.ceilings else [])]:
            process.close()

    def measure_ceilings(self, into: dict) -> None:
        if self.ceilings:
            for key, value in self.ceilings.ask("ceilings").items():
                into.setdefault(key, []).append(value)

    def turns(self, cells: dict, key: str, commands: dict[str, str], rounds: int) -> None:
        """cells[key]: every engine's turn with every command, `rounds` times, beginning with another engine each time."""
        cell = cells[key] = {}
        for r in range(rounds):
            self.measure_ceilings(cell.setdefault("ceilings", {}))
            at = r % max(1, len(self.processes))
            for process in self.processes[at:] + self.processes[:at]:
                name = process.spec.name
                if (name, key) in self.broken or process.process.poll() is not None:
                    continue
                for command, line in commands.items():
                    try:
                        seconds = process.ask(line)["seconds"]
                    except CellError as error:
                        self.broken.add((name, key))
                        self.run.note(f"{self.fmt} {name}, {key}: {error}")
                        break
                    cell.setdefault(name, {}).setdefault(command, []).extend(seconds)
        self.run.save()


def run_cells(run: Run, bench: Bench) -> None:
    rounds, cells = run.args.rounds, run.result["cells"].setdefault(bench.fmt, {})
    for tokens in PREFILLS if not run.args.quick else [512]:
        run.progress(f"{bench.fmt}: prefill {tokens}")
        bench.turns(cells, f"prefill {tokens}", {"all": f"prefill tokens={tokens} repeat=1"}, rounds if tokens > 128 else rounds + 1)
    for context in CONTEXTS if not run.args.quick else CONTEXTS[:1]:
        for batch in BATCHES if not run.args.quick else [16, 1]:
            run.progress(f"{bench.fmt}: decode {batch} at context {context}")
            key = f"decode {batch} at {context}"
            bench.turns(cells, key, {"all": f"decode batch={batch} context={context} steps={4 if batch > 4 else 8}"}, rounds)


def run_hybrid(run: Run, bench: Bench) -> None:
    run.progress(f"{bench.fmt}: hybrid step, 512 + 16, and its parts")
    bench.turns(run.result["hybrid"], bench.fmt,
                {"chunk": "prefill tokens=512 repeat=1", "decode": "decode batch=16 context=128 steps=2", "hybrid": "hybrid chunk=512 batch=16 context=128 steps=1"},
                max(2, run.args.rounds))


def run_operators(run: Run, bench: Bench) -> None:
    if bench.ceilings is None:
        return
    run.progress(f"{bench.fmt}: operators")
    answer = bench.ceilings.ask(f"operators format={bench.fmt}")
    run.result["operators"] = [o for o in run.result["operators"] if o["format"] != bench.fmt] + [{"format": bench.fmt, **row} for row in answer["operators"]]
    run.save()


# --- Served ----------------------------------------------------------------------------------------------------------

async def with_server(run: Run, server: servers.Server, scenario) -> dict | None:
    try:
        await server.start()
        try:
            await server.send(servers.Request(list(range(300, 364)), 4))     # touches every page once
            return await scenario(server)
        finally:
            await server.stop()
    except (CellError, RuntimeError, asyncio.TimeoutError, OSError) as error:
        run.note(f"{server.name}: {error or type(error).__name__}")
        return None


def wanted(run: Run, name: str) -> bool:
    return not run.args.engines or any(name.startswith(e) for e in run.args.engines)


def peers(run: Run, llama_batches: list[list[str]], chunks: list[tuple[int, bool]]) -> list[tuple[str, servers.Server]]:
    places, fmt = run.places, run.args.serve_format
    found = []
    for label, folder in (("llama.cpp", places.llama), ("ik_llama.cpp", places.ik)):
        for flags in llama_batches if folder else []:
            name = f"{label}, {' '.join(flags) or 'default'}"
            found.append((name, servers.Llama(label, folder, places, fmt, run.logs / f"server-{label}.log", flags)))
    if places.openvino_python:
        for chunk, fuse in chunks:
            server = servers.OpenVino(places, fmt, run.logs / "server-openvino.log", chunk, fuse)
            found.append((server.name, server))
    return [(n, s) for n, s in found if wanted(run, n)]


def tactus(run: Run, label: str, args: list[str]) -> tuple[str, servers.Server]:
    return label, servers.Tactus(run.places, run.args.serve_format, run.logs / "server-tactus.log", args, label)


def profile(run: Run) -> pathlib.Path | None:
    """Step times of this machine for --tbt-slo, measured by `tactus profile` in this run."""
    path = run.logs / "profile.csv"
    model = engines.tactus_models(run.places, run.args.serve_format)[0][1]
    limit = "15s" if run.args.quick else "40s"
    done = subprocess.run([str(run.places.tactus), "profile", *model, "--threads", str(run.places.threads), "--max-context", "4096", "--time-limit", limit,
                           *run.places.tactus_args, "-o", str(path)], capture_output=True, text=True)
    if done.returncode or not path.exists():
        run.note(f"tactus profile: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
        return None
    return path


def slo_s(run: Run) -> float:
    """What the aim allows a gap, less a tenth: 1.5 times our undisturbed gap, or the best peer's, whichever is more."""
    quiet = {name: row["quiet"]["p99_s"] for name, row in run.result["stall"].items()}
    ours = quiet.get("tactus", 0.0)
    theirs = [v for name, v in quiet.items() if not name.startswith("tactus")]
    return 0.9 * 1.5 * max(ours, min(theirs, default=0.0))


async def run_stall(run: Run) -> None:
    quick = run.args.quick
    rows: list[tuple[str, servers.Server]] = [tactus(run, "tactus", [])] if wanted(run, "tactus") else []
    rows += peers(run, [["-b", "64"]] if quick else [[], ["-b", "64"]], [(256, True)] if quick else [(256, True), (512, True), (2048, True), (2048, False)])
    budgets = [128] if quick else [32, 64, 128, 256, 512, 2048]
    if wanted(run, "tactus"):
        rows += [tactus(run, f"tactus, budget {b}", ["--max-num-batched-tokens", str(b)]) for b in budgets]
        rows.append(("tactus, --tbt-slo", None))
    for name, server in rows:
        if server is None:
            run.progress("stall test: profile for --tbt-slo")
            path = profile(run)
            slo = slo_s(run)
            if path is None or slo <= 0:
                continue
            name, server = tactus(run, name, ["--tbt-slo", f"{slo * 1000:.0f}ms", "--profile", str(path)])
        run.progress(f"stall test: {name}")
        prompts = 1 if quick or "llama" in name else 2      # theirs take tens of seconds
        row = await with_server(run, server, lambda s: load.stall(s, prompts=prompts, quiet_s=3 if quick else 6))
        if row:
            run.result["stall"][name] = row
            run.save()


async def run_served(run: Run) -> None:
    quick = run.args.quick
    rows = [tactus(run, "tactus", [])] if wanted(run, "tactus") else []
    rows += peers(run, [[]], [(256, True)] if quick else [(256, True), (2048, False)])
    scenarios = [("saturation", lambda s: load.saturate(s, load.saturation_requests(8 if quick else 20)))]
    if not quick:
        requests = load.poisson_requests(run.args.poisson_requests, run.args.rate, bursts=2)
        scenarios.append(("poisson", lambda s: load.arrive(s, requests)))
    for scenario, play in scenarios:
        for name, server in rows:
            run.progress(f"served, {scenario}: {name}")
            row = await with_server(run, server, play)
            if row:
                run.result["served"].setdefault(scenario, {})[name] = row
                run.save()


async def run_loaded(run: Run) -> None:
    """What HTTP and the engine cost: 32 streams through the server against 32 sequences in the bare executor, in turns."""
    fmt = run.args.serve_format
    spec = engines.specs(run.places, fmt, ["tactus"])[0]
    run.progress("loaded server: 32 streams against the bare engine")
    out = run.result["loaded"] = {}
    for _ in range(2):
        try:
            bare = engines.Process(spec, run.logs / "bare.log")
            bare.ask("prefill tokens=128 repeat=1")
            out.setdefault("bare_step_s", []).extend(bare.ask("decode batch=32 context=144 steps=32")["seconds"])
            bare.close()
        except CellError as error:
            run.note(f"loaded server: {error}")
            return
        _, server = tactus(run, "tactus", ["--max-num-seqs", "32"])
        row = await with_server(run, server, lambda s: load.streams(s, 32, 128, 64))
        if row:
            out.setdefault("served", []).append(row)
    run.save()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="the folder that setup.sh filled")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="a build of this project with -DTACTUS_BUILD_BENCH=ON")
    parser.add_argument("--ik", type=pathlib.Path, help="folder with ik_llama.cpp's bin/llama-server and llama_driver, where setup.sh did not build it")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: bench/results/DATE-cpu.json")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"default: {','.join(PARTS)}")
    parser.add_argument("--formats", help="of the in-process cells; default: bf16,int8,int4, with --quick int8")
    parser.add_argument("--serve-format", default="int8", choices=["bf16", "int8", "int4"], help="of the stall test and the load tests")
    parser.add_argument("--engines", default="", help="names that begin so only, comma-separated: tactus,OpenVINO,llama.cpp,ik_llama.cpp")
    parser.add_argument("--variants", type=int, default=2, help="how many of our own ways to run a format (engines.py lists them); 0: all")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=2, help="turns of every engine per cell")
    parser.add_argument("--rate", type=float, default=0.3, help="Poisson arrivals per second")
    parser.add_argument("--poisson-requests", type=int, default=14)
    parser.add_argument("--tactus-args", default="", help="more flags for our own side, space-separated")
    parser.add_argument("--quick", action="store_true", help="a few cells of everything in one format, one turn each")
    parser.add_argument("--minutes", type=float, default=0, help="begin nothing new after so long; 0: no limit")
    parser.add_argument("--append", action="store_true", help="add to what --output holds, replacing the cells that are measured again")
    args = parser.parse_args()
    unknown = set(args.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.public = [a for a in sys.argv[1:] if "/" not in a and a not in ("--cache", "--build", "--ik", "-o", "--output")]
    args.engines = [e for e in args.engines.split(",") if e]
    args.formats = args.formats or ("int8" if args.quick else "bf16,int8,int4")
    args.rounds = 1 if args.quick else args.rounds
    args.output = args.output or ROOT / "bench/results" / f"{datetime.date.today()}-cpu.json"
    return args


def existing(path: pathlib.Path | None, probe: str) -> pathlib.Path | None:
    return path if path and (path / probe).exists() else None


def main() -> None:
    args = parse()
    cache = args.cache.resolve()
    python = cache / "venv/bin/python"
    places = engines.Places(cache / "models", args.build.resolve(), args.threads, python if python.exists() else None, existing(cache / "llama.cpp", "llama_driver"),
                            existing(args.ik or cache / "ik_llama.cpp", "llama_driver"), args.tactus_args.split(), args.variants)
    run = Run(args, places)
    for name, place in (("OpenVINO GenAI", places.openvino_python), ("llama.cpp", places.llama), ("ik_llama.cpp", places.ik)):
        if place is None:
            run.note(f"{name} is not there: not measured")
    parts = args.parts.split(",")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for fmt in args.formats.split(","):
            if {"cells", "hybrid", "operators"} & set(parts):
                with Bench(run, fmt) as bench:
                    bench.load()
                    for part, play in (("operators", run_operators), ("cells", run_cells), ("hybrid", run_hybrid)):
                        if part in parts:
                            play(run, bench)
        for part, scenario in (("loaded", run_loaded), ("stall", run_stall), ("served", run_served)):
            if part in parts:
                asyncio.run(scenario(run))
    except (KeyboardInterrupt, OutOfTime) as reason:
        run.note(f"{'out of time' if isinstance(reason, OutOfTime) else 'interrupted'}: what comes after this is missing")
    run.save()
    warn(f"written to {args.output} after {(time.monotonic() - run.start) / 60:.1f} minutes; engines' messages are in {run.logs}")
    print(report.markdown(run.result))


if __name__ == "__main__":
    main()
