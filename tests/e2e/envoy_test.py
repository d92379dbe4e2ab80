"""A real Envoy with deploy/envoy/envoy.yaml, `tactus epp`, and replicas behind them. TACTUS_ENVOY names the program;
otherwise .venv-envoy has it (tests/e2e/requirements_envoy.txt)."""

import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

try:
    from epp_process import EppProcess
except ImportError as error:
    raise unittest.SkipTest(f"no package of tests/requirements.txt: {error}")
from fake_replica import FakeReplica
from server_process import ServerProcess, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy/envoy/envoy.yaml"
ENVOY = os.environ.get("TACTUS_ENVOY") or str(ROOT / ".venv-envoy/bin/envoy")
if not pathlib.Path(ENVOY).exists():
    raise unittest.SkipTest("no Envoy: scripts/test.sh slow installs one, or set TACTUS_ENVOY")
if not pathlib.Path(os.environ["TACTUS_BINARY"] + "-epp").exists():
    raise unittest.SkipTest("this build has no endpoint picker: no gRPC")
LIMIT_S = 60


OVERRIDE_HOST = """\
    - name: replicas
      type: STATIC
      connect_timeout: 5s
      load_assignment:
        cluster_name: replicas
        endpoints:
          - lb_endpoints:ENDPOINTS
      load_balancing_policy:
        policies:
          - typed_extension_config:
              name: envoy.load_balancing_policies.override_host
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
                override_host_sources: [{header: x-gateway-destination-endpoint}]
                fallback_policy:
                  policies:
                    - typed_extension_config:
                        name: envoy.load_balancing_policies.round_robin
                        typed_config:
                          "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
"""


