#!/usr/bin/env python3
"""bench/pages.py: links of tables to commands, changed numbers, updated pages, errors."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import pages  # noqa: E402

PRINTS = """#!/bin/sh
echo "$@" >> {log}
cat {printed}
"""
PAGE = """# A page

Text that stays.

<!-- table: bench/script.sh --setting a -->
| | 1/s | kept |
|---|---|---|
| sarathi-serve | 0.069 (0.060 to 0.070) | 91 % |
| tactus | 1,093 | |

| other | table |
|---|---|
| that names | no command |
"""
PRINTED = """some line of text
| | 1/s | kept |
|---|---|---|
| sarathi-serve | 0.069 (0.060 to 0.070) | 91 % |
| tactus | 1,093 | |
"""


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench").mkdir()
        self.page, self.printed, self.log = self.root / "page.md", self.root / "printed", self.root / "log"
        self.script(PRINTS.format(log=self.log, printed=self.printed))
        self.page.write_text(PAGE)
        self.printed.write_text(PRINTED)
        patch = mock.patch.object(pages, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)

    def script(self, text):
        path = self.root / "bench/script.sh"
        path.write_text(text)
        path.chmod(0o755)

    def run_pages(self, *arguments):
        """Exit status and output."""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["pages.py", str(self.page), "--tactus", "/a/tactus", *arguments]):
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                try:
                    status = pages.main()
                except SystemExit as end:
                    status = end.code
        return status, said.getvalue()

    def test_unchanged_numbers_and_the_program_are_reported(self):
        status, said = self.run_pages("--also", "--jobs 1")
        self.assertEqual(status, 0, said)
        self.assertIn("2 of 2 rows printed, all within 1 %", said)
        self.assertEqual(self.log.read_text(), "/a/tactus --setting a --jobs 1\n")
        self.assertEqual(self.page.read_text(), PAGE)

    def test_a_moved_number_is_reported_with_old_new_and_difference(self):
        self.printed.write_text(PRINTED.replace("0.069", "0.103"))
        status, said = self.run_pages()
        self.assertEqual(status, 1)
        change = "0.069 (0.060 to 0.070) -> 0.103 (0.060 to 0.070) (+49.3 %)"
        self.assertIn(f"page.md:5: sarathi-serve | 1/s: {change}", said)
        self.assertEqual(self.page.read_text(), PAGE, "without --write the page stays")

    def test_within_the_tolerance_nothing_has_moved(self):
        self.printed.write_text(PRINTED.replace("1,093", "1,100"))
        self.assertEqual(self.run_pages()[0], 0)
        self.assertEqual(self.run_pages("--tolerance", "0.5")[0], 1)

    def test_cells(self):
        for old, new, change in [
            ("91 %", "91 %", None),
            ("0", "0.0", None),
            ("0", "1", "+inf %"),
            ("-2", "-1", "+50.0 %"),
            ("1,000", "900", "-10.0 %"),
            ("larry", "accelgen", "other text"),
            ("1.00 to 2.00", "1.00 to 1.00", "-50.0 %"),
            ("1", "1 of 5", "other text"),
            ("2e+04", "1e+04", "-50.0 %"),
        ]:
            self.assertEqual(pages.moved(old, new, 1), change, f"{old} -> {new}")

    def test_write_changes_only_the_moved_numbers(self):
        self.printed.write_text(PRINTED.replace("0.069", "0.103") + "| new row | 1 | 2 % |\n")
        self.assertEqual(self.run_pages("--write")[0], 1)
        self.assertEqual(self.page.read_text(), PAGE.replace("0.069", "0.103"))
        self.assertEqual(self.run_pages()[0], 0, "what was written stands")

    def test_rows_are_identified_by_as_many_cells_as_needed(self):
        table = "| setting | load | x |\n|---|---|---|\n| a | 1 | 5 |\n| a | 2 | 6 |\n"
        self.page.write_text("<!-- table: bench/script.sh -->\n" + table)
        self.printed.write_text("| setting | load | x |\n|---|---|---|\n| a | 2 | 7 |\n| a | 1 | 5 |\n")
        status, said = self.run_pages()
        self.assertEqual(status, 1)
        self.assertIn("a, 2 | x: 6 -> 7", said)
        self.assertNotIn("a, 1", said)

    def test_two_printed_rows_matching_one_row_of_the_page_are_refused(self):
        table = "| setting | load | x |\n|---|---|---|\n| a | 1 | 5 |\n| b | 1 | 6 |\n"
        self.page.write_text("<!-- table: bench/script.sh -->\n" + table)
        self.printed.write_text(table.replace("| b", "| a | 2 | 7 |\n| b"))
        status, said = self.run_pages("--write")
        self.assertEqual(status, 1)
        self.assertIn(
            "it prints 2 rows that begin with | a |, and the page has one: | a | 1 | 5 |; | a | 2 | 7 |", said
        )
        self.assertIn(table, self.page.read_text(), "the page stays")
        # Rows that are missing in the page may be alike; a page with both rows distinguishes them.
        self.printed.write_text(table + "| c | 1 | 8 |\n| c | 2 | 9 |\n")
        self.assertEqual(self.run_pages()[0], 0)
        both = table.replace("| b", "| a | 2 | 7 |\n| b")
        self.page.write_text("<!-- table: bench/script.sh -->\n" + both)
        self.printed.write_text(both)
        self.assertEqual(self.run_pages()[0], 0)

    def test_a_missing_row_counts_as_moved_unless_only_a_part_was_requested(self):
        self.printed.write_text(PRINTED.replace("| tactus", "| tactile"))
        status, said = self.run_pages()
        self.assertEqual(status, 1)
        self.assertIn("tactus: this row is not printed any more", said)
        self.assertEqual(self.run_pages("--narrow", "--only sarathi-serve")[0], 0)

    def test_no_table_with_that_header(self):
        self.printed.write_text(PRINTED.replace("1/s", "2/s"))
        status, said = self.run_pages("--write")
        self.assertEqual(status, 1)
        self.assertIn("prints no table with the header |  | 1/s | kept |; it prints: |  | 2/s | kept |", said)
        self.assertEqual(self.page.read_text(), PAGE)

    def test_tables_with_equal_headers_are_distinguished_by_title(self):
        self.printed.write_text(f"load 0.7\n{PRINTED[18:]}\nload 0.9\n\n{PRINTED[18:].replace('91', '95')}")
        status, said = self.run_pages()
        self.assertEqual(status, 1)
        self.assertIn("their titles: load 0.7; load 0.9", said)
        self.page.write_text(PAGE.replace("table:", 'table "load 0.9":'))
        self.assertIn("kept: 91 % -> 95 %", self.run_pages()[1])
        self.page.write_text(PAGE.replace("table:", 'table "load 0.7":'))
        self.assertEqual(self.run_pages()[0], 0)

    def test_a_command_of_several_lines_runs_once_for_all_its_tables(self):
        comment = "<!-- table: bench/script.sh\n  --setting a -->"
        self.page.write_text(PAGE.replace("<!-- table: bench/script.sh --setting a -->", comment) + "\n" + PAGE)
        self.assertEqual(self.run_pages()[0], 0)
        self.assertEqual(self.log.read_text(), "/a/tactus --setting a\n")

    def test_a_comment_in_a_sentence_links_nothing(self):
        self.page.write_text(PAGE + "\nAs `<!-- table: COMMAND -->` says.\n")
        self.assertEqual(self.run_pages()[0], 0)

    def test_commands_that_need_more_than_a_simulation_are_skipped(self):
        self.page.write_text(PAGE.replace("table:", "table, needs a GPU:"))
        status, said = self.run_pages()
        self.assertEqual(status, 0)
        self.assertIn("page.md:5: skipped, needs a GPU: bench/script.sh", said)
        self.assertFalse(self.log.exists())
        self.assertIn("2 of 2 rows printed", self.run_pages("--needing", "GPU")[1])

    def test_a_table_of_the_whole_is_not_compared_with_a_part(self):
        self.page.write_text(PAGE.replace("table:", "table, whole:"))
        self.printed.write_text(PRINTED.replace("91", "95"))
        status, said = self.run_pages("--write", "--narrow", "--only tactus")
        self.assertEqual(status, 0)
        self.assertIn("page.md:5: skipped, needs all that its command runs", said)
        self.assertFalse(self.log.exists())
        self.assertEqual(self.run_pages("--also", "--jobs 1")[0], 1)

    def test_faults_of_a_page_are_named_before_anything_runs(self):
        for text, why in [
            (PAGE.replace("-->\n", "-->\n\n"), "page.md:5: no table begins on the line after this comment"),
            (PAGE.replace("bench/script.sh --setting a", ""), "page.md:5: this comment names no command"),
            (PAGE.replace("script.sh", "gone.sh"), "page.md:5: there is no bench/gone.sh in this repository"),
            (PAGE.replace("table:", "table of"), "page.md:5: this comment is no '<!-- table: COMMAND -->'"),
            ("# Nothing\n", "page.md: no table names a command"),
        ]:
            self.page.write_text(text)
            status, said = self.run_pages()
            self.assertIn(why, str(status) + said)
            self.assertFalse(self.log.exists())

    def test_a_failed_command_is_not_an_unchanged_table(self):
        self.script("#!/bin/sh\nexit 3\n")
        status, said = self.run_pages("--write")
        self.assertEqual(status, 1)
        self.assertIn("page.md:5: bench/script.sh --setting a: exit status 3", said)
        self.assertEqual(self.page.read_text(), PAGE)

    def test_the_list_runs_nothing(self):
        status, said = self.run_pages("--list")
        self.assertEqual(status, 0)
        self.assertIn("1 of 1: bench/script.sh --setting a", said)
        self.assertFalse(self.log.exists())

    def test_wrong_arguments(self):
        status, said = self.run_pages("--tolerance", "-1")
        self.assertEqual(status, 2)
        self.assertIn("--tolerance -1: percent, at least 0", said)
        self.page.unlink()
        self.assertIn("no such page", self.run_pages()[1])

    def test_an_interrupt_stops_the_command_and_keeps_the_page(self):
        pid = self.root / "pid"
        self.script(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 100\n")
        starts = f"import pathlib, sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); import pages; "
        starts += f"pages.ROOT = pathlib.Path({str(self.root)!r}); sys.exit(pages.main())"
        run = subprocess.Popen(
            [sys.executable, "-B", "-c", starts, str(self.page), "--write"], stderr=subprocess.PIPE, text=True
        )
        while not pid.exists():
            self.assertIsNone(run.poll(), "it ended by itself")
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("interrupted", said)
        with self.assertRaises(ProcessLookupError, msg="the command still runs"):
            os.kill(int(pid.read_text()), 0)
        self.assertEqual(self.page.read_text(), PAGE)

    def test_an_interrupt_just_after_the_command_has_ended(self):
        with mock.patch.object(subprocess, "Popen") as popen, mock.patch.object(os, "killpg") as kill:
            popen.return_value.communicate.side_effect = KeyboardInterrupt
            kill.side_effect = ProcessLookupError
            status, said = self.run_pages("--write")
        self.assertEqual(status, 130, said)
        kill.assert_called_once_with(popen.return_value.pid, signal.SIGTERM)
        popen.return_value.wait.assert_called_once_with()
        self.assertEqual(self.page.read_text(), PAGE)


class Repository(unittest.TestCase):
    def test_links_of_the_pages_are_well_formed(self):
        links = []
        for page in sorted((ROOT / "docs/measurements").glob("*.md")):
            links += pages.links_of(page)
        self.assertGreater(len(links), 20, "the pages name few commands")
        for link in links:
            link.table.key_cells()


if __name__ == "__main__":
    unittest.main()
