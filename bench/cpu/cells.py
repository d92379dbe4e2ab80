"""The cells: prefill, decode, the hybrid step and the operators of one format, with engines taking turns at every cell,
and ceilings measured before and after each turn.
"""

from __future__ import annotations

import engines
import plan
from engines import CellError

SLOW_TURN_S = 12.0  # slower engines have one turn at that cell
CEILINGS = ("bf16_ops", "int8_ops", "f32_ops", "read_bytes")


class Bench:
    """The processes of one format, plus the ceilings' process. `run` stores the result, notes and progress (run.py);
    `label` names this bench in them."""

    def __init__(self, run, fmt: str, limits: engines.Limits = engines.Limits(), label: str = ""):
        self.run, self.fmt, self.limits, self.label = run, fmt, limits, label or fmt
        self.processes: list[engines.Process] = []
        self.ceilings: engines.Process | None = None
        self.broken: set[tuple[str, str]] = set()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_) -> None:
        for process in [*self.processes, *([self.ceilings] if self.ceilings else [])]:
            process.close()

    def load(self) -> None:
        self.run.progress(f"{self.label}: loading")
        for spec in [
            engines.ceilings_spec(self.run.places),
            *engines.specs(self.run.places, self.fmt, self.run.args.engines, self.limits),
        ]:
            process = self.start(spec)
            if process and spec.name == "ceilings":
                self.ceilings = process
            elif process:
                self.processes.append(process)
                self.run.result["settings"][f"{self.label} {spec.name}"] = spec.settings
                self.run.result["load_s"][f"{self.label} {spec.name}"] = round(process.about.get("load_seconds", 0), 2)

    def start(self, spec: engines.Spec) -> engines.Process | None:
        try:
            process = engines.Process(spec, self.run.logs / f"{self.label}-{spec.name}.log".replace(" ", "-"))
            if spec.name != "ceilings":
                process.ask("prefill tokens=128 repeat=1")  # touches every page once
            return process
        except (CellError, OSError) as error:
            self.run.note(f"{self.label} {spec.name}: {error}")
            return None

    def revive(self) -> None:
        """Restarts an engine that died in a cell, for the next cells."""
        for i, process in enumerate(self.processes):
            if process.process.poll() is not None:
                process.close()
                again = self.start(process.spec)
                if again:
                    self.processes[i] = again

    def measure_ceilings(self) -> dict[str, float]:
        if self.ceilings is None:
            return {}
        try:
            return {k: float(f"{v:.4g}") for k, v in self.ceilings.ask("ceilings").items()}
        except CellError as error:
            self.run.note(f"{self.label} ceilings: {error}")
            self.ceilings = None
            return {}

    def ask(self, process: engines.Process, key: str, line: str) -> list[float] | None:
        """Seconds of each step; None if this engine has failed at this cell."""
        name = process.spec.name
        if (name, key) in self.broken or process.process.poll() is not None:
            return None
        try:
            return process.ask(line, timeout_s=300)["seconds"]
        except CellError as error:
            self.broken.add((name, key))
            self.run.note(f"{self.label} {name}, {key}: {error}")
            return None

    def turns(self, cells: dict, key: str, commands: dict[str, str], count: int, warm: str = "", skip: int = 0) -> None:
        """cells[key]: every engine's turn with every command, `count` times, starting with a different engine each
        time. `warm` is sent once to every engine before the first turn; the first `skip` steps of every answer are
        dropped. A turn's ceilings are the mean of those just before it and just after it."""
        self.revive()
        cell = cells[key] = {"ceilings": {}}
        for process in self.processes if warm else []:
            self.ask(process, key, warm)
        before, slow = self.measure_ceilings(), set()
        for r in range(count):
            at = r % max(1, len(self.processes))
            for process in self.processes[at:] + self.processes[:at]:
                if process in slow:
                    continue
                answers = {}
                for command, line in commands.items():
                    seconds = self.ask(process, key, line)
                    if seconds is None:
                        break
                    answers[command] = [round(t, 7) for t in seconds[skip:]]
                if sum(sum(seconds) for seconds in answers.values()) > SLOW_TURN_S:
                    slow.add(process)
                after = self.measure_ceilings()
                if len(answers) == len(commands):
                    row = cell.setdefault(process.spec.name, {})
                    for command, seconds in answers.items():
                        row.setdefault(command, []).append(seconds)
                    row.setdefault("ceilings", []).append(
                        {k: (before[k] + after[k]) / 2 for k in CEILINGS if k in before and k in after}
                    )
                for k, value in after.items():
                    cell["ceilings"].setdefault(k, []).append(value)
                before = after
        self.run.save()


def shapes(args) -> tuple[list[int], list[int], list[int]]:
    """Prompts, batches and contexts of the cells."""
    return ([512], [16, 1], args.contexts[:1]) if args.quick else (plan.PREFILLS, plan.BATCHES, args.contexts)


def run_cells(run, bench: Bench) -> None:
    prefills, batches, contexts = shapes(run.args)
    rounds, cells = run.args.rounds, run.result["cells"].setdefault(bench.fmt, {})
    for tokens in prefills:
        run.progress(f"{bench.fmt}: prefill {tokens}")
        bench.turns(
            cells, f"prefill {tokens}", {"all": f"prefill tokens={tokens} repeat=1"}, plan.prefill_turns(rounds)
        )
    for context in contexts:
        for batch in batches:
            run.progress(f"{bench.fmt}: decode {batch} at context {context}")
            turns, steps = plan.decode_turns(batch, rounds)
            cell = f"decode batch={batch} context={context}"
            # All contexts first, so that the turns themselves are short and close together.
            bench.turns(
                cells,
                f"decode {batch} at {context}",
                {"all": f"{cell} steps={steps + 1}"},
                turns,
                warm=f"{cell} steps=1",
                skip=1,
            )


def run_hybrid(run, bench: Bench) -> None:
    run.progress(f"{bench.fmt}: hybrid step, 512 + 16, and its parts")
    bench.turns(
        run.result["hybrid"],
        bench.fmt,
        {
            "chunk": "prefill tokens=512 repeat=1",
            "decode": "decode batch=16 context=128 steps=3",
            "hybrid": "hybrid chunk=512 batch=16 context=128 steps=1",
        },
        run.args.rounds,
    )


def run_operators(run, bench: Bench) -> None:
    """With our default activations, then with 8-bit ones; 16-bit operands count as twice the operations."""
    kept = [o for o in run.result["operators"] if o["format"].split(",")[0] != bench.fmt]
    others = [(f"{bench.fmt}, int8 activations", "int8")] if bench.fmt != "bf16" and not run.args.quick else []
    for label, rounding in [(bench.fmt, "mixed"), *others]:
        if bench.ceilings is None:
            return
        run.progress(f"{label}: operators")
        try:
            answer = bench.ceilings.ask(f"operators format={bench.fmt} rounding={rounding}")
        except CellError as error:
            run.note(f"{label} operators: {error}")
            bench.ceilings = bench.start(bench.ceilings.spec)
            continue
        kept += [{"format": label, **row} for row in answer["operators"]]
        run.result["operators"] = kept
        run.save()


# --- Estimates for the plan -------------------------------------------------------------------------------------------


def cells_s(run, fmt: str, names: list[str]) -> float:
    return plan.cells_s(names, fmt, run.args.rounds, *shapes(run.args))


def hybrid_s(run, fmt: str, names: list[str]) -> float:
    return plan.hybrid_s(names, fmt, run.args.rounds)


def operators_s(run, fmt: str, names: list[str]) -> float:
    return 15 if fmt == "bf16" or run.args.quick else 30
