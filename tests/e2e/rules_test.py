"""Rules that do not end, beside good ones, against the real server: hostile ones are a 400, the others are answered,
and the process that tries rules comes and goes with the server."""

import concurrent.futures
import json
import os
import pathlib
import signal
import unittest
import urllib.error
import urllib.request

from server_process import ServerProcess, wait_until

ENDLESS = "start: A\nA: B & C\n" + "\n".join(
    f"{name}: " + " & ".join(f"/(.{{{count}}})*/" for count in counts)
    for name, counts in (("B", (2, 3, 5, 7, 11, 13)), ("C", (17, 19, 23, 29, 31, 37)))
)
MULTIPLES = 'start: %json {"allOf": [{"type": "integer", "multipleOf": 99991}, {"multipleOf": 99989}]}'


def post(server, body):
    request = urllib.request.Request(
        server.url + "/v1/completions",
        json.dumps({"prompt": "x", "max_tokens": 12, "temperature": 0, **body}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def helpers(server):
    """Started from whichever thread of the server."""
    found = []
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            pass  # the thread has ended
    return found


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


class RulesTest(unittest.TestCase):
    def start(self, *args, **environment):
        server = ServerProcess(*args, real_model=False, environment=environment)
        self.addCleanup(server.stop)
        status, answer = post(server, {"guided_regex": "[ab]{3}"})
        if status == 400 and "get_llguidance" in json.dumps(answer):
            self.skipTest(answer["error"]["message"])
        return server, status, answer

    def test_good_rules_are_answered_beside_hostile_ones(self):
        server, status, answer = self.start()
        self.assertEqual(status, 200, answer)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            hostile = [pool.submit(post, server, {"guided_grammar": ENDLESS + "\n" * i}) for i in range(6)]
            for i in range(6):
                status, answer = post(server, {"guided_regex": f"[ab]{{{i + 1}}}"})
                self.assertEqual(status, 200, answer)
                self.assertRegex(answer["choices"][0]["text"], f"^[ab]{{{i + 1}}}$")
                status, answer = post(server, {})
                self.assertEqual(status, 200, answer)
            for future in hostile:
                status, answer = future.result()
                # All places may have been taken for as long as a request waits for one.
                self.assertIn(status, (400, 503), answer)
                self.assertRegex(answer["error"]["message"], "guided_grammar: lark: (compiling it|other rules)")
        status, answer = post(server, {"guided_grammar": MULTIPLES})
        self.assertEqual(status, 400, answer)
        self.assertIn("remainders", answer["error"]["message"])
        [helper] = helpers(server)
        wait_until(lambda: not children(helper), "the trials end")

    def test_the_helper_is_started_again_and_ends_with_the_server(self):
        server, status, answer = self.start()
        self.assertEqual(status, 200, answer)
        [helper] = helpers(server)
        os.kill(helper, signal.SIGKILL)
        status, answer = post(server, {"guided_regex": "[ab]{4}"})
        self.assertEqual(status, 200, answer)
        [other] = helpers(server)
        self.assertNotEqual(helper, other)
        self.assertEqual(server.stop(), 0)
        wait_until(lambda: gone(other), "the helper ends with the server")

    def test_a_server_that_is_killed_leaves_no_helper(self):
        server, status, answer = self.start()
        self.assertEqual(status, 200, answer)
        [helper] = helpers(server)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lost = pool.submit(post, server, {"guided_grammar": ENDLESS})
            trials = wait_until(lambda: children(helper), "the trial begins")
            server.process.kill()
            with self.assertRaises(OSError):
                lost.result()
        wait_until(lambda: gone(helper) and all(gone(trial) for trial in trials), "the helper ends with the server")

    def test_without_its_helper_a_rule_is_refused_and_all_else_answered(self):
        server, status, answer = self.start(TACTUS_GRAMMAR_HELPER="/nowhere/tactus-grammar")
        self.assertEqual(status, 503, answer)
        self.assertIn("/nowhere/tactus-grammar", answer["error"]["message"])
        self.assertIn("scripts/build.sh", answer["error"]["message"])
        status, answer = post(server, {})
        self.assertEqual(status, 200, answer)

    def test_choices_of_a_large_rule_that_have_no_room_are_refused(self):
        server, status, answer = self.start("--max-num-seqs", "256")
        self.assertEqual(status, 200, answer)
        rule = {"type": "integer", "multipleOf": 9973}
        statuses = [post(server, {"guided_json": rule, "n": n, "temperature": 1})[0] for n in (1, 128)]
        self.assertEqual(statuses[0], 200)
        self.assertIn(statuses[1], (200, 400, 503))
        self.assertEqual(post(server, {"guided_regex": "[ab]{5}"})[0], 200)
