"""Workload files of the claims, made from a seed: lengths with a paper's quantiles where its data are not at hand. A
claim's flags name them
as {name}."""

import hashlib
import os
import pathlib
import random
import tempfile
import threading

import shared


def summaries(seed, requests):
    """arxiv_summarization by the quantiles of Sarathi-Serve's table 2."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "lengths.csv"
        shared.load("policies/sarathi_serve.py").write_summaries(path, seed, requests)
        return path.read_text()


def zipf(seed, requests):
    """Sarathi's pipeline: 1,024 to 4,096 tokens by a Zipf law (exponent 0.4: lost from the text), ten prompt tokens per
    answered one."""
    draw = random.Random(seed)
    totals = list(range(1024, 4097))
    weights = [(rank + 1) ** -0.4 for rank in range(len(totals))]
    rows = [(total - total // 11, total // 11) for total in draw.choices(totals, weights, k=requests)]
    return "prompt_tokens,output_tokens\n" + "".join(f"{p},{d}\n" for p, d in rows)


def mix(seed, requests, prompt, streams, context):
    """Streams behind `context` tokens each, and a prompt that comes while theirs are computed: whole prompts join it
    with the first decodes."""
    return "arrival_s,prompt_tokens,output_tokens\n" + f"0,{context},50\n" * streams + f"0.000001,{prompt},2\n"


def accelgen(seed, requests, longest, long_percent=14, answers=0):
    """AccelGen's figure 8, as bench/policies/accelgen.py draws it; `answers`: the most tokens of an answer."""
    draw, lengths = random.Random(seed), shared.load("policies/accelgen.py").draw_lengths
    return "prompt_tokens,output_tokens\n" + "".join(
        "%d,%d\n" % lengths(draw, longest, long_percent / 100, answers) for _ in range(requests)
    )


def uniform(seed, requests, least, most, answer):
    """Prompts of one data set of AccelGen: only their range is known."""
    draw = random.Random(seed)
    return "prompt_tokens,output_tokens\n" + "".join(
        f"{draw.randint(least, most)},{draw.randint(1, answer)}\n" for _ in range(requests)
    )


def era(seed, requests):
    """AccelGen's figure 6: two long prompts and twenty short ones; answers of 256 tokens are ours."""
    draw = random.Random(seed)
    return (
        "arrival_s,prompt_tokens,output_tokens\n"
        + "0,10214,256\n0,10252,256\n"
        + "".join(f"0,{draw.randint(128, 384)},256\n" for _ in range(20))
    )


def blend(seed, requests, density_percent, sharing_percent, dense="burstgpt"):
    """A job of BlendServe's, as bench/offline/mixes.py makes it."""
    mixes = shared.load("offline/mixes.py")
    rows = mixes.make(
        density_percent / 100,
        sharing_percent / 100,
        requests,
        dense,
        seed,
        pathlib.Path(os.environ.get("TACTUS_DATA", ".")),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "job.csv"
        mixes.write(path, rows)
        return path.read_text()


MADE = {make.__name__: make for make in (summaries, zipf, mix, accelgen, uniform, era, blend)}
# Public traces' lengths, and what stands in where the data are not at hand.
TRACES = {"azure2023_code": "code", "azure2023_conv": "chat"}


def data_folder():
    """The public traces' folder, or None."""
    folder = pathlib.Path(os.environ.get("TACTUS_DATA", "")) / "traces"
    return folder if os.environ.get("TACTUS_DATA") and folder.is_dir() else None


class Files:
    """Writes each file once, under its content's hash."""

    def __init__(self, folder, made=None):
        self.folder, self.made, self.paths, self.contents, self.lock = (
            pathlib.Path(folder),
            made or MADE,
            {},
            {},
            threading.Lock(),
        )
        self.folder.mkdir(parents=True, exist_ok=True)

    def workload(self, name, seed, requests):
        """What a command's {name} stands for: a file's path, or a trace as `--workload` takes it."""
        if name in TRACES:
            folder = data_folder()
            return f"lengths:{folder / name}.csv" if folder else TRACES[name]
        with self.lock:
            if (name, seed, requests) not in self.paths:
                function, *sizes = name.split("_")  # mix_8192_32_1024
                text = self.made[function](seed, requests, *(int(s) if s.isdigit() else s for s in sizes))
                path = self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.csv"
                path.write_text(text)
                self.paths[name, seed, requests] = path
            return str(self.paths[name, seed, requests])

    def content(self, argument):
        """An argument of a command as what it says: a file by what is in it, wherever it lies."""
        kind, _, path = argument.partition(":")
        if not path.startswith("/"):
            return argument
        with self.lock:
            if path not in self.contents:
                self.contents[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
            return f"{kind}:{self.contents[path]}"
