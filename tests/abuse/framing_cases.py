"""The tables of framing.py. A row: name, bytes to send, valid statuses, and the expected state of the connection."""

import dataclasses
import json
import random
import time

from wire import request

READ_TIMEOUT_S = 5  # far more than a valid case takes on a loaded machine
SMUGGLED = "smuggled"
INNER = request("GET", "/version", headers=[("X-Request-Id", SMUGGLED)])  # the request to smuggle
BODY = b'{"prompt":"x"}'
CHUNKED_BODY = b"e\r\n" + BODY + b"\r\n0\r\n\r\n"
KEEP, CLOSE, EITHER = False, True, None


@dataclasses.dataclass
class Case:
    name: str
    pieces: object  # bytes, or a list of bytes and of pauses in seconds
    statuses: set
    closes: object = EITHER  # CLOSE: must close; KEEP: must not; EITHER: closed or in sync
    answers: int = 1
    ids: tuple = ()
    head_only: bool = False
    half_close: bool = False
    may_close: bool = False  # closing without an answer is valid too
    continues: object = None  # expected number of 100 Continue answers; None: any

    @property
    def sent(self):
        pieces = [self.pieces] if isinstance(self.pieces, bytes) else self.pieces
        return b"".join(p if isinstance(p, bytes) else b"" for p in pieces)

    def send_over(self, wire):
        for piece in [self.pieces] if isinstance(self.pieces, bytes) else self.pieces:
            if isinstance(piece, bytes):
                wire.send(piece)
            else:
                # The request may be refused already; with several expected answers the first is no refusal.
                if self.answers == 1 and wire.answered_already():
                    break
                time.sleep(piece)
        if self.half_close:
            wire.half_close()


def post(*header_lines, body=BODY, version="HTTP/1.1", target="/tokenize", method="POST", host="Host: 127.0.0.1"):
    """A request with exactly these header lines (bytes or text) besides Host and Content-Type."""
    lines = [f"{method} {target} {version}", host, "Content-Type: application/json", *header_lines]
    return (
        b"\r\n".join(line if isinstance(line, bytes) else line.encode("latin-1") for line in lines if line is not None)
        + b"\r\n\r\n"
        + body
    )


def get(*header_lines, target="/health", line=None, host="Host: 127.0.0.1", body=b""):
    lines = [line or f"GET {target} HTTP/1.1", host, *header_lines]
    return (
        b"\r\n".join(line if isinstance(line, bytes) else line.encode("latin-1") for line in lines if line is not None)
        + b"\r\n\r\n"
        + body
    )


