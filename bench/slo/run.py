#!/usr/bin/env python3
"""Which servers keep objectives on this machine: all our presets, llama.cpp's server and OpenVINO GenAI under the same
chat, bursts of long prompts and best-effort work, at rising load; then the same load simulated from this machine's
measured step times.

  bench/cpu/setup.sh CACHE                            once: the peers and the weights of the 1.1B shape
  bench/slo/run.py --cache CACHE [-o FILE.json]       everything (hours)
  bench/slo/run.py --cache CACHE --quick              a short run of everything (minutes)
  bench/slo/run.py --cache CACHE -o FILE.json --append --parts sim --profile default=PROFILE
                                                      simulates our cells in FILE again, serves nothing

`tactus bench` loads every server, scores every request and defines every figure. Prints its plan and the estimated time
first, then progress, then a Markdown report. FILE.json is written after every cell, so Ctrl-C keeps finished cells (and
stops the servers); FILE.svg is the picture. `report.py FILE.json` prints the report again. Run nothing else on the
machine; the report shows the load of other programs.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import contenders
import picture
import report
import workload
from cells import select
from contenders import Contender, Model

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))
import engines  # noqa: E402
from engines import CellError, warn  # noqa: E402
from result_file import ResultFile  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = {"requests": 3, "prompt": 200, "answer": 8}
START_S = {"tactus": 3, "llama.cpp": 4, "OpenVINO GenAI": 12}  # until ready and probed; only for the plan's estimate
SIMULATED_S = 1  # about, per cell
CLOSED_LOOP = 32  # requests in flight while the machine's capacity is measured


@dataclasses.dataclass(frozen=True)
class Load:
    """The parameters of a workload file, besides the model: seed, share of the capacity, and duration."""

    seed: int
    share: float
    scenario: str
    warmup_s: float
    measured_s: float


class Run(ResultFile):
    """The result so far and its file."""

    def __init__(self, args: argparse.Namespace, shop: contenders.Workshop):
        super().__init__(args.output)
        self.args, self.shop = args, shop
        this = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": " ".join(["bench/slo/run.py", *args.public]),
            "commit": commit(),
            "machine": engines.machine(),
            "versions": versions(shop),
            "seconds": 0.0,
        }
        self.result = {"runs": [], "threads": args.threads, "models": {}, "cells": [], "simulated": [], "notes": []}
        if args.append and args.output.exists():
            self.result = json.loads(args.output.read_text())
        self.result["runs"].append(this)

    def load(self, repeat: int, load: float, scenario: str) -> Load:
        return Load(self.args.seed + repeat, load, scenario, self.args.warmup, self.args.seconds)

    def workload(self, model: Model, load: Load) -> tuple[pathlib.Path, list[workload.Row]]:
        """Warm-up and measured part in one file."""
        rate = load.share * self.result["models"][model.name]["capacity"]
        rows = workload.draw_rows(load.seed, rate, load.warmup_s + load.measured_s, load.scenario)
        path = self.shop.logs / f"{model.name}-{load.seed}-{load.share:g}-{load.scenario}.csv"
        workload.write(path, rows, workload.parse_objectives(model.objectives))
        return path, rows


def commit() -> str:
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def versions(shop: contenders.Workshop) -> dict[str, str]:
    places = engines.Places(
        pathlib.Path(), shop.tactus.parent, shop.threads, shop.openvino_python, shop.llama, None, []
    )
    return {
        "build": subprocess.run([str(shop.tactus), "version"], capture_output=True, text=True).stdout.strip()
    } | engines.versions(places)


# --- One server in one load -----------------------------------------------------------------------------------------


async def client(run: Run, *words: str) -> dict:
    """The JSON output of `tactus bench` or `tactus sim`. Failed requests are a result; only missing JSON is an
    error."""
    process = await asyncio.create_subprocess_exec(
        str(run.shop.tactus),
        *words,
        "--json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode(errors="replace").strip().splitlines()
    try:
        return json.loads(out) | {"said": " / ".join(line for line in said if line.startswith("tactus"))[:400]}
    except ValueError:
        raise CellError(
            f"tactus {words[0]} ended with status {process.returncode}: {' / '.join(said[-2:])[:400]}"
        ) from None


async def probe(run: Run, url: str, vocabulary: int) -> None:
    """Checks that the server's token counts match ours; it also touches every page once."""
    n, prompt, answer = PROBE["requests"], PROBE["prompt"], PROBE["answer"]
    found = await client(
        run,
        "bench",
        "--url",
        url,
        "--requests",
        str(n),
        "--concurrency",
        "1",
        "--workload",
        f"random:in={prompt},out={answer}",
        "--vocab-size",
        str(vocabulary),
        "--seed",
        "99",
        "--timeout",
        "120s",
    )
    report.check_tokens(found, n, n * prompt, n * answer)


