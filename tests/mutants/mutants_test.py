"""Tests of the mutation tester: finding, rewriting, sampling, verdicts. Tests that need libclang are skipped if it is
not installed."""

import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/mutants"
sys.path.insert(0, str(TOOL))
sys.path += [
    str(path) for path in ROOT.glob(".venv-mutants/lib/python3*/site-packages")
]  # where scripts/test.sh mutants installs libclang

import baseline  # noqa: E402
import checks  # noqa: E402
import cpp_text  # noqa: E402
import equivalents  # noqa: E402
import kept_results  # noqa: E402
import operators  # noqa: E402
import process  # noqa: E402
import report  # noqa: E402
import sample  # noqa: E402
import scan  # noqa: E402
import tree  # noqa: E402
import trial  # noqa: E402
from mutation_site import ON, Site, number_occurrences, switch_numbers  # noqa: E402

try:
    import clang.cindex
    import find_sites

    clang.cindex.Index.create()
    NO_LIBCLANG = ""
except Exception as error:  # the package is missing, or the shared library that it loads
    NO_LIBCLANG = f"no libclang ({error}); scripts/test.sh mutants installs it into .venv-mutants"

SNIPPET = """// The header comment.
#include <algorithm>
#define LOG_IF(x) ((x) < 3)
constexpr int Fixed(int a) { return a < 7 ? a + 1 : 0; }
static_assert(Fixed(1) == 2);
struct Box { int size = 4; int room[8] = {}; };

int Clamp(int value, int low, int high) {
  if (value < low) return low;
  return std::min(value, high);
}

bool Ready(int steps, bool open) {
  const int limit[3] = {1, 2, 3};
  int seen = steps + 1;
  if (LOG_IF(seen + 2)) ++seen;
  if (seen > limit[2] &&
      open) {
    ++seen;
    seen -= 2;
  }
  switch (seen) {
    case 5: return false;
    default: break;
  }
  return seen == 9;
}

int main(int argc, char**) {
  return Clamp(argc + 4, 0, 10) * 10 + (Ready(argc, true) ? 1 : 0);
}
"""


def site(
    file="src/core/kv/a.cc",
    function="F",
    operator="boundary",
    begin=0,
    original="a < b",
    mutated="a <= b",
    occurrence=0,
    line=1,
):
    return Site(
        file,
        function,
        operator,
        begin,
        begin + len(original),
        line,
        original,
        mutated,
        f"({ON} ? {mutated} : {original})",
        occurrence,
    )


