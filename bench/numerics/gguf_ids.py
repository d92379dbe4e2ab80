#!/usr/bin/env python3
"""Token ids of stretches of a text, one line each, with the SentencePiece vocabulary of a GGUF file, for models whose
tokeniser `tactus tokenize` does not read. Slow: one merge at a time.

  gguf_ids.py MODEL.gguf TEXT.txt --first 2000 --characters 1200 --count 2 > TEXT.ids
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf


def encode(text: str, ids: dict[str, int], scores: list[float]) -> list[int]:
    """Joins neighbours that form a piece of the vocabulary, highest score first; the rest becomes bytes."""
    parts = list(text.replace(" ", "\u2581"))
    while True:
        joined = [(scores[ids[a + b]], -at) for at, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ids]
        if not joined:
            return [
                i
                for part in parts
                for i in ([ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()])
            ]
        at = -max(joined)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--first", type=int, default=0, help="first character of the first stretch")
    parser.add_argument("--characters", type=int, default=1000, help="characters per stretch")
    parser.add_argument("--count", type=int, default=1, help="number of stretches")
    options = parser.parse_args()
    fields = gguf.GGUFReader(str(options.model)).fields
    if fields["tokenizer.ggml.model"].contents() != "llama":
        raise SystemExit(f"{options.model}: its vocabulary is not SentencePiece's; try 'tactus tokenize'")
    ids = {piece: i for i, piece in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    scores, bos = fields["tokenizer.ggml.scores"].contents(), fields["tokenizer.ggml.bos_token_id"].contents()
    text = options.text.read_text()
    for first in range(options.first, options.first + options.count * options.characters, options.characters):
        print(bos, *encode(text[first : first + options.characters], ids, scores))


if __name__ == "__main__":
    main()
