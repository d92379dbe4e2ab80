"""Output rules that do not end, grow, nest, or make the grammar library fail, in every field of a request that accepts
one.

Requirements: a hostile rule is answered or refused, never with a 500; another client's rules are compiled within the
limit meanwhile; memory is freed; no process is left behind; the server survives and is as idle as before.
"""

import concurrent.futures
import json
import pathlib
import random
import threading
import time

from program import Server
from wire import Lost, ask

ANSWER_LIMIT_S = 60
MIB_GROWN = 400  # limit for the server and its helper together; far less remains
MIB_KEPT = 200
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


def run(tally, seed):
    draw = random.Random(seed)
    rules = hostile_rules(draw)
    if tally.quick:
        rules = dict(draw.sample(sorted(rules.items(), key=lambda rule: rule[0]), 16))
    with Server() as server:
        first = complete(server, {"guided_regex": "[ab]{3}"})
        if first.status == 400 and b"get_llguidance" in first.body:
            tally.check("the grammar library is there", False, first.body.decode())
            return
        tally.check("a good rule", first.status == 200, repr(first))
        before = whole_mib(server)
        one_by_one(tally, server, rules)
        beside_good_ones(tally, server, rules, draw)
        many_choices(tally, server)
        given_up(tally, server, rules)
        afterwards(tally, server, before)
        helper = [pid for pid, _ in below(server.process.pid)]
        status = server.stop()
        tally.check("SIGTERM ends it in order", status == 0, f"exit status {status}")
        tally.check("no process is left after SIGTERM", wait(lambda: all(ended(pid) for pid in helper)), f"{helper}")
    killed(tally, rules)


# --- rules


def lark(text):
    return {"guided_grammar": text}


def intersected(counts, repeat="*"):
    return " & ".join(f"/(.{{{count}}}){repeat}/" for count in counts)


def schema(value):
    return {"guided_json": value}


def tool(parameters, strict=True):
    return {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}],
        "tool_choice": "required",
    }


