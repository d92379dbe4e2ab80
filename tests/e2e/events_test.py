"""GET /events of the real program: what the frames say about requests, who may read them, and what viewers cost."""

import http.client
import json
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from server_process import ServerProcess, wait_until

LIMIT_S = 60
SECRET = "aquamarine"  # of a prompt; no frame may contain it


class Viewer:
    """Reads the events of a server in a thread."""

    def __init__(self, url, key=None, reads=True):
        address = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=LIMIT_S)
        self.connection.request("GET", "/events", headers={"Authorization": f"Bearer {key}"} if key else {})
        self.answer = self.connection.getresponse()
        self.events = []  # (name, data)
        self.text = ""
        self.ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        if reads and self.answer.status == 200:
            self.reader.start()

    def _read(self):
        name = None
        try:
            for line in self.answer:
                line = line.decode()
                self.text += line
                if line.startswith("event: "):
                    name = line[7:].strip()
                elif line.startswith("data: "):
                    self.events.append((name, json.loads(line[6:])))
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return  # closed by the test
        self.ended = True

    def of(self, name):
        return [data for kind, data in list(self.events) if kind == name]

    def frames(self, member):
        """The entries of all frames under one member."""
        return [entry for frame in self.of("frame") for entry in frame[member]]

    def close(self):
        self.connection.close()


