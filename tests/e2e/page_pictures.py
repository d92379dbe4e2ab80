"""Pictures of the page for the documents, from a server with the default model and a mixed load:

    TACTUS_PICTURES=docs/images TACTUS_DEFAULT_MODEL=$(scripts/get_default_model.sh) \\
      python3 tests/e2e/run.py "$PWD/build/release/tactus" page_pictures.py

page_chat.png, page_engine.png, page_plan.png, page_fleet.png and page_phone.png are those that documents show. With
TACTUS_ALL_PICTURES=1 every view is also saved in light, dark and phone width.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import threading
import time
import unittest
import urllib.error
import urllib.request

from browser import CHROMIUM, Browser
from router_process import Router
from server_process import ServerProcess, default_model

FOLDER = os.environ.get("TACTUS_PICTURES")
ALL = os.environ.get("TACTUS_ALL_PICTURES") == "1"
NAME = "smollm2-135m"
SHARED = "You answer questions about a railway museum. Be short and name the hall of each exhibit. " * 30
TOPICS = ("steam engines", "the signal box", "sleeping cars", "rack railways", "the turntable", "freight wagons")
WORDS = "wheel rail signal boiler track bridge station coal lamp brake whistle ticket gauge tender axle bell".split()
LOAD_S = 30  # before the first picture
WINDOWS = {"light": (1280, 860, False), "dark": (1280, 860, False), "phone": (390, 844, True)}


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


class Load:
    """Chats of three classes, some with a long prompt, about one a second."""

    def __init__(self, url):
        self.url = url
        self.ends = threading.Event()
        self.random = random.Random(7)
        self.pool = concurrent.futures.ThreadPoolExecutor(10)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        number = 0
        while not self.ends.wait(self.random.expovariate(0.9)):
            number += 1
            self.pool.submit(self._ask, number)

    def _ask(self, number):
        kind = self.random.choice(("chat", "chat", "agents", "documents"))
        words = {"chat": 0, "agents": 60, "documents": 400}[kind]
        text = " ".join(self.random.choice(WORDS) for _ in range(words))
        topic = TOPICS[number % len(TOPICS)]
        body = {
            "model": NAME,
            "messages": [
                {"role": "system", "content": SHARED},
                {"role": "user", "content": f"{text}Question {number}: tell me about {topic}."},
            ],
            "max_tokens": self.random.randint(40, 120),
            "slo": {"class": kind, "ttft_ms": 4000, "tbt_ms": {"chat": 150, "agents": 250, "documents": 500}[kind]},
        }
        try:
            post(self.url, "/v1/chat/completions", body)
        except (urllib.error.URLError, OSError):
            pass  # refused, or the server stops

    def stop(self):
        self.ends.set()
        self.thread.join()
        self.pool.shutdown(wait=False, cancel_futures=True)


@unittest.skipUnless(
    CHROMIUM and FOLDER and default_model(), "TACTUS_PICTURES, TACTUS_DEFAULT_MODEL or chromium is missing"
)
class Pictures(unittest.TestCase):
    def start(self, url, load_url=None):
        self.browser = Browser()
        self.addCleanup(self.browser.close)
        self.url = url

    def open(self, view, window):
        self.browser.size(*WINDOWS[window])
        self.browser.scheme("dark" if window == "dark" else "light")
        self.browser.open(self.url + "/version")
        self.browser.open(f"{self.url}/#/{view}")
        self.browser.wait("document.querySelector('#server').dataset.state === 'ready'", "the server is ready")
        self.browser.wait(f"!document.querySelector('#{view}').hidden", f"{view} is shown")

    def save(self, name, scroll=None):
        if scroll:
            self.browser.eval(f"document.querySelector({json.dumps(scroll)}).scrollIntoView()")
        time.sleep(0.5)  # the next frame of the screen
        self.browser.picture(pathlib.Path(FOLDER) / f"{name}.png")

    def windows(self, shown):
        return [(w, shown if w == "light" else None) for w in WINDOWS if ALL or w == "light"]

    def test_1_the_server(self):
        options = ("--scheduler", "tactus", "--tbt-slo", "120ms", "--max-num-seqs", "12")
        server = ServerProcess(*options, name=NAME)
        self.addCleanup(server.stop)
        self.start(server.url)
        self.chat()
        load = Load(server.url)
        self.addCleanup(load.stop)
        time.sleep(LOAD_S)
        for window in WINDOWS:
            if window != "light" and not ALL:
                continue
            self.open("engine", window)
            self.browser.wait("document.querySelectorAll('#stream-rows tr').length > 2", "streams are shown")
            time.sleep(12)  # the charts fill
            self.save("page_engine" if window == "light" else f"engine_{window}")
            if ALL:
                for part in ("h-tree", "h-classes", "h-server"):
                    self.save(f"engine_{window}_{part}", f"#{part}")
        self.open("engine", "phone")
        self.browser.wait("document.querySelectorAll('#stream-rows tr').length > 2", "streams are shown")
        time.sleep(4)
        self.save("page_phone")
        self.browser.click("#ended-rows button")
        self.browser.wait("document.querySelector('#request-body .timeline span')", "the timeline of the request")
        if ALL:
            self.save("timeline_phone")
        load.stop()
        self.plan()

    def chat(self):
        self.browser.size(*WINDOWS["light"])
        self.browser.open(self.url + "/version")
        self.browser.eval("localStorage.clear()")
        for i, window in enumerate(WINDOWS):
            if window != "light" and not ALL:
                continue
            self.open("chat", window)
            self.browser.wait("document.querySelectorAll('#models label').length > 0", "the models are listed")
            if i == 0:
                self.browser.eval("document.getElementById('max_tokens').value = '160'")
                self.browser.eval("document.getElementById('max_tokens').dispatchEvent(new Event('change'))")
                self.browser.click("#prompt")
                self.browser.type(
                    "Write a Python function that sums the even numbers of a list, and explain it in a list."
                )
                self.browser.press("Enter")
                self.browser.wait("document.querySelector('.answer[aria-busy=\"false\"]')", "the answer is complete")
            self.save("page_chat" if window == "light" else f"chat_{window}")
            if ALL:
                self.browser.click("#open-settings")
                self.save(f"chat_settings_{window}")
                self.browser.click("#close-settings")

    def plan(self):
        for window in WINDOWS:
            if window != "light" and not ALL:
                continue
            self.open("plan", window)
            self.browser.eval("document.getElementById('what-load').value = '2'")
            self.browser.click("#what-form button")
            self.browser.wait("document.querySelector('.compare, #what-answer .error')", "the comparison is shown")
            self.browser.click("#hold-form button")
            self.browser.wait("document.querySelector('.verdict, #hold-answer .error')", "the verdict is shown")
            self.save("page_plan" if window == "light" else f"plan_{window}", "#h-what")
            if ALL:
                self.save(f"plan_{window}_hold", "#h-hold")

    def test_2_a_fleet(self):
        servers = [ServerProcess("--threads", "1", "--max-num-seqs", "4", name=NAME) for _ in range(2)]
        for server in servers:
            self.addCleanup(lambda s=server: s.process.poll() is None and s.stop())
        router = Router([s.url for s in servers], "--slow-start", "0")
        self.addCleanup(router.stop)
        router.await_ready(2)
        self.start(router.url)
        load = Load(router.url)
        self.addCleanup(load.stop)
        for window in WINDOWS:
            if window != "light" and not ALL:
                continue
            self.open("fleet", window)
            self.browser.wait("document.querySelectorAll('#replica-rows tr').length === 2", "the replicas are shown")
            time.sleep(25 if window == "light" else 5)
            self.save("page_fleet" if window == "light" else f"fleet_{window}")


if __name__ == "__main__":
    unittest.main()