async def serve_cell(run: Run, model: Model, c: Contender, load: Load) -> dict:
    info = run.result["models"][model.name]
    path, rows = run.workload(model, load)
    server = run.shop.server(
        c, model, run.shop.logs / info["profile_file"], recording_of(run) if "sim" in run.args.parts else None
    )
    try:
        await server.start()
        await probe(run, server.url, model.vocabulary)
        if c.engine == "tactus":
            info.update(limits_of(server.url))
        timeout = workload.hopeless_after_s(rows, workload.parse_objectives(model.objectives))
        cpu, own, children, begin = (
            contenders.machine_cpu_s(),
            server.cpu_s(),
            resource.getrusage(resource.RUSAGE_CHILDREN),
            time.monotonic(),
        )
        found = await client(
            run,
            "bench",
            "--url",
            server.url,
            "--workload",
            f"trace:{path}",
            "--requests",
            str(len(rows)),
            "--seed",
            str(load.seed),
            "--vocab-size",
            str(model.vocabulary),
            "--warmup",
            f"{load.warmup_s:g}s",
            "--timeout",
            f"{timeout:g}s",
            *(["--send-slo"] if c.knows_objectives else []),
        )
        took, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        clients = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        others = contenders.machine_cpu_s() - cpu - (server.cpu_s() - own) - clients
        return {
            "seed": load.seed,
            "warmup_s": load.warmup_s,
            "measured_s": load.measured_s,
            "settings": server.settings,
            "result": report.trimmed(found),
            "seconds": round(took, 1),
            "server_cores": round((server.cpu_s() - own) / took, 2),
            "client_cores": round(clients / took, 2),
            "others_cores": round(max(0.0, others) / took, 2),
        }
    finally:
        await server.stop()


def recording_of(run: Run) -> pathlib.Path:
    return run.shop.logs / "recording"  # of our last server


