#!/usr/bin/env python3
"""Checks that two builds make the same plans: proof that a refactoring changed nothing.

    bench/plan_hashes.py build/release -o before.json             # also records two server runs next to it
                                                                  # (before.traces/)
    bench/plan_hashes.py build/release --against before.json      # after the change: exit status 1 and a list of
                                                                  # differences

Compared are the plans of every conformance and Vidur case (written into the tests' reports), of simulations with every
preset in six settings, of the fixed benchmark of bench/sim, and of the recorded server runs replayed by the new build.
TACTUS_DATA adds the cases that need data. Options after `--` go to every `tactus sim`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from paired import TINY, Server, load

ENGINE = ["--model", "llama-3.1-8b", "--device", "h100", "--seed", "3"]
SETTINGS = {
    "open": ["--workload", "chat", "--rate", "12", "--requests", "400"],
    "slo": [
        "--workload",
        "chat",
        "--rate",
        "20",
        "--requests",
        "300",
        "--slo",
        "ttft=500ms,tbt=60ms,jct=20s",
        "--tbt-slo",
        "60ms",
    ],
    "short of KV": [
        "--workload",
        "long-output",
        "--concurrency",
        "64",
        "--requests",
        "200",
        "--kv-blocks",
        "1500",
        "--max-model-len",
        "8192",
    ],
    "pipeline": ["--workload", "summarize", "--concurrency", "32", "--requests", "150", "--pp", "4"],
    "turns, replicas": ["--workload", "multi-turn", "--rate", "8", "--requests", "300", "--replicas", "2"],
    "swap": [
        "--workload",
        "long-output",
        "--concurrency",
        "48",
        "--requests",
        "120",
        "--kv-blocks",
        "1500",
        "--swap-space",
        "4GiB",
        "--max-model-len",
        "8192",
        "--preemption",
        "swap",
    ],
}
BENCHMARK = [
    "--model",
    "codellama-34b",
    "--device",
    "a100",
    "--tp",
    "2",
    "--token-budget",
    "512",
    "--max-model-len",
    "16384",
    "--default-max-tokens",
    "1024",
    "--concurrency",
    "38",
    "--requests",
    "20000",
    "--seed",
    "1",
]
SERVERS = {  # recorded by a real server under load
    "roomy": ["--scheduler", "sarathi-serve", "--kv-cache-memory", "64MiB"],
    "short of KV": ["--scheduler", "larry", "--kv-cache-memory", "400KiB", "--max-model-len", "256"],
}


def of_tests(build):
    found = {}
    for name in ("conformance", "vidur"):
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            done = subprocess.run(
                [build / f"tests/{name}/{name}_test", f"--gtest_output=json:{report.name}"],
                stdout=subprocess.DEVNULL,
                check=False,
            )
            for suite in json.load(report)["testsuites"]:
                for case in suite["testsuite"]:
                    if "plans" in case:
                        found[f"{case['classname']}.{case['name']}"] = case["plans"]
            if done.returncode != 0:
                sys.exit(f"{name}_test fails: fix that first")
    return found


def simulate(binary, arguments):
    done = subprocess.run([binary, "sim", *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:  # a rejected combination must stay rejected
        return "refused"
    result = json.loads(done.stdout)
    return f"{result['steps']} steps {result['plan_hash']}"


def of_simulations(binary, more):
    presets = [
        p
        for p in json.loads(
            subprocess.run([binary, "sim", "--list", "--json"], capture_output=True, text=True, check=True).stdout
        )["schedulers"]
        if p != "oracle"
    ]
    jobs = {
        f"{preset}, {name}": [*ENGINE, *flags, "--scheduler", preset, *more]
        for preset in presets
        for name, flags in SETTINGS.items()
    }
    jobs["benchmark"] = [
        *BENCHMARK,
        "--workload",
        "lengths:azure2023_conv.csv" if "TACTUS_DATA" in os.environ else "chat",
        *more,
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(lambda arguments: simulate(binary, arguments), jobs.values())))


def record(binary, folder):
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(TINY))
    for name, flags in SERVERS.items():
        server = Server(binary, [model, "--load-format", "dummy", "--trace-out", folder / f"{name}.trace", *flags])
        try:
            load(binary, server.url, "--requests", "300", "--concurrency", "32", "--workload", "random:in=80,out=40")
        finally:
            server.stop()


def of_recordings(binary, folder):
    found = {}
    for trace in sorted(folder.glob("*.trace")):
        done = subprocess.run([binary, "sim", "--replay", trace, "--json"], capture_output=True, text=True, check=False)
        result = json.loads(done.stdout)
        found[trace.stem] = f"{result['steps_replayed']} steps {result['plan_hash_replayed']}"
        if not result["identical"]:
            print(f"plan_hashes: the recording '{trace.stem}' does not replay", file=sys.stderr)
    return found


def main():
    argv = sys.argv[1:]
    more = argv[argv.index("--") + 1 :] if "--" in argv else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    args = parser.parse_args(argv[: len(argv) - len(more) - 1] if "--" in argv else argv)
    if (args.output is None) == (args.against is None):
        parser.error("give one of -o FILE and --against FILE")
    file = args.output or args.against
    binary, traces = args.build / "tactus", file.with_suffix(".traces")
    if args.output:
        record(binary, traces)
    found = {
        "tests": of_tests(args.build),
        "simulations": of_simulations(binary, more),
        "recordings": of_recordings(binary, traces),
    }
    count = sum(len(part) for part in found.values())
    if args.output:
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"plan_hashes: {count} in {file}")
        return 0
    before = json.loads(file.read_text())
    different = [
        f"{part}: {name}: {before.get(part, {}).get(name, 'not there')} -> {found.get(part, {}).get(name, 'not there')}"
        for part in before
        for name in sorted(before[part] | found[part])
        if before[part].get(name) != found[part].get(name)
    ]
    print("\n".join(different))
    print(f"plan_hashes: {count} compared, {len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
