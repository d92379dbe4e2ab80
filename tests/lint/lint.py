#!/usr/bin/env python3
"""Rules that a compiler does not check. Each prints file:line and what to do; exit status 1 if any is broken.

include-direction  a room of src/ includes only what src/layers.txt allows it, and every permission is used
module-map         docs/ARCHITECTURE.md shows the rooms of src/layers.txt (lint.py --write-map makes the table)
wall-clock         only base/system_clock.cc reads a clock, and SystemClock() is named where docs/ARCHITECTURE.md says
sockets            only http/, serve/ and hub/ include socket headers: a conversation (api/) or a simulation uses no
transport
backend            only compute/exec knows which backend computes: others call MakeBackend
determinism        no std random engines or distributions; none of unordered iteration in sched/
prefetch           prefetches go through base/prefetch.h, whose calls the compiler does not drop; except in kernels
file-size          no source beyond its limit, and none that is on the ratchet grows
targets            every source file belongs to a target
policy-names       outside their tables nothing compares with the name of a preset, a choice or a predictor
true-length        only the simulator, its executor and the oracle predictors include base/sim_request.h
coroutines         co_ keywords only in http/, serve/, fleet/; no capturing lambda, conditional or braced temporary
                   inside a co_await expression (GCC 12 destroys them twice)
format             clang-format 19.1.7 (tests/requirements.txt) would change nothing; not checked where it is not
                   installed
python             ruff (tests/requirements.txt, pyproject.toml) would change nothing and finds nothing; likewise
doc-paths          a file or folder that a document names in the repository exists, and so does a file that a comment
                   of a source names
doc-links          a document's link to a file or heading of the repository has a target
doc-names          a class or function that docs/ARCHITECTURE.md locates exists
doc-options        every option is named in README.md or in a page below docs/
generated-pages    the pages that a script of tools/ makes from sources and data are what it makes of them
doc-width          prose of a document is at most 120 columns wide; tables, code and link targets may be wider
executable         a script that begins with #! can be started by its name, as documents do
plain-words        words that make texts hard to read do not become more (tests/lint/plain_words.py lists them)
own-words          nothing names a machine's private paths or unfinished work without a reason
"""

import pathlib
import re
import shutil
import subprocess
import sys

import plain_words

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import cpp_page  # noqa: E402
import messages_page  # noqa: E402
import models_page  # noqa: E402
import python_page  # noqa: E402


def read_layers(text):
    """{room: rooms it includes} and {district: districts that its rooms may include}, from the text of src/layers.txt.
    A room is named by its folder below src/."""
    rooms, districts, district = {}, {}, None
    for line in text.splitlines():
        if match := re.match(r"([a-z_]+):(.*)$", line):
            district = match[1]
            districts[district] = match[2].split()
        elif match := re.match(r"  ([a-z_]+|\.):(.*)$", line):
            rooms[district if match[1] == "." else f"{district}/{match[1]}"] = match[2].split()
    for room, below in rooms.items():  # full names for rooms of the same district
        own = room.split("/")[0]
        rooms[room] = [f"{own}/{name}" if f"{own}/{name}" in rooms else name for name in below]
    return rooms, districts


GENERATED = (cpp_page, messages_page, models_page, python_page)  # scripts with a PAGE and its text, page()

ROOMS, DISTRICTS = read_layers((ROOT / "src/layers.txt").read_text())


def room_of(path):
    """The room of a path below src/ (`core/sched/plan.h`); None: in no room."""
    parts = path.split("/")
    for name in ("/".join(parts[:2]), parts[0]):
        if name in ROOMS:
            return name
    return None


def may_include(room, target):
    return target in (room, "base", *ROOMS[room])


