#!/usr/bin/env python3
"""Compares our tokenisers with the reference implementations on random odd strings; exits 1 if any differs.

  tools/compare_tokenizers.py build/release/tests/language/text/tokenize_lines \
    [--gguf MODEL.gguf] [--count 10000] [--seed 1]

Every tokenizer.json and tokenizer.model in tests/language/text/data, and the tokeniser of a given GGUF file: encoding
with special tokens parsed, encoding with them as text, and decoding of random ids. Needs the packages that
make_tokenizer_golden.py needs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from make_tokenizer_golden import DATA, ODD, gguf_fields, odd_strings, tokenizer_of_gguf
from tokenizers import Tokenizer


def ours(program, kind, path, flags, inputs):
    text = "\n".join(json.dumps(value) for value in inputs) + "\n"
    run = subprocess.run([program, kind, str(path), *flags], input=text, capture_output=True, text=True, check=True)
    if run.stderr:
        sys.exit(f"{path}: {run.stderr[:1000]}")
    return [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]


def compare(name, inputs, expected, got):
    wrong = [i for i, (e, g) in enumerate(zip(expected, got, strict=True)) if e != g]
    print(f"{name}: {len(wrong)} of {len(inputs)} differ")
    for i in wrong[:5]:
        print(f"  input {inputs[i]!r}\n    reference {expected[i]!r}\n    ours      {got[i]!r}")
    return len(wrong)


def random_ids(tokenizer, count, seed):
    """Without added tokens with `normalized` (their decoding depends on the reference's version) and, for
    SentencePiece,
    without byte tokens: the reference decodes a whole run of them with one invalid byte as U+FFFD, which cannot be
    streamed.
    """
    added = tokenizer.get_added_tokens_decoder()
    size = max(tokenizer.get_vocab().values()) + 1
    ids = [
        i
        for i in range(size)
        if not (i in added and added[i].normalized) and not (tokenizer.id_to_token(i) or "").startswith("<0x")
    ]
    rng = random.Random(seed)
    return [[rng.choice(ids) for _ in range(rng.randrange(0, 20))] for _ in range(count)]


def compare_huggingface(program, kind, path, tokenizer, count, seed, name):
    specials = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    strings = ODD + odd_strings(count, seed, specials)
    wrong = 0
    for literal in (False, True):
        tokenizer.encode_special_tokens = literal
        expected = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
        flags = ["--no-special"] if literal else []
        wrong += compare(
            f"{name} encode {'literal' if literal else ''}",
            strings,
            expected,
            ours(program, kind, path, flags, strings),
        )
    lists = random_ids(tokenizer, count, seed)
    for skip in (False, True):
        expected = [tokenizer.decode(ids, skip_special_tokens=skip) for ids in lists]
        flags = ["--decode"] + (["--bos"] if skip else [])
        wrong += compare(
            f"{name} decode {'skip' if skip else ''}", lists, expected, ours(program, kind, path, flags, lists)
        )
    return wrong


def compare_sentencepiece(program, path, count, seed):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    strings = ODD + odd_strings(count, seed)
    got = ours(program, "spm", path, ["--no-special"], strings)
    return compare(f"{path.name} encode", strings, [processor.encode(s) for s in strings], got)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the tokenize_lines executable")
    parser.add_argument("--gguf", help="a GGUF file with a byte-level tokeniser")
    parser.add_argument(
        "--model", action="append", default=[], help="a further tokenizer.json or SentencePiece tokenizer.model"
    )
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong = 0
    for path in (
        sorted(DATA.glob("*tokenizer.json"))
        + sorted(DATA.glob("*tokenizer.model"))
        + [pathlib.Path(p) for p in args.model]
    ):
        if path.suffix == ".json":
            wrong += compare_huggingface(
                args.program, "json", path, Tokenizer.from_file(str(path)), args.count, args.seed, path.name
            )
        else:
            wrong += compare_sentencepiece(args.program, path, args.count, args.seed)
    if args.gguf:
        fields = gguf_fields(args.gguf)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(fields, file)
            file.flush()
            wrong += compare_huggingface(
                args.program,
                "gguf-fields",
                file.name,
                tokenizer_of_gguf(fields),
                args.count,
                args.seed,
                pathlib.Path(args.gguf).name,
            )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
