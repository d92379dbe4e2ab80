"""`tactus epp` as a data plane uses it: every body mode, subsets, rejections, health, metrics, the command line."""

import asyncio
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    import grpc
    from epp_process import (
        DESTINATION,
        GET,
        LIMIT_S,
        POST,
        EppProcess,
        Mode,
        destination,
        header_map,
        messages,
        metadata,
        services,
        subset,
    )
except ImportError as error:
    raise unittest.SkipTest(f"no package of tests/requirements.txt: {error}")
from fake_replica import FakeReplica
from server_process import TakenPort, wait_until

TACTUS = os.environ["TACTUS_BINARY"]
if not pathlib.Path(TACTUS + "-epp").exists():
    raise unittest.SkipTest("this build has no endpoint picker: no gRPC")
BODY = json.dumps({"model": "m", "prompt": "hello"}).encode()
FULL = Mode.FULL_DUPLEX_STREAMED


def run(*args, **kwargs):
    return subprocess.run([TACTUS, "epp", *map(str, args)], capture_output=True, text=True, timeout=60, **kwargs)


def pieces(conversation, kind="request_body"):
    """The body as forwarded by the picker, up to its end."""
    data = b""
    while True:
        streamed = getattr(conversation.receive(kind), kind).response.body_mutation.streamed_response
        data += streamed.body
        if streamed.end_of_stream:
            return data


class EppTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.replicas = [FakeReplica(f"r{i}") for i in range(3)]
        cls.epp = EppProcess(
            cls.replicas, "--balancer", "round-robin", "--max-body", "300000", "--max-body-total", "400000"
        )
        wait_until(
            lambda: all(
                cls.epp.metric(f'tactus_epp_endpoint_ready{{endpoint="{r.address}"}}') == 1 for r in cls.replicas
            ),
            "all ready",
        )

    @classmethod
    def tearDownClass(cls):
        try:
            assert cls.epp.stop() == 0, cls.epp.lines
        finally:
            for replica in cls.replicas:
                replica.kill()

    def setUp(self):
        self.open = []

    def tearDown(self):
        for conversation in self.open:
            conversation.cancel()
        for gauge in ("tactus_epp_streams", "tactus_epp_requests_in_flight", "tactus_epp_body_bytes"):
            self.epp.await_metric(gauge, 0)

    def conversation(self, **modes):
        self.open.append(self.epp.conversation(**modes))
        return self.open[-1]

    def addresses(self):
        return {r.address for r in self.replicas}

    def assert_refused(self, conversation, status):
        refusal = conversation.receive("immediate_response").immediate_response
        self.assertEqual(refusal.status.code, status)
        self.assertIn("message", json.loads(refusal.body)["error"])
        headers = {h.header.key: h.header.raw_value for h in refusal.headers.set_headers}
        self.assertEqual(headers["content-type"], b"application/json")
        conversation.expect_end(by_picker=True)

    def finish(self, conversation):
        conversation.response_headers()
        conversation.receive("response_headers")
        conversation.response_body(b'{"usage": {"completion_tokens": 5}}', end=True)
        self.assertEqual(pieces(conversation, "response_body"), b'{"usage": {"completion_tokens": 5}}')
        conversation.expect_end()

    # Requests.

    def test_a_get_is_routed_by_its_headers(self):
        seen = set()
        for _ in range(6):
            conversation = self.conversation()
            conversation.headers(GET, end=True)
            seen.add(destination(conversation.receive("request_headers")))
            self.finish(conversation)
        self.assertEqual(seen, self.addresses())

    def test_full_duplex_in_many_pieces(self):
        body = json.dumps({"model": "m", "prompt": "word " * 40000}).encode()
        conversation = self.conversation()
        conversation.headers()
        for at in range(0, len(body), 1000):
            conversation.body(body[at : at + 1000], end=at + 1000 >= len(body))
        self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
        self.assertEqual(pieces(conversation), body)
        self.finish(conversation)

    def test_full_duplex_whose_end_is_an_empty_piece(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(BODY)
        conversation.body(b"", end=True)
        self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
        self.assertEqual(pieces(conversation), BODY)
        self.finish(conversation)

    def test_full_duplex_with_trailers_keeps_the_order(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(BODY)
        conversation.trailers()
        self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
        streamed = conversation.receive("request_body").request_body.response.body_mutation.streamed_response
        self.assertEqual((streamed.body, streamed.end_of_stream), (BODY, False))
        conversation.receive("request_trailers")
        conversation.response_headers()
        conversation.receive("response_headers")
        conversation.response_body(b"{}")
        conversation.receive("response_body")
        conversation.response_trailers()
        conversation.receive("response_trailers")
        conversation.expect_end()

    def test_nothing_is_answered_before_the_bodys_end(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(BODY[:5])
        self.epp.await_metric("tactus_epp_body_bytes", 5)  # it has arrived
        self.assertEqual(self.epp.metric("tactus_epp_requests_in_flight"), 0)
        conversation.body(BODY[5:], end=True)
        conversation.receive("request_headers")
        self.assertEqual(pieces(conversation), BODY)

    def test_the_last_piece_sent_twice(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(BODY, end=True)
        conversation.body(BODY, end=True)
        conversation.receive("request_headers")
        self.assertEqual(pieces(conversation), BODY)
        self.finish(conversation)

    def test_full_duplex_is_the_default_mode(self):
        conversation = self.conversation(tell_modes=False)
        conversation.headers()
        conversation.body(BODY, end=True)
        self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
        self.assertEqual(pieces(conversation), BODY)

    def test_buffered(self):
        conversation = self.conversation(request=Mode.BUFFERED, response=Mode.BUFFERED)
        conversation.headers()
        self.assertIsNone(destination(conversation.receive("request_headers")))
        conversation.body(BODY, end=True)
        message = conversation.receive("request_body")
        self.assertIn(destination(message), self.addresses())
        self.assertFalse(message.request_body.response.HasField("body_mutation"))
        conversation.response_headers()
        conversation.receive("response_headers")
        conversation.response_body(b"{}", end=True)
        self.assertFalse(conversation.receive("response_body").response_body.response.HasField("body_mutation"))
        conversation.expect_end()

    def test_streamed_and_partial_and_none(self):
        for mode in (Mode.STREAMED, Mode.BUFFERED_PARTIAL, Mode.NONE):
            conversation = self.conversation(request=mode, response=Mode.STREAMED)
            conversation.headers(POST + [("content-length", str(len(BODY)))])
            self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
            for end in (False, True) if mode != Mode.NONE else ():
                conversation.body(BODY, end=end)
                message = conversation.receive("request_body")
                self.assertFalse(message.request_body.response.HasField("body_mutation"))
            conversation.response_headers()
            conversation.receive("response_headers")
            conversation.response_body(b"{}", end=True)
            conversation.receive("response_body")
            conversation.expect_end()

    def test_observers_are_not_answered(self):
        conversation = self.conversation()
        conversation.headers(GET, end=True, observability_mode=True)
        conversation.response_headers(end=True, observability_mode=True)
        conversation.expect_end()

    def test_malformed_bodies_are_left_to_the_replica(self):
        for rubbish in (b"{", b"\x00\xff" * 50, b"[" * 5000):
            conversation = self.conversation()
            conversation.headers()
            conversation.body(rubbish, end=True)
            self.assertIn(destination(conversation.receive("request_headers")), self.addresses())
            self.assertEqual(pieces(conversation), rubbish)

    # Subsets.

    def test_only_the_subset_is_picked(self):
        last = self.replicas[2].address
        for hint in ([last], [last, "10.1.2.3:80"], last, "10.1.2.3:80," + last):
            for _ in range(2):
                conversation = self.conversation()
                conversation.headers(GET, end=True, metadata_context=subset(hint))
                self.assertEqual(destination(conversation.receive("request_headers")), last, hint)

    def test_a_subset_without_any_replica_is_503(self):
        for hint in ([], ["10.1.2.3:80"], "", 5, ["127.0.0.1:1"]):
            conversation = self.conversation()
            conversation.headers(GET, end=True, metadata_context=subset(hint))
            self.assert_refused(conversation, 503)

    def test_other_metadata_is_no_subset(self):
        conversation = self.conversation()
        conversation.headers(GET, end=True, metadata_context=metadata("envoy.lb", "other", "x"))
        self.assertIn(destination(conversation.receive("request_headers")), self.addresses())

    # Limits.

    def test_a_body_beyond_the_limit_is_413(self):
        stated = self.conversation()
        stated.headers(POST + [("content-length", "300001")])
        self.assert_refused(stated, 413)
        sent = self.conversation()
        sent.headers()
        for _ in range(4):
            sent.body(b"x" * 80000)
        self.assert_refused(sent, 413)
        whole = self.conversation(request=Mode.BUFFERED)
        whole.headers()
        whole.receive("request_headers")
        whole.body(b"x" * 300001, end=True)
        self.assert_refused(whole, 413)

    def test_bodies_beyond_the_limit_together_are_503(self):
        first = self.conversation()
        first.headers()
        first.body(b"x" * 250000)
        self.epp.await_metric("tactus_epp_body_bytes", 250000)
        second = self.conversation()
        second.headers()
        second.body(b"x" * 200000)
        self.assert_refused(second, 503)

    def test_a_forwarded_body_releases_its_memory(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(b"x" * 250000)
        self.epp.await_metric("tactus_epp_body_bytes", 250000)
        conversation.body(b"x", end=True)
        conversation.receive("request_headers")
        pieces(conversation)
        self.epp.await_metric("tactus_epp_body_bytes", 0)  # although the replica has not answered
        conversation.response_headers(end=True)
        conversation.receive("response_headers")
        conversation.expect_end()

    # Responses and ends.

    def test_a_stream_passes_piece_by_piece(self):
        conversation = self.conversation()
        conversation.headers()
        conversation.body(BODY, end=True)
        conversation.receive("request_headers")
        pieces(conversation)
        conversation.response_headers(content_type="text/event-stream")
        conversation.receive("response_headers")
        for i in range(20):
            conversation.response_body(b"data: %d\n\n" % i)
            streamed = conversation.receive("response_body").response_body.response.body_mutation.streamed_response
            self.assertEqual((streamed.body, streamed.end_of_stream), (b"data: %d\n\n" % i, False))
        self.assertEqual(self.epp.metric("tactus_epp_requests_in_flight"), 1)
        conversation.response_body(b"", end=True)
        self.assertEqual(pieces(conversation, "response_body"), b"")
        self.epp.await_metric("tactus_epp_requests_in_flight", 0)
        conversation.expect_end()

    def test_a_client_disconnect_frees_its_slot(self):
        aborted = self.epp.metric('tactus_epp_ended_total{outcome="aborted"}')
        conversation = self.conversation()
        conversation.headers(GET, end=True)
        conversation.receive("request_headers")
        conversation.response_headers(content_type="text/event-stream")
        conversation.receive("response_headers")
        self.assertEqual(self.epp.metric("tactus_epp_requests_in_flight"), 1)
        conversation.cancel()
        self.epp.await_metric("tactus_epp_requests_in_flight", 0)
        self.assertEqual(self.epp.metric('tactus_epp_ended_total{outcome="aborted"}'), aborted + 1)

    def test_the_endpoint_that_served_is_the_one_that_counts(self):
        moved = self.epp.metric("tactus_epp_moved_total")
        conversation = self.conversation()
        conversation.headers(GET, end=True)
        chosen = destination(conversation.receive("request_headers"))
        other = next(a for a in sorted(self.addresses()) if a != chosen)
        conversation.response_headers(metadata_context=metadata("envoy.lb", DESTINATION + "-served", other))
        conversation.receive("response_headers")
        self.assertEqual(self.epp.metric("tactus_epp_moved_total"), moved + 1)
        conversation.response_body(b"{}", end=True)
        pieces(conversation, "response_body")
        conversation.expect_end()

    def test_thousands_of_streams_at_once(self):
        count = 2000
        first = [
            messages.ProcessingRequest(
                request_headers=messages.HttpHeaders(headers=header_map(POST)),
                protocol_config=messages.ProtocolConfiguration(request_body_mode=FULL, response_body_mode=FULL),
            ),
            messages.ProcessingRequest(request_body=messages.HttpBody(body=BODY, end_of_stream=True)),
        ]
        last = messages.ProcessingRequest(
            response_headers=messages.HttpHeaders(headers=header_map([(":status", "200")]), end_of_stream=True)
        )
        routed = []

        async def one(stub, all_routed):
            call = stub.Process(timeout=LIMIT_S)
            for message in first:
                await call.write(message)
            routed.append(destination(await call.read()))
            body = (await call.read()).request_body.response.body_mutation.streamed_response
            await all_routed.wait()
            await call.write(last)
            ended = (await call.read()).WhichOneof("response")
            await call.done_writing()
            return (body.body, body.end_of_stream, ended, await call.read() is grpc.aio.EOF)

        async def everything():
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.epp.ports[0]}") as channel:
                stub, all_routed = services.ExternalProcessorStub(channel), asyncio.Event()
                calls = [asyncio.create_task(one(stub, all_routed)) for _ in range(count)]
                # a call ends within its time limit
                while len(routed) < count and not any(call.done() for call in calls):
                    await asyncio.sleep(0.01)
                held = await asyncio.to_thread(self.epp.metric, "tactus_epp_requests_in_flight")
                all_routed.set()
                return held, await asyncio.gather(*calls)

        held, results = asyncio.run(everything())
        self.assertEqual(held, count)
        self.assertEqual(set(results), {(BODY, True, "response_headers", True)})
        shares = [routed.count(address) for address in self.addresses()]
        self.assertEqual(sum(shares), count)
        self.assertLess(max(shares) - min(shares), 2, "round-robin")

    # Health and metrics.

    def test_health_services(self):
        for name in ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"):
            for port in self.epp.ports[:2]:
                self.assertEqual(self.epp.health(name, port), 1, name)
        self.assertIsNone(self.epp.health("no-such-service"))

    def test_http(self):
        self.assertIn("ok", self.epp.http("/health"))
        self.assertIn("ok", self.epp.http("/ready"))
        text = self.epp.http("/metrics")
        self.assertIn("# TYPE tactus_epp_pick_seconds histogram", text)
        for path, status in (("/", 404), ("/v1/models", 404)):
            with self.assertRaises(Exception) as caught:
                self.epp.http(path)
            with caught.exception as answer:
                self.assertEqual(answer.code, status)


class OtherFleetsTest(unittest.TestCase):
    def test_no_replica_is_ready(self):
        with FakeReplica("a", ready=False) as replica, EppProcess([replica], wait_ready=False) as epp:
            self.assertEqual(epp.health("liveness"), 1)
            self.assertEqual(epp.health("readiness"), 2)
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            refusal = conversation.receive("immediate_response").immediate_response
            self.assertEqual(refusal.status.code, 503)
            headers = {h.header.key: h.header.raw_value for h in refusal.headers.set_headers}
            self.assertEqual(headers["retry-after"], b"1")
            replica.ready = True
            wait_until(lambda: epp.health("readiness") == 1, "ready")
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            self.assertEqual(destination(conversation.receive("request_headers")), replica.address)
            conversation.cancel()
            replica.ready = False  # the picker keeps running, to report that
            epp.await_metric(f'tactus_epp_endpoint_ready{{endpoint="{replica.address}"}}', 0)
            self.assertEqual(epp.health("readiness"), 1)

    def test_several_endpoints_in_order_of_preference(self):
        replicas = [FakeReplica(f"r{i}") for i in range(3)]
        with (
            replicas[0],
            replicas[1],
            replicas[2],
            EppProcess(replicas, "--balancer", "round-robin", "--fallbacks", 2) as epp,
        ):
            for r in replicas:
                epp.await_metric(f'tactus_epp_endpoint_ready{{endpoint="{r.address}"}}', 1)
            ring = [r.address for r in replicas]
            for _ in range(3):
                conversation = epp.conversation()
                conversation.headers(GET, end=True)
                named = destination(conversation.receive("request_headers")).split(",")
                first = ring.index(named[0])
                self.assertEqual(named, ring[first:] + ring[:first])
                conversation.cancel()
            conversation = epp.conversation()
            conversation.headers(GET, end=True, metadata_context=subset(ring[1:]))
            self.assertEqual(sorted(destination(conversation.receive("request_headers")).split(",")), sorted(ring[1:]))
            conversation.cancel()

    def test_the_default_mode_is_an_option(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--body-mode", "buffered") as epp:
            conversation = epp.conversation(tell_modes=False)
            conversation.headers()
            self.assertIsNone(destination(conversation.receive("request_headers")))
            conversation.body(BODY, end=True)
            self.assertEqual(destination(conversation.receive("request_body")), replica.address)
            conversation.cancel()

    def test_the_picker_starts_with_one_line_and_verbose_shows_its_replicas(self):
        with FakeReplica("a") as first, FakeReplica("b") as second:
            with EppProcess([first, second]) as epp:
                (line,) = epp.lines
                self.assertRegex(line, r"\Apicking \(sal\) on 127\.0\.0\.1: .*; 2 of 2 replicas are ready\n\Z")
            with EppProcess([first], "--verbose") as epp:
                self.assertRegex(epp.lines[0], rf"\Areplica {first.url}: ready")
                self.assertRegex(epp.lines[1], r"; 1 of 1 replicas are ready\n\Z")

    def test_the_picker_stops_after_its_streams_have_ended(self):
        with FakeReplica("a") as replica, EppProcess([replica]) as epp:
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            conversation.receive("request_headers")
            epp.process.terminate()
            wait_until(lambda: any("1 to finish" in line for line in epp.lines), "stopping")
            conversation.response_headers(end=True)
            conversation.receive("response_headers")  # running requests are served to their end
            conversation.expect_end()
            self.assertEqual(epp.process.wait(30), 0)

    def test_streams_beyond_the_drain_time_are_cut_off(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--shutdown-timeout", "300ms") as epp:
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            conversation.receive("request_headers")
            epp.process.terminate()
            self.assertEqual(epp.process.wait(30), 0)
            with self.assertRaises(grpc.RpcError):
                next(conversation.call)

    def test_a_second_signal_ends_the_picker_at_once(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--shutdown-timeout", "10m") as epp:
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            conversation.receive("request_headers")
            epp.process.terminate()
            wait_until(lambda: any("stopping" in line for line in epp.lines), "stopping")
            epp.process.terminate()
            self.assertEqual(epp.process.wait(30), 1)


class CommandLineTest(unittest.TestCase):
    def test_errors_of_the_picker_name_the_cause(self):
        for args, name in (
            ([], "--replicas"),
            (["--replicas", ","], "--replicas"),
            (["--replicas", "ftp://x"], "--replicas: "),
            (["--replicas", "http://somewhere:80"], "--replicas: 'http://somewhere:80'"),
            (["--replicas", "http://1.2.3:80"], "--replicas"),
            (["--replicas-file", "/no/such/file"], "--replicas-file"),
            (["--replicas", "http://1.2.3.4:1", "--balancer", "magic"], "balancer 'magic'"),
            (["--replicas", "http://1.2.3.4:1", "--grpc-port", "70000"], "--grpc-port"),
            (["--replicas", "http://1.2.3.4:1", "--body-mode", "odd"], "--body-mode"),
            (["--replicas", "http://1.2.3.4:1", "--max-body", "2GiB"], "--max-body-total"),
            (["--replicas", "http://1.2.3.4:1", "--host", ""], "--host"),
            (["--nonsense"], "--nonsense"),
        ):
            done = run(*args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertIn(name, done.stderr)

    def test_a_taken_port_is_named(self):
        for flag in ("--grpc-port", "--health-port", "--metrics-port"):
            with TakenPort() as port:
                others = [f for f in ("--grpc-port", "--health-port", "--metrics-port") if f != flag]
                done = run("--replicas", "http://127.0.0.1:1", flag, port, others[0], 0, others[1], 0)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(flag, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_two_pickers_do_not_share_a_port(self):
        with FakeReplica("a") as replica, EppProcess([replica]) as epp:
            for flag, port in zip(("--grpc-port", "--health-port", "--metrics-port"), epp.ports):
                others = [f for f in ("--grpc-port", "--health-port", "--metrics-port") if f != flag]
                done = run("--replicas", replica.url, flag, port, others[0], 0, others[1], 0)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(flag, done.stderr)

    def test_help_and_config(self):
        done = run("--help-all")
        self.assertEqual(done.returncode, 0)
        for name in ("--grpc-port", "--replicas", "--balancer", "prefix-affinity"):
            self.assertIn(name, done.stdout)
        config = run("--print-config", "--grpc-port", 1, env=dict(os.environ, TACTUS_HEALTH_PORT="7"))
        self.assertRegex(config.stdout, r"(?m)^grpc-port = 1$")
        self.assertRegex(config.stdout, r"(?m)^health-port = 7$")
        self.assertRegex(config.stdout, r"(?m)^metrics-port = 9090$")

    def test_a_build_without_the_picker_reports_it(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder) / "tactus"
            (
                os.link(TACTUS, alone)
                if os.stat(TACTUS).st_dev == os.stat(folder).st_dev
                else alone.write_bytes(pathlib.Path(TACTUS).read_bytes())
            )
            alone.chmod(0o755)
            done = subprocess.run([alone, "epp"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libgrpc++-dev", done.stderr)


if __name__ == "__main__":
    unittest.main()