def limits_of(url: str) -> dict:
    """The limits of our server's memory, for a simulation."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        text = page.read().decode()
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as page:
        context = json.load(page)["data"][0]["max_model_len"]
    blocks = re.search(r'cache_config_info{[^}]*num_gpu_blocks="(\d+)"', text)
    if not blocks:
        raise CellError("/metrics has no metric of KV blocks")
    return {"kv_blocks": int(blocks.group(1)), "context": context}


async def simulate_cell(run: Run, model: Model, c: Contender, load: Load) -> dict:
    info = run.result["models"][model.name]
    path, rows = run.workload(model, load)
    profile = run.shop.logs / info["profile_file"]
    found = await client(
        run,
        "sim",
        "--cost",
        str(profile),
        *step_noise(profile),
        "--kv-blocks",
        str(info["kv_blocks"]),
        "--max-model-len",
        str(info["context"]),
        "--workload",
        f"trace:{path}",
        "--requests",
        str(len(rows)),
        "--seed",
        str(load.seed),
        "--warmup",
        f"{load.warmup_s:g}s",
        "--exact-percentiles",
        *run.shop.serving_flags(c),
    )
    return {"result": report.trimmed(found), "step_noise": report.rounded(found.get("step_noise"))}


def step_noise(profile: pathlib.Path) -> list[str]:
    """The flags for simulated steps to vary as in the profile; [] if it does not record the variation."""
    with profile.open(errors="replace") as lines:
        return (
            ["--step-noise", "profile"]
            if any(line.startswith("# spread of steps with prompts:") for line in lines)
            else []
        )


async def served_steps(run: Run, model: Model) -> dict:
    """Step times of our last server over those of the profile."""
    steps = run.shop.logs / "steps.csv"
    await client(
        run,
        "sim",
        "--replay",
        str(recording_of(run)),
        "--times",
        "model",
        "--cost",
        str(run.shop.logs / run.result["models"][model.name]["profile_file"]),
        "--steps-out",
        str(steps),
    )
    return report.step_ratios(steps.read_text())


# --- A model --------------------------------------------------------------------------------------------------------


async def prepare(run: Run, model: Model) -> None:
    """Measures step times of this machine and its capacity in requests per second: loads are shares of it."""
    info = run.result["models"].setdefault(model.name, {"file": model.file.name, "objectives": model.objectives})
    name = info["profile_file"] = f"profile-{model.name}.csv"
    if model.name in run.args.profile:
        take_profile(run, model)
    else:
        run.progress(f"{model.name}: step times, for {run.args.profile_limit} s")
        command = [
            str(run.shop.tactus),
            "profile",
            str(model.file),
            "--threads",
            str(run.args.threads),
            "--time-limit",
            f"{run.args.profile_limit}s",
            "--max-context",
            "2304",
            *run.shop.tactus_args,
            "-o",
            str(run.shop.logs / name),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise CellError(
                f"tactus profile: {(errors.decode(errors='replace').strip().splitlines() or ['no reason'])[-1]}; raise"
                " --profile-limit"
            )
        info["profile_said"] = errors.decode(errors="replace").strip().splitlines()[-1]
    if "capacity" not in info or model.name in run.args.capacity:
        info["capacity"] = run.args.capacity.get(model.name) or await capacity(run, model)
    run.progress(f"{model.name}: load 1 is {info['capacity']:.3g} requests/s")
    run.save()


def take_profile(run: Run, model: Model) -> None:
    """Takes the given profile."""
    name = run.result["models"][model.name]["profile_file"] = f"profile-{model.name}.csv"
    shutil.copy(run.args.profile[model.name], run.shop.logs / name)
    if not step_noise(run.shop.logs / name):
        run.note(
            f"{model.name}: the profile does not state the variation of single steps, so simulated ones take exactly"
            " its times; `tactus profile` measures the variation"
        )


async def capacity(run: Run, model: Model) -> float:
    path = run.shop.logs / f"{model.name}-closed.csv"
    rows = workload.draw_rows(1, 10.0, 40.0, "bursts")
    workload.write(path, rows, {})
    found = await client(
        run,
        "sim",
        "--cost",
        str(run.shop.logs / f"profile-{model.name}.csv"),
        "--kv-blocks",
        "65536",
        "--max-model-len",
        "4096",
        "--workload",
        f"lengths:{path}",
        "--requests",
        str(len(rows)),
        "--concurrency",
        str(CLOSED_LOOP),
    )
    return float(f"{found['request_throughput']:.3g}")


def in_turn(names: list, repeat: int) -> list:
    """The order in a repeat: reversed in every second one."""
    return list(names) if repeat % 2 == 0 else list(reversed(names))


def cells_of(args: argparse.Namespace, who: list[Contender]) -> list[tuple[int, float, str, Contender]]:
    return [
        (repeat, load, scenario, c)
        for repeat in range(args.first_repeat, args.first_repeat + args.repeats)
        for load in args.loads
        for scenario in args.scenarios
        for c in in_turn(who, repeat)
    ]


async def measure(run: Run, model: Model, who: list[Contender]) -> None:
    await prepare(run, model)
    broken: set[str] = set()
    for repeat, load, scenario, c in cells_of(run.args, who):
        if c.name in broken:
            continue
        key = {"model": model.name, "repeat": repeat, "load": load, "scenario": scenario, "who": c.name}
        now = run.load(repeat, load, scenario)
        run.progress(f"{model.name}, load {load:g}, {scenario}, repeat {repeat + 1}: {c.name}")
        try:
            cell = await serve_cell(run, model, c, now)
            put(run.result["cells"], key, cell)
            if c.engine == "tactus" and "sim" in run.args.parts:
                put(
                    run.result["simulated"],
                    key,
                    await simulate_cell(run, model, c, now) | {"steps": await served_steps(run, model)},
                )
            warn(f"      {report.in_one_line(cell)}")
        except (CellError, OSError, ValueError) as error:
            run.note(f"{model.name}, {c.name}: {error}")
            broken.add(c.name)
        run.save()


def cells_again(args: argparse.Namespace, cells: list[dict], model: str) -> list[dict]:
    """The selected served cells of ours; all loads and presets if none is named."""
    return [
        c
        for c in cells
        if c["model"] == model
        and report.is_ours(c["who"])
        and c["scenario"] in args.scenarios
        and (c["load"] in args.loads or not args.loads)
        and (c["who"] in args.only or not args.only)
    ]


async def simulate_again(run: Run, model: Model) -> None:
    """Simulates cells that an earlier run served, under the same load. Their measured step times are kept."""
    info = run.result["models"][model.name]
    model = dataclasses.replace(model, objectives=info["objectives"])
    take_profile(run, model)
    for cell in cells_again(run.args, run.result["cells"], model.name):
        key = {k: cell[k] for k in ("model", "repeat", "load", "scenario", "who")}
        run.progress(
            f"{model.name}, load {cell['load']:g}, {cell['scenario']}, repeat {cell['repeat'] + 1}: {cell['who']},"
            " simulated again"
        )
        asked = run.load(cell["repeat"], cell["load"], cell["scenario"])
        load = dataclasses.replace(
            asked, **{k: cell[k] for k in ("seed", "warmup_s", "measured_s") if k in cell}
        )  # earlier files lack them
        try:
            again = await simulate_cell(run, model, contenders.parse_name(cell["who"]), load)
            report.check_same_load(cell["result"], again["result"])
            before = select(run.result["simulated"], **key)
            put(run.result["simulated"], key, again | {"steps": b["steps"] for b in before if "steps" in b})
            warn(
                f"      attainment {report.percent(again['result'].get('slo_attainment'))}, served"
                f" {report.percent(cell['result'].get('slo_attainment'))}"
            )
        except (CellError, OSError, ValueError) as error:
            run.note(f"{model.name}, {cell['who']}, simulated again: {error}")
        run.save()


def put(cells: list[dict], key: dict, what: dict) -> None:
    """Adds a cell, or replaces the earlier measurement of the same cell."""
    cells[:] = [c for c in cells if any(c[k] != v for k, v in key.items())]
    cells.append(key | what)


# --- The command line -----------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    return [w for w in text.split(",") if w]


def pairs(parser: argparse.ArgumentParser, flag: str, values: list[str], known: list[str]) -> dict[str, str]:
    found = {}
    for value in values:
        name, _, rest = value.partition("=")
        if name not in known or not rest:
            parser.error(f"{flag} {value}: MODEL=VALUE, with MODEL one of {', '.join(known)}")
        found[name] = rest
    return found


def parse(words: list[str]) -> tuple[argparse.Namespace, contenders.Workshop, list[Model], list[Contender]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="cache folder of bench/cpu/setup.sh")
    parser.add_argument("--tactus", type=pathlib.Path, default=ROOT / "build/release/tactus", help="the program")
    parser.add_argument(
        "--default-model",
        type=pathlib.Path,
        default=os.environ.get("TACTUS_DEFAULT_MODEL"),
        help="GGUF file of the default model; default: TACTUS_DEFAULT_MODEL, else from scripts/get_default_model.sh",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=pathlib.Path,
        help="default: bench/results/DATE-slo.json; the picture goes next to it, as .svg",
    )
    parser.add_argument("--models", default="default,1.1b", help="default: default,1.1b")
    parser.add_argument(
        "--engines",
        default="",
        help=(
            "comma-separated, of tactus, llama.cpp, OpenVINO GenAI; prefixes suffice; default: all that are installed"
        ),
    )
    parser.add_argument(
        "--presets",
        help=(
            "our presets, comma-separated, with flags of serve: accelgen,sarathi-serve+tbt-slo=60ms; default: all,"
            " which is what `tactus serve` lists; with --quick sarathi-serve"
        ),
    )
    parser.add_argument(
        "--loads",
        default="",
        help="loads as shares of the machine's capacity; default 0.5,0.8,1.1, with --quick 0.8",
    )
    parser.add_argument(
        "--scenarios",
        default=",".join(workload.SCENARIOS),
        help="calm: chat and batch; bursts: also long prompts; default: both",
    )
    parser.add_argument(
        "--parts",
        default="serve,sim",
        help=(
            "sim: also simulates our cells; default: serve,sim. sim alone, with --append: simulates our cells in"
            " --output again, with a --profile, and serves nothing"
        ),
    )
    parser.add_argument(
        "--repeats", type=int, help="default 3, with --quick 1; arrivals differ between repeats but not between servers"
    )
    parser.add_argument(
        "--first-repeat", type=int, default=0, help="number of the first repeat, to add some with --append"
    )
    parser.add_argument("--seconds", type=float, help="seconds of a cell's measured part; default 60, with --quick 10")
    parser.add_argument("--warmup", type=float, help="seconds before it; default 8, with --quick 3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="threads of every engine")
    parser.add_argument("--objectives", action="append", default=[], help="MODEL=chat:ttft=1s,tbt=100ms;long:ttft=10s")
    parser.add_argument(
        "--capacity",
        action="append",
        default=[],
        help="MODEL=REQUESTS_PER_S: the rate of load 1, instead of the simulator's",
    )
    parser.add_argument(
        "--profile", action="append", default=[], help="MODEL=FILE of `tactus profile`, instead of measuring one"
    )
    parser.add_argument("--profile-limit", type=int, help="seconds of `tactus profile`; default 90, with --quick 20")
    parser.add_argument(
        "--tactus-args",
        default="",
        help="additional flags of `tactus serve` and `profile`, space-separated, for every preset",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a short run: one load, short cells, one repeat, one preset"
    )
    parser.add_argument(
        "--append", action="store_true", help="add to --output, replacing cells that are measured again"
    )
    parser.add_argument("--plan", action="store_true", help="print the plan and the estimated time, and do nothing")
    args = parser.parse_args(words)
    args.public = public(words)
    args.again = words_of(args.parts) == ["sim"]
    defaults = {
        "repeats": (3, 1),
        "seconds": (60.0, 10.0),
        "warmup": (8.0, 3.0),
        "profile_limit": (90, 20),
        "loads": ("0.5,0.8,1.1", "0.8"),
    }
    for name, (whole, quick) in defaults.items():
        if not getattr(args, name) and not (args.again and name == "loads"):
            setattr(args, name, quick if args.quick else whole)
    args.output = args.output or ROOT / "bench/results" / f"{datetime.date.today()}-slo.json"
    return check(parser, args)


def check(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> tuple[argparse.Namespace, contenders.Workshop, list[Model], list[Contender]]:
    """Reports missing or wrong arguments before anything is measured."""
    setup = f"bench/cpu/setup.sh {args.cache}"
    if not args.cache.is_dir():
        parser.error(f"--cache {args.cache}: no such folder; {setup} creates it")
    if not os.access(args.tactus, os.X_OK):
        parser.error(f"--tactus {args.tactus}: no such program; scripts/build.sh release programs builds it")
    try:
        args.loads = [float(w) for w in words_of(args.loads)]
    except ValueError:
        parser.error(f"--loads {args.loads}: numbers above 0, as in 0.5,0.8,1.1")
    if min(args.loads, default=1 if args.again else 0) <= 0:
        parser.error("--loads: numbers above 0, as in 0.5,0.8,1.1")
    for flag, known in (("scenarios", workload.SCENARIOS), ("parts", ("serve", "sim"))):
        values = words_of(getattr(args, flag))
        if not values or set(values) - set(known):
            parser.error(f"--{flag} {getattr(args, flag)}: must be some of {', '.join(known)}")
        setattr(args, flag, values)
    for name in ("repeats", "seconds", "warmup", "threads", "profile_limit"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: must be above 0")
    names = ["default", "1.1b"]
    objectives = pairs(parser, "--objectives", args.objectives, names)
    args.profile = {k: pathlib.Path(v) for k, v in pairs(parser, "--profile", args.profile, names).items()}
    for path in args.profile.values():
        if not path.is_file():
            parser.error(f"--profile: no file {path}")
    try:
        args.capacity = {k: float(v) for k, v in pairs(parser, "--capacity", args.capacity, names).items()}
        for text in objectives.values():
            workload.parse_objectives(text)
    except ValueError as error:
        parser.error(f"--objectives or --capacity: {error}")
    known = contenders.models(
        args.cache.resolve(), pathlib.Path() if args.again else default_model(parser, args), objectives
    )
    if set(words_of(args.models)) - set(known) or not words_of(args.models):
        parser.error(f"--models {args.models}: must be some of {', '.join(known)}")
    models = [known[m] for m in words_of(args.models)]
    for model in models:
        if not args.again and not model.file.is_file():
            parser.error(f"model {model.name}: no file {model.file}; {setup} writes it")
    folder = args.output.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        parser.error(f"-o {args.output}: cannot write to {folder}")
    if args.append and args.output.exists():
        try:
            report.check(json.loads(args.output.read_text()))
        except ValueError as error:
            parser.error(f"--append: {args.output} is not a result of this program: {error}")
    shop = workshop(args)
    found = who(parser, args, shop, setup)
    args.only = [c.name for c in found] if args.presets else []
    if args.again:
        check_again(parser, args, models)
    return args, shop, models, found


def check_again(parser: argparse.ArgumentParser, args: argparse.Namespace, models: list[Model]) -> None:
    if not args.append or not args.output.exists():
        parser.error(
            f"--parts sim alone simulates the cells of an earlier run again: name its file with -o (now {args.output})"
            " and add --append"
        )
    before = json.loads(args.output.read_text())
    for model in models:
        if not cells_again(args, before["cells"], model.name):
            parser.error(
                f"--parts sim: {args.output} has no selected cell of ours for model {model.name}; see --models,"
                " --loads, --scenarios and --presets"
            )
        if lacking := [
            k
            for k in ("objectives", "capacity", "kv_blocks", "context")
            if k not in before["models"].get(model.name, {})
        ]:
            parser.error(f"--parts sim: {args.output} lacks {', '.join(lacking)} of model {model.name}; serve it again")
        if model.name not in args.profile:
            parser.error(
                f"--parts sim: no step times of model {model.name}; give --profile {model.name}=FILE, of `tactus"
                " profile`"
            )
    args.missing = []


def default_model(parser: argparse.ArgumentParser, args: argparse.Namespace) -> pathlib.Path:
    if args.default_model:
        return pathlib.Path(args.default_model)
    done = subprocess.run([str(ROOT / "scripts/get_default_model.sh")], capture_output=True, text=True)
    if done.returncode:
        parser.error(f"no default model: {done.stderr.strip()[-200:]}; pass --default-model FILE")
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


def workshop(args: argparse.Namespace) -> contenders.Workshop:
    cache = args.cache.resolve()
    llama, python = cache / "llama.cpp", cache / "venv/bin/python"  # the link itself: its target has no packages
    return contenders.Workshop(
        args.tactus.resolve(),
        llama if (llama / "bin/llama-server").exists() else None,
        python if python.exists() else None,
        args.threads,
        pathlib.Path(),
        args.tactus_args.split(),
    )


def who(
    parser: argparse.ArgumentParser, args: argparse.Namespace, shop: contenders.Workshop, setup: str
) -> list[Contender]:
    there = {"tactus": True, "llama.cpp": shop.llama is not None, "OpenVINO GenAI": shop.openvino_python is not None}
    asked = words_of(args.engines)
    for word in asked:
        fits = [e for e in contenders.ENGINES if e.startswith(word)]
        if not fits:
            parser.error(f"--engines: {word} unknown; engines: {', '.join(contenders.ENGINES)}")
        if not there[fits[0]]:
            parser.error(f"--engines: {fits[0]} is not in {args.cache}; {setup} installs it")
    wanted = [e for e in contenders.ENGINES if (any(e.startswith(w) for w in asked) if asked else there[e])]
    args.missing = [e for e in contenders.ENGINES if not asked and not there[e]]
    presets = contenders.presets_of(shop.tactus)
    if not presets:
        parser.error(f"{args.tactus} serve --help lists no presets: is it a build of this project?")
    try:
        ours = contenders.parse_presets(args.presets or ("sarathi-serve" if args.quick else "all"), presets)
    except ValueError as error:
        parser.error(f"--presets: {error}")
    return [*(ours if "tactus" in wanted else []), *(Contender(e) for e in wanted if e != "tactus")]


def public(words: list[str]) -> list[str]:
    """The command with placeholders for this machine's folders."""
    names = {"--cache": "CACHE", "--tactus": "TACTUS", "--default-model": "FILE", "-o": "FILE", "--output": "FILE"}
    found: list[str] = []
    for i, word in enumerate(words):
        flag, _, value = word.partition("=")
        if i and words[i - 1] in names:
            found.append(names[words[i - 1]])
        elif i and words[i - 1] == "--profile":
            found.append(f"{flag}=FILE")
        else:
            found.append(f"{flag}={names[flag]}" if flag in names and value else word)
    return found


