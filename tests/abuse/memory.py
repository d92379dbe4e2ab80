"""Too little memory: a server and a router with a limited address space, under bodies of JSON whose parsed form is many
times larger.

The program starts with each limit. Requirements: no program ends by a signal, every request gets an answer or the end
of its connection within its limit, the next small request is answered, and SIGTERM ends the program with status 0.
"""

import concurrent.futures
import random
import tempfile
import time

from program import MODEL, dummy_model
from watched import POLLS, Watched, until
from wire import Lost, Wire, ask, request

LIMITS_MIB = [350, 400, 450, 500, 550, 600, 650, 700, 1000]
QUICK_LIMITS_MIB = [350, 600]
ANSWER_LIMIT_S = 60
CLIENTS = 40
SMALL = {"model": MODEL, "prompt": "x", "max_tokens": 2, "temperature": 0}
ANSWERED = {200, 400, 408, 413, 429, 500, 502, 503, 504}  # 500: from a replica without memory


def run(tally, seed):
    draw = random.Random(seed)
    for limit in QUICK_LIMITS_MIB if tally.quick else LIMITS_MIB:
        short_server(tally, limit, draw)
        short_router(tally, limit, draw)


def heavy(draw):
    """A body of up to 2.4 MB whose parsed JSON takes up to 30 times that."""
    n = draw.randrange(20_000, 400_000)
    many = draw.choice(
        [
            b"[" + b"[]," * n + b"[]]",
            b"[" + b"{}," * n + b"1]",
            b"{" + b",".join(b'"k%d":[{}]' % i for i in range(min(n, 16_000))) + b"}",
            b"[" + b'{"a":[1,2,{"b":[]}]},' * (n // 8) + b"1]",
            b"[" + b"1," * n + b"1]",
            b"[" * 50 + b"]" * 50,
            b'"' + b"x" * n + b'"',
        ]
    )
    where = draw.randrange(3)
    if where == 0:
        return b'{"model":"%s","max_tokens":2,"prompt":"x","metadata":%s}' % (MODEL.encode(), many)
    tools = b'[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"enum":%s}}}}}]' % many
    chat = b'{"model":"%s","max_tokens":2,"messages":[{"role":"user","content":"x"}],' % MODEL.encode()
    return chat + (b'"tools":%s}' % tools if where == 1 else b'"metadata":%s}' % many)


def attack(port, bodies, seconds):
    """The results of all requests, counted by status or by kind of loss."""
    counts = {}
    end = time.monotonic() + seconds

    def client(index):
        mine, at = [], index
        while time.monotonic() < end:
            body = bodies[at % len(bodies)]
            at += 7
            path = "/v1/chat/completions" if b"messages" in body[:200] else "/v1/completions"
            try:
                with Wire(port, limit_s=ANSWER_LIMIT_S) as wire:
                    wire.send(request("POST", path, body))
                    mine.append(wire.read().status)
            except Lost as lost:
                mine.append(str(lost).partition(":")[0])
            except OSError as error:
                mine.append(type(error).__name__)
                time.sleep(0.05)
        return mine

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for mine in pool.map(client, range(CLIENTS)):
            for what in mine:
                counts[what] = counts.get(what, 0) + 1
    return counts


def answers_again(port, path="/v1/completions"):
    def once():
        try:
            return ask(port, "POST", path, SMALL).status == 200
        except (OSError, Lost):
            return False

    return until(once, 30)


def judge(tally, name, watched, bodies, counts):
    about = f"{counts}\n{watched.last_lines()}"
    tally.check(f"{name}: is alive", watched.alive(), f"status {watched.process.poll()}; {about}", bodies[0])
    silent = [what for what in counts if isinstance(what, str) and "silent" in what]
    tally.check(f"{name}: every request ended", not silent, about)
    odd = [what for what in counts if isinstance(what, int) and what not in ANSWERED]
    tally.check(f"{name}: answers have known statuses", not odd, about)
    tally.check(f"{name}: the next small request is answered", answers_again(watched.port), about)
    status = watched.stop()
    tally.check(f"{name}: SIGTERM ends it with status 0", status == 0, f"status {status}; {about}")


def serve(folder, *args, **more):
    return Watched(
        "serve",
        *dummy_model(folder),
        "--port",
        0,
        "--kv-cache-memory",
        "16MiB",
        "--served-model-name",
        MODEL,
        *args,
        **more,
    )


def short_server(tally, limit, draw):
    with tempfile.TemporaryDirectory(prefix="tactus-abuse-") as folder:
        try:
            server = serve(folder, address_space_mib=limit)
        except RuntimeError as refused:
            tally.check(
                f"server within {limit} MiB: starts, or says what it needs", "ulimit -v" in str(refused), refused
            )
            return
        with server:
            bodies = [heavy(draw) for _ in range(12)]
            counts = attack(server.port, bodies, 4 if tally.quick else 10)
            tally.worst("requests of a server", sum(counts.values()))
            judge(tally, f"server within {limit} MiB", server, bodies, counts)


def short_router(tally, limit, draw):
    with tempfile.TemporaryDirectory(prefix="tactus-abuse-") as folder, serve(folder) as replica:
        try:
            router = Watched(
                "route", "--port", 0, "--replicas", f"http://127.0.0.1:{replica.port}", *POLLS, address_space_mib=limit
            )
        except RuntimeError as refused:
            tally.check(
                f"router within {limit} MiB: starts, or says what it needs", "ulimit -v" in str(refused), refused
            )
            return
        with router:
            until(lambda: ask(router.port, "GET", "/ready", None).status == 200)
            bodies = [heavy(draw) for _ in range(12)]
            counts = attack(router.port, bodies, 4 if tally.quick else 10)
            tally.worst("requests of a router", sum(counts.values()))
            judge(tally, f"router within {limit} MiB", router, bodies, counts)
