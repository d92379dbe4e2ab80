#!/usr/bin/env python3
"""Makes the tokeniser test data in tests/language/text/data with the reference implementations.

  tools/make_tokenizer_golden.py                      small tokenisers of the first families, with their output
  tools/make_tokenizer_golden.py --kinds              the kinds of tokenizer_kinds.py, with their output on odd strings
  tools/make_tokenizer_golden.py --gguf MODEL.gguf    ids of the same strings for the default model's vocabulary
  tools/make_tokenizer_golden.py --fields MODEL.gguf OUT.json   its tokeniser's metadata as JSON, for tokenize_lines

Needs the packages tokenizers, sentencepiece, tiktoken and gguf. The output is committed; only changing the strings or
adding a kind of tokeniser needs this script. Same packages, same output.
"""

import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "language" / "text" / "data"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = (
    """The cat sat on the mat, and the dog didn't mind; it's theirs, they've said, and we'll see.
I'd rather you're early than late. HELLO WORLD! Don't SHOUT, IT'S RUDE, said Anna in 1999 or 2024.
for (int i = 0; i < 10; ++i) { total += values[i] * 3.14; }  // sums the values
def square(x):\n    return x * x\n\n\nprint(square(12))\n\t\tindented with tabs\r\nand a carriage return
Ünïcödé ist schön, naïve café, São Paulo, Zürich, Łódź, ça va, señor; Привет, мир! Как дела? Γειά σου κόσμε
日本語のテキスト と 中文文本，以及 한국어 텍스트. مرحبا بالعالم שלום עולם สวัสดี नमस्ते 😀 😀 👩‍👩‍👧 🇫🇷 … — “quoted”
The model reads tokens, writes tokens, and counts tokens: one two three four five six seven eight nine ten.
    spaces    everywhere      in        this line   \n \n  \n   end
"""
    * 3
)

# Strings on which tokenisers differ, written out so that a reader sees the coverage.
ODD = [
    "",
    " ",
    "  ",
    "   a",
    "a   ",
    "\n",
    "\n\n\n",
    " \n \n ",
    "\t",
    "\t\t x",
    "\r\n",
    "a\r\nb\r\n\r\nc",
    "a \n  b",
    "  \n\n  x",
    "\u00a0",
    "a\u00a0b",
    "\u3000全角",
    "\u2003wide",
    "\u180e",
    "a\u180eb",
    "\u2028\u2029",
    "\x85next",
    "\x0b\x0c",
    "\x1c\x1d\x1e\x1f",
    "Hello, world!",
    "hello world",
    "HELLO WORLD",
    "The cat sat.",
    " leading",
    "trailing ",
    "two  spaces",
    "ten          spaces",
    "don't",
    "DON'T",
    "I'll we've they're it's he'd I'm",
    "I'LL WE'VE THEY'RE IT'S HE'D I'M",
    "'s",
    "'S",
    "''s",
    "x's's",
    "'\u017f",
    "rock'n'roll",
    "\u2019s",
    "it\u2019s",
    "l'\u00e9t\u00e9",
    "1",
    "12",
    "123",
    "1234",
    "12345678901",
    "3.14159",
    "1,000,000",
    "0x1F",
    "v1.2.3",
    "\uff11\uff12\uff13",
    "\u00b2\u00b3\u00b9",
    "\u00bd\u00be",
    "\u2167\u2168",
    "\u0663\u0664",
    "\u096a\u096b",
    "\u3007",
    "\u4e00\u4e8c\u4e09",
    "a1b2c3",
    "1st 2nd",
    "e\u0301",
    "\u00e9",
    "A\u030a \u212b \u00c5",
    "\u1100\u1161\u11a8",
    "\uac01",
    "\u0958",
    "q\u0323\u0307",
    "q\u0307\u0323",
    "\u0345",
    "\u0301",
    "a\u0300\u0301\u0302\u0303b",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "\u4e2d\u6587\uff0c\u6587\u672c\u3002",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0393\u03b5\u03b9\u03ac",
    "\u0130stanbul \u0131",
    "Stra\u00dfe \u1e9e",
    "\ufb01 \ufb06",
    "\u01c5 \u01c8",
    "\U0001f600",
    "\U0001f600\U0001f600",
    "a\U0001f600b",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd",
    "\U0001f1eb\U0001f1f7",
    "#\ufe0f\u20e3",
    "\u2764\ufe0f",
    "\U00020000\U0002a6d6",
    "\U0001d4d0\U0001d7d9",
    "\u200b",
    "\u200c\u200d\u200e",
    "\ufeffbom",
    "\u00ad",
    "\x00",
    "a\x00b",
    "\x01\x02\x7f",
    "\ufffd",
    "\ufffe",
    "\uffff",
    "\U0010ffff",
    "\ue000",
    "_under_score_",
    "__init__",
    "snake_case",
    "camelCase",
    "a-b--c---d",
    "...",
    "!!!???",
    "$100",
    "50%",
    "a+b=c",
    "C++",
    "C#",
    "~/.bashrc",
    "http://example.com/a?b=c&d=%20e#f",
    "me@example.com",
    '{"key": [1, 2, null]}',
    "<p>text</p>",
    "[x](y)",
    "`code`",
    "a\\nb",
    "\\",
    "^_^",
    "\u00af\\_(\u30c4)_/\u00af",
    "for (int i = 0; i < 10; ++i) {\n  total += i;\n}\n",
    "def f(x):\n\treturn x\n",
    "    four\n        eight\n",
    "a\n\n\nb",
    "a \t \n\t b",
    "\u2581",
    "\u2581\u2581a",
    "a\u2581b",
    "a \u2581b",
    "\u0120a",
    "\u010a",
    "<0x0A>",
    "<unk>",
    "<s>",
    "</s>",
    "<s>a</s>",
    "a <s> b",
    "<|x|>",
    "<|begin|>",
    "<|end|>",
    "<|begin|>user\nHi<|end|>\n",
    "<|begin|><|begin|>",
    "<|beg",
    "<|begin|",
    "<<|end|>>",
    "a<|end|>b",
    "a <|end|> b",
    "  <|end|>  ",
    "[strip]",
    "a  [strip]  b",
    "[word]",
    "a [word] b",
    "a[word]b",
    "1[word]",
    "-[word]-",
    "[left]",
    "a \n[left] b",
    "[right] \n b",
    "caf\u00e9!",
    "cafe\u0301!",
    "x[long]y",
    "[lon",
    "[longer]",
    "[long]er]",
    "a" * 50,
    "ab" * 40,
    " " * 60,
    "\n" * 40,
    "0" * 40,
    "\u00e9" * 30,
    "\U0001f600" * 12,
    "aaaaaaaab" * 6,
    "Mixed \u65e5\u672c and \u0639\u0631\u0628\u064a with \U0001f600 1234 and \tTABS\n\nend",
    "The model's tokens, they've said, don't count 42 spaces    here.\n",
]


