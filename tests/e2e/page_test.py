"""The server's page in a real browser: the views of the engine and of a fleet, questions, keys, widths and colours."""

import json
import pathlib
import re
import threading
import unittest
import urllib.request

from browser import Browser
from page_case import PageCase
from router_process import Router
from server_process import ServerProcess


class EngineTest(PageCase):
    OPTIONS = (
        "--scheduler",
        "sarathi-serve",
        "--tbt-slo",
        "none",
        "--served-model-name",
        '<b>"&"</b>',
    )  # no step times: every objective is accepted

    def load(self, requests=4, tokens=400):
        """Starts requests, each with an objective, and returns their threads."""

        def complete(i):
            body = {"prompt": "word " * (20 + 60 * i), "max_tokens": tokens, "ignore_eos": True}
            body["slo"] = {"class": f"class-{i % 2}", "ttft_ms": 0.001, "tbt_ms": 5000}
            headers = {"Content-Type": "application/json", "X-Request-Id": f"load-{i}"}
            request = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(), headers)
            urllib.request.urlopen(request, timeout=200).read()

        threads = [threading.Thread(target=complete, args=(i,), daemon=True) for i in range(requests)]
        for thread in threads:
            thread.start()
            self.addCleanup(thread.join, 200)
        return threads

    def test_the_engine_is_shown_while_it_runs(self):
        self.open("engine")
        self.browser.wait("document.querySelector('#tiles').childElementCount > 0", "the first frame is drawn")
        threads = self.load()
        self.browser.wait("/step \\d+: /.test(document.querySelector('#steps-now').innerText)", "a step is shown")
        self.browser.wait("document.querySelectorAll('#stream-rows tr').length > 0", "a stream is shown")
        self.picture("engine")
        drawn = """(() => { const c = document.querySelector('#steps');
          return c.getContext('2d').getImageData(c.width - 40, 0, 40, c.height).data.some(v => v > 0); })()"""
        self.assertTrue(self.browser.eval(drawn), "the chart of steps is empty")
        for thread in threads:
            thread.join(200)
        self.browser.wait("document.querySelectorAll('#ended-rows tr').length === 4", "the ended requests are shown")
        classes = "document.querySelector('#classes').innerText"
        self.browser.wait(f"{classes}.includes('class-1')", "the classes are shown")
        row = "[...document.querySelectorAll('#classes tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"
        kept = "[...document.querySelectorAll('#classes thead th')].map(c => c.innerText)"
        self.assertEqual(
            self.browser.eval(kept),
            ["class", "requests", "all objectives", "first token", "longest gap", "single gaps"],
        )
        whole = [[f"class-{i}", "2", "0 %", "0 %", "100 %", "100 %"] for i in range(2)]
        self.browser.wait(
            f"JSON.stringify({row}) === JSON.stringify({json.dumps(whole)})", "each class has two requests"
        )
        self.browser.wait("/ttft: /.test(document.querySelector('#causes').innerText)", "the misses are shown by cause")
        counts = self.browser.eval("[...document.querySelectorAll('#causes .num')].map(c => Number(c.innerText))")
        self.assertEqual(sum(counts), 4, "each request has missed its time to the first token")
        self.browser.eval("document.querySelector('#steps').focus()")
        newest = self.browser.text("#steps-now")
        for _ in range(3):
            self.browser.press("ArrowLeft")
        self.browser.wait(
            f"document.querySelector('#steps-now').innerText !== {json.dumps(newest)}", "an arrow key goes to a step"
        )
        described = self.browser.eval("document.querySelector('#steps').ariaLabel")
        self.assertIn(self.browser.text("#steps-now").split(": ")[1], described, "and it is read out")
        self.browser.click("#ended-rows button")
        self.browser.wait("document.querySelector('#request-body .timeline span')", "the timeline of the request")
        self.assertRegex(self.browser.text("#h-request"), "load-")
        self.assertRegex(self.browser.text("#request-body"), "(?s)prefill.*ttft objective\\s+.*missed")
        self.picture("request")
        self.browser.press("Escape")
        self.browser.wait("!document.querySelector('#request-dialog').open", "Escape closes the dialog")

    def test_the_servers_facts_are_shown(self):
        self.open("engine")
        facts = "document.querySelector('#server-facts').innerText"
        self.browser.wait(f"{facts}.includes('scheduler')", "the facts about the server are shown")
        for fact in ('test-model, <b>"&"</b>', "sarathi-serve", "2048 tokens", "llama", "blocks of 16 tokens"):
            self.assertIn(fact, self.browser.eval(facts))
        self.assertEqual(self.browser.eval("document.querySelectorAll('#server-facts b').length"), 0)
        links = self.browser.eval("[...document.querySelectorAll('.links a')].map(a => a.getAttribute('href'))")
        for link in links:
            with urllib.request.urlopen(self.server.url + link, timeout=60) as answer:
                self.assertEqual(answer.status, 200, link)
        self.assertEqual(len(links), 6)

    def test_the_prefix_tree_shows_what_prompts_share(self):
        for i in range(3):
            body = {"prompt": "shared " * 60 + f"own {i} " * 40, "max_tokens": 2, "ignore_eos": True}
            request = urllib.request.Request(
                self.server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=200).read()
        self.open("engine")
        self.browser.wait("document.querySelector('#tiles').childElementCount > 0", "the first frame is drawn")
        self.load(1)
        text = "document.querySelector('#tree-now').innerText"
        self.browser.wait(f"/^[0-9.k ]+ blocks, /.test({text})", "the size of the tree")

    def test_the_chat_view_is_no_viewer(self):
        self.open("engine")
        self.browser.wait("document.querySelector('#tiles').childElementCount > 0", "the first frame is drawn")
        self.browser.click("#tab-chat")
        self.browser.wait("!document.querySelector('#chat').hidden", "the chat is shown")
        count = "tactus_http_exchanges"
        self.browser.wait(
            f"fetch('/metrics').then(r => r.text()).then(t => /^{count} 1$/m.test(t))", "the stream of events is closed"
        )

    def test_a_phone_needs_no_horizontal_scroll(self):
        self.browser.size(390, 844, phone=True)
        for view in ("chat", "engine", "plan"):
            self.open(view)
            self.browser.wait(f"!document.querySelector('#{view}').hidden", f"{view} is shown")
            self.picture(f"phone_{view}")
            wide = """[...document.querySelectorAll('body *')]
              .filter(e => !e.closest('.scroll, .hidden, .chats, .skip'))
              .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
              .map(e => e.outerHTML.slice(0, 80))"""
            self.assertEqual(self.browser.eval(wide), [], view)
            self.assertLessEqual(self.browser.eval("document.documentElement.scrollWidth"), 390, view)
        self.open("chat")
        self.browser.click("#open-settings")
        self.assertLessEqual(self.browser.eval("document.documentElement.scrollWidth"), 390, "with the parameters open")
        self.browser.click("#close-settings")
        self.browser.click("#open-chats")
        self.browser.wait("document.querySelector('#chats').getBoundingClientRect().left >= 0", "the list slides in")

    def test_light_and_dark_follow_the_system(self):
        colours = []
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.open("engine")
            colours.append(self.browser.eval("getComputedStyle(document.body).backgroundColor"))
            self.picture(f"engine_{scheme}")
        self.assertEqual(colours, ["rgb(246, 246, 244)", "rgb(19, 21, 24)"])

    def test_the_keyboard_reaches_every_control(self):
        self.open("chat")
        reached = set()
        for _ in range(12):
            self.browser.press("Tab")
            reached.add(self.browser.eval("document.activeElement.id || document.activeElement.className"))
        self.assertLessEqual({"skip", "tab-chat", "tab-engine", "open-key", "new-chat", "prompt", "send"}, reached)
        unnamed = """[...document.querySelectorAll('button, input, textarea, a')].filter(e =>
          !(e.ariaLabel || e.innerText?.trim() || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"""
        self.assertEqual(self.browser.eval(unnamed), [], "every control has a name")


