"""Runs the claims' simulations: each command once, cached by the inputs of its result (command, workload file,
program), on all cores."""

import concurrent.futures
import csv
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile
import threading

from claims import AtLoad, Capacity, sim_of
from files import TRACES

GRID = 1.03  # rates of a search are powers of it, so that searches share simulations
LEAST, MOST = -170, 200  # exponents: 0.0066 to 370 requests/s


class SimulationFailed(Exception):
    pass


def hash_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def kept_all(row):
    """Whether a request of --requests-out met all its objectives."""
    arrival = float(row["arrival_s"])
    times = {"ttft": row["first_token_s"], "jct": row["done_s"]}
    took = {name: float(at) - arrival if at else math.inf for name, at in times.items()}
    took["tbt"] = float(row["longest_gap_s"] or 0)
    stated = {name: row[f"slo_{name}_ms"] for name in took}
    return row["finish"] in ("stop", "length") and all(
        took[name] <= float(limit) / 1000 for name, limit in stated.items() if limit
    )


def kept_tokens_per_s(requests, result):
    """Tokens per second, prompts and answers, of the requests that met all their objectives."""
    kept = (int(row["prompt_tokens"]) + int(row["output_tokens"]) for row in requests if kept_all(row))
    return sum(kept) / result["duration_s"]


def compute_use(steps, result):
    """Tokens of a step over its budget, mean over the steps."""
    return statistics.fmean((int(s["prompt_tokens"]) + int(s["decodes"])) / int(s["budget_tokens"]) for s in steps)


# Figures that only a file of the run has: the flag that writes it, and a function of its rows.
ALSO = {
    "kept_tokens_per_s": ("--requests-out", kept_tokens_per_s),
    "compute_use": ("--steps-out", compute_use),
}


def hash_of_program(tactus):
    """The digest of the program and of the simulating program next to it."""
    tools = pathlib.Path(f"{tactus}-tools")
    return hash_of(tactus) + (hash_of(tools) if tools.is_file() else "")


class Simulations:
    """`extra`: flags added to a command (a perturbed cost model); `quick`: with its quick number of requests. Any
    thread."""

    def __init__(self, tactus, files, cache=None, jobs=None, progress=None, limit_s=600):
        self.tactus, self.files, self.progress, self.limit_s = str(tactus), files, progress, limit_s
        self.program = hash_of_program(tactus)
        self.cache = pathlib.Path(cache) if cache else None
        self.lock, self.slots = threading.Lock(), threading.Semaphore(jobs or os.cpu_count() or 1)
        self.found, self.ran, self.cached = {}, 0, 0
        if self.cache and self.cache.exists():
            for line in self.cache.read_text().splitlines():
                try:
                    entry = json.loads(line)
                    self.found[entry["key"]] = entry["result"]
                except (ValueError, KeyError):
                    continue  # an incomplete line of an interrupted run
        self.running = {}

    def command(self, sim, seed, extra=(), rate=None, quick=False):
        """The arguments after `tactus`, with files written."""
        requests = sim.quick_requests if quick else sim.requests
        values = {"seed": str(seed), "requests": str(requests)}
        for name in set(re.findall(r"\{(\w+)\}", sim.flags)) - values.keys():
            values[name] = self.files.workload(name, seed, requests)
        args = ["sim", *without((word.format(**values) for word in shlex.split(sim.flags)), extra[::2]), *extra]
        return args + ([] if rate is None else ["--rate", f"{rate:.6g}"])

    def run(self, sim, seed, extra=(), rate=None, quick=False):
        args = self.command(sim, seed, extra, rate, quick)
        key = hashlib.sha256(
            json.dumps([self.program, [self.files.content(a) for a in args], sim.steps, sim.also]).encode()
        ).hexdigest()
        with self.lock:
            if key in self.found:
                self.cached += 1
                return self.found[key]
            mine = key not in self.running
            future = self.running.setdefault(key, concurrent.futures.Future())
        if not mine:
            return future.result()
        try:
            with self.slots:
                result = self.simulate(args, sim.steps, sim.also)
        except BaseException as error:
            with self.lock:
                del self.running[key]
            future.set_exception(error)
            raise
        with self.lock:
            self.found[key] = result
            del self.running[key]
            self.ran += 1
            if self.cache:
                with open(self.cache, "a") as file:
                    file.write(json.dumps({"key": key, "command": shlex.join(args), "result": result}) + "\n")
        future.set_result(result)
        if self.progress:
            self.progress(self)
        return result

    def simulate(self, args, steps, also=()):
        with tempfile.TemporaryDirectory() as folder:
            wanted = dict.fromkeys(["--steps-out"] * bool(steps) + [ALSO[name][0] for name in also])
            paths = {flag: pathlib.Path(folder) / f"{flag.strip('-')}.csv" for flag in wanted}
            command = [
                self.tactus,
                *args,
                "--json",
                *(word for flag, path in paths.items() for word in (flag, str(path))),
            ]
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=self.limit_s
                )
            except subprocess.TimeoutExpired:
                raise SimulationFailed(f"not done after {self.limit_s} s: {shlex.join(command)}") from None
            if done.returncode != 0:
                raise SimulationFailed(f"{shlex.join(command)}\n{done.stderr.strip()}")
            result = json.loads(done.stdout)
            if steps:
                with open(paths["--steps-out"], newline="") as file:
                    result["steps_out"] = [
                        {name: float(value) for name, value in row.items() if steps is True or name in steps}
                        for row in csv.DictReader(file)
                    ]
            for name in also:
                flag, figure = ALSO[name]
                with open(paths[flag], newline="") as file:
                    result[name] = figure(csv.DictReader(file), result)
            return result

    def capacity(self, capacity, seed, extra=(), quick=False):
        """Searches the grid upwards from one request per second in growing strides, then halves the bracket."""
        keeps = lambda k: capacity.keeps(self.run(capacity.sim, seed, extra, GRID**k, quick))
        low, stride = 0, 24  # a factor of two
        if keeps(low):
            while (high := low + stride) <= MOST and keeps(high):
                low = high
        else:
            high = low
            while True:
                if (low := high - stride) < LEAST:
                    return 0.0
                if keeps(low):
                    break
                high = low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return GRID**low

    def measure(self, run, seed, extra=(), quick=False):
        if isinstance(run, Capacity):
            return self.capacity(run, seed, extra, quick)
        rate = (
            run.load * self.run(run.probe, seed, extra, quick=quick)["request_throughput"]
            if isinstance(run, AtLoad)
            else None
        )
        return self.run(sim_of(run), seed, extra, rate, quick)


def commands_of(claim, shipped=False):
    """The commands of a claim, as text, for one seed."""
    for name, run in claim.measured_runs(shipped).items():
        text = lambda sim: sim.flags.format_map(Placeholders(requests=str(sim.requests)))
        found = ""
        if isinstance(run, Capacity):
            found = f" --rate R    # the largest R with {run.says}"
        elif isinstance(run, AtLoad):
            found = f" --rate R    # R: {run.load:g} times the requests/s of: tactus sim {text(run.probe)} --json"
        yield name, f"tactus sim {text(sim_of(run))} --json{found}"


def without(words, flags):
    """The words of a command without the given flags and their values, which are given again."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in flags:
            kept.append(word)
        skip = not skip and word in flags
    return kept


class Placeholders(dict):
    """{seed} and files remain names; {requests} is filled in."""

    def __missing__(self, name):
        return TRACES.get(name) or {"seed": "SEED"}.get(name, name.upper() + ".csv")
