"""A fleet member that writes its own messages: signatures of requests (src/base/fleet_secret.h), and the messages of a
sequence that moves to a replica (src/serve/moves/migration_text.h)."""

import concurrent.futures
import copy
import hashlib
import hmac
import json
import os
import socket
import struct
import time

from wire import Wire, ask, request

MASK = (1 << 64) - 1
IMPORT = "/fleet/import"
BODY_TYPE = "application/octet-stream"


def siphash128(key, data):
    """SipHash-2-4-128, as 32 hexadecimal digits, the high half first."""
    k0, k1 = struct.unpack("<QQ", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count):
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0 = (v0 + v1) & MASK
            v1 = ((v1 << 13 | v1 >> 51) & MASK) ^ v0
            v0 = (v0 << 32 | v0 >> 32) & MASK
            v2 = (v2 + v3) & MASK
            v3 = ((v3 << 16 | v3 >> 48) & MASK) ^ v2
            v0 = (v0 + v3) & MASK
            v3 = ((v3 << 21 | v3 >> 43) & MASK) ^ v0
            v2 = (v2 + v1) & MASK
            v1 = ((v1 << 17 | v1 >> 47) & MASK) ^ v2
            v2 = (v2 << 32 | v2 >> 32) & MASK

    whole = len(data) // 8 * 8
    words = [w for (w,) in struct.iter_unpack("<Q", data[:whole])]
    words.append((len(data) & 0xFF) << 56 | int.from_bytes(data[whole:], "little"))
    for word in words:
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xEE
    rounds(4)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    rounds(4)
    return f"{v0 ^ v1 ^ v2 ^ v3:016x}{low:016x}"


# The authors' published vector for one byte.
assert siphash128(bytes(range(16)), b"\0") == "45fc229b1159763444af996bd8c187da"


class Member:
    def __init__(self, port, secret):
        self.port = port
        self.requests, self.bodies = (
            hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest()[:16]
            for purpose in ("tactus fleet requests", "tactus fleet bodies")
        )

    def sign(self, body, path=IMPORT, seconds=None, nonce=None, signed=None):
        """The header's value; `signed`: the body to sign instead of `body`."""
        seconds = str(int(time.time()) if seconds is None else seconds)
        nonce = nonce or os.urandom(16).hex()
        digest = siphash128(self.bodies, body if signed is None else signed)
        parts = ["request", "POST", path, seconds, nonce, digest]
        mac = siphash128(self.requests, "".join(f"{len(p)}:{p}" for p in parts).encode())
        return f"v1 {seconds} {nonce} {digest} {mac}"

    def text(self, body, path=IMPORT, header=None, **how):
        """The bytes of a signed request."""
        header = self.sign(body, path, **how) if header is None else header
        headers = [("x-tactus-fleet", header)] if header else []
        return request("POST", path, body, content_type=BODY_TYPE, headers=headers)

    def ask(self, body, path=IMPORT, limit_s=30.0, **how):
        with Wire(self.port, limit_s) as wire:
            wire.send(self.text(body, path, **how))
            return wire.read()

    def tell(self, head, data=b"", **how):
        """One message of an import: a line of JSON, and bytes."""
        line = head if isinstance(head, bytes) else json.dumps(head).encode() + b"\n"
        return self.ask(line + data, **how)


def format_of(member):
    """The `begin` message of the replica: its formats, captured by making it move a sequence here."""
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    routed = [("x-tactus-route", "1")]
    with socket.create_server(("127.0.0.1", 0)) as listener, concurrent.futures.ThreadPoolExecutor(2) as pool:
        listener.settimeout(0.5)
        order = json.dumps({"count": 1, "to": f"http://127.0.0.1:{listener.getsockname()[1]}"}).encode()
        for _ in range(60):  # until the request runs
            running = pool.submit(ask, member.port, "POST", "/v1/completions", body, headers=routed)
            told = pool.submit(member.ask, order, "/fleet/migrate")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                connection = None
            else:
                with connection:
                    text = connection.recv(1 << 16)
                    while b"\n" not in text.partition(b"\r\n\r\n")[2]:
                        text += connection.recv(1 << 16)
            running.result()
            told.result()
            if connection is not None:
                return json.loads(text.partition(b"\r\n\r\n")[2].split(b"\n")[0])
    raise AssertionError("the replica never tried to move a sequence")


def sequence_of(prompt, max_tokens, output=(), computed=0):
    """A sequence with greedy sampling, as a source describes it."""
    sampling = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0}
    sampling |= {"frequency_penalty": 0, "seed": 1, "logprobs": -1, "logit_bias": []}
    asked = {"id": "moved", "prompt": list(prompt), "sampling": sampling, "max_tokens": max_tokens, "min_tokens": 0}
    asked |= {"ignore_eos": True, "stop_token_ids": [], "stop": [], "priority": 0, "planned_position": -1}
    asked |= {"planned_kv_tokens": 0, "ttft_ns": 0, "tbt_ns": 0, "jct_ns": 0, "slo_class": "", "adapter": ""}
    asked |= {"cache_salt": "", "owner": "", "client": "moved"}
    ages = ("age_ns", "scheduled_age_ns", "first_token_age_ns", "last_token_age_ns")
    counts = ("longest_gap_ns", "longest_gap_end_age_ns", "late_gaps", "cached_tokens", "preemptions")
    return {
        "request": asked,
        "output": list(output),
        "logprobs": [],
        "computed_tokens": computed,
        "recomputed_tokens": 0,
        **dict.fromkeys(ages, 1000),
        **dict.fromkeys(counts, 0),
    }


class Move:
    """A moving sequence: its messages are valid, except for the changes of a case."""

    PROMPT = tuple(range(5, 45))

    def __init__(self, member, format, max_tokens=4):
        self.member, self.format = member, format
        self.body = {"prompt": list(self.PROMPT), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        self.sequence = sequence_of(self.PROMPT, max_tokens)
        self.id = None

    def begin(self, **changes):
        answer = self.member.tell(self.format | changes)
        if answer.status == 200:
            self.id = answer.json()["import"]
        return answer

    def begun(self, **changes):
        self.begin(**changes)
        return self

    def blocks(self, first=0, count=1, data=None, **changes):
        if data is None:
            data = bytes(count * self.format["block_bytes"])
        head = {"kind": "blocks", "import": self.id, "first_block": first, "blocks": count}
        return self.member.tell(head | changes, data)

    def finish(self, change=None, body=None, **changes):
        """`change`: a function that may modify the sequence."""
        sequence = copy.deepcopy(self.sequence)
        if change:
            change(sequence)
        head = {"kind": "finish", "import": self.id, "sequence": sequence, "request_id": "moved", "created": 1}
        head |= {"client": "moved", "owner": "", "api": "completions", "explained": False}
        return self.member.tell(head | changes, json.dumps(self.body).encode() if body is None else body)

    def drop(self):
        return self.member.tell({"kind": "drop", "import": self.id})

    def answer(self, ticket):
        return self.member.ask(b"{}", f"/fleet/streams/{ticket}")
