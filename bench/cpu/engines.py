"""The engines as processes that answer one line with one JSON line, so that they take turns cell by cell with their
weights loaded once. The commands are in bench/model/model_speed.cc, llama_driver.cc and openvino_driver.py, which share
them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import selectors
import subprocess
import sys
import time

import make_models
import shape

HERE = pathlib.Path(__file__).resolve().parent


class CellError(Exception):
    """This engine cannot run this cell; the run continues."""


@dataclasses.dataclass
class Spec:
    """An engine in one format: its process's command line and its description."""

    name: str
    command: list[str]
    settings: str
    is_peer: bool = True


class Process:
    def __init__(self, spec: Spec, log: pathlib.Path, timeout_s: float = 180):
        self.spec = spec
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                spec.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.buffer = b""
        try:
            self.about = self._answer(timeout_s)
        except CellError:
            self.close()
            raise

    def ask(self, line: str, timeout_s: float = 600) -> dict:
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError) as error:
            raise CellError(f"{self.spec.name} ended: {self._last_words()}") from error
        answer = self._answer(timeout_s)
        if "error" in answer:
            raise CellError(answer["error"])
        return answer

    def _answer(self, timeout_s: float) -> dict:
        end = time.monotonic() + timeout_s
        while True:
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                if line.startswith(b"{"):  # libraries also print to stdout
                    return json.loads(line)
            if not self.selector.select(max(0.0, end - time.monotonic())):
                self.close()
                raise CellError(f"{self.spec.name}: no answer within {timeout_s:.0f} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise CellError(f"{self.spec.name} ended: {self._last_words()}")
            self.buffer += data

    def _last_words(self) -> str:
        lines = [x for x in self.log.read_text(errors="replace").splitlines() if x.strip()]
        return " / ".join(lines[-2:])[:300]

    def close(self) -> None:
        self.selector.close()
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(timeout=3)
            except (subprocess.TimeoutExpired, OSError):
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


@dataclasses.dataclass
class Places:
    """The locations of all programs; any peer may be missing."""

    models: pathlib.Path
    build: pathlib.Path
    threads: int
    openvino_python: pathlib.Path | None
    llama: pathlib.Path | None  # folder with bin/llama-server and llama_driver
    ik: pathlib.Path | None
    tactus_args: list[str]
    variants: int = 2  # per format, in the order of VARIANTS; 0: all
    model: str = "dense"  # of shape.MODELS

    @property
    def tactus(self) -> pathlib.Path:
        return self.build / "tactus"

    def gguf(self, fmt: str) -> pathlib.Path:
        return make_models.gguf_path(self.models, fmt, shape.MODELS[self.model])

    def openvino(self, fmt: str) -> pathlib.Path:
        return make_models.openvino_path(self.models, fmt, shape.MODELS[self.model])


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest requirements of the cells: tokens of a prompt and of a context, concurrent decodes."""

    prompt: int = 2048
    context: int = 1024
    batch: int = 32

    @property
    def is_long(self) -> bool:
        return self.context > 2048


STEPS = 256  # room after a long context

# Our variants of a format: (label, file, flags). int4_nearest has int4's form and speed, and noise weights need no
# least-squares fit of minutes. First the default, then 8-bit activations, which the peers use with quantised weights.
# The others are measured on request (--variants).
VARIANTS = {
    "bf16": [("tactus", "bf16", [])],
    "int8": [
        ("tactus int8", "bf16", ["--quantization", "int8"]),
        ("tactus int8, int8 activations", "bf16", ["--quantization", "int8", "--activation-dtype", "int8"]),
        ("tactus int8, int16 activations", "bf16", ["--quantization", "int8", "--activation-dtype", "int16"]),
        ("tactus Q8_0", "int8", []),
        ("tactus Q8_0, int8 activations", "int8", ["--activation-dtype", "int8"]),
    ],
    "int4": [
        ("tactus int4", "bf16", ["--quantization", "int4_nearest"]),
        ("tactus int4, int8 activations", "bf16", ["--quantization", "int4_nearest", "--activation-dtype", "int8"]),
        ("tactus int4, int16 activations", "bf16", ["--quantization", "int4_nearest", "--activation-dtype", "int16"]),
        ("tactus Q4_0", "int4", []),
        ("tactus Q4_0, int8 activations", "int4", ["--activation-dtype", "int8"]),
    ],
}


def tactus_models(places: Places, fmt: str) -> list[tuple[str, list[str]]]:
    """(label, model and flags) of the selected variants."""
    chosen = VARIANTS[fmt][: places.variants] or VARIANTS[fmt]
    return [(label, [str(places.gguf(file)), *flags]) for label, file, flags in chosen]


def specs(places: Places, fmt: str, only: list[str], limits: Limits = Limits()) -> list[Spec]:
    found = []
    threads = str(places.threads)
    models = tactus_models(places, fmt)
    if limits.is_long and "--kv-cache-dtype" not in " ".join(places.tactus_args):
        models.append((f"{models[0][0]}, int8 KV", [*models[0][1], "--kv-cache-dtype", "int8"]))
    size = ["--max-prefill", str(limits.prompt), "--max-context", str(limits.context), "--max-batch", str(limits.batch)]
    for label, model in models:
        flags = [*size, *places.tactus_args]
        found.append(
            Spec(
                label,
                [str(places.build / "bench/model/model_speed"), *model, "--serve", "on", "--threads", threads, *flags],
                f"model_speed {' '.join(pathlib.Path(m).name for m in model)} {' '.join(flags)}".strip(),
                is_peer=False,
            )
        )
    if places.openvino_python:
        folder = str(places.openvino(fmt))
        base = [str(places.openvino_python), str(HERE / "openvino_driver.py"), folder, "--threads", threads]
        found.append(
            Spec(
                "OpenVINO GenAI",
                base,
                "ContinuousBatchingPipeline, precision hint bf16, KV cache at its default (u8), activations quantised"
                " as by its default, dynamic split fuse, steps of at most 2112 tokens, prefix caching off",
            )
        )
    for label, folder in (("llama.cpp", places.llama), ("ik_llama.cpp", places.ik)):
        if folder:
            layout = ["1", "512", *llama_layout(label, limits)]  # repacking on, ubatch 512
            found.append(
                Spec(
                    label,
                    [str(folder / "llama_driver"), str(places.gguf(fmt)), threads, *layout],
                    "libllama, flash attention on, ubatch 512, batch 2112, KV f16, "
                    + (
                        "weights repacked as by its default,"
                        f" {'one KV stream' if layout[-1] == '1' else 'one KV stream per sequence'}"
                        if label == "llama.cpp"
                        else "weights repacked (-rtr), its fused operators on"
                    ),
                )
            )
    return [s for s in found if not only or any(s.name.startswith(o) for o in only)]


def llama_layout(label: str, limits: Limits) -> list[str]:
    """Number of sequences, tokens of each, and whether they share one KV stream. llama.cpp has a stream per sequence if
    there are several, and the longest prompt must fit into one; the fork has one for all. A single long context is
    assembled from copies, which needs a second sequence and one stream (llama_driver.cc)."""
    if limits.is_long and limits.batch == 1:
        return ["2", str((limits.context + 2 * STEPS) // 2), "1"]
    if limits.is_long:
        return [str(limits.batch), str(limits.context + STEPS), "0"]
    return ["33", "2176" if label == "llama.cpp" else "1280", "0"]


def ceilings_spec(places: Places) -> Spec:
    return Spec(
        "ceilings",
        [str(places.build / "bench/cpu/cpu_operators"), str(places.threads)],
        "register loops and a sweep over 512 MiB",
        is_peer=False,
    )


def versions(places: Places) -> dict[str, str]:
    found = {}
    root = HERE.parents[1]
    git = lambda *a: subprocess.run(["git", "-C", str(root), *a], capture_output=True, text=True).stdout.strip()
    found["tactus"] = git("rev-parse", "--short=12", "HEAD") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )
    if places.openvino_python:
        code = (
            "import importlib.metadata as m; print(*(p + ' ' + m.version(p) for p in ('openvino', 'openvino-genai',"
            " 'optimum-intel', 'nncf') if any(m.distributions(name=p))), sep=', ')"
        )
        found["OpenVINO GenAI"] = subprocess.run(
            [str(places.openvino_python), "-c", code], capture_output=True, text=True
        ).stdout.strip()
    for label, folder in (("llama.cpp", places.llama), ("ik_llama.cpp", places.ik)):
        if folder:
            note = folder / "version.txt"
            server, line = folder / "bin/llama-server", None
            if server.exists():
                text = subprocess.run([str(server), "--version"], capture_output=True, text=True)
                line = re.search(r"version: .*", text.stderr + text.stdout)
            found[label] = (note.read_text().strip() + " " if note.exists() else "") + (line.group(0) if line else "")
    return found


# Instruction sets that a machine can be limited to: the names of our kernel set and of oneDNN's, which OpenVINO uses.
# Its own code generators obey the latter too.
ISAS = {"avx2": "AVX2", "avxvnni": "AVX2_VNNI", "avx512": "AVX512_CORE_BF16"}


def limit(isa: str | None) -> None:
    """Limits the engines that start from now on. llama.cpp is limited when it is built."""
    if isa:
        os.environ.update({"TACTUS_KERNELS": isa, "ONEDNN_MAX_CPU_ISA": ISAS[isa]})


def machine(isa: str | None = None) -> dict:
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", text)
    flags = set((re.search(r"flags\s*:\s*(.*)", text) or [None, ""])[1].split())
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return {
        "cpu": name.group(1) if name else "",
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1),
        "isa": sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8"}),
        **({"limited_to": isa} if isa else {}),
        "load_average": os.getloadavg()[0],
    }


def warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
