"""A report in a real browser (Debian's chromium): it is drawn, loads no external resources, and follows the reader's
light or dark scheme."""

import html
import json
import re
import shutil
import struct
import subprocess
import unittest
import xml.etree.ElementTree
import zlib

from command_case import Folder, tactus

CHROMIUM = shutil.which("chromium")


def first_pixel(png):
    """The colour in the upper left corner of an 8-bit RGB or RGBA picture."""
    data, at, packed, channels = png.read_bytes(), 8, b"", 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            channels = {2: 3, 6: 4}[body[9]]
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    row = zlib.decompress(packed)
    return tuple(row[1 : 1 + channels][:3])  # for any filter: there is nothing left of the first pixel or above it


@unittest.skipUnless(CHROMIUM, "there is no chromium")
class BrowserTest(Folder):
    def browse(self, *options):
        done = subprocess.run(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={self.folder}/profile",
                *options,
            ],
            capture_output=True,
            text=True,
            timeout=200,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def setUp(self):
        super().setUp()
        self.recorded = run = self.folder / "a.run"
        done = tactus(
            "sim",
            "--model",
            "yi-34b",
            "--device",
            "a100",
            "--tp",
            "2",
            "--pp",
            "2",
            "--workload",
            "chat",
            "--rate",
            "2",
            "--requests",
            "200",
            "--slo",
            "ttft=500ms,tbt=50ms",
            "--run-out",
            run,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.page = self.folder / "page.html"
        self.assertEqual(tactus("report", run, "-o", self.page).returncode, 0)

    def test_every_picture_is_drawn_without_network_requests(self):
        done = self.browse("--enable-logging=stderr", "--dump-dom", self.page.as_uri())
        self.assertEqual(done.stdout.count("<svg"), 10)  # including the bubbles of a pipeline
        self.assertNotIn("Content Security Policy", done.stderr)
        self.assertNotIn("Nothing to show", done.stdout)

    def test_the_page_fits_a_phone(self):
        page = self.folder / "measured.html"
        script = """<script>
          const texts = [...document.querySelectorAll("svg text")].map(t => t.getBoundingClientRect().height);
          const wide = [...document.querySelectorAll("figure, svg, p, h1, h2")]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1);
          document.title = JSON.stringify({least: Math.min(...texts), wide: wide.length, width: innerWidth,
            page: document.documentElement.scrollWidth});
        </script>"""
        text = re.sub(r"<meta http-equiv[^>]*>", "", self.page.read_text()).replace("</body>", script + "</body>")
        # Headless windows are at least 500 pixels wide; a frame may be narrower.
        page.write_text(text)
        outer = self.folder / "outer.html"
        outer.write_text(f"""<iframe width=390 height=800 src="{page.name}"></iframe><p id=out></p><script>
          onload = () => out.textContent = document.querySelector("iframe").contentDocument.title</script>""")
        done = self.browse("--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom", outer.as_uri())
        seen = json.loads(html.unescape(re.search(r'<p id="out">(.*?)</p>', done.stdout)[1]))
        self.assertEqual((seen["width"], seen["wide"]), (390, 0), seen)
        self.assertLessEqual(seen["page"], 390, "only tables scroll, within their boxes")
        self.assertGreaterEqual(seen["least"], 11, "the height of the smallest line of text in a picture, in pixels")

    def test_the_page_has_light_and_dark_colours(self):
        for features, colour in (("--disable-features=x", (255, 255, 255)), ("--force-dark-mode", (0x15, 0x18, 0x1C))):
            shot = self.folder / "shot.png"
            self.browse(features, "--window-size=1200,900", f"--screenshot={shot}", self.page.as_uri())
            self.assertEqual(first_pixel(shot), colour)

    def test_the_page_prints(self):
        paper = self.folder / "page.pdf"
        self.browse(f"--print-to-pdf={paper}", self.page.as_uri())
        data = paper.read_bytes()
        self.assertGreater(len(data), 20_000)
        boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", data)
        self.assertTrue(boxes)
        for width, height in boxes:
            self.assertGreater(float(width), float(height))  # two pictures side by side need the paper's long side

    @unittest.skipUnless(shutil.which("rsvg-convert"), "there is no rsvg-convert")
    def test_pictures_of_the_page_as_png(self):
        pictures = self.folder / "pictures"
        done = tactus("report", self.recorded, "--pictures", pictures, "--png")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        drawn = sorted(pictures.glob("*.svg"))
        self.assertGreater(len(drawn), 9)
        for svg in drawn:
            size = [2 * float(xml.etree.ElementTree.parse(svg).getroot().get(side)) for side in ("width", "height")]
            self.assertEqual(list(struct.unpack(">II", svg.with_suffix(".png").read_bytes()[16:24])), size, svg.name)


if __name__ == "__main__":
    unittest.main()
