"""Hostile senders against the replica that a sequence moves to (`/fleet/import`, `/fleet/streams`): senders without the
secret, and members whose messages are cut off, contradictory, excessive, repeated, slow or unfinished.

A case passes if its answer has an allowed status and an error text, the server answers another client, and at the end
no case occupies memory: host blocks, places, bodies, connections.
"""

import dataclasses
import json
import pathlib
import random
import tempfile
import time
from collections.abc import Callable

from member import Member, Move, format_of
from program import Server
from watched import until
from wire import Lost, Wire, ask

SECRET = "a secret that the fleet shares"
HUGE = (1 << 24, 1 << 31, (1 << 63) - 1, 1 << 64, 10**40, -1, 1.5, "7", None, [], True)
MOST_GROWN_MIB = 96


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    statuses: tuple[int, ...]  # one of these; empty: no answer, because the sender has disconnected
    act: Callable[[Move], object]


def raw(move, data, limit_s=30.0):
    """The answer to these bytes."""
    with Wire(move.member.port, limit_s) as wire:
        wire.send(data)
        return wire.read()


def leaves(move, data, reset=False):
    """Disconnects after these bytes."""
    wire = Wire(move.member.port, 30.0)
    wire.send(data)
    if reset:
        wire.reset()
    else:
        wire.close()


def closed_on(move, data):
    """Half-closes after these bytes, and waits until the server closes."""
    with Wire(move.member.port, 30.0) as wire:
        wire.send(data)
        wire.half_close()
        return None if wire.ends(20.0) else "an answer"


def drips(move, data, pause_s=0.05):
    """Sends the rest one byte at a time until the server closes."""
    head, _, body = data.partition(b"\r\n\r\n")
    with Wire(move.member.port, 30.0) as wire:
        wire.send(head + b"\r\n\r\n")
        for at in range(len(body) - 1):
            if wire.answered_already() or not wire.send(body[at : at + 1]):
                break
            time.sleep(pause_s)
        return wire.read()


def begin_text(move, **how):
    return move.member.text(json.dumps(move.format).encode() + b"\n", **how)


def blocks_text(move, data=None):
    move.begun()
    head = {"kind": "blocks", "import": move.id, "first_block": 0, "blocks": 1}
    line = json.dumps(head).encode() + b"\n"
    return move.member.text(line + (bytes(move.format["block_bytes"]) if data is None else data))


def replay(move):
    text = begin_text(move)
    raw(move, text)
    return raw(move, text)


def changed(*path, to):
    """A change of one member of a sequence."""

    def change(sequence):
        *folders, name = path
        for folder in folders:
            sequence = sequence[folder]
        sequence[name] = to

    return change


def removed(*path):
    def change(sequence):
        *folders, name = path
        for folder in folders:
            sequence = sequence[folder]
        del sequence[name]

    return change


# --- senders that are not members


def strangers():
    def header(name, make):
        return Case(f"a signature {name}", (401,), lambda m: raw(m, begin_text(m, header=make(m))))

    zeros = "0" * 32
    other = "another secret of that length"
    yield Case("no signature", (401,), lambda m: raw(m, begin_text(m, header="")))
    yield header("of nothing", lambda m: "v1")
    yield header("of noise", lambda m: "v1 1 2 3 4")
    yield header("of zeros", lambda m: f"v1 {int(time.time())} {zeros} {zeros} {zeros}")
    yield header("of another version", lambda m: m.member.sign(b"").replace("v1", "v2", 1))
    yield header("of more words", lambda m: m.member.sign(b"") + " 0")
    yield header("of 60,000 bytes", lambda m: "v1 " + "a" * 60000)
    yield header("by another secret", lambda m: Member(m.member.port, other).sign(b""))
    yield header("for another path", lambda m: m.member.sign(b"", "/fleet/migrate"))
    yield header("from an hour ago", lambda m: m.member.sign(b"", seconds=int(time.time()) - 3600))
    yield header("from a time to come", lambda m: m.member.sign(b"", seconds=int(time.time()) + 3600))
    yield header("at a time of 40 digits", lambda m: m.member.sign(b"", seconds=10**40))
    yield header("at a time before all", lambda m: m.member.sign(b"", seconds=-(1 << 63)))
    yield Case("a signature of another body", (401,), lambda m: raw(m, begin_text(m, signed=b"another")))
    yield Case("the same request twice", (401,), replay)
    yield Case("a stranger's body of 1 TiB", (401, 413), lambda m: raw(m, announced(m, 1 << 40, header="")))