class Envoy:
    """Envoy on free ports, with its configuration edited by `change`."""

    def __init__(self, epp, change=lambda text: text):
        self.folder = tempfile.TemporaryDirectory()
        text = CONFIG.read_text()
        # Both listen on free ports, which they report through a file and the admin port.
        for was, now in (
            ("port_value: 9901", "port_value: 0"),
            ("address: 0.0.0.0, port_value: 8080", "address: 127.0.0.1, port_value: 0"),
            ("port_value: 9002", f"port_value: {epp.ports[0]}"),
        ):
            assert text.count(was) == 1, was
            text = text.replace(was, now)
        config = pathlib.Path(self.folder.name) / "envoy.yaml"
        config.write_text(change(text))
        admin_file = pathlib.Path(self.folder.name) / "admin"
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.process = subprocess.Popen(
            [
                ENVOY,
                "-c",
                str(config),
                "--admin-address-path",
                str(admin_file),
                "--use-dynamic-base-id",
                "--concurrency",
                "1",
                "--log-level",
                "warning",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        try:
            wait_until(
                lambda: self.process.poll() is not None or admin_file.exists() and ":" in admin_file.read_text(),
                "Envoy's admin port",
                LIMIT_S,
            )
            if self.process.poll() is not None:
                raise RuntimeError("Envoy did not start:\n" + self.last_lines())
            self.admin = admin_file.read_text().strip()
            wait_until(lambda: "LIVE" in self.ask_admin("/ready"), "Envoy ready", LIMIT_S)
            listeners = json.loads(self.ask_admin("/listeners?format=json"))["listener_statuses"]
            self.port = listeners[0]["local_address"]["socket_address"]["port_value"]
        except Exception:
            self.stop()
            raise

    def ask_admin(self, path):
        connection = http.client.HTTPConnection(self.admin, timeout=LIMIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    def last_lines(self):
        self.log.flush()
        return "".join(pathlib.Path(self.log.name).read_text().splitlines(keepends=True)[-20:])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)

    def request(self, method, path, body=None, headers=None, **more):
        """(status, parsed body)"""
        connection = self.connect()
        try:
            connection.request(
                method, path, body, dict({"Content-Type": "application/json"}, **(headers or {})), **more
            )
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data[:1] == b"{" else data
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def post(envoy, **fields):
    return envoy.request("POST", "/v1/completions", json.dumps(dict({"model": "m", "prompt": "hello"}, **fields)))


def metrics_of(server):
    """The metrics of a server, fetched directly."""
    connection = http.client.HTTPConnection(server.address, timeout=LIMIT_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


class ConfigTest(unittest.TestCase):
    def test_the_checked_in_configuration_is_valid(self):
        done = subprocess.run(
            [ENVOY, "--mode", "validate", "-c", str(CONFIG)], capture_output=True, text=True, timeout=LIMIT_S
        )
        self.assertEqual(done.returncode, 0, done.stderr)


class EnvoyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.replicas = [FakeReplica("a"), FakeReplica("b")]
        cls.epp = EppProcess(cls.replicas, "--balancer", "round-robin", "--max-body", "2MiB")
        cls.await_ready(cls.epp, cls.replicas)
        cls.envoy = Envoy(cls.epp)

    @classmethod
    def tearDownClass(cls):
        cls.envoy.stop()
        cls.epp.stop()
        for replica in cls.replicas:
            replica.kill()

    @staticmethod
    def await_ready(epp, replicas):
        for replica in replicas:
            epp.await_metric(f'tactus_epp_endpoint_ready{{endpoint="{replica.address}"}}', 1)

    def tearDown(self):
        self.epp.await_metric("tactus_epp_requests_in_flight", 0)
        self.epp.await_metric("tactus_epp_streams", 0)

    def test_gets_and_posts_are_spread(self):
        for send in (lambda: self.envoy.request("GET", "/v1/models"), lambda: post(self.envoy)):
            served = []
            for _ in range(6):
                status, answer = send()
                self.assertEqual(status, 200, answer)
                served.append(answer["served_by"])
            self.assertEqual(sorted(served), ["a"] * 3 + ["b"] * 3, "round-robin")

    def test_bodies_arrive_whole_and_once(self):
        for size in (0, 10, 60_000, 70_000, 500_000, 1_900_000):
            body = json.dumps({"prompt": "x" * size})
            status, answer = self.envoy.request("POST", "/v1/completions", body)
            self.assertEqual((status, answer.get("bytes")), (200, len(body)), answer)

    def test_a_chunked_body(self):
        parts = [b'{"prompt": "'] + [b"word " * 1000] * 40 + [b'"}']
        status, answer = self.envoy.request(
            "POST", "/v1/completions", iter(parts), {"Transfer-Encoding": "chunked"}, encode_chunked=True
        )
        self.assertEqual((status, answer.get("bytes")), (200, sum(map(len, parts))), answer)

    def test_a_client_that_sends_slowly(self):
        body = json.dumps({"prompt": "hello"}).encode()
        connection = self.envoy.connect()
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        for byte in body:
            connection.send(bytes([byte]))
            time.sleep(0.05)
        answer = connection.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())["bytes"]), (200, len(body)))
        connection.close()

    def test_a_stream_comes_event_by_event(self):
        for replica in self.replicas:
            replica.go_on.clear()
        connection = self.envoy.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True, "events": 5}))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertIn(b'"event": 0', answer.readline())  # before the replica sends the other events
        self.assertEqual(self.epp.metric("tactus_epp_requests_in_flight"), 1)
        for replica in self.replicas:
            replica.go_on.set()
        rest = answer.read()
        self.assertEqual(rest.count(b"data: {"), 4)
        self.assertTrue(rest.endswith(b"data: [DONE]\n\n"), rest)
        connection.close()

    def test_a_client_disconnect_ends_its_request(self):
        for replica in self.replicas:
            replica.go_on.clear()
        connection = self.envoy.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True, "events": 100000}))
        answer = connection.getresponse()
        answer.readline()
        self.assertEqual(self.epp.metric("tactus_epp_requests_in_flight"), 1)
        answer.close()
        connection.close()
        self.epp.await_metric("tactus_epp_requests_in_flight", 0)
        for replica in self.replicas:
            replica.go_on.set()

    def test_a_client_cannot_choose_the_endpoint(self):
        served = {
            self.envoy.request(
                "GET", "/v1/models", headers={"x-gateway-destination-endpoint": self.replicas[0].address}
            )[1]["served_by"]
            for _ in range(4)
        }
        self.assertEqual(served, {"a", "b"})

    def test_a_body_beyond_the_limit(self):
        status, answer = self.envoy.request("POST", "/v1/completions", b"x" * (2 << 20 | 1))
        self.assertEqual(status, 413, answer)
        self.assertIn("--max-body", answer["error"]["message"])

    def test_rubbish_gets_the_replicas_400(self):
        status, answer = self.envoy.request("POST", "/v1/completions", b"{")
        self.assertEqual((status, answer["error"]["message"]), (400, "no JSON"))

    def test_many_at_once(self):
        def one(i):
            if i % 2:
                return post(self.envoy, prompt="x" * (i * 37))[0]
            connection = self.envoy.connect()
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
            text = connection.getresponse().read()
            connection.close()
            return 200 if text.endswith(b"data: [DONE]\n\n") and text.count(b"data: {") == 3 else text

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            self.assertEqual(set(pool.map(one, range(400))), {200})


