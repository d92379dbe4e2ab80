"""The measured servers: every preset of `tactus serve`, llama.cpp's server, and OpenVINO GenAI behind
openvino_server.py. How each is started, and whether it uses objectives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cpu"))
import make_models  # noqa: E402
import servers  # noqa: E402

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ENGINES = ("tactus", "llama.cpp", "OpenVINO GenAI")
SLOTS = 32  # concurrent requests of llama.cpp's server; others wait in its queue
SLOT_CONTEXT = 2304  # the longest prompt with its answer fits


@dataclasses.dataclass(frozen=True)
class Model:
    """A file that all engines read, with the objectives of its requests."""

    name: str
    file: pathlib.Path
    objectives: str
    vocabulary: int  # prompt token ids are below this
    tokenizer: pathlib.Path | None = None  # for OpenVINO GenAI, which reads the tokenizer of some GGUF files only


@dataclasses.dataclass(frozen=True)
class Contender:
    engine: str
    preset: str = ""  # our scheduler preset
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join([f"tactus {self.preset}", *self.flags]) if self.engine == "tactus" else self.engine

    @property
    def knows_objectives(self) -> bool:
        return self.engine == "tactus"


def models(cache: pathlib.Path, default: pathlib.Path, objectives: dict[str, str]) -> dict[str, Model]:
    """Objectives are durations, not multiples of this machine's step times: they are a user's requirements."""
    known = [
        Model("default", default, "chat:ttft=1s,tbt=100ms;long:ttft=10s", 32000),
        Model(
            "1.1b",
            make_models.gguf_path(cache / "models", "int4"),
            "chat:ttft=4s,tbt=400ms;long:ttft=40s",
            32000,
            default,
        ),
    ]
    return {m.name: dataclasses.replace(m, objectives=objectives.get(m.name, m.objectives)) for m in known}


def parse_presets(text: str, known: list[str]) -> list[Contender]:
    """ "accelgen,sarathi-serve+tbt-slo=60ms": presets, each with flags of `tactus serve`; "all": every preset. Raises
    ValueError."""
    found = []
    for word in [w for word in text.split(",") for w in (known if word == "all" else [word]) if w]:
        name, *flags = word.split("+")
        if name not in known:
            raise ValueError(f"'{name}' is no preset of this build; presets: {', '.join(known)}")
        if any("=" not in f for f in flags):
            raise ValueError(f"'{word}': flags are NAME=VALUE, as in {name}+tbt-slo=60ms")
        found.append(Contender("tactus", name, tuple(f"--{f}" for f in flags)))
    return found


def parse_name(name: str) -> Contender:
    """Parses the name of one of our servers in a result."""
    _, preset, *flags = name.split(" ")
    return Contender("tactus", preset, tuple(flags))


def presets_in(help_text: str) -> list[str]:
    """The presets that `tactus serve --help` lists, without those for simulations only."""
    block = re.search(r"^Schedulers \(--scheduler\).*?\n(.*?)\n\n", help_text + "\n\n", re.M | re.S)
    rows = re.findall(r"^  (\S+) +(\S.*)$", block.group(1), re.M) if block else []
    return [name for name, about in rows if "simulation only" not in about]


def presets_of(tactus: pathlib.Path) -> list[str]:
    return presets_in(
        subprocess.run([str(tactus), "serve", "--help-all"], capture_output=True, text=True, check=True).stdout
    )


@dataclasses.dataclass
class Workshop:
    """The locations of all programs. Missing peers are None."""

    tactus: pathlib.Path
    llama: pathlib.Path | None  # folder with bin/llama-server
    openvino_python: pathlib.Path | None
    threads: int
    logs: pathlib.Path
    tactus_args: list[str]
    started: list[servers.HttpServer] = dataclasses.field(default_factory=list)

    def serving_flags(self, c: Contender) -> list[str]:
        """Flags that server and simulation share."""
        return ["--scheduler", c.preset, *c.flags]

    def server(
        self, c: Contender, model: Model, profile: pathlib.Path | None, recording: pathlib.Path | None = None
    ) -> Ready:
        self.started = [self._server(c, model, profile, recording)]  # one at a time
        return self.started[0]

    def kill_what_is_left(self) -> None:
        """For a second Ctrl-C while a server is being stopped."""
        for server in self.started:
            if server.process and server.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.process.pid, signal.SIGKILL)

    def _server(
        self, c: Contender, model: Model, profile: pathlib.Path | None, recording: pathlib.Path | None
    ) -> Ready:
        log = self.logs / f"server-{re.sub('[^a-z0-9.]+', '-', c.name.lower())}-{model.name}.log"
        if c.engine == "tactus":
            flags = [
                "--threads",
                str(self.threads),
                *self.serving_flags(c),
                *self.tactus_args,
                "--shutdown-timeout",
                "1s",
                *(["--profile", str(profile)] if profile else []),
                *(["--trace-out", str(recording)] if recording else []),
            ]
            return Ready("/ready", c.name, [str(self.tactus), "serve", str(model.file), *flags], log)
        if c.engine == "llama.cpp":
            flags = [
                "-t",
                str(self.threads),
                "-tb",
                str(self.threads),
                "-np",
                str(SLOTS),
                "-c",
                str(SLOTS * SLOT_CONTEXT),
                "--no-kv-unified",
                "--cache-ram",
                "0",
            ]
            return Ready("/health", c.name, [str(self.llama / "bin/llama-server"), "-m", str(model.file), *flags], log)
        flags = [
            "--threads",
            str(self.threads),
            "--chunk",
            "256",
            "--max-seqs",
            "64",
            "--cache-gib",
            "2",
            *(["--tokenizer", str(model.tokenizer)] if model.tokenizer else []),
        ]
        return Ready(
            "/health",
            c.name,
            [str(self.openvino_python), str(HERE / "openvino_server.py"), str(model.file), *flags],
            log,
        )


class Ready(servers.HttpServer):
    """A server under `tactus bench`: only start and stop are ours."""

    def __init__(self, ready_path: str, name: str, command: list[str], log: pathlib.Path):
        super().__init__(
            name, command, " ".join(pathlib.Path(w).name if w.startswith("/") else w for w in command), log
        )
        self.ready_path = ready_path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU time so far of the process and its descendants."""
        return tree_cpu_s(self.process.pid)


def tree_cpu_s(root: int) -> float:
    of: dict[int, tuple[int, float]] = {}  # pid: parent, CPU seconds
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended
            fields = path.read_text().rsplit(")", 1)[1].split()
            of[int(path.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    tree = {root}
    while more := {pid for pid, (parent, _) in of.items() if parent in tree} - tree:
        tree |= more
    return sum(of[pid][1] for pid in tree if pid in of)


def machine_cpu_s() -> float:
    """CPU time of all processes together."""
    user, nice, system, _, _, irq, soft, *_ = map(
        int, pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / TICKS_PER_S
