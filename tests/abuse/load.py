"""An overload by clients of which many disconnect: in the body, in the stream, by half-closing, without reading, at
once.

Every other client gets its whole answer, or a whole 429 or 503; none is lost or stuck. Afterwards memory, KV blocks and
sequences are at their earlier values, and SIGTERM ends the server after the running streams.
"""

import asyncio
import collections
import json
import random
import socket
import struct

from program import Server
from wire import request

REQUEST_LIMIT_S = 120
CLIENTS = 160
SERVER = (
    "--max-num-seqs",
    "16",
    "--max-queue",
    "48",
    "--max-streams-per-client",
    "64",
    "--max-model-len",
    "512",
    "--write-timeout",
    "5s",
)
KV = "256KiB"  # 1,024 tokens: less than 16 of these requests need, so sequences are preempted


class Stuck(Exception):
    pass


class Lost(Exception):
    pass


async def read_head(reader):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError) as lost:
        raise Lost(f"no answer: {lost!r}") from None
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split(" ")[1]), headers


async def read_body(reader, headers):
    try:
        if headers.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(headers["content-length"]))
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return body
    except (asyncio.IncompleteReadError, ConnectionError, ValueError) as lost:
        raise Lost(f"half an answer: {lost!r}") from None


def body_of(draw, stream):
    tokens = draw.choice((1, 2, 4, 8, 16, 32))
    body = {
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": draw.choice((0, 1)),
        "stream": stream,
        "n": draw.choice((1, 1, 1, 1, 2, 4)),
        "seed": draw.randrange(100),
    }
    if draw.random() < 0.3:
        return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": "x" * draw.randrange(1, 80)}]}
    return "/v1/completions", body | {"prompt": [draw.randrange(3, 512) for _ in range(draw.randrange(1, 120))]}


def whole(body, sent, stream):
    """Empty, or the missing part of a 200's body."""
    if stream:
        return "" if body.endswith(b"data: [DONE]\n\n") else f"a stream without an end: {body[-200:]!r}"
    answer = json.loads(body)
    wanted = sent["n"] * sent["max_tokens"]
    return "" if answer["usage"]["completion_tokens"] == wanted else f"{answer['usage']} instead of {wanted} tokens"


async def stay(reader, writer, data, draw, sent, stream):
    writer.write(data)
    await writer.drain()
    status, headers = await read_head(reader)
    body = await read_body(reader, headers)
    if status == 200:
        if wrong := whole(body, sent, stream):
            raise Lost(wrong)
        return "answered"
    if status not in (429, 503) or "retry-after" not in headers or not json.loads(body)["error"]["message"]:
        raise Lost(f"status {status}: {body[:300]!r}")
    return f"refused {status}"


async def leave_in_the_body(reader, writer, data, draw, sent, stream):
    writer.write(data[: draw.randrange(1, len(data))])
    await writer.drain()
    await asyncio.sleep(draw.random() * 0.01)
    return "left in the body"


async def leave_in_the_stream(reader, writer, data, draw, sent, stream):
    writer.write(data)
    for _ in range(draw.randrange(1, 4)):
        try:
            if not await asyncio.wait_for(reader.read(draw.randrange(1, 600)), 0.5):
                break
        except TimeoutError:  # the answer is complete, and the connection stays open
            break
    return "left in the stream"


async def half_close(reader, writer, data, draw, sent, stream):
    writer.write(data)
    writer.write_eof()
    while await reader.read(65536):  # ends, answered or cancelled
        pass
    return "half-closed"


async def never_read(reader, writer, data, draw, sent, stream):
    writer.write(data)
    await asyncio.sleep(draw.random() * 0.2)
    return "never read"


async def leave_at_once(reader, writer, data, draw, sent, stream):
    writer.write(data)
    return "left at once"


BEHAVIOURS = [
    (stay, 60),
    (leave_in_the_body, 8),
    (leave_in_the_stream, 12),
    (half_close, 6),
    (never_read, 6),
    (leave_at_once, 8),
]


async def one_request(port, number, seed):
    draw = random.Random(seed * 10**7 + number)
    behave = draw.choices([b for b, _ in BEHAVIOURS], [weight for _, weight in BEHAVIOURS])[0]
    stream = behave in (leave_in_the_stream, never_read) or draw.random() < 0.35
    target, body = body_of(draw, stream)
    source = "127.0.2.1" if draw.random() < 0.5 else f"127.0.2.{draw.randrange(2, 10)}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), limit=1 << 20)
    try:
        return await behave(reader, writer, request("POST", target, body), draw, body, stream)
    except ConnectionError as error:
        if behave is stay:
            raise Lost(repr(error)) from None
        return "left"
    finally:
        if draw.random() < 0.3:  # with a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()


