"""`tactus epp` at its limits: requests, bodies, headers, streams that are silent or break off, bytes that are not a
message."""

import pathlib
import time
import unittest

try:
    import grpc
    from epp_process import GET, LIMIT_S, POST, Conversation, EppProcess, Mode, header_map, messages
except ImportError as error:
    raise unittest.SkipTest(f"no package of tests/requirements.txt: {error}")
from epp_test import BODY, pieces
from fake_replica import FakeReplica


class LimitsTest(unittest.TestCase):
    def test_too_many_requests_are_429(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--max-requests-per-replica", 1) as epp:
            first = epp.conversation()
            first.headers(GET, end=True)
            first.receive("request_headers")
            second = epp.conversation()
            second.headers(GET, end=True)
            self.assertEqual(second.receive("immediate_response").immediate_response.status.code, 429)
            first.cancel()
            epp.await_metric("tactus_epp_requests_in_flight", 0)
            third = epp.conversation()
            third.headers(GET, end=True)
            third.receive("request_headers")
            third.cancel()

    def test_a_body_that_does_not_come_is_408(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--body-timeout", "300ms") as epp:
            late = [epp.conversation() for _ in range(8)]
            for i, conversation in enumerate(late):
                conversation.headers()
                if i % 2:
                    conversation.body(b"{")
            for conversation in late:
                refusal = conversation.receive("immediate_response").immediate_response
                self.assertEqual(refusal.status.code, 408)
                self.assertIn(b"--body-timeout", refusal.body)
                conversation.expect_end(by_picker=True)
            epp.await_metric("tactus_epp_body_bytes", 0)
            epp.await_metric("tactus_epp_streams", 0)
            self.assertEqual(epp.metric('tactus_epp_refused_total{reason="body_late"}'), 8)
            answered = epp.conversation()  # once its replica is chosen, a request may take any time
            answered.headers()
            answered.body(BODY, end=True)
            answered.receive("request_headers")
            pieces(answered)
            time.sleep(0.6)
            answered.response_headers(end=True)
            answered.receive("response_headers")
            answered.expect_end()

    def test_a_stream_without_the_responses_end_is_aborted(self):
        with FakeReplica("a") as replica, EppProcess([replica]) as epp:
            counts = {"completed": 0, "aborted": 0, "unseen": 0}
            for mode in (Mode.NONE, Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED):
                for how in ("cancelled", "lost", "half-closed"):
                    # A separate connection, which ends with the channel.
                    own = [("grpc.use_local_subchannel_pool", 1)]
                    with grpc.insecure_channel(f"127.0.0.1:{epp.ports[0]}", options=own) as channel:
                        conversation = Conversation(channel, response=mode)
                        conversation.headers(GET, end=True)
                        conversation.receive("request_headers")
                        conversation.response_headers(content_type="text/event-stream")
                        conversation.receive("response_headers")
                        if how == "cancelled":
                            conversation.cancel()
                        elif how == "half-closed":
                            conversation.expect_end()
                    conversation.outgoing.put(None)
                    # A data plane that does not forward bodies ends all its streams like that.
                    counts["unseen" if mode == Mode.NONE else "aborted"] += 1
                    epp.await_metric("tactus_epp_requests_in_flight", 0)
                    ended = {o: epp.metric(f'tactus_epp_ended_total{{outcome="{o}"}}') for o in counts}
                    self.assertEqual(ended, counts, f"mode {mode}, {how}")

    def test_a_silent_stream_ends(self):
        with FakeReplica("a") as replica, EppProcess([replica], "--body-timeout", "300ms") as epp:
            silent = [epp.conversation() for _ in range(8)]
            for conversation in silent:
                with self.assertRaises(grpc.RpcError):
                    next(conversation.call)
                self.assertEqual(conversation.call.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
                self.assertIn("--body-timeout", conversation.call.details())
            epp.await_metric("tactus_epp_streams", 0)

    def test_malformed_messages_are_errors(self):
        """A status of OK would let the data plane forward the request without a choice."""
        with FakeReplica("a") as replica, EppProcess([replica]) as epp:
            process = epp.channel.stream_stream(
                "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
                request_serializer=bytes,
                response_deserializer=bytes,
            )
            headers = messages.ProcessingRequest(request_headers=messages.HttpHeaders(headers=header_map(POST)))
            for sent in ([b"rubbish"], [b"\xff" * 1000], [headers.SerializeToString(), b"\x0a\xff"]):
                call = process(iter(sent), timeout=LIMIT_S)
                with self.assertRaises(grpc.RpcError, msg=sent[-1][:10]):
                    list(call)
                self.assertEqual(call.code(), grpc.StatusCode.INVALID_ARGUMENT, sent[-1][:10])
                self.assertIn("ProcessingRequest", call.details())
            half = process(iter([headers.SerializeToString()]), timeout=LIMIT_S)
            with self.assertRaises(grpc.RpcError, msg="a request whose body never arrives, then the end"):
                list(half)
            self.assertEqual(half.code(), grpc.StatusCode.INVALID_ARGUMENT)
            epp.await_metric("tactus_epp_streams", 0)

    def test_headers_count_as_buffered_bytes(self):
        limits = ("--max-body", "16MiB", "--max-body-total", "16MiB")
        with FakeReplica("a") as replica, EppProcess([replica], *limits) as epp:
            large = [(":method", "POST"), (":path", "/v1/completions"), ("x-large", "x" * (30 << 20))]
            for _ in range(3):
                conversation = epp.conversation()
                conversation.headers(large)
                refusal = conversation.receive("immediate_response").immediate_response
                self.assertEqual(refusal.status.code, 503)
                self.assertIn(b"--max-body-total", refusal.body)
                conversation.expect_end(by_picker=True)
            epp.await_metric("tactus_epp_body_bytes", 0)

    def test_many_large_headers_at_once_take_bounded_memory(self):
        limits = ("--max-body", "16MiB", "--max-body-total", "64MiB")
        with FakeReplica("a") as replica, EppProcess([replica], *limits) as epp:
            large = [(":method", "POST"), (":path", "/v1/completions"), ("x-large", "x" * (30 << 20))]
            open_ones = [epp.conversation() for _ in range(20)]
            for conversation in open_ones:
                conversation.headers(large)
            most = 0
            for conversation in open_ones:
                try:
                    next(conversation.call)
                except (grpc.RpcError, StopIteration):
                    pass
                status = pathlib.Path(f"/proc/{epp.process.pid}/status").read_text()
                most = max(most, int(status.split("VmHWM:")[1].split()[0]))
            for conversation in open_ones:
                conversation.cancel()
            epp.await_metric("tactus_epp_body_bytes", 0)
            self.assertLess(most, 500 << 10, "KiB at most, of 600 MiB that were sent")


if __name__ == "__main__":
    unittest.main()
