#!/usr/bin/env python3
"""Makes docs/images/report.png, the picture of a report in README.md: two schedulers under one simulated load.

    tools/make_report_picture.py [--tactus build/release/tactus] [-o docs/images/report.png]

Needs Debian's package chromium. The exit status is 1 if a command fails or the picture is larger than 150 KB.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOAD = "--model llama-3.1-8b --device h100 --workload chat --rate 16 --requests 2000 --slo ttft=1s,tbt=50ms"
SCHEDULERS = ("vllm-v0", "tactus")
SIZE = "1200,1150"  # pixels: the table of runs and the first four charts
MOST_BYTES = 150_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tactus", type=pathlib.Path, default=ROOT / "build/release/tactus")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "docs/images/report.png")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs = [folder / f"{scheduler}.run" for scheduler in SCHEDULERS]
        for scheduler, run in zip(SCHEDULERS, runs):
            simulate = [options.tactus, "sim", *LOAD.split(), "--scheduler", scheduler, "--run-out", run]
            subprocess.run(simulate, check=True, capture_output=True)
        page = folder / "report.html"
        subprocess.run([options.tactus, "report", *runs, "-o", page], check=True)
        browser = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser += [f"--user-data-dir={folder}/profile", f"--window-size={SIZE}"]
        picture = options.output.resolve()
        picture.parent.mkdir(exist_ok=True)
        subprocess.run([*browser, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    size = picture.stat().st_size
    print(f"{picture}: {size} bytes")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