async def overload(port, numbers, seed, outcomes, problems):
    numbers = iter(numbers)

    async def client():
        for number in numbers:
            try:
                outcome = await asyncio.wait_for(one_request(port, number, seed), REQUEST_LIMIT_S)
            except TimeoutError:
                outcome = "stuck"
                problems.append((number, f"no end within {REQUEST_LIMIT_S} s"))
            except Lost as lost:
                outcome = "lost"
                problems.append((number, str(lost)))
            except OSError as error:
                outcome = "lost"
                problems.append((number, f"could not connect: {error}"))
            outcomes[outcome] += 1
            if outcome.startswith("refused"):
                await asyncio.sleep(0.02)  # like a client that obeys Retry-After, on a shorter scale
            if len(problems) > 100:
                return

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def run(tally, seed):
    total = 1_500 if tally.quick else 20_000
    warm = total // 10
    outcomes, problems = collections.Counter(), []
    with Server(*SERVER, kv_memory=KV) as server:
        asyncio.run(overload(server.port, range(warm), seed, outcomes, problems))
        tally.check("idle after the first tenth", server.idle(60), "requests, KV blocks or exchanges are left")
        before = server.memory_mib()
        asyncio.run(overload(server.port, range(warm, total), seed, outcomes, problems))
        for number, what in problems:
            tally.check(f"request {number}", False, what, f"request {number} of seed {seed}")
        tally.passed += sum(outcomes.values()) - len(problems)
        if not tally.check(
            "the server lives", server.alive(), f"exit status {server.process.poll()}: {''.join(server.lines[-5:])}"
        ):
            return
        tally.check(
            "idle at the end: every sequence and KV block is free",
            server.idle(60),
            "requests, KV blocks or exchanges are left:\n"
            + "\n".join(
                line
                for line in server.get("/metrics").splitlines()
                if "num_requests" in line or "usage_perc" in line or "exchanges" in line
            ),
        )
        grown = server.memory_mib() - before
        tally.check(
            "memory at the end",
            grown <= 48,
            f"{grown:.0f} MiB more than after a tenth of the requests; the bound is 48 MiB",
        )
        stayed = sum(outcomes[o] for o in ("answered", "refused 429", "refused 503"))
        tally.check("a share of the remaining clients is answered", outcomes["answered"] * 10 >= stayed, f"{outcomes}")
        tally.check(
            "the load exceeded the limits", outcomes["refused 503"] + outcomes["refused 429"] > 0, f"{outcomes}"
        )
        tally.check("no step failed", 'finished_reason="error"} 0' in server.get("/metrics"))
        tally.figure("requests", sum(outcomes.values()))
        for name in ("answered", "refused 429", "refused 503", "lost", "stuck"):
            tally.figure(name, outcomes[name])
        tally.figure("MiB grown", grown)
        tally.figure("preemptions", int(server.metric("vllm:num_preemptions_total")))
        wrong = asyncio.run(stop_under_load(server))
        tally.check("SIGTERM lets streams finish and ends with 0", not wrong, wrong)


async def stop_under_load(server):
    """Empty, or how a stop damaged the running streams."""

    async def stream(i):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            request(
                "POST", "/v1/completions", {"prompt": "x" * i, "max_tokens": 400, "ignore_eos": True, "stream": True}
            )
        )
        status, headers = await read_head(reader)
        started.release()
        body = await read_body(reader, headers)
        writer.close()
        return status, body

    started = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(stream(i)) for i in range(1, 13)]
    try:
        for _ in tasks:
            await asyncio.wait_for(started.acquire(), REQUEST_LIMIT_S)
        status = await asyncio.to_thread(server.stop)
        answers = await asyncio.wait_for(asyncio.gather(*tasks), REQUEST_LIMIT_S)
    except (Lost, TimeoutError, OSError) as lost:
        return f"{type(lost).__name__} {lost}"
    if status != 0:
        return f"exit status {status}"
    cut = [answer for answer in answers if answer[0] != 200 or not answer[1].endswith(b"data: [DONE]\n\n")]
    return f"{len(cut)} of {len(answers)} streams were cut off: {cut[0]}" if cut else ""