class OtherModesTest(unittest.TestCase):
    def test_every_pair_of_modes(self):
        modes = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED")
        replicas = [FakeReplica("a"), FakeReplica("b")]
        with replicas[0], replicas[1], EppProcess(replicas, "--balancer", "round-robin") as epp:
            EnvoyTest.await_ready(epp, replicas)
            for request, response in itertools.product(modes, modes):

                def change(text):
                    for direction, mode in (("request", request), ("response", response)):
                        was = f"{direction}_body_mode: FULL_DUPLEX_STREAMED"
                        assert text.count(was) == 1
                        text = text.replace(was, f"{direction}_body_mode: {mode}")
                    return text

                with self.subTest(request=request, response=response), Envoy(epp, change) as envoy:
                    answers = [post(envoy, prompt="x" * size) for size in (10, 300_000)] + [
                        envoy.request("GET", "/v1/models")
                    ]
                    self.assertEqual([status for status, _ in answers], [200] * 3, answers)
                    self.assertEqual({answer["served_by"] for _, answer in answers}, {"a", "b"})
                    self.assertGreater(answers[1][1]["bytes"], 300_000)
                    connection = envoy.connect()
                    connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
                    text = connection.getresponse().read()
                    connection.close()
                    self.assertEqual((text.count(b"data: {"), text[-14:]), (3, b"data: [DONE]\n\n"))
                    epp.await_metric("tactus_epp_requests_in_flight", 0)
            # Envoy does not report the end of bodies that it does not forward.
            unseen = 4 * len(modes)
            self.assertEqual(epp.metric('tactus_epp_ended_total{outcome="unseen"}'), unseen)
            self.assertEqual(epp.metric('tactus_epp_ended_total{outcome="completed"}'), 4 * len(modes) ** 2 - unseen)

    def test_envoy_may_ping_as_often_as_it_likes(self):
        """gRPC servers accept two pings without data in five minutes, then close the connection."""

        def change(text):
            assert text.count("{interval: 5s, timeout: 3s}") == 1
            return text.replace("{interval: 5s, timeout: 3s}", "{interval: 0.05s, timeout: 3s}")

        with FakeReplica("a") as replica, EppProcess([replica]) as epp, Envoy(epp, change) as envoy:
            body = json.dumps({"prompt": "hello"}).encode()
            connection = envoy.connect()
            connection.putrequest("POST", "/v1/completions")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body[:5])
            time.sleep(1.5)
            connection.send(body[5:])
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()


