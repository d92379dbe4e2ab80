#!/usr/bin/env python3
"""Makes docs/reference/models.md from the families, the golden data and the simulator's models.

    tools/models_page.py           prints the page
    tools/models_page.py --write   writes it

The rule `generated-pages` of tests/lint/lint.py fails while the page differs.
"""

from __future__ import annotations

import json
import pathlib
import re
import struct
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/models.md"
CONFIG = ROOT / "src/compute/config"
GOLDEN = ROOT / "tests/golden/data"
MODELS = ROOT / "data/cost/models.json"


class Family:
    def __init__(self, name: str):
        self.name = name
        text = (CONFIG / "arch" / f"{name}.cc").read_text(encoding="utf-8")
        comment = re.match(r"(?:// .*\n)+", text).group().replace("\n// ", " ").removeprefix("// ").strip()
        self.about = re.split(r"(?<=[a-z)])\. ", comment.rstrip("."))[0]
        fields = text[text.index(f"constinit const Architecture {name} ") :]
        field = lambda key: (re.search(rf'\.{key} = "([^"]*)"', fields) or [None, ""])[1]
        self.hf_class, self.model_type, self.gguf = field("hf_class"), field("hf_model_type"), field("gguf_name")
        self.gguf_of = field("gguf_read_as")  # another family's name, under which its GGUF files are read
        self.refused = refusals(text)


def refusals(text: str) -> list[tuple[str, str]]:
    """(key of config.json, why) of the settings that a family's file refuses."""
    keys = dict(re.findall(r'(\w+)\{"([a-z_.]+)"', text))
    found = []
    for key, why in re.findall(r'Refuse\((\{[^}]*\}|\w+),\s*"([^"]*)"', text):
        names = re.findall(r'"([a-z_.]+)"', key) or [keys.get(key, "")]
        if names[0] and not why.endswith(" "):  # a text that goes on with numbers
            found.append((names[0], why))
    return found


def families() -> list[Family]:
    rows = (CONFIG / "architectures.def").read_text(encoding="utf-8")
    return [Family(name) for name in re.findall(r"^TACTUS_ARCHITECTURE\((\w+)\)", rows, re.M)]


def gguf_architecture(path: pathlib.Path) -> str:
    """general.architecture, which writers put first."""
    data = path.read_bytes()[:4096]
    at = data.index(b"general.architecture") + len(b"general.architecture") + 4
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size].decode()


def text_type(config):
    """The type of the text in a model that also reads pictures."""
    return config.get("text_config", config)["model_type"]


def golden(known: list[Family]) -> dict[str, dict[str, list[str]]]:
    """family -> "safetensors" or "gguf" -> names of golden models."""
    by_type = {f.model_type: f.name for f in known}
    by_gguf = {f.gguf: f.name for f in reversed(known) if f.gguf}
    found = {f.name: {"safetensors": [], "gguf": []} for f in known}
    family_of = {}
    for config in sorted(GOLDEN.glob("*/config.json")):
        family = by_type[text_type(json.loads(config.read_text(encoding="utf-8")))]
        family_of[config.parent.name] = family
        found[family]["safetensors"].append(config.parent.name)
    for model in sorted(GOLDEN.glob("*/model.gguf")):
        name = model.parent.name
        family = family_of.get(name.removeprefix("gguf-")) or by_gguf[gguf_architecture(model)]
        found[family]["gguf"].append(name)
    return found


def simulated() -> tuple[dict[str, list[str]], list[str]]:
    """Names of the simulator's models by model_type, and those of families that are not served."""
    by_type: dict[str, list[str]] = {}
    others = []
    for row in json.loads(MODELS.read_text(encoding="utf-8"))["models"]:
        family = row["config"]["model_type"] if "config" in row else row.get("family", "")
        by_type.setdefault(family, []).append(row["model"]) if family else others.append(row["model"])
    return by_type, others


def code(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def wrap(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


HEAD = """# Model families

<!-- Made by tools/models_page.py; its rule in tests/lint/lint.py fails while this page differs. -->
"""

INTRO = """A family is a list of blocks and the names of its settings (`src/compute/config/arch/`). Each loads from
safetensors with a config.json and, where a name of `general.architecture` is given, from GGUF. The golden models are
tiny random ones under `tests/golden/data`: `golden_test` compares logits and greedy tokens with those of transformers,
with every kernel set. Weight formats are in [formats.md](formats.md). `tactus models inspect MODEL` shows the blocks of
a model, layer by layer."""

SIMULATED = """`tactus sim --model NAME` knows these models by name; their layers are made from the fields of the
published config.json by the same code that loads a served model, or, for the oldest, stated as a uniform shape
(`data/cost/models.json`). Any other model of a family is simulated from its folder or config.json: `--model PATH`."""

UNSUPPORTED = """A model of another family is refused by name at the start, by `tactus models inspect` and by `tactus
sim`, with the list of what is supported:"""

SETTINGS = """A family refuses the settings that would change the output and that its blocks do not have. The message
has the file, the key of config.json and the reason:"""


def page() -> str:
    known = families()
    proofs, (sims, others) = golden(known), simulated()
    lines = [HEAD, wrap(INTRO), "", "## Families and formats", ""]
    lines += ["| family | what it is | config.json | golden | GGUF | golden |", "|---|---|---|---|---|---|"]
    for f in known:
        proof = proofs[f.name]
        gguf = f"`{f.gguf or f.gguf_of}`" if f.gguf or f.gguf_of else "none"
        lines.append(
            f"| {f.name} | {f.about} | `{f.hf_class}` | {code(proof['safetensors']) or 'none'} | {gguf} |"
            f" {code(proof['gguf']) or 'none'} |"
        )
    lines += ["", "## Simulated by name", "", wrap(SIMULATED), "", "| family | names |", "|---|---|"]
    lines += [f"| {f.name} | {code(sims[f.model_type])} |" for f in known if f.model_type in sims]
    lines += [f"| of no family that is served | {code(others)} |"]
    lines += ["", "## Families that are not supported", "", wrap(UNSUPPORTED), ""]
    lines += ["```text", "config.json: architecture 'DeepseekV3ForCausalLM' is not supported; supported are"]
    lines += ["LlamaForCausalLM, MistralForCausalLM, ...", "model.gguf: architecture 'deepseek2' is not supported; ..."]
    lines += ["```", "", wrap(SETTINGS), "", "| family | key | why |", "|---|---|---|"]
    lines += [f"| {f.name} | `{key}` | {why} |" for f in known for key, why in f.refused]
    return "\n".join(lines) + "\n"


def main() -> int:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
