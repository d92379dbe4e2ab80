"""The permanent abuse tests: every part against the real program, over loopback, with a table of figures at the end.

  main.py [PART ...] [--quick] [--seed N]

Exit status 0: every case passed; 1: some failed (their inputs are in build/abuse/); 2: it could not run; 130:
interrupted.
"""

import argparse
import importlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import traceback

import program
from tally import FOLDER, Tally

PARTS = ["framing", "limits", "bodies", "load", "torture", "faults", "replicas", "memory", "python", "rules"]


def table(results):
    rows = [["part", "cases", "passed", "failed", "time", "worst figures"]]
    for r in results:
        figures = ", ".join(f"{name} {value}" for name, value in r["figures"].items())
        rows.append(
            [r["part"], f"{r['cases']:,}", f"{r['passed']:,}", f"{r['failed']:,}", f"{r['seconds']:.0f} s", figures]
        )
    total = [sum(r[key] for r in results) for key in ("cases", "passed", "failed", "seconds")]
    rows.append(["all", *(f"{n:,}" for n in total[:3]), f"{total[3]:.0f} s", ""])
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [
        "| " + " | ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[5]]).rstrip() + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|---|")
    return "\n".join(lines)


def interrupt(*_):
    for process in list(program.running):
        process.kill()
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the programs would ignore it too
    parser = argparse.ArgumentParser(description="Attacks build/release/tactus over loopback.")
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS) + "; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="a sample of every part, at most two minutes")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    arguments = parser.parse_args()
    if not os.access(program.BINARY, os.X_OK):
        print(f"abuse: no program at {program.BINARY}; run scripts/build.sh release programs", file=sys.stderr)
        return 2
    parts = arguments.parts or PARTS
    for part in parts:
        shutil.rmtree(FOLDER / part, ignore_errors=True)
    results, interrupted = [], False
    for part in parts:
        print(f"abuse: {part}", file=sys.stderr, flush=True)
        tally = Tally(part, arguments.quick)
        try:
            importlib.import_module(part).run(tally, arguments.seed)
        except KeyboardInterrupt:
            interrupted = True
        except Exception:  # an exception in a part is a failed case; the other parts still run
            tally.check("the part ran to its end", False, traceback.format_exc())
        results.append(tally.result())
        if interrupted:
            print("abuse: interrupted", file=sys.stderr)
            break
    FOLDER.mkdir(parents=True, exist_ok=True)
    mode = "quick" if arguments.quick else "full"
    figures = {
        "date": time.strftime("%Y-%m-%d"),
        "mode": mode,
        "seed": arguments.seed,
        "cores": len(os.sched_getaffinity(0)),
        "parts": results,
    }
    (FOLDER / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(table(results))
    if interrupted:
        return 130
    return 1 if any(r["failed"] for r in results) else 0


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    sys.exit(main())