class ReplicasThatGoTest(unittest.TestCase):
    def test_a_replica_is_killed(self):
        replicas = [FakeReplica("a"), FakeReplica("b")]
        with replicas[0], replicas[1], EppProcess(replicas, "--balancer", "round-robin") as epp, Envoy(epp) as envoy:
            EnvoyTest.await_ready(epp, replicas)
            streams = []
            for replica in replicas:
                replica.go_on.clear()
            for _ in range(4):
                connection = envoy.connect()
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
                streams.append((connection, connection.getresponse()))
            served = [json.loads(answer.readline()[6:])["served_by"] for _, answer in streams]
            self.assertEqual(sorted(served), ["a", "a", "b", "b"])
            replicas[0].kill()
            replicas[1].go_on.set()
            for (connection, answer), by in zip(streams, served):
                if by == "b":
                    self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
                else:  # an error, not silence
                    with self.assertRaises((http.client.HTTPException, OSError)):
                        answer.read()
                answer.close()
                connection.close()
            epp.await_metric(f'tactus_epp_endpoint_ready{{endpoint="{replicas[0].address}"}}', 0)
            self.assertEqual({post(envoy)[1]["served_by"] for _ in range(6)}, {"b"})
            replicas[1].ready = False
            epp.await_metric(f'tactus_epp_endpoint_ready{{endpoint="{replicas[1].address}"}}', 0)
            status, answer = post(envoy)
            self.assertEqual(status, 503)
            self.assertIn("no replica is ready", answer["error"]["message"])
            epp.await_metric("tactus_epp_requests_in_flight", 0)

    def test_the_next_endpoint_is_tried(self):
        """With Envoy's policy for endpoint lists, and a picker that does not know yet that a replica is gone."""

        def change(text):
            begin, end = text.index("    # To the picker's choice."), text.index("    - name: endpoint_picker\n")
            text = (
                text[:begin]
                + OVERRIDE_HOST.replace(
                    "ENDPOINTS",
                    "".join(
                        "\n              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value:"
                        f" {r.address.split(':')[1]}}}}}}}"
                        for r in replicas
                    ),
                )
                + text[end:]
            )
            return text.replace(
                "timeout: 0s",
                "timeout: 0s\n                            retry_policy: {retry_on: connect-failure, num_retries: 2}",
            )

        replicas = [FakeReplica("a"), FakeReplica("b")]
        with (
            replicas[0],
            replicas[1],
            EppProcess(replicas, "--balancer", "round-robin", "--fallbacks", 1, poll="10m") as epp,
        ):
            EnvoyTest.await_ready(epp, replicas)
            with Envoy(epp, change) as envoy:
                self.assertEqual({post(envoy)[1]["served_by"] for _ in range(4)}, {"a", "b"})
                replicas[0].kill()
                for size in (1, 100_000):
                    body = json.dumps({"prompt": "x" * size})
                    for _ in range(4):
                        status, answer = envoy.request("POST", "/v1/completions", body)
                        self.assertEqual(
                            (status, answer.get("served_by"), answer.get("bytes")), (200, "b", len(body)), answer
                        )

    def test_the_picker_is_gone(self):
        with FakeReplica("a") as replica:
            epp = EppProcess([replica])
            with Envoy(epp) as envoy:
                self.assertEqual(post(envoy)[0], 200)
                epp.stop()
                self.assertIn(post(envoy)[0], (500, 503), "it does not go anywhere else")

    def test_the_picker_hangs(self):
        with FakeReplica("a") as replica, EppProcess([replica]) as epp, Envoy(epp) as envoy:
            self.assertEqual(post(envoy)[0], 200)
            epp.process.send_signal(signal.SIGSTOP)
            try:
                self.assertEqual(post(envoy)[0], 500, "an error in time, not silence")
            finally:
                epp.process.send_signal(signal.SIGCONT)

    def test_real_servers(self):
        servers = [ServerProcess(real_model=False, name="tiny"), ServerProcess(real_model=False, name="tiny")]
        try:
            for server in servers:
                server.address = server.url.removeprefix("http://")
            with EppProcess(servers, "--balancer", "round-robin") as epp, Envoy(epp) as envoy:
                EnvoyTest.await_ready(epp, servers)
                status, answer = envoy.request(
                    "POST",
                    "/v1/completions",
                    json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 5, "ignore_eos": True}),
                )
                self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 5), answer)
                for _ in range(4):
                    connection = envoy.connect()
                    connection.request(
                        "POST",
                        "/v1/chat/completions",
                        json.dumps(
                            {
                                "model": "tiny",
                                "messages": [{"role": "user", "content": "hi"}],
                                "max_tokens": 20,
                                "ignore_eos": True,
                                "stream": True,
                            }
                        ),
                        {"Content-Type": "application/json"},
                    )
                    text = connection.getresponse().read()
                    connection.close()
                    self.assertTrue(text.endswith(b"data: [DONE]\n\n"), text)
                for server in servers:
                    done = re.findall(r"vllm:request_success_total\{.*\} (\d+)", metrics_of(server))
                    self.assertGreater(sum(map(int, done)), 0, "each replica had some")
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    unittest.main()