def transfer_encoding():
    smuggle = b"0\r\n\r\n" + INNER
    for value in ("chunked", "Chunked", "CHUNKED", " chunked", "chunked ", "\tchunked\t"):
        yield Case(f"TE {value!r} is chunked", post(f"Transfer-Encoding:{value}", body=CHUNKED_BODY), {200}, KEEP)
    for value in (
        "xchunked",
        "chunkedx",
        "chunke",
        "chunked1",
        "identity",
        "gzip",
        '"chunked"',
        "'chunked'",
        "chunked, gzip",
        "chunked, identity",
        "chunked; q=1",
        "",
        ",",
        "chunked chunked",
        "chunked\x0b",
        "\x0bchunked",
        "chunked,gzip",
        "trailers",
        "*",
    ):
        yield Case(
            f"TE {value!r}: the last coding is not chunked",
            post(f"Transfer-Encoding: {value}", body=INNER),
            {400},
            CLOSE,
        )
    yield Case("TE 'chunked, chunked'", post("Transfer-Encoding: chunked, chunked", body=smuggle), {400, 501}, CLOSE)
    yield Case(
        "TE 'gzip, chunked' is not implemented", post("Transfer-Encoding: gzip, chunked", body=smuggle), {501}, CLOSE
    )
    for value in ("deflate, chunked", "br, chunked", "identity, chunked", "xgzip,chunked", "gzip;level=9, chunked"):
        yield Case(f"TE {value!r}", post(f"Transfer-Encoding: {value}", body=smuggle), {400, 501}, CLOSE)
    for value in ("chunked,", ", chunked", ",,chunked"):  # empty list elements may be ignored
        yield Case(f"TE {value!r}", post(f"Transfer-Encoding: {value}", body=CHUNKED_BODY), {200, 400, 501})
    for first, second in (
        ("chunked", "chunked"),
        ("gzip", "chunked"),
        ("chunked", "identity"),
        ("chunked", "gzip"),
        ("identity", "chunked"),
    ):
        yield Case(
            f"TE twice: {first!r}, {second!r}",
            post(f"Transfer-Encoding: {first}", f"Transfer-Encoding: {second}", body=smuggle),
            {400, 501},
            CLOSE,
        )
    for first, second in (("", "chunked"), ("chunked", "")):  # with an empty list element
        yield Case(
            f"TE twice: {first!r}, {second!r}",
            post(f"Transfer-Encoding: {first}", f"Transfer-Encoding: {second}", body=CHUNKED_BODY),
            {200, 400, 501},
        )
    for value in ("chunked", "identity", "gzip, chunked", "xchunked"):
        yield Case(
            f"TE {value!r} in HTTP/1.0",
            post(f"Transfer-Encoding: {value}", body=smuggle, version="HTTP/1.0"),
            {400},
            CLOSE,
        )
    for name, lines in {
        "CL then TE": ("Content-Length: 5", "Transfer-Encoding: chunked"),
        "TE then CL": ("Transfer-Encoding: chunked", "Content-Length: 5"),
        "CL 0 and TE": ("Content-Length: 0", "Transfer-Encoding: chunked"),
        "CL and TE xchunked": ("Content-Length: 5", "Transfer-Encoding: xchunked"),
        "CL and TE identity": ("Content-Length: 5", "Transfer-Encoding: identity"),
        "CL, TE, CL": ("Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 5"),
        "CL and an empty TE": ("Content-Length: 5", "Transfer-Encoding:"),
    }.items():
        yield Case(f"both: {name}", post(*lines, body=smuggle), {400}, CLOSE)
    for name, line in {
        "a space before the colon": "Transfer-Encoding : chunked",
        "a NUL in the value": "Transfer-Encoding: chunked\0",
        "a NUL before the value": "Transfer-Encoding:\0chunked",
        "a NUL in the name": "Transfer-Encoding\0: chunked",
        "a bare CR before it": "X: y\rTransfer-Encoding: chunked",
        "a control character in the name": "Transfer\x01Encoding: chunked",
    }.items():
        yield Case(f"TE hidden by {name}", post(line, "Content-Length: 5", body=smuggle), {400}, CLOSE)
    yield Case("TE in a folded line", post("Transfer-Encoding:\r\n chunked", body=CHUNKED_BODY), {200, 400, 501})
    yield Case(
        "TE hidden in a folded line",
        post("X: y", " Transfer-Encoding: chunked", f"Content-Length: {len(BODY)}"),
        {200, 400},
    )
    yield Case(
        "Transfer_Encoding is another header",
        post("Transfer_Encoding: chunked", f"Content-Length: {len(BODY)}"),
        {200},
        KEEP,
    )
    yield Case("TE: trailers is harmless", post("TE: trailers", f"Content-Length: {len(BODY)}"), {200}, KEEP)


def content_length():
    n = len(BODY)
    yield Case("CL", post(f"Content-Length: {n}"), {200}, KEEP)
    yield Case("CL with leading zeros", post(f"Content-Length: 000{n}"), {200}, KEEP)
    yield Case("CL twice, equal", post(f"Content-Length: {n}", f"Content-Length: {n}"), {200, 400})
    yield Case("CL as a list of equals", post(f"Content-Length: {n}, {n}"), {200, 400})
    for values in ((n, n + 1), (0, n), (n, 0)):
        yield Case(
            f"CL twice: {values}", post(*(f"Content-Length: {v}" for v in values), body=BODY + INNER), {400}, CLOSE
        )
    for value in (
        f"{n}, {n + 1}",
        f"+{n}",
        f"-{n}",
        "-1",
        "0xe",
        "1 4",
        "14.0",
        "1e1",
        "",
        f"{n};",
        f'"{n}"',
        f"{n}\0",
        f"\0{n}",
        "\xb2",
        "fourteen",
        ",",
        f"{n},",
        "14\x0b",
        "_14",
        "1_4",
    ):
        yield Case(f"CL {value!r}", post(f"Content-Length: {value}", body=BODY + INNER), {400}, CLOSE)
    for value in (
        "99999999999999999999999999",
        "18446744073709551615",
        str(2**64 + n),
        str(2**32 + n),
        "9223372036854775807",
        "1048577",
    ):
        yield Case(f"CL {value} is too large", post(f"Content-Length: {value}"), {400, 413}, CLOSE)
    yield Case("CL of a hundred thousand digits", post("Content-Length: " + "1" * 100_000), {400, 413, 431}, CLOSE)
    yield Case("CL with a space before the colon", post(f"Content-Length : {n}", body=BODY + INNER), {400}, CLOSE)
    yield Case("POST without CL has no body", post(body=b""), {400}, KEEP)
    yield Case("POST with CL 0", post("Content-Length: 0", body=b""), {400}, KEEP)
    yield Case(
        "garbage after the body",
        [post(f"Content-Length: {n}", body=BODY + b"garbage\r\n\r\n")],
        {400},
        CLOSE,
        answers=2,
    )
    yield Case(
        "CL too long, then a half-close",
        post("Content-Length: 500"),
        {400, 408},
        CLOSE,
        half_close=True,
        may_close=True,
    )


