"""Lying replicas, peers and endpoints: a table of kinds of answers, and a server on a free loopback port that sends one
of them.

A kind states what a client of a proxy may get: ERROR (it must get an error), WHOLE (the answer is valid, though
unusual), or EITHER. Endless kinds continue until the other side closes.
"""

import dataclasses
import gzip
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable

ERROR, WHOLE, EITHER = "error", "whole", "either"
DRIP_S = 0.05
LONGEST_S = 60  # limit for an endless answer


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    answer: bytes | Callable[[socket.socket], None]
    client: str = ERROR
    streams: bool = False  # the request has "stream": true
    endless: bool = False
    choices: int = 1
    path: str = "/v1/completions"


# --- parts of answers


def head(status="200 OK", *headers, version="HTTP/1.1"):
    return (f"{version} {status}\r\n" + "".join(h + "\r\n" for h in headers) + "\r\n").encode("latin-1")


def sized(body, *headers, status="200 OK"):
    return head(status, "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body


def chunk(data, extension=b""):
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def chunked(*pieces, kind="application/json", last=b"0\r\n\r\n", headers=()):
    lines = (f"Content-Type: {kind}", "Transfer-Encoding: chunked", *headers)
    return head("200 OK", *lines) + b"".join(chunk(p) for p in pieces if p) + last


def events(*data, last=b"0\r\n\r\n", headers=()):
    return chunked(*(b"data: " + d + b"\n\n" for d in data), kind="text/event-stream", last=last, headers=headers)


# An event as pydantic writes a class whose last field is the type.
LAST_TYPE = b'{"response": {"type": "x"}, "sequence_number": 2, "type": "%s"}'
LONG_END = b'{"response": {"text": "' + b"x" * (1 << 20) + b'"}, "type": "response.completed"}'


def named(*types):
    pieces = (b"event: %s\ndata: %s\n\n" % (t.encode(), LAST_TYPE % t.encode()) for t in types)
    return chunked(*pieces, kind="text/event-stream")


def token(text="a", finish=None, index=0, id="cmpl-1"):
    choice = {"index": index, "text": text, "finish_reason": finish}
    return json.dumps({"id": id, "object": "text_completion", "choices": [choice]}).encode()


BODY = json.dumps({"id": "cmpl-1", "choices": [{"index": 0, "text": "whole", "finish_reason": "stop"}]}).encode()
DONE = b"[DONE]"
OK = sized(BODY)


def then(first, more, pause_s=0.0, reset=False, limit_s=LONGEST_S):
    """Sends `first`, then `more` repeatedly until the other side closes."""

    def send(connection):
        connection.sendall(first)
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if pause_s:
                time.sleep(pause_s)
            if more:
                connection.sendall(more)
            elif not wait_for_close(connection):
                return

    return send


def wait_for_close(connection):
    """False: the other side has closed."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1 << 16) != b""
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LONGEST_S)


def drip(data, pause_s=DRIP_S):
    def send(connection):
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(pause_s)

    return send


def and_reset(data):
    def send(connection):
        connection.sendall(data)
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return send


def twice(first, second, pause_s=0.05):
    def send(connection):
        connection.sendall(first)
        time.sleep(pause_s)
        connection.sendall(second)

    return send


NOISE = random.Random(1).randbytes(4000)
LONGEST_FIELD = 65_533  # the limit of Beast's fields


def with_field(name, value):
    return head("200 OK", "Content-Length: 2", f"{name}: {value}") + b"{}"


def with_status(text):
    return f"HTTP/1.1 {text}\r\nContent-Length: 2\r\n\r\n{{}}".encode()


KINDS = [
    # Premature ends.
    Kind("closes at once", b""),
    Kind("never answers", then(b"", b""), endless=True),
    Kind("resets at once", and_reset(b"")),
    Kind("half a status line", b"HTTP/1.1 20"),
    Kind("half a head", b"HTTP/1.1 200 OK\r\nContent-Le"),
    Kind("a head without its end", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"),
    Kind("a head and no body", head("200 OK", "Content-Length: 100")),
    Kind("half a body", head("200 OK", "Content-Length: 100") + b"half"),
    Kind("a reset in the body", and_reset(head("200 OK", "Content-Length: 100") + b"half")),
    Kind("chunks without the last one", chunked(BODY, last=b"")),
    Kind("a chunk that is cut", chunked(last=b"40\r\nhalf")),
    Kind("no length, cut JSON", head("200 OK", "Content-Type: application/json") + BODY[:-9]),
    Kind("no length, JSON cut in a string", head("200 OK", "Content-Type: application/json") + b'{"a": "}'),
    Kind("no length, no body", head("200 OK", "Content-Type: application/json")),
    Kind("no length, text", head("200 OK", "Content-Type: text/plain") + b"all of it?"),
    Kind("no length, JSON and more", head("200 OK", "Content-Type: application/json") + BODY + b"}"),
    Kind("no length, two MiB cut", head() + b'{"a": "' + b"x" * (2 << 20)),
    Kind("no length, whole JSON", head("200 OK", "Content-Type: application/json") + BODY, WHOLE),
    Kind("HTTP/1.0, whole JSON", head("200 OK", version="HTTP/1.0") + BODY, WHOLE),
    Kind("HTTP/1.0, cut JSON", head("200 OK", version="HTTP/1.0") + BODY[:-1]),
    # Invalid heads.
    Kind("noise", NOISE),
    Kind("text without a head", b"hello\n"),
    Kind("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    Kind("a TLS alert", b"\x15\x03\x01\x00\x02\x02\x28"),
    Kind("HTTP/2.0 in words", head("200 OK", "Content-Length: 2", version="HTTP/2.0") + b"{}"),
    Kind("HTTP/0.9 in words", head("200 OK", "Content-Length: 2", version="HTTP/0.9") + b"{}"),
    Kind("status 000", with_status("000 No")),
    Kind("status 099", with_status("099 No")),
    Kind("status 999", with_status("999 No")),
    Kind("status 600", with_status("600 No")),
    Kind("status 20x", with_status("20x OK")),
    Kind("status -200", with_status("-200 OK")),
    Kind("status 2000", with_status("2000 OK")),
    Kind("no status", b"HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
    Kind("a reason of 70,000 bytes", with_status("200 " + "O" * 70_000)),
    Kind("a reason of 60,000 bytes", with_status("200 " + "O" * 60_000), EITHER),
    Kind("a NUL in a header", with_field("X", "a\0b")),
    Kind("a control character in a header", with_field("X", "a\x01b")),
    Kind("a header without a colon", head("200 OK", "Content-Length: 2", "X y") + b"{}"),
    Kind("a header without a name", head("200 OK", "Content-Length: 2", ": y") + b"{}"),
    Kind("a space before the colon", head("200 OK", "Content-Length : 2") + b"{}", EITHER),
    Kind("bare line feeds", b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}"),
    Kind("a bare carriage return", b"HTTP/1.1 200 OK\rContent-Length: 2\r\r{}"),
    Kind("headers of no UTF-8", with_field("X", "\xff\xfe"), EITHER),
    # Heads that are too long.
    Kind("a header of 65,000 bytes", with_field("X", "y" * 65_000), EITHER),
    Kind("a header that fills 64 KiB", with_field("X", "y" * (LONGEST_FIELD - 40)), EITHER),
    Kind("a header of 65,533 bytes", with_field("X", "y" * LONGEST_FIELD)),
    Kind("a header of 65,534 bytes", with_field("X", "y" * (LONGEST_FIELD + 1))),
    Kind("a header of 65,536 bytes", with_field("X", "y" * 65_536)),
    Kind("a header of 70,000 bytes", with_field("X", "y" * 70_000)),
    Kind("a header of a MiB less one", with_field("X", "y" * ((1 << 20) - 100))),
    Kind("a header of 4 MiB", with_field("X", "y" * (4 << 20))),
    Kind("a name of 65,534 bytes", with_field("X" * 65_534, "y")),
    Kind("a name of 70,000 bytes", with_field("X" * 70_000, "y")),
    Kind("a folded header of 70,000 bytes", with_field("X", "\r\n ".join(["y" * 1000] * 70))),
    Kind("a folded header", with_field("X", "a\r\n b"), EITHER),
    Kind("a Content-Type of 65,534 bytes", with_field("Content-Type", "y" * 65_534)),
    Kind("a Server of 65,534 bytes", with_field("Server", "y" * 65_534)),
    Kind("5,000 headers", head("200 OK", "Content-Length: 2", *["X: y"] * 5_000) + b"{}", EITHER),
    Kind("170,000 headers", head("200 OK", "Content-Length: 2", *["X: y"] * 170_000) + b"{}"),
    Kind("headers without end", then(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000), endless=True),
    Kind("a header without end", then(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 10_000), endless=True),
    Kind("a status line without end", then(b"HTTP/1.1 200 ", b"O" * 10_000), endless=True),
    Kind("a head in drips", drip(OK, 0.002), EITHER),
    # Wrong lengths.
    Kind("a Content-Length of -1", head("200 OK", "Content-Length: -1") + b"{}"),
    Kind("a Content-Length of 2^63", head("200 OK", f"Content-Length: {1 << 63}") + b"{}"),
    Kind("a Content-Length of 2^64", head("200 OK", f"Content-Length: {1 << 64}") + b"{}"),
    Kind("a Content-Length of 10^30", head("200 OK", f"Content-Length: {10**30}") + b"{}"),
    Kind("a Content-Length of 0x2", head("200 OK", "Content-Length: 0x2") + b"{}"),
    Kind("a Content-Length of +2", head("200 OK", "Content-Length: +2") + b"{}"),
    Kind("an empty Content-Length", head("200 OK", "Content-Length: ") + b"{}"),
    Kind("the same Content-Length twice", head("200 OK", "Content-Length: 2", "Content-Length: 2") + b"{}"),
    Kind("two Content-Lengths", head("200 OK", "Content-Length: 2", "Content-Length: 3") + b"{}}"),
    Kind("a list of Content-Lengths", head("200 OK", "Content-Length: 2, 2") + b"{}"),
    Kind("Content-Length and chunked", head("200 OK", "Content-Length: 2", "Transfer-Encoding: chunked") + b"{}"),
    Kind("chunked and Content-Length", head("200 OK", "Transfer-Encoding: chunked", "Content-Length: 2") + b"{}"),
    Kind("a Content-Length that is short", head("200 OK", "Content-Length: 2") + b"{}" + BODY, EITHER),
    Kind("two answers", OK + sized(b'{"second": true}'), EITHER),
    Kind("a second answer later", twice(OK, sized(b'{"second": true}')), EITHER),
    Kind("a 204 with a body", head("204 No Content", "Content-Length: 2") + b"{}", EITHER),
    Kind("a 304 with a body", head("304 Not Modified", "Content-Length: 2") + b"{}", EITHER),
    # Codings.
    Kind(
        "gzip, chunked", head("200 OK", "Transfer-Encoding: gzip, chunked") + chunk(gzip.compress(BODY)) + b"0\r\n\r\n"
    ),
    Kind("gzip alone", head("200 OK", "Transfer-Encoding: gzip") + gzip.compress(BODY)),
    Kind("chunked, gzip", head("200 OK", "Transfer-Encoding: chunked, gzip") + chunk(BODY) + b"0\r\n\r\n"),
    Kind("chunked twice", head("200 OK", "Transfer-Encoding: chunked, chunked") + chunk(BODY) + b"0\r\n\r\n"),
    Kind(
        "chunked in two headers",
        head("200 OK", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + chunk(BODY) + b"0\r\n\r\n",
    ),
    Kind("an unknown coding", head("200 OK", "Transfer-Encoding: xchunked") + chunk(BODY) + b"0\r\n\r\n"),
    Kind("identity as a coding", head("200 OK", "Transfer-Encoding: identity") + BODY),
    Kind(
        "chunked in HTTP/1.0",
        head("200 OK", "Transfer-Encoding: chunked", version="HTTP/1.0") + chunk(BODY) + b"0\r\n\r\n",
    ),
    Kind("compressed JSON", sized(gzip.compress(BODY), "Content-Encoding: gzip")),
    Kind("a compression that is none", sized(BODY, "Content-Encoding: br")),
    Kind(
        "compressed events",
        head("200 OK", "Content-Type: text/event-stream", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
        + chunk(gzip.compress(b"data: [DONE]\n\n"))
        + b"0\r\n\r\n",
        streams=True,
    ),
    # Wrong chunks.
    Kind("a chunk size of letters", chunked(last=b"zz\r\n{}\r\n0\r\n\r\n")),
    Kind("a chunk size of 2^64 - 1", chunked(last=b"ffffffffffffffff\r\n" + b"x" * 100)),
    Kind("a chunk size of 2^64", chunked(last=b"10000000000000000\r\n{}\r\n")),
    Kind("a negative chunk size", chunked(last=b"-2\r\n{}\r\n0\r\n\r\n")),
    Kind("a chunk size with 0x", chunked(last=b"0x2\r\n{}\r\n0\r\n\r\n")),
    Kind("a chunk size without digits", chunked(last=b"\r\n{}\r\n0\r\n\r\n")),
    Kind("a chunk without its end", chunked(last=b"2\r\n{}0\r\n\r\n")),
    Kind("a chunk that is longer", chunked(last=b"2\r\n{}{}\r\n0\r\n\r\n")),
    Kind("bare line feeds in chunks", chunked(last=b"2\n{}\n0\n\n")),
    Kind("chunks of one byte", chunked(*(BODY[i : i + 1] for i in range(len(BODY)))), WHOLE),
    Kind("an extension of 70,000 bytes", chunked(last=b"2;" + b"x" * 70_000 + b"\r\n{}\r\n0\r\n\r\n")),
    Kind("an extension of 4 MiB", chunked(last=b"2;" + b"x" * (4 << 20) + b"\r\n{}\r\n0\r\n\r\n")),
    Kind("an extension without end", then(chunked(last=b"2;"), b"x" * 10_000), endless=True),
    Kind(
        "extensions without end",
        then(chunked(last=b"1;a\r\n{\r\n"), b"1;" + b"x" * 1000 + b"\r\n \r\n"),
        endless=True,
    ),
    Kind("a chunk size without end", then(chunked(last=b""), b"0" * 10_000), endless=True),
    Kind("a trailer", chunked(BODY, last=b"0\r\nX: y\r\n\r\n"), EITHER),
    Kind("a trailer of 65,534 bytes", chunked(BODY, last=b"0\r\nX: " + b"y" * 65_534 + b"\r\n\r\n")),
    Kind("a trailer of 70,000 bytes", chunked(BODY, last=b"0\r\nX: " + b"y" * 70_000 + b"\r\n\r\n")),
    Kind("a trailer of 4 MiB", chunked(BODY, last=b"0\r\nX: " + b"y" * (4 << 20) + b"\r\n\r\n")),
    Kind("170,000 trailers", chunked(BODY, last=b"0\r\n" + b"X: y\r\n" * 170_000 + b"\r\n")),
    Kind("trailers without end", then(chunked(BODY, last=b"0\r\n"), b"X: y\r\n" * 1000), endless=True),
    Kind("a trailer that is no header", chunked(BODY, last=b"0\r\nX y\r\n\r\n")),
    Kind("a length as a trailer", chunked(BODY, last=b"0\r\nContent-Length: 1\r\n\r\n"), EITHER),
    # Interim answers and redirects.
    Kind("three interim answers", b"HTTP/1.1 102 Wait\r\n\r\n" * 3 + OK, WHOLE),
    Kind("a thousand interim answers", b"HTTP/1.1 102 Wait\r\n\r\n" * 1000 + OK),
    Kind("interim answers without end", then(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), endless=True),
    Kind("an interim answer and no more", b"HTTP/1.1 100 Continue\r\n\r\n"),
    Kind("an interim answer of 65,534 bytes", b"HTTP/1.1 103 Hints\r\nX: " + b"y" * 65_534 + b"\r\n\r\n" + OK),
    Kind("another protocol", head("101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")),
    Kind("an upgrade that is offered", sized(BODY, "Upgrade: h2c", "Connection: Upgrade"), EITHER),
    Kind("a redirect", head("301 Moved", "Location: http://127.0.0.1:1/", "Content-Length: 0")),
    Kind("a redirect of the method", head("307 Temporary", "Location: file:///etc/passwd", "Content-Length: 0")),
    Kind("a redirect with 2 MiB", sized(b"x" * (2 << 20), "Location: /", status="308 Permanent")),
    Kind("a redirect without end", then(head("302 Found", "Location: /"), b"x" * 10_000), endless=True),
    Kind("a 500", sized(b'{"error": {"message": "mine"}}', status="500 No")),
    Kind("a 503 with noise", head("503 No", f"Content-Length: {len(NOISE)}") + NOISE),
    Kind("a 599", sized(b"{}", status="599 No")),
    Kind("a 400 that is cut", head("400 Bad", "Content-Length: 100") + b"{"),
    # Bodies.
    Kind("no JSON", sized(b"{{{"), EITHER),
    Kind("an empty body", sized(b""), EITHER),
    Kind("a list", sized(b"[]"), EITHER),
    Kind("null", sized(b"null"), EITHER),
    Kind("JSON of no UTF-8", sized(b'{"choices": [{"text": "\xff\xfe\x80"}]}'), EITHER),
    Kind("lone surrogates", sized(rb'{"choices": [{"text": "\ud800"}]}'), EITHER),
    Kind("100,000 levels", sized(b"[" * 100_000), EITHER),
    Kind("keys twice", sized(b'{"a": 1, "a": 2}'), EITHER),
    Kind("1e400", sized(b'{"usage": {"completion_tokens": 1e400}}'), EITHER),
    Kind("a negative usage", sized(b'{"usage": {"completion_tokens": -5, "prompt_tokens": -1}}'), EITHER),
    Kind("a body of 8 MiB", sized(b'{"a": "' + b"x" * (8 << 20) + b'"}'), EITHER),
    Kind("a body without end", then(chunked(last=b""), chunk(b" " * 10_000)), endless=True),
    Kind("a body without length or end", then(head(), b"[" * 10_000), endless=True),
    Kind("a body in drips", drip(OK, 0.01), EITHER),
    Kind("moves to nowhere", sized(b"{}", "x-tactus-migrated: http://127.0.0.1:1 t1")),
    Kind("moves by another request", sized(b"{}", "x-tactus-migrated: http://127.0.0.1:1/ t\tHTTP/1.1")),
    # Event streams.
    Kind("events without an end", events(token(), token()), streams=True),
    Kind(
        "events by closing without an end",
        head("200 OK", "Content-Type: text/event-stream") + b"data: {}\n\n",
        streams=True,
    ),
    Kind(
        "events of a length without an end",
        head("200 OK", "Content-Type: text/event-stream", "Content-Length: 10") + b"data: {}\n\n",
        streams=True,
    ),
    Kind("responses, type last", named("response.created", "response.completed"), WHOLE, True, path="/v1/responses"),
    Kind("responses, cut", named("response.created", "response.in_progress"), streams=True, path="/v1/responses"),
    Kind("responses, no names", events(LAST_TYPE % b"response.completed"), WHOLE, True, path="/v1/responses"),
    Kind("responses, a long end", events(LONG_END), WHOLE, True, path="/v1/responses"),
    Kind("messages", named("message_start", "message_stop"), WHOLE, True, path="/v1/messages"),
    Kind("messages, cut", named("message_start", "message_delta"), streams=True, path="/v1/messages"),
    Kind("a stream of an unknown route", events(b"{}", b"{}"), WHOLE, True, path="/v1/something/else"),
    Kind("no events", events(), streams=True),
    Kind("comments alone", chunked(b": ping\n\n" * 10, kind="text/event-stream"), streams=True),
    Kind("events without data", chunked(b"event: x\nid: 1\n\n" * 10, kind="text/event-stream"), streams=True),
    Kind("events of empty data", events(b"", b""), streams=True),
    Kind("events that are cut", events(token(), last=b""), streams=True),
    Kind("an event that is cut", chunked(b'data: {"choi', kind="text/event-stream"), streams=True),
    Kind("events and a reset", and_reset(events(token(), last=b"")), streams=True),
    Kind("finished, not done", events(token(), token(finish="stop")), WHOLE, streams=True),
    Kind("one of two finished", events(token(), token(finish="stop")), streams=True, choices=2),
    Kind("both of two finished", events(token(finish="stop"), token(finish="length", index=1)), WHOLE, True, choices=2),
    Kind("finished in a text", events(token(text='"finish_reason": "stop"')), streams=True),
    Kind("finished by null", events(token(), token()), streams=True),
    Kind("finished twice", events(token(finish="stop"), token(finish="stop"), DONE), EITHER, True),
    Kind("done twice", events(token(), DONE, DONE), WHOLE, True),
    Kind("events behind the end", events(token(), DONE, token("never")), EITHER, True),
    Kind("ids that change", events(token(), token(id="cmpl-2"), token(id="", index=7), DONE), EITHER, True),
    Kind("done by closing", head("200 OK", "Content-Type: text/event-stream") + b"data: [DONE]\n\n", WHOLE, True),
    Kind("done without its blank line", chunked(b"data: {}\n\ndata: [DONE]", kind="text/event-stream"), EITHER, True),
    Kind("events of no JSON", events(b"{{", b"x", DONE), EITHER, True),
    Kind("events of no UTF-8", events(b"\xff\xfe", token(), DONE), EITHER, True),
    Kind("events with NULs", events(b"\0\0", token(), DONE), EITHER, True),
    Kind(
        "events of wrong types",
        events(b'{"choices": 5}', b'{"choices": [null, 1]}', b"[]", b"null", DONE),
        EITHER,
        True,
    ),
    Kind("usage of wrong numbers", events(token(), b'{"usage": {"completion_tokens": 1e400}}', DONE), EITHER, True),
    Kind(
        "usage of 2^64", events(token(), b'{"usage": {"completion_tokens": 18446744073709551615}}', DONE), EITHER, True
    ),
    Kind("negative usage", events(token(), b'{"usage": {"completion_tokens": -3}}', DONE), EITHER, True),
    Kind(
        "carriage returns as line ends",
        chunked(b"data: {}\r\rdata: [DONE]\r\r", kind="text/event-stream"),
        EITHER,
        True,
    ),
    Kind(
        "a mark of byte order",
        chunked(b"\xef\xbb\xbfdata: {}\n\ndata: [DONE]\n\n", kind="text/event-stream"),
        EITHER,
        True,
    ),
    Kind("an event of 4 MiB", events(b'"' + b"x" * (4 << 20) + b'"', DONE), EITHER, True),
    Kind("an event of 4 MiB and no end", events(b'"' + b"x" * (4 << 20) + b'"'), streams=True),
    Kind(
        "an event of many lines",
        chunked(b"data: x\n" * 100_000 + b"\ndata: [DONE]\n\n", kind="text/event-stream"),
        EITHER,
        True,
    ),
    Kind(
        "an event without end",
        then(chunked(last=b"", kind="text/event-stream"), chunk(b"data: " + b"x" * 10_000)),
        streams=True,
        endless=True,
    ),
    Kind(
        "events that go on", then(events(token(), last=b""), chunk(b"data: {}\n\n"), 0.01), streams=True, endless=True
    ),
    Kind("comments that go on", then(events(last=b""), chunk(b": ping\n\n"), 0.01), streams=True, endless=True),
    Kind("an error first", events(b'{"error": {"message": "mine"}}'), streams=True),
    Kind("an error that is a number", events(b'{"error": 5}'), streams=True),
    Kind("an error of 200,000 bytes", events(b'{"error": {"message": "' + b"m" * 200_000 + b'"}}'), streams=True),
    Kind("an error in the midst", events(token(), b'{"error": {"message": "mine"}}', DONE), streams=True),
    Kind(
        "moves in the midst",
        chunked(b'data: {}\n\n: migrated {"to": "http://127.0.0.1:1", "ticket": "t"}\n\n', kind="text/event-stream"),
        streams=True,
    ),
    Kind("moves by no JSON", chunked(b"data: {}\n\n: migrated {{\n\n", kind="text/event-stream"), streams=True),
]


# --- what a replica reports about itself

STATE = {
    "status": "ready",
    "version": "1",
    "model": "m",
    "running": 0,
    "waiting": 0,
    "waiting_tokens": 0,
    "free_kv_tokens": 1000,
    "kv_tokens": 1000,
    "step_tokens": 512,
}


def state(**changes):
    return json.dumps(STATE | changes).encode()


def raw_state(name, text):
    """One field as bytes that JSON may not allow."""
    return state(**{name: "@"}).replace(b'"@"', text)


METRICS = {"vllm:num_requests_running": "1", "vllm:num_requests_waiting": "0", "vllm:kv_cache_usage_perc": "0.5"}


def metrics(tail="", **changes):
    values = METRICS | {"vllm:" + name: value for name, value in changes.items()}
    return ("".join(f"{name} {value}\n" for name, value in values.items() if value is not None) + tail).encode()


# (name, body of /fleet/state). None of them is ready.
STATES = [
    ("no object", b"[1]"),
    ("cut", state()[:-3]),
    ("of 100,000 levels", b"[" * 100_000),
    ("with a key twice", state()[:-1] + b', "model": "x"}'),
    ("with a name of 5 MiB", state(model="m" * (5 << 20))),
    ("with a name of 300 bytes", state(model="m" * 300)),
    ("of no UTF-8", raw_state("model", b'"\xff\xfe"')),
    ("without a model", json.dumps({k: v for k, v in STATE.items() if k != "model"}).encode()),
    ("with a model that is a number", state(model=5)),
    ("with a status that is null", state(status=None)),
    ("with an unknown status", state(status="\x1b[2J\x07 ready")),
    *(
        (f"with {name} {text.decode()[:20]}", raw_state(name, text))
        for name in ("running", "waiting_tokens", "free_kv_tokens", "kv_tokens", "step_tokens")
        for text in (
            b"NaN",
            b"Infinity",
            b"1e400",
            b"-1",
            b"1.5",
            b'"1"',
            b"null",
            b"[]",
            b"9223372036854775808",
            b"1e30",
        )
    ),
    ("with more free than there is", state(free_kv_tokens=1001)),
]
# (name, body of /metrics). None of them is a vLLM server's.
METRIC_TEXTS = [
    ("empty", b""),
    ("noise", NOISE),
    *(
        (f"{name} {value}", metrics(**{name: value}))
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        for value in (None, "NaN", "+Inf", "-Inf", "1e400", "-1", "x", "", "{", '{a="}"')
    ),
    ("cut in a number", metrics()[:-3]),
]
# (name, body of /v1/models). None of them names a model.
MODEL_LISTS = [
    ("empty", b"{}"),
    ("no list", b'{"data": 5}'),
    ("no models", b'{"data": []}'),
    ("numbers", b'{"data": [1, 2]}'),
    ("an id that is a number", b'{"data": [{"id": 5}]}'),
    ("an empty id", b'{"data": [{"id": ""}]}'),
    ("an id of 1 MiB", b'{"data": [{"id": "' + b"m" * (1 << 20) + b'"}]}'),
    ("no UTF-8", b'{"data": [{"id": "\xff"}]}'),
    ("cut", b'{"data": [{"id": "m"}'),
]


class Hostile:
    """Answers a path in `answers` with its entry, other paths with `answer` (bytes, or a function of the connection),
    and closes."""

    def __init__(self, answer=b"", answers=None):
        self.answer, self.answers = answer, answers or {}
        self.asked = {}  # requests by path
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.closing = False
        self.open = set()
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while not self.closing:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            connection.settimeout(LONGEST_S)
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(1 << 16)
                if not more:
                    return
                data += more
            first, _, rest = data.partition(b"\r\n\r\n")
            length = [line for line in first.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            missing = int(length[0].split(b":")[1]) - len(rest) if length else 0
            while missing > 0:
                more = connection.recv(1 << 16)
                if not more:
                    return
                missing -= len(more)
            path = first.split(b" ")[1].decode("latin-1").split("?")[0]
            with self.lock:
                self.asked[path] = self.asked.get(path, 0) + 1
            answer = self.answers.get(path, self.answer)
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(connection)
            connection.close()

    def times_asked(self, path=None):
        with self.lock:
            return sum(self.asked.values()) if path is None else self.asked.get(path, 0)

    def open_connections(self):
        with self.lock:
            return len(self.open)

    def stop(self):
        self.closing = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)
        with self.lock:
            still_open = list(self.open)
        for connection in still_open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def sound(answer=OK, **answers):
    """A replica that reports that it is ready."""
    return Hostile(answer, {"/fleet/state": sized(state()), **answers})
