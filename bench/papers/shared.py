"""Imports settings of other benchmarks, so that each deployment and length distribution is defined once."""

import importlib.util
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1]


def load(path):
    """bench/`path` as a module."""
    name = "bench_" + path.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        sys.path.append(str((BENCH / path).parent))
        spec = importlib.util.spec_from_file_location(name, BENCH / path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