def host():
    bad = {
        "none": None,
        "with a space": "Host: a b",
        "with a slash": "Host: 127.0.0.1/x",
        "with a user": "Host: x@127.0.0.1",
        "of a word as port": "Host: 127.0.0.1:http",
        "of an open bracket": "Host: [::1",
        "that is a list": "Host: 127.0.0.1, localhost",
        "with a scheme": "Host: http://127.0.0.1",
        "with a NUL": "Host: 127.0.0.1\0",
        "with a space before the colon": "Host : 127.0.0.1",
        "twice, equal": "Host: 127.0.0.1\r\nHost: 127.0.0.1",
        "twice, unequal": "Host: 127.0.0.1\r\nHost: evil.example",
        "with a question mark": "Host: 127.0.0.1?x",
        "with a backslash": "Host: 127.0.0.1\\x",
        "of 300 characters with a hash": "Host: " + "a" * 300 + "#",
        "with two ports": "Host: 127.0.0.1:80:80",
        "with a bare CR": "Host: 127.0.0.1\rX: y",
    }
    for name, line in bad.items():
        yield Case(f"Host {name}", get(host=line), {400}, EITHER)
    yield Case("Host none in HTTP/1.0", get(line="GET /health HTTP/1.0", host=None), {200}, CLOSE)
    yield Case(
        "Host twice in HTTP/1.0",
        get(line="GET /health HTTP/1.0", host="Host: 127.0.0.1\r\nHost: evil.example"),
        {400},
        CLOSE,
    )
    yield Case("Host empty", get(host="Host:"), {400, 403}, EITHER)
    for name in ("127.0.0.1", "127.0.0.1:8000", "localhost", "LocalHost:80", "[::1]", "[::1]:8000"):
        yield Case(f"Host {name} is ours", get(host=f"Host: {name}"), {200}, KEEP)
    for name in (
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "xlocalhost",
        "evil.example.",
    ):
        yield Case(
            f"Host {name} is foreign to a loopback server",
            get(host=f"Host: {name}", target="/v1/models"),
            {403},
            EITHER,
        )
        yield Case(
            f"Host {name} is foreign, with a body",
            post(f"Content-Length: {len(BODY)}", host=f"Host: {name}"),
            {403},
            EITHER,
        )
    yield Case("absolute form", get(target="http://127.0.0.1/health"), {200}, KEEP)
    yield Case("absolute form without a path", get(target="http://127.0.0.1"), {200}, KEEP)
    yield Case("absolute form, scheme in capitals", get(target="HTTP://127.0.0.1/health"), {200, 400, 404})
    yield Case("absolute form of a foreign host", get(target="http://evil.example/v1/models"), {400, 403})
    yield Case(
        "absolute form of ours under a foreign Host",
        get(target="http://127.0.0.1/v1/models", host="Host: evil.example"),
        {200, 400, 403},
    )
    yield Case("absolute form without Host", get(target="http://127.0.0.1/health", host=None), {400})
    yield Case("absolute form of no host", get(target="http:///health"), {400, 404})
    yield Case("absolute form of another scheme", get(target="ftp://127.0.0.1/health"), {400, 404})


