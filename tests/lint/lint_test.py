#!/usr/bin/env python3
"""The lint rules find what they claim to find: each rule on a line that breaks it and on one that does not."""
import importlib.util
import pathlib
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("lint", HERE / "lint.py")
lint = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lint)


class Rules(unittest.TestCase):
    def test_clock(self):
        self.assertTrue(lint.CLOCK.search("auto t = std::chrono::steady_clock::now();"))
        self.assertTrue(lint.CLOCK.search("time(nullptr)"))
        self.assertFalse(lint.CLOCK.search("clock.NowNs(); step_time(3);"))
        self.assertTrue(lint.OWN_CLOCK.search("const TimeNs now = SystemClock().NowNs();"))
        self.assertFalse(lint.OWN_CLOCK.search("const TimeNs now = clock_.NowNs();"))

    def test_random(self):
        self.assertTrue(lint.RANDOM.search("std::mt19937 g;"))
        self.assertFalse(lint.RANDOM.search("Rng rng(7);"))

    def test_co_await_traps(self):
        def hits(code):
            return [m for trap, m in lint.CO_AWAIT_TRAPS if trap.search(code)]
        self.assertTrue(hits("co_await f([&x] { return 1; });"))
        self.assertTrue(hits("co_await f(a ? b : c);"))
        self.assertTrue(hits("co_await f(Options{1, 2});"))
        self.assertFalse(hits("co_await stream.async_read(buffer, asio::use_awaitable);"))

    def test_layers_have_no_cycle(self):
        order, seen = [], set()

        def visit(module, path):
            self.assertNotIn(module, path, f"cycle through {module}")
            if module in seen:
                return
            for below in lint.LAYERS[module] or []:
                visit(below, path + [module])
            seen.add(module)
            order.append(module)
        for module in lint.LAYERS:
            visit(module, [])
        self.assertEqual(lint.LAYERS["sched"], ["base"])

    def test_doc_paths(self):
        text = "See `src/base/rng.h`,\n`src/kernels/` and `tests/lint/*.py`, not `src/none.cc` or `build/release/tactus`."
        self.assertEqual(lint.dangling(text), [(2, "src/none.cc")])

    def test_format(self):
        program = lint.formatter()
        if program is None:
            self.skipTest("no clang-format 19; scripts/test.sh installs it")
        with tempfile.TemporaryDirectory(dir=HERE) as folder:   # below .clang-format
            good, bad = pathlib.Path(folder) / "good.cc", pathlib.Path(folder) / "bad.cc"
            good.write_text("int F() {\n  return 1;\n}\n")
            bad.write_text("int F() {\n  return 1;\n}\nint  G();\n")
            self.assertEqual(lint.unformatted([good, bad], program), [(bad, 4)])

    def test_comments_are_not_code(self):
        self.assertNotIn("steady_clock", lint.strip_comments('// steady_clock\n"steady_clock" /* steady_clock */'))


if __name__ == "__main__":
    unittest.main()
