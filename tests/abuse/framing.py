"""HTTP framing attacks over raw sockets, as tables: the bytes sent, the valid statuses, and whether the connection
closes.

After each attack the connection is closed or in sync: a marked request on it gets its own answer or none. A request
smuggled inside a body is never answered. Expectations are those of RFC 9112, RFC 9110 and docs/reference/api.md; where
an RFC leaves a choice, the set of statuses has all options. `tests/abuse/framing_cases.py` has the tables.
"""

import concurrent.futures

import framing_cases
from program import DidNotStart, Server
from wire import Lost, Wire, request

READ_TIMEOUT = framing_cases.READ_TIMEOUT_S
SERVER = ("--read-timeout", f"{READ_TIMEOUT}s", "--idle-timeout", "4s", "--max-body", "1MiB")


def in_sync(wire, name):
    """Empty, or how the connection is out of sync. A closed connection is in sync."""
    marker = f"sync-{abs(hash(name)) % 10**9}"
    wire.send(request("GET", "/v1/models", headers=[("X-Request-Id", marker)]))
    try:
        answer = wire.read()
    except Lost as lost:
        return "" if wire.ended else f"a request after it: {lost}"
    if answer.id != marker:
        return f"out of sync: a request after it was answered by {answer} of {answer.id}"
    return "" if answer.status == 200 else f"a request after it was answered by {answer}"


def what_follows(wire):
    try:
        answer = wire.read(limit_s=1)
    except Lost:
        return ""
    return ", and a smuggled request was answered" if answer.id == framing_cases.SMUGGLED else f", and {answer} follows"


def attack(port, case):
    """Empty, or the fault in the answers."""
    with Wire(port, limit_s=15) as wire:
        case.send_over(wire)
        answers = []
        try:
            while len(answers) < case.answers:
                answers.append(wire.read(head_only=case.head_only))
        except Lost as lost:
            if not (case.may_close and wire.ended and not answers):
                return f"answer {len(answers) + 1} of {case.answers}: {lost}; before it {answers[-1:]}"
            return ""
        for answer, wanted in zip(answers, case.ids):
            if answer.id != wanted:
                return f"answer of {answer.id} where {wanted} was due"
        last = answers[-1]
        if last.status not in case.statuses:
            return f"{last}; expected {sorted(case.statuses)}"
        for answer in answers[:-1]:
            if answer.status != 200:
                return f"{answer} before the last answer"
        if case.continues is not None and wire.continues != case.continues:
            return f"{wire.continues} interim answers instead of {case.continues}"
        if case.closes:
            return (
                ""
                if wire.ends(5)
                else f"{last.status}, but the connection stays open{what_follows(wire)}; expected a close"
            )
        if case.closes is False and (last.closes or case.half_close):
            return "" if case.half_close else f"{last.status}, and the connection closes; expected it to stay"
        return in_sync(wire, case.name)


def run(tally, seed):
    cases = framing_cases.all_cases(seed)
    assert len({case.name for case in cases}) == len(cases), "two cases of one name"
    with Server(*SERVER) as server:
        before = server.memory_mib()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for case, wrong in zip(cases, pool.map(lambda case: safely(server.port, case), cases)):
                tally.check(case.name, not wrong, wrong, case.sent)
        tally.check("the server lives after all attacks", server.alive() and '"ok"' in server.get("/health"))
        tally.check("nothing is left over", server.idle(30), "requests, KV blocks or exchanges are left")
        tally.figure("MiB grown", server.memory_mib() - before)
        tally.figure("attacks", len(cases))
        status = server.stop()
        tally.check("SIGTERM ends the server with 0", status == 0, f"status {status}")
    empty_keys(tally)


def safely(port, case):
    try:
        return attack(port, case)
    except OSError as error:
        return f"the connection failed: {error}"


def empty_keys(tally):
    """An empty key would admit every client that sends `Bearer `: the server refuses to start."""
    for keys in (["--api-key", ""], ["--api-key="], ["--api-key", "good", "--api-key", ""], ["--api-key", "   "]):
        try:
            with Server(*keys, start_limit_s=20) as server:
                wrong = f"it serves on port {server.port}"
        except DidNotStart as refused:
            wrong = (
                ""
                if refused.status in (1, 2) and "key" in refused.text
                else f"exit status {refused.status}: {refused.text}"
            )
        tally.check(f"{' '.join(map(repr, keys))} is refused at start", not wrong, wrong, repr(keys))