def print_plan(run: Run, models: list[Model], contenders_: list[Contender]) -> None:
    args = run.args
    if args.again:
        count = sum(len(cells_again(args, run.result["cells"], m.name)) for m in models)
        run.expected_s = SIMULATED_S * count
        warn(f"About {run.expected_s:.0f} s: {count} cells of {args.output} are simulated again, nothing is served")
        return
    cells = cells_of(args, contenders_)
    each = sum(args.warmup + args.seconds + 4 + START_S[c.engine] for *_, c in cells)
    for model in models:
        profile = 0 if model.name in args.profile else args.profile_limit + 3
        warn(
            f"{each + profile:6.0f} s  {model.name}: step times, then {len(cells)} cells: {len(contenders_)} servers,"
            f" loads {', '.join(f'{x:g}' for x in args.loads)}, {' and '.join(args.scenarios)}, {args.repeats}"
            f" time{'s' if args.repeats > 1 else ''}"
        )
        run.expected_s += each + profile
    warn(f"        {', '.join(c.name for c in contenders_)}")
    load = run.result["runs"][-1]["machine"]["load_average"]
    if load > 0.5:
        warn(f"  ! the load average is {load:.1f}: other programs will affect every figure")
    warn(f"About {run.expected_s / 60:.0f} minutes, longer if servers fall behind; output: {args.output}")


