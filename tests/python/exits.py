"""Programs whose interpreter ends while daemon threads repeat one call of the package. Used by exit_test.py, and with
more rounds by tests/abuse."""

import inspect
import subprocess
import sys
import textwrap

LIMIT_S = 60
THREADS = 3
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
CHAT = [{"role": "user", "content": "a"}]
HEAD = f"""
import asyncio, http.server, os, pickle, sys, threading, time, urllib.request
import tactus
from tactus import AsyncLLM, LLM, PlanCosts, SamplingParams, plan, simulate
CHAT, SCHEMA = {CHAT!r}, {SCHEMA!r}
P = SamplingParams(max_tokens=4, ignore_eos=True)
LONG = SamplingParams(n=8, max_tokens=500, ignore_eos=True)
COSTS = PlanCosts(flops_per_token=1, attention_flops=0, kv_bytes_per_token=1, flops_per_s=1, bytes_per_s=1)
"""

# What each thread repeats. `Name.method`: a method of the package; text after a blank distinguishes cases.
CALLS = {
    "LLM": "llm(max_num_seqs=4).close()",
    "LLM left open": "kept.append(llm(max_num_seqs=4)); del kept[:-2]",
    "LLM.generate": "model.generate(['a', 'b'], P, use_tqdm=False)",
    "LLM.generate long": "model.generate(['a', 'b'], LONG, use_tqdm=False)",
    "LLM.generate wrong": "model.generate([[1000000]], P, use_tqdm=False)",
    "LLM.generate logprobs": "model.generate('a', SamplingParams(logprobs=5), use_tqdm=False)",
    "LLM.chat": "model.chat(CHAT, P, use_tqdm=False)",
    "LLM.answer_each": "model.answer_each(['a', [1000000]], P)",
    "LLM.stream": "list(model.stream('a', P))",
    "LLM.stream left": "next(model.stream('a', LONG))",
    "LLM.stream_chat": "list(model.stream_chat(CHAT, P))",
    "LLM.encode": "model.encode('some words ' * 20)",
    "LLM.encode long": "model.encode('some words ' * 20000)",
    "LLM.encode_chat": "model.encode_chat(CHAT)",
    "LLM.decode": "model.decode([5, 6, 7])",
    "LLM.get_tokenizer": "model.get_tokenizer().encode('a')",
    "LLM.model": "model.model",
    "LLM.outcome": "model.outcome()",
    "LLM.metrics_text": "model.metrics_text()",
    "LLM.close": "its = llm(max_num_seqs=4); its.close(); its.close()",
    "AnswerStream.close": "stream = model.stream('a', LONG); next(stream); stream.close()",
    "AsyncLLM": "AsyncLLM(*PATH, **dict(OPTIONS, max_num_seqs=4)).close()",
    "AsyncLLM.generate": "asyncio.run(awaited.generate(['a', 'b'], P))",
    "AsyncLLM.generate long": "asyncio.run(awaited.generate(['a', 'b'], LONG))",
    "AsyncLLM.chat": "asyncio.run(awaited.chat(CHAT, P))",
    "AsyncLLM.stream": "asyncio.run(read(awaited.stream('a', P)))",
    "AsyncLLM.stream_chat": "asyncio.run(read(awaited.stream_chat(CHAT, LONG)))",
    "AsyncLLM.encode": "awaited.encode('a')",
    "AsyncLLM.encode_chat": "awaited.encode_chat(CHAT)",
    "AsyncLLM.decode": "awaited.decode([5])",
    "AsyncLLM.model": "awaited.model",
    "AsyncLLM.outcome": "awaited.outcome()",
    "AsyncLLM.metrics_text": "awaited.metrics_text()",
    "AsyncLLM.close": "its = AsyncLLM(*PATH, **dict(OPTIONS, max_num_seqs=4)); its.close()",
    "AsyncAnswerStream.close": "asyncio.run(read(awaited.stream('a', LONG), 1))",
    "AsyncAnswerStream.aclose": "asyncio.run(read(awaited.stream('a', LONG), 1, 'aclose'))",
    "SamplingParams": "SamplingParams(n=2)",
    "SamplingParams wrong": "SamplingParams(n=0)",
    "SamplingParams.fields": "SamplingParams(seed=1).fields(True)",
    "StructuredOutputsParams": "SamplingParams(structured_outputs=tactus.StructuredOutputsParams(json=SCHEMA))",
    "a grammar": "model.generate('a', SamplingParams(structured_outputs={'json': SCHEMA}), use_tqdm=False)",
    "simulate": "simulate(model='llama-3.1-8b', device='a100', workload='chat', rate=2, requests=20)",
    "simulate long": "simulate(model='llama-3.1-8b', device='a100', workload='chat', rate=2, requests=10**8)",
    "simulate wrong": "simulate(model='llama-3.1-8b', device='a99')",
    "plan": "plan([[1, 2, 3]] * 50, costs=COSTS, kv_tokens=100)",
    "PlanCosts": "PlanCosts.of('llama-3.1-8b', 'a100')",
    "PlanCosts.of": "PlanCosts.of('llama-3.1-8b', 'a99')",
    "a server": "urllib.request.urlopen(URL, timeout=30).read()",
}
# Public names without calls to test.
WITHOUT_WORK = {"Prompt", "Message", "__version__"}

