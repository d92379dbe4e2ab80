"""Small tokenisers with the components of published model families, trained on a text of this file.

make_tokenizer_golden.py writes them to tests/language/text/data/kinds, with the reference's output on odd strings;
compare_tokenizers.py compares them on many more strings. Same packages, same tokenisers.
"""

import base64
import collections
import io
import json
import os
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = (
    """The cat sat on the mat, and the dog didn't mind; it's theirs, they've said, and we'll see.
I'd rather you're early than late. HELLO WORLD! Don't SHOUT, IT'S RUDE, said Anna in 1999 or 2024.
for (int i = 0; i < 10; ++i) { total += values[i] * 3.14; }  // sums the values
getElementById camelCase XMLHttpRequest iPhone McDonald snake_case_name __init__ CONSTANT_VALUE
def square(x):\n    return x * x\n\n\nprint(square(12))\n\t\tindented with tabs\r\nand a carriage return
Ünïcödé ist schön, naïve café, São Paulo, Zürich, Łódź, ça va, señor; Привет, мир! Как дела? Γειά σου κόσμε
日本語のテキスト と 中文文本，以及 한국어 텍스트. カタカナ ひらがな 漢字 東京都 100 200 123456 7890
مرحبا بالعالم שלום עולם สวัสดี नमस्ते दुनिया 😀 😀 👩‍👩‍👧 🇫🇷 … — “quoted” ｆｕｌｌ ｗｉｄｔｈ ﬁne ½ ² №
The model reads tokens, writes tokens, and counts tokens: one two three four five six seven eight nine ten.
    spaces    everywhere      in        this line   \n \n  \n   end
"""
    * 3
)
LINES = CORPUS.splitlines(keepends=True)
SPACE = "\u2581"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "o200k": CASED % (ENDINGS + "?", ENDINGS + "?") + r"|\p{N}{1,3}|" + CASED_TAIL,
    "tekken": CASED % ("", "") + r"|\p{N}|" + CASED_TAIL,
    "qwen35": ENDINGS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "seed": ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
    r"|\s+(?!\S)|\s+",
    "exaone_moe": ENDINGS
    + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "kimi": r"[\p{Han}]+"
    + (CASED % (ENDINGS + "?", ENDINGS + "?")).replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").join(("|", "|"))
    + r"\p{N}{1,3}|"
    + TAIL,
    "llama3": ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL,
    # What published patterns use little: escapes, boundaries, line anchors, bracket classes, scripts.
    "syntax": r"^#+|\bthe\b|\B'\B|[[:upper:]]{2,}|[[:punct:]&&[^_]]{2}|\h{4}|\p{Greek}+|\p{^L}\P{L}(?=\d)|[\w-]+$"
    r"|(?m:a.b)|[^\W\d]{3}|(?<=x)y|\p{Letter}|[[:xdigit:][0-9x]]{1,2}|[^[:space:]]",
}


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def to_bytes(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def template(tokenizer, before=(), after=()):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in {*before, *after}],
    )


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def bpe(pre_tokenizer, normalizer=None, size=340, specials=("<|begin|>", "<|end|>"), **options):
    """Byte-level BPE: `pre_tokenizer` ends in bytes."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(list(specials))
    return tokenizer


def byte_level_kinds():
    kinds = {name: bpe(sequence(split(PATTERNS[name]), to_bytes())) for name in PATTERNS if name != "deepseek"}
    kinds["tekken"] = bpe(sequence(split(PATTERNS["tekken"]), to_bytes()), ignore_merges=True)
    template(kinds["tekken"], ["<|begin|>"])
    kinds["deepseek"] = bpe(
        sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(PATTERNS["deepseek"]), to_bytes())
    )
    template(kinds["deepseek"], ["<|begin|>"])
    kinds["falcon"] = bpe(
        sequence(
            pre_tokenizers.Punctuation("contiguous"),
            to_bytes(regex=True),
            pre_tokenizers.Digits(individual_digits=False),
            split("[0-9][0-9][0-9]"),
        )
    )
    kinds["neox"] = bpe(to_bytes(regex=True), normalizers.NFC())
    kinds["neox"].add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 6)])
    kinds["command_r"] = bpe(
        sequence(pre_tokenizers.Digits(individual_digits=True), to_bytes(regex=True)), normalizers.NFC()
    )
    template(kinds["command_r"], ["<|begin|>"])
    kinds["roberta"] = bpe(to_bytes(prefix=True, regex=True), specials=("<s>", "</s>", "<pad>"))
    kinds["roberta"].add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    kinds["roberta"].post_processor = processors.RobertaProcessing(
        ("</s>", kinds["roberta"].token_to_id("</s>")), ("<s>", kinds["roberta"].token_to_id("<s>"))
    )
    kinds["glm4"] = bpe(sequence(split(PATTERNS["llama3"]), to_bytes()), specials=("[gMASK]", "<sop>", "<|user|>"))
    kinds["glm4"].post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False)])
    template(kinds["glm4"], ["[gMASK]", "<sop>"])
    kinds["byte_normalizer"] = bpe(split(r"Ġ?[^Ġ]+", "isolated"), normalizers.ByteLevel())
    return kinds


def splits():
    """Every behaviour, also inverted, on patterns with neighbouring and empty matches."""
    kinds = {}
    for behavior in ("isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"):
        for invert in (False, True):
            name = f"split_{behavior}" + ("_inverted" if invert else "")
            steps = sequence(
                split(r"[,.]|\d+|(?=e)", behavior, invert),
                pre_tokenizers.Split(" ", behavior, invert),
                pre_tokenizers.Punctuation(behavior),
                to_bytes(),
            )
            kinds[name] = bpe(steps, size=300)
    kinds["scripts"] = bpe(
        sequence(
            pre_tokenizers.UnicodeScripts(),
            pre_tokenizers.CharDelimiterSplit("x"),
            pre_tokenizers.FixedLength(4),
            to_bytes(),
        ),
        size=300,
    )
    return kinds


def spm_pieces(model_type, size, rules="", byte_fallback=True, rule_name="identity"):
    """A ModelProto of sentencepiece and its processor."""
    import sentencepiece

    model = io.BytesIO()
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the model keeps the name of the rules' file
        with open("rules.tsv", "w") as file:
            file.write(rules)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for line in CORPUS.split("\n") if line),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            byte_fallback=byte_fallback,
            **({"normalization_rule_tsv": "rules.tsv"} if rules else {"normalization_rule_name": rule_name}),
            remove_extra_whitespaces=bool(rules) or rule_name != "identity",
            character_coverage=0.98,
            user_defined_symbols=["<|begin|>", "[long]"],
            num_threads=1,
            minloglevel=2,
            hard_vocab_limit=False,
        )
        os.chdir(here)
    return model.getvalue(), sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


# What a small map replaces: compatibility forms, sequences, control characters, and a text that begins another.
RULES = [
    ("\uff21", "A"), ("\uff22", "B"), ("\uff46", "f"), ("\uff55", "u"), ("\uff4c", "l"), ("\ufb01", "fi"),
    ("\u00bd", "1/2"), ("\u00b2", "2"), ("e\u0301", "\u00e9"), ("o\u0308", "\u00f6"), ("\u3000", " "),
    ("\u00a0", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u2026", "..."), ("\u30ab\u3099", "\u30ac"),
    ("\u1100\u1161", "\uac00"), ("\u200b", ""), ("\u00ad", ""), ("\u2116", "No"), ("\u00df", "ss"), ("ab\u0301", "x"),
    # A text that begins another: sentencepiece takes the longest, tokenizers the shortest of a cluster.
    ("\u00bc", "1/4"), ("\u00bc\u00bd", "3/4"), ("e\u0302", "E"), ("e\u0302\u0301", "F"),
]  # fmt: skip


def rules_tsv():
    hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in RULES)


def map_of(model_proto):
    """precompiled_charsmap of a ModelProto: field 2 of its field 3."""

    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            key = varint()
            if key & 7 == 2:
                size = varint()
                yield key >> 3, data[at : at + size]
                at += size
            elif key & 7 == 0:
                varint()
            else:
                at += 8 if key & 7 == 1 else 4

    normalizer = next(value for number, value in fields(model_proto) if number == 3)
    return next((value for number, value in fields(normalizer) if number == 2), b"")


def unigram_vocabulary(processor):
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def precompiled(charsmap):
    return normalizers.Precompiled(charsmap)


def unigram_kinds(charsmap, processor, prefix=""):
    metaspace = lambda scheme, divide=True: pre_tokenizers.Metaspace(SPACE, scheme, divide)
    vocabulary = unigram_vocabulary(processor)
    without_bytes = [(piece, score) for piece, score in vocabulary if not piece.startswith("<0x")]

    def make(vocab, normalizer, pre_tokenizer, byte_fallback, scheme):
        tokenizer = Tokenizer(models.Unigram(vocab, 0, byte_fallback))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>", "<unk>")])
        tokenizer.add_special_tokens(["<extra>"])
        return tokenizer

    t5 = make(
        without_bytes,
        precompiled(charsmap),
        sequence(pre_tokenizers.WhitespaceSplit(), metaspace("always")),
        False,
        "always",
    )
    template(t5, (), ["</s>"])
    albert = make(
        without_bytes,
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.Replace("''", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                precompiled(charsmap),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        ),
        metaspace("first"),
        False,
        "first",
    )
    albert.add_tokens([AddedToken("Anna", normalized=True), AddedToken("[word]", single_word=True, normalized=False)])
    fallback = make(
        vocabulary,
        normalizers.Sequence([precompiled(charsmap), normalizers.Strip()]),
        metaspace("first", False),
        True,
        "never",
    )
    fallback.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return {prefix + "t5": t5, prefix + "albert": albert, prefix + "unigram_fallback": fallback}


def gemma_kinds():
    _, processor = spm_pieces("bpe", 560)
    size = processor.get_piece_size()
    pieces = [processor.id_to_piece(i) for i in range(size)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    score = processor.get_score
    merges = []
    for i, piece in enumerate(pieces):
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i)):
            merges += [
                (-score(i), piece[:n], piece[n:])
                for n in range(1, len(piece))
                if piece[:n] in vocab and piece[n:] in vocab
            ]
    merges = [(left, right) for _, left, right in sorted(merges, key=lambda m: m[0])]

    def make(extra=()):
        words, joined = dict(vocab), list(merges)
        for left, right in extra:
            for part in (left, right):
                words.setdefault(part, len(words))
            words.setdefault(left + right, len(words))
            joined.append((left, right))
        tokenizer = Tokenizer(models.BPE(words, joined, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
        template(tokenizer, ["<s>"])
        return tokenizer

    kinds = {"gemma": make(), "gemma_across_words": make([(SPACE, SPACE), (SPACE + "the", SPACE), ("\n", "\n")])}
    # Bytes for some characters only, and an unknown token for each of the rest.
    vocab = {piece: i for i, piece in enumerate(p for p in pieces if p not in ("<0xE6>", "<0xD0>"))}
    merges = [m for m in merges if m[0] in vocab and m[1] in vocab]
    partial = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=False, byte_fallback=True))
    for name, scheme, divide in (
        ("split_always", "always", True),
        ("split_first", "first", True),
        ("never", "never", False),
    ):
        tokenizer = Tokenizer.from_str(partial.to_str())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, divide)
        tokenizer.decoder = decoders.Strip(SPACE, 1, 0) if scheme == "never" else decoders.Metaspace(SPACE, scheme)
        tokenizer.add_special_tokens(["<s>"])
        kinds["metaspace_" + name] = tokenizer
    return kinds


def words_of(tokenizer):
    """How often each word of the text occurs, as the normalizer and the pre-tokenizer make them."""
    counts = collections.Counter()
    for line in LINES:
        text = tokenizer.normalizer.normalize_str(line)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return counts


def wordpiece_vocabulary(counts, specials, size):
    """The package's trainer breaks ties at random; this takes the most frequent parts of words."""
    parts = collections.Counter()
    for word, count in counts.items():
        for begin in range(len(word)):
            for end in range(begin + 2, min(len(word), begin + 8) + 1):
                parts[("##" if begin else "") + word[begin:end]] += count * (end - begin)
    letters = sorted({c for word in counts for c in word} - set("\u0e2a\U0001f1eb"))  # these two are unknown
    vocabulary = specials + letters + ["##" + c for c in letters]
    vocabulary += [part for part, _ in sorted(parts.items(), key=lambda p: (-p[1], p[0]))[: size - len(vocabulary)]]
    return {token: i for i, token in enumerate(vocabulary)}


