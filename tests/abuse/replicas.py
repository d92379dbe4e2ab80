"""Hostile replicas, peers and endpoints (the table of hostile.py) against their clients: `route` and `epp`, which poll
and proxy, `bench`, `route list`, a server that hands its requests over, and a KV folder that another program has
changed. Lying members and strangers against a server that sequences move to (imports.py). Events that end long-running
commands: few file descriptors, SIGHUP.

A case passes if the process survives, answers other clients meanwhile, and the client gets a whole answer or an error.
No check depends on a time except the limit of a wait.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import tempfile

import hostile
from hostile import ERROR, WHOLE, Hostile, sound
from imports import hostile_senders
from process_ends import BYSTANDER, few_descriptors, hang_ups
from program import Server, dummy_model, tactus
from watched import LIMIT_S, POLLS, Watched, outcome, route, until
from wire import Lost, ask

MIB = 1 << 20
MOST_GROWN_MIB = 96  # of a router: buffered answers, and fragmentation of the allocator


def run(tally, seed):
    routed_answers(tally)
    for command in ("route", "epp"):
        polled_replicas(tally, command)
    benches(tally)
    lists(tally)
    handed_over(tally)
    hostile_senders(tally)
    kv_folders(tally)
    few_descriptors(tally)
    hang_ups(tally)


def some(tally, table, every=6):
    """All of a table, or a sample that is the same in every run."""
    return table[::every] if tally.quick else table


# --- answers forwarded to a client


def routed_answers(tally):
    """Each kind is the answer of the only replica; then the router answers another client through a good replica."""
    kinds = some(tally, hostile.KINDS)
    with sound() as liar, sound() as good:
        arguments = ["--retries", 0, "--eject-after", 0, "--request-timeout", "2s", "--balancer", "round-robin"]
        with route([liar.url], *arguments) as router, route([liar.url, good.url], *arguments[2:]) as pair:
            ready = until(lambda: ask(router.port, "GET", "/ready").status == 200)
            tally.check("a router is ready before its replica lies", ready, router.last_lines())
            until(lambda: b'"ready":2' in ask(pair.port, "GET", "/fleet/replicas").body)
            before = router.peak_mib()
            for kind in kinds:
                liar.answer = kind.answer
                try:
                    got, about = outcome(router.port, kind)
                except OSError as error:
                    got, about = "no connection", str(error)
                until(lambda: liar.open_connections() == 0, 10)  # later bytes must not answer the next request
                wanted = kind.client in (got, hostile.EITHER) and got in (ERROR, WHOLE)
                tally.check(f"route, a replica with {kind.name}: {kind.client}", wanted, f"{got}: {about}")
                if not tally.check(f"route lives after {kind.name}", router.health(BYSTANDER), router.last_lines()):
                    return
            grown = router.peak_mib() - before
            tally.worst("MiB grown at worst", grown)
            tally.check("memory of a router among liars", grown <= MOST_GROWN_MIB, f"grew by {grown:.0f} MiB")
            tally.check("a router among liars ends in order", router.stop() == 0, router.last_lines())
            # If a replica fails before the first byte of its answer is forwarded, the request goes to the other.
            for kind in kinds:
                if kind.client != ERROR or kind.endless:
                    continue
                liar.answer = kind.answer
                got = [outcome(pair.port, kind)[0] for _ in range(2)]
                tally.check(f"route, two replicas, one with {kind.name}", set(got) <= {ERROR, WHOLE}, f"{got}")
            tally.check("a router with two replicas lives", pair.stop() == 0, pair.last_lines())


# --- reports of replicas about themselves


def polled_replicas(tally, command):
    liars = [(kind.name, Hostile(kind.answer)) for kind in some(tally, hostile.KINDS)]
    nothing = hostile.sized(b"{}", status="404 No").replace(b"application/json", b"text/plain")
    for name, text in some(tally, hostile.STATES):
        liars.append((f"a state {name}", Hostile(nothing, {"/fleet/state": hostile.sized(text)})))
    for name, text in some(tally, hostile.METRIC_TEXTS):
        liars.append((f"metrics {name}", Hostile(nothing, {"/metrics": hostile.sized(text)})))
    for name, text in some(tally, hostile.MODEL_LISTS):
        answers = {"/health": hostile.sized(b"{}"), "/v1/models": hostile.sized(text)}
        liars.append((f"models {name}", Hostile(nothing, answers)))
    good = sound()
    arguments = ["--replicas", ",".join([good.url, *(liar.url for _, liar in liars)]), *POLLS]
    ports = ["--port", 0] if command == "route" else ["--grpc-port", 0, "--health-port", 0, "--metrics-port", 0]
    try:
        try:
            started = Watched(command, *ports, *arguments, "--model", "m")
        except RuntimeError as died:
            tally.check(f"{command} starts among {len(liars)} liars", False, str(died))
            return
        with started as watcher:
            asked = until(lambda: all(liar.times_asked() >= 4 for _, liar in liars) or not watcher.alive())
            late = [name for name, liar in liars if liar.times_asked() < 4]
            tally.check(f"{command} polls every liar again", asked and not late, f"{late}\n{watcher.last_lines()}")
            if not tally.check(f"{command} lives among {len(liars)} liars", watcher.health(), watcher.last_lines()):
                one_by_one(tally, command, liars, ports)
                return
            text = ask(watcher.port, "GET", "/metrics").body.decode()
            ready = re.search(r'tactus_route_replicas\{state="ready"\} (\d+)', text)
            tally.check(
                f"{command}: of {len(liars) + 1} replicas one is ready",
                ready is not None and ready[1] == "1",
                text[:3000],
            )
            for line in watcher.lines:
                odd = [c for c in line.rstrip("\n") if not c.isprintable()]
                if not tally.check(f"{command}: a line of its log is for people", not odd, repr(line[:300])):
                    break
            if command == "route":
                kind = hostile.Kind("sound", hostile.OK, WHOLE)
                got = [outcome(watcher.port, kind) for _ in range(20)]
                tally.check("route answers through the sound replica", all(g == WHOLE for g, _ in got), repr(got[:3]))
            tally.check(f"{command} among liars ends in order", watcher.stop() == 0, watcher.last_lines())
    finally:
        for _, liar in [("", good), *liars]:
            liar.stop()


def one_by_one(tally, command, liars, ports):
    """Finds the replica that ended the process."""
    for name, liar in liars:
        with Watched(command, *ports, "--replicas", liar.url, *POLLS) as watcher:
            asked = liar.times_asked()
            until(lambda: liar.times_asked() >= asked + 4 or not watcher.alive(), 10)  # noqa: B023
            tally.check(f"{command} lives while it polls {name}", watcher.alive(), watcher.last_lines())


# --- commands that are clients of a server


def ended_in_order(done):
    if done.returncode is None:
        return "no end: " + done.stderr[-300:]
    return "" if done.returncode in (0, 1, 2, 130) else f"exit status {done.returncode}: {done.stderr[-2000:]}"


def in_parallel(tally, kinds, check):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, wrong in pool.map(check, kinds):
            tally.check(name, not wrong, wrong)


def benches(tally):
    def check(kind):
        with Hostile(kind.answer) as liar:
            done = tactus(
                *("bench", "--url", liar.url, "--model", "m", "--concurrency", 4, "--requests", 6),
                *("--workload", "random:in=4,out=4", "--vocab-size", 500, "--timeout", "1s"),
                timeout=LIMIT_S,
            )
        wrong = ended_in_order(done)
        finished = kind.streams and kind.client != ERROR
        if not wrong and not finished and (done.returncode == 0 or "fail" not in done.stderr + done.stdout):
            wrong = f"no message about the failure: {done.stdout[-300:]} {done.stderr[-300:]}"
        return f"bench, a server with {kind.name}", wrong

    in_parallel(tally, some(tally, hostile.KINDS), check)

    def check_models(case):
        name, text = case
        with Hostile(hostile.sized(text)) as liar:
            done = tactus(
                *("bench", "--url", liar.url, "--concurrency", 1, "--requests", 1),
                *("--workload", "random:in=4,out=4"),
                timeout=LIMIT_S,
            )
        wrong = ended_in_order(done)
        if not wrong and (done.returncode != 1 or "/v1/models" not in done.stderr):
            wrong = f"exit status {done.returncode}: {done.stderr[-300:]}"
        return f"bench, models {name}", wrong

    in_parallel(tally, some(tally, hostile.MODEL_LISTS), check_models)


FLEETS = [
    ("no replicas", b"{}"),
    ("a number of replicas", b'{"replicas": 5}'),
    ("numbers for replicas", b'{"replicas": [1, null, []]}'),
    ("replicas without a URL", b'{"replicas": [{"state": "ready"}]}'),
    ("a URL that is a number", b'{"replicas": [{"url": 5}]}'),
    ("an error that is a number", b'{"error": 5}'),
    ("100,000 levels", b"[" * 100_000),
    ("no UTF-8", b'{"replicas": [{"url": "\xff"}]}'),
    ("8 MiB of nothing", b'{"a": "' + b"x" * (8 * MIB) + b'"}'),
]
ODD_FLEETS = [
    ("wrong numbers", b'{"replicas": [{"url": "http://h:1", "in_flight": 1e300, "requests": -1, "waiting": "x"}]}'),
    ("2^64", b'{"replicas": [{"url": "http://h:1", "requests": 18446744073709551615}]}'),
    (
        "what a terminal obeys",
        b'{"replicas": [{"url": "http://h:1", "why": "\\u001b[2J\\u0007", "state": "\\u009b2J"}]}',
    ),
]


def lists(tally):
    """`tactus route list` against other servers than routers. Endless answers are cut off after 30 s: one stands for
    all."""
    endless = [kind for kind in hostile.KINDS if kind.endless][:1]
    kinds = [kind for kind in some(tally, hostile.KINDS) if not kind.endless] + ([] if tally.quick else endless)

    def check(case):
        name, answer, sound_one = case
        with Hostile(answer) as liar:
            done = tactus("route", "list", "--router", liar.url, timeout=LIMIT_S)
        wrong = ended_in_order(done)
        if not wrong and not sound_one and (done.returncode != 1 or not done.stderr.startswith("tactus route list: ")):
            wrong = f"exit status {done.returncode}: {done.stdout[-200:]} {done.stderr[-300:]}"
        odd = [c for c in done.stdout + done.stderr if not c.isprintable() and c != "\n"]
        if not wrong and odd:
            wrong = f"not for people: {done.stdout!r} {done.stderr!r}"
        return f"route list, {name}", wrong

    cases = [(kind.name, kind.answer, False) for kind in kinds]
    cases += [(name, hostile.sized(text), False) for name, text in FLEETS]
    cases += [(name, hostile.sized(text), True) for name, text in ODD_FLEETS]
    in_parallel(tally, cases, check)


# --- a peer that sequences move to


def secret_in(folder):
    path = pathlib.Path(folder) / "secret"
    path.write_text("a secret that the fleet shares\n")
    path.chmod(0o600)
    return path


def handed_over(tally):
    """A server that hands each request to a lying peer: the request stays and gets its whole answer."""
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "stream": True}
    with tempfile.TemporaryDirectory() as folder, Hostile(b"") as liar:
        arguments = ["--kv-secret-file", secret_in(folder), "--hand-over-to", liar.url, "--migration-timeout", "500ms"]
        with Server(*arguments) as server:

            def text():
                answer = ask(server.port, "POST", "/v1/completions", body, headers=[("x-tactus-route", "1")])
                pieces = [line[6:] for line in answer.body.split(b"\n\n") if line.startswith(b"data: {")]
                texts = [json.loads(p)["choices"][0]["text"] for p in pieces if json.loads(p).get("choices")]
                return "".join(texts) if answer.body.endswith(b"data: [DONE]\n\n") else repr(answer)

            whole = text()
            asked = 0
            for kind in some(tally, hostile.KINDS):
                liar.answer = kind.answer
                before = liar.times_asked("/fleet/import")
                try:
                    got = text()
                except (OSError, Lost) as lost:
                    got = str(lost)
                until(lambda: liar.times_asked("/fleet/import") > before, 2)  # noqa: B023
                asked += liar.times_asked("/fleet/import") - before
                tally.check(
                    f"a request that a peer with {kind.name} was to take", got == whole, f"{got!r}, not {whole!r}"
                )
                if not tally.check(
                    f"serve lives after a peer with {kind.name}", server.alive(), "".join(server.lines[-20:])
                ):
                    return
            tally.check("peers were asked to take requests", asked > 0, "none was asked")
            tally.check("a server among lying peers ends in order", server.stop() == 0, "".join(server.lines[-20:]))


# --- the folder of KV


def kv_kinds(folder):
    """(name, change by another program in the folder of a stopped server)."""
    subfolder = next(p for p in folder.iterdir() if p.is_dir())
    index = sorted(subfolder.glob("*.index"))[0]
    blocks = index.with_suffix(".blocks")
    outside = folder.parent / "outside"
    outside.write_bytes(b"x" * 5000)

    def sparse(path, size):
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.truncate(size)

    def replace(path, make):
        path.unlink()
        make(path)

    yield "an index of 512 MiB of nothing", lambda: sparse(index, 512 * MIB)
    yield "both files of 512 MiB", lambda: (sparse(index, 512 * MIB), sparse(blocks, 512 * MIB))
    yield "an empty index", lambda: sparse(index, 0)
    yield "empty blocks", lambda: sparse(blocks, 0)
    yield "half a record", lambda: sparse(index, index.stat().st_size - 7)
    yield "half a block", lambda: sparse(blocks, blocks.stat().st_size - 7)
    yield "noise for an index", lambda: index.write_bytes(hostile.NOISE)
    yield "noise for blocks", lambda: blocks.write_bytes(hostile.NOISE)
    yield "an index that is a pipe", lambda: replace(index, os.mkfifo)
    yield "blocks that are a pipe", lambda: replace(blocks, os.mkfifo)
    yield "an index that is a folder", lambda: replace(index, os.mkdir)
    yield "an index that is a link elsewhere", lambda: replace(index, lambda p: p.symlink_to(outside))
    yield "blocks that are a link elsewhere", lambda: replace(blocks, lambda p: p.symlink_to(outside))
    yield "an index that is a link to itself", lambda: replace(index, lambda p: p.symlink_to(p.name))
    yield "a folder that is a link to itself", lambda: (folder / ("0" * 32)).symlink_to("0" * 32)
    yield "a folder that is a pipe", lambda: os.mkfifo(folder / ("1" * 32))
    yield "`about` that is a pipe", lambda: replace(subfolder / "about", os.mkfifo)
    yield "`about` that is a link elsewhere", lambda: replace(subfolder / "about", lambda p: p.symlink_to(outside))
    yield "a folder that is a file", lambda: (shutil.rmtree(subfolder), subfolder.write_bytes(b""))
    yield "no subfolder", lambda: shutil.rmtree(subfolder)
    yield "2,000 segments", lambda: [(subfolder / f"{i:08}.index").write_bytes(b"") for i in range(100, 2100)]
    yield "segments of others", lambda: shutil.copytree(subfolder, folder / ("2" * 32))
    yield "a key file of noise", lambda: (folder / "kv-cache").write_bytes(hostile.NOISE)
    yield "a key file that is a link", lambda: replace(folder / "kv-cache", lambda p: p.symlink_to(outside))
    yield "a key file that is a pipe", lambda: replace(folder / "kv-cache", os.mkfifo)
    yield "a key file for all", lambda: (folder / "kv-cache").chmod(0o644)


def kv_folders(tally):
    """A folder that another program has changed: the next start reports the fault or serves the same answers; files
    outside stay unchanged."""
    body = {"prompt": "x" * 200, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = dummy_model(folder / "model")
        kept, used = folder / "kept", folder / "used"

        def serve(path):
            return Server("--kv-cache-dir", path, "--kv-cache-dir-size", "64MiB", model=model, start_limit_s=30)

        with serve(kept) as server:
            whole = ask(server.port, "POST", "/v1/completions", body).json()["choices"][0]["text"]
            server.stop()
        names = [name for name, _ in kv_kinds(kept)]
        outside = folder / "outside"
        for number, name in enumerate(names):
            if tally.quick and number % 6:
                continue
            shutil.copytree(kept, used)
            list(kv_kinds(used))[number][1]()
            try:
                with serve(used) as server:
                    text = ask(server.port, "POST", "/v1/completions", body).json()["choices"][0]["text"]
                    status = server.stop()
                wrong = "" if (text, status) == (whole, 0) else f"{text!r}, not {whole!r}; exit status {status}"
            except Exception as stopped:  # DidNotStart has the status
                status, said = getattr(stopped, "status", None), getattr(stopped, "text", str(stopped))
                wrong = "" if status in (1, 2) and "--kv-cache-dir" in said else f"exit status {status}: {said[-500:]}"
            if outside.read_bytes() != b"x" * 5000:
                wrong += "; a file elsewhere was written to"
            tally.check(f"a KV folder with {name}", not wrong, wrong)
            shutil.rmtree(used)
