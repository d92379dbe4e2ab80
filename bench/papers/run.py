#!/usr/bin/env python3
"""Every claim of the five papers that the schedulers come from, by simulation: the paper's value, ours, the difference,
and whether it is reproduced. One command runs all of them, or one:

    bench/papers/run.py [TACTUS] [--paper sarathi|sarathi-serve|accelgen|blendserve|larry] [--claim ID] [--quick]
    [--data DIR]
                        [--calibrate [ID ...]] [--cache FILE] [--jobs N] [-o FILE.json] [--markdown FILE.md]
    bench/papers/run.py --report FILE.json ... [--markdown FILE.md]
    bench/papers/run.py --list

A claim is a row of a table (sarathi.py, sarathi_serve.py, ...): its runs, the value read from the results, the paper's
value. --calibrate repeats the claims with step times perturbed by the cost model's known errors (calibration.py).
Results of simulations are stored in --cache by command, workload and program, so that an interrupted run resumes.
--quick uses a tenth to a third of the requests and one seed. --data (or TACTUS_DATA) names the folder of the public
traces; claims that need it name the replacement used without it.
"""

import argparse
import concurrent.futures
import dataclasses
import datetime
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import calibration  # noqa: E402
import files  # noqa: E402
import report  # noqa: E402
from claims import DIRECTION, DISAGREES, FAILED, REPRODUCED, check, measured, side, sim_of, verdict  # noqa: E402
from simulations import SimulationFailed, Simulations, commands_of  # noqa: E402

PAPERS = {
    "sarathi": "sarathi",
    "sarathi-serve": "sarathi_serve",
    "accelgen": "accelgen_claims",
    "blendserve": "blendserve_claims",
    "larry": "larry_claims",
}


def commit():
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def tables(names):
    """name of a paper -> (title, claims)."""
    found = {}
    for name in names:
        module = importlib.import_module(PAPERS[name])
        found[name] = (module.PAPER, module.claims())
        if faults := check(found[name][1]):
            sys.exit("\n".join(faults))
    return found


class Progress:
    """A line every ten seconds; on a terminal updated twice a second."""

    def __init__(self, total):
        self.total, self.done, self.begin, self.next, self.lock = total, 0, time.monotonic(), 0.0, threading.Lock()

    def claim_done(self, simulations):
        with self.lock:
            self.done += 1
        self(simulations, self.done == self.total)

    def __call__(self, simulations, always=False):
        with self.lock:
            now, terminal = time.monotonic(), sys.stderr.isatty()
            if now < self.next and not always:
                return
            self.next = now + (0.5 if terminal else 10)
            print(
                f"{chr(13) if terminal else ''}{self.done} of {self.total} measurements, {simulations.ran} simulations"
                f" run, {simulations.cached} from the cache, {now - self.begin:.0f} s ",
                end="" if terminal and not always else "\n",
                file=sys.stderr,
                flush=True,
            )


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A claim's value for one seed; `variant`: with a perturbed cost model, or UNCHANGED for the comparison."""

    paper: str
    claim: object
    seed: int
    quick: bool
    variant: str = ""
    extra: tuple = ()
    shipped: bool = False  # of the shipped algorithm, not the paper's


UNCHANGED = "unchanged"
MOST_PERTURBED = 100_000  # requests: larger jobs are perturbed with their quick number of requests


def measurements(papers, quick, calibrate):
    """`calibrate`: prefixes of the ids of claims to run with perturbed cost models; (): all, None: none."""
    for paper, (_, claims) in papers.items():
        for claim in claims:
            for shipped in (False, True) if claim.shipped else (False,):
                for seed in claim.seeds[:1] if quick else claim.seeds:
                    yield Measurement(paper, claim, seed, quick, shipped=shipped)
                if calibrate is not None and claim.perturb and (not calibrate or claim.id.startswith(tuple(calibrate))):
                    large = any(sim_of(run).requests > MOST_PERTURBED for run in claim.runs.values())
                    for name, flags in {
                        UNCHANGED: (),
                        **calibration.variants(claim.model),
                        **calibration.what_ifs(claim.model),
                    }.items():
                        yield Measurement(paper, claim, claim.seeds[0], quick or large, name, flags, shipped)