class PlanTest(PageCase):
    OPTIONS = ("--scheduler", "tactus", "--tbt-slo", "200ms")

    def answer_some(self):
        def complete(i):
            body = {"prompt": "word " * (30 + 20 * i), "max_tokens": 30, "ignore_eos": True, "slo": {"ttft_ms": 60_000}}
            request = urllib.request.Request(
                self.server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=200).read()

        for i in range(6):
            complete(i)

    def test_1_without_requests_the_reason_is_shown(self):
        self.open("plan")
        self.browser.click("#what-form button")
        self.browser.wait("document.querySelector('#what-answer .error')", "an error is shown")
        self.assertIn("no request has ended in the last ten minutes", self.browser.text("#what-answer"))

    def test_2_other_settings_are_compared_with_what_happened(self):
        self.answer_some()
        self.open("plan")
        self.browser.click("#what-scheduler")
        self.browser.type("orca")
        self.browser.press("Enter")
        self.browser.wait("document.querySelector('.compare')", "the comparison is shown")
        row = "[...document.querySelectorAll('.compare tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
        rows = {cells[0]: cells[1:] for cells in self.browser.eval(row)}
        self.assertEqual(rows["requests answered"], ["6", "6", "6"])
        self.assertRegex(rows["first token, median"][0], r"\d m?s$")
        command = self.browser.text("#what-answer .command code")
        self.assertIn("--scheduler=orca", command)
        self.assertIn("tactus sim ", command)
        self.picture("plan")

    def test_3_the_load_that_the_machine_holds(self):
        self.open("plan")
        self.browser.eval(
            """(() => { const like = document.getElementById("hold-like"); like.value = "lengths";
                 like.dispatchEvent(new Event("change")); })()"""
        )
        self.browser.click("#hold-rate")
        self.browser.type("0.02")
        self.browser.click("#hold-form button")
        self.browser.wait("document.querySelector('#hold-answer .verdict')", "the verdict is shown")
        self.assertEqual(self.browser.text("#hold-answer .verdict"), "Yes, this machine holds it.")
        self.assertRegex(
            self.browser.text("#hold-answer"),
            r"It holds [\d.]+ requests/s (\([\d.]+ to [\d.]+|and more)",
            "a range, or more than twenty times the rate",
        )

    def test_4_an_unknown_scheduler_is_refused_with_its_name(self):
        self.answer_some()
        self.open("plan")
        self.browser.click("#what-scheduler")
        self.browser.type("no-such")
        self.browser.press("Enter")
        self.browser.wait("document.querySelector('#what-answer .error')", "an error is shown")
        self.assertIn("no-such", self.browser.text("#what-answer"))


