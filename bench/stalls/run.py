#!/usr/bin/env python3
"""Shows whether a long prompt stalls streams that are running: llama.cpp's server and `tactus serve`, one after the
other, with one model file and one load, and a picture of every token.

    bench/stalls/run.py --llama-server PROGRAM [-o stalls.svg] [--json stalls.json]
    bench/stalls/run.py --draw stalls.json [-o stalls.svg]      only draws the picture and the table again

The load: some streams with short prompts run; then long prompts arrive, each a while after the first token of the one
before. llama.cpp runs with its defaults and with small batches, its own remedy. Nothing else should run on the machine.
`bench/cpu/setup.sh CACHE` builds llama.cpp (CACHE/llama.cpp/bin/llama-server). The default model is that of
scripts/serve.sh. Exit status 1 if a server fails, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/cpu"))

import picture  # noqa: E402
from engines import CellError  # noqa: E402
from load import percentile  # noqa: E402
from servers import Completions, HttpServer, Request, Served  # noqa: E402

SMALL_BATCHES = ["--batch-size", "128", "--ubatch-size", "128"]


class Contender(Completions):
    """One of the servers that are compared. Its tokens without text count too, such as a part of a character."""

    def __init__(self, name: str, ready_path: str, command: list, folder: pathlib.Path):
        super().__init__(name, [str(part) for part in command], "", folder / f"{name.replace(' ', '_')}.log")
        self.ready_path = ready_path

    def count(self, event: dict) -> int:
        choice = (event.get("choices") or [{"finish_reason": "none"}])[0]
        return int(bool(choice.get("text")) or choice.get("finish_reason") is None)


def contenders(options: argparse.Namespace, folder: pathlib.Path) -> list[HttpServer]:
    threads, slots = str(options.threads), options.streams + 2
    context = options.prompt_tokens + 2 * options.short_prompt_tokens + options.stream_tokens
    theirs = ["--threads", threads, "--threads-batch", threads, "--parallel", str(slots), "--flash-attn", "on"]
    theirs += ["--ctx-size", str(slots * context), "--cache-ram", "0", "--no-kv-unified"]
    ours = ["--threads", threads, "--max-num-seqs", str(slots), "--max-model-len", str(context)]
    ours += ["--prefix-caching", "off", "--served-model-name", "x"]

    llama = [options.llama_server, "--model", options.model, *theirs]
    tactus = [options.tactus, "serve", options.model, *ours]
    return [
        Contender("llama.cpp", "/health", llama, folder),
        Contender("llama.cpp, batches of 128", "/health", [*llama, *SMALL_BATCHES], folder),
        Contender("Tactus", "/ready", tactus, folder),
    ]


def summary(name: str, streams: list[Served], prompts: list[Served], start_s: float, from_s: float) -> dict:
    """Times in seconds since start_s. Gaps that end after from_s count: those beside the long prompts."""
    gaps = [length for served in streams for end, length in served.gaps() if end >= from_s]
    if not gaps:
        raise CellError(f"{name}: no token arrived beside the long prompts")
    return {
        "name": name,
        "gap_median_s": percentile(gaps, 0.5),
        "gap_p99_s": percentile(gaps, 0.99),
        "longest_gap_s": max(gaps),
        "ttft_s": [prompt.ttft_s for prompt in prompts],
        "streams": [[round(at - start_s, 4) for at in served.token_times] for served in streams],
        "prompts": [[round(at - start_s, 4) for at in (p.sent_s, p.token_times[0])] for p in prompts],
    }


async def measure(server: HttpServer, options: argparse.Namespace) -> dict:
    rng = random.Random(11)  # the same requests for every server

    def request(tokens: int, answer: int) -> Request:
        return Request([rng.randrange(300, 30_000) for _ in range(tokens)], answer)

    await server.start()
    try:
        warm = await server.send(request(32, 4))
        if warm.error or not warm.token_times:
            raise CellError(f"{server.name}: {warm.error or 'no token'}")
        started: list[Served] = []

        def note(served: Served) -> None:
            if served not in started:
                started.append(served)

        start_s = time.monotonic()
        tasks = [
            asyncio.create_task(server.send(request(options.short_prompt_tokens, options.stream_tokens), note))
            for _ in range(options.streams)
        ]
        try:
            await asyncio.sleep(options.quiet_s)
            from_s, prompts = time.monotonic(), []
            if len(started) < options.streams:
                raise CellError(
                    f"{server.name}: {len(started)} of {options.streams} streams had a token after"
                    f" {options.quiet_s:g} s, when the first long prompt arrives; give them longer by --quiet-s"
                )
            for _ in range(options.prompts):
                prompts.append(await asyncio.wait_for(server.send(request(options.prompt_tokens, 2)), 600))
                if prompts[-1].error or not prompts[-1].token_times:
                    raise CellError(f"{server.name}: the long prompt failed: {prompts[-1].error or 'no token'}")
                await asyncio.sleep(options.pause_s)
            ended = sum(task.done() and not task.result().error for task in tasks)
            if ended:
                raise CellError(
                    f"{server.name}: {ended} streams ended before the last long prompt's first token; make their"
                    f" answers longer than {options.stream_tokens} by --stream-tokens"
                )
        finally:
            for task in tasks:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        streams = [a for a in answers if isinstance(a, Served)]
        failed = [a.error for a in streams if a.error not in ("", "cancelled")]
        if failed:
            raise CellError(f"{server.name}: {len(failed)} of {options.streams} streams failed: {failed[0]}")
        return summary(server.name, streams, prompts, start_s, from_s)
    finally:
        await server.stop()


def table(runs: list[dict]) -> str:
    lines = ["| server | gap, median | P99 | longest | first token of the long prompts |", "|---|---|---|---|---|"]
    for run in runs:
        figures = [run["gap_median_s"], run["gap_p99_s"], run["longest_gap_s"]]
        first = ", ".join(picture.seconds(value) for value in run["ttft_s"])
        lines.append(f"| {run['name']} | {' | '.join(picture.seconds(value) for value in figures)} | {first} |")
    return "\n".join(lines)


def draw(result: dict) -> tuple[str, str]:
    """The picture (SVG) and the table (Markdown) of a result."""
    title = (
        f"{result['streams']} streams; {result['prompts']} prompts of {result['prompt_tokens']} tokens arrive."
        f" {result['model']}, {result['threads']} threads. Every mark is a token."
    )
    end_s = max(run["prompts"][-1][1] for run in result["runs"]) + result["pause_s"]
    return picture.svg(title, result["runs"], float(math.ceil(end_s)), stall_s=0.25), table(result["runs"])


def default_model() -> pathlib.Path:
    found = subprocess.run([ROOT / "scripts/get_default_model.sh"], capture_output=True, text=True)
    if found.returncode != 0:
        raise CellError(
            f"the default model cannot be fetched; name a GGUF file by --model: {found.stderr.strip()[-300:]}"
        )
    return pathlib.Path(found.stdout.strip())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", type=pathlib.Path, help="llama.cpp's server")
    parser.add_argument("--draw", type=pathlib.Path, metavar="JSON", help="a file of --json, in place of a run")
    parser.add_argument("--tactus", type=pathlib.Path, default=ROOT / "build/release/tactus")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file; default: that of scripts/serve.sh")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--streams", type=int, default=6, help="streams that run (default 6)")
    parser.add_argument("--short-prompt-tokens", type=int, default=32, help="of each stream (default 32)")
    parser.add_argument("--stream-tokens", type=int, default=3000, help="longest answer of a stream (default 3000)")
    parser.add_argument("--prompts", type=int, default=2, help="long prompts (default 2)")
    parser.add_argument("--prompt-tokens", type=int, default=5000, help="of each long prompt (default 5000)")
    parser.add_argument("--quiet-s", type=float, default=2.0, help="before the first long prompt (default 2)")
    parser.add_argument("--pause-s", type=float, default=1.5, help="after each long prompt's first token (default 1.5)")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("stalls.svg"), help="the picture")
    parser.add_argument("--json", type=pathlib.Path, help="every time, as JSON")
    options = parser.parse_args()
    if (options.llama_server is None) == (options.draw is None):
        parser.error("give either --llama-server or --draw")
    for file in (options.output, options.json):
        if file and not os.access(file if file.exists() else file.resolve().parent, os.W_OK):
            parser.error(f"{file} cannot be written: give a file in a folder that exists and can be written")
    if options.draw:
        return options
    for name in ("quiet_s", "pause_s"):
        if not getattr(options, name) >= 0:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name):g}: at least 0 seconds")
    for name in ("threads", "streams", "short_prompt_tokens", "stream_tokens", "prompts", "prompt_tokens"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}: at least 1")
    for program in (options.llama_server, options.tactus):
        if not os.access(program, os.X_OK):
            parser.error(
                f"{program} is no program: bench/cpu/setup.sh builds llama.cpp, scripts/build.sh release tactus"
            )
    return options


async def run(options: argparse.Namespace) -> list[dict]:
    runs = []
    with tempfile.TemporaryDirectory(prefix="stalls-") as folder:
        for server in contenders(options, pathlib.Path(folder)):
            print(f"{server.name}: running", file=sys.stderr, flush=True)
            try:
                runs.append(await measure(server, options))
            except CellError as error:
                log = server.log.read_text(errors="replace")[-1500:] if server.log.exists() else ""
                raise CellError(f"{error}\n{log}") from None
    return runs


def main() -> int:
    options = arguments()
    if options.draw:
        try:
            result = json.loads(options.draw.read_text())
            drawn = draw(result)
        except (OSError, ValueError, LookupError, TypeError) as error:
            print(f"stalls: {options.draw} is no file of --json: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
    else:
        try:
            options.model = options.model or default_model()
            runs = asyncio.run(run(options))
        except CellError as error:
            print(f"stalls: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        kept = ("streams", "prompts", "prompt_tokens", "short_prompt_tokens", "quiet_s", "pause_s", "threads")
        result = {"model": options.model.name, **{name: getattr(options, name) for name in kept}, "runs": runs}
        drawn = draw(result)
    if options.json:
        options.json.write_text(json.dumps(result) + "\n")
    drawing, figures = drawn
    options.output.write_text(drawing)
    print(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
