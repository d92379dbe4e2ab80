#!/usr/bin/env python3
"""Makes docs/reference/metrics.md from what a server and a router answer to GET /metrics.

    tools/metrics_page.py http://127.0.0.1:8001 http://127.0.0.1:8000           prints the page: server, router
    tools/metrics_page.py http://127.0.0.1:8001 http://127.0.0.1:8000 --write   writes it

The server runs with --files-dir and --kv-cache-dir. tests/e2e/metrics_page_test.py starts such a pair and fails while
the page differs.
"""

import pathlib
import re
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/metrics.md"
EVERYWHERE = ("model_name", "engine", "le")  # labels that every row of vLLM's names, or of a histogram, has
INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. Metrics that begin with `vllm:` have vLLM's names and meanings, for
dashboards that read those; they have the labels `model_name` and `engine` too. `deploy/prometheus` has rules and
`deploy/grafana` dashboards over them ([deploy.md](../how-to/deploy.md)).

This page is generated from the answers of a server and a router (`tools/metrics_page.py`).
"""


def rows(text):
    """A row for each metric, in the order of the answer."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, flags=re.M))
    found = []
    for name, about in re.findall(r"^# HELP (\S+) (.*)$", text, flags=re.M):
        labels = []
        for given in re.findall(rf"^{re.escape(name)}(?:_bucket|_sum|_count)?\{{(.*)\}} ", text, flags=re.M):
            labels += [label for label in re.findall(r"(\w+)=\"", given) if label not in (*labels, *EVERYWHERE)]
        about = about.replace("|", "\\|").replace("<", "&lt;")
        found.append(f"| `{name}` | {kinds[name]} | {', '.join(f'`{label}`' for label in labels)} | {about} |")
    return found


def page(server, router):
    """The page, from both answers."""
    head = "| metric | kind | labels | |\n|---|---|---|---|\n"
    parts = (
        f"\n## {title}\n\n{head}" + "\n".join(rows(text)) + "\n"
        for title, text in (("A server", server), ("A router", router))
    )
    return INTRODUCTION + "".join(parts)


def answer(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        return reply.read().decode()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    text = page(answer(sys.argv[1]), answer(sys.argv[2]))
    if sys.argv[3:] == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
