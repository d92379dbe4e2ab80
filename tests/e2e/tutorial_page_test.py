"""The runner of pages (tutorial_page.py), on small pages."""

import pathlib
import tempfile
import unittest

from tutorial_page import PageRun, StalePage, first_difference


class TutorialPage(unittest.TestCase):
    def page(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        page = pathlib.Path(folder.name) / "page.md"
        page.write_text(text)
        return PageRun(page)

    def assert_stale(self, text, *parts):
        with self.assertRaises(StalePage) as failure:
            self.page(text).run()
        for part in parts:
            self.assertIn(part, str(failure.exception))

    def test_a_page_that_shows_what_is_printed_passes(self):
        self.page("```sh\necho one > f\n```\nand\n```sh\ncat f; echo aside >&2\n```\n\n```text\none\n```\n").run()

    def test_another_output_names_page_line_expected_and_got(self):
        self.assert_stale(
            "```sh\necho 1; echo 3\n```\n\n```text\n1\n2\n```\n", "page.md:7", "expected: 2", "got:      3"
        )

    def test_a_command_that_fails_names_its_status_and_error(self):
        self.assert_stale("\n```sh\ntrue\nls ./missing\n```\n", "page.md:3", "exit status 0", "2: ls:", "missing")

    def test_a_program_that_fails_names_its_error(self):
        self.assert_stale("```python\nraise ValueError('why')\n```\n", "page.md:2", "ValueError: why")

    def test_source_that_is_not_in_its_file_is_stale(self):
        link = "[f](../../src/base/step.h)\n"
        self.page(link + "```cpp\n#pragma once\n```\n").run()
        self.assert_stale(link + "```cpp\nint missing;\n```\n", "page.md:3", "int missing;", "not in src/base/step.h")

    def test_a_server_runs_until_the_end_of_the_page_on_a_free_port(self):
        run = self.page(
            "```sh server\necho ready on 127.0.0.1:8000; trap 'exit 0' INT; while true; do sleep 0.05; done\n```\n"
            "```text\nready on 127.0.0.1:8000\n```\n"
            '```sh\necho $((8001 == TACTUS_PORT + 1)) "127.0.0.1:$TACTUS_PORT"\n```\n'
            "```text\n1 127.0.0.1:8000\n```\n"
        )
        run.run()
        [(_, server)] = run.servers
        self.assertEqual(server.process.returncode, 0)

    def test_a_server_that_ends_early_shows_its_output(self):
        self.assert_stale("```sh server\necho error: taken\n```\n```text\nready\n```\n", "page.md:5", "error: taken")

    def test_a_server_that_fails_at_its_end_is_stale(self):
        self.assert_stale(
            "```sh server\ntrap 'exit 3' INT; echo ready; while true; do sleep 0.05; done\n```\n```text\nready\n```\n",
            "page.md:2",
            "exit status 3",
        )

    def test_three_dots_stand_for_lines_or_for_a_part_of_one(self):
        printed = ["a", "b", "took 3 s", "c"]
        for expected in (
            ["...", "c"],
            ["a", "...", "took ... s", "c"],
            ["a", "..."],
            ["...", "b", "...", "c"],
            printed,
        ):
            self.assertIsNone(first_difference(expected, printed), expected)
        self.assertEqual(first_difference(["a", "c"], printed), (1, "c", "b"))
        self.assertEqual(first_difference(["...", "took ... min", "c"], printed), (1, "took ... min", "took 3 s"))
        self.assertEqual(first_difference(["a", "b"], printed)[2], "took 3 s")
        self.assertEqual(first_difference([*printed, "d"], printed)[1:], ("d", "(the end of the output)"))
        self.assertIsNone(first_difference(["a", "b"], printed, more_may_follow=True))


if __name__ == "__main__":
    unittest.main()
