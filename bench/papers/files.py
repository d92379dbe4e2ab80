"""Workload files of the claims, made from a seed: lengths with a paper's quantiles where its data are not at hand. A claim's flags name them
as {name}."""
import hashlib
import pathlib
import random
import tempfile

import shared

def summaries(seed, requests):
    """arxiv_summarization by the quantiles of Sarathi-Serve's table 2."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "lengths.csv"
        shared.load("policies/sarathi_serve.py").write_summaries(path, seed, requests)
        return path.read_text()


def zipf(seed, requests):
    """Sarathi's pipeline: 1,024 to 4,096 tokens by a Zipf law (exponent 0.4: lost from the text), ten prompt tokens per answered one."""
    draw = random.Random(seed)
    totals = list(range(1024, 4097))
    weights = [(rank + 1) ** -0.4 for rank in range(len(totals))]
    rows = [(total - total // 11, total // 11) for total in draw.choices(totals, weights, k=requests)]
    return "prompt_tokens,output_tokens\n" + "".join(f"{p},{d}\n" for p, d in rows)


def mix(seed, requests, prompt, streams, context):
    """Streams behind `context` tokens each, and a prompt that comes while theirs are computed: whole prompts join it with the first decodes."""
    return "arrival_s,prompt_tokens,output_tokens\n" + f"0,{context},50\n" * streams + f"0.000001,{prompt},2\n"


MADE = {make.__name__: make for make in (summaries, zipf, mix)}


class Files:
    """Writes each file once, under its content's hash."""

    def __init__(self, folder, made=None):
        self.folder, self.made = pathlib.Path(folder), made or MADE
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name, seed, requests):
        function, *sizes = name.split("_")  # mix_8192_32_1024
        text = self.made[function](seed, requests, *map(int, sizes))
        path = self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.csv"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_text(text)
            part.rename(path)
        return path
