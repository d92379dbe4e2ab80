"""A server and a browser for the tests of its page. TACTUS_PICTURES: a folder for pictures of what the tests saw."""

import json
import os
import pathlib
import unittest

from browser import CHROMIUM, Browser
from server_process import ServerProcess

PICTURES = os.environ.get("TACTUS_PICTURES")


@unittest.skipUnless(CHROMIUM, "there is no chromium")
class PageCase(unittest.TestCase):
    OPTIONS = ()
    CONFIG = {}  # of the random model

    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--threads", "1", *cls.OPTIONS, real_model=bool(PICTURES), config=cls.CONFIG)
        cls.addClassCleanup(cls.server.stop)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.size(1280, 860)
        self.browser.scheme("light")
        self.browser.open(self.server.url + "/version")  # of the page's origin, without its scripts
        self.browser.eval("localStorage.clear()")
        self.browser.eval("sessionStorage.clear()")
        self.browser.requests.clear()
        self.browser.problems.clear()

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])
        others = [url for url in self.browser.requests if not url.startswith((self.server.url, "about:"))]
        self.assertEqual(others, [], "the page asks its own server only")

    def picture(self, name):
        if PICTURES:
            self.browser.picture(pathlib.Path(PICTURES) / f"{name}.png")

    def open(self, view="chat"):
        self.browser.open(f"{self.server.url}/#/{view}")

    def open_chat(self, **settings):
        self.open()
        self.browser.wait("document.querySelector('#server').dataset.state === 'ready'", "the server's state is shown")
        self.browser.wait("document.querySelectorAll('#models label').length > 0", "the models are listed")
        for name, value in settings.items():
            self.browser.eval(
                f"""(() => {{
                  const field = document.getElementById({json.dumps(name)});
                  field.value = {json.dumps(value)};
                  field.dispatchEvent(new Event("change"));
                }})()"""
            )

    def ask(self, text):
        self.browser.click("#prompt")
        self.browser.type(text)
        self.browser.press("Enter")

    def answered(self, count=1):
        """Waits for that many complete answers."""
        self.browser.wait(
            f"""document.querySelectorAll('.answer[aria-busy="false"]').length === {count} &&
                document.querySelectorAll('.answer[aria-busy="true"]').length === 0""",
            f"{count} answers are complete",
        )