def hostile_rules(draw):
    halves = PRIMES[:6], PRIMES[6:12]
    split = "start: A\nA: B & C\n" + "\n".join(f"{n}: {intersected(c)}" for n, c in zip("BC", halves))
    two = {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}
    huge = {"type": "integer", "multipleOf": 4294967291}
    patterns = {"type": "string", "allOf": [{"pattern": f".*{c}.{{9}}{c}.*"} for c in "abcdefgh"]}
    deep = {}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep, "b": {"enum": [1, 2]}}, "required": ["a", "b"]}
    wide = {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", "pattern": f"(a{i}|b){{1,{i + 1}}}"} for i in range(300)},
    }
    rules = {
        "twelve counts intersected": lark("start: A\nA: " + intersected(PRIMES[:12])),
        "twelve counts, in two definitions": lark(split),
        "twelve counts, each a definition": lark(
            "start: A\nA: "
            + " & ".join(f"B{c}" for c in PRIMES[:8])
            + "\n"
            + "\n".join(f"B{c}: /(.{{{c}}})*/ & /(.{{{c + 40}}})*/" for c in PRIMES[:8])
        ),
        "counts within one expression": lark("start: A\nA: " + intersected(PRIMES[:8], "{1,1000}")),
        "complements of counts": lark("start: A\nA: " + " & ".join(f"~/(.{{{c}}})*/" for c in PRIMES[:8])),
        "a complement of a complement": lark("start: A\nA: ~(~(/(.*a.{12}b.*)*/ & /(.*c.{11}d.*)*/) & /(.{7})*/)"),
        "contained words": lark("start: A\nA: " + " & ".join(f"/.*{c}.{{20}}{c}.*/" for c in "abcdefgh")),
        "%json with two multipleOf": lark("start: %json " + json.dumps(two)),
        "%json in %lark": lark("start: %lark {\nstart: %json " + json.dumps(two) + "\n}"),
        "%json with a huge multipleOf": lark("start: %json " + json.dumps(huge)),
        "%json whose keys come twice": lark(
            'start: %json {"type": "integer", "type": "integer", "allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}'
        ),
        "%json with many patterns": lark("start: %json " + json.dumps(patterns)),
        "nested %lark": lark("start: " + "%lark {\nstart: " * 40 + intersected(PRIMES[:4]) + "\n}" * 40),
        "an endless rule": lark("start: start"),
        "rules that contain each other": lark('start: a\na: b | "x"\nb: a'),
        "an ambiguous rule": lark('start: e\ne: e e | e e e | "a" | "b" | ""'),
        "a rule of many nothings": lark('start: a a a a a a a a\na: b b b b b b b b\nb: c c c c c c c c\nc: "x"?'),
        "ten thousand alternatives": lark("start: " + " | ".join(f'"{i}" a' for i in range(10_000)) + '\na: "x"'),
        "ten thousand definitions": lark(
            "start: r0\n"
            + "\n".join(f'r{i}: "x" r{i + 1} | r{(i * 7) % 10000}' for i in range(10_000))
            + '\nr10000: "y"'
        ),
        "doubling definitions": lark(
            "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(60)) + "\nA60: /a/"
        ),
        "brackets without end": lark("start: " + "(" * 50_000 + '"a"' + ")" * 50_000),
        "a lazy rule": lark("start: a b\na[lazy]: /(.*x.{30}){5}/\nb: /(.|\\n)*/"),
        "a stop that never comes": lark('start: a\na[stop="' + "x" * 4000 + '"]: /(.|\\n)*/'),
        "products of counts": {"guided_regex": "((((a{1,99}b){1,99}c){1,99}d){1,99}e){1,99}"},
        "counts of counts": {"guided_regex": "(((.{1,200}){1,200}){1,200}x){200}"},
        "words far apart": {
            "guided_regex": "(" + "|".join(f".*{c}.{{{30 + 7 * i}}}{c}.*" for i, c in enumerate("abcdefgh")) + ")"
        },
        "many stars": {"guided_regex": "(a*)*" * 2000},
        "a long alternation": {"guided_regex": "|".join(f"(a{i}|b{i}){{1,{i % 50 + 1}}}" for i in range(4000))},
        "brackets in an expression": {"guided_regex": "(" * 20_000 + "a" + ")" * 20_000},
        "a count beyond all": {"guided_regex": "(ab?){4000000000}"},
        "unicode classes": {"guided_regex": r"(\pL{1,100}\PN{1,100}){1,100}"},
        "two multipleOf": schema(two),
        "a huge multipleOf": schema(huge),
        "a small multipleOf": schema({"type": "number", "multipleOf": 1e-9}),
        "many patterns": schema(patterns),
        "deep": schema(deep),
        "wide with patterns": schema(wide),
        "references that double": schema(
            {
                "$ref": "#/$defs/d0",
                "$defs": {
                    **{f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 3} for i in range(40)},
                    "d40": patterns,
                },
            }
        ),
        "all of many objects": schema(
            {"allOf": [{"type": "object", "properties": {f"p{i}": {"enum": list(range(200))}}} for i in range(100)]}
        ),
        "formats together": schema(
            {
                "type": "string",
                "allOf": [{"format": f} for f in ("email", "uri", "hostname", "date-time", "uuid", "ipv6")],
            }
        ),
        "a long string": schema({"type": "string", "minLength": 1_000_000, "maxLength": 2_000_000}),
        "a pattern and a length": schema({"type": "string", "pattern": "^(a|ab|abc)*$", "minLength": 5000}),
        "a wide range": schema({"type": "number", "exclusiveMinimum": -1.7976931348623157e308, "maximum": 1e300}),
        "property names by pattern": schema(
            {"type": "object", "patternProperties": {f"^a.{{{i}}}b": {"type": "string"} for i in range(12)}}
        ),
        "many items": schema({"type": "array", "minItems": 100_000, "items": {"enum": ["a", "b"]}}),
        "a tool's two multipleOf": tool({"type": "object", "properties": {"x": two}, "required": ["x"]}),
        "a loose tool's patterns": tool({"type": "object", "properties": {"x": patterns}, "required": ["x"]}, False),
        "a hundred tools": {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": f"f{i}", "parameters": wide if i < 3 else two, "strict": True},
                }
                for i in range(100)
            ],
            "tool_choice": "required",
        },
        "very many choices": {"guided_choice": ["x" * 50 + str(i) for i in range(4096)]},
    }
    for i in range(12):  # random intersections
        counts = draw.sample(PRIMES, draw.randrange(3, 8))
        parts = [draw.choice(("", "~")) + f"/({draw.choice(('.', '[a-f]', '(ab|c)'))}{{{c}}})*/" for c in counts]
        rules[f"drawn {i}"] = lark("start: A\nA: " + " & ".join(parts))
    return rules


