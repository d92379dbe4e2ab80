#!/usr/bin/env python3
"""The lint rules find what they claim to find: each rule is tested with a line that breaks it and one that does not."""

import importlib.metadata
import importlib.util
import pathlib
import shutil
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lint, shared_files = load("lint"), load("shared_files")


class Rules(unittest.TestCase):
    def test_clock(self):
        self.assertTrue(lint.CLOCK.search("auto t = std::chrono::steady_clock::now();"))
        self.assertTrue(lint.CLOCK.search("time(nullptr)"))
        self.assertFalse(lint.CLOCK.search("clock.NowNs(); step_time(3);"))

    def test_models_page(self):
        page = lint.models_page.page()
        for row in (
            "| mixtral | Mixtral: ",
            "`gguf-qwen3-moe` |",
            "| qwen3_moe | `qwen3-30b-a3b`, ",
            "| opt | `do_layer_norm_before` | is false",
        ):
            self.assertIn(row, page)

    def test_messages_page_finds_whole_messages(self):
        source = """
constexpr int kMost = 1'000;
Status Bad(const std::string& path, const std::string& what) {
  return DataLoss(fmt::format("{}: {}", path, what));
}
Status F() {
  // InvalidArgument("a comment")
  if (a) return InvalidArgument("--n " + std::to_string(n) + (big ? " is large" : " is small") + "; give 2", "n");
  if (b) return Status(StatusCode::kTooLarge, fmt::format("{0} of {1}: \\"{0}\\" {{}}", x.size(), kMost));
  if (c) return Bad(file, "it is empty");
  return Internal(status.message());
}
"""
        self.assertEqual(
            [(kind, message) for _, kind, message in lint.messages_page.messages_of(source, "cli/a.cc")],
            [
                ("invalid", "--n {n}[ is large |  is small]; give 2"),
                ("too large", '{number of x} of 1,000: "{number of x}" {}'),
                ("damaged", "{file}: it is empty"),
            ],
        )

    def test_python_page_reads_sections_of_docstrings(self):
        text, sections = lint.python_page.parsed("Does x.\n\nArgs:\n    a: one\n        more.\n    b: two.\n")
        self.assertEqual(
            (text, lint.python_page.entries(sections["Args"])), ("Does x.", [("a", "one more."), ("b", "two.")])
        )

    def test_models_page_finds_refusals(self):
        text = 'constexpr FieldKey kA{"a.b"}; const FieldKey c{"c"}, d{nullptr, "d"};'
        calls = 'f.Refuse(kA, "is odd"); f.Refuse({"e", "g"}, "is 1"); f.Refuse(c, "has " + n); f.Refuse(d, "is 2");'
        self.assertEqual(lint.models_page.refusals(text + calls), [("a.b", "is odd"), ("e", "is 1")])

    def test_who_names_the_machines_clock(self):
        self.assertTrue(lint.NAMES_SYSTEM_CLOCK.match("cli/sim.cc"))
        for path in (
            "sim/simulator/simulator.cc",
            "engine/step_times/profile_model.cc",
            "exec/cpu_executor.cc",
            "serve/api_server.cc",
            "kernels/thread_pool.cc",
            "model/loader.cc",
        ):
            self.assertFalse(lint.NAMES_SYSTEM_CLOCK.match(path), path)

    def test_backend(self):
        self.assertTrue(lint.BACKEND.search('#include "compute/exec/cpu_executor.h"'))
        self.assertTrue(lint.BACKEND.search('#include "compute/exec/step_runner.h"'))
        self.assertFalse(lint.BACKEND.search('#include "compute/exec/make_backend.h"'))

    def test_random(self):
        self.assertTrue(lint.RANDOM.search("std::mt19937 g;"))
        self.assertFalse(lint.RANDOM.search("Rng rng(7);"))

    def test_prefetch(self):
        self.assertTrue(lint.PREFETCH.search("void WillRead() { __builtin_prefetch(&a, 1); }"))
        self.assertFalse(lint.PREFETCH.search("Prefetch(&a);"))

    def test_sockets(self):
        self.assertTrue(lint.SOCKETS.match("#include <boost/asio/ip/tcp.hpp>"))
        self.assertTrue(lint.SOCKETS.match("# include <sys/socket.h>"))
        self.assertFalse(lint.SOCKETS.match('#include "api/answer.h"'))
        self.assertFalse(lint.SOCKETS.match("#include <sys/mman.h>"))

    def test_a_conversation_knows_no_transport(self):
        for room in ("api", "offline/plan", "offline/job", "offline/server"):
            self.assertFalse({"http", "serve"} & set(lint.ROOMS[room]))

    def test_co_await_traps(self):
        def hits(code):
            return [m for trap, m in lint.CO_AWAIT_TRAPS if trap.search(code)]

        self.assertTrue(hits("co_await f([&x] { return 1; });"))
        self.assertTrue(hits("co_await f(a ? b : c);"))
        self.assertTrue(hits("co_await f(Options{1, 2});"))
        self.assertFalse(hits("co_await stream.async_read(buffer, asio::use_awaitable);"))

    def test_policy_names(self):
        named = lint.policy_names(
            '// of rows\nTACTUS_CHOICE(Order, "fcfs", MakeFcfs, "the \'rank\'")\nTACTUS_PRESET("no-preempt",'
            ' "fcfs",\nTACTUS_CHOICE(Budget, "none", Make, "")\n'
        )
        for line in ('if (c.order == "fcfs") {', 'return "no-preempt" != preset;', 'learns = name == "history";'):
            self.assertTrue(named.search(line), line)
        for line in ('c.order = "fcfs";', 'x.step_limit == "none"', 'name == "rank"', 'Find("fcfs")'):
            self.assertFalse(named.search(line), line)

    def test_layers_have_no_cycle(self):
        seen = set()

        def visit(room, path):
            self.assertNotIn(room, path, f"cycle through {room}")
            if room in seen:
                return
            for below in lint.ROOMS[room]:
                visit(below, path + [room])
            seen.add(room)

        for room in lint.ROOMS:
            visit(room, [])
        self.assertEqual(lint.ROOMS["core/sched"], ["core/interfaces"])

    def test_layers_are_read_by_district_and_room(self):
        text = "# Text.\nbase:\n  .:\nlow: base\n  a:\nhigh: base low\n  b: c low/a\n  c:\n  .: b\n"
        rooms, districts = lint.read_layers(text)
        self.assertEqual(rooms["high/b"], ["high/c", "low/a"])
        self.assertEqual(rooms["high"], ["high/b"])
        self.assertEqual(districts["high"], ["base", "low"])

    def test_a_permission_that_no_include_uses_is_named(self):
        used = {(room, below) for room, all_below in lint.ROOMS.items() for below in all_below}
        used |= {(room, "base") for room in lint.ROOMS}
        self.assertEqual(lint.faults_of_layers(used), [])
        self.assertEqual(
            lint.faults_of_layers(used - {("core/kv", "core/interfaces")}),
            ["core/kv may include core/interfaces and does not: take the permission away"],
        )

    def test_a_room_may_include_what_its_line_names(self):
        self.assertTrue(lint.may_include("core/loop", "core/kv"))
        self.assertTrue(lint.may_include("core/kv", "base"))
        self.assertFalse(lint.may_include("core/kv", "core/loop"))
        self.assertEqual(lint.room_of("core/kv/kv_cache.h"), "core/kv")
        self.assertEqual(lint.room_of("serve/moves/outgoing.h"), "serve/moves")
        self.assertIsNone(lint.room_of("none/a.h"))

    def test_plain_words_are_counted_in_comments_and_strings(self):
        def hits(name, text):
            return lint.plain_words.count(name, text)[0]

        self.assertEqual(hits("a.cc", "// Whoever waits is told\n// of its own turn.\nint told;\n"), 3)
        self.assertEqual(hits("a.cc", "// Of a prompt that waits.\nint a;  // Who asks\n"), 2)
        self.assertEqual(hits("a.cc", '// Counts "Of".\nf("so many tokens");\n'), 1)
        self.assertEqual(hits("a.py", '"""Nobody."""\n# Of all.\ntold = 1\n'), 2)
        self.assertEqual(hits("a.md", "so\nlong as `told`, told"), 3)
        self.assertEqual(hits("CMakeLists.txt", "set(told 1)  # told\n"), 1)

    def test_doc_paths(self):
        text = (
            "See `src/base/rng.h`,\n`src/compute/kernels/` and `tests/lint/*.py`, "
            "not `src/none.cc` or `build/release/tactus`."
        )
        self.assertEqual(lint.dangling(text), [(2, "src/none.cc")])

    def test_files_named_in_comments_exist(self):
        text = (
            "// As in step.h, base/step.h and packed/tile.h (ggml-common.h); not in gone.h.\n"
            'Open("other.py");  // see base/gone.h, order/*.cc and http://a.b/c.py\n'
            "int gone;  // src/base/step.h.in, <linux/futex.h>\n"
        )
        folder = pathlib.Path("src/compute/kernels/packed/avx2")
        self.assertEqual(
            lint.dangling_in_comments(folder, text, {"step.h"}),
            [(1, "gone.h"), (2, "base/gone.h"), (2, "order/*.cc")],
        )
        mirror = pathlib.Path("tests/core/sched")
        self.assertEqual(lint.dangling_in_comments(mirror, "// order/*.cc, packed/*.h", set()), [(1, "packed/*.h")])

    def test_doc_links(self):
        page = lint.ROOT / "docs/HACKING.md"
        text = (
            "# One `two`: three\n[a](HACKING.md) [b](../README.md#two-commands) [c](#one-two-three)"
            " [d](https://a.example/b)\n[e](none.md) [f](../README.md#none)\n[g](#none)\n"
        )
        self.assertEqual(lint.broken_links(page, text), [(3, "none.md"), (3, "../README.md#none"), (4, "#none")])

    def test_doc_names(self):
        text = (
            "`None::Before`\n## Where is ...\n| a | `One::Two`, `Two` (`src/a.cc`) |\n| b | `One::Three`, `Four`"
            " |\n\n## Next\n`Five`\n"
        )
        self.assertEqual(lint.unknown_names(text, ["int One::Two() {", "Three();"]), [(4, "One::Three"), (4, "Four")])
        called = ["class One::Two {\n  void Go() { other_.Run(); }\n  void Stay();\n"]
        self.assertTrue(lint.is_defined("One::Two::Stay", called[0]))
        self.assertFalse(lint.is_defined("One::Two::Run", called[0]), "it is called there, of something else")

    def test_doc_options(self):
        code = 'v.Field("rate", rate,\n    {});\nv.Field(\n    "rate-limit", limit, {});\nline.Field("json", json);\n'
        self.assertEqual(lint.unnamed_options(code, "`--rate` and --rates"), [(3, "rate-limit")])
        self.assertEqual(lint.unnamed_options(code, "`--rate-limit` alone"), [(1, "rate")])

    def test_doc_width(self):
        words = "word " * 30
        wide = len(words)
        self.assertEqual(lint.too_wide(f"short\n{words}\n- {words}\n"), [(2, wide), (3, wide + 2)])
        self.assertEqual(
            lint.too_wide(f"| {words}|\n# {words}\n    {words}\n```\n{words}\n```\n[a]: {words}\n{'x' * 130}\n"), []
        )

    def test_executable(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("started", "not_started", "imported")]
            for path, text, mode in zip(paths, ("#!/bin/sh\n", "#!/bin/sh\n", "import os\n"), (0o755, 0o644, 0o644)):
                path.write_text(text)
                path.chmod(mode)
            self.assertEqual(lint.not_executable(paths), [paths[1]])

    def test_format(self):
        program = lint.formatter()
        if program is None:
            self.skipTest("no clang-format 19; scripts/test.sh installs it")
        # Outside the repository, because lint itself may run at the same time and would find these files.
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(lint.ROOT / ".clang-format", folder)
            good, bad = pathlib.Path(folder) / "good.cc", pathlib.Path(folder) / "bad.cc"
            good.write_text("int F() {\n  return 1;\n}\n")
            bad.write_text("int F() {\n  return 1;\n}\nint  G();\n")
            self.assertEqual(lint.unformatted([good, bad], program), [(bad, 4)])

    def test_comments_are_not_code(self):
        self.assertNotIn("steady_clock", lint.strip_comments('// steady_clock\n"steady_clock" /* steady_clock */'))

    def test_a_file_that_two_packages_carry_with_different_contents_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, digest in (("one", "sha256=aa"), ("two", "sha256=bb"), ("three", "sha256=aa")):
                info = pathlib.Path(folder, f"{name}-1.dist-info")
                info.mkdir()
                (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
                (info / "RECORD").write_text(
                    f"common/same.py,sha256=cc,1\ncommon/m.py,{digest},1\n{name}.py,{digest},1\n"
                )
            found = shared_files.shared_files(importlib.metadata.distributions(path=[folder]))
        self.assertEqual(found, {"common/m.py": ["one", "three", "two"]})


if __name__ == "__main__":
    unittest.main()