def measure(simulations, m):
    """(value, error)"""
    try:
        value = m.claim.value(
            {
                name: simulations.measure(run, m.seed, m.extra, m.quick)
                for name, run in m.claim.measured_runs(m.shipped).items()
            }
        )
        return (value, None) if math.isfinite(value) else (None, f"no number: {value}")
    except SimulationFailed as error:
        return None, str(error)
    except OSError as error:
        return None, f"{error}; --data names the folder of the public traces"
    except (
        ZeroDivisionError,
        StopIteration,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # division by zero, no such step, no such figure
        return None, f"{type(error).__name__}: {error}"


def run_claims(papers, simulations, jobs, quick=False, calibrate=None):
    """Rows of the result, one per claim."""
    wanted = list(measurements(papers, quick, calibrate))
    progress = simulations.progress = Progress(len(wanted))
    rows = {}

    def task(m):
        found = measure(simulations, m)
        progress.claim_done(simulations)
        return found

    with concurrent.futures.ThreadPoolExecutor(2 * jobs) as pool:
        for m, (value, error) in zip(wanted, pool.map(task, wanted)):
            row = rows.setdefault(
                (m.claim.id, m.shipped),
                {"paper": m.paper, "claim": m.claim, "values": [], "errors": [], "variants": {}, "shipped": m.shipped},
            )
            if m.variant:
                row["variants"][m.variant] = value
            else:
                row["values"].append(value)
            if error:
                row["errors"].append(f"{m.variant or f'seed {m.seed}'}: {error}")
    found = {key: finished(row) for key, row in rows.items()}
    for (name, shipped), row in found.items():
        if shipped:
            found[name, False]["shipped"] = {key: row[key] for key in report.OURS}
    return [row for (_, shipped), row in found.items() if not shipped]


def finished(row):
    """A row of the result, for the paper's algorithm or, in the same form, for the shipped one."""
    claim, found, shipped = row["claim"], measured(row["values"]), row.get("shipped", False)
    value = found[0] if found else None
    said = verdict(claim, value)
    found_under = {name: v for name, v in row["variants"].items() if v is not None}
    what_ifs = {name: v for name, v in found_under.items() if name in calibration.what_ifs(claim.model)}
    variants = {name: v for name, v in found_under.items() if name not in what_ifs}
    return {
        "paper": row["paper"],
        "id": claim.id,
        "section": claim.section,
        "claim": claim.says,
        "paper_value": claim.paper,
        "derived": claim.derived,
        "unit": claim.unit,
        "ours": value,
        "least": found[1] if found else None,
        "largest": found[2] if found else None,
        "aim": claim.expects.aim(),
        "difference": claim.expects.difference(value) if found else "",
        "verdict": said,
        "tie": said in (DIRECTION, DISAGREES) and claim.expects.neutral is not None and side(claim, value) == 0,
        "why": (shipped and claim.shipped_why or claim.why) if said in (DIRECTION, DISAGREES) else "",
        "stands_in": claim.stands_in,
        "model": claim.model,
        "model_error": calibration.error_text(claim.model),
        "variants": variants,
        "what_ifs": what_ifs,
        "turns": turns(claim, variants),
        "other_with": other_with(claim, said, variants),
        "commands": dict(commands_of(claim, shipped)),
        "errors": row["errors"],
        "measured": len(row["values"]) + len(row["variants"]),
    }


def command_line(tactus):
    """This command without machine-dependent parts: paths of the program, the cache and the data."""
    words, shown = iter(sys.argv[1:]), ["bench/papers/run.py"]
    for word in words:
        if word in ("--cache", "--data", "-o", "--output", "--markdown", "--jobs"):
            next(words, None)
        elif word != tactus:
            shown.append(word)
    return " ".join(shown)


def turns(claim, variants):
    """The perturbed cost models with which ours is on the other side of no effect: the ranking depends on the cost
    model's error."""
    if UNCHANGED not in variants:
        return []
    return [name for name, value in variants.items() if side(claim, value) == -side(claim, variants[UNCHANGED]) != 0]


def other_with(claim, said, variants):
    """The unknowns of the paper's engine that would change whether the claim is reproduced."""
    return [
        name
        for name in calibration.unknowns(claim.model)
        if variants.get(name) is not None and claim.expects.holds(variants[name]) != (said == REPRODUCED)
    ]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parse.add_argument("--paper", choices=PAPERS, action="append", help="only this paper; may be repeated")
    parse.add_argument("--claim", action="append", help="only claims whose id starts with this; may be repeated")
    parse.add_argument("--quick", action="store_true", help="fewer requests, one seed")
    parse.add_argument(
        "--calibrate",
        nargs="*",
        metavar="ID",
        help="also with step times perturbed by the cost model's errors; only claims whose id starts with this",
    )
    parse.add_argument("--data", type=pathlib.Path, help="folder of the public traces; default: TACTUS_DATA")
    parse.add_argument(
        "--cache",
        type=pathlib.Path,
        default=ROOT / "build/papers.jsonl",
        help="results of simulations; default: build/papers.jsonl",
    )
    parse.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="simulations at once; default: the number of cores"
    )
    parse.add_argument("-o", "--output", type=pathlib.Path, help="write everything to this file, as JSON")
    parse.add_argument(
        "--markdown",
        type=pathlib.Path,
        help=(
            "write the tables to this file: between its marks if it has them, like docs/measurements/papers.md;"
            " pictures go to a folder of its name next to it"
        ),
    )
    parse.add_argument(
        "--report",
        type=pathlib.Path,
        nargs="+",
        help="print the results that earlier runs wrote with -o, and run nothing",
    )
    parse.add_argument(
        "--list",
        action="store_true",
        help="print the claims and their commands (as `tactus sim --print-papers`), and run nothing",
    )
    args = parse.parse_args()
    for flag, path in (("-o", args.output), ("--markdown", args.markdown), ("--cache", args.cache)):
        if path and (path.is_dir() or not (path.parent.is_dir() or flag == "--cache")):
            parse.error(
                f"{flag} {path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder is not there'}"
            )
    if args.data:
        os.environ["TACTUS_DATA"] = str(args.data.resolve())
    if args.report:
        try:
            results = [json.loads(path.read_text()) for path in args.report]
        except (OSError, ValueError) as error:
            parse.error(f"--report {' '.join(map(str, args.report))}: not what -o wrote: {error}")
    else:
        papers = tables(args.paper or PAPERS)
        if args.claim:
            papers = {
                name: (title, [c for c in claims if c.id.startswith(tuple(args.claim))])
                for name, (title, claims) in papers.items()
            }
            if not any(claims for _, claims in papers.values()):
                parse.error(f"--claim {' '.join(args.claim)}: no claim's id starts with this; --list prints them")
        if args.list:
            print(report.commands(papers), end="")
            return 0
        if not pathlib.Path(args.tactus).is_file():
            parse.error(f"{args.tactus} does not exist: build it (scripts/build.sh release programs), or name another")
        if args.cache:
            args.cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            simulations = Simulations(args.tactus, files.Files(folder), args.cache, args.jobs)
            result = {
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "commit": commit(),
                "quick": args.quick,
                "traces": "the public ones" if files.data_folder() else "the built-in distributions",
                "command": command_line(args.tactus),
                "papers": {name: title for name, (title, _) in papers.items()},
                "rows": run_claims(papers, simulations, args.jobs, args.quick, args.calibrate),
            }
        if args.output:
            args.output.write_text(json.dumps(result, indent=1) + "\n")
        results = [result]
    if args.markdown:
        folder = args.markdown.with_suffix("")
        report.write(args.markdown, report.markdown(results, folder.name))
        report.pictures(results, folder)
    print(report.plain(results), end="")
    return 1 if any(row["verdict"] == FAILED for result in results for row in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