def odd_strings(count, seed, specials=()):
    """Random concatenations of strings that are hard for tokenisers; only assigned characters."""
    rng = random.Random(seed)

    def assigned(low, high):
        while True:
            c = chr(rng.randrange(low, high))
            # Unassigned characters depend on the Unicode versions of both regex engines.
            if unicodedata.category(c) not in ("Cs", "Cn"):
                return c

    short = [s for s in ODD if 0 < len(s) < 12]
    strings = []
    while len(strings) < count:
        parts = []
        for _ in range(rng.randrange(0, 14)):
            r = rng.random()
            if r < 0.45:
                parts.append(rng.choice(short))
            elif r < 0.55:
                parts.append(rng.choice([" ", "  ", "\n", "\r\n", "\t", " \n"]))
            elif r < 0.65:
                parts.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 8))))
            elif r < 0.75:
                parts.append("".join(assigned(0, 0x3000) for _ in range(rng.randrange(1, 5))))
            elif r < 0.8:
                parts.append(assigned(0, 0x10000))
            elif r < 0.85:
                parts.append(assigned(0x10000, 0x20000))
            elif r < 0.9:
                parts.append("".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 9))))
            elif r < 0.95 and specials:
                parts.append(rng.choice(specials))
            else:
                parts.append(rng.choice("abcxyz '-\n") * rng.randrange(1, 40))
        strings.append("".join(parts))
    return strings


def digits_then_gpt2():
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def regex_then_bytes(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        CORPUS.splitlines(keepends=True),
        trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    return tokenizer


def with_every_flag(tokenizer):
    tokenizer.add_tokens(
        [
            AddedToken("[strip]", lstrip=True, rstrip=True, normalized=False),
            AddedToken("[word]", single_word=True, normalized=False),
            AddedToken("[left]", lstrip=True, normalized=False),
            AddedToken("[right]", rstrip=True, normalized=False),
            AddedToken("[long]", normalized=False),
            AddedToken("[long]er]", normalized=False),
            AddedToken("cafe\u0301", normalized=True),
        ]
    )
    return tokenizer


def with_template(tokenizer, bos, eos):
    pieces = ([bos] if bos else []) + ["$A"] + ([eos] if eos else [])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(pieces), special_tokens=[(t, tokenizer.token_to_id(t)) for t in (bos, eos) if t]
    )
    return tokenizer


