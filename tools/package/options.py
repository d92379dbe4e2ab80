"""The command line that the tools of this folder share: STAGE OUT --version V --time SECONDS."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("stage", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True, help="of every file, seconds since 1970")
    return parser.parse_args()
