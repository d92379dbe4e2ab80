"""HTTP/1.1 over raw sockets: sends any bytes, parses answers strictly, never waits without a limit."""

import json
import select
import socket
import struct
import time

LONGEST_LINE = 1 << 20


class Lost(Exception):
    """The connection ended, or was silent until the limit, before an answer was complete."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def id(self):
        return self.headers.get("x-request-id")

    @property
    def closes(self):
        return self.headers.get("connection", "").lower() == "close"

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:160]!r}"


class Wire:
    """One connection. Reads only on request."""

    def __init__(self, port, limit_s=20.0, source="127.0.0.1", receive_buffer=0):
        self.limit_s, self.buffer, self.ended = limit_s, bytearray(), False
        self.continues = 0  # number of 100 Continue answers
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(limit_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source != "127.0.0.1":
            self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", port))

    def send(self, data):
        """False if the server has closed meanwhile, which an attack must expect."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def answered_already(self):
        """Whether bytes or the end of the connection can be read."""
        return bool(self.buffer) or bool(select.select([self.socket], [], [], 0)[0])

    def half_close(self):
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def reset(self):
        """Closes with a reset instead of an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def _more(self, end):
        left = end - time.monotonic()
        if left <= 0:
            raise Lost("silent until the limit")
        self.socket.settimeout(left)
        try:
            piece = self.socket.recv(1 << 16)
        except TimeoutError:
            raise Lost("silent until the limit") from None
        except OSError as error:
            self.ended = True
            raise Lost(f"connection lost: {error}") from None
        if not piece:
            self.ended = True
            raise Lost("closed")
        self.buffer += piece

    def _take(self, count, end):
        while len(self.buffer) < count:
            self._more(end)
        out = bytes(memoryview(self.buffer)[:count])
        del self.buffer[:count]
        return out

    def _line(self, end):
        while (at := self.buffer.find(b"\r\n", 0, LONGEST_LINE)) < 0:
            if len(self.buffer) > LONGEST_LINE:
                raise Lost(f"a line of more than {LONGEST_LINE} bytes")
            self._more(end)
        return self._take(at + 2, end)[:-2]

    def read(self, head_only=False, limit_s=None):
        """The next final answer; 100 Continue is skipped. Raises Lost."""
        end = time.monotonic() + (self.limit_s if limit_s is None else limit_s)
        while True:
            words = self._line(end).split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise Lost(f"no status line: {b' '.join(words)[:80]!r}")
            headers = {}
            while line := self._line(end):
                name, _, value = line.partition(b":")
                headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
            status = int(words[1])
            if status != 100:
                break
            self.continues += 1
        return Answer(status, headers, b"" if head_only or status in (204, 304) else self._body(headers, end))

    def _body(self, headers, end):
        if headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self._line(end), 16):
                pieces.append(self._take(size + 2, end)[:-2])
            self._line(end)
            return b"".join(pieces)
        if "content-length" in headers:
            return self._take(int(headers["content-length"]), end)
        try:
            while True:
                self._more(end)
        except Lost:
            if not self.ended:
                raise
        return self._take(len(self.buffer), end)

    def ends(self, limit_s):
        """Whether the server closes within the limit, without further bytes."""
        end = time.monotonic() + limit_s
        try:
            while not self.buffer:
                self._more(end)
        except Lost:
            return self.ended
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(
    method,
    target,
    body=None,
    *,
    host="127.0.0.1",
    version="HTTP/1.1",
    headers=(),
    content_type="application/json",
    length=True,
):
    """The bytes of a well-formed request, unless an argument omits a part."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    lines = [f"{method} {target} {version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    if body is not None and content_type:
        lines.append(f"Content-Type: {content_type}")
    if body is not None and length:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def ask(port, method, target, body=None, limit_s=30.0, source="127.0.0.1", **options):
    """One request on a new connection."""
    with Wire(port, limit_s, source) as wire:
        wire.send(request(method, target, body, **options))
        return wire.read(head_only=method == "HEAD")