class KeyTest(PageCase):
    OPTIONS = ("--api-key", "right")

    def test_the_button_for_the_key_shares_the_dialog_of_requests(self):
        self.open()
        opened = "document.querySelector('#key-dialog').open"
        self.browser.wait(opened, "the page asks for a key")
        self.browser.eval("document.querySelector('#open-key').click()")  # a second dialog would be an exception
        self.assertIn("asks for a key", self.browser.eval("document.querySelector('#key-why').innerText"))
        self.browser.click("#key-cancel")
        self.browser.wait(f"!{opened}", "the dialog is closed")
        self.browser.click("#open-key")
        self.browser.wait(opened, "the button opens the dialog again")
        self.assertIn("No key is set", self.browser.eval("document.querySelector('#key-why').innerText"))

    def test_a_key_is_asked_for_and_used(self):
        self.open()
        self.browser.wait("document.querySelector('#key-dialog').open", "the page asks for a key")
        self.picture("key")
        self.browser.click("#key")
        self.browser.type("wrong")
        self.browser.press("Enter")
        why = "document.querySelector('#key-why').innerText"
        self.browser.wait(f"{why}.includes('does not know')", "a wrong key is refused")
        self.browser.click("#key")
        self.browser.type("right")
        self.browser.press("Enter")
        model = "document.querySelector('#server-text').innerText"
        self.browser.wait(f"{model} === 'test-model'", "the right key works")
        kept = self.browser.eval("localStorage.getItem('tactus.key')")
        self.assertIsNone(kept, "a key is kept if the user asks for that")
        self.browser.click("#tab-engine")
        self.browser.wait("document.querySelector('#tiles').childElementCount > 0", "the engine is shown with the key")


class FleetTest(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.replicas = [ServerProcess("--threads", "1", real_model=False) for _ in range(2)]
        for replica in cls.replicas:
            cls.addClassCleanup(lambda r=replica: r.process.poll() is None and r.stop())
        cls.server = Router([r.url for r in cls.replicas], "--slow-start", "0", "--dead-after", "1s")
        cls.addClassCleanup(cls.server.stop)
        cls.server.await_ready(2)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def test_1_a_chat_goes_through_the_router(self):
        self.open_chat(max_tokens="5")
        self.ask("hello")
        self.answered()
        self.assertEqual(self.browser.text(".answer .from"), "test-model")
        tabs = "[...document.querySelectorAll('.tabs a')].filter(a => !a.hidden).map(a => a.innerText)"
        self.assertEqual(self.browser.eval(tabs), ["Chat", "Fleet"])

    def test_2_the_replicas_are_shown_as_they_change(self):
        self.open("fleet")
        rows = "[...document.querySelectorAll('#replica-rows tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"
        self.browser.wait(f"{rows}.length === 2", "both replicas are shown")
        self.assertEqual(
            sorted(cells[0] for cells in self.browser.eval(rows)),
            sorted(r.url.removeprefix("http://") for r in self.replicas),
        )
        body = json.dumps({"prompt": "hello", "max_tokens": 4}).encode()
        for _ in range(3):
            request = urllib.request.Request(
                self.server.url + "/v1/completions", body, {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=200).read()
        self.browser.wait(f"{rows}.reduce((sum, cells) => sum + Number(cells[7]), 0) >= 3", "the requests are counted")
        self.picture("fleet")
        self.replicas[1].process.kill()
        self.browser.wait(f"{rows}.some(cells => cells[1].startsWith('unreachable'))", "the lost replica is shown")
        self.assertIn("1 of 2", self.browser.text("#fleet-tiles"))


class SizeTest(unittest.TestCase):
    def test_the_offered_schedulers_exist(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        offered = re.findall(
            r'<option value="([a-z0-9-]+)">', (root / "web/index.html").read_text().split("datalist")[1]
        )
        presets = re.findall(r'PRESET\("([a-z0-9-]+)"', (root / "src/core/sched/presets.def").read_text())
        self.assertIn("tactus", offered)
        self.assertLessEqual(set(offered), set(presets))

    def test_the_page_is_small(self):
        files = list((pathlib.Path(__file__).resolve().parents[2] / "web").iterdir())
        self.assertLess(sum(file.stat().st_size for file in files), 300_000)
        for file in files:
            for word in ("http://", "https://", "innerHTML", "eval(", "insertAdjacent", "document.write"):
                if file.suffix == ".svg" or (file.name, word) == ("markdown.js", "https://"):
                    continue
                self.assertNotIn(word, file.read_text(), f"{file.name} must not have {word}")


if __name__ == "__main__":
    unittest.main()
