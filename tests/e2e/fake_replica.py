"""A replica on a free loopback port: the test sets its readiness; it counts its requests, streams with `"stream":
true`, and can die in the middle of a stream."""

import http.server
import json
import socket
import threading


class FakeReplica:
    def __init__(self, name, ready=True):
        self.name = name
        self.ready = ready
        self.answering = threading.Semaphore(0)  # released when a stream has sent its first event
        self.go_on = threading.Event()  # a stream with "hold" waits for it after its first event
        self.go_on.set()
        replica = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def log_message(self, *_):
                pass

            def reply(self, status, body):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def body(self):
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline() not in (b"\r\n", b""):  # trailers
                    pass
                return b"".join(parts)

            def do_GET(self):
                if self.path == "/health":
                    return self.reply(200 if replica.ready else 503, b"{}")
                if self.path != "/v1/models":
                    return self.reply(404, b"{}")
                self.reply(200, json.dumps({"served_by": replica.name, "data": [{"id": "m"}]}).encode())

            def do_POST(self):
                body = self.body()
                try:
                    parsed = json.loads(body)
                except ValueError:
                    return self.reply(400, b'{"error": {"message": "no JSON"}}')
                if not parsed.get("stream"):
                    return self.reply(
                        200,
                        json.dumps(
                            {
                                "served_by": replica.name,
                                "bytes": len(body),
                                "usage": {"prompt_tokens": 3, "completion_tokens": 11},
                            }
                        ).encode(),
                    )
                self.stream(parsed.get("events", 3))

            def stream(self, events):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for i in range(events):
                    self.chunk(b"data: " + json.dumps({"served_by": replica.name, "event": i}).encode() + b"\n\n")
                    if i == 0:
                        replica.answering.release()
                        replica.go_on.wait(60)
                self.chunk(b"data: [DONE]\n\n")
                self.wfile.write(b"0\r\n\r\n")

            def chunk(self, data):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 512

            def handle_error(self, *_):  # a client that disconnected
                pass

            def process_request(self, request, client_address):
                replica.connections.append(request)
                super().process_request(request, client_address)

        self.dead = False
        self.connections = []
        self.server = Server(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_address[1]
        self.url = "http://" + self.address
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def kill(self):
        """As if the process died: closes all connections and accepts no new ones."""
        if not self.dead:
            self.dead = True
            self.server.shutdown()
            self.server.server_close()
            self.thread.join(10)
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # already gone
                    pass
            self.go_on.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