# --- requests


def complete(server, rule, source="127.0.0.1", limit_s=ANSWER_LIMIT_S, **fields):
    body = {"max_tokens": 8, "temperature": 0, **rule, **fields}
    if "tools" in rule:
        return ask(
            server.port,
            "POST",
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], **body},
            limit_s,
            source=source,
        )
    return ask(server.port, "POST", "/v1/completions", {"prompt": "x", **body}, limit_s, source=source)


def in_order(answer):
    """Answered, refused, or refused temporarily: never an internal error."""
    return answer.status in (200, 400, 413, 503)


def below(pid):
    """(pid, name) of the processes below one."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            for child in (task / "children").read_text().split():
                name = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                found += [(int(child), name), *below(child)]
        except OSError:
            pass  # the process has ended meanwhile
    return found


def ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def whole_mib(server):
    """Memory of the server and its child processes, shared pages counted once: proportional set sizes."""
    kib = 0
    for pid in [server.process.pid, *(pid for pid, _ in below(server.process.pid))]:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return kib / 1024


def wait(condition, limit_s=ANSWER_LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


# --- attacks


def one_by_one(tally, server, rules):
    for name, rule in rules.items():
        try:
            answer = complete(server, rule)
            wrong = "" if in_order(answer) else repr(answer)
        except (Lost, OSError) as lost:
            wrong = f"{lost}; exit status {server.process.poll()}"
        tally.check(f"answered or refused: {name}", not wrong, wrong, rule)
        if not server.alive():
            return


def beside_good_ones(tally, server, rules, draw):
    """Four clients send hostile rules repeatedly, another one sends good rules that are new each time."""
    stop, wrong, peak = threading.Event(), [], [0.0]
    before = whole_mib(server)
    items = sorted(rules.items(), key=lambda rule: rule[0])

    def attack(i):
        own = random.Random(i)
        while not stop.is_set():
            name, rule = own.choice(items)
            fresh = dict(rule)
            if "guided_grammar" in fresh:
                fresh["guided_grammar"] += "\n" * own.randrange(1, 1000)  # so that it is not cached
            try:
                answer = complete(server, fresh)
                if not in_order(answer):
                    wrong.append(f"{name}: {answer!r}")
            except (Lost, OSError) as lost:
                wrong.append(f"{name}: {lost}")
                return

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], whole_mib(server) - before)
            time.sleep(0.05)

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        tasks = [pool.submit(attack, i) for i in range(4)] + [pool.submit(watch)]
        slowest, lost = 0.0, []
        for i in range(10 if tally.quick else 60):
            start = time.monotonic()
            rule = draw.choice(
                (
                    {"guided_regex": f"[ab]{{{i + 1}}}"},
                    schema({"type": "object", "properties": {f"p{i}": {"type": "boolean"}}, "required": [f"p{i}"]}),
                    lark(f'start: "yes {i}" | "no {i}"'),
                )
            )
            try:
                answer = complete(server, rule, source="127.0.0.2")
                if answer.status != 200:
                    lost.append(repr(answer))
            except (Lost, OSError) as error:
                lost.append(str(error))
            slowest = max(slowest, time.monotonic() - start)
        stop.set()
        for task in tasks:
            task.result()
    tally.worst("slowest good rule ms", round(1000 * slowest))
    tally.worst("MiB grown at worst", peak[0])
    tally.check("good rules are compiled beside hostile ones", not lost, f"{len(lost)} were not: {lost[:2]}")
    tally.check("hostile rules are answered or refused, four at once", not wrong, f"{wrong[:2]}")
    tally.check("memory beside hostile rules", peak[0] <= MIB_GROWN, f"grew by {peak[0]:.0f} MiB; bound {MIB_GROWN}")


def many_choices(tally, server):
    """Rules whose answers need much memory, many answers at once: one total bounds them."""
    before, peak, stop = whole_mib(server), [0.0], threading.Event()

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], whole_mib(server) - before)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    large = schema({"type": "integer", "multipleOf": 9973})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        choices = (128, 128, 64, 48, 32, 32, 24, 24, 16, 16, 8, 8)  # the first have no room, the last ones do
        answers = list(pool.map(lambda n: complete(server, large, n=n, temperature=1, max_tokens=32), choices))
    stop.set()
    watcher.join()
    # Within the memory plan's share, plus one mask for each answer.
    tally.worst("MiB of many choices", peak[0])
    tally.check("many choices of a large rule are bounded", peak[0] <= 900, f"grew by {peak[0]:.0f} MiB; bound 900")
    few = complete(server, large, n=8, temperature=1, max_tokens=32)
    tally.check("few choices are answered afterwards", few.status == 200, repr(few))
    tally.check("many choices are answered or refused", all(in_order(a) for a in answers), f"{answers}")


def given_up(tally, server, rules):
    """Clients that disconnect while their rule is tried."""
    rule = next(rule for name, rule in sorted(rules.items()) if "guided_grammar" in rule)
    for i in range(8):
        try:
            complete(server, {"guided_grammar": rule["guided_grammar"] + "\n" * (2000 + i)}, limit_s=0.05)
        except (Lost, OSError):
            pass
    tally.check(
        "a client that leaves ends its trial", wait(lambda: trials(server) == 0), f"{below(server.process.pid)}"
    )


def trials(server):
    """The number of processes beyond the one that tries rules."""
    return max(0, len(below(server.process.pid)) - 1)


def afterwards(tally, server, before):
    answer = complete(server, {"guided_regex": "[ab]{4}"})
    tally.check("a good rule afterwards", answer.status == 200, repr(answer))
    tally.check("no trial is left", wait(lambda: trials(server) == 0), f"{below(server.process.pid)}")
    tally.check("nothing is left running", server.idle(), "requests, KV blocks or exchanges are left")
    kept = whole_mib(server) - before
    tally.worst("MiB kept", kept)
    tally.check("memory comes back", kept <= MIB_KEPT, f"{kept:.0f} MiB more than before; the bound is {MIB_KEPT}")
    stderr = [line for line in server.lines if "panicked" in line or "memory allocation" in line]
    tally.check("the library's words are not in the log", not stderr, f"{stderr[:2]}")


def killed(tally, rules):
    """kill -9 of the server while rules are tried."""
    endless = rules.get("twelve counts, in two definitions") or lark("start: A\nA: " + intersected(PRIMES[:8]))
    for i in range(2 if tally.quick else 6):
        with Server() as server:
            threading.Thread(target=lambda: quietly(server, endless), daemon=True).start()
            wait(lambda: trials(server) > 0 or i % 2 == 1, 10)
            processes = [pid for pid, _ in below(server.process.pid)]
            server.process.kill()
            server.process.wait()
            tally.check(
                "no process is left after kill -9", wait(lambda: all(ended(pid) for pid in processes)), f"{processes}"
            )


def quietly(server, rule):
    try:
        complete(server, rule)
    except (Lost, OSError):
        pass