def announced(move, length, **how):
    head, _, body = begin_text(move, **how).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % length]) + b"\r\n\r\n" + body


# --- bodies with another length than announced


def lengths():
    yield Case("a body of 1 TiB that is announced", (413,), lambda m: raw(m, announced(m, 1 << 40)))
    yield Case("a length of 30 digits", (400, 413), lambda m: raw(m, announced(m, 10**30)))
    yield Case("a length below zero", (400,), lambda m: raw(m, announced(m, -5)))
    yield Case("a body that is cut short by its length", (401,), lambda m: raw(m, announced(m, 20)))
    for name, part in (("head", 60), ("first line", 500), ("block", 2000)):
        yield Case(f"a sender that leaves in its {name}", (), lambda m, at=part: leaves(m, blocks_text(m)[:at]))
        yield Case(f"a sender that resets in its {name}", (), lambda m, at=part: leaves(m, blocks_text(m)[:at], True))
    yield Case("a body that is half closed before its end", (), lambda m: closed_on(m, blocks_text(m)[:-40]))
    yield Case("a sender that leaves before its answer", (), lambda m: leaves(m, blocks_text(m)))
    yield Case("a sender of a byte at a time", (408,), lambda m: drips(m, blocks_text(m)))
    yield Case("a sender that falls silent in its body", (408,), lambda m: raw(m, blocks_text(m)[:-40]))


# --- invalid messages


def messages():
    def told(name, head, data=b"", statuses=(400,)):
        return Case(name, statuses, lambda m: m.member.tell(head, data))

    yield told("an empty body", b"")
    yield told("a line without its end", b'{"kind":"begin"}')
    yield told("an empty line", b"\n")
    yield told("a list", b"[1]\n")
    yield told("half an object", b'{"kind":"begin"\n')
    yield told("bytes that are not UTF-8", b'{"kind":"\xff"}\n')
    yield told("a name twice", b'{"kind":"begin","kind":"finish"}\n')
    yield told("10,000 levels", b"[" * 10000 + b"\n")
    yield told("a number of 5,000 digits", b'{"kind":' + b"9" * 5000 + b"}\n")
    yield told("noise", random.Random(3).randbytes(3000) + b"\n")
    yield told("no kind", {})
    yield told("a kind that is a number", {"kind": 1})
    yield told("an unknown kind", {"kind": "grow"})
    yield told("a kind of 100,000 bytes", {"kind": "x" * 100000})
    for kind in ("blocks", "finish"):
        yield told(f"{kind} without anything", {"kind": kind})
    head = {"kind": "blocks", "import": "0" * 32, "first_block": 0, "blocks": 1}
    yield told("blocks of an unknown import", head, b"x", (400, 404))
    yield told("a drop of an unknown import", {"kind": "drop", "import": "x"}, b"", (200,))


# --- descriptions of sequences


def begins():
    yield Case("another model", (400,), lambda m: m.begin(model="another"))
    yield Case("other weights", (400,), lambda m: m.begin(fingerprint="another"))
    yield Case("another KV dtype", (400,), lambda m: m.begin(kv_dtype="int3"))
    yield Case("another block size", (400,), lambda m: m.begin(block_size=m.format["block_size"] + 1))
    yield Case("blocks of other bytes", (400,), lambda m: m.begin(block_bytes=m.format["block_bytes"] * 2))
    for step in (-1, 1, 1 << 29):
        yield Case(f"a version {step:+}", (400,), lambda m, s=step: m.begin(version=m.format["version"] + s))
    for value in HUGE:
        # Expected blocks take no memory.
        few = (200,) if value == 1 << 24 else (400,)
        yield Case(f"{value!r:.20} blocks to come", few, lambda m, v=value: m.begin(blocks=v))
        yield Case(f"a version of {value!r:.20}", (400,), lambda m, v=value: m.begin(version=v))
    for name in ("model", "fingerprint", "kv_dtype"):
        yield Case(f"a {name} that is a number", (400,), lambda m, n=name: m.begin(**{n: 7}))
        yield Case(f"a {name} of 1 MB", (400,), lambda m, n=name: m.begin(**{n: "x" * (1 << 20)}))


