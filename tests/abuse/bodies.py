"""Generated request bodies, checked against oracle.py.

Valid bodies get 200 and the documented shape. A body with one invalid field gets 400, and the error's `param` names
that field. Text that is not JSON gets 400. A 500, a hang or a lost connection is a failure. Hypothesis draws the bodies
from a fixed seed and shrinks failures.
"""

import json

import oracle
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from program import Server
from wire import Lost, Wire, request

ANSWER_LIMIT_S = 30


class Wrong(AssertionError):
    pass


class Client:
    """Reuses one connection, so that an answer with broken framing breaks the next one."""

    def __init__(self, port):
        self.port, self.wire = port, None

    def ask(self, target, data):
        if self.wire is None:
            self.wire = Wire(self.port, ANSWER_LIMIT_S)
        self.wire.send(request("POST", target, data))
        try:
            answer = self.wire.read()
        except Lost as lost:
            self.wire.close()
            self.wire = None
            raise Wrong(f"no answer: {lost}") from None
        if answer.closes:
            self.wire.close()
            self.wire = None
        if answer.status >= 500:
            raise Wrong(f"status {answer.status}: {answer}")
        return answer


def error_of(answer):
    error = answer.json()["error"]
    if not isinstance(error["code"], (str, type(None))) or not error["message"] or not error["type"]:
        raise Wrong(f"an error with another shape: {answer}")
    return error


def check_right(client, route, body):
    answer = client.ask(oracle.ROUTES[route][0], json.dumps(body))
    if answer.status != 200:
        raise Wrong(f"a valid body is answered by {answer}")
    if body.get("stream") is True and route in ("completions", "chat"):
        wrong = oracle.wrong_stream(route == "chat", body, answer.body)
    else:
        wrong = oracle.wrong_shape(route, body, answer.json())
    if wrong:
        raise Wrong(f"{wrong}: {answer.body[:600]!r}")


def check_wrong(client, route, field, body):
    answer = client.ask(oracle.ROUTES[route][0], json.dumps(body))
    if answer.status != 400:
        raise Wrong(f"{field} is wrong, the answer is {answer}")
    param = error_of(answer)["param"] or ""
    if param != field and not param.startswith((field + ".", field + "[")):
        raise Wrong(f"{field} is wrong, the error names {param!r}: {answer}")


# --- text that is not JSON


def is_json(data):
    """Whether the data is JSON by RFC 8259 without duplicate keys. None: JSON with numbers or characters on which
    parsers may differ."""

    class Twice(ValueError):
        pass

    def unique(pairs):
        if len({key for key, _ in pairs}) != len(pairs):
            raise Twice
        return dict(pairs)

    def no_constant(_):
        raise ValueError

    try:
        parsed = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return False
    if b"\\u" in data or b"e" in data.lower() or not isinstance(parsed, dict):
        return None
    return True


def damaged(route):
    """The text of a valid body with a few bytes changed, removed, doubled or inserted."""
    piece = st.one_of(
        st.binary(min_size=1, max_size=3),
        st.sampled_from(
            [
                b"NaN",
                b"Infinity",
                b"-",
                b"01",
                b",",
                b"}",
                b"{",
                b'"',
                b"\\",
                b"\\u",
                b"\\ud800",
                b"\0",
                b"//x\n",
                b"/**/",
                b"'",
                b"\xff",
                b"\xc0\x80",
                b"\xed\xa0\x80",
                b"\xef\xbb\xbf",
                b"1e999",
                b"0x1",
                b"+1",
                b".5",
                b"1.",
                b'"a":1,"a":2,',
                b"[" * 70,
            ]
        ),
    )

    def damage(drawn):
        body, at, cut, put, tail = drawn
        data = json.dumps(body, ensure_ascii=False).encode()
        at %= len(data) + 1
        return data[:at] + put + data[at + cut :] if not tail else data[:at] + put

    return st.tuples(oracle.right_bodies(route), st.integers(0, 4000), st.integers(0, 3), piece, st.booleans()).map(
        damage
    )


def check_damaged(client, route, data):
    answer = client.ask(oracle.ROUTES[route][0], data)
    if answer.status not in (200, 400, 404):
        raise Wrong(f"answered by {answer}")
    if answer.status != 200:
        error_of(answer)
    if is_json(data) is False and answer.status != 400 and not data.startswith(b"\xef\xbb\xbf"):
        raise Wrong(f"not JSON, but answered by {answer}")


# --- running


def run_property(tally, seed, name, examples, strategy, check):
    """Checks one property for `examples` bodies. Every body is a case; the first failure is shrunk, reported, and ends
    the property."""
    count = 0

    @seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(strategy)
    def property_holds(value):
        nonlocal count
        count += 1
        property_holds.last = value
        try:
            check(value)
        except Wrong:
            property_holds.failed = value
            raise

    try:
        property_holds()
    except Wrong as wrong:
        failing = property_holds.failed
        tally.check(name, False, str(wrong), failing if isinstance(failing, bytes) else json.dumps(failing))
    tally.passed += count - (1 if count and name in tally.failures else 0)


def run(tally, seed):
    quick = tally.quick
    with Server("--max-num-seqs", "64") as server:
        client = Client(server.port)
        for route, (_, fields, needed) in oracle.ROUTES.items():
            generates = route in ("completions", "chat")
            run_property(
                tally,
                seed,
                f"{route}: right bodies",
                (60 if quick else 1000) if generates else (20 if quick else 200),
                oracle.right_bodies(route),
                lambda body, route=route: check_right(client, route, body),
            )
            run_property(
                tally,
                seed,
                f"{route}: damaged text",
                25 if quick else 300,
                damaged(route),
                lambda data, route=route: check_damaged(client, route, data),
            )
            for field in fields:
                run_property(
                    tally,
                    seed,
                    f"{route}: {field} wrong",
                    3 if quick else 24,
                    oracle.wrong_bodies(route, field),
                    lambda body, route=route, field=field: check_wrong(client, route, field, body),
                )
            missing = client.ask(oracle.ROUTES[route][0], "{}")
            tally.check(
                f"{route}: {needed} missing",
                missing.status == 400 and error_of(missing)["param"] in ("prompt", "messages", "tokens"),
                repr(missing),
                "{}",
            )
        other = client.ask("/v1/completions", '{"model":"other","prompt":"x"}')
        tally.check("another model is a 404", other.status == 404 and error_of(other)["param"] == "model", repr(other))
        tally.figure("bodies", tally.cases)
        tally.check("nothing is left over", server.idle(30), "requests, KV blocks or exchanges are left")
        tally.figure("MiB at the end", server.memory_mib())
        status = server.stop()
        tally.check("SIGTERM ends the server with 0", status == 0, f"status {status}")
