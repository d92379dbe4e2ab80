"""The parts that need servers: the stall test, the loads, and the loaded server beside the bare engine."""

from __future__ import annotations

import asyncio
import pathlib

import engines
import load
import plan
import servers
from engines import CellError

Row = tuple[str, servers.Server]
STALL_BUDGETS = [32, 64, 128, 256, 512]  # 2,048 gives no earlier first token than 512
OPENVINO_STEPS = [
    (256, True),
    (2048, False),
]  # max_num_batched_tokens, dynamic_split_fuse: its default and the fastest at saturation
LIKE = "tactus, int8 activations"
# in the stall test: 31 s to a first token; the fork's gap is a third of its, in a third of the time (2026-11-21)
NOT_CHOSEN = "llama.cpp, -b 64"


async def with_server(run, server: servers.Server, scenario) -> dict | None:
    try:
        try:
            await server.start()
            await asyncio.wait_for(
                server.send(servers.Request(list(range(300, 364)), 4)), 120
            )  # touches every page once
            return await scenario(server)
        finally:
            await server.stop()
    except (TimeoutError, CellError, RuntimeError, OSError) as error:
        run.note(f"{server.name}: {error or type(error).__name__}")
        return None


def wanted(run, name: str) -> bool:
    return not run.args.engines or any(name.startswith(e) for e in run.args.engines)


def peers(run, llama_flags: list[list[str]], steps: list[tuple[int, bool]]) -> list[Row]:
    """OpenVINO with each of `steps`, the llama.cpp family with each of `llama_flags`."""
    places, fmt = run.places, run.args.serve_format
    found = []
    if places.openvino_python:
        for chunk, fuse in steps:
            server = servers.OpenVino(places, fmt, run.logs / "server-openvino.log", chunk, fuse)
            found.append((server.name, server))
    for label, folder in (("ik_llama.cpp", places.ik), ("llama.cpp", places.llama)):
        for flags in llama_flags if folder else []:
            name = f"{label}, {' '.join(flags) or 'default'}"
            found.append((name, servers.Llama(label, folder, places, fmt, run.logs / f"server-{label}.log", flags)))
    return [(n, s) for n, s in found if wanted(run, n)]


def tactus(run, label: str, args: list[str], variant: int = 0) -> list[Row]:
    """Our server; `variant`: index of the format's variant (engines.VARIANTS): 0 is the default, 1 rounds activations
    to 8 bits like the peers."""
    models = engines.tactus_models(run.places, run.args.serve_format)
    if variant >= len(models) or not wanted(run, "tactus"):
        return []
    return [(label, servers.Tactus(run.places, models[variant][1], run.logs / "server-tactus.log", args, label))]


# --- Stalls ----------------------------------------------------------------------------------------------------------


