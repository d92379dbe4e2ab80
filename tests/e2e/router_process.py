"""Starts the real `tactus route` in front of replicas, and sends it requests."""

import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request

from server_process import wait_until


class Router:
    """`tactus route` on a free port."""

    def __init__(self, replicas, *args, ready=None):
        """`ready()` returns the router's address once it listens, if standard error does not say so."""
        command = [os.environ["TACTUS_BINARY"], "route", "--port", "0", "--replicas", ",".join(replicas), *args]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.lines, self.url = [], None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

        def listens():
            self.url = self.url or (ready and ready())
            return self.url or self.process.poll() is not None

        wait_until(listens, "the router to listen", about=self.last_lines)
        if self.url is None:
            raise RuntimeError("the router did not start" + self.last_lines())

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.match(r"routing on (https?://\S+)", line):
                self.url = match.group(1)

    def last_lines(self):
        return "\n" + "".join(self.lines[-30:])

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, value, method="POST"):
        request = urllib.request.Request(
            self.url + path, json.dumps(value).encode(), {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def states(self):
        return {r["url"]: r["state"] for r in json.loads(self.get("/fleet/replicas")[1])["replicas"]}

    def await_ready(self, count):
        wait_until(
            lambda: list(self.states().values()).count("ready") == count,
            f"{count} replicas ready",
            about=self.last_lines,
        )

    def metric(self, name):
        text = self.get("/metrics")[1]
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith((name + " ", name + "{"))
        )

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.reader.join(10)
        self.process.stderr.close()
        return status
