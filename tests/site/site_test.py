#!/usr/bin/env python3
"""The site of docs/ builds without a warning, loads nothing from other hosts, and a broken page is refused.

Needs the packages of scripts/site.sh --packages; without them the test is skipped (77).
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = dict(os.environ, NO_MKDOCS_2_WARNING="1")
# Attributes that make a browser load something; a link that a reader follows is none of them.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "link": "href"}
EXTERNAL = re.compile(r"^(?:\w+:)?//")
# The namespaces of SVG and other names that look like addresses do not occur in these forms.
CSS_LOAD = re.compile(r"(?:@import\s+(?:url\()?|url\()\s*[\"']?((?:https?:)?//[^\"')]+)")


class Page(html.parser.HTMLParser):
    """What a page loads, whether it has diagrams, and its paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.scripts, self.has_diagram = [], [], False
        self.paragraphs, self.paragraph = [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        address = given.get(LOADS.get(tag, ""), "") or ""
        if address:
            self.loads.append(address)
        if tag == "script" and address:
            self.scripts.append(address)
        self.has_diagram |= "mermaid" in (given.get("class") or "").split()
        if tag == "p":
            self.paragraph = ""

    def handle_endtag(self, tag):
        if tag == "p" and self.paragraph is not None:
            self.paragraphs.append(self.paragraph)
            self.paragraph = None

    def handle_data(self, data):
        if self.paragraph is not None:
            self.paragraph += data


def missing():
    """What is not installed for a build; empty: all is."""
    wanted, has = ROOT / "tools/site/requirements.txt", ROOT / ".venv-site/requirements.installed"
    if not has.exists() or has.read_bytes() != wanted.read_bytes():
        return ".venv-site has not the packages of tools/site/requirements.txt"
    return "" if shutil.which("doxygen") else "there is no doxygen"


class SiteTest(unittest.TestCase):
    """One build of the whole site."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.site = pathlib.Path(cls.temporary.name, "site")
        cls.built = subprocess.run(
            [ROOT / "scripts/site.sh", cls.site],
            capture_output=True,
            text=True,
            timeout=900,
            env={k: v for k, v in ENVIRONMENT.items() if k != "TACTUS_SITE_API"},
        )
        cls.pages = {
            path.relative_to(cls.site): Page(path.read_text(encoding="utf-8")) for path in cls.site.rglob("*.html")
        }

    def test_it_builds_without_a_warning(self):
        self.assertEqual(self.built.returncode, 0, self.built.stdout + self.built.stderr)

    def test_every_page_of_the_documentation_is_in_it(self):
        docs = ROOT / "docs"
        wanted = {
            path.relative_to(docs).with_name("index.html" if path.name == "README.md" else f"{path.stem}.html")
            for path in docs.rglob("*.md")
        }
        self.assertEqual(wanted - set(self.pages), set())

    def test_the_pages_load_nothing_from_other_hosts(self):
        loaded = [f"{name}: {at}" for name, page in self.pages.items() for at in page.loads if EXTERNAL.match(at)]
        for path in self.site.rglob("*.css"):
            loaded += [f"{path.name}: {at}" for at in CSS_LOAD.findall(path.read_text(encoding="utf-8"))]
        self.assertEqual(loaded, [])
        self.assertGreater(sum(len(page.loads) for page in self.pages.values()), len(self.pages))

    def test_the_files_that_pages_load_exist(self):
        gone = []
        for name, page in self.pages.items():
            for at in page.loads:
                path = at.partition("?")[0].partition("#")[0]
                root = self.site if path.startswith("/") else self.site / name.parent
                if (
                    not EXTERNAL.match(at)
                    and not at.startswith(("data:", "javascript:"))
                    and not (root / path.lstrip("/")).exists()
                ):
                    gone.append(f"{name}: {at}")
        self.assertEqual(gone, [])

    def test_a_page_with_a_diagram_brings_the_script_that_draws_it(self):
        drawn = [name for name, page in self.pages.items() if page.has_diagram]
        self.assertIn(pathlib.Path("ARCHITECTURE.html"), drawn)
        for name in drawn:
            with self.subTest(page=str(name)):
                own = [at for at in self.pages[name].scripts if at.endswith("mermaid.min.js")]
                self.assertEqual(len(own), 1, "without it the theme loads one from another host")

    def test_the_search_has_an_index(self):
        index = (self.site / "search/search_index.json").read_text(encoding="utf-8")
        self.assertIn('"location":"concepts/policies.html', index)

    def test_lists_tables_and_blocks_of_code_are_read_as_such(self):
        rest = []
        for name, page in self.pages.items():
            for text in page.paragraphs:
                if name.parts[0] != "api" and re.search(r"^(?:[-*|] |\d{1,2}\. |```)", text, flags=re.M):
                    rest.append(f"{name}: {text[:80]!r}")
        self.assertEqual(rest, [], "put an empty line before these")

    def test_a_bar_in_a_cell_has_no_backslash(self):
        for name in ("reference/messages.html", "reference/options.html"):
            with self.subTest(page=name):
                text = (self.site / name).read_text(encoding="utf-8")
                cells = re.findall(r"<td[^>]*>.*?</td>", text, flags=re.S)
                self.assertTrue(any("|" in cell for cell in cells), "no cell has a bar")
                self.assertEqual([cell for cell in cells if "\\|" in cell], [])

    def test_public_headers_have_pages_that_the_reference_links_to(self):
        page = (self.site / "reference/cpp_api.html").read_text(encoding="utf-8")
        for header in (ROOT / "include/tactus").glob("*.h"):
            with self.subTest(header=header.name):
                link = re.search(rf'<a href="\.\./(api/cpp/[^"]+)"><code>tactus/{re.escape(header.name)}</code>', page)
                self.assertIsNotNone(link, "docs/reference/cpp_api.md does not link to it")
                self.assertIn(header.name, (self.site / link.group(1)).read_text(encoding="utf-8"))


class RefusalTest(unittest.TestCase):
    """A small tree with one fault."""

    def build(self, text, **files):
        with tempfile.TemporaryDirectory() as name:
            tree = pathlib.Path(name)
            (tree / "tools/site").mkdir(parents=True)
            shutil.copy(ROOT / "mkdocs.yml", tree)
            shutil.copy(ROOT / "tools/site/hooks.py", tree / "tools/site")
            (tree / "docs/measurements").mkdir(parents=True)
            (tree / "docs/measurements/README.md").write_text("# Logs\n")
            (tree / "README.md").write_text("# Root\n\nSee [the pages](docs/README.md).\n")
            table = "# Pages\n\n| page |\n|---|\n| [one.md](one.md) |\n\n## Measurements\n\n| page |\n|---|\n"
            (tree / "docs/README.md").write_text(table + "| [logs](measurements/README.md) |\n")
            (tree / "docs/one.md").write_text(f"# One\n\n{text}\n")
            for file, content in files.items():
                (tree / "docs" / f"{file}.md").write_text(content)
            done = subprocess.run(
                [ROOT / ".venv-site/bin/mkdocs", "build", "--strict"],
                cwd=tree,
                capture_output=True,
                text=True,
                timeout=300,
                env=ENVIRONMENT,
            )
            return done.returncode, done.stdout + done.stderr

    def test_a_tree_without_a_fault_is_built(self):
        status, said = self.build("[The root](../README.md), [this](#one).")
        self.assertEqual(status, 0, said)

    def test_a_link_to_a_missing_file_is_refused(self):
        links = ("two.md", "../src/none.cc", "#none", "README.md#nothing")
        status, said = self.build(" ".join(f"[x]({link})" for link in links))
        self.assertNotEqual(status, 0, "it was built")
        for link in links:
            with self.subTest(link=link):
                self.assertRegex(said, rf"WARNING[^\n]*'?{re.escape(link)}\b")

    def test_a_page_that_no_table_lists_is_refused(self):
        status, said = self.build("Text.", two="# Two\n")
        self.assertNotEqual(status, 0, "it was built")
        self.assertRegex(said, r"not included in the \"nav\" configuration:\s+- two\.md")


class HeaderCommentsTest(unittest.TestCase):
    """tools/site/doxygen_comments.py."""

    def test_comments_describe_what_they_are_above_or_behind(self):
        sys.path.insert(0, str(ROOT / "tools/site"))
        import doxygen_comments

        text = "// Head <a>.\n#pragma once\n\nclass B;  // b.h\n// Above --x.\nint a;  // behind\n        // more\n"
        text += 'auto b = "//";\n'
        self.assertEqual(
            doxygen_comments.in_doxygens_form(text, "h.h"),
            [
                "/// @file h.h",
                "/// Head \\<a\\>.",
                "#pragma once",
                "",
                "class B;  // b.h",
                "/// Above \\--x.",
                "int a;  ///< behind",
                "        ///< more",
                'auto b = "//";',
            ],
        )


if __name__ == "__main__":
    if reason := missing():
        print(f"skipped: {reason}; scripts/site.sh --packages installs it")
        sys.exit(77)
    unittest.main()