def request_line():
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "LINK", "POST"):
        yield Case(f"{method} /health", get(line=f"{method} /health HTTP/1.1"), {400, 405, 501})
        yield Case(
            f"{method} /health with a hidden request",
            get(f"Content-Length: {len(INNER)}", line=f"{method} /health HTTP/1.1", body=INNER),
            {400, 405, 415, 501},
        )
    for line in (
        "get /health HTTP/1.1",
        "FOO /health HTTP/1.1",
        "G\0T /health HTTP/1.1",
        "GET /nowhere HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT 127.0.0.1:80 HTTP/1.1",
        "GET health HTTP/1.1",
        "GET //health HTTP/1.1",
        "GET /../health HTTP/1.1",
        "GET /%68ealth HTTP/1.1",
        "GET /health/ HTTP/1.1",
        "GET /v1/models/%00 HTTP/1.1",
        "GET /v1/models/" + "%2e" * 1000 + " HTTP/1.1",
    ):
        yield Case(
            f"line {line[:40]!r}",
            get(line=line),
            {200, 204, 400, 404, 405, 501} - ({200} if line.startswith(("get", "FOO", "G\0", "CON")) else set()),
        )
    for line in (
        "GET  /health HTTP/1.1",
        "GET /health  HTTP/1.1",
        "GET /health HTTP/1.1 ",
        "GET\t/health HTTP/1.1",
        " GET /health HTTP/1.1",
        "GET /he alth HTTP/1.1",
        "GET /health HTTP/1.1\0",
        "GET /he\0alth HTTP/1.1",
        "GET /he\x7falth HTTP/1.1",
        "GET /health http/1.1",
        "GET /health HTTP/1",
        "GET /health HTTP/1.1a",
        "GET /health HTTP/01.1",
        "GET /health HTTP/1.01",
        "GET /health HTTPS/1.1",
        "GET /health HTTP/11",
        "GET /health HTTP/-1.1",
        "GET /health",
        "GET",
        "/health HTTP/1.1",
        ": HTTP/1.1",
        "GET /health\rHTTP/1.1",
    ):
        yield Case(f"malformed line {line!r}", get(line=line), {400, 505}, CLOSE, may_close=True)
    for version in ("2.0", "3.0", "0.9", "9.9"):
        yield Case(f"HTTP/{version}", get(line=f"GET /health HTTP/{version}"), {400, 505}, CLOSE)
    yield Case("HTTP/1.2 is answered as 1.1, or refused", get(line="GET /health HTTP/1.2"), {200, 400, 505})
    yield Case("a request line of HTTP/0.9", b"GET /health\r\n", {400}, CLOSE, may_close=True)
    yield Case("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), {400, 505}, CLOSE)
    yield Case(
        "upgrade to h2c is passed over",
        get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
        {200},
        KEEP,
    )
    yield Case(
        "upgrade to a web socket is passed over",
        get("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        {200},
        KEEP,
    )
    yield Case("TLS hello", bytes.fromhex("16030100f1010000ed0303") + bytes(230), {400}, CLOSE, may_close=True)
    yield Case("an SSH banner", b"SSH-2.0-OpenSSH_9.6\r\n", {400}, CLOSE, may_close=True)
    yield Case("an empty line first", b"\r\n" + get(), {200, 400})
    yield Case("ten thousand empty lines first", b"\r\n" * 10_000 + get(), {200, 400, 431}, may_close=True)
    yield Case("a target of 60,000 characters", get(target="/health?" + "a" * 60_000), {200, 414, 431})
    yield Case("a target of 100,000 characters", get(target="/health?" + "a" * 100_000), {400, 414, 431}, CLOSE)
    yield Case("a query", get(target="/health?x=" + "%00" * 100), {200}, KEEP)
    yield Case("a fragment", get(target="/health#x"), {200, 400})
    yield Case("bytes above ASCII in the target", get(target="/h\xe9alth"), {400, 404})
    yield Case("HEAD", get(line="HEAD /health HTTP/1.1"), {200}, KEEP, head_only=True)
    yield Case("HEAD of nothing", get(line="HEAD /nowhere HTTP/1.1"), {404}, KEEP, head_only=True)
    yield Case("OPTIONS", get(line="OPTIONS /v1/completions HTTP/1.1"), {204}, KEEP)


def header_fields():
    for name, line in {
        "NUL in a value": b"X: a\0b",
        "NUL in a name": b"X\0: a",
        "bare CR in a value": b"X: a\rb",
        "no name": b": a",
        "a space in a name": b"X y: a",
        "a parenthesis in a name": b"X(: a",
        "no colon": b"Xyz",
        "a name above ASCII": b"\xe9: a",
        "a tab before the colon": b"X\t: a",
        "a slash in a name": b"X/Y: a",
        "an empty name and value": b":",
    }.items():
        yield Case(f"header: {name}", get(line), {400}, CLOSE)
    yield Case("header: the first line begins with a space", get(host=" Host: 127.0.0.1"), {400}, CLOSE)
    yield Case("header: folded", get("X: a", " b"), {200, 400})
    yield Case("header: folded with a tab", get("X: a", "\tb"), {200, 400})
    yield Case("header: a folded Host", get(host="Host:\r\n 127.0.0.1"), {200, 400})
    yield Case("header: bytes above ASCII in a value", get(b"X: \xe9\xff"), {200, 400})
    yield Case("header: DEL in a value", get(b"X: a\x7fb"), {200, 400})
    yield Case("header: control characters in a value", get(b"X: a\x01\x1bb"), {200, 400})
    yield Case("header: an empty value", get("X:"), {200}, KEEP)
    yield Case("header: only blanks as value", get("X:  \t "), {200}, KEEP)
    yield Case("bare LF throughout", get().replace(b"\r\n", b"\n"), {200, 400})
    yield Case("bare LF after one header", b"GET /health HTTP/1.1\r\nX: a\nHost: 127.0.0.1\r\n\r\n", {200, 400})
    yield Case(
        "bare LF as the end of the headers", [b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\n"], {200, 400, 408}, EITHER
    )
    yield Case("CR CR LF", get("X: a\r"), {400}, CLOSE)
    yield Case("bare CR as line ends", get().replace(b"\r\n", b"\r"), {400, 408}, CLOSE)
    yield Case("headers of 60,000 bytes", get("X: " + "a" * 60_000), {200}, KEEP)
    yield Case("headers of 70,000 bytes", get("X: " + "a" * 70_000), {431}, CLOSE)
    yield Case("a header name of 70,000 bytes", get("a" * 70_000 + ": x"), {400, 431}, CLOSE)
    yield Case("10,000 headers", get(*["a: b"] * 10_000), {200, 400, 431})
    yield Case("100,000 headers", get(*["a: b"] * 100_000), {400, 431}, CLOSE)
    yield Case("10,000 empty values", get(*["a:"] * 10_000), {200, 400, 431})
    yield Case("X-Request-Id too long", get("X-Request-Id: " + "a" * 257), {200, 400})
    yield Case("X-Request-Id with a blank", get("X-Request-Id: a b"), {200, 400})
    yield Case("X-Request-Id twice", get("X-Request-Id: a", "X-Request-Id: b"), {200, 400})
    yield Case("Connection: close", get("Connection: close"), {200}, CLOSE)
    yield Case("Connection: close among others", get("Connection: x, Close"), {200}, CLOSE)
    yield Case("HTTP/1.0 closes", get(line="GET /health HTTP/1.0"), {200}, CLOSE)
    yield Case("HTTP/1.0 stays when asked to", get("Connection: keep-alive", line="GET /health HTTP/1.0"), {200}, KEEP)
    yield Case("hop-by-hop tricks", get("Connection: Host, X-Request-Id, close-not"), {200, 400})
    yield Case("Authorization of 60,000 bytes", get("Authorization: Bearer " + "a" * 60_000), {200}, KEEP)


def chunks():
    def chunked(body):
        return post("Transfer-Encoding: chunked", body=body)

    right = {
        "one chunk": CHUNKED_BODY,
        "capitals": b"E\r\n" + BODY + b"\r\n0\r\n\r\n",
        "an extension": b"e;a=b\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a quoted extension": b'e;a="b;\\"c"\r\n' + BODY + b"\r\n0\r\n\r\n",
        "zeros": b"000000e\r\n" + BODY + b"\r\n0000\r\n\r\n",
        "an extension of the last chunk": b"e\r\n" + BODY + b"\r\n0;a\r\n\r\n",
        "a trailer": b"e\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n",
        "one byte each": b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n",
    }
    for name, body in right.items():
        yield Case(f"chunks: {name}", chunked(body), {200}, KEEP)
    for name, body in {
        "Content-Length": b"Content-Length: 5",
        "Transfer-Encoding": b"Transfer-Encoding: gzip",
        "Host": b"Host: evil.example",
        "Authorization": b"Authorization: Bearer x",
    }.items():
        yield Case(
            f"chunks: {name} as trailer changes nothing",
            chunked(b"e\r\n" + BODY + b"\r\n0\r\n" + body + b"\r\n\r\n"),
            {200, 400},
        )
    for size in (
        "FFFFFFFFFFFFFFFF",
        "FFFFFFFFFFFFFFFFF",
        "8000000000000000",
        "10000000000000000",
        "1000000000000000e",
        "100000000e",
        "-1",
        "-e",
        "+e",
        "0xe",
        "",
        "g",
        "e g",
        "e,",
        "e\0",
        "\0e",
        "e\x0b",
        "_e",
        "14.0",
        ";a=b",
        '"e"',
        "\xb2",
    ):
        yield Case(
            f"chunk size {size!r}",
            chunked(size.encode("latin-1") + b"\r\n" + BODY + b"\r\n0\r\n\r\n" + INNER),
            {400, 413},
            CLOSE,
        )
    for size in ("e ", " e", "e\t", "e ;a", "e; a"):  # blanks: refused or ignored, never another length
        yield Case(f"chunk size {size!r}", chunked(size.encode() + b"\r\n" + BODY + b"\r\n0\r\n\r\n"), {200, 400})
    yield Case(
        "chunk size of 100,000 zeros",
        chunked(b"0" * 100_000 + b"e\r\n" + BODY + b"\r\n0\r\n\r\n"),
        {400, 413, 431},
        CLOSE,
    )
    yield Case(
        "chunk extension of 100,000 bytes",
        chunked(b"e;" + b"a" * 100_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        {400, 413, 431},
        CLOSE,
    )
    yield Case(
        "20,000 chunks, each with 200 bytes of extension",
        chunked((b"1;" + b"a" * 200 + b"\r\n \r\n") * 20_000 + CHUNKED_BODY),
        {400, 413, 431},
        CLOSE,
    )
    yield Case(
        "chunk extension with a bare LF", chunked(b"2;\nxx\r\n30\r\n" + INNER[:48] + b"\r\n0\r\n\r\n"), {400}, CLOSE
    )
    yield Case("chunk extension with a bare CR", chunked(b"e;a\rb\r\n" + BODY + b"\r\n0\r\n\r\n"), {400}, CLOSE)
    yield Case("chunk extension with a NUL", chunked(b"e;a\0b\r\n" + BODY + b"\r\n0\r\n\r\n"), {400}, CLOSE)
    yield Case("chunk size ended by a bare LF", chunked(b"e\n" + BODY + b"\r\n0\r\n\r\n"), {200, 400}, EITHER)
    yield Case("chunk data ended by a bare LF", chunked(b"e\r\n" + BODY + b"\n0\r\n\r\n" + INNER), {400}, CLOSE)
    yield Case("chunk data longer than its size", chunked(b"5\r\n" + BODY + b"\r\n0\r\n\r\n" + INNER), {400}, CLOSE)
    yield Case("chunk data without its line end", chunked(b"e\r\n" + BODY + b"0\r\n\r\n" + INNER), {400}, CLOSE)
    yield Case("trailer without a colon", chunked(b"e\r\n" + BODY + b"\r\n0\r\nXyz\r\n\r\n"), {400}, CLOSE)
    yield Case("trailer with a NUL", chunked(b"e\r\n" + BODY + b"\r\n0\r\nX: \0\r\n\r\n"), {400}, CLOSE)
    yield Case(
        "trailers of 1 MiB",
        chunked(b"e\r\n" + BODY + b"\r\n0\r\n" + b"X: yyyyyyyyyy\r\n" * 70_000 + b"\r\n"),
        {400, 413, 431},
        CLOSE,
    )
    yield Case(
        "a trailer without an end",
        chunked(b"e\r\n" + BODY + b"\r\n0\r\nX: " + b"y" * 1_000_000),
        {400, 413, 431},
        CLOSE,
    )
    yield Case(
        "chunks beyond --max-body",
        chunked(b"20000\r\n" + b" " * 0x20000 + b"\r\n") + (b"20000\r\n" + b" " * 0x20000 + b"\r\n") * 8,
        {413},
        CLOSE,
    )
    yield Case("one chunk beyond --max-body", chunked(b"100001\r\n" + BODY), {413}, CLOSE)
    yield Case(
        "no last chunk, then a half-close",
        chunked(b"e\r\n" + BODY + b"\r\n"),
        {400, 408},
        CLOSE,
        half_close=True,
        may_close=True,
    )


def bodies_where_none_belong():
    for method in ("GET", "HEAD", "OPTIONS"):
        for name, lines, body in (
            ("CL", [f"Content-Length: {len(INNER)}"], INNER),
            ("chunks", ["Transfer-Encoding: chunked"], b"0\r\n\r\n" + INNER),
            ("TE xchunked", ["Transfer-Encoding: xchunked"], INNER),
            ("a body of two chunks", ["Transfer-Encoding: chunked"], b"2\r\nab\r\n0\r\n\r\n" + INNER),
        ):
            yield Case(
                f"{method} with a body by {name}",
                get(*lines, line=f"{method} /health HTTP/1.1", body=body),
                {400},
                CLOSE,
                head_only=method == "HEAD",
            )
    yield Case("GET with CL 0", get("Content-Length: 0"), {200}, KEEP)
    hidden = f"Content-Length: {len(INNER)}"
    yield Case("a body for an unknown route", post(hidden, body=INNER, target="/nowhere"), {404})
    yield Case("a body for a wrong method", post(hidden, body=INNER, method="DELETE"), {400, 405})
    yield Case("a body of no JSON", post(hidden, body=INNER), {400}, KEEP)
    yield Case("a body of another type", post(hidden, body=INNER).replace(b"application/json", b"text/plain"), {415})
    yield Case("no Content-Type", post(hidden, body=INNER).replace(b"Content-Type: application/json\r\n", b""), {415})
    yield Case("an empty Content-Type", post(hidden, body=INNER).replace(b"application/json", b""), {415})
    yield Case(
        "a form, as browsers send it",
        post(hidden, body=INNER).replace(b"application/json", b"application/x-www-form-urlencoded"),
        {415},
    )
    yield Case("a type that only begins like JSON", post(hidden, body=INNER).replace(b"json", b"jsonx"), {415})
    yield Case(
        "a type with a charset",
        post(f"Content-Length: {len(BODY)}").replace(b"json\r", b"JSON ; charset=utf-8\r"),
        {200},
        KEEP,
    )
    yield Case("two types", post(f"Content-Length: {len(BODY)}", "Content-Type: text/plain"), {200, 400, 415})
    yield Case("a compressed body", post(hidden, "Content-Encoding: gzip", body=INNER), {415})
    yield Case("a body over the limit", post("Content-Length: 2000000", body=b"0\r\n\r\n" + INNER), {413}, CLOSE)
    waits = [post("Expect: 100-continue", f"Content-Length: {len(BODY)}", body=b""), 0.3, BODY]
    yield Case("Expect: 100-continue, the body after a while", waits, {200}, KEEP, continues=1)
    for value, statuses in (
        ("100-continue", {200}),
        ("100-Continue", {200}),
        ("200-ok", {417}),
        ("100-continue, x", {400, 417}),
        ("", {200, 400, 417}),
    ):
        yield Case(f"Expect: {value}", post(f"Expect: {value}", f"Content-Length: {len(BODY)}"), statuses)
    yield Case(
        "Expect for a body over the limit",
        post("Expect: 100-continue", "Content-Length: 2000000", body=b""),
        {413},
        CLOSE,
        continues=0,
    )
    yield Case(
        "Expect in HTTP/1.0",
        post("Expect: 100-continue", f"Content-Length: {len(BODY)}", version="HTTP/1.0"),
        {200},
        CLOSE,
        continues=0,
    )
    yield Case("Expect without a body", get("Expect: 100-continue"), {200}, KEEP, continues=0)


def pipelines(seed):
    def marked(i, **options):
        return get(f"X-Request-Id: p{i}", **options)

    def posted(i, body=BODY, target="/tokenize"):
        return post(f"X-Request-Id: p{i}", f"Content-Length: {len(body)}", body=body, target=target)

    for count in (2, 10, 100, 1000):
        yield Case(
            f"{count} requests at once",
            b"".join(marked(i) for i in range(count)),
            {200},
            KEEP,
            answers=count,
            ids=tuple(f"p{i}" for i in range(count)),
        )
    ids = tuple(f"p{i}" for i in range(20))
    yield Case(
        "GET and POST in turn",
        b"".join(marked(i) if i % 2 else posted(i) for i in range(20)),
        {200},
        KEEP,
        answers=20,
        ids=ids,
    )
    completion = json.dumps({"prompt": "x", "max_tokens": 4, "ignore_eos": True}).encode()
    stream = json.dumps({"prompt": "x", "max_tokens": 4, "stream": True}).encode()
    yield Case(
        "20 completions at once",
        b"".join(posted(i, completion, "/v1/completions") for i in range(20)),
        {200},
        KEEP,
        answers=20,
        ids=ids,
    )
    yield Case(
        "20 streams at once",
        b"".join(posted(i, stream, "/v1/completions") for i in range(20)),
        {200},
        KEEP,
        answers=20,
        ids=ids,
    )
    yield Case(
        "chunked, then another",
        post("X-Request-Id: p0", "Transfer-Encoding: chunked", body=CHUNKED_BODY) + marked(1),
        {200},
        KEEP,
        answers=2,
        ids=("p0", "p1"),
    )
    yield Case("a wrong body, then another", posted(0, b"{"), {400}, KEEP, ids=("p0",))
    yield Case("a request after Connection: close", get("Connection: close") + INNER, {200}, CLOSE)
    yield Case("a request after a malformed one", get("X y: a") + INNER, {400}, CLOSE)
    yield Case("a request after one of HTTP/1.0", get(line="GET /health HTTP/1.0") + INNER, {200}, CLOSE)
    yield Case("a request after a refused body", post("Content-Length: 2000000", body=b"") + INNER, {413}, CLOSE)
    yield Case("half-close after a request", get(), {200}, EITHER, half_close=True, may_close=True)
    yield Case("half-close after nothing", b"", {400}, CLOSE, half_close=True, may_close=True)
    yield Case("half-close in the headers", b"GET /health HT", {400}, CLOSE, half_close=True, may_close=True)
    yield Case("half-close in the body", post("Content-Length: 50"), {400}, CLOSE, half_close=True, may_close=True)
    yield Case("byte by byte", [get()[i : i + 1] for i in range(len(get()))], {200}, KEEP)
    draw = random.Random(seed)
    for i in range(12):  # printable and binary noise
        noise = (
            bytes(draw.choice(b"GETPOS /:\r\n\0\x80 1.hH") for _ in range(draw.randint(1, 300)))
            if i % 2
            else draw.randbytes(draw.randint(1, 300))
        )
        yield Case(f"noise {i}", noise + b"\r\n\r\n", {400, 408, 431, 505}, CLOSE, may_close=True)
    for i in range(24):  # two valid requests, cut at any place
        whole = posted(0) + post("X-Request-Id: p1", "Transfer-Encoding: chunked", body=CHUNKED_BODY)
        cut = draw.randrange(1, len(whole))
        yield Case(
            f"two requests cut after {cut} bytes ({i})",
            [whole[:cut], 0.02, whole[cut:]],
            {200},
            KEEP,
            answers=2,
            ids=("p0", "p1"),
        )


def slow():
    drip = READ_TIMEOUT_S / 4
    yield Case("headers that never end", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", {408}, CLOSE)
    yield Case(
        "headers a byte at a time",
        [p for i in range(40) for p in (b"GET /health HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaa"[i : i + 1], drip)],
        {408},
        CLOSE,
    )
    yield Case(
        "a header after the other, without end",
        [b"GET /health HTTP/1.1\r\n"] + [p for _ in range(30) for p in (b"X: y\r\n", drip)],
        {408},
        CLOSE,
    )
    yield Case("a body that never comes", post("Content-Length: 10", body=b""), {408}, CLOSE)
    yield Case(
        "a body a byte at a time",
        [post("Content-Length: 30", body=b"")] + [p for _ in range(30) for p in (b" ", drip)],
        {408},
        CLOSE,
    )
    yield Case(
        "chunks a byte at a time",
        [post("Transfer-Encoding: chunked", body=b"")] + [p for _ in range(30) for p in (b"1\r\n \r\n", drip)],
        {408},
        CLOSE,
    )
    yield Case(
        "an extension a byte at a time",
        [post("Transfer-Encoding: chunked", body=b"e;")] + [p for _ in range(30) for p in (b"a", drip)],
        {408},
        CLOSE,
    )
    yield Case(
        "trailers a line at a time",
        [post("Transfer-Encoding: chunked", body=CHUNKED_BODY[:-2])]
        + [p for _ in range(30) for p in (b"X: y\r\n", drip)],
        {408},
        CLOSE,
    )
    yield Case("Expect, and then no body", post("Expect: 100-continue", "Content-Length: 10", body=b""), {408}, CLOSE)
    yield Case("an idle connection", b"", {408}, CLOSE, may_close=True)
    yield Case("an idle connection after an answer", get(), {200}, CLOSE)


def all_cases(seed):
    tables = [
        transfer_encoding(),
        content_length(),
        host(),
        request_line(),
        header_fields(),
        chunks(),
        bodies_where_none_belong(),
        pipelines(seed),
        slow(),
    ]
    return [case for table in tables for case in table]
