#!/usr/bin/env python3
"""Measures how many plausible small bugs the tests detect.

Samples places in src/ for small bugs, compiles all of them into one program behind a switch (build/mutants), and runs
for each the tests that reach it. Writes a table per module and the survivors. Exit status 1 if too few are detected.

  mutants.py                          everything; unchanged results of the last run are reused
  mutants.py --only sched --only kv   those modules' mutants
  mutants.py --rerun survivors        after adding tests: only earlier survivors
  mutants.py --ids 12ab34cd56ef       those mutants, in the sample or not
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import signal
import sys
from pathlib import Path

import baseline
import checks
import equivalents
import kept_results
import sample
import scan
from mutation_site import Site, switch_numbers
from process import Runner
from report import Report
from tree import BuildError, Tree
from trial import EQUIVALENT, Outcome, Trials

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="draws the sample (default 1)")
    parser.add_argument("--total", type=int, default=260, help="about how many mutants (default 260)")
    parser.add_argument(
        "--per-module", type=int, default=8, help="at least this number per module, if it has as many (default 8)"
    )
    parser.add_argument("--only", action="append", default=[], metavar="MODULE", help="run only this module's mutants")
    parser.add_argument(
        "--ids", default="", help="run only these mutants (the twelve digits of the report, with commas)"
    )
    parser.add_argument(
        "--rerun",
        choices=["changed", "survivors", "all"],
        default="changed",
        help="what to run again (default changed)",
    )
    parser.add_argument("--without", action="append", default=[], metavar="TEST", help="leave out this test of ctest")
    parser.add_argument("--skip-failing", action="store_true", help="continue without tests that fail without a mutant")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="tests at a time (default: one per core)"
    )
    parser.add_argument(
        "--no-build", action="store_true", help="use the programs in build/mutants/src without rebuilding"
    )
    parser.add_argument("--stop-after", choices=["sample", "build", "baseline"], help="stop after this step")
    parser.add_argument(
        "--least-module", type=float, default=0.80, help="share of each module's mutants to detect (default 0.80)"
    )
    parser.add_argument("--least-all", type=float, default=0.90, help="share of all mutants to detect (default 0.90)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/mutants/report", help="folder of the report")
    return parser.parse_args()


def say(text: str) -> None:
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def choose(sites: list[Site], options: argparse.Namespace) -> list[Site]:
    open_sites = sample.without_excluded(sites, sample.excluded_lines(HERE / "excluded.toml"), ROOT)
    chosen = sample.draw(open_sites, options.seed, options.per_module, options.total)
    asked = set(filter(None, options.ids.split(",")))
    unknown = asked - {site.key for site in sites}
    if unknown:
        raise SystemExit(f"mutants: no site has the id {', '.join(sorted(unknown))}; the report prints ids")
    extra = [site for site in sites if site.key in asked and site not in chosen]
    return [
        site
        for site in chosen
        if not any(site.file == e.file and site.begin < e.end and e.begin < site.end for e in extra)
    ] + extra


def wanted(sites: list[Site], options: argparse.Namespace) -> list[Site]:
    asked = set(filter(None, options.ids.split(",")))
    return [s for s in sites if (not asked or s.key in asked) and (not options.only or s.module in options.only)]


def try_all(
    sites: list[Site],
    numbers: dict[str, int],
    trials: Trials,
    kept: kept_results.KeptResults,
    reasons: dict[str, str],
    runner: Runner,
    options: argparse.Namespace,
) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    todo = []
    for site in sites:
        if site.key in reasons:
            outcomes[site.key] = Outcome(site.key, EQUIVALENT)
        elif (known := kept.get(site, options.rerun)) is not None:
            outcomes[site.key] = known
        else:
            todo.append(site)
    say(f"{len(sites)} mutants, {len(todo)} to run")
    pool = concurrent.futures.ThreadPoolExecutor(options.workers)
    futures = {pool.submit(trials.run, site, numbers[site.key]): site for site in todo}
    try:
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            site, outcome = futures[future], future.result()
            kept.put(site, outcome)
            outcomes[site.key] = outcome
            say(
                f"{done}/{len(todo)} {site.key} {site.file}:{site.line} {site.operator}: {outcome.status}"
                f"{' by ' + outcome.by + ', ' + outcome.how if outcome.by else ''} ({outcome.seconds:.1f} s)"
            )
    except BaseException:
        runner.stop()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    return outcomes


def run(options: argparse.Namespace) -> int:
    work = ROOT / "build/mutants"
    tree = Tree(ROOT, work / "src")
    tree.prepare()
    found = scan.scan(
        scan.units(tree.build / "compile_commands.json", tree.path, ROOT), ROOT, work / "sites", options.workers
    )
    reasons, stale = equivalents.split(equivalents.read(HERE / "equivalent.toml"), found.sites)
    chosen = choose(found.sites, options)
    say(f"{len(chosen)} mutants of {len(found.sites)} places")
    if options.stop_after == "sample":
        for site in chosen:
            print(
                f"{site.key} {site.file}:{site.line} {site.function} {site.operator}: {site.original} ->"
                f" {site.mutated or '(left out)'}"
            )
        return 0
    numbers = switch_numbers(chosen)
    built, dropped = (chosen, []) if options.no_build else tree.build_dropping(chosen, numbers)
    if options.stop_after == "build":
        return 0
    runner = Runner()
    programs = [p for p in checks.programs(tree.build) if p.name not in options.without]
    measured = baseline.measure(programs, work / "baseline", runner, options.workers)
    failing = [m for m in measured if m.reached and m.failure and m.failure != "is skipped"]
    if failing and not options.skip_failing:
        say("these tests fail without a mutant; fix them or pass --skip-failing:")
        for m in failing:
            print(f"{m.part} {m.failure}", file=sys.stderr)
        return 1
    if options.stop_after == "baseline":
        return 0
    kept = kept_results.KeptResults(
        work / "results",
        ROOT,
        kept_results.tools_digest(HERE),
        kept_results.tests_digest(ROOT, [program.name for program in programs]),
    )
    mine = wanted(built, options)
    outcomes = try_all(mine, numbers, Trials(programs, measured, runner), kept, reasons, runner, options)
    report = Report(ROOT, mine, outcomes, dropped, stale, found.not_runnable)
    report.write(options.output)
    print(report.markdown().split("\n## ")[0])
    for line in (short := report.shortfalls(options.least_module, options.least_all)):
        say(line)
    say(f"the report and the survivors are in {options.output}")
    return 1 if short or stale else 0


def main() -> int:
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell starts background programs with SIGINT ignored
        signal.signal(stop, signal.default_int_handler)
    try:
        return run(arguments())
    except BuildError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("stopped; the next run continues from here")
        return 130


if __name__ == "__main__":
    sys.exit(main())