def byte_level_flavors():
    gpt2 = lambda prefix: pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=True)
    return {
        "gpt2": with_every_flag(byte_level(gpt2(False))),
        "gpt2_prefix": byte_level(gpt2(True)),
        "smollm": byte_level(digits_then_gpt2()),
        "llama3": with_template(byte_level(regex_then_bytes(LLAMA3), ignore_merges=True), "<|begin|>", None),
        "qwen2": with_every_flag(byte_level(regex_then_bytes(QWEN2), normalizer=normalizers.NFC())),
    }


def train_sentencepiece(path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in CORPUS.split("\n") if line),
        model_writer=model,
        model_type="bpe",
        vocab_size=560,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        user_defined_symbols=["<|begin|>", "[long]", "[long]er]"],
        num_threads=1,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def llama2_json(processor, metaspace_scheme):
    """The conversion to tokenizer.json in the form of Llama 2: a normalizer, or Metaspace in the newer form."""
    size = processor.get_piece_size()
    vocab = {processor.id_to_piece(i): i for i in range(size)}
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in range(size)}
    merges = []
    for piece, score in scores.items():
        i = vocab[piece]
        if processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i):
            continue
        halves = [(piece[:n], piece[n:]) for n in range(1, len(piece)) if piece[:n] in vocab and piece[n:] in vocab]
        merges += [(score, half) for half in halves]
    merges = [half for _, half in sorted(merges, key=lambda m: m[0], reverse=True)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace_scheme:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace_scheme, split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken(t, normalized=bool(not metaspace_scheme)) for t in ("<|begin|>",)])
    return with_template(tokenizer, "<s>", None)


