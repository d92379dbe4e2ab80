"""The server's page in a real browser: chats, the view of the engine, keys, widths and colours. TACTUS_PICTURES names a
folder for pictures of what the tests saw."""

import json
import os
import pathlib
import re
import threading
import unittest
import urllib.request

from browser import CHROMIUM, Browser
from router_process import Router
from server_process import ServerProcess

PICTURES = os.environ.get("TACTUS_PICTURES")
MARKUP = """# Title

Some **bold** text, `code`, and a [link](https://example.com/) beside a [trap](javascript:alert(1)).

<script>document.title = "broken"</script><img src=x onerror="document.title = 'broken'">

- one
  - inner
- two

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>")
```
"""


@unittest.skipUnless(CHROMIUM, "there is no chromium")
class PageCase(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--threads", "1", *cls.OPTIONS, real_model=bool(PICTURES))
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


class ChatTest(PageCase):
    OPTIONS = ("--served-model-name", "second")

    def test_an_answer_streams_and_the_conversation_stays(self):
        self.open_chat(max_tokens="60")
        self.browser.eval(
            """(() => {
              window.lengths = new Set();
              const busy = () => document.querySelector('.answer[aria-busy="true"] .text');
              const look = () => lengths.add(busy()?.innerText.length);
              new MutationObserver(look).observe(document.querySelector("#turns"), {subtree: true, childList: true});
            })()"""
        )
        self.ask("Tell me something")
        self.answered()
        self.assertGreater(self.browser.eval("lengths.size"), 2, "the text of a busy answer grows")
        self.assertEqual(self.browser.text(".bubble"), "Tell me something")
        figures = self.browser.text(".figures")
        self.assertRegex(figures, r"first token .* tokens/s · longest gap .* · \d+ tokens")
        self.assertTrue(self.browser.eval("document.querySelector('.strip').width > 0"), "the gaps are drawn")
        self.assertRegex(self.browser.eval("document.querySelector('.strip').ariaLabel"), "longest gap")
        self.assertEqual(self.browser.eval("document.querySelector('#prompt').value"), "")
        self.picture("chat")
        text = self.browser.text(".answer .text")
        self.open_chat()
        self.browser.open(self.server.url + "/")
        self.browser.wait("document.querySelector('.bubble')", "the conversation is kept")
        self.assertEqual(self.browser.text(".answer .text"), text)
        self.assertEqual(self.browser.text("#chat-list .title"), "Tell me something")

    def test_escape_and_the_button_stop_an_answer(self):
        self.open_chat(max_tokens="1800")
        self.browser.eval(  # a random model may end its answer early
            """(() => {
              const real = window.fetch;
              window.fetch = (path, options) => real(path, !options?.body ? options :
                {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})});
            })()"""
        )
        for number, stop in enumerate((lambda: self.browser.press("Escape"), lambda: self.browser.click("#stop")), 1):
            self.ask("Go on for long")
            self.browser.wait("document.querySelector('.answer[aria-busy=\"true\"] .text')?.innerText", "text has come")
            stop()
            self.answered(number)
            self.browser.wait(
                f"document.querySelectorAll('.figures')[{number - 1}].innerText.includes('stopped')", "it says so"
            )
        self.assertTrue(self.browser.eval("document.querySelector('#stop').hidden"))

    def test_shift_enter_starts_a_line(self):
        self.open_chat(max_tokens="5")
        self.browser.click("#prompt")
        self.browser.type("one")
        self.browser.press("Enter", shift=True)
        self.browser.type("two")
        self.assertEqual(self.browser.eval("document.querySelector('#prompt').value"), "one\ntwo")
        self.browser.press("Enter")
        self.answered()
        self.assertEqual(self.browser.text(".bubble"), "one\ntwo")

    def test_a_message_is_edited_and_an_answer_regenerated(self):
        self.open_chat(max_tokens="5")
        self.ask("first")
        self.answered()
        self.ask("second")
        self.answered(2)
        self.browser.click(".turn:last-child .answer .under button:last-child")
        asked = "performance.getEntriesByType('resource').filter(e => e.name.endsWith('completions')).length"
        self.browser.wait(f"{asked} === 3", "it is asked again")
        self.answered(2)
        self.browser.click(".turn:first-child .question .under button:last-child")
        self.browser.eval("document.querySelector('.question textarea').value = ''")
        self.browser.type("other")
        self.browser.press("Enter")
        self.answered(1)
        messages = "[...document.querySelectorAll('.bubble')].map(b => b.innerText)"
        self.assertEqual(self.browser.eval(messages), ["other"])

    def test_several_models_answer_side_by_side(self):
        self.open_chat(max_tokens="5")
        self.browser.click("#models label:nth-of-type(2) input")
        self.ask("both")
        self.answered(2)
        names = self.browser.eval("[...document.querySelectorAll('.answer .from')].map(h => h.innerText)")
        self.assertEqual(sorted(names), ["second", "test-model"])

    def test_conversations_are_renamed_and_deleted(self):
        self.open_chat(max_tokens="3")
        self.ask("one")
        self.answered()
        self.browser.click("#new-chat")
        self.ask("two")
        self.answered()
        titles = "[...document.querySelectorAll('#chat-list .title')].map(b => b.innerText)"
        self.assertEqual(self.browser.eval(titles), ["two", "one"])
        self.browser.click("#chat-list li:nth-child(2) .title")
        self.browser.wait("document.querySelector('.bubble')?.innerText === 'one'", "the other conversation is open")
        self.browser.click("#chat-list li.current .actions button:first-child")
        self.browser.type("renamed")
        self.browser.press("Enter")
        self.browser.wait(f"{titles}.includes('renamed')", "the new title")
        self.browser.click("#chat-list li.current .actions button:last-child")
        self.browser.click("#chat-list li.current .actions button:last-child")
        self.browser.wait(f"JSON.stringify({titles}) === '[\"two\"]'", "one conversation is left")

    def test_markdown_is_drawn_and_markup_is_text(self):
        figures = {"ttft": 1, "gaps": [1, 2, 3], "tokens": 4}
        answer = {"model": "test-model", "text": MARKUP, "reasoning": "First <b>think</b>.", "state": "stop"}
        answer |= {"error": "", "requestId": None, "figures": figures}
        answer["tools"] = [{"name": "look", "arguments": '{"a": 1}'}]
        turn = {"text": "<i>q</i>", "answers": [answer]}
        chat = {"id": "x", "title": "t", "settings": {}, "models": [], "turns": [turn]}
        self.browser.eval(f"localStorage.setItem('tactus.chat.x', JSON.stringify({json.dumps(chat)}))")
        self.browser.eval("localStorage.setItem('tactus.chats', JSON.stringify([{id: 'x', title: 't', changed: 1}]))")
        self.open_chat()
        self.browser.wait("document.querySelector('.answer')", "the answer")
        for selector, text in (
            (".text h3", "Title"),
            (".text strong", "bold"),
            (".text ul ul li", "inner"),
            (".text tbody td", "1"),
            (".code code", 'print("<b>")'),
            (".code figcaption span", "python"),
            (".bubble", "<i>q</i>"),
            (".fold summary", "Reasoning"),
        ):
            self.assertEqual(self.browser.text(selector), text, selector)
        self.assertIn('<script>document.title = "broken"</script><img', self.browser.text(".text"))
        markup = "document.querySelectorAll('.answer script, .text img, .bubble i, .fold b').length"
        self.assertEqual(self.browser.eval(markup), 0)
        self.assertEqual(self.browser.eval("document.title"), "Tactus")
        links = self.browser.eval("[...document.querySelectorAll('.text a')].map(a => a.href)")
        self.assertEqual(links, ["https://example.com/"], "no link runs a script")
        self.assertEqual(self.browser.eval("document.querySelector('.fold').open"), False)
        self.picture("markdown")

    def script(self, *answers):
        """Answers of the server that the page gets instead, in order; `asked` gets the bodies it sent."""
        lines = [[*[json.dumps({"choices": [{"index": 0, **c}]}) for c in answer], "[DONE]"] for answer in answers]
        self.browser.eval(
            f"""(() => {{
              const answers = {json.dumps(lines)}, real = window.fetch;
              window.asked = [];
              window.fetch = (path, options) => {{
                if (path !== "/v1/chat/completions") return real(path, options);
                asked.push(JSON.parse(options.body));
                const text = answers[asked.length - 1].map((line) => `data: ${{line}}\n\n`).join("");
                return Promise.resolve(new Response(text, {{ headers: {{ "X-Request-Id": "r" }} }}));
              }};
            }})()"""
        )

    def test_parameters_are_sent_and_kept(self):
        wanted = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3, "top_k": 4, "min_p": 0.1}
        wanted |= {"repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": -0.2}
        given = {name: str(value) for name, value in wanted.items()}
        function = {"name": "look", "parameters": {"type": "object"}}
        given |= {"system": "Be short.", "stop_strings": "one\ntwo", "ttft_ms": "900", "tbt_ms": "80"}
        self.open_chat(**given, tools=json.dumps(function))
        self.script([{"delta": {"content": "a"}, "finish_reason": "stop"}], [{"delta": {}, "finish_reason": "stop"}])
        self.ask("hello")
        self.answered()
        body = self.browser.eval("asked[0]")
        self.assertEqual({name: body[name] for name in wanted}, wanted)
        self.assertEqual(body["stop"], ["one", "two"])
        self.assertEqual(body["slo"], {"ttft_ms": 900, "tbt_ms": 80})
        self.assertEqual(body["tools"], [{"type": "function", "function": function}])
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be short."})
        self.open_chat()
        self.assertEqual(self.browser.eval("document.querySelector('#stop_strings').value"), "one\ntwo")
        self.open_chat(tools="{nonsense")
        self.ask("again")
        self.answered(2)
        self.assertIn("no valid JSON", self.browser.text(".turn:last-child .answer .error"))

    def test_reasoning_and_calls_of_tools_are_folded_and_results_go_back(self):
        self.open_chat()
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": '}}
        rest = {"function": {"arguments": '"Oslo"}'}}
        self.script(
            [
                {"delta": {"reasoning_content": "It asks for weather."}},
                {"delta": {"tool_calls": [{"index": 0, **call}]}},
                {"delta": {"tool_calls": [{"index": 0, **rest}]}, "finish_reason": "tool_calls"},
            ],
            [{"delta": {"content": "Cold."}, "finish_reason": "stop"}],
            [{"delta": {"content": "Bye."}, "finish_reason": "stop"}],
        )
        self.ask("How is it in Oslo?")
        self.browser.wait("document.querySelector('.results textarea')", "a field for the result")
        folds = (
            "[...document.querySelectorAll('.answer .fold')].map(f => [f.open, f.querySelector('summary').innerText])"
        )
        self.assertEqual(self.browser.eval(folds), [[False, "Reasoning"], [False, "Tool call: weather"]])
        self.browser.click(".answer .fold:nth-of-type(1) summary")
        self.assertIn("It asks for weather.", self.browser.text(".answer"))
        self.browser.click(".results textarea")
        self.browser.type("4 degrees")
        self.browser.click(".results button")
        self.browser.wait("document.querySelector('.turn:last-child .text')?.innerText === 'Cold.'", "it goes on")
        whole = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        expected = [
            {"role": "user", "content": "How is it in Oslo?"},
            {"role": "assistant", "content": "", "tool_calls": [whole]},
            {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees"},
        ]
        self.assertEqual(self.browser.eval("asked[1].messages"), expected)
        self.ask("Thanks")
        self.browser.wait("document.querySelector('.turn:last-child .text')?.innerText === 'Bye.'", "a third answer")
        expected += [{"role": "assistant", "content": "Cold."}, {"role": "user", "content": "Thanks"}]
        self.assertEqual(self.browser.eval("asked[2].messages"), expected)
        self.assertEqual(self.browser.eval("document.querySelectorAll('.results:not([hidden])').length"), 0)

    def test_the_strip_names_the_gap_under_the_pointer(self):
        self.open_chat(max_tokens="40", tbt_ms="60000")
        self.ask("Go on")
        self.answered()
        self.assertRegex(self.browser.text(".figures"), "0 above 60.00 s")
        self.browser.eval("document.querySelector('.strip').scrollIntoView()")
        self.browser.hover(".strip", 0.004)
        self.browser.wait("/^gap 1: /.test(document.querySelector('.figures').innerText)", "the first gap is named")

    def test_an_error_of_the_server_is_shown(self):
        self.open_chat(temperature="9")
        self.ask("hot")
        self.answered()
        self.assertIn("temperature", self.browser.text(".answer .error"))


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