def blocks():
    yield Case("no bytes for a block", (400,), lambda m: m.begun().blocks(data=b""))
    yield Case("a byte too few", (400,), lambda m: m.begun().blocks(data=bytes(m.format["block_bytes"] - 1)))
    yield Case("a byte too many", (400,), lambda m: m.begun().blocks(data=bytes(m.format["block_bytes"] + 1)))
    yield Case("two blocks that are said to be one", (400,), lambda m: m.begun().blocks(blocks=1, count=2))
    for value in HUGE:
        # 16 million blocks exceed the KV memory, and are refused earlier, by their bytes.
        yield Case(f"{value!r:.20} blocks at once", (400,), lambda m, v=value: m.begun().blocks(blocks=v))
        yield Case(f"a first block of {value!r:.20}", (400,), lambda m, v=value: m.begun().blocks(first_block=v))
        yield Case(
            f"{value!r:.20} blocks that are thought to come, and one", (200, 400, 503), lambda m, v=value: claims(m, v)
        )
    yield Case("the second block alone", (400,), lambda m: m.begun().blocks(first=1))
    yield Case("an import that is a number", (400,), lambda m: m.begun().blocks(**{"import": 7}))
    yield Case("blocks after their drop", (404,), dropped)
    yield Case("noise for KV", (200,), noise)
    yield Case("the same block twice", (200,), lambda m: (m.begun().blocks(), m.blocks())[1])


def claims(move, count):
    answer = move.begin(blocks=count)
    return move.blocks() if answer.status == 200 else answer


def dropped(move):
    move.begun().blocks()
    move.drop()
    return move.blocks(first=1)


def noise(move):
    """KV of random bytes gives a sequence of odd tokens, or one that ends with an error; nothing else."""
    return move.begun().blocks(data=random.Random(7).randbytes(move.format["block_bytes"]))


def computed(count):
    def act(move):
        move.begun().blocks()
        return move.finish(changed("computed_tokens", to=count))

    return act


