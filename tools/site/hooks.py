"""What mkdocs (mkdocs.yml) does beside its own work for the site of docs/.

The pages of docs/ stay readable on a code host, so they link to files of the repository by relative paths. Links within
docs/ are mkdocs' own. A file outside docs/ that a page links to becomes a page or a file of the site, below
repository/, and so do the files that such a page links to. A link to a missing file is a warning, which `--strict`
makes an error. If scripts/site.sh has made Doxygen's pages (TACTUS_SITE_API: their folder), a link to a public header
leads to its page there.

The navigation is docs/README.md: its headings and the pages of its tables, and the logs that the table of
docs/measurements/README.md lists. A page in neither is a warning too.
"""

import importlib.util
import logging
import os
import pathlib
import posixpath
import re

from markdown import Extension
from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = "repository/"  # the folder of the site for files outside docs/
API = "api/cpp/"  # Doxygen's pages
MERMAID = "assets/mermaid.min.js"
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
ROW_LINK = re.compile(r"\[[^\]]*\]\(([\w./-]+\.md)\)")
FENCED = re.compile(r"(^[ \t]*```.*?^[ \t]*```[ \t]*$)", flags=re.M | re.S)
NOTED_FENCE = re.compile(
    r"^([ \t]*```\w+) .*$", flags=re.M
)  # a note for tests/e2e/tutorial_page.py behind the language
CELL = re.compile(r"<td[^>]*>.*?</td>", flags=re.S)
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".def": "cpp", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}
PICTURES = (".png", ".svg")
LONGEST_SHOWN = 100_000  # bytes; a longer file is copied and not shown as a page

log = logging.getLogger("mkdocs.hooks.tactus")


def api_folder():
    return os.environ.get("TACTUS_SITE_API", "")


def doxygen_page(header):
    """Doxygen's name for a header's page: _8h.html at the end, and an underscore before each further underscore."""
    return API + header.replace("_", "__").replace(".", "_8") + ".html"


def place_of(path):
    """The place within the site of a file of the repository, as a source that mkdocs knows."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("include/tactus/") and api_folder():
        return doxygen_page(posixpath.basename(path))
    file = ROOT / path
    is_page = file.suffix == ".md" or file.suffix in PICTURES or file.stat().st_size > LONGEST_SHOWN
    return PLACE + path + ("" if is_page else ".md")


def file_of(place):
    """The file of the repository whose page is at this place."""
    return place.removeprefix(PLACE) if place.startswith(PLACE) else "docs/" + place


def target_of(page, link):
    """The file of the repository that a link of a page names; None: there is none."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if (ROOT / path).is_dir() and (ROOT / path / "README.md").is_file():
        path += "/README.md"
    return path if (ROOT / path).is_file() else None


def links_of(page):
    """The files that a page of the repository links to."""
    prose = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return {target for match in LINK.finditer(prose) if (target := target_of(page, match.group(1)))}


def linked_files():
    """Every file outside docs/ that a page links to, directly or from such a file."""
    waiting = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    seen = set(waiting)
    while waiting:
        for target in links_of(waiting.pop()) - seen:
            seen.add(target)
            if target.endswith(".md"):
                waiting.append(target)
    return sorted(path for path in seen if not path.startswith("docs/"))


def shown(path):
    """A text of the repository as a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    fence = "`" * (3 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
    return f"# {path}\n\n{fence}{LANGUAGES.get(pathlib.Path(path).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def rows(section):
    """The pages that the first column of a table lists."""
    return [
        link for line in section.splitlines() if line.startswith("|") for link in ROW_LINK.findall(line.split("|")[1])
    ]


def navigation():
    text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    first, *sections = re.split(r"^## ", text, flags=re.M)
    found = [{"Tactus": ["README.md", *rows(first)]}]
    for section in sections:
        title, _, body = section.partition("\n")
        pages = rows(body)
        if title == "Measurements":
            logs = rows((ROOT / "docs/measurements/README.md").read_text(encoding="utf-8"))
            pages += [page for log_ in logs if (page := posixpath.join("measurements", log_)) not in pages]
        pages.sort(key=lambda page: not page.endswith("/README.md"))
        found.append({title: list(dict.fromkeys(pages))})
    return found


class ListsOfTwo(Extension):
    """A list within a list is indented by two columns, as code hosts read it, not by four."""

    def extendMarkdown(self, md):
        md.tab_length = 2


def on_config(config):
    config.markdown_extensions.append(ListsOfTwo())
    config.nav = navigation()
    return config


def on_files(files, config):
    for path in linked_files():
        place = place_of(path)
        if place.startswith(API):
            continue
        if place == PLACE + path:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, place, content=shown(path)))
    if folder := api_folder():
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                name = API + path.relative_to(folder).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    wheel = importlib.util.find_spec("artoo_mermaid").submodule_search_locations[0]
    files.append(File.generated(config, MERMAID, abs_src_path=f"{wheel}/assets/mermaid.min.js"))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files outside docs/ lead to their places in the site."""
    here = file_of(page.file.src_uri)
    if not here.endswith(".md") or not (ROOT / here).is_file():
        return markdown

    def place(match):
        target = target_of(here, match.group(1))
        if target is None:
            log.warning("%s: there is no %s", here, match.group(1))
            return match.group(0)
        link = posixpath.relpath(place_of(target), posixpath.dirname(page.file.src_uri))
        return f"]({link}{match.group(2) or ''})"

    markdown = NOTED_FENCE.sub(r"\1", markdown)
    parts = FENCED.split(markdown)
    return "".join(part if at % 2 else LINK.sub(place, part) for at, part in enumerate(parts))


def on_page_content(html, page, config, files):
    """A bar within code in a table's cell loses its escape, as on code hosts."""
    return CELL.sub(lambda match: match.group().replace("\\|", "|"), html)


def on_post_page(output, page, config):
    """The script that draws diagrams, on the pages that have some; without it the theme would load it from another
    host."""
    if 'class="mermaid"' not in output:
        return output
    script = posixpath.relpath(MERMAID, posixpath.dirname(page.file.dest_uri))
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)
