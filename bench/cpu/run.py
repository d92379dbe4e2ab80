#!/usr/bin/env python3
"""One run of everything: this engine, OpenVINO GenAI, llama.cpp and ik_llama.cpp, taking turns cell by cell, with the
machine's ceilings measured in the same turns.

  bench/cpu/setup.sh CACHE                       once: Python packages, llama.cpp, models (about 16 GB)
  bench/cpu/run.py --cache CACHE [-o FILE.json] [--quick] [--model dense|mixture] [--parts
  served,stall,loaded,operators,cells,hybrid,long,neighbours] [--formats int8,bf16,int4]
                   [--minutes N] [--append] [--plan]

Prints its plan and estimated time, then progress, then a Markdown report. The JSON is written after every cell, so
Ctrl-C keeps the completed cells; `report.py FILE.json` prints the report again. Nothing else should run on the machine.
The report has each engine's settings.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile

import aims
import cells
import engines
import make_models
import plan
import report
from engines import warn
from parts import NAMES, PARTS, Part
from result_file import ResultFile
from shape import MODELS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FORMATS = ["int8", "bf16", "int4"]
PEERS = ["OpenVINO GenAI", "llama.cpp", "ik_llama.cpp"]


class OutOfTime(Exception):
    """--minutes are over; completed cells are kept."""


def kv_format(tactus_args: str) -> str:
    """The format of our K and V, which determines the bytes that a cell must read; the peers use their defaults."""
    words = tactus_args.replace("=", " ").split()
    return (
        "int8"
        if "--kv-cache-dtype" in words and words[words.index("--kv-cache-dtype") + 1 :][:1] == ["int8"]
        else "bf16"
    )


class Run(ResultFile):
    """The result so far and its file."""

    def __init__(self, args: argparse.Namespace, places: engines.Places):
        super().__init__(args.output)
        self.args, self.places = args, places
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="tactus-bench-"))
        this = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": " ".join(["bench/cpu/run.py", *args.public]),
            "machine": engines.machine(args.isa),
            "versions": engines.versions(places),
        }
        self.result = {
            **this,
            "runs": [],
            "first": aims.DEFAULT,
            "threads": places.threads,
            "kv": kv_format(args.tactus_args),
            "model": places.model,
            "settings": {},
            "load_s": {},
            **{part.name: part.empty() for part in PARTS},
            "notes": [],
        }
        if args.append and args.output.exists():
            before = json.loads(args.output.read_text())
            for key in ("settings", "load_s", *NAMES, "notes"):
                self.result[key] = before.get(key, self.result[key])
            self.result["runs"] = before.get("runs") or [
                {k: before[k] for k in ("date", "command", "machine", "versions", "seconds") if k in before}
            ]
        self.result["runs"].append({**this, "seconds": 0.0})

    def save(self) -> None:
        self.result["seconds"] = round(self.gone_s(), 1)
        super().save()

    def progress(self, text: str) -> None:
        if self.args.minutes and self.gone_s() > self.args.minutes * 60:
            raise OutOfTime
        super().progress(text)


# --- The plan --------------------------------------------------------------------------------------------------------


def planned(run: Run) -> list[tuple[str, float]]:
    """(description, estimated seconds), in execution order."""
    args, rows = run.args, []
    for per_format, parts in wanted_parts(args):
        if not per_format:
            rows += [row for part in parts for row in part.planned(run)]
            continue
        for fmt in args.formats:
            names = [s.name for s in engines.specs(run.places, fmt, args.engines)]
            seconds = plan.loading_s(names, fmt) + sum(part.planned(run, fmt, names) for part in parts)
            rows.append((f"{fmt}: {', '.join(part.name for part in parts)} of {', '.join(names)}", seconds))
    return rows


def wanted_parts(args: argparse.Namespace) -> list[tuple[bool, list[Part]]]:
    """The chosen parts in their order, in groups of parts that run per format and parts that do not."""
    chosen_ones = [p for p in PARTS if p.name in args.parts]
    return [
        (per_format, list(group)) for per_format, group in itertools.groupby(chosen_ones, key=lambda p: p.per_format)
    ]


def print_plan(run: Run) -> None:
    rows = planned(run)
    run.expected_s = sum(s for _, s in rows)
    for what, seconds in rows:
        warn(f"{seconds:6.0f} s  {what}")
    limit = f", and no cell starts after {run.args.minutes:g} minutes" if run.args.minutes else ""
    if run.result["machine"]["load_average"] > 0.5:
        warn(
            f"  ! the load average is {run.result['machine']['load_average']:.1f}: other programs here affect"
            " every figure"
        )
    warn(f"About {run.expected_s / 60:.0f} minutes on two cores of a Zen 5{limit}; into {run.args.output}")


# --- The command line ------------------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="the folder that setup.sh filled")
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=ROOT / "build/release",
        help="a build of this project with -DTACTUS_BUILD_BENCH=ON",
    )
    parser.add_argument(
        "--ik",
        type=pathlib.Path,
        help="folder with ik_llama.cpp's bin/llama-server and llama_driver, if setup.sh did not build it",
    )
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: bench/results/DATE-cpu.json")
    parser.add_argument("--parts", default=",".join(NAMES), help=f"default: {','.join(NAMES)}")
    parser.add_argument(
        "--model", default="dense", choices=list(MODELS), help="shape of the weights (shape.py); default: dense"
    )
    parser.add_argument("--formats", help=f"of the in-process cells; default: {','.join(FORMATS)}, with --quick int8")
    known = ",".join(map(str, plan.CONTEXTS))
    parser.add_argument("--contexts", default=known, help=f"tokens before the decodes of the cells; default: {known}")
    parser.add_argument(
        "--serve-format",
        default="int8",
        choices=["bf16", "int8", "int4"],
        help="format of the stall test, the load tests and long contexts",
    )
    parser.add_argument(
        "--engines",
        default="",
        help="only engines whose names start with these, comma-separated: tactus,OpenVINO,llama.cpp,ik_llama.cpp",
    )
    parser.add_argument(
        "--variants",
        type=int,
        default=2,
        help="number of our variants per format (listed in engines.py); 0: all",
    )
    parser.add_argument(
        "--isa",
        choices=list(engines.ISAS),
        help="all engines without newer instructions than these, in the parts cells, operators, hybrid and long;"
        " llama.cpp needs ISA=... of setup.sh",
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--rounds",
        type=int,
        default=2,
        help="turns of every engine per cell: one more for prompts, twice as many for decode steps",
    )
    parser.add_argument("--rate", type=float, default=0.15, help="Poisson arrivals per second, bursts not counted")
    parser.add_argument("--poisson-requests", type=int, default=10)
    parser.add_argument("--tactus-args", default="", help="more flags for tactus, space-separated")
    parser.add_argument("--quick", action="store_true", help="a few cells of everything in one format, one turn each")
    parser.add_argument("--minutes", type=float, default=0, help="start no cell after this time; 0: no limit")
    parser.add_argument(
        "--append", action="store_true", help="add to the results in --output, replacing cells that are measured again"
    )
    parser.add_argument("--plan", action="store_true", help="print the plan and its estimated time without running it")
    args = parser.parse_args()
    args.parts = chosen(parser, "--parts", args.parts, NAMES)
    served = sorted(set(args.parts) - {"cells", "operators", "hybrid", "long"})
    if args.isa and served:
        parser.error(f"--isa {args.isa}: the part {served[0]} needs servers; give --parts cells,operators,hybrid,long")
    args.formats = chosen(parser, "--formats", args.formats or ("int8" if args.quick else ",".join(FORMATS)), FORMATS)
    args.contexts = [int(c) for c in chosen(parser, "--contexts", args.contexts, list(map(str, plan.CONTEXTS)))]
    args.engines = chosen(
        parser, "--engines", args.engines, ["tactus", *PEERS], lambda e, k: any(x.startswith(e) for x in k)
    )
    for name in ("threads", "rounds", "poisson_requests"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: at least 1")
    if args.rate <= 0 or args.minutes < 0 or args.variants < 0:
        parser.error("--rate must be above 0, --minutes and --variants not below")
    if args.threads > (os.cpu_count() or 1):
        parser.error(f"--threads {args.threads}: this machine has {os.cpu_count()} cores")
    args.rounds = 1 if args.quick else args.rounds
    args.output = args.output or ROOT / "bench/results" / f"{datetime.date.today()}-cpu.json"
    args.public = public(sys.argv[1:])
    check(parser, args)
    return args


def chosen(
    parser: argparse.ArgumentParser, flag: str, text: str, known: list[str], fits=lambda e, k: e in k
) -> list[str]:
    words = [w for w in text.split(",") if w]
    unknown = [w for w in words if not fits(w, known)]
    if unknown:
        parser.error(f"{flag}: {', '.join(unknown)} unknown; there are {', '.join(known)}")
    return words


def public(words: list[str]) -> list[str]:
    """The command with this machine's folders replaced by placeholders."""
    names = {"--cache": "CACHE", "--build": "BUILD", "--ik": "IK", "-o": "FILE", "--output": "FILE"}
    found = []
    for word in words:
        flag, _, value = word.partition("=")
        if found and found[-1] in names:
            found.append(names[found[-1]])
        else:
            found.append(f"{flag}={names[flag]}" if flag in names and value else word)
    return found


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Reports missing files before anything is measured."""
    script = "bench/cpu/setup.sh"
    if not args.cache.is_dir():
        parser.error(f"--cache {args.cache}: no such folder; {script} {args.cache} fills it")
    wanted = [p for p in PARTS if p.name in args.parts]
    needed = dict.fromkeys(n for p in wanted for n in p.programs)
    missing = [n for n in needed if not os.access(args.build / n, os.X_OK)]
    if missing:
        parser.error(
            f"--build {args.build} has no {', '.join(missing)}: cmake --preset release -DTACTUS_BUILD_BENCH=ON && cmake"
            " --build build/release"
        )
    formats = {fmt for p in wanted for fmt in (args.formats if p.per_format else [args.serve_format])}
    model = MODELS[args.model]
    files = {
        make_models.gguf_path(args.cache / "models", f, model) for f in formats | {"bf16"}
    }  # ours quantises the bf16 file
    if is_wanted(args, "OpenVINO GenAI") and (args.cache / "venv").exists():
        files |= {make_models.openvino_path(args.cache / "models", f, model) for f in formats}
    lost = sorted(p.name for p in files if not p.exists())
    if lost:
        command = f"{'MIXTURE=on ' if args.model == 'mixture' else ''}{script} {args.cache}"
        parser.error(f"{args.cache / 'models'} lacks {', '.join(lost)}: {command} writes what is missing")
    for name in PEERS:
        if args.engines and is_wanted(args, name) and not place(args, name):
            parser.error(
                f"--engines asks for {name}, which is not in {args.cache}: {script}"
                f" {args.cache}{' IK_SOURCE' if name.startswith('ik') else ''} puts it there"
            )
    folder = args.output.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        parser.error(f"-o {args.output}: cannot write to {folder}")
    if args.append and args.output.exists():
        try:
            before = json.loads(args.output.read_text())
            report.check(before)
        except ValueError as error:
            parser.error(f"--append: {args.output} is not a result of this program: {error}")
        if before.get("model", "dense") != args.model:
            parser.error(
                f"--append: {args.output} has the {before.get('model', 'dense')} model, and --model is {args.model}:"
                " give another file to -o"
            )
        if aims.first_of(before) != aims.DEFAULT:
            parser.error(
                f"--append: {args.output} has older names, in which a plain name is not the default: give"
                " another file to -o"
            )


def is_wanted(args: argparse.Namespace, name: str) -> bool:
    return not args.engines or any(name.startswith(e) for e in args.engines)


def place(args: argparse.Namespace, name: str) -> pathlib.Path | None:
    """The path of a peer; None if setup.sh has not installed it."""
    cache = args.cache.resolve()
    folder = {
        "OpenVINO GenAI": cache / "venv",
        "llama.cpp": cache / (f"llama.cpp-{args.isa}" if args.isa else "llama.cpp"),
        "ik_llama.cpp": args.ik or cache / "ik_llama.cpp",
    }[name]
    probes = ["llama_driver"] if args.isa else ["llama_driver", "bin/llama-server"]
    probes = ["bin/python"] if name.startswith("OpenVINO") else probes
    if not all((folder / p).exists() for p in probes):
        return None
    return folder / "bin/python" if name.startswith("OpenVINO") else folder.resolve()


def main() -> None:
    args = parse()
    engines.limit(args.isa)
    places = engines.Places(
        args.cache.resolve() / "models",
        args.build.resolve(),
        args.threads,
        place(args, "OpenVINO GenAI"),
        place(args, "llama.cpp"),
        place(args, "ik_llama.cpp"),
        args.tactus_args.split(),
        args.variants,
        args.model,
    )
    run = Run(args, places)
    for name in PEERS:
        if is_wanted(args, name) and place(args, name) is None:
            run.note(f"{name} is not in the cache: not measured")
    print_plan(run)
    if args.plan:
        run.logs.rmdir()
        return
    if args.output.exists() and not args.append:
        before = args.output.with_suffix(".json.before")
        args.output.rename(before)
        warn(f"{args.output} already existed: it is now {before.name} (--append would have added to it)")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for per_format, parts in wanted_parts(args):
            for part in [] if per_format else parts:
                part.play(run)
            for fmt in args.formats if per_format else []:
                with cells.Bench(run, fmt) as bench:
                    bench.load()
                    for part in parts:
                        part.play(run, bench)
    except (KeyboardInterrupt, OutOfTime) as reason:
        run.note(f"{'out of time' if isinstance(reason, OutOfTime) else 'interrupted'}: the rest is missing")
    run.save()
    warn(f"written to {args.output} after {run.gone_s() / 60:.1f} minutes; engines' messages are in {run.logs}")
    print(report.markdown(run.result))


if __name__ == "__main__":
    main()
