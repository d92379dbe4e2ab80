"""Faults: kill -9 during streams and during writing of --weight-cache and --trace-out; damaged model files, caches,
traces and workloads; a server that dies under `tactus bench`.

After any damage a command ends by itself within its limit with exit status 0, 1 or 2, never by a signal, and reports a
failure on stderr. A damaged weight cache is rebuilt, and the answer equals that without a cache.
"""

import json
import pathlib
import random
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from program import BINARY, ENVIRONMENT, ROOT, DidNotStart, Server, tactus
from wire import Lost, Wire, ask, request

GOLDEN = ROOT / "tests/golden/data"
COMMAND_LIMIT_S = 60
RUN = ("-p", "hello", "--raw", "--max-tokens", "4", "--temperature", "0", "--kv-cache-memory", "1MiB", "--threads", "1")


def run(tally, seed):
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tactus-abuse-") as folder:
        folder = pathlib.Path(folder)
        damaged_models(tally, draw, folder)
        damaged_weight_cache(tally, draw, folder)
        damaged_traces(tally, draw, folder)
        damaged_workloads(tally, draw, folder)
        killed_in_streams(tally, draw)
        killed_in_weight_cache(tally, draw, folder)
        bench_against_the_dying(tally, draw)


# --- damage


def damage(data, draw):
    """(description, damaged bytes). Flips, cuts, zeros, ones, repetitions, and numbers set to extremes."""
    data = bytearray(data)
    # Parsed data is in the head: half of the damage goes there.
    reach = len(data) if draw.random() < 0.5 else min(len(data), 4096)
    at = draw.randrange(max(1, reach))
    kind = draw.choice(["flip", "flips", "cut", "zeros", "ones", "splice", "remove", "extreme", "append"])
    if kind == "flip":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "flips":
        for _ in range(draw.randrange(2, 40)):
            data[draw.randrange(reach)] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind in ("zeros", "ones"):
        length = draw.choice((1, 4, 8, 64, 4096))
        data[at : at + length] = (b"\0" if kind == "zeros" else b"\xff") * len(data[at : at + length])
    elif kind == "splice":
        start = draw.randrange(len(data))
        piece = data[start : start + draw.randrange(1, 256)]
        data[at:at] = piece
    elif kind == "remove":
        del data[at : at + draw.randrange(1, 64)]
    elif kind == "extreme":
        for i in range(at, len(data)):  # the next number in the text, else eight bytes
            if data[i : i + 1].isdigit():
                end = i
                while data[end : end + 1].isdigit():
                    end += 1
                data[i:end] = draw.choice(
                    [
                        b"0",
                        b"-1",
                        b"1e30",
                        b"2147483648",
                        b"9223372036854775807",
                        b"99999999999999999999999",
                        b"0.5",
                        b"null",
                        b'"x"',
                        b"[]",
                        b"1000000007",
                    ]
                )
                break
            if i > at + 200:
                data[at : at + 8] = draw.choice(
                    [b"\xff" * 8, b"\0" * 7 + b"\x80", b"\xff" * 7 + b"\x7f", (1 << 40).to_bytes(8, "little")]
                )
                break
    else:
        data += draw.randbytes(draw.randrange(1, 200))
    return f"{kind} at {at}", bytes(data)


def ended_in_order(done):
    """Empty, or the fault in how a command ended."""
    if done.returncode is None:
        return f"it hangs: {done.stderr}"
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}: {done.stderr[-500:]}"
    if done.returncode != 0 and not done.stderr.strip():
        return f"exit status {done.returncode} without a message"
    if len(done.stderr) > 20_000:
        return f"{len(done.stderr)} bytes of messages: {done.stderr[:300]}"
    return ""