def main() -> int:
    args, shop, models, found = parse(sys.argv[1:])
    shop.logs = pathlib.Path(tempfile.mkdtemp(prefix="tactus-slo-"))
    run = Run(args, shop)
    print_plan(run, models, found)
    if args.plan:
        shop.logs.rmdir()
        return 0
    for name in args.missing:
        run.note(f"{name} is not in the cache: not measured")
    if args.output.exists() and not args.append:
        before = args.output.with_suffix(".json.before")
        args.output.rename(before)
        warn(f"{args.output} existed: renamed to {before.name} (--append adds to it instead)")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with SIGINT ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    stopped = False
    try:
        for model in models:
            try:
                asyncio.run(simulate_again(run, model) if args.again else measure(run, model, found))
            except CellError as error:
                run.note(f"{model.name}: {error}")
    except KeyboardInterrupt:
        stopped = True
        warn(f"stopped; finished cells are in {args.output}")
    finally:
        shop.kill_what_is_left()
    run.save()
    if run.result["cells"]:
        print(report.markdown(run.result))
        args.output.with_suffix(".svg").write_text(picture.svg(run.result))
    warn(f"logs of the servers and the workload files: {shop.logs}")
    return 130 if stopped else 0 if run.result["cells"] else 1


if __name__ == "__main__":
    sys.exit(main())