def finishes():
    def finish(name, change=None, statuses=(400,), **changes):
        return Case(name, statuses, lambda m: m.begun().finish(change, **changes))

    for name in ("request", "output", "logprobs", "computed_tokens", "age_ns", "cached_tokens"):
        yield finish(f"a sequence without {name}", removed(name))
    for name in ("prompt", "sampling", "max_tokens", "stop", "stop_token_ids", "id", "client", "ttft_ns"):
        yield finish(f"a request without {name}", removed("request", name))
    for value in HUGE:
        yield Case(f"{value!r:.20} computed tokens", (400,), computed(value))
        yield finish(f"{value!r:.20} late gaps", changed("late_gaps", to=value), (400, 200))
        yield finish(f"at most {value!r:.20} tokens", changed("request", "max_tokens", to=value), (400, 200))
        yield finish(f"a priority of {value!r:.20}", changed("request", "priority", to=value), (400, 200))
        yield finish(f"an age of {value!r:.20}", changed("age_ns", to=value), (400, 200))
        yield finish(f"a last gap of {value!r:.20}", changed("longest_gap_ns", to=value), (400, 200))
        yield finish(f"the output [{value!r:.20}]", changed("output", to=[value]))
        yield finish(f"the prompt [{value!r:.20}]", changed("request", "prompt", to=[value]))
        yield finish(f"created at {value!r:.20}", created=value, statuses=(400, 200))
        yield finish(f"a bias for {value!r:.20}", changed("request", "sampling", "logit_bias", to=[[value, 1]]))
        yield finish(
            f"a temperature of {value!r:.20}", changed("request", "sampling", "temperature", to=value), (400, 200)
        )
        yield finish(f"{value!r:.20} logprobs", changed("request", "sampling", "logprobs", to=value), (400, 200))
        # A sent token and the likeliest ones.
        yield finish(f"a logprob of token {value!r:.20}", told_before([[[value, -1.0]]]))
        yield finish(f"logprobs {value!r:.20}", changed("logprobs", to=value), (400, 200) if value == [] else (400,))
    yield Case("more computed tokens than came", (400,), computed(40))
    yield Case("computed tokens without a block", (400,), lambda m: m.begun().finish(changed("computed_tokens", to=9)))
    yield finish("more tokens than it may have", changed("output", to=[5] * 4))
    yield finish("another prompt than its body's", changed("request", "prompt", to=[5, 6]))
    yield finish("an empty prompt", changed("request", "prompt", to=[]))
    yield finish("a prompt of 30,000 tokens", changed("request", "prompt", to=[5] * 30000))
    yield finish("an output of 30,000 tokens", changed("output", to=[5] * 30000))
    yield finish("a sequence that is a list", sequence=[])
    yield finish("a request that is a text", changed("request", to="x"))
    yield finish("an unknown API", api="gopher")
    yield finish("an id that no header carries", request_id="a\r\nb")
    yield finish("an id of 100,000 bytes", request_id="x" * 100000)
    yield finish("a missing body", body=b"")
    yield finish("a body that is not JSON", body=b"{")
    yield finish("a body of noise", body=random.Random(5).randbytes(2000))
    yield finish("a body of another API", api="messages")
    yield finish("a body that asks for two choices", body=json.dumps({"prompt": "x", "n": 2}).encode())
    yield finish(
        "a body with another model", body=json.dumps({"prompt": [5], "model": "other"}).encode(), statuses=(400, 404)
    )
    yield Case("a finish after a finish", (404,), lambda m: (m.begun().finish(), m.finish())[1])
    yield Case("blocks after the finish", (404,), lambda m: (m.begun().finish(), m.blocks())[1])


def told_before(logprobs):
    def change(sequence):
        sequence["output"] = [5]
        sequence["logprobs"] = logprobs
        sequence["request"]["sampling"]["logprobs"] = 1

    return change


# --- tickets


def tickets():
    def ticket(move):
        return move.begun().finish().json()["ticket"]

    def twice(move):
        number = ticket(move)
        move.answer(number)
        return move.answer(number)

    def after_drop(move):
        number = ticket(move)
        move.drop()
        return move.answer(number)

    def late(move):
        number = ticket(move)
        time.sleep(4)
        return move.answer(number)

    yield Case("a sound sequence and its ticket", (200,), lambda m: m.answer(ticket(m)))
    yield Case("a ticket twice", (404,), twice)
    yield Case("a ticket after the drop", (404,), after_drop)
    yield Case("a ticket after its time", (404,), late)
    yield Case("an unknown ticket", (404,), lambda m: m.answer("0" * 32))
    yield Case("a ticket of 5,000 bytes", (404,), lambda m: m.answer("a" * 5000))
    yield Case("a ticket with a signature for another", (401,), wrong_ticket)
    yield Case("a ticket without a signature", (401,), lambda m: m.member.ask(b"{}", "/fleet/streams/0", header=""))
    yield Case("a sender that leaves with its ticket unused", (200,), lambda m: m.begun().finish())


def wrong_ticket(move):
    header = move.member.sign(b"{}", "/fleet/streams/1")
    return move.member.ask(b"{}", "/fleet/streams/2", header=header)


GROUPS = (strangers, lengths, messages, begins, blocks, finishes, tickets)


def cases():
    return [case for group in GROUPS for case in group()]


def said(answer):
    """The text of a refusal; empty: it has none."""
    try:
        return answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""