def cases_of(tokenizer, strings):
    # The decoding of an added token with `normalized` depends on the reference's version: not compared.
    normalized = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.normalized}
    tokenizer.encode_special_tokens = False
    cases = []
    for text in strings:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        case = {"text": text, "ids": ids}
        if not normalized & set(ids):
            case["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
            case["decoded_skip"] = tokenizer.decode(ids, skip_special_tokens=True)
        if plain != ids:
            case["plain_ids"] = plain  # without BOS, special tokens as text
        cases.append(case)
    return cases


def write(path, value):
    path.write_text(
        json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace('},{"text"', '},\n{"text"') + "\n"
    )
    print(path, path.stat().st_size)


def make_small():
    DATA.mkdir(parents=True, exist_ok=True)
    flavors = byte_level_flavors()
    processor = train_sentencepiece(DATA / "spm.tokenizer.model")
    flavors["llama2"] = llama2_json(processor, None)
    flavors["llama2_first"] = llama2_json(processor, "first")
    flavors["llama2_always"] = llama2_json(processor, "always")
    for name, tokenizer in flavors.items():
        (DATA / f"{name}.tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        write(DATA / f"{name}.golden.json", {"cases": cases_of(tokenizer, ODD)})
    write(
        DATA / "spm.golden.json",
        {
            "cases": [
                {
                    "text": text,
                    "ids": processor.encode(text),
                    "pieces": processor.encode(text, out_type=str),
                    "decoded": processor.decode(processor.encode(text)),
                }
                for text in ODD
            ]
        },
    )


def golden(tokenizer, strings):
    """The reference's ids of the strings, and what is not obvious from them, by the string's index."""
    normalized = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.normalized}
    tokenizer.encode_special_tokens = False
    ids = [tokenizer.encode(text).ids for text in strings]
    tokenizer.encode_special_tokens = True
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
    tokenizer.encode_special_tokens = False
    out = {"ids": ids, "plain": {i: p for i, p in enumerate(plain) if p != ids[i]}, "text": {}, "skip": {}}
    for i, text in enumerate(strings):
        if normalized & set(ids[i]):
            out["text"][i] = out["skip"][i] = None  # depends on the reference's version
            continue
        whole = tokenizer.decode(ids[i], skip_special_tokens=False)
        skip = tokenizer.decode(ids[i], skip_special_tokens=True)
        if whole != text:
            out["text"][i] = whole
        if skip != whole:
            out["skip"][i] = skip
    return out


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


def make_kinds():
    import tiktoken
    import tokenizer_kinds

    folder = DATA / "kinds"
    folder.mkdir(parents=True, exist_ok=True)
    specials = ["<|begin|>", "<|end|>", "<s>", "</s>", "[CLS]", "[MASK]", "<mask>", "[gMASK]<sop>", "<extra>", "[END]"]
    strings = ODD + odd_strings(60, 3, specials) + ["\u00bc\u00bd \u00bc", "xe\u0302\u0301y"]
    dump(folder / "strings.json", strings)
    for name, tokenizer in tokenizer_kinds.small_kinds().items():
        (folder / f"{name}.tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        dump(folder / f"{name}.golden.json", golden(tokenizer, strings))
    file, ranks = tokenizer_kinds.tekken_file()
    (folder / "tekken.json").write_text(file + "\n")
    encoding = tiktoken.Encoding(
        "tekken", pat_str=tokenizer_kinds.PATTERNS["tekken"], mergeable_ranks=ranks, special_tokens={}
    )
    dump(folder / "tekken_file.golden.json", {"ids": [[10 + i for i in encoding.encode(text)] for text in strings]})
    model, processor = tokenizer_kinds.unigram_model()
    (folder / "unigram.tokenizer.model").write_bytes(model)
    ids = [processor.encode(text) for text in strings]
    # Where a text begins with spaces, sentencepiece strips one from each piece.
    plain = lambda line: not line or processor.id_to_piece(line[0]) != tokenizer_kinds.SPACE
    texts = [processor.decode(line) if plain(line) else None for line in ids]
    dump(folder / "unigram_model.golden.json", {"ids": ids, "text": texts})


def gguf_fields(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)

    def get(key, default=None):
        field = reader.fields.get(key)
        return default if field is None else field.contents()

    prefix = "tokenizer.ggml."
    fields = {
        "model": get(prefix + "model", ""),
        "pre": get(prefix + "pre", ""),
        "model_name": get("general.name", ""),
        "tokens": get(prefix + "tokens", []),
        "types": get(prefix + "token_type", []),
        "scores": get(prefix + "scores", []),
        "merges": get(prefix + "merges", []),
        "bos": get(prefix + "bos_token_id", -1),
        "eos": get(prefix + "eos_token_id", -1),
        "unk": get(prefix + "unknown_token_id", -1),
        "add_space_prefix": get(prefix + "add_space_prefix", True),
        "add_eos": get(prefix + "add_eos_token", False),
    }
    if get(prefix + "add_bos_token") is not None:
        fields["add_bos"] = get(prefix + "add_bos_token")
    return fields


def tokenizer_of_gguf(fields):
    """The reference for a GGUF file: its vocabulary and merges in the tokenizers package, with the file's
    pre-tokenisation."""
    pre = {
        "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
        "smollm": digits_then_gpt2,
        "llama-bpe": lambda: regex_then_bytes(LLAMA3),
        "qwen2": lambda: regex_then_bytes(QWEN2),
    }[fields["pre"]]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(fields["tokens"])},
            merges=[tuple(m.split(" ")) for m in fields["merges"]],
            ignore_merges=fields["pre"] == "llama-bpe",
        )
    )
    tokenizer.pre_tokenizer = pre()
    if fields["pre"] == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    by_type = lambda wanted: [t for t, kind in zip(fields["tokens"], fields["types"]) if kind == wanted]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in by_type(3)])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in by_type(4)])
    return tokenizer


def make_default(path):
    fields = gguf_fields(path)
    tokenizer = tokenizer_of_gguf(fields)
    specials = [t for t, kind in zip(fields["tokens"], fields["types"]) if kind == 3]
    strings = ODD + odd_strings(300, 7, specials)
    strings.append("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    cases = []
    for text in strings:
        cases.append({"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
        decoded = tokenizer.decode(cases[-1]["ids"], skip_special_tokens=False)
        if decoded != text:  # a byte that this vocabulary does not have
            cases[-1]["decoded"] = decoded
    write(DATA / "smollm2_135m.golden.json", {"cases": cases})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", metavar="MODEL.gguf")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--fields", nargs=2, metavar=("MODEL.gguf", "OUT.json"))
    args = parser.parse_args()
    if args.fields:
        pathlib.Path(args.fields[1]).write_text(json.dumps(gguf_fields(args.fields[0])))
    elif args.gguf:
        make_default(args.gguf)
    elif args.kinds:
        make_kinds()
    else:
        make_small()


if __name__ == "__main__":
    main()