class Project(unittest.TestCase):
    """A folder with one source file, scanned and built like the project."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.file = self.root / "src/core/kv/snippet.cc"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(SNIPPET)

    def find(self):
        if NO_LIBCLANG:
            self.skipTest(NO_LIBCLANG)
        sites, files = find_sites.sites_of(self.root, ["-std=c++20"], self.file)
        self.assertEqual(files, ["src/core/kv/snippet.cc"])
        return number_occurrences(sites)

    def compile(self, text):
        source = self.root / "mutated.cc"
        source.write_text(text)
        program = self.root / "program"
        subprocess.run(
            [
                "c++",
                "-std=c++20",
                "-O0",
                "-Wno-unused",
                str(source),
                str(TOOL / "runtime/mutant_switch.cc"),
                "-o",
                str(program),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        return program


class Finding(Project):
    def test_every_operator_finds_its_place(self):
        found = {(s.operator, s.original) for s in self.find()}
        for expected in [
            ("boundary", "value < low"),
            ("early_exit", "value < low"),
            ("condition", "value < low"),
            ("min_max", "std::min(value, high)"),
            ("arithmetic", "steps + 1"),
            ("constant", "1"),
            ("equality", "seen == 9"),
            ("logical", "seen > limit[2] && open"),
            ("statement", "++seen;"),
            ("assignment", "seen -= 2"),
            ("bool", "false"),
            ("return", "seen == 9"),
            ("bool", "true"),
        ]:
            self.assertIn(expected, found)

    def test_nothing_is_found_where_a_constant_must_stand(self):
        sites = self.find()
        self.assertFalse(
            [s for s in sites if s.function in ("Fixed", "Box")], "constexpr function or member initialiser"
        )
        lines = SNIPPET.splitlines()
        for s in sites:
            if "LOG_IF" in lines[s.line - 1]:
                self.assertEqual((s.operator, s.original), ("statement", "++seen;"), "a macro's argument")
            self.assertFalse(s.original == "5", "a case label")
            self.assertFalse(s.original == "3" and "limit" in lines[s.line - 1], "an array bound")

    def test_every_mutant_compiles_and_changes_only_itself(self):
        sites = self.find()
        numbers = switch_numbers(sites)
        plain = subprocess.run([self.compile(SNIPPET)]).returncode
        left, noticed = sites, 0
        while left:  # sites that share code need separate programs
            chosen = sample.draw(left, 1, len(left), len(left))
            left = [s for s in left if s not in chosen]
            text = tree.rewrite(SNIPPET, chosen, numbers, TOOL / "runtime/mutant_switch.h")
            self.assertEqual(text.count("\n"), SNIPPET.count("\n") + 2, "a line's number changed")
            program = self.compile(text)
            self.assertEqual(subprocess.run([program]).returncode, plain)
            noticed += sum(
                subprocess.run([program], env={"MUTANT": str(numbers[s.key])}).returncode != plain for s in chosen
            )
        self.assertGreater(noticed, len(sites) // 4)

    def test_reached_sites_are_recorded(self):
        sites = self.find()
        numbers = switch_numbers(sites)
        clamp = next(s for s in sites if s.operator == "condition" and s.function == "Clamp")
        bump = next(s for s in sites if s.original == "++seen;")
        program = self.compile(tree.rewrite(SNIPPET, [clamp, bump], numbers, TOOL / "runtime/mutant_switch.h"))
        coverage = self.root / "reached"
        baseline._make(coverage)
        limit = (100, 100)  # a test may start a program that cannot make large files
        subprocess.run(
            [program],
            env={"MUTANT_COVERAGE": str(coverage)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        self.assertEqual(baseline._numbers(coverage), {numbers[clamp.key]})

    def test_a_shifted_line_keeps_its_identity(self):
        before = {s.key for s in self.find()}
        self.file.write_text("// Another line.\n\n" + SNIPPET)
        self.assertEqual({s.key for s in self.find()}, before)


class Text(unittest.TestCase):
    def test_comments_and_literals_are_blank(self):
        text = 'a = "x < y"; // b < c\nd = R"(e < f)";/* g\n */ h = \'<\'; n = 1\'000;'
        blanked = cpp_text.blank(text)
        self.assertEqual(len(blanked), len(text))
        self.assertEqual(blanked.count("\n"), text.count("\n"))
        self.assertNotIn("<", blanked)
        self.assertIn("1'000", blanked)

    def test_macro_calls_end_at_their_parenthesis(self):
        blanked = cpp_text.blank("if (a) TACTUS_CHECK(b < (c + 1)); d < e;\n#define X 3\n")
        ranges = [blanked[first:last] for first, last in cpp_text.macro_ranges(blanked)]
        self.assertIn("TACTUS_CHECK(b < (c + 1))", ranges)
        self.assertIn("#define X 3", ranges)


class Operators(unittest.TestCase):
    def test_integers(self):
        self.assertEqual(operators.off_by_one("7u"), ("8u", f"({ON} ? 8u : 7u)"))
        self.assertEqual(operators.off_by_one("0xFF")[0], "0x100")
        self.assertEqual(operators.off_by_one("1'000")[0], "1001")
        self.assertIsNone(operators.off_by_one("0644"), "a file mode")
        self.assertIsNone(operators.off_by_one("1.5"))

    def test_statements_without_effect_stay(self):
        self.assertIsNone(operators.leave_out("rows.reserve(n)"))
        self.assertIsNone(operators.leave_out("(void)unused"))
        self.assertEqual(
            operators.leave_out("rows.push_back(reserve(n))")[1], f"{{ if (!{ON}) rows.push_back(reserve(n)); }}"
        )


class Sampling(unittest.TestCase):
    def sites(self):
        return number_occurrences(
            [
                site(f"src/{module}/{file}.cc", f"F{i}", operator, begin=100 * i)
                for module, count in (("kv", 40), ("obs", 5), ("text", 200))
                for file in "ab"
                for i in range(count)
                for operator in ("boundary", "constant")
            ]
        )

    def test_the_same_seed_draws_the_same(self):
        sites = self.sites()
        self.assertEqual(sample.draw(sites, 1, 8, 60), sample.draw(list(reversed(sites)), 1, 8, 60))
        self.assertNotEqual(sample.draw(sites, 1, 8, 60), sample.draw(sites, 2, 8, 60))

    def test_every_module_and_operator_has_its_part(self):
        drawn = sample.draw(self.sites(), 1, 8, 60)
        count = {m: sum(s.module == m for s in drawn) for m in ("kv", "obs", "text")}
        self.assertGreaterEqual(min(count.values()), 8)
        self.assertGreater(count["text"], count["kv"])
        self.assertEqual(len({s.operator for s in drawn}), 2)

    def test_drawn_mutants_do_not_share_code(self):
        sites = number_occurrences([site(begin=0), site(begin=2, operator="constant"), site(begin=50)])
        self.assertEqual(len(sample.draw(sites, 1, 8, 8)), 2)

    def test_excluded_lines_are_not_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src/core/kv").mkdir(parents=True)
            (root / "src/core/kv/a.cc").write_text("  if (a < b) return;\n")
            self.assertEqual(sample.without_excluded([site()], {"src/core/kv/a.cc": {"if (a < b) return;"}}, root), [])
            self.assertEqual(len(sample.without_excluded([site()], {"src/core/kv/a.cc": {"if (c)"}}, root)), 1)

    def test_the_list_of_excluded_lines_fits_the_sources(self):
        for file, lines in sample.excluded_lines(TOOL / "excluded.toml").items():
            self.assertTrue((ROOT / file).exists(), f"{file} of excluded.toml is gone")
            self.assertTrue(lines)


class Judging(unittest.TestCase):
    def test_verdicts(self):
        def ended(code, timed_out=False):
            return process.Ended(code, timed_out, 1.0, "")

        self.assertEqual(trial.verdict(ended(0), 77), "")
        self.assertEqual(trial.verdict(ended(77), 77), "", "a skipped test detects nothing")
        self.assertEqual(trial.verdict(ended(1), 77), "failed with status 1")
        self.assertEqual(trial.verdict(ended(-11), None), "crashed with signal 11")
        self.assertEqual(trial.verdict(ended(-9, True), None), "timed out")

    def test_cases_of_a_program(self):
        listed = "Running main() from gmock\nKv.\n  Holds\nDepth/Kv.  # TypeParam\n  Agrees/0  # GetParam() = 4\n"
        self.assertEqual(checks.cases(listed), ["Kv.Holds", "Depth/Kv.Agrees/0"])

    def test_a_program_whose_cases_are_tests_of_ctest_is_one_program(self):
        build = pathlib.Path("/b")
        folder = {"name": "WORKING_DIRECTORY", "value": "/b/tests/core/kv"}
        whole = [
            {"name": "kv_test", "command": ["/b/tests/core/kv/kv_test", "--gtest_brief=1"], "properties": [folder]},
            {"name": "not_built"},
            {
                "name": "e2e",
                "command": ["python3", "run.py"],
                "properties": [{"name": "SKIP_RETURN_CODE", "value": 77}],
            },
        ]
        single = [
            {
                "name": f"kv_test.Kv.{case}",
                "command": ["/b/tests/core/kv/kv_test", f"--gtest_filter=Kv.{case}", "--gtest_also_run_disabled_tests"],
                "properties": [folder],
            }
            for case in ("A", "B")
        ]
        kv = checks.Program("kv_test", ("/b/tests/core/kv/kv_test",), "core_kv", True, None)
        self.assertEqual(
            checks.listed_programs(whole, build), [kv, checks.Program("e2e", ("python3", "run.py"), "", False, 77)]
        )
        self.assertEqual(checks.listed_programs(single, build), [kv])

    def test_programs_of_the_room_or_its_district_come_first(self):
        folders = ["engine", "kv", "", "core_kv", "sim"]
        programs = [checks.Program(folder, (), folder, True, None) for folder in folders]

        def first(module):
            return [program.folder for program in programs if checks.rank(program, module, 1.0) == (0, 1.0)]

        self.assertEqual(first("core_kv"), ["core_kv"])
        self.assertEqual(first("sim_workload"), ["sim"])
        self.assertEqual(first("simulation"), [])

    def programs(self, script):
        return [
            checks.Program("far", ("bash", "-c", script), "engine", False, None),
            checks.Program("own", ("bash", "-c", script), "core_kv", False, None),
        ]

    def trials(self, script, reached=frozenset({7})):
        programs = self.programs(script)
        measured = [baseline.Measured(checks.Part(p.name), 0.1, reached) for p in programs]
        return trial.Trials(programs, measured, process.Runner())

    def test_the_modules_own_test_comes_first_and_the_first_that_fails_ends_the_trial(self):
        outcome = self.trials('[ "$MUTANT" != 7 ]').run(site(), 7)
        self.assertEqual((outcome.status, outcome.by, outcome.ran), (trial.KILLED, "own", []))

    def test_survivors_list_the_tests_that_ran(self):
        outcome = self.trials("exit 0").run(site(), 7)
        self.assertEqual((outcome.status, outcome.ran), (trial.SURVIVED, ["own", "far"]))

    def test_a_failure_that_does_not_repeat_notices_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            outcome = self.trials(f"mkdir {folder}/first || exit 0; exit 1").run(site(), 7)
        self.assertEqual(outcome.status, trial.SURVIVED)

    def test_unreached_mutants_are_not_run(self):
        outcome = self.trials("exit 1", frozenset({8})).run(site(), 7)
        self.assertEqual((outcome.status, outcome.ran), (trial.NOT_COVERED, []))

    def test_a_run_ends_at_its_limit_with_all_its_processes(self):
        runner = process.Runner()
        with tempfile.TemporaryDirectory() as folder:
            note = pathlib.Path(folder) / "pid"
            began = time.monotonic()
            ended = runner.run(["bash", "-c", f"sleep 60 & echo $! > {note}; wait"], 0.5, {})
            self.assertTrue(ended.timed_out)
            self.assertLess(time.monotonic() - began, 30)
            self.assertFalse(running(int(note.read_text())), "the child of a stopped test still runs")

    def test_a_run_that_allocates_without_end_ends(self):
        grow = "import sys\nsys.stdin.read()\nheld = []\nwhile True: held.append(bytearray(1 << 33))"
        ended = process.Runner().run([sys.executable, "-c", grow], 60, {})
        self.assertIn("MemoryError", ended.output)
        self.assertNotEqual(ended.code, 0)


def running(pid):
    for _ in range(100):  # a killed orphan is a zombie until init reaps it
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


class Reporting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "src/core/kv").mkdir(parents=True)
        (self.root / "src/core/kv/a.cc").write_text("a < b;\n" * 100)

    def test_survivors_show_their_line(self):
        self.assertEqual(site(begin=4).diff("if (a < b) return;\n"), ["- if (a < b) return;", "+ if (a <= b) return;"])
        self.assertIn("- a < b;", self.outcomes().markdown())

    def outcomes(self):
        sites = number_occurrences([site(function=f"F{i}", begin=i * 100) for i in range(4)])
        states = [trial.KILLED, trial.SURVIVED, trial.NOT_COVERED, trial.EQUIVALENT]
        return report.Report(
            self.root, sites, {s.key: trial.Outcome(s.key, state) for s, state in zip(sites, states)}, [], [], []
        )

    def test_equivalent_mutants_do_not_count(self):
        self.assertAlmostEqual(self.outcomes().total().rate, 1 / 3)
        self.assertIn("| core_kv | 4 | 1 | 1 | 1 | 1 | 33% |", self.outcomes().markdown())

    def test_too_few_noticed_is_a_shortfall(self):
        self.assertEqual(len(self.outcomes().shortfalls(0.8, 0.9)), 2)
        self.assertEqual(self.outcomes().shortfalls(0.3, 0.3), [])

    def test_an_entry_that_fits_no_site_is_stale(self):
        fits = equivalents.Equivalent("src/core/kv/a.cc", "F", "boundary", "a < b", 0, "why")
        gone = equivalents.Equivalent("src/core/kv/a.cc", "F", "boundary", "a < c", 0, "why")
        reasons, stale = equivalents.split([fits, gone], [site()])
        self.assertEqual(reasons, {site().key: "why"})
        self.assertEqual(stale, [gone])

    def test_the_list_of_equivalents_can_be_read(self):
        for entry in equivalents.read(TOOL / "equivalent.toml"):
            self.assertTrue((ROOT / entry.file).exists(), f"{entry.file} of equivalent.toml is gone")
            self.assertGreater(len(entry.reason), 20)

    def test_results_are_used_again_while_nothing_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src/core/kv").mkdir(parents=True)
            (root / "src/core/kv/a.cc").write_text("a < b;\n")
            killed, alive = site(), site(function="G")
            first = kept_results.KeptResults(root / "kept", root, "tools", "tests")
            first.put(killed, trial.Outcome(killed.key, trial.KILLED))
            first.put(alive, trial.Outcome(alive.key, trial.SURVIVED))
            self.assertEqual(first.get(alive, "changed").status, trial.SURVIVED)
            self.assertIsNone(first.get(alive, "all"))
            later = kept_results.KeptResults(root / "kept", root, "tools", "other tests")
            self.assertIsNone(later.get(killed, "changed"))
            self.assertEqual(later.get(killed, "survivors").status, trial.KILLED)
            self.assertIsNone(later.get(alive, "survivors"))


class Building(unittest.TestCase):
    def test_a_compilers_message_drops_the_site_of_its_line(self):
        here = tree.Tree(pathlib.Path("/p"), pathlib.Path("/p/build/mutants/src"))
        good, bad = site(line=3), site(function="G", line=9, begin=200)
        output = (
            "FAILED: src/core/kv/CMakeFiles/tactus_kv.dir/a.cc.o\nc++ ...\n"
            "/p/build/mutants/src/src/core/kv/a.cc:9:12: error: narrowing conversion\n[2/5] Building\n"
        )
        self.assertEqual(here.blame(output, [good, bad]), [bad])

    def test_a_failure_that_names_no_site_drops_those_of_its_file(self):
        here = tree.Tree(pathlib.Path("/p"), pathlib.Path("/p/build/mutants/src"))
        output = "FAILED: src/core/kv/CMakeFiles/tactus_kv.dir/a.cc.o\nc++ ...\ninternal compiler error\n"
        other = site(file="src/core/kv/b.cc")
        self.assertEqual(here.blame(output, [site(), other]), [site()])

    def test_a_file_that_moved_is_configured_for_before_sites_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (
                ("CMakeLists.txt", "one"),
                ("src/a.cc", "int A;"),
                ("tools/mutants/runtime/mutant_switch.cc", ""),
            ):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            here = tree.Tree(root, root / "build/mutants/src")
            (root / ".gitignore").write_text("/build/\n")
            commands = []

            def run(command):
                commands.append(command[0])
                (here.build / "build.ninja").touch()

            here._run = run

            def configured(change):
                commands.clear()
                change()
                here.prepare()
                return "cmake" in commands

            self.assertTrue(configured(lambda: None), "the first time")
            self.assertFalse(configured(lambda: None))
            self.assertFalse(
                configured(lambda: (root / "src/a.cc").write_text("int B;")),
                "what a file holds is not the build's business",
            )
            self.assertTrue(configured(lambda: (root / "src/a.cc").rename(root / "src/b.cc")))
            self.assertTrue((here.path / "src/b.cc").exists())
            self.assertFalse((here.path / "src/a.cc").exists())
            self.assertTrue(configured(lambda: (root / "CMakeLists.txt").write_text("two")))

    def test_units_of_instructions_that_the_machine_lacks_are_left_out(self):
        unit = scan.Unit(pathlib.Path("a.cc"), ("-mavx2", "-mamx-int8"))
        self.assertTrue(scan.runnable(unit, {"avx2", "amx_int8"}))
        self.assertFalse(scan.runnable(unit, {"avx2"}))


if __name__ == "__main__":
    unittest.main()
