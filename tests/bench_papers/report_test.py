#!/usr/bin/env python3
"""bench/papers: the report and its pictures."""

import math
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/papers"))
import picture  # noqa: E402
import report  # noqa: E402
from claims import Between, Near  # noqa: E402


class Report(unittest.TestCase):
    ROW = {
        "paper": "p",
        "id": "c",
        "section": "1",
        "claim": "a | b",
        "paper_value": "2",
        "unit": "x",
        "ours": 1.5,
        "least": 1.4,
        "largest": 1.6,
        "difference": "-25 %",
        "aim": {"value": 2, "low": 1.8, "high": 2.2},
        "verdict": "direction only",
        "why": "because",
        "stands_in": "another",
        "model": "m",
        "model_error": "10 %",
        "variants": {"unchanged": 1.5, "roofline": 0.5},
        "turns": ["roofline"],
        "commands": {},
        "errors": [],
        "measured": 3,
    }

    def test_markdown(self):
        text = report.markdown(
            [
                {
                    "date": "2026-11-26T00:00:00",
                    "commit": "abc",
                    "command": "run",
                    "quick": False,
                    "traces": "the public ones",
                    "papers": {"p": "Paper"},
                    "rows": [self.ROW],
                }
            ]
        )
        self.assertIn(
            "| a \\| b (`c`) | 1 | 2 | 1.8 to 2.2 | 1.5 (1.4 to 1.6) | -25 % | no | direction only | 0.5 to 1.5; turns"
            " under roofline |",
            text,
        )
        for part in ("`c`: because.", "- another.", "- 10 %."):
            self.assertIn(part, text)

    def test_within_a_tenth_of_a_figure(self):
        for row, said in (
            ({"ours": 2.2}, "yes"),
            ({"ours": 2.21}, "no"),
            ({"ours": None}, "-"),
            ({"aim": {"value": 2, "low": None, "high": 2}}, "-"),
            ({"aim": {"value": 2, "low": 2, "high": 3}}, "-"),
        ):
            self.assertEqual(report.within_tenth(self.ROW | row), said, row)

    def test_ties_unknowns_and_derived_figures_are_reported(self):
        row = self.ROW | {"verdict": "disagrees", "tie": True, "other_with": ["host 5 ms"], "derived": "a fifth of 10"}
        self.assertEqual(report.verdict_text(row), "disagrees, a tie: within 1 %; reproduced with host 5 ms")
        self.assertEqual(report.paper_value(row), "2 (derived: a fifth of 10)")
        row = self.ROW | {"verdict": "reproduced", "other_with": ["a", "b"]}
        self.assertEqual(report.verdict_text(row), "reproduced; not with a, b")
        self.assertEqual((report.verdict_text(self.ROW), report.paper_value(self.ROW)), ("direction only", "2"))

    def test_failures_are_reported(self):
        text = report.markdown(
            [
                {
                    "date": "2026-11-26",
                    "commit": "abc",
                    "command": "run",
                    "quick": False,
                    "traces": "the public ones",
                    "papers": {"p": "Paper"},
                    "rows": [self.ROW | {"errors": ["seed 2: it broke"]}],
                }
            ]
        )
        self.assertIn("Not measured:\n\n- `c`: 1 of 3 measurements; seed 2: it broke\n", text)

    def test_a_difference_without_a_reason_is_reported(self):
        text = report.markdown(
            [
                {
                    "date": "2026-11-26",
                    "commit": "abc",
                    "command": "run",
                    "quick": False,
                    "traces": "the public ones",
                    "papers": {"p": "Paper"},
                    "rows": [self.ROW | {"why": ""}],
                }
            ]
        )
        self.assertIn("No reason is known for `c`.", text)


class Picture(unittest.TestCase):
    """Positions of marks: the axis goes from 1/8 to 8, so its middle is the paper's value and a quarter of its length
    is a factor of 2.83."""

    ROWS = [
        Report.ROW | {"id": "half", "ours": 1.0},
        Report.ROW | {"id": "same", "ours": 2.0, "verdict": "reproduced", "variants": {}},
        Report.ROW | {"id": "far", "ours": 40.0, "verdict": "disagrees", "variants": {}},
        Report.ROW
        | {
            "id": "loss",
            "ours": -2.0,
            "aim": {"value": -2, "low": -3, "high": -1},
            "verdict": "reproduced",
            "variants": {},
        },
        Report.ROW | {"id": "negative", "aim": {"value": -2, "low": -3, "high": -1}},
        Report.ROW | {"id": "none", "ours": None, "verdict": "not measured"},
    ]

    def test_marks_and_bands(self):
        root = xml.etree.ElementTree.fromstring(picture.svg("A <paper>", self.ROWS))
        space = "{http://www.w3.org/2000/svg}"
        words = [t.text for t in root.iter(space + "text")]
        self.assertEqual(
            [w for w in words if w in ("half", "same", "far", "loss", "negative", "none")],
            ["half", "same", "far", "loss"],
        )
        self.assertIn("20", words, "a mark at the end of the axis has its number")
        self.assertIn(
            "ours / the paper's value (2 claims without one: the two lie on different sides of 0, or one is 0)", words
        )
        self.assertIn("A <paper>", words)
        middle = picture.LABEL + picture.WIDTH / 2
        circles = [float(c.get("cx")) for c in root.iter(space + "circle")]
        self.assertAlmostEqual(
            circles[1], middle, 1, "of the claim that is the paper's value; the first is the legend's"
        )
        bands = [(float(r.get("x")), float(r.get("width"))) for r in root.iter(space + "rect") if r.get("x")][1:]
        self.assertAlmostEqual(bands[0][0], middle + picture.WIDTH * math.log(0.9) / math.log(64), 1)
        self.assertAlmostEqual(circles[2], middle, 1, "a loss as large as the paper's")
        self.assertAlmostEqual(bands[3][0], middle + picture.WIDTH * math.log(0.5) / math.log(64), 1)
        self.assertAlmostEqual(bands[3][1], picture.WIDTH * math.log(3) / math.log(64), 1)
        wrong = [line for line in root.iter(space + "line") if line.get("stroke-width") == "1.5"][1:]
        self.assertEqual(len(wrong), 1)
        self.assertAlmostEqual(float(wrong[0].get("x1")), middle + picture.WIDTH * math.log(0.25) / math.log(64), 1)

    def test_every_kind_of_claim_states_its_aim(self):
        self.assertEqual(Near(2, 0.1).aim(), {"value": 2, "low": 1.8, "high": 2.2})
        self.assertEqual(Near(5, 2, None, absolute=True).aim(), {"value": 5, "low": 3, "high": 7})
        self.assertEqual(Between(1.4, None, 1).aim()["value"], 1.4)
        self.assertEqual(Between(None, 0.9, 1).aim()["value"], 0.9)
        self.assertEqual((Between(1.2, 3, 1).aim()["value"], Between(0.2, 0.8, 1).aim()["value"]), (1.2, 0.8))

    def test_pictures_are_placed_next_to_the_tables(self):
        result = {
            "date": "2026-11-26",
            "commit": "abc",
            "command": "run",
            "quick": False,
            "traces": "the public ones",
            "papers": {"p": "Paper"},
            "rows": [Report.ROW],
        }
        with tempfile.TemporaryDirectory() as folder:
            report.pictures([result], pathlib.Path(folder) / "papers")
            self.assertIn("](papers/p.svg)", report.markdown([result]))
            self.assertTrue((pathlib.Path(folder) / "papers/p.svg").is_file())


if __name__ == "__main__":
    unittest.main()
