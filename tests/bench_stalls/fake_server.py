#!/usr/bin/env python3
"""A server of completions that streams a token every 5 ms. A prompt of 100 tokens or more stops all streams for
STALL_S seconds. With FAIL in the environment it answers long prompts with status 500."""

import http.server
import json
import os
import sys
import threading
import time

STALL_S = float(os.environ.get("STALL_S", "0.4"))
work = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        long = len(body["prompt"]) >= 100
        if long and "FAIL" in os.environ:
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"out of memory")
            return
        self.send_response(200)
        self.end_headers()
        if long:
            with work:
                time.sleep(STALL_S)
        try:
            for i in range(body["max_tokens"]):
                with work:
                    pass
                last = i + 1 == body["max_tokens"]
                choice = {"text": "x", "finish_reason": "length" if last else None}
                self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                time.sleep(0.005)
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