def damaged_models(tally, draw, folder):
    """Damages every file of a model: `run` for formats that can be served, `models inspect` for every format."""
    targets = [
        ("llama-gqa", name, ["run", None, *RUN])
        for name in (
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "model.safetensors",
            "generation_config.json",
        )
    ]
    targets += [
        ("llama-gqa", name, ["run", None, *RUN, "--quantization", "int8"])
        for name in ("model.safetensors", "config.json")
    ]
    targets += [(f"gguf-{name}", "model.gguf", ["run", None, *RUN]) for name in ("q8_0", "q4_k", "mixed", "bf16")]
    targets += [("gguf-f16", "model.gguf", ["models", "inspect", None])]
    targets += [
        ("llama-sharded", name, ["models", "inspect", None])
        for name in ("model.safetensors.index.json", "model-00002-of-00003.safetensors", "config.json")
    ]
    targets += [("qwen3", "config.json", ["models", "inspect", None])]
    refused = 0
    for model, name, command in targets:
        copy = folder / "damaged"
        shutil.copytree(GOLDEN / model, copy, ignore=shutil.ignore_patterns("*.f32", "golden.json"))
        give_tokenizer(copy)
        whole = (copy / name).read_bytes()
        path = copy / name if name.endswith(".gguf") else copy
        arguments = [path if a is None else a for a in command]
        intact = tactus(*arguments, timeout=COMMAND_LIMIT_S)
        tally.check(f"{model} undamaged", intact.returncode == 0, intact.stderr[-500:])
        for i in range(4 if tally.quick else 24):
            what, data = damage(whole, draw)
            (copy / name).write_bytes(data)
            done = tactus(*arguments, timeout=COMMAND_LIMIT_S)
            wrong = ended_in_order(done)
            refused += done.returncode in (1, 2)
            tally.check(f"{model}/{name} {what} ({i})", not wrong, wrong, data)
        shutil.rmtree(copy)
    # The peak over all commands so far: a number in a damaged file must not become an allocation.
    tally.worst("MiB of a command", round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
    tally.figure("damaged models refused", refused)


def give_tokenizer(folder):
    """Adds a tokenizer, which only llama-gqa has: other models get the part that fits their embeddings; a GGUF gets it
    in its metadata."""
    tokenizer = json.loads((GOLDEN / "llama-gqa/tokenizer.json").read_text())
    model = tokenizer["model"]
    if (folder / "model.gguf").exists():
        vocabulary = {**model["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
        tokens = [t for t, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        path = folder / "model.gguf"
        path.write_bytes(with_tokenizer(path.read_bytes(), tokens, merges))
        return
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    model["vocab"] = {token: i for token, i in model["vocab"].items() if i < size}
    model["merges"] = [
        m for m in model["merges"] if "".join(m.split(" ") if isinstance(m, str) else m) in model["vocab"]
    ]
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["id"] < size]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def with_tokenizer(data, tokens, merges):
    """Adds a gpt2 tokenizer to a GGUF's metadata. The data section moves to the next aligned offset."""
    number = lambda value, size: value.to_bytes(size, "little")  # noqa: E731
    text = lambda value: number(len(value.encode()), 8) + value.encode()  # noqa: E731
    head_end, offset, sizes = None, 24, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    integer = lambda at, size: int.from_bytes(data[at : at + size], "little")  # noqa: E731

    def skip(kind, at):
        if kind == 8:
            return at + 8 + integer(at, 8)
        if kind == 9:
            inner, count, at = integer(at, 4), integer(at + 4, 8), at + 12
            for _ in range(count):
                at = skip(inner, at)
            return at
        return at + sizes[kind]

    tensors, pairs = integer(8, 8), integer(16, 8)
    vocabulary_size = None
    for _ in range(pairs):
        length = integer(offset, 8)
        offset += 8 + length
        offset = skip(integer(offset, 4), offset + 4)
    head_end = offset
    for _ in range(tensors):
        name_length = integer(offset, 8)
        name = data[offset + 8 : offset + 8 + name_length]
        offset += 8 + name_length
        dimensions = integer(offset, 4)
        if name == b"token_embd.weight":
            vocabulary_size = integer(offset + 4 + 8, 8)
        offset += 4 + 8 * dimensions + 4 + 8
    tokens = (tokens + [f"<unused{i}>" for i in range(vocabulary_size)])[:vocabulary_size]
    merges = [m for m in merges if m.replace(" ", "") in set(tokens)]

    def pair(key, kind, value):
        return text(key) + number(kind, 4) + value

    def kind_of(token):  # 3: a control token, which merges cannot produce
        return 3 if token.startswith("<") and token.endswith(">") else 1

    def array(kind, values):
        return number(kind, 4) + number(len(values), 8) + b"".join(values)

    more = [
        pair("tokenizer.ggml.model", 8, text("gpt2")),
        pair("tokenizer.ggml.pre", 8, text("gpt-2")),
        pair("tokenizer.ggml.tokens", 9, array(8, [text(t) for t in tokens])),
        pair("tokenizer.ggml.token_type", 9, array(5, [number(kind_of(t), 4) for t in tokens])),
        pair("tokenizer.ggml.merges", 9, array(8, [text(m) for m in merges])),
    ]  # the ids of its special tokens already exist
    head = data[:16] + number(pairs + len(more), 8) + data[24:head_end] + b"".join(more) + data[head_end:offset]
    aligned = lambda size: (size + 31) // 32 * 32  # noqa: E731
    return head.ljust(aligned(len(head)), b"\0") + data[aligned(offset) :]


# --- weight caches


def damaged_weight_cache(tally, draw, folder):
    cache = folder / "cache"
    command = ["run", GOLDEN / "llama-gqa", *RUN, "--quantization", "int8"]
    plain = tactus(*command).stdout
    tactus(*command, "--weight-cache", cache)
    kept = list(cache.glob("*.packed"))
    if not tally.check("a weight cache is written", len(kept) == 1 and bool(plain), f"{kept}"):
        return
    whole = kept[0].read_bytes()
    for i in range(8 if tally.quick else 60):
        what, data = damage(whole, draw)
        if i % 2:  # at any place in the weights
            at = draw.randrange(4096, len(whole))
            what, data = (
                f"one bit at {at}",
                whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :],
            )
        kept[0].write_bytes(data)
        done = tactus(*command, "--weight-cache", cache, timeout=COMMAND_LIMIT_S)
        wrong = ended_in_order(done)
        if not wrong and (done.returncode != 0 or done.stdout != plain):
            wrong = f"another answer: {done.stdout!r} instead of {plain!r}; {done.stderr}"
        tally.check(f"weight cache, {what} ({i})", not wrong, wrong, data)
    done = tactus(*command, "--weight-cache", cache)
    tally.check("the cache is whole again", kept[0].read_bytes() == whole and done.stdout == plain, done.stderr)


def large_model(folder):
    """A model of 67 MB whose packing takes long enough to be killed. Its weights are a repeated small number."""
    hidden, inner, layers, vocabulary = 512, 2048, 8, 320
    config = json.loads((GOLDEN / "llama-gqa/config.json").read_text())
    config.update(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        torch_dtype="bfloat16",
    )
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        for name, shape in {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (hidden, hidden),
            "self_attn.v_proj": (hidden, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }.items():
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "llama-gqa" / name, folder)
    (folder / "config.json").write_text(json.dumps(config))
    head = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        piece = b"\x80\x3c\x00\xbc" * (1 << 18)  # 0.0156, -0.0078
        for start in range(0, at, len(piece)):
            file.write(piece[: min(len(piece), at - start)])
    return folder


def killed_in_weight_cache(tally, draw, folder):
    model, cache = large_model(folder / "large"), folder / "large-cache"
    command = ["run", model, *RUN, "--quantization", "int8"]
    plain = tactus(*command)
    start = time.monotonic()
    tactus(*command, "--weight-cache", cache)
    whole_s = time.monotonic() - start
    if not tally.check(
        "the large model runs and its weights are kept",
        plain.returncode == 0 and len(list(cache.glob("*.packed"))) == 1,
        plain.stderr,
    ):
        return
    unfinished = 0
    for i in range(2 if tally.quick else 16):
        shutil.rmtree(cache)
        process = subprocess.Popen(
            [BINARY, *map(str, command), "--weight-cache", str(cache)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        if i % 2:  # while the file grows
            end = time.monotonic() + 20
            while time.monotonic() < end and process.poll() is None and not (cache.exists() and list(cache.iterdir())):
                time.sleep(0.0005)
        else:
            time.sleep(whole_s * draw.random())
        process.kill()
        process.wait()
        left = len(list(cache.glob("*.tmp"))) if cache.exists() else 0
        unfinished += left
        done = tactus(*command, "--weight-cache", cache, timeout=COMMAND_LIMIT_S)
        again = tactus(*command, "--weight-cache", cache, timeout=COMMAND_LIMIT_S)
        files = sorted(p.name for p in cache.iterdir())
        wrong = ended_in_order(done) or ended_in_order(again)
        if not wrong and (done.stdout, again.stdout) != (plain.stdout, plain.stdout):
            wrong = f"another answer: {done.stdout!r}, {again.stdout!r} instead of {plain.stdout!r}"
        if not wrong and (len(files) != 1 or not files[0].endswith(".packed")):
            wrong = f"left behind: {files}"
        tally.check(f"kill -9 while the weight cache is written ({i})", not wrong, wrong)
    tally.figure("caches cut off", unfinished)


# --- traces


def recorded_trace(folder, kill_after_s=None):
    """Serves a few requests with --trace-out; returns the trace's bytes and the number of answers."""
    path = folder / "trace"
    answered = 0
    with Server("--trace-out", path, kv_memory="512KiB") as server:
        wires = [Wire(server.port, 30) for _ in range(12)]
        for i, wire in enumerate(wires):
            wire.send(
                request(
                    "POST",
                    "/v1/completions",
                    {
                        "prompt": "x" * (i * 7 + 1),
                        "max_tokens": 400 if kill_after_s is not None else 20 + i,
                        "ignore_eos": True,
                        "stream": True,
                    },
                )
            )
        if kill_after_s is None:
            for wire in wires:
                answered += wire.read().status == 200
            server.stop()
        else:
            time.sleep(kill_after_s)
            server.process.kill()
            server.process.wait()
        for wire in wires:
            wire.close()
    return path.read_bytes() if path.exists() else b"", answered


def damaged_traces(tally, draw, folder):
    whole, answered = recorded_trace(folder)
    path = folder / "damaged-trace"
    path.write_bytes(whole)
    done = tactus("sim", "--replay", path, timeout=COMMAND_LIMIT_S)
    tally.check(
        "a whole trace replays identically",
        answered == 12 and done.returncode == 0 and "identical" in done.stdout,
        f"{done.stdout} {done.stderr}",
        whole,
    )
    for i in range(10 if tally.quick else 120):
        what, data = damage(whole, draw)
        path.write_bytes(data)
        done = tactus("sim", "--replay", path, timeout=COMMAND_LIMIT_S)
        wrong = ended_in_order(done)
        tally.check(f"trace, {what} ({i})", not wrong, wrong, data)
    replayed = 0
    for i in range(2 if tally.quick else 12):
        cut, _ = recorded_trace(folder, draw.random() * 0.3)
        path.write_bytes(cut)
        done = tactus("sim", "--replay", path, timeout=COMMAND_LIMIT_S)
        wrong = ended_in_order(done)
        if not wrong and done.returncode == 0:
            replayed += 1
            if "DIFFERENT" in done.stdout:
                wrong = f"the recording replays differently: {done.stdout}"
        tally.check(f"trace of a server that was killed ({i})", not wrong, wrong, cut)
    tally.figure("cut traces replayed", replayed)


def damaged_workloads(tally, draw, folder):
    rows = [
        f"{i * 0.01:.3f},{draw.randrange(500, 2000)},{draw.randrange(1, 200)},{i // 3},{100 + i // 3},"
        f"{draw.randrange(10, 500)},{draw.randrange(10, 90)},{draw.randrange(500, 9000)},class"
        f" {i % 3},{i % 5 - 2},{i + 1},client {i % 7}"
        for i in range(200)
    ]
    whole = (
        "arrival_s,prompt_tokens,output_tokens,prefix_id,shared_tokens,slo_ttft_ms,slo_tbt_ms,slo_jct_ms,slo_class,priority,"
        "predicted_output_tokens,client\n" + "\n".join(rows) + "\n"
    ).encode()
    path = folder / "workload.csv"
    base = ["sim", "--model", "llama-3.1-8b", "--device", "h100", "--requests", 100]
    for kind, more in (("trace", []), ("lengths", ["--rate", 10])):
        path.write_bytes(whole)
        done = tactus(*base, "--workload", f"{kind}:{path}", *more, timeout=COMMAND_LIMIT_S)
        tally.check(f"{kind}:FILE undamaged", done.returncode == 0, done.stderr)
        for i in range(5 if tally.quick else 50):
            what, data = damage(whole, draw)
            path.write_bytes(data)
            done = tactus(*base, "--workload", f"{kind}:{path}", *more, timeout=COMMAND_LIMIT_S)
            wrong = ended_in_order(done)
            tally.check(f"{kind}:FILE, {what} ({i})", not wrong, wrong, data)


# --- processes that die


def killed_in_streams(tally, draw):
    """A killed server ends its streams without [DONE]; the next server on the same port serves."""
    for i in range(2 if tally.quick else 15):
        with Server() as server:
            port = server.port
            wires = [Wire(port, 30) for _ in range(8)]
            for n, wire in enumerate(wires):
                wire.send(
                    request(
                        "POST",
                        "/v1/completions",
                        {"prompt": "x" * (n + 1), "max_tokens": 1900, "ignore_eos": True, "stream": True},
                    )
                )
            time.sleep(draw.random() * 0.1)
            server.process.kill()
            server.process.wait()
            whole = 0
            for wire in wires:
                try:
                    whole += wire.read().body.endswith(b"[DONE]\n\n")
                except Lost as lost:
                    tally.check(f"kill -9 ends a stream at once ({i})", wire.ended, str(lost))
                wire.close()
        try:
            with Server(port=port) as again:
                answer = ask(again.port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 4})
                tally.check(
                    f"a server starts where one was killed ({i})",
                    again.port == port and answer.status == 200,
                    f"port {again.port}: {answer}",
                )
        except (DidNotStart, OSError, Lost) as failed:
            tally.check(f"a server starts where one was killed ({i})", False, str(failed))


class FakeServer:
    """Answers every connection with the same bytes, or never."""

    def __init__(self, answer, close=True):
        self.answer, self.close_after, self.connections = answer, close, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            try:
                connection.settimeout(1)
                connection.recv(65536)
                connection.sendall(self.answer)
            except OSError:
                pass
            if self.close_after:
                connection.close()
            else:
                self.connections.append(connection)

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)
        for connection in self.connections:
            connection.close()


def bench(url, *more, requests=200):
    return [
        "bench",
        "--url",
        url,
        "--model",
        "m",
        "--concurrency",
        8,
        "--requests",
        requests,
        "--workload",
        "random:in=8,out=32",
        "--vocab-size",
        500,
        "--timeout",
        "2s",
        *more,
    ]


def bench_against_the_dying(tally, draw):
    for i in range(1 if tally.quick else 5):
        with Server() as server:
            process = subprocess.Popen(
                [BINARY, *map(str, bench(server.url, requests=100_000))],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
            )
            time.sleep(0.2 + draw.random() * 0.4)
            server.process.kill()
            try:
                out, err = process.communicate(timeout=COMMAND_LIMIT_S)
                done = subprocess.CompletedProcess([], process.returncode, out, err)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                done = subprocess.CompletedProcess([], None, "", f"no end within {COMMAND_LIMIT_S} s")
        wrong = ended_in_order(done)
        if not wrong and "fail" not in (done.stdout + done.stderr).lower():
            wrong = f"no message about the failed requests: {done.stdout} {done.stderr}"
        tally.check(f"bench when its server is killed ({i})", not wrong, wrong)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    for name, answer, close in (
        ("closes at once", b"", True),
        ("never answers", b"", False),
        ("sends noise", draw.randbytes(500), True),
        ("sends half a head", b"HTTP/1.1 200 OK\r\nContent", True),
        ("sends half a body", head + b"Content-Length: 100\r\n\r\nhalf", True),
        ("sends a wrong chunk", head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", True),
        (
            "sends events that are not JSON",
            head + b"Transfer-Encoding: chunked\r\n\r\na\r\ndata: {{\n\n\r\n0\r\n\r\n",
            True,
        ),
        ("answers 500", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", True),
        (
            "sends an endless chunk",
            head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + b"x" * 65536,
            False,
        ),
        ("sends a megabyte of headers", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 170_000, False),
    ):
        fake = FakeServer(answer, close)
        done = tactus(*bench(f"http://127.0.0.1:{fake.port}", requests=16), timeout=COMMAND_LIMIT_S)
        fake.stop()
        wrong = ended_in_order(done)
        tally.check(f"bench when its server {name}", not wrong, wrong)
