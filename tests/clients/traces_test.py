"""Traces by OTLP over HTTP in JSON: a collector that parses each body with the protocol's own messages, the trace of a
request through a router to its replica, and a collector that fails."""

import http.server
import json
import threading
import unittest
import urllib.error
import urllib.request

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from router_process import Router
from server_process import ServerProcess, wait_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
IDS = ("traceId", "spanId", "parentSpanId")


class Collector:
    """`statuses`: of the answers, one after another; the last repeats."""

    def __init__(self, statuses=(200,)):
        self.spans, self.bodies, self.wrong, self.resources = [], 0, [], []
        self.statuses = list(statuses)
        self.lock = threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector.lock:
                    collector.bodies += 1
                    status = collector.statuses.pop(0) if len(collector.statuses) > 1 else collector.statuses[0]
                    if status == 200:
                        collector.take(self.path, self.headers["Content-Type"], body)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path, kind, body):
        if (path, kind) != ("/v1/traces", "application/json"):
            self.wrong.append((path, kind))
        message = json.loads(body)
        for resource in message["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for name in IDS:  # OTLP's JSON has them in hexadecimal digits, that of protocol buffers in base64
                        size = 32 if name == "traceId" else 16
                        if name in span and (len(span[name]) != size or int(span[name], 16) == 0):
                            self.wrong.append((name, span[name]))
                        span.pop(name + "_", None)
                    self.spans.append(json.loads(json.dumps(span)))
                    for name in IDS:
                        span.pop(name, None)
        try:  # unknown fields and wrong types are errors
            request = json_format.Parse(json.dumps(message), trace_service_pb2.ExportTraceServiceRequest())
            self.resources += [r.resource for r in request.resource_spans]
        except json_format.ParseError as error:
            self.wrong.append(str(error))

    def of(self, name):
        with self.lock:
            return [span for span in self.spans if span["name"] == name]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(30)


def attributes(span):
    values = {a["key"]: next(iter(a["value"].items())) for a in span["attributes"]}
    return {k: int(v) if kind == "intValue" else v for k, (kind, v) in values.items()}


def ask(url, headers=(), path="/v1/completions", **body):
    request = urllib.request.Request(
        url + path,
        json.dumps({"prompt": "a secret", "max_tokens": 12, "ignore_eos": True, **body}).encode(),
        {"Content-Type": "application/json", **dict(headers)},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        return next(float(line.split()[-1]) for line in response.read().decode().splitlines() if line.startswith(name))


class TracesTest(unittest.TestCase):
    def test_a_request_of_a_server_is_a_span_with_its_parts(self):
        collector = Collector()
        self.addCleanup(collector.close)
        named = {"OTEL_SERVICE_NAME": "our models"}
        server = ServerProcess("--otlp-traces-endpoint", collector.url, real_model=False, environment=named)
        sampled = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "traced"}
        self.assertEqual(ask(server.url, sampled, n=2)[0], 200)
        self.assertEqual(ask(server.url, {"traceparent": f"00-{TRACE}-{PARENT}-00", "X-Request-Id": "not"})[0], 200)
        self.assertEqual(ask(server.url, {"traceparent": "00-nonsense", "X-Request-Id": "own"}, stream=True)[0], 200)
        self.assertEqual(ask(server.url, {"X-Request-Id": "bad"}, prompt=5)[0], 400)
        urllib.request.urlopen(server.url + "/health", timeout=60).close()
        self.assertEqual(server.stop(), 0, server.last_lines())  # sends the rest
        self.assertEqual(collector.wrong, [])
        spans = {attributes(span)["gen_ai.request.id"]: span for span in collector.of("POST /v1/completions")}
        self.assertEqual(set(spans), {"traced", "own", "bad"})
        self.assertEqual(collector.of("GET /health"), [])
        traced = spans["traced"]
        self.assertEqual((traced["traceId"], traced["parentSpanId"], traced["kind"]), (TRACE, PARENT, 2))
        self.assertNotIn("parentSpanId", spans["own"])
        self.assertNotIn(spans["own"]["traceId"], (TRACE, spans["bad"]["traceId"]))
        facts = attributes(traced)
        self.assertEqual(facts["http.response.status_code"], 200)
        self.assertEqual(facts["gen_ai.response.model"], "test-model")
        self.assertEqual(
            [facts[f"gen_ai.{name}"] for name in ("request.max_tokens", "request.n", "usage.completion_tokens")],
            [12, 2, 24],
        )
        self.assertEqual(attributes(spans["bad"])["http.response.status_code"], 400)
        start, end = int(traced["startTimeUnixNano"]), int(traced["endTimeUnixNano"])
        parts = {s["name"]: s for s in collector.spans if s.get("parentSpanId") == traced["spanId"]}
        self.assertEqual(set(parts), {"queue", "prefill", "decode"})
        times = [int(parts[n][f"{t}TimeUnixNano"]) for n in ("queue", "prefill", "decode") for t in ("start", "end")]
        self.assertEqual([times[0], times[-1]], [start, end])
        self.assertEqual(times, sorted(times))
        self.assertNotIn("a secret", json.dumps(collector.spans))
        names = {a.key: a.value.string_value for a in collector.resources[0].attributes}
        self.assertEqual(names["service.name"], "our models")

    def test_one_trace_leads_through_a_router_to_the_replica_that_answers(self):
        collector = Collector()
        self.addCleanup(collector.close)
        server = ServerProcess("--otlp-traces-endpoint", collector.url + "/v1/traces", real_model=False)
        router = Router([server.url], "--slow-start", "0", "--otlp-traces-endpoint", collector.url)
        router.await_ready(1)
        self.assertEqual(ask(router.url, {"traceparent": f"00-{TRACE}-{PARENT}-01"}, stream=True)[0], 200)
        self.assertEqual(router.stop(), 0, router.last_lines())
        self.assertEqual(server.stop(), 0, server.last_lines())
        self.assertEqual(collector.wrong, [])
        services = {a.value.string_value for r in collector.resources for a in r.attributes if a.key == "service.name"}
        self.assertEqual(services, {"tactus-serve", "tactus-route"})
        address = server.url.removeprefix("http://")
        at_replica = [s for s in collector.of("POST /v1/completions") if "gen_ai.response.model" in attributes(s)]
        at_router = [s for s in collector.of("POST /v1/completions") if s not in at_replica]
        tries = collector.of(f"replica {address}")
        self.assertEqual([len(at_replica), len(at_router), len(tries)], [1, 1, 1])
        self.assertEqual({s["traceId"] for s in (*at_replica, *at_router, *tries)}, {TRACE})
        self.assertEqual(at_router[0]["parentSpanId"], PARENT)
        self.assertEqual(tries[0]["parentSpanId"], at_router[0]["spanId"])
        self.assertEqual(at_replica[0]["parentSpanId"], tries[0]["spanId"])
        self.assertEqual((tries[0]["kind"], attributes(tries[0])["http.response.status_code"]), (3, 200))

    def test_without_a_collector_the_context_of_a_client_passes_through_a_router(self):
        collector = Collector()
        self.addCleanup(collector.close)
        server = ServerProcess("--otlp-traces-endpoint", collector.url, real_model=False)
        router = Router([server.url], "--slow-start", "0")
        router.await_ready(1)
        self.assertEqual(ask(router.url, {"traceparent": f"00-{TRACE}-{PARENT}-01"})[0], 200)
        self.assertEqual(router.stop(), 0)
        self.assertEqual(server.stop(), 0)
        self.assertEqual([s["parentSpanId"] for s in collector.of("POST /v1/completions")], [PARENT])

    def test_a_collector_that_fails_holds_nothing_up_and_is_counted(self):
        busy = Collector([503, 503, 200])
        self.addCleanup(busy.close)
        server = ServerProcess("--otlp-traces-endpoint", busy.url, real_model=False)
        self.assertEqual(ask(server.url)[0], 200)
        wait_until(lambda: metric(server.url, 'tactus_trace_spans_total{result="sent"}') == 4, "the third try")
        self.assertEqual(metric(server.url, 'tactus_trace_spans_total{result="dropped"}'), 0)
        wait_until(lambda: any("status 503" in line for line in server.lines), "a warning", about=server.last_lines)
        self.assertEqual(server.stop(), 0)

        refuses = Collector([400])
        self.addCleanup(refuses.close)
        server = ServerProcess("--otlp-traces-endpoint", refuses.url, real_model=False)
        self.assertEqual(ask(server.url)[0], 200)
        wait_until(lambda: metric(server.url, 'tactus_trace_spans_total{result="refused"}') == 4, "the refusal")
        self.assertEqual(refuses.bodies, 1, "what is refused is not sent again")
        self.assertEqual(server.stop(), 0)

        server = ServerProcess("--otlp-traces-endpoint", "http://127.0.0.1:9", real_model=False)
        for _ in range(5):
            self.assertEqual(ask(server.url)[0], 200)
        wait_until(lambda: metric(server.url, 'tactus_trace_spans_total{result="dropped"}') > 0, "dropped spans")
        self.assertEqual(server.stop(), 0, "a collector that is gone delays no stop")

    def test_an_endpoint_that_is_no_url_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, r"(?s)exit status 2.*--otlp-traces-endpoint"):
            ServerProcess("--otlp-traces-endpoint", "localhost:4317", real_model=False)


if __name__ == "__main__":
    unittest.main()
