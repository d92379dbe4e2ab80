"""`tactus route` in front of real servers: the official client, a replica that is stopped, killed and restarted."""

import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import openai
from fake_endpoint import FakeEndpoint
from router_process import Router
from server_process import ServerProcess, TakenPort, wait_until

MODEL = "test-model"


def client_of(router):
    return openai.OpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0, timeout=60)


def ask(client, text, **options):
    return client.completions.create(
        model=MODEL, prompt=text, max_tokens=16, temperature=0, extra_body={"ignore_eos": True}, **options
    )


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.servers = [ServerProcess(real_model=False) for _ in range(2)]
        self.router = Router(
            [s.url for s in self.servers], "--slow-start", "0", "--dead-after", "2s", "--balancer", "least-outstanding"
        )
        self.client = client_of(self.router)
        self.router.await_ready(2)

    def tearDown(self):
        self.client.close()
        self.assertEqual(self.router.stop(), 0, self.router.last_lines())
        for server in self.servers:
            if server.process.poll() is None:
                server.stop()
            else:
                server._close()

    def test_the_official_client_sees_one_server(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        direct = openai.OpenAI(base_url=self.servers[0].url + "/v1", api_key="none", max_retries=0, timeout=60)
        whole = ask(direct, "to be").choices[0].text
        self.assertEqual(ask(self.client, "to be").choices[0].text, whole)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(
                pool.map(
                    lambda _: "".join(c.choices[0].text for c in ask(self.client, "to be", stream=True) if c.choices),
                    range(64),
                )
            )
        self.assertEqual(set(answers), {whole})
        lines = self.router.get("/metrics")[1].splitlines()
        counts = [
            sum(
                float(line.rsplit(" ", 1)[1])
                for line in lines
                if line.startswith("tactus_route_requests_total{")
                and 'code="200"' in line
                and s.url.removeprefix("http://") in line
            )
            for s in self.servers
        ]
        self.assertGreater(min(counts), 10, "both replicas have work")
        with self.assertRaises(openai.BadRequestError):
            ask(self.client, "x", extra_headers={"x-slo-ttft-ms": "nonsense"})
        direct.close()

    def test_a_killed_replica_loses_no_answer(self):
        killed = self.servers[0]
        outcomes = []

        def one(i):
            try:
                text = "".join(c.choices[0].text for c in ask(self.client, f"request {i}", stream=True) if c.choices)
                outcomes.append("answered" if text else "empty")
            except openai.APIError as error:  # within the stream: it had begun
                outcomes.append("cut off" if "ended within its answer" in str(error) else f"other: {error}")

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(one, i) for i in range(40)]
            wait_until(lambda: len(outcomes) >= 5, "some answers", about=self.router.last_lines)
            killed.process.kill()
            for future in futures:
                future.result(timeout=60)
        self.assertEqual(len(outcomes), 40)
        self.assertEqual(set(outcomes) - {"answered", "cut off"}, set())
        self.router.await_ready(1)
        ask(self.client, "after")

    def test_a_stopped_replica_is_left_out_until_it_resumes(self):
        stopped = self.servers[1]
        stopped.process.send_signal(signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(
                8
            ) as pool:  # requests on that replica are retried elsewhere when it counts as dead
                answers = list(pool.map(lambda i: ask(self.client, f"r {i}").choices[0].text, range(8)))
            self.assertEqual(len(answers), 8)
            self.router.await_ready(1)
        finally:
            stopped.process.send_signal(signal.SIGCONT)
        self.router.await_ready(2)

    def test_replicas_come_and_go(self):
        status, list_ = self.router.post("/fleet/replicas", {"url": self.servers[0].url}, "DELETE")
        self.assertEqual(status, 200, list_)
        self.router.await_ready(1)
        ask(self.client, "with one")
        self.assertEqual(self.router.post("/fleet/replicas", {"url": self.servers[0].url})[0], 200)
        self.router.await_ready(2)
        status, list_ = self.router.post("/fleet/drain", {"url": self.servers[1].url})
        self.assertEqual(status, 200, list_)
        self.assertEqual(self.router.states()[self.servers[1].url], "draining")
        ask(self.client, "with one replica again")


class MigrationTest(unittest.TestCase):
    def test_a_drained_replica_empties_quickly_without_effect_on_streams(self):
        with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
            secret.write("a secret that the fleet shares\n")
            secret.flush()
            os.chmod(secret.name, 0o600)
            slow = {
                "hidden_size": 512,
                "intermediate_size": 2048,
                "num_hidden_layers": 8,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
            }
            servers = [ServerProcess("--kv-secret-file", secret.name, "--threads", "1", config=slow) for _ in range(2)]
            router = Router([s.url for s in servers], "--kv-secret-file", secret.name, "--rebalance-interval", "100ms")
            client = client_of(router)
            try:
                router.await_ready(2)
                # Long enough to be running when the drain starts, with any model.
                length = 1500 if servers[0].real else 1900
                options = {
                    "model": MODEL,
                    "prompt": "Once upon a time",
                    "max_tokens": length,
                    "temperature": 0,
                    "extra_body": {"ignore_eos": True},
                }
                direct = openai.OpenAI(base_url=servers[1].url + "/v1", api_key="none", max_retries=0, timeout=120)
                whole = direct.completions.create(**options).choices[0].text
                direct.close()
                response = client.completions.with_raw_response.create(stream=True, **options)
                at = "http://" + response.headers["x-tactus-replica"]
                stream = iter(response.parse())
                text = "".join(next(stream).choices[0].text for _ in range(5))
                self.assertEqual(router.post("/fleet/drain", {"url": at})[0], 200)
                wait_until(
                    lambda: (
                        router.metric("tactus_route_migrations_total") > 0 or json.loads(self.state(at))["running"] == 0
                    ),
                    "the move",
                    about=router.last_lines,
                )
                text += "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
                self.assertEqual(text, whole)
                self.assertGreaterEqual(
                    router.metric('tactus_route_migrations_total{result="moved"}'), 1, router.last_lines()
                )
                self.assertEqual(json.loads(self.state(at))["running"], 0)
            finally:
                client.close()
                self.assertEqual(router.stop(), 0, router.last_lines())
                for server in servers:
                    server.stop()

    def state(self, url):
        with urllib.request.urlopen(url + "/fleet/state", timeout=30) as answer:
            return answer.read().decode()


class EdgeTest(unittest.TestCase):
    def test_a_server_that_is_no_replica_is_left_out(self):
        with FakeEndpoint(["not http"]) as garbage, TakenPort(listening=False) as closed_port:
            router = Router([garbage, f"http://127.0.0.1:{closed_port}"])
            wait_until(
                lambda: set(router.states().values()) == {"unreachable"},
                "both to be unreachable",
                about=router.last_lines,
            )
            self.assertEqual(router.get("/ready")[0], 503)
            self.assertEqual(router.get("/v1/models")[0], 503)
            self.assertEqual(router.stop(), 0)

    def test_a_wrong_option_is_named(self):
        for args, text in (
            (["--replicas", "nonsense"], "--replicas"),
            (["--balancer", "best"], "unknown balancer 'best'"),
            (["--port", "x"], "--port"),
            (["--replicas-dns", "host"], "HOST:PORT"),
            (["--replicas-file", "/no/such/file"], "--replicas-file: '/no/such/file'"),
            (["--retries", "99"], "retries"),
        ):
            with TakenPort() as port:  # the option is reported first, because another port would not help
                wrong = args if "--port" in args else [*args, "--port", str(port)]
                done = subprocess.run(
                    [os.environ["TACTUS_BINARY"], "route", *wrong], capture_output=True, text=True, timeout=30
                )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(text, done.stderr)
        with TakenPort() as port:
            done = subprocess.run(
                [os.environ["TACTUS_BINARY"], "route", "--port", str(port)], capture_output=True, text=True, timeout=30
            )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("in use", done.stderr)


if __name__ == "__main__":
    unittest.main()