class EventsTest(unittest.TestCase):
    def serve(self, *options):
        # No step times: every objective is accepted.
        fixed = ("--threads", "1", "--scheduler", "sarathi-serve", "--tbt-slo", "none")
        server = ServerProcess(*options, *fixed, real_model=False)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def view(self, server, key=None, **options):
        viewer = Viewer(server.url, key, **options)
        self.addCleanup(viewer.close)
        return viewer

    def complete(self, server, i, key=None, tokens=12):
        body = {
            "prompt": f"{SECRET} " * (3 + 20 * i),
            "max_tokens": tokens,
            "ignore_eos": True,
            "n": 2 if i == 1 else 1,
            "slo": {"class": "quick", "ttft_ms": 0.001, "tbt_ms": 10_000},
        }
        headers = {"Content-Type": "application/json", "X-Request-Id": f"id-{i}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)

    def test_frames_tell_what_the_engine_does(self):
        server = self.serve("--token-budget", "64")
        viewer = self.view(server)
        self.assertEqual(viewer.answer.headers["Content-Type"], "text/event-stream; charset=utf-8")
        wait_until(lambda: viewer.of("frame"), "a first frame")
        hello = viewer.of("hello")[0]
        self.assertEqual(hello["model"], "test-model")
        with ThreadPoolExecutor(4) as pool:
            usages = [a["usage"] for a in pool.map(lambda i: self.complete(server, i), range(4))]
        ended = wait_until(
            lambda: {e["id"]: e for e in viewer.frames("finished")} if len(viewer.frames("finished")) == 4 else None,
            "four ended requests",
            about=lambda: viewer.text[-2000:],
        )
        self.assertEqual(sorted(ended), [f"id-{i}" for i in range(4)])
        for i, usage in enumerate(usages):
            e = ended[f"id-{i}"]
            self.assertEqual(e["class"], "quick")
            self.assertEqual(e["finish_reason"], "length")
            self.assertEqual(e["prompt_tokens"], usage["prompt_tokens"])
            self.assertEqual(e["completion_tokens"], usage["completion_tokens"])
            self.assertEqual(e["objectives_ms"], {"ttft": 0.001, "tbt": 10_000})
            self.assertEqual(list(e["misses"]), ["ttft"], "no first token comes within a microsecond")
            self.assertGreater(e["ttft_ms"], 0)
            self.assertGreaterEqual(e["e2e_ms"], e["ttft_ms"])
        steps = viewer.frames("steps")
        numbers = [s["step"] for s in steps]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "every step, once, in order")
        computed = {}
        for s in steps:
            self.assertEqual(sum(c["tokens"] for c in s["chunks"]), s["prompt_tokens"])
            self.assertLessEqual(s["decodes"] + s["prompt_tokens"], s["budget_tokens"])
            self.assertGreater(s["ms"], 0)
            for c in s["chunks"]:
                if c["choice"] > 0:
                    continue  # a further choice computes the last token of the prompt again
                computed[c["request"]] = computed.get(c["request"], 0) + c["tokens"]
        for e in ended.values():
            self.assertEqual(computed[e["request"]], e["prompt_tokens"] - e["cached_tokens"])
        gaps = sum(len(c["gaps_ms"]) for s in viewer.frames("streams") for c in s["choices"])
        # The last gap of a stream that ended within a frame is in no stream of that frame.
        self.assertLessEqual(gaps, sum(e["gaps"] for e in ended.values()))
        classes = wait_until(
            lambda: next(
                (
                    f["classes"]
                    for f in viewer.of("frame")
                    if f.get("classes", {}).get("quick", {}).get("completed") == 4
                ),
                None,
            ),
            "the counts of the class",
        )
        self.assertEqual(classes["quick"]["ttft"], {"stated": 4, "kept": 0})
        self.assertEqual(classes["quick"]["tbt"], {"stated": 4, "kept": 4})
        self.assertNotIn(SECRET, viewer.text)

    def test_a_viewer_that_comes_later_sees_the_streams_that_run(self):
        server = self.serve()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.complete, server, 0, tokens=1500)
            first = self.view(server)
            stream = wait_until(lambda: first.frames("streams"), "a stream")[0]
            later = self.view(server)
            frame = wait_until(lambda: later.of("frame"), "a frame")[0]
            self.assertIs(frame["whole"], True)
            if not answer.done():
                self.assertEqual([s["id"] for s in frame["streams"]], ["id-0"])
                self.assertEqual(frame["streams"][0]["prompt_tokens"], stream["prompt_tokens"])
            answer.result(LIMIT_S)

    def test_keys_protect_events_and_each_key_sees_its_own_ids(self):
        server = self.serve("--api-key", "one", "--api-key", "two")
        for key in (None, "three"):
            refused = self.view(server, key)
            self.assertEqual(refused.answer.status, 401)
        own, other = self.view(server, "one"), self.view(server, "two")
        wait_until(lambda: own.of("frame") and other.of("frame"), "the first frames")
        self.complete(server, 0, key="one")
        for viewer, shown in ((own, "id-0"), (other, None)):
            ended = wait_until(lambda viewer=viewer: viewer.frames("finished"), "an ended request")
            self.assertEqual(ended[0]["id"], shown)

    def test_a_viewer_that_does_not_read_costs_no_answer(self):
        keys = ("one", "two", "three")
        server = self.serve(*(option for key in keys for option in ("--api-key", key)))
        viewers = [self.view(server, key, reads=False) for key in keys[:2] for _ in range(8)]
        self.assertEqual({viewer.answer.status for viewer in viewers}, {200})
        for key, status, why in (("one", 503, "16 viewers"), ("three", 503, "16 viewers")):
            further = self.view(server, key)
            self.assertEqual(further.answer.status, status)
            self.assertIn(why, json.loads(further.answer.read())["error"]["message"])
        with ThreadPoolExecutor(4) as pool:
            for answer in pool.map(lambda i: self.complete(server, i, "one", tokens=100), range(8)):
                self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        viewers[-1].close()
        wait_until(lambda: self.view(server, "three").answer.status == 200, "a place for a viewer")

    def test_one_client_does_not_take_every_place(self):
        server = self.serve("--api-key", "greedy", "--api-key", "modest")
        viewers = [self.view(server, "greedy") for _ in range(8)]
        self.assertEqual({viewer.answer.status for viewer in viewers}, {200})
        further = self.view(server, "greedy")
        self.assertEqual(further.answer.status, 429)
        self.assertIn("this client has 8 views", json.loads(further.answer.read())["error"]["message"])
        self.assertEqual(self.view(server, "modest").answer.status, 200)

    def test_the_stream_ends_with_the_server(self):
        server = self.serve()
        viewer = self.view(server)
        wait_until(lambda: viewer.of("frame"), "a frame")
        self.assertEqual(server.stop(), 0)
        wait_until(lambda: viewer.ended, "the end of the stream")
        self.assertEqual(viewer.events[-1], ("end", {"reason": "the server stops"}))


if __name__ == "__main__":
    unittest.main()