def affix_bpe(counts, size, prefix="", suffix="", left_out=""):
    """A vocabulary and merges over characters with affixes; ties go to the first pair in the order of texts."""
    words = {}
    for word, count in counts.items():
        symbols = [(prefix if i else "") + c for i, c in enumerate(word) if c not in left_out]
        if symbols:
            words[word] = ([*symbols[:-1], symbols[-1] + suffix], count)
    vocabulary = ["<unk>", *sorted({symbol for symbols, _ in words.values() for symbol in symbols})]
    merges = []
    while len(vocabulary) < size:
        pairs = collections.Counter()
        for symbols, count in words.values():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        (left, right), _ = min(pairs.items(), key=lambda p: (-p[1], p[0]))
        joined = left + right[len(prefix) :]
        merges.append((left, right))
        vocabulary.append(joined)
        for symbols, _ in words.values():
            for i in range(len(symbols) - 2, -1, -1):
                if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == (left, right):
                    symbols[i : i + 2] = [joined]
    return {token: i for i, token in enumerate(dict.fromkeys(vocabulary))}, merges


def bert_kinds():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    options = {
        "bert": {},
        "bert_cased": {"lowercase": False, "strip_accents": False},
        "bert_accents": {
            "lowercase": True,
            "strip_accents": False,
            "clean_text": False,
            "handle_chinese_chars": False,
        },
    }
    kinds = {}
    for name, flags in options.items():
        tokenizer = Tokenizer(models.WordPiece())
        tokenizer.normalizer = normalizers.BertNormalizer(**flags)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        vocabulary = wordpiece_vocabulary(words_of(tokenizer), specials, 640)
        tokenizer.model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=20)
        tokenizer.decoder = decoders.WordPiece(cleanup=name == "bert")
        tokenizer.add_special_tokens(specials)
        if name == "bert":
            template(tokenizer, ["[CLS]"], ["[SEP]"])
        else:
            tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        kinds[name] = tokenizer
    return kinds


