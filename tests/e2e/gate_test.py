"""The admission gate of the real program: rejected requests and their errors, and objectives that no server can
meet."""

import json
import re
import unittest
import urllib.error
import urllib.request

from server_process import ServerProcess

LONG = [7] * 1500


class GateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(
            "--gate",
            "predict",
            "--slo-class",
            "patient:gate=queue",
            "--slo-class",
            "eager:gate=shed",
            "--threads",
            "1",
            "--json",
            real_model=False,
        )

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "".join(cls.server.lines)
        result = json.loads(cls.server.output)
        assert result["ttft_prediction_error"]["p50"] is not None, result
        assert result["requests"]["failed"] == 0, "a refused request did not fail"

    def post(self, **body):
        body = {"prompt": LONG, "max_tokens": 2, "ignore_eos": True, **body}
        request = urllib.request.Request(
            self.server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["error"], error.headers

    def floor_ms(self):
        status, error, _ = self.post(slo={"tbt_ms": 1e-6})
        self.assertEqual((status, error["param"]), (400, "slo.tbt_ms"))
        return float(re.search(r"the shortest step of this engine takes ([0-9.e+-]+) ms", error["message"])[1])

    def test_impossible_objectives_are_refused_at_once(self):
        # One step with one token fits into this time; a step with 1,500 does not.
        ttft_ms = 2 * self.floor_ms()
        for stream in (False, True):
            status, error, headers = self.post(slo={"ttft_ms": ttft_ms, "class": "eager"}, stream=stream)
            self.assertEqual(status, 503, error)
            self.assertRegex(
                error["message"], r"the first token is predicted [0-9.]+ s after the request came and its objective is"
            )
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)

    def test_requests_with_slack_or_without_objectives_are_served(self):
        ttft_ms = 2 * self.floor_ms()
        for body in (
            {"slo": {"ttft_ms": ttft_ms, "class": "patient"}},
            {"slo": {"ttft_ms": 1e6, "class": "eager"}},
            {},
            {"stream": True},
        ):
            status, text, _ = self.post(**body)
            self.assertEqual(status, 200, body)
            self.assertIn("[DONE]" if body.get("stream") else "completion_tokens", text)
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        counted = [
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("tactus_ttft_measured_to_predicted_count")
        ]
        self.assertGreaterEqual(counted[0], 4)


class FlagsTest(unittest.TestCase):
    def test_errors_of_the_gate_name_the_cause(self):
        for args, why in (
            (["--gate", "closed"], "unknown gate 'closed'; known: none, queue, predict"),
            (["--slo-class", "a:gate=closed"], "gate 'closed' is none of off, queue and shed"),
        ):
            with self.assertRaises(RuntimeError) as refused:
                ServerProcess(*args, real_model=False)
            self.assertIn(why, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
