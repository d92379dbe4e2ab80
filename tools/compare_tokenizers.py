#!/usr/bin/env python3
"""Compares our tokenisers with the reference implementations on random odd strings; exits 1 if any differs.

  tools/compare_tokenizers.py build/release/tests/language/text/tokenize_lines \
    [--gguf MODEL.gguf] [--count 100000] [--seed 1] [--match NAME]

Every tokenizer.json, tokenizer.model and tekken.json below tests/language/text/data, those with the whole map of
sentencepiece, those of mistral-common, and the tokeniser of a given GGUF file: encoding with special tokens parsed,
encoding with them as text, and decoding of these and of random ids. Needs the packages that make_tokenizer_golden.py
needs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizer_kinds
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
    print(f"{name}: {len(wrong)} of {len(inputs)} differ", flush=True)
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
    return [[rng.choice(ids) for _ in range(rng.randrange(1, 20))] for _ in range(count)]


def compare_huggingface(program, kind, path, tokenizer, count, seed, name):
    """Encoding with special tokens parsed and as text; decoding of these ids, and of random ones."""
    specials = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    strings = ODD + odd_strings(count, seed, specials)
    normalized = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.normalized}
    wrong = 0
    lists = random_ids(tokenizer, count, seed)
    for literal in (False, True):
        tokenizer.encode_special_tokens = literal
        expected = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
        flags = ["--no-special"] if literal else []
        wrong += compare(
            f"{name} encode {'literal' if literal else ''}",
            strings,
            expected,
            ours(program, kind, path, flags, strings),
        )
        if not literal:
            lists += [ids for ids in expected if ids and not normalized & set(ids)]
    for skip in (False, True):
        expected = tokenizer.decode_batch(lists, skip_special_tokens=skip)
        flags = ["--decode"] + (["--bos"] if skip else [])
        wrong += compare(
            f"{name} decode {'skip' if skip else ''}", lists, expected, ours(program, kind, path, flags, lists)
        )
    return wrong


def compare_sentencepiece(program, path, count, seed):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    strings = ODD + odd_strings(count, seed, ["[long]", "<|begin|>"])
    strings.append("".join(strings[:10_000]))  # sums of scores beyond what sentencepiece keeps exact
    got = ours(program, "spm", path, ["--no-special"], strings)
    return compare(f"{path.name} encode", strings, processor.encode(strings), got)


def compare_tekken(program, path, count, seed):
    """Against tiktoken, which Mistral's own library runs."""
    import base64

    import tiktoken

    file = json.loads(path.read_text())
    config = file["config"]
    first = config["default_num_special_tokens"]
    ranks = {
        base64.b64decode(token["token_bytes"]): rank
        for rank, token in enumerate(file["vocab"][: config["default_vocab_size"] - first])
    }
    encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    strings = ODD + odd_strings(count, seed)
    expected = [[first + i for i in ids] for ids in encoding.encode_ordinary_batch(strings)]
    wrong = compare(f"{path.name} encode", strings, expected, ours(program, "tekken", path, ["--no-special"], strings))
    decoded = ours(program, "tekken", path, ["--decode"], expected)
    return wrong + compare(f"{path.name} decode", expected, strings, decoded)


def published():
    """The vocabularies that Mistral's library brings: Tekken's 131,072 tokens, sentencepiece's 32,768."""
    try:
        import mistral_common
    except ImportError:
        print("mistral-common is not installed: its vocabularies are not compared")
        return []
    folder = pathlib.Path(mistral_common.__file__).parent / "data"
    return sorted(folder.glob("tekken_*.json")) + sorted(folder.glob("*.model.v[17]"))


def compare_file(program, path, count, seed):
    if "tekken" in path.name and not path.name.endswith("tokenizer.json"):
        return compare_tekken(program, path, count, seed)
    if path.suffix == ".json":
        name = path.name.removesuffix(".tokenizer.json")
        return compare_huggingface(program, "json", path, Tokenizer.from_file(str(path)), count, seed, name)
    return compare_sentencepiece(program, path, count, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the tokenize_lines executable")
    parser.add_argument("--gguf", help="a GGUF file with a byte-level tokeniser")
    parser.add_argument(
        "--model", action="append", default=[], help="a further *tokenizer.json, *tekken.json or tokenizer.model"
    )
    parser.add_argument("--match", default="", help="only tokenisers whose path has this text")
    parser.add_argument("--only-models", action="store_true", help="leave out the repository's tokenisers")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong = 0
    paths = [pathlib.Path(p) for p in args.model]
    if not args.only_models:
        paths += published()
        for pattern in ("*tokenizer.json", "*tokenizer.model", "*tekken.json"):
            paths += sorted(DATA.glob(pattern)) + sorted((DATA / "kinds").glob(pattern))
    for path in [p for p in paths if args.match in str(p)]:
        wrong += compare_file(args.program, path, args.count, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in {} if args.only_models else tokenizer_kinds.large_kinds().items():
            path = pathlib.Path(folder) / f"{name}.tokenizer.json"
            if args.match not in str(path):
                continue
            path.write_text(tokenizer.to_str())
            wrong += compare_file(args.program, path, args.count, args.seed)
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
