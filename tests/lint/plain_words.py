"""Words that make comments and pages hard to read: persons in place of sequences, threads and files, fragments in place
of nouns. `plain_words.py` prints how often they occur, per 100,000 words and by file; lint holds every file to its
entry in plain_words_ratchet.txt (none: 0), so that the number only goes down.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = re.compile(r"\b(whoever|nobody|somebody|so many|so long|told|of its own)\b", flags=re.I)
BEGINS = re.compile(r"^(Of|Who)\b")
PATTERNS = ("*.md", "*.h", "*.cc", "*.cu", "*.cuh", "*.def", "*.py", "*.sh", "*.cmake", "CMakeLists.txt")
# Inputs and results, and this list.
APART = re.compile(r"^(bench/results/|tests/lint/plain_words|tests/language/text/data|CHANGELOG\.md)")
CPP = re.compile(r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', flags=re.S)


def texts_of(name, text):
    """(is it a comment, text) of everything that people read in a file: comments and strings, or all of a page."""
    if name.endswith(".md"):
        return [(False, text)]
    if name.endswith((".sh", ".cmake", "CMakeLists.txt")):
        return [(True, m.group(1)) for m in re.finditer(r"(?:^|\s)#[ \t]?([^\n]*)", text)]
    if name.endswith(".py"):
        found = []
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    found.append((True, token.string.lstrip("# ")))
                elif token.type == tokenize.STRING:
                    found.append((False, token.string.strip("\"'rbf")))
        except (tokenize.TokenError, IndentationError):
            pass
        return found
    found = []
    for match in CPP.finditer(text):
        piece = match.group(0)
        if piece.startswith("//"):
            found.append((True, re.sub(r"\n[ \t]*//[ \t]?", "\n", piece)[2:].lstrip()))
        else:
            found.append((piece.startswith("/*"), piece.strip('"/* ')))
    return found


def count(name, text):
    """(number of such words, words read)."""
    hits = words = 0
    for is_comment, piece in texts_of(name, text):
        words += len(piece.split())
        hits += len(WORDS.findall(re.sub(r"\s+", " ", piece)))
        hits += is_comment and bool(BEGINS.match(piece))
    return hits, words


def files():
    out = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *PATTERNS],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [name for name in out.splitlines() if not APART.match(name) and (ROOT / name).is_file()]


def ratchet():
    """{file: hits that it may have}."""
    lines = (ROOT / "tests/lint/plain_words_ratchet.txt").read_text().splitlines()
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: int(hits) for hits, name in pairs}


def main():
    total = words = 0
    for name in files():
        hits, read = count(name, (ROOT / name).read_text(errors="replace"))
        total, words = total + hits, words + read
        if hits and any(name.startswith(folder) for folder in sys.argv[1:] or [""]):
            print(f"{hits:4} {name}")
            if sys.argv[1:]:
                for _, piece in texts_of(name, (ROOT / name).read_text(errors="replace")):
                    flat = re.sub(r"\s+", " ", piece)
                    for match in WORDS.finditer(flat):
                        print(f"       ... {flat[max(0, match.start() - 60) : match.end() + 50]}")
                    if _ and BEGINS.match(piece):
                        print(f"       {flat[:110]}")
    print(f"{total} in {words} words: {100_000 * total / max(1, words):.0f} per 100,000")


if __name__ == "__main__":
    main()