PROGRAM = """
PATH, OPTIONS = ({path!r},), {options!r}
def llm(**options):
    return LLM(*PATH, **dict(OPTIONS, **options))
model = llm()
awaited = AsyncLLM(*PATH, **OPTIONS)
kept = []
async def read(stream, pieces=10**9, end="close"):
    count = 0
    async for _ in stream:
        count += 1
        if count >= pieces:
            break
    done = getattr(stream, end)()
    if done is not None:
        await done
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = model.generate("a", LONG, use_tqdm=False)[0].outputs[0].text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, address):
        pass                       # its clients and its model go while it answers
server = Server(("127.0.0.1", 0), Handler)
URL = "http://127.0.0.1:%d/" % server.server_port
threading.Thread(target=server.serve_forever, daemon=True).start()
begun, ending = [0] * {threads}, False
def run(i):
    while True:
        begun[i] += 1
        try:
            {call}
        except tactus.TactusError:
            pass
        except Exception as error:
            if not ending:
                print("unexpected:", repr(error))
for i in range({threads}):
    threading.Thread(target=run, args=(i,), daemon=True).start()
start = time.monotonic()
while min(begun) < {rounds} and not (min(begun) and time.monotonic() - start > 0.2):
    time.sleep(0.001)
time.sleep({pause})
ending = True
{close}
print("end")
"""


def program(tiny, call, pause_ms, closes):
    """`closes`: closes the models before the end; otherwise they are still open."""
    return HEAD + textwrap.dedent(PROGRAM).format(
        path=str(tiny.path),
        options=tiny.options,
        threads=THREADS,
        rounds=3,
        pause=pause_ms / 1000,
        call=call,
        close="model.close(); awaited.close()" if closes else "",
    )


def run(text):
    """The error in the end of the program; empty if it ended with status 0 after its last line."""
    try:
        done = subprocess.run([sys.executable, "-u", "-c", text], capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        return f"it did not end within {LIMIT_S} s: {late.stdout!r} {late.stderr!r}"
    if done.returncode == 0 and done.stdout == "end\n":
        return ""
    return f"exit status {done.returncode}: {done.stdout}{done.stderr[-2000:]}"


def public_calls(tactus):
    """Names of everything that a user can call, in the form of CALLS."""
    names = set()
    for name in set(tactus.__all__) - WITHOUT_WORK:
        thing = getattr(tactus, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            continue
        plain = isinstance(thing, type) and hasattr(thing, "__dataclass_fields__")
        if not plain or name in ("SamplingParams", "StructuredOutputsParams", "PlanCosts"):
            names.add(name)
        if not inspect.isclass(thing):
            continue
        for attribute, value in vars(thing).items():
            works = inspect.isfunction(value) or isinstance(value, (property, staticmethod, classmethod))
            if not attribute.startswith("_") and works and (not plain or name in ("SamplingParams", "PlanCosts")):
                names.add(f"{name}.{attribute}")
    return names - {"AnswerStream", "AsyncAnswerStream", "SamplingParams.has_rule"}