async def profile(run) -> pathlib.Path | None:
    """Step times of this machine for --tbt-slo, measured by `tactus profile` in this run; again with twice the time if
    it was not enough."""
    path = run.logs / "profile.csv"
    model = engines.tactus_models(run.places, run.args.serve_format)[0][1]
    for limit_s in (profile_limit_s(run.args.quick), 2 * profile_limit_s(run.args.quick)):
        command = [
            str(run.places.tactus),
            "profile",
            *model,
            "--threads",
            str(run.places.threads),
            "--max-context",
            "4096",
            "--time-limit",
            f"{limit_s}s",
            *run.places.tactus_args,
            "-o",
            str(path),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            _, errors = await asyncio.wait_for(process.communicate(), 300)
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            raise
        if not process.returncode and path.exists():
            return path
    words = errors.decode(errors="replace").strip().splitlines()
    run.note(f"tactus profile: {words[-1] if words else f'status {process.returncode}'}")
    return None


def profile_limit_s(quick: bool) -> int:
    return 15 if quick else 30


def slo_s(run) -> float:
    """The gap that the aim allows, minus a tenth: 1.5 times our undisturbed gap or the best peer's, whichever is
    larger."""
    quiet = {name: row["quiet"]["p99_s"] for name, row in run.result["stall"].items()}
    theirs = [v for name, v in quiet.items() if not name.startswith("tactus")]
    return 0.9 * 1.5 * max(quiet.get("tactus", 0.0), min(theirs, default=0.0))


def stall_rows(run) -> list[Row]:
    quick = run.args.quick
    rows = tactus(run, "tactus", []) + ([] if quick else tactus(run, LIKE, [], variant=1))
    rows += [
        (n, s)
        for n, s in peers(
            run, [["-b", "64"]] if quick else [[], ["-b", "64"]], OPENVINO_STEPS[:1] if quick else OPENVINO_STEPS
        )
        if n != NOT_CHOSEN
    ]
    for budget in [128] if quick else STALL_BUDGETS:
        rows += tactus(run, f"tactus, budget {budget}", ["--max-num-batched-tokens", str(budget)])
    return rows


def stall_shape(run, name: str) -> tuple[int, float]:
    """The number of long prompts, and the undisturbed seconds before them. One prompt if it takes tens of seconds, or
    is computed at once: its single gap is the same every time."""
    once = is_llama(name) or "2048" in name or "no split fuse" in name
    return (1, 3.0) if run.args.quick else (1 if once else 2, 4.0)


async def run_stall(run) -> None:
    async def measure(name: str, server: servers.Server) -> None:
        prompts, quiet_s = stall_shape(run, name)
        run.progress(f"stall test: {name}")
        row = await with_server(run, server, lambda s: load.stall(s, prompts=prompts, quiet_s=quiet_s))
        if row:
            run.result["stall"][name] = row
            run.save()

    for name, server in stall_rows(run):
        await measure(name, server)
    slo = slo_s(run)
    if not wanted(run, "tactus") or slo <= 0:
        return
    run.progress("stall test: profile for --tbt-slo")
    path = await profile(run)
    if path:
        for name, server in tactus(
            run, "tactus, --tbt-slo", ["--tbt-slo", f"{slo * 1000:.0f}ms", "--profile", str(path)]
        ):
            await measure(name, server)


# --- Loads -----------------------------------------------------------------------------------------------------------


def served_rows(run) -> list[Row]:
    rows = tactus(run, "tactus", [])
    if not run.args.quick:
        rows += tactus(run, LIKE, [], variant=1)
    return rows + peers(run, [[]], OPENVINO_STEPS[:1] if run.args.quick else OPENVINO_STEPS)


def scenarios(run) -> dict[str, list[servers.Request]]:
    found = {"saturation": load.saturation_requests(8 if run.args.quick else 20)}
    if not run.args.quick:
        found["poisson"] = load.poisson_requests(run.args.poisson_requests, run.args.rate, bursts=2)
    return found


def is_llama(name: str) -> bool:
    return "llama" in name


def poisson_rows(rows: list[Row]) -> list[Row]:
    """Without the llama.cpp family, which falls behind these arrivals by minutes (the faster one completed 4 of 14
    requests in 86 s on 2026-11-21)."""
    return [(n, s) for n, s in rows if not is_llama(n)]


async def run_served(run) -> None:
    rows = served_rows(run)
    for scenario, requests in scenarios(run).items():
        box = plan.BOX_S[scenario]
        play = {
            "saturation": lambda s: load.saturate(s, requests, box_s=box),
            "poisson": lambda s: load.arrive(s, requests, box_s=box),
        }[scenario]
        for name, server in rows if scenario == "saturation" else poisson_rows(rows):
            run.progress(f"served, {scenario}: {name}")
            row = await with_server(run, server, play)
            if row:
                run.result["served"].setdefault(scenario, {})[name] = row
                run.save()


async def run_loaded(run) -> None:
    """The cost of HTTP and the engine: 32 streams through the server against 32 sequences in the bare executor, in
    turns."""
    rows = tactus(run, "tactus", ["--max-num-seqs", "32"])
    if not rows:
        return
    spec = engines.specs(run.places, run.args.serve_format, ["tactus"])[0]
    out: dict = {}
    for turn in range(2):
        run.progress(f"loaded server: 32 streams against the bare engine, turn {turn + 1} of 2")
        try:
            bare = engines.Process(spec, run.logs / "bare.log")
            try:
                bare.ask("prefill tokens=128 repeat=1")
                out.setdefault("bare_step_s", []).extend(
                    bare.ask("decode batch=32 context=144 steps=33")["seconds"][1:]
                )
            finally:
                bare.close()
        except CellError as error:
            run.note(f"loaded server: {error}")
            return
        row = await with_server(run, rows[0][1], lambda s: load.streams(s, 32, 128, 64))
        if row:
            out.setdefault("served", []).append(row)
            run.result["loaded"] = out
            run.save()


# --- Estimates for the plan -------------------------------------------------------------------------------------------


def plan_served(run) -> list[tuple[str, float]]:
    rows = []
    for scenario, requests in scenarios(run).items():
        named = served_rows(run)
        names = [n for n, _ in (poisson_rows(named) if scenario == "poisson" else named)]
        tokens, answers = sum(len(r.prompt) for r in requests), sum(r.max_tokens for r in requests)
        rows.append(
            (
                f"served, {scenario}: {len(names)} servers",
                sum(
                    plan.served_s(n, run.args.serve_format, scenario, tokens, answers, max(r.due_s for r in requests))
                    for n in names
                ),
            )
        )
    return rows


def plan_stall(run) -> list[tuple[str, float]]:
    names = [n for n, _ in stall_rows(run)]
    return [
        (
            f"stall test: {len(names)} servers and --tbt-slo with its profile",
            sum(plan.stall_s(n, run.args.serve_format, *stall_shape(run, n)) for n in names)
            + profile_limit_s(run.args.quick)
            + 20,
        )
    ]


def plan_loaded(run) -> list[tuple[str, float]]:
    return [("loaded server", 45)]
