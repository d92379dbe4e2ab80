"""Starts the real `tactus epp` on free ports and acts as its data plane, with the published messages (package
xds-protos). Every wait has a limit."""

import os
import queue
import re
import signal
import subprocess
import threading
import urllib.request

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as services
from google.protobuf import struct_pb2
from server_process import wait_until

LIMIT_S = 30
DESTINATION = "x-gateway-destination-endpoint"
Mode = processing_mode_pb2.ProcessingMode


class EppProcess:
    """`tls`: the authority of the certificate (certificates.Authority) and the ports that use it: "grpc", "health" and
    "metrics"; None: none does."""

    def __init__(self, replicas, *args, wait_ready=True, tls=None, poll="50ms"):
        self.authority, self.tls_ports = tls or (None, ())
        command = [
            os.environ["TACTUS_BINARY"],
            "epp",
            "--grpc-port",
            "0",
            "--health-port",
            "0",
            "--metrics-port",
            "0",
            "--poll-interval",
            poll,
            "--slow-start",
            "0",
            "--replicas",
            ",".join(r.url for r in replicas),
            *map(str, args),
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines = []
        self.ports = None
        self.heard = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.heard.wait(LIMIT_S)
        if self.ports is None:
            self.stop()
            raise RuntimeError("it did not start:\n" + "".join(self.lines))
        self.channel = self._channel(self.ports[0], [("grpc.max_receive_message_length", -1)])
        if wait_ready:
            wait_until(lambda: self.health("readiness") == 1, "ready", LIMIT_S)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.match(r"picking \(\S+\) on \S+: grpc (\d+), health (\d+), metrics (\d+)", line):
                self.ports = tuple(map(int, match.groups()))
                self.heard.set()
        self.heard.set()

    def _channel(self, port, options=()):
        if ("grpc", "health", "metrics")[self.ports.index(port)] not in self.tls_ports:
            return grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        credentials = grpc.ssl_channel_credentials(self.authority.file.read_bytes())
        return grpc.secure_channel(f"localhost:{port}", credentials, options=options)

    def health(self, service, port=None):
        """1: serving, 2: not serving; None: no such service."""
        request = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
        with self._channel(port or self.ports[1]) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
            )
            try:
                answer = check(request, timeout=LIMIT_S)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    return None
                raise
        return answer[1] if answer else 0

    def http(self, path):
        tls = "metrics" in self.tls_ports
        url = f"{'https' if tls else 'http'}://127.0.0.1:{self.ports[2]}{path}"
        context = self.authority.context() if tls else None
        with urllib.request.urlopen(url, timeout=LIMIT_S, context=context) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The value of a metric, by name and labels in text format."""
        for line in self.http("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def await_metric(self, name, value):
        wait_until(
            lambda: self.metric(name) == value, f"{name} {value}", LIMIT_S, lambda: f"; it is {self.metric(name)}"
        )

    def conversation(self, **modes):
        return Conversation(self.channel, **modes)

    def stop(self, signals=1):
        """Stops it and returns the exit status."""
        if getattr(self, "channel", None):
            self.channel.close()
        for _ in range(signals):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("it did not stop:\n" + "".join(self.lines))
        finally:
            self.reader.join(LIMIT_S)
            self.process.stderr.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def header_map(pairs):
    return base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs])


def metadata(namespace, key, value):
    struct = struct_pb2.Struct()
    struct.update({key: value})
    return base_pb2.Metadata(filter_metadata={namespace: struct})


def subset(addresses):
    return metadata("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", addresses)


POST = [(":method", "POST"), (":path", "/v1/completions"), ("content-type", "application/json")]
GET = [(":method", "GET"), (":path", "/v1/models")]


class Conversation:
    """One stream: the messages of one request, in the order and with the modes of a data plane."""

    def __init__(self, channel, request=Mode.FULL_DUPLEX_STREAMED, response=Mode.FULL_DUPLEX_STREAMED, tell_modes=True):
        self.outgoing = queue.Queue()
        self.first = (
            messages.ProtocolConfiguration(request_body_mode=request, response_body_mode=response)
            if tell_modes
            else None
        )
        self.call = services.ExternalProcessorStub(channel).Process(iter(self.outgoing.get, None), timeout=LIMIT_S)

    def send(self, metadata_context=None, **message):
        request = messages.ProcessingRequest(metadata_context=metadata_context, **message)
        if self.first is not None:
            request.protocol_config.CopyFrom(self.first)
            self.first = None
        self.outgoing.put(request)

    def headers(self, pairs=POST, end=False, **more):
        self.send(request_headers=messages.HttpHeaders(headers=header_map(pairs), end_of_stream=end), **more)

    def body(self, data, end=False, **more):
        self.send(request_body=messages.HttpBody(body=data, end_of_stream=end), **more)

    def trailers(self):
        self.send(request_trailers=messages.HttpTrailers(trailers=header_map([("x-checksum", "1")])))

    def response_headers(self, status=200, content_type="application/json", end=False, **more):
        pairs = [(":status", str(status)), ("content-type", content_type)]
        self.send(response_headers=messages.HttpHeaders(headers=header_map(pairs), end_of_stream=end), **more)

    def response_body(self, data, end=False):
        self.send(response_body=messages.HttpBody(body=data, end_of_stream=end))

    def response_trailers(self):
        self.send(response_trailers=messages.HttpTrailers(trailers=header_map([("x-checksum", "1")])))

    def receive(self, kind):
        """The next message, which must be of this kind; the call's time-out bounds the wait."""
        message = next(self.call)
        if message.WhichOneof("response") != kind:
            raise AssertionError(f"wanted {kind}, got {message}")
        return message

    def expect_end(self, by_picker=False):
        if not by_picker:
            self.outgoing.put(None)
        left = list(self.call)
        if left or self.call.code() != grpc.StatusCode.OK:
            raise AssertionError(f"the stream ended with {self.call.code()}, before that came {left}")

    def cancel(self):
        self.outgoing.put(None)
        self.call.cancel()


def destination(message):
    """The destination of a message, which must agree in header and metadata; None: no destination."""
    kind = message.WhichOneof("response")
    common = getattr(message, kind).response
    headers = {h.header.key: h for h in common.header_mutation.set_headers}
    lb = message.dynamic_metadata.fields.get("envoy.lb")
    if not headers and lb is None:
        assert not common.clear_route_cache, message
        return None
    option = headers[DESTINATION]
    value = option.header.raw_value.decode()
    assert list(headers) == [DESTINATION] and not option.header.value, message
    assert option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD, (
        "a client's own header must not survive"
    )
    assert list(message.dynamic_metadata.fields) == ["envoy.lb"], message
    assert dict(lb.struct_value.items()) == {DESTINATION: value}, message
    assert common.clear_route_cache, message
    return value
