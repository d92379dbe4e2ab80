"""An endpoint on a free loopback port that returns given answers, one after another, repeating the list."""

import json
import socketserver
import threading

DONE = b"data: [DONE]\n\n"


def event(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(text):
    return event({"choices": [{"index": 0, "text": text}]})


def reply(status, kind, body):
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def error(status, message):
    return reply(status, "application/json", json.dumps({"error": {"message": message}}).encode())


def stream(*events):
    return reply(200, "text/event-stream", b"".join(events))


ANSWERS = {
    "ok": stream(token("a"), token("b"), DONE),
    "broken": error(500, "it broke"),
    "busy": error(503, "queue full"),
    "quota": error(429, "too many"),
    "cut": stream(token("a")),
    "odd events": stream(
        b"data: 5\n\n",
        event({"choices": [{"delta": None}, 3, {"text": 7}], "usage": {"prompt_tokens": "x"}}),
        event([]),
        DONE,
    ),
    "odd error": stream(event({"error": {"message": 5}})),
    "not http": b"hello\r\n\r\n",
}


class FakeEndpoint:
    def __init__(self, answers):
        self.answers = [ANSWERS[name] for name in answers]
        self.given = 0

    def __enter__(self):
        """Its URL."""
        endpoint = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = 30

            def handle(self):
                while head := self.rfile.readline():
                    length = 0
                    while (head := self.rfile.readline()) not in (b"\r\n", b""):
                        if head.lower().startswith(b"content-length:"):
                            length = int(head.split(b":")[1])
                    self.rfile.read(length)
                    answer = endpoint.answers[endpoint.given % len(endpoint.answers)]
                    endpoint.given += 1
                    self.wfile.write(answer)
                    if not answer.startswith(b"HTTP"):
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)