def word_kinds():
    kinds = bert_kinds()
    for name, normalizer in (("words_nfd", normalizers.NFD()), ("words_nfkc", normalizers.NFKC())):
        words = Tokenizer(models.WordLevel())
        words.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizer, normalizers.Strip(right=False)])
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        common = sorted(words_of(words).items(), key=lambda w: (-w[1], w[0]))[:150]
        vocabulary = {token: i for i, token in enumerate(["[UNK]", *(word for word, _ in common)])}
        words.model = models.WordLevel(vocabulary, unk_token="[UNK]")
        words.add_special_tokens(["[UNK]", "[END]"])
        kinds[name] = words
    ends = Tokenizer(models.BPE())
    ends.normalizer = normalizers.BertNormalizer()
    ends.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    vocabulary, merges = affix_bpe(words_of(ends), 400, suffix="</w>", left_out="\u0e2a\u65e5")
    ends.model = models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True)
    ends.decoder = decoders.BPEDecoder("</w>")
    ends.add_special_tokens(["<unk>"])
    parts = Tokenizer(models.BPE())
    parts.normalizer = normalizers.Sequence(
        [normalizers.StripAccents(), normalizers.Prepend("x"), normalizers.Replace(Regex(r"\d"), "0")]
    )
    parts.pre_tokenizer = sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"))
    vocabulary, merges = affix_bpe(words_of(parts), 400, prefix="##", left_out="\u0e2a\u65e5")
    parts.model = models.BPE(vocabulary, merges, unk_token="<unk>", continuing_subword_prefix="##")
    parts.decoder = decoders.Sequence([decoders.Replace("##", ""), decoders.Strip("e", 0, 1)])
    parts.add_special_tokens(["<unk>"])
    return {**kinds, "word_ends": ends, "word_parts": parts}


