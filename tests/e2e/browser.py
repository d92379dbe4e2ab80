"""A headless Chromium (Debian's package) that a test drives: it opens pages, clicks, types, reads and takes pictures,
over the DevTools protocol on a pipe. Every wait has a limit."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

CHROMIUM = shutil.which("chromium")
LIMIT_S = 150  # of one call or wait; a busy machine draws slowly
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowLeft": (37, "")}
SHIFT = 8


class Browser:
    def __init__(self, width=1280, height=860):
        self.folder = tempfile.TemporaryDirectory()
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={self.folder.name}",
            "--remote-debugging-pipe",
        ]
        # The browser reads commands from descriptor 3 and writes answers to 4.
        redirect = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", redirect, *command],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.changed = threading.Condition()
        self.answers = {}
        self.number = 0
        self.ended = False
        self.requests = []  # URLs of every request of the page
        self.problems = []  # exceptions, errors and violations of the page's policy
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def _read(self):
        rest = b""
        while data := os.read(self.from_read, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                with self.changed:
                    self._take(message)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _take(self, message):
        if "id" in message:
            self.answers[message["id"]] = message
            return
        values = message["params"]
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif message["method"] == "Log.entryAdded" and values["entry"]["level"] == "error":
            # Answers that the page handles, such as 401 before a key, are logged as errors of the network.
            if values["entry"]["source"] != "network":
                self.problems.append(values["entry"]["text"])

    def call(self, method, **values):
        with self.changed:
            self.number += 1
            number = self.number
        message = {"id": number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.answers or self.ended, LIMIT_S):
                raise AssertionError(f"the browser did not answer {method} within {LIMIT_S} s")
            if number not in self.answers:
                raise AssertionError(f"the browser ended during {method}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    # --- The page ---
    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", f"{url} did not load")

    def eval(self, script):
        """The value of an expression; a promise is awaited."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise AssertionError(f"{script}: {details.get('exception', {}).get('description') or details['text']}")
        return done["result"].get("value")

    def wait(self, script, what, limit_s=LIMIT_S):
        """The first true value of an expression; True for an element, which has no value here."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if value := self.eval(f"Promise.resolve({script}).then(v => v instanceof Node ? true : v)"):
                return value
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {limit_s} s; the page: {self.text('body')[:2000]!r}; {self.problems}")

    def text(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector):
        """Clicks in the middle of the first element with this selector, wherever that is."""
        at = self.wait(
            f"""(() => {{
              const node = document.querySelector({json.dumps(selector)});
              if (!node) return null;
              node.scrollIntoView({{block: "nearest", inline: "nearest"}});
              const box = node.getBoundingClientRect();
              return box.width > 0 ? [box.x + box.width / 2, box.y + box.height / 2] : null;
            }})()""",
            f"{selector} is not on the page",
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", buttons=1, clickCount=1)

    def hover(self, selector, across):
        """Moves the pointer over an element, to that share of its width."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        at = self.eval(box)
        x, y = at["x"] + across * at["width"], at["y"] + at["height"] / 2
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, text = KEYS[key]
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": SHIFT if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **values)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    # --- The window ---
    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(timeout=20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(timeout=20)
        self.reader.join(20)
        os.close(self.to_write)
        os.close(self.from_read)
        self.folder.cleanup()
