#!/usr/bin/env python3
"""Time and memory of `tactus batch` for tokenising and planning a job of many real prompts. The job is generated here
and stopped once its plan is ready.

    bench/offline/planner.py [TACTUS] [--model MODEL] [--prompts 1000000] [--words 590] [--planner-memory 1GiB,0]

A prompt is one of 50 long instructions (a third of its words) and shuffled sentences of this repository's pages: known
and unknown words, different in every prompt. Prints a line of Markdown for each limit: the input's size, the mean
tokens of a prompt (of the first 200), seconds of reading and tokenising, seconds of planning, and the largest resident
memory, the weights and the KV memory included.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cpu"))
import engines  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTIONS = 50
PATIENCE_S = 3600


def sentences():
    text = " ".join(page.read_text() for page in sorted(ROOT.glob("docs/**/*.md")))
    return [s for s in re.split(r"(?<=[.:]) ", " ".join(text.split())) if 3 <= len(s.split()) <= 40]


def prose(rng, pool, words):
    chosen, count = [], 0
    while count < words:
        chosen.append(rng.choice(pool))
        count += chosen[-1].count(" ") + 1
    return " ".join(chosen)


def write_job(path, prompts, words):
    """Writes one JSON line per prompt."""
    rng, pool = random.Random(1), sentences()
    starts = [prose(rng, pool, words // 3) for _ in range(INSTRUCTIONS)]
    with open(path, "w") as out:
        for i in range(prompts):
            body = {
                "prompt": f"{rng.choice(starts)} {prose(rng, pool, words - words // 3)}",
                "max_tokens": rng.randint(1, 16),
            }
            print(
                json.dumps({"custom_id": f"p{i}", "method": "POST", "url": "/v1/completions", "body": body}), file=out
            )
            if i % 100_000 == 99_999:
                print(f"planner.py: {i + 1} of {prompts} prompts written", file=sys.stderr)


def mean_tokens(args, job, count=200):
    with open(job) as lines:
        prompts = [json.loads(line)["body"]["prompt"] for line, _ in zip(lines, range(count))]
    ids = subprocess.run(
        [args.tactus, "tokenize", args.model, "--lines", "--ids"],
        input="\n".join(prompts),
        capture_output=True,
        text=True,
        check=True,
    )
    return len(ids.stdout.split()) / len(prompts)


def plan(args, folder, limit):
    """The figures of the plan (docs/reference/api.md), and the largest resident memory in bytes."""
    command = [
        args.tactus,
        "batch",
        folder / "job.jsonl",
        "-o",
        folder / "out.jsonl",
        args.model,
        "--overwrite",
        "on",
        "--sample",
        "0",
        "--max-num-seqs",
        "8",
        "--planner-memory",
        limit,
        "--json",
        "on",
    ]
    log = folder / "log.txt"
    with open(folder / "result.json", "w") as out, open(log, "w") as said:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=said)
    started, seen = time.monotonic(), 0
    try:
        while process.poll() is None:
            lines = log.read_text().splitlines()
            for line in lines[seen:]:
                print(f"planner.py: {line}", file=sys.stderr)
            seen = len(lines)
            if any(re.match(r" *\d+ %", line) for line in lines):  # it generates: the plan is ready
                break
            if time.monotonic() - started > PATIENCE_S:
                raise SystemExit(f"planner.py: no plan within {PATIENCE_S} s; see {log}")
            time.sleep(0.5)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
    _, _, usage = os.wait4(process.pid, 0) if process.returncode is None else (0, 0, None)
    if usage is None or not (folder / "result.json").read_text():
        raise SystemExit(f"planner.py: the run failed: {log.read_text()[-2000:]}")
    return json.loads((folder / "result.json").read_text()), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tactus", nargs="?", default=str(ROOT / "build/release/tactus"))
    parser.add_argument("--model", default="smollm2-135m", help="a file, a folder or a name")
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=590, help="words per prompt")
    parser.add_argument("--planner-memory", default="1GiB,0", help="limits, separated by commas; 0: none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_job(folder / "job.jsonl", args.prompts, args.words)
        size = (folder / "job.jsonl").stat().st_size
        print(f"{engines.machine()}\n")
        tokens = mean_tokens(args, folder / "job.jsonl")
        print(
            "| --planner-memory | prompts | input, GB | tokens of each | s to read and tokenise | s to plan | keys of,"
            " tokens | shared at best, % | resident, GB |"
        )
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for limit in args.planner_memory.split(","):
            result, resident = plan(args, folder, limit)
            p = result["plan"]
            print(
                f"| {limit} | {p['requests']:,} | {size / 1e9:.2f} | {tokens:.0f} | {p['reading_s']:.0f} |"
                f" {p['planning_s']:.1f} | {p['key_tokens']} | {100 * p['optimal_sharing']:.1f} |"
                f" {resident / 1e9:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