def small_kinds():
    """By name: tokenisers whose files are small enough for the repository."""
    model, processor = spm_pieces("unigram", 560, rules_tsv())
    return {
        **byte_level_kinds(),
        **splits(),
        **unigram_kinds(map_of(model), processor),
        **gemma_kinds(),
        **word_kinds(),
    }


def large_kinds():
    """The same with sentencepiece's whole map nmt_nfkc, a quarter of a megabyte."""
    model, processor = spm_pieces("unigram", 560, rule_name="nmt_nfkc")
    return unigram_kinds(map_of(model), processor, "nmt_nfkc_")


def unigram_model():
    """A tokenizer.model, of sentencepiece itself."""
    return spm_pieces("unigram", 560, rules_tsv())


def tekken_file():
    """A tekken.json and its ranks for tiktoken: the bytes of a byte-level BPE, in the order of their ids."""
    tokenizer = bpe(sequence(split(PATTERNS["tekken"]), to_bytes()), specials=())
    byte_of = {c: b for b, c in enumerate(bytes_to_characters())}
    spelled = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    texts = [bytes(byte_of[c] for c in text) for text, _ in spelled]
    texts.sort(key=lambda text: len(text) > 1)  # single bytes first, as in published files
    control = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    file = {
        "config": {
            "pattern": PATTERNS["tekken"],
            "num_vocab_tokens": len(texts),
            "default_vocab_size": len(texts) - 5 + 10,
            "default_num_special_tokens": 10,
            "version": "v11",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(text).decode(), "token_str": None}
            for rank, text in enumerate(texts)
        ],
        "special_tokens": [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(control)],
    }
    return json.dumps(file), {text: rank for rank, text in enumerate(texts[:-5])}


def bytes_to_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (chr(0x100 + n) for n in range(256))
    return [chr(b) if b in printable else next(others) for b in range(256)]
