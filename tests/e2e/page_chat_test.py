"""The chat of the server's page in a real browser."""

import json
import unittest

from page_case import PageCase

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


class ChatTest(PageCase):
    OPTIONS = ("--served-model-name", "second")
    CONFIG = {"max_position_embeddings": 1 << 16}  # an answer that is stopped must last, also before a slow browser

    def never_end(self):
        """A random model may end its answer early."""
        self.browser.eval(
            """(() => {
              const real = window.fetch;
              window.fetch = (path, options) => real(path, !options?.body ? options :
                {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})});
            })()"""
        )

    def test_an_answer_streams_and_the_conversation_stays(self):
        self.open_chat(max_tokens="4000")
        self.never_end()
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
        self.open_chat(max_tokens="50000")
        self.never_end()
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


if __name__ == "__main__":
    unittest.main()
