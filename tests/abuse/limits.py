"""Memory and progress under attack: bodies, headers, templates, floods, connections, slow readers.

Memory is the server's peak (VmHWM) over its value before the attack; a bound is several times the need of the correct
server and far below that of a broken one. Progress is counted in answers: another client, on another loopback address,
gets its small requests answered during the attack. The only times are limits that no correct server comes near.
"""

import concurrent.futures
import json
import pathlib
import threading
import time

from program import ROOT, Server, dummy_model, has_flag
from wire import Lost, Wire, ask, request

MIB = 1 << 20
PIECE = 256 << 10
ANSWER_LIMIT_S = 30  # for one answer, on a machine that may be busy
BYSTANDER = "127.0.0.2"
MOST_BYSTANDERS = 20_000
SMALL = {"prompt": "x", "max_tokens": 2, "temperature": 0}


def run(tally, seed):
    streamed_bodies(tally)
    unread_bodies(tally)
    held_bodies(tally)
    heavy_json(tally)
    sequence_limits(tally)
    connection_limits(tally)
    idle_connections(tally)
    slow_readers(tally)


# --- measuring


class Peak:
    """`with Peak(server) as peak: ...; peak.grown` in MiB."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        ask(self.server.port, "POST", "/v1/completions", SMALL)  # allocates what every request needs
        self.before = self.server.memory_mib()
        self.server.forget_peak()
        return self

    def __exit__(self, *_):
        self.grown = self.server.memory_mib("VmHWM") - self.before if self.server.alive() else float("inf")


def bounded(tally, name, peak, bound_mib):
    tally.worst("MiB grown at worst", peak.grown)
    tally.check(
        f"memory: {name}", peak.grown <= bound_mib, f"grew by {peak.grown:.0f} MiB; the bound is {bound_mib} MiB"
    )


def lives(tally, name, server):
    """The server answers requests as before, and nothing of the attack is left."""
    try:
        answer = ask(server.port, "POST", "/v1/completions", SMALL, ANSWER_LIMIT_S)
        wrong = "" if answer.status == 200 else repr(answer)
        if not wrong and not server.idle(ANSWER_LIMIT_S):
            wrong = "requests, KV blocks or exchanges are left"
    except (Lost, OSError) as lost:
        wrong = f"{lost}; exit status {server.process.poll()}"
    tally.check(f"afterwards: {name}", not wrong, wrong)


def beside(tally, name, server, attack, attackers=4, wanted=10):
    """Runs `attack(sent)` repeatedly in threads until another client has got `wanted` answers, or one of them failed.

    The other client begins when every attacker has called `sent`, that is, when its first attack is under way, and
    continues at least until every attacker has been answered once: so its requests arrive while the server works on the
    attack.
    """
    stop, rounds, problems = threading.Event(), [0] * attackers, []
    sent = [threading.Event() for _ in range(attackers)]

    def keep_attacking(i):
        while not stop.is_set() and rounds[i] < 1000:
            wrong = attack(sent[i].set)
            rounds[i] += 1
            if wrong:
                problems.append(wrong)
                return

    threads = [threading.Thread(target=keep_attacking, args=(i,), daemon=True) for i in range(attackers)]
    for thread in threads:
        thread.start()
    for event in sent:
        event.wait(ANSWER_LIMIT_S)
    slowest, got, wrong = 0.0, 0, ""
    try:
        while not wrong and got < MOST_BYSTANDERS and (got < wanted or 0 in rounds):
            start = time.monotonic()
            try:
                answer = ask(server.port, "POST", "/v1/completions", SMALL, ANSWER_LIMIT_S, source=BYSTANDER)
                wrong = "" if answer.status == 200 else repr(answer)
            except (Lost, OSError) as lost:
                wrong = str(lost)
            slowest = max(slowest, time.monotonic() - start)
            got += not wrong
            time.sleep(0.02)  # each uses a new port, of which a system has 28,000 a minute
    finally:
        stop.set()
        for thread in threads:
            thread.join(2 * ANSWER_LIMIT_S)
    tally.worst("slowest bystander ms", round(1000 * slowest))
    tally.check(
        f"progress beside {name}",
        not wrong,
        f"another client got {got} answers, then none within {ANSWER_LIMIT_S} s, "
        f"while the attack was answered {sum(rounds)} times: {wrong}",
    )
    tally.check(f"answers to {name}", not problems, f"{problems[:2]}")


def pour(port, head, piece, most_bytes):
    """Sends `piece` repeatedly until the server answers, closes, or has received `most_bytes`. Returns the answer or
    None."""
    with Wire(port, ANSWER_LIMIT_S) as wire:
        wire.send(head)
        sent = 0
        while sent < most_bytes and not wire.answered_already() and wire.send(piece):
            sent += len(piece)
        wire.half_close()
        try:
            return wire.read()
        except Lost:
            return None


# --- parts of a body that are not the body


def streamed_bodies(tally):
    head = request(
        "POST", "/tokenize", headers=[("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")]
    )
    attacks = {
        "one endless chunk extension": (head + b"1;", b"a" * 65536),
        "extensions of small chunks": (head, (b"1;" + b"a" * 4000 + b"\r\n \r\n") * 16),
        "one endless trailer": (head + b"0\r\nX: ", b"a" * 65536),
        "endless trailers": (head + b"0\r\n", b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 2000),
        "an endless chunk size": (head, b"0" * 65536),
        "endless headers": (
            b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
            b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 2000,
        ),
        "an endless request line": (b"GET /", b"a" * 65536),
        "endless blank lines": (b"", b"\r\n" * 32768),
        "an endless chunked body": (head, b"10000\r\n" + b" " * 65536 + b"\r\n"),
    }
    for name, (head, piece) in attacks.items():
        with Server() as server:
            with Peak(server) as peak:
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    answers = list(pool.map(lambda _: pour(server.port, head, piece, 64 * MIB), range(4)))
            bounded(tally, f"{name}, 4 x 64 MiB", peak, 96)
            statuses = [a and a.status for a in answers]
            tally.check(f"refused: {name}", all(s in (None, 400, 413, 431) for s in statuses), f"answered {statuses}")
            lives(tally, name, server)


# --- unrequested bodies


def hold_bodies(server, head, body_bytes, count, answer_early):
    """Opens `count` connections that send all of a body but its last piece. Returns the wires and the statuses of early
    answers."""
    wires, statuses = [], []

    def one(_):
        wire = Wire(server.port, 10)
        wire.send(head)
        sent, piece = 0, b" " * PIECE
        while sent + PIECE < body_bytes and not wire.answered_already() and wire.send(piece):
            sent += len(piece)
        status = None
        if answer_early or wire.answered_already():
            try:
                status = wire.read().status
            except Lost:
                status = "closed" if wire.ended else None
        return wire, status

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for wire, status in pool.map(one, range(count)):
            wires.append(wire)
            statuses.append(status)
    return wires, statuses


def unread_bodies(tally):
    count, size = (20, 4 * MIB) if tally.quick else (100, 4 * MIB)
    for name, arguments, head, statuses in (
        ("GET /health", (), request("GET", "/health", headers=[("Content-Length", size)]), {400}),
        ("GET /v1/models", (), request("GET", "/v1/models", headers=[("Content-Length", size)]), {400}),
        (
            "a keyed route without a key",
            ("--api-key", "right"),
            request(
                "POST", "/v1/completions", headers=[("Content-Length", size), ("Content-Type", "application/json")]
            ),
            {401},
        ),
        (
            "an unknown route",
            (),
            request("POST", "/nowhere", headers=[("Content-Length", size), ("Content-Type", "application/json")]),
            {404},
        ),
        (
            "a wrong type",
            (),
            request("POST", "/tokenize", headers=[("Content-Length", size), ("Content-Type", "text/plain")]),
            {415},
        ),
    ):
        with Server(*arguments) as server:
            before = server.memory_mib()
            server.forget_peak()
            wires, got = hold_bodies(server, head, size, count, answer_early=True)
            grown = server.memory_mib("VmHWM") - before
            tally.worst("MiB grown at worst", grown)
            tally.check(
                f"memory: {count} bodies of 4 MiB on {name}",
                grown <= 64,
                f"grew by {grown:.0f} MiB; the bound is 64 MiB",
            )
            tally.check(
                f"bodies on {name} are refused before they are read",
                all(s in statuses | {"closed"} for s in got),
                f"expected {statuses}, got {sorted(map(str, set(got)))}",
            )
            for wire in wires:
                wire.close()
            health = ask(server.port, "GET", "/health", limit_s=ANSWER_LIMIT_S)
            tally.check(f"health after bodies on {name}", health.status == 200, repr(health))


def held_bodies(tally):
    """Many bodies at once, each within the limit: --max-body-total bounds their sum."""
    count, size, total_mib = (30, 4 * MIB, 32) if tally.quick else (100, 4 * MIB, 64)
    flags = ("--max-body-total", f"{total_mib}MiB") if has_flag("--max-body-total") else ()
    tally.check("--max-body-total exists", bool(flags), "the program has no such flag")
    with Server(*flags) as server:
        head = request("POST", "/tokenize", headers=[("Content-Length", size), ("Content-Type", "application/json")])
        few = []  # one after the other, half of the allowed total
        for _ in range(total_mib * MIB // size // 2):
            few += hold_bodies(server, head, size, 1, answer_early=False)[0]
        for wire in few:
            wire.send(b" " * PIECE)
        answers = []
        for wire in few:
            with wire:
                try:
                    answers.append(wire.read().status)
                except Lost as lost:
                    answers.append(str(lost))
        tally.check(
            "bodies within --max-body-total are taken",
            set(answers) == {400},
            f"blanks are no JSON: 400 was due, got {answers}",
        )
        with Peak(server) as peak:
            wires, statuses = hold_bodies(server, head, size, count, answer_early=False)
            time.sleep(0.3)
            for i, wire in enumerate(wires):  # answers after the last piece
                if statuses[i] is None and wire.answered_already():
                    try:
                        statuses[i] = wire.read().status
                    except Lost:
                        statuses[i] = "closed"
        bounded(tally, f"{count} bodies of 4 MiB held at once, {total_mib} MiB allowed", peak, total_mib * 3 // 2 + 32)
        refused = statuses.count(503)
        tally.check(
            "bodies beyond --max-body-total get 503",
            refused > 0 and set(statuses) <= {None, 503, "closed"},
            f"{refused} refusals; answers {sorted(map(str, set(statuses)))}",
        )
        answer = ask(server.port, "GET", "/health", limit_s=ANSWER_LIMIT_S)
        tally.check("health beside held bodies", answer.status == 200, repr(answer))
        for wire in wires:
            wire.close()
        # A body's room is freed when its connection ends, which the server notices a moment later.
        wanted = request("POST", "/tokenize", b'{"prompt":"' + b"x" * (size // 2) + b'"}')
        last = None
        for _ in range(50):
            with Wire(server.port, ANSWER_LIMIT_S) as wire:
                wire.send(wanted)
                try:
                    last = wire.read()
                except Lost as lost:
                    last = lost
            if getattr(last, "status", 0) in (200, 400):
                break
            time.sleep(0.2)
        tally.check("room comes back when bodies go", getattr(last, "status", 0) in (200, 400), repr(last))
        lives(tally, "held bodies", server)


# --- JSON, templates and text


def run_merging_model(folder):
    """A dummy model whose tokenizer merges runs of spaces, letters and digits up to 64; its worst case is long runs."""
    tokenizer = json.loads((ROOT / "tests/golden/data/llama-gqa/tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    for symbol in ("\u0120", "a", "\u010a", "-"):
        run = symbol
        while len(run) < 64:
            if run + run not in vocabulary:
                vocabulary[run + run] = max(max(vocabulary.values()), *(t["id"] for t in tokenizer["added_tokens"])) + 1
                merges.append([run, run] if isinstance(merges[0], list) else f"{run} {run}")
            run += run
    arguments = dummy_model(folder)
    (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
    (pathlib.Path(folder) / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return arguments


def chat(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields}).encode()


def heavy_bodies():
    """name: (target, body). Each is at most 16 MiB, the default --max-body, less a margin."""
    full = 16 * MIB - 1000
    prompt = lambda text: b'{"prompt":"' + text + b'","max_tokens":1}'  # noqa: E731
    keys = {f"key{i}": i for i in range(100_000)}
    return {
        "16 MiB of spaces": ("/v1/completions", prompt(b" " * full)),
        "16 MiB of one letter": ("/v1/completions", prompt(b"a" * full)),
        "16 MiB of words": ("/tokenize", prompt(b"abc " * (full // 4))),
        "16 MiB of hyphens": ("/tokenize", prompt(b"-" * full)),
        "8 MiB of escaped line ends": ("/tokenize", prompt(b"\\n" * (full // 2))),
        "16 MiB of combining characters": ("/tokenize", prompt("\u0301".encode() * (full // 2))),
        "16 MiB of emoji": ("/tokenize", prompt("\U0001f600".encode() * (full // 4))),
        "16 MiB of special tokens": ("/tokenize", prompt(b"<|im_start|>" * (full // 12))),
        "16 MiB of spaces in a chat": (
            "/v1/chat/completions",
            b'{"messages":[{"role":"user","content":"' + b" " * full + b'"}]}',
        ),
        "16 MiB of blanks around an object": ("/v1/completions", b" " * full + b"{}"),
        "a million levels": ("/v1/completions", b"[" * MIB),
        "a million levels of objects": ("/v1/completions", b'{"a":' * MIB),
        "two million values": ("/v1/completions", b'{"prompt":[' + b"1," * 1_900_000 + b"1]}"),
        "eight million values": ("/v1/completions", b'{"prompt":[' + b"1," * 8_000_000 + b"1]}"),
        "a million empty lists": ("/v1/completions", b'{"prompt":[' + b"[]," * 1_000_000 + b"[]]}"),
        "a number of 4 MiB": ("/v1/completions", b'{"seed":' + b"1" * (4 * MIB) + b"}"),
        "a key of 8 MiB": ("/v1/completions", b'{"' + b"k" * (8 * MIB) + b'":1,"prompt":"x","max_tokens":1}'),
        "a million equal keys": ("/v1/completions", b"{" + b'"a":1,' * 1_000_000 + b'"b":1}'),
        "300,000 unknown fields": (
            "/v1/completions",
            json.dumps({**{f"u{i}": 0 for i in range(300_000)}, "prompt": "x", "max_tokens": 1}).encode(),
        ),
        "100,000 keys in chat_template_kwargs": ("/v1/chat/completions", chat(chat_template_kwargs=keys)),
        "100,000 keys one level down": ("/v1/chat/completions", chat(chat_template_kwargs={"a": keys})),
        "100,000 keys in a message": (
            "/v1/chat/completions",
            chat(messages=[{"role": "user", "content": "x", **keys}]),
        ),
        "100,000 documents": ("/v1/chat/completions", chat(documents=[{"text": "x"}] * 100_000)),
        "16,384 messages": ("/v1/chat/completions", chat(messages=[{"role": "user", "content": "x"}] * 16_384)),
        "200,000 content parts": (
            "/v1/chat/completions",
            chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}] * 200_000}]),
        ),
        "100,000 biases": (
            "/v1/completions",
            json.dumps({"prompt": "x", "max_tokens": 1, "logit_bias": {str(i): 1 for i in range(100_000)}}).encode(),
        ),
        "1.9 million tokens to detokenise": ("/detokenize", b'{"tokens":[' + b"1," * 1_900_000 + b"1]}"),
        "a million tokens with strings": (
            "/tokenize",
            b'{"return_token_strs":true,"prompt":"' + b"xy" * 500_000 + b'"}',
        ),
    }


def heavy_json(tally):
    bodies = heavy_bodies()
    if tally.quick:
        bodies = {
            name: bodies[name]
            for name in (
                "16 MiB of spaces",
                "a million levels",
                "100,000 keys in chat_template_kwargs",
                "two million values",
            )
        }
    for name, (target, body) in bodies.items():
        with Server(model=run_merging_model(ROOT / "build/abuse/run-model")) as server:
            data = request("POST", target, body)

            def attack(sent):
                with Wire(server.port, ANSWER_LIMIT_S) as wire:
                    wire.send(data)
                    sent()
                    try:
                        answer = wire.read()
                    except Lost as lost:
                        return f"no answer: {lost}"
                    return "" if answer.status in (200, 400, 429, 503) else repr(answer)

            with Peak(server) as peak:
                beside(tally, name, server, attack, wanted=3 if tally.quick else 5)
            bounded(tally, f"{name}, 4 at once", peak, 1024)
            lives(tally, name, server)


# --- sequences


def sequence_limits(tally):
    with Server("--max-streams-per-client", "100", "--max-num-seqs", "64") as server:
        for name, fields, statuses in (
            ("n of 100", {"n": 100}, {200}),
            ("n of 101", {"n": 101}, {400}),
            ("10 prompts x n of 11", {"prompt": ["x"] * 10, "n": 11}, {400}),
            ("256 prompts", {"prompt": ["x"] * 256}, {400}),
            ("100 prompts", {"prompt": ["x"] * 100}, {200}),
        ):
            answer = ask(server.port, "POST", "/v1/completions", {**SMALL, **fields}, ANSWER_LIMIT_S)
            tally.check(
                f"--max-streams-per-client 100: {name}", answer.status in statuses, f"{answer}; expected {statuses}"
            )
        lives(tally, "sequence limits", server)
    with Server("--max-streams-per-client", "256", "--max-num-seqs", "64", "--max-queue", "512") as server:
        flood = request("POST", "/v1/completions", {**SMALL, "n": 128, "max_tokens": 64, "temperature": 1})

        def attack(sent):
            with Wire(server.port, ANSWER_LIMIT_S) as wire:
                wire.send(flood)
                sent()
                try:
                    answer = wire.read()
                except Lost as lost:
                    return f"no answer: {lost}"
                return "" if answer.status in (200, 429, 503) else repr(answer)

        with Peak(server) as peak:
            beside(tally, "a flood of n=128", server, attack, attackers=6)
        bounded(tally, "a flood of n=128", peak, 256)
        lives(tally, "a flood of n=128", server)


# --- connections


def connection_limits(tally):
    flags = ("--max-connections", "64")
    if has_flag("--max-connections-per-client"):
        flags += ("--max-connections-per-client", "16")
    tally.check("--max-connections-per-client exists", len(flags) == 4, "the program has no such flag")
    with Server(*flags) as server:
        wires = []

        def hold(source, count):
            for _ in range(count):
                wires.append(Wire(server.port, 5, source))
                wires[-1].send(b"GET /health HT")  # a connection with an unfinished request

        def answer(target, source):
            try:
                got = ask(server.port, "GET", target, limit_s=ANSWER_LIMIT_S, source=source)
                return got.status, got
            except (Lost, OSError) as lost:
                return 0, lost

        hold("127.0.0.1", 16)
        status, got = answer("/v1/models", "127.0.0.1")
        tally.check("one address at its limit gets 503", status == 503, repr(got))
        tally.check("with Retry-After", status == 503 and got.headers.get("retry-after", "").isdigit(), repr(got))
        for target in ("/health", "/ready"):
            status, got = answer(target, "127.0.0.1")
            tally.check(f"{target} is answered to an address at its limit", status == 200, repr(got))
        status, got = answer("/v1/models", BYSTANDER)
        tally.check("another address is served", status == 200, repr(got))
        for i in range(3, 6):
            hold(f"127.0.0.{i}", 16)
        status, got = answer("/v1/models", BYSTANDER)
        tally.check("beyond --max-connections everybody gets 503", status == 503, repr(got))
        for target in ("/health", "/ready"):
            status, got = answer(target, BYSTANDER)
            tally.check(f"{target} is answered beyond --max-connections", status == 200, repr(got))
        for i in range(10, 40):  # more than the server keeps to refuse them: they are closed
            hold(f"127.0.0.{i}", 16)
        tally.check("the server lives beyond every limit", server.alive())
        for wire in wires:
            wire.close()
        for _ in range(100):
            if answer("/v1/models", BYSTANDER)[0] == 200:
                break
            time.sleep(0.1)
        lives(tally, "connection limits", server)


def idle_connections(tally):
    count = 500 if tally.quick else 2000
    with Server() as server:
        with Peak(server) as peak:
            wires = [Wire(server.port, 5, f"127.0.1.{i % 200 + 1}") for i in range(count)]
            try:
                for wire in wires:
                    wire.send(b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                answer = ask(server.port, "GET", "/v1/models", limit_s=ANSWER_LIMIT_S)
                tally.check(f"an answer beside {count} connections", answer.status == 200, repr(answer))
            finally:
                for wire in wires:
                    wire.close()
        bounded(tally, f"{count} connections", peak, 128)
        lives(tally, f"{count} connections", server)


def slow_readers(tally):
    def wait_a_little(sent):  # the streams themselves are the attack
        sent()
        time.sleep(0.1)

    clients, n = (4, 8) if tally.quick else (16, 8)
    with Server("--write-timeout", "2s", "--max-num-seqs", "128") as server:
        body = {
            "prompt": "x",
            "max_tokens": 1500,
            "n": n,
            "stream": True,
            "logprobs": 20,
            "ignore_eos": True,
            "temperature": 1,
        }
        with Peak(server) as peak:
            wires = [Wire(server.port, ANSWER_LIMIT_S, receive_buffer=4096) for _ in range(clients)]
            for wire in wires:
                wire.send(request("POST", "/v1/completions", body))
            beside(tally, f"{clients} clients that do not read", server, wait_a_little, attackers=1, wanted=5)
            gone = server.wait_for_metrics(60, tactus_http_client_gone_total=clients)
            tally.check(
                "clients that do not read count as gone",
                gone,
                f"{server.metric('tactus_http_client_gone_total'):.0f} of {clients} after 60 s",
            )
        for wire in wires:
            wire.close()
        bounded(tally, f"{clients} x {n} streams that are not read", peak, 512)
        lives(tally, "slow readers", server)