def faults_of_layers(used):
    """The faults of src/layers.txt, where `used` are the (room, included room) that occur."""
    found = []
    for room, below in ROOMS.items():
        district = room.split("/")[0]
        for target in below:
            if target not in ROOMS:
                found.append(f"{room} may include {target}, which is no room")
            elif target.split("/")[0] not in (district, *DISTRICTS[district]):
                found.append(f"{room} may include {target}, whose district {district} may not know")
            elif (room, target) not in used:
                found.append(f"{room} may include {target} and does not: take the permission away")
    for district, known in DISTRICTS.items():
        for other in known:
            if not any(a.split("/")[0] == district and b.split("/")[0] == other for a, b in used):
                found.append(f"{district} may know {other} and does not: take the permission away")
    return found


def module_map(text):
    """The map in docs/ARCHITECTURE.md: every room of src/layers.txt with its description and what it includes."""
    rows, comment, district = ["| room | holds | includes |", "|---|---|---|"], "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# "):
            comment = stripped[2:]
        elif match := re.match(r"([a-z_]+):", line):
            district = match[1]
            rows.append(f"| **`{district}/`** | **{comment.rstrip('.')}** | |")
        elif match := re.match(r"  ([a-z_]+|\.):(.*)$", line):
            name = f"`{match[1]}/`" if match[1] != "." else "its own files"
            includes = " ".join(f"`{below}`" for below in match[2].split())
            rows.append(f"| {name} | {comment} | {includes} |")
    return "\n".join(rows) + "\n"


def write_map():
    page = ROOT / "docs/ARCHITECTURE.md"
    text = page.read_text()
    start = text.index("| room | holds | includes |")
    end = text.index("\n\n", start) + 1 if "\n\n" in text[start:] else len(text)
    page.write_text(text[:start] + module_map((ROOT / "src/layers.txt").read_text()) + text[end:])
    return 0


CLOCK = re.compile(
    r"(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|\btime\(\s*(NULL|nullptr|0)\s*\)|__rdtsc)"
)
SOCKETS = re.compile(r"\s*#\s*include\s+<(boost/(asio|beast)|curl/|sys/socket\.h|netinet/|arpa/)")
HELPER_SOCKETS = ("grammar", "trial_channel.cc")  # between a server and its child process
# Files that may name the machine's clock (docs/ARCHITECTURE.md, "Determinism"); all others get a Clock passed.
NAMES_SYSTEM_CLOCK = re.compile(
    r"base/(clock\.h|system_clock\.cc)|cli/|python/simulate\.cc|serve/run_server\.cc|fleet/router/run_router\.cc|fleet/picker/run_epp\.cc|engine/engine_facade\.cc"
)
BACKEND = re.compile(r'#\s*include\s+"compute/exec/(cpu_\w+|step_runner|kv_memory)\.h"')
RANDOM = re.compile(
    r"std::(mt19937|minstd|default_random_engine|random_device|uniform_\w+_distribution|normal_distribution|exponential_distribution)"
)
PREFETCH = re.compile(r"\b(__builtin_prefetch|_mm_prefetch)\b")
KNOWS_TRUE_LENGTH = re.compile(r"base/sim_request\.h|sim/|core/predict/(oracle|noisy|stated)|cli/commands/sim")
PRIVATE = re.compile(r"/" + r"work/|\.lib" + r"rary\b|/root/")
SIZE_LIMITS = {".h": 300, ".cc": 600, ".py": 600, ".cu": 800, ".cuh": 800}
KERNEL_LIMIT = 800
# Districts whose code knows schedulers. `none` is a value of many options.
POLICY_NAME_MODULES = ("core", "engine", "sim", "serve", "cli")
POLICY_ROW = re.compile(r'^TACTUS_\w+\((?:\w+, )?"([^"]+)"', flags=re.M)
PREDICTORS = ["history", "oracle", "noisy"]
# Files in which a name also has another meaning.
OTHER_MEANINGS = {"sim/workload/workload.cc": '"random"'}  # a workload
DOC_PATH = re.compile(r"`((?:src|tests|include|tools|scripts|bench|cmake|data|deploy|docs)/[\w./*-]+)`")
COMMENT = re.compile(r"(?<!:)//(.*)$")
NAMED_FILE = re.compile(r"(?<![\w./<-])((?:[\w*-]+/)*[\w*-]+\.(?:cc|cuh?|h|def|md|py|sh|cmake))\b(?!\.\w)")
# Files of other projects that comments name.
FOREIGN_FILES = {
    "asm/hwcap.h",
    "docs/gguf.md",
    "ggml-common.h",
    "gguf.md",
    "linux/mempolicy.h",
    "parser/llguidance.h",
}
DOC_LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
DOC_NAME = re.compile(r"`([A-Z]\w+(?:::\w+)*)`")
OPTION = re.compile(r"\bv\.Field\(\s*\"([a-z][a-z-]*)\"")
DOC_WIDTH = 120
CO_AWAIT_TRAPS = [
    (re.compile(r"co_await[^;]*\[[&=\w][^\]]*\]\s*[({]"), "capturing lambda inside a co_await expression"),
    (re.compile(r"co_await[^;]*\?[^;]*:[^;:]"), "conditional inside a co_await expression"),
    (re.compile(r"co_await[^;]*[\w>]\{[^;]*\}"), "braced temporary inside a co_await expression"),
]


