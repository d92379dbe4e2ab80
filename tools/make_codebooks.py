#!/usr/bin/env python3
"""Writes src/compute/tensor/codebooks.cc: the codebooks of GGUF's IQ formats as the `gguf` package has them.

Needs `pip install gguf numpy`. Run from the repository root, then clang-format the file.
"""

import pathlib

import numpy as np
from gguf import quants

# Name in C++, class in gguf.quants, values per entry.
BOOKS = [
    ("kIq2Xxs", "IQ2_XXS", 8),
    ("kIq2Xs", "IQ2_XS", 8),
    ("kIq2S", "IQ2_S", 8),
    ("kIq1", "IQ1_S", 8),
    ("kIq3Xxs", "IQ3_XXS", 4),
    ("kIq3S", "IQ3_S", 4),
]

HEAD = """\
// Written by tools/make_codebooks.py from the `gguf` package. The numbers are constants of the formats, in llama.cpp's
// ggml-common.h the tables iq2xxs_grid, iq2xs_grid, iq2s_grid, iq1s_grid, iq3xxs_grid and iq3s_grid.
#include "compute/tensor/codebooks.h"

namespace tactus::compute {
"""


def main() -> None:
    text = HEAD
    for name, format_name, values in BOOKS:
        kind = getattr(quants, format_name)
        words = np.frombuffer(bytes.fromhex(kind.grid_hex.decode()), dtype="<u2")
        assert words.size == kind.grid_shape[0] and values == kind.grid_shape[1], name
        body = ", ".join(f"0x{word:04x}" for word in words)
        text += f"\nconst uint16_t {name}[{words.size}] = {{{body}}};\n"
    path = pathlib.Path("src/compute/tensor/codebooks.cc")
    path.write_text(text + "\n}  // namespace tactus::compute\n")


if __name__ == "__main__":
    main()