def hostile_senders(tally):
    """Runs each case with a new import, then a client's request; at the end checks the memory in use."""
    table = cases()
    if tally.quick:  # the same ones in each run
        table = table[::5]
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder) / "secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        arguments = ["--kv-secret-file", secret, "--migration-timeout", "3s", "--ticket-timeout", "3s"]
        with Server(*arguments, "--read-timeout", "1s", "--swap-space", "16MiB") as server:
            member = Member(server.port, SECRET)
            format = format_of(member)
            sound = Move(member, format)
            ticket = sound.begun().finish().json()["ticket"]
            whole = sound.answer(ticket)
            tally.check("a sound sequence is taken and answered", whole.status == 200, repr(whole))
            server.forget_peak()
            before = server.memory_mib()
            for case in table:
                try:
                    answer = case.act(Move(member, format))
                except (OSError, Lost) as lost:
                    answer = lost
                status = getattr(answer, "status", None)
                right = status in case.statuses if case.statuses else answer is None
                tally.check(f"an import with {case.name}", right, f"{answer!r}, not {case.statuses}")
                if status is not None and status >= 400:
                    tally.check(f"the error names the fault of {case.name}", said(answer) != "", repr(answer))
                if not tally.check(f"serve lives after {case.name}", lives(server), "".join(server.lines[-20:])):
                    return
            claimed(tally, server, member, format)
            tally.check("no memory is in use afterwards", settled(server), held(server))
            again = Move(member, format)
            ticket = again.begun().finish().json()["ticket"]
            tally.check("a sound sequence goes on as before", texts(again.answer(ticket)) == texts(whole))
            grown = server.memory_mib("VmHWM") - before
            tally.worst("MiB grown at worst", grown)
            tally.check("memory among hostile senders", grown <= MOST_GROWN_MIB, f"grew by {grown:.0f} MiB")
            tally.check("a server among hostile senders ends in order", server.stop() == 0, "".join(server.lines[-20:]))
        if not tally.quick:
            crowd(tally, secret, format)


def claimed(tally, server, member, format):
    """Imports that each claim all available memory, and send one block."""
    filled = [Move(member, format).begun(blocks=1 << 24).blocks().status for _ in range(12)]
    tally.check("imports that claim all memory", set(filled) <= {200, 503} and 200 in filled, repr(filled))
    tally.check("serve lives beside them", lives(server), "".join(server.lines[-20:]))


def crowd(tally, secret, format):
    """More imports than places: the last are refused, and the places become free again."""
    most, more = 1024, 20
    with Server("--kv-secret-file", secret, "--migration-timeout", "10m") as server:
        member = Member(server.port, SECRET)
        begun = [Move(member, format) for _ in range(most + more)]
        answers = [move.begin() for move in begun]
        statuses = [answer.status for answer in answers]
        tally.check(f"{most} imports at once", statuses == [200] * most + [503] * more, f"{statuses.count(200)} began")
        tally.check(
            "the error for one import too many names the limit",
            f"{most} sequences" in said(answers[-1]),
            said(answers[-1]),
        )
        for move in begun[:most]:
            move.drop()
        tally.check("imports after these are dropped", Move(member, format).begin().status == 200, held(server))


def lives(server):
    if not server.alive():
        return False
    try:
        body = {"prompt": "x", "max_tokens": 1}
        return ask(server.port, "POST", "/v1/completions", body, source="127.0.0.5").status == 200
    except (OSError, Lost):
        return False


HELD = {
    "tactus_swap_blocks_used": 0,
    "tactus_fleet_imports": 0,
    "vllm:num_requests_running": 0,
    "vllm:num_requests_waiting": 0,
    "vllm:kv_cache_usage_perc": 0,
    "tactus_fleet_kept_body_bytes": 0,
    "tactus_http_body_bytes": 0,
    "tactus_http_exchanges": 1,  # the exchange of this request
    "tactus_http_connections": 1,
}


def held(server):
    text = server.get("/metrics")
    return ", ".join(f"{name} {server.metric(name, text):g}" for name in HELD)


def settled(server):
    def all_free():
        text = server.get("/metrics")
        return all(server.metric(name, text) == value for name, value in HELD.items())

    return until(all_free, 30)


def texts(answer):
    return answer.status, [choice["text"] for choice in answer.json()["choices"]]