def tracked(*patterns):
    out = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / line for line in out.splitlines() if (ROOT / line).is_file()]


def not_executable(paths):
    """The files that begin with #! and are not executable."""
    return [path for path in paths if not path.stat().st_mode & 0o100 and path.read_bytes()[:2] == b"#!"]


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def policy_names(tables):
    """A pattern for comparisons with a name of the rows in `tables` or of a predictor."""
    names = sorted(({*POLICY_ROW.findall(tables), *PREDICTORS}) - {"none"})
    name = '"(' + "|".join(map(re.escape, names)) + ')"'
    return re.compile(rf"[!=]=\s*{name}|{name}\s*[!=]=")


def dangling(text):
    """(line, path) of every path of this repository that the text names and that does not exist."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for path in DOC_PATH.findall(line):
            if not any(ROOT.glob(path.rstrip("/"))):
                found.append((number, path))
    return found


def dangling_in_comments(folder, text, names):
    """(line, name) of every file that a comment of a source in `folder` names and that does not exist. `names`: the
    names of all files. A name with a folder begins at the root, at one of its main folders or at a folder above the
    source; in tests also at the folder of src/ that they mirror."""
    above = [folder, *folder.parents]
    mirrored = [pathlib.Path("src", *place.parts[1:]) for place in above if place.parts[:1] == ("tests",)]
    places = [*above, *mirrored, *map(pathlib.Path, ("src", "include", "tests", "docs"))]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.search(re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', line))
        for name in NAMED_FILE.findall(comment.group(1)) if comment else ():
            known = name in names or name in FOREIGN_FILES
            if not known and not ("/" in name and any(any((ROOT / place).glob(name)) for place in places)):
                found.append((number, name))
    return found


def headings(text):
    """The anchors of a document's headings, in GitHub's form."""
    titles = re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-") for title in titles}


def broken_links(path, text):
    """(line, target) of every link to a file or heading of this repository that does not exist."""
    found = []
    for match in DOC_LINK.finditer(text):
        target, _, anchor = match.group(1).partition("#")
        page = (path.parent / target).resolve() if target else path
        known = (
            headings(text if page == path else page.read_text(errors="replace"))
            if page.suffix == ".md" and page.is_file()
            else set()
        )
        if not page.exists() or (anchor and anchor not in known):
            found.append((text[: match.start()].count("\n") + 1, match.group(1)))
    return found


def is_defined(name, source):
    """Whether the source defines the class or function `name`; for a member: its definition, or its class with a
    declaration of it."""
    *scope, last = name.split("::")
    if last not in source:  # most sources, at a tenth of the expressions' time
        return False
    if not scope:
        return re.search(rf"\b{last}\b", source)
    if re.search(rf"\b{scope[-1]}::{last}\b", source):
        return True
    return re.search(rf"\b(class|struct) ([\w:]+::)?{scope[-1]}\b", source) and re.search(
        rf"(?<![.>\w]){last}\b", source
    )


def unknown_names(text, sources):
    """(line, name) of every class or function in code spans of the table "Where is ..." that no source file has."""
    found = []
    at = text.index("## Where is ...")
    for match in DOC_NAME.finditer(text, at, text.index("\n## ", at + 1)):
        if not any(is_defined(match.group(1), source) for source in sources):
            found.append((text[: match.start()].count("\n") + 1, match.group(1)))
    return found


def unnamed_options(code, pages):
    """(line, name) of every option that the code declares and no page names as --name."""
    declared = ((code[: m.start()].count("\n") + 1, m.group(1)) for m in OPTION.finditer(code))
    return [(line, name) for line, name in declared if not re.search(rf"--{name}(?![\w-])", pages)]


def too_wide(text):
    """(line, columns) of every line of prose beyond DOC_WIDTH. A table's row, a heading, code and a line of one word
    may be wider."""
    found, code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        free = (
            code
            or re.match(r"\s*(\||#|\[[^\]]+\]: )", line)
            or line.startswith("    ")
            and not re.match(r"\s*([-*]|\d+\.) ", line)
        )
        if not free and len(line) > DOC_WIDTH and len(line.split()) > 1:
            found.append((number, len(line)))
    return found


def fault_of_page(made):
    """Why a generated page is not what its script makes; empty: it is."""
    try:
        text = made.page()
    except ValueError as error:
        return str(error)
    same = made.PAGE.exists() and made.PAGE.read_text(encoding="utf-8") == text
    return "" if same else f"run tools/{made.__name__}.py --write"


def unformatted(paths, formatter):
    """(path, line) of the first place in each file that .clang-format would change; the formatter must have the stated
    version."""
    done = subprocess.run(
        [formatter, "--dry-run", *map(str, paths)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = {}
    for match in re.finditer(r"^(.+?):(\d+):\d+: warning: code should be clang-formatted", done.stderr, flags=re.M):
        found.setdefault(match.group(1), int(match.group(2)))
    return [(pathlib.Path(path), line) for path, line in found.items()]


def formatter():
    for candidate in (ROOT / ".venv/bin/clang-format", shutil.which("clang-format-19")):
        if candidate and pathlib.Path(candidate).exists():
            return str(candidate)
    return None


def main():
    problems = []

    def report(path, line, rule, message):
        problems.append(f"{path.relative_to(ROOT)}:{line}: {rule}: {message}")

    named = policy_names(
        "".join((ROOT / "src/core/sched" / table).read_text() for table in ("choices.def", "presets.def"))
    )
    used = set()  # (room, included room)
    sources = tracked("src/*.cc", "src/*.h", "src/*.cu", "src/*.cuh", "include/*.h")
    for path in sources:
        rel = path.relative_to(ROOT).parts
        raw = path.read_text(errors="replace")
        text = strip_comments(raw)
        lines = text.splitlines()
        if rel[0] == "src":
            module = rel[1]
            room = room_of("/".join(rel[1:]))
            if room is None:
                report(path, 1, "include-direction", f"src/layers.txt has no room for {'/'.join(rel[1:])}")
            for number, line in enumerate(raw.splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+"([\w./]+)"', line)
                target = room_of(match.group(1)) if match and (ROOT / "src" / match.group(1)).exists() else None
                if room is not None and target is not None:
                    used.add((room, target))
                    if not may_include(room, target):
                        report(path, number, "include-direction", f"{room}/ may not include {target}/ (src/layers.txt)")
                if SOCKETS.match(line) and module not in ("http", "serve", "hub") and rel[-2:] != HELPER_SOCKETS:
                    report(path, number, "sockets", f"{module}/ knows no transport: that is http/, serve/ and hub/")
            other = OTHER_MEANINGS.get("/".join(rel[1:]), "")
            for number, line in enumerate(raw.splitlines() if module in POLICY_NAME_MODULES else (), 1):
                if (match := named.search(line)) and not (other and other in match.group(0)):
                    report(
                        path,
                        number,
                        "policy-names",
                        f"{match.group(0)}: say what it is like in its row or its file (ChoiceTraits)",
                    )
            if '"base/sim_request.h"' in raw and not KNOWS_TRUE_LENGTH.match("/".join(rel[1:])):
                report(
                    path, 1, "true-length", "only the simulator, its executor and the oracles may know output lengths"
                )
        for number, line in enumerate(raw.splitlines(), 1):
            if rel[:3] != ("src", "compute", "exec") and BACKEND.search(line):
                report(
                    path,
                    number,
                    "backend",
                    "backends are chosen in one place: call MakeBackend (compute/exec/make_backend.h)",
                )
        for number, line in enumerate(lines, 1):
            if "SystemClock()" in line and not NAMES_SYSTEM_CLOCK.match("/".join(rel[1:])):
                report(path, number, "wall-clock", "take the Clock that was passed in instead of naming the machine's")
            if CLOCK.search(line) and rel[-1] != "system_clock.cc":
                report(path, number, "wall-clock", "take time from the Clock that was passed in (base/clock.h)")
            if RANDOM.search(line):
                report(path, number, "determinism", "std random numbers differ between libraries: use base/rng.h")
            if PREFETCH.search(line) and rel[:3] != ("src", "compute", "kernels") and rel[-1] != "prefetch.h":
                report(path, number, "prefetch", "GCC drops calls to functions that only prefetch: use base/prefetch.h")
            if rel[:3] == ("src", "core", "sched") and "std::unordered_" in line:
                report(path, number, "determinism", "unordered containers have no place in sched/")
            if re.search(r"\bco_(await|return|yield)\b", line) and rel[1] not in ("http", "serve", "fleet"):
                report(path, number, "coroutines", "coroutines live in http/, serve/ and fleet/ only")
        for trap, message in CO_AWAIT_TRAPS:
            for match in trap.finditer(text):
                report(path, text[: match.start()].count("\n") + 1, "coroutines", message)

    for fault in faults_of_layers(used):
        report(ROOT / "src/layers.txt", 1, "include-direction", fault)
    architecture = ROOT / "docs/ARCHITECTURE.md"
    if module_map((ROOT / "src/layers.txt").read_text()) not in architecture.read_text():
        report(
            architecture,
            1,
            "module-map",
            "the module map is not that of src/layers.txt: tests/lint/lint.py --write-map",
        )

    ratchet = {}
    ratchet_file = ROOT / "tests/lint/file_size_ratchet.txt"
    if ratchet_file.exists():
        for line in ratchet_file.read_text().splitlines():
            if line and not line.startswith("#"):
                size, name = line.split(None, 1)
                ratchet[name] = int(size)
    for path in tracked("*.cc", "*.h", "*.cu", "*.cuh", "*.py"):
        name = str(path.relative_to(ROOT))
        size = len(path.read_text(errors="replace").splitlines())
        limit = (
            KERNEL_LIMIT
            if name.startswith("src/compute/kernels/") and path.suffix == ".cc"
            else SIZE_LIMITS.get(path.suffix, 800)
        )
        limit = max(limit, ratchet.get(name, 0))
        if size > limit:
            report(path, 1, "file-size", f"{size} lines, limit {limit}: is it one thing? split it")
        if name in ratchet and size < ratchet[name]:
            report(path, 1, "file-size", f"shrank to {size}: lower its entry in tests/lint/file_size_ratchet.txt")

    allowed_words = plain_words.ratchet()
    for name in plain_words.files():
        hits, _ = plain_words.count(name, (ROOT / name).read_text(errors="replace"))
        limit = allowed_words.get(name, 0)
        if hits > limit:
            report(ROOT / name, 1, "plain-words", f"{hits}, limit {limit}: tests/lint/plain_words.py {name} shows them")
        elif hits < limit:
            report(ROOT / name, 1, "plain-words", f"only {hits} left: lower its entry in plain_words_ratchet.txt")

    listed = "\n".join(p.read_text() for p in tracked("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake"))
    globbed = re.findall(r"(/[\w/]+)/\*([\w.]+)", listed)  # file(GLOB ... ${CMAKE_SOURCE_DIR}/folder/*.end)
    architectures = (
        ROOT / "src/compute/config/architectures.def"
    ).read_text()  # src/compute/config/CMakeLists.txt reads it too
    for path in tracked("src/*.cc", "tests/*.cc", "bench/*.cc", "src/*.cu"):
        if path.parent.name == "arch" and re.search(r"\b" + path.stem + r"\b", architectures):
            continue
        if any(path.parent.as_posix().endswith(folder) and path.name.endswith(end) for folder, end in globbed):
            continue
        if not re.search(r"(^|[\s/\"(])" + re.escape(path.name) + r"($|[\s\")])", listed, flags=re.M):
            report(path, 1, "targets", "no CMakeLists.txt names this file")

    for path in tracked():
        if path.suffix in (".png", ".gguf", ".safetensors", ".bin", ".model") or path.name == "lint.py":
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if PRIVATE.search(line):
                report(path, number, "own-words", "a path of one machine")

    names = {path.name for path in tracked()}
    for path in tracked("*.cc", "*.h", "*.cu", "*.cuh", "*.def"):
        folder = path.parent.relative_to(ROOT)
        for number, name in dangling_in_comments(folder, path.read_text(errors="replace"), names):
            report(path, number, "doc-paths", f"there is no {name}")

    for path in tracked("*.md"):
        for number, name in dangling(path.read_text(errors="replace")) if path.name != "CHANGELOG.md" else ():
            report(path, number, "doc-paths", f"there is no {name}")
        for number, target in broken_links(path, path.read_text(errors="replace")):
            report(path, number, "doc-links", f"{target} leads nowhere")
        for number, columns in too_wide(path.read_text(errors="replace")):
            report(path, number, "doc-width", f"{columns} columns, limit {DOC_WIDTH}: wrap the paragraph")

    pages = "\n".join(p.read_text(errors="replace") for p in tracked("README.md", ":(glob)docs/**/*.md"))
    for path in sources:
        if path.name == "option_fields.h":  # has an example
            continue
        for number, name in unnamed_options(path.read_text(errors="replace"), pages):
            report(path, number, "doc-options", f"no document names --{name}")

    page = ROOT / "docs/ARCHITECTURE.md"
    for number, name in unknown_names(
        page.read_text(), [strip_comments(p.read_text(errors="replace")) for p in sources]
    ):
        report(page, number, "doc-names", f"no source file has {name}")

    for made in GENERATED:
        if fault := fault_of_page(made):
            report(made.PAGE, 1, "generated-pages", fault)

    for path in not_executable(tracked("*.py", "*.sh", ".ci/*")):
        report(path, 1, "executable", "it begins with #!: chmod +x, or take that line out")

    if (program := formatter()) is not None:
        for path, line in unformatted(tracked("*.cc", "*.h", "*.cu", "*.cuh"), program):
            report(path, line, "format", f"run {program} -i on this file")
    else:
        print("lint: no clang-format 19: 'format' was not checked; scripts/test.sh installs it")

    ruff = ROOT / ".venv/bin/ruff"
    if ruff.exists():
        python = [str(path) for path in tracked("*.py", "*.pyi")]
        for command in (["format", "--check", "--diff", "--quiet"], ["check", "--output-format", "concise", "--quiet"]):
            done = subprocess.run([ruff, *command, *python], capture_output=True, text=True, cwd=ROOT)
            if done.returncode != 0:
                said = done.stdout[:4000] + done.stderr[:1000]
                report(ROOT / "pyproject.toml", 1, "python", f"ruff {command[0]}:\n{said}")
    else:
        print("lint: no ruff: 'python' was not checked; scripts/test.sh installs it")

    for problem in problems:
        print(problem)
    print(f"lint: {len(sources)} sources, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(write_map() if "--write-map" in sys.argv else main())
