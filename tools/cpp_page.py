#!/usr/bin/env python3
"""Makes docs/reference/cpp_api.md from the comments at the heads of the public headers.

    tools/cpp_page.py           prints the page
    tools/cpp_page.py --write   writes it

The rule `generated-pages` of tests/lint/lint.py fails while the page differs. scripts/site.sh makes every header's page
with Doxygen; in the site the table's links lead there.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADERS = ROOT / "include/tactus"
PAGE = ROOT / "docs/reference/cpp_api.md"
TEXT = """\
# The C++ library

`cmake --install build/release --prefix P --component lib` installs the engine as one shared library with its public
headers. A program of another project needs two lines of CMake (with `-DCMAKE_PREFIX_PATH=P`):

```cmake
find_package(tactus REQUIRED)
target_link_libraries(app PRIVATE tactus::tactus)
```

`tests/install/outside` is such a program: it loads a model, submits a request and prints the answer. Errors are values
(`tactus/status.h`); the library never prints, never exits and lets no exception cross a public function.

Each header's link leads to its declarations with their comments: in the site to the pages that Doxygen makes of them,
on a code host to the header itself. This page is generated from the headers (`tools/cpp_page.py --write`).

| header | declares |
|---|---|
"""


def about(header: pathlib.Path) -> str:
    """The first sentence of the comment at the head of a header."""
    comment = re.match(r"(?:// .*\n|//\n)+", header.read_text(encoding="utf-8"))
    if comment is None:
        raise ValueError(f"{header.relative_to(ROOT)} does not begin with a comment that states what it declares")
    text = " ".join(re.sub(r"^// ?", "", line) for line in comment.group().splitlines())
    return re.split(r"(?<=[a-z)])\. ", text.strip().rstrip(".") + ". ")[0].replace("|", "\\|")


def page() -> str:
    rows = (
        f"| [`tactus/{header.name}`](../../include/tactus/{header.name}) | {about(header)} |"
        for header in sorted(HEADERS.glob("*.h"))
    )
    return TEXT + "\n".join(rows) + "\n"


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
