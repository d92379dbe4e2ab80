"""Options of every command: --print-config reads back as the effective configuration, without secrets, and errors are
found in the order flags, output files, model, port."""

import json
import pathlib
import re
import subprocess
import tomllib
import unittest

from command_case import BINARY, Folder, tactus
from server_process import TakenPort

# Characters with a special meaning in TOML, a shell or a command line.
NASTY = 'it\'s a "path" \\ to/ü #=[1,2]{} %$HOME\t\'\'\'\n""" end'
LIST = ["a,b", NASTY, "-1", "{}", "[x]"]
SIM_PARTS = ("capacity", "sweep", "compare", "step")
ROUTE_PARTS = ("list", "add", "remove", "drain", "undrain")


def commands():
    """Every command with options, as a list of words."""
    names = re.findall(r"^  ([a-z]+) +\S", tactus("--help").stdout, re.MULTILINE)
    assert {"serve", "route", "sim", "report"} <= set(names), names
    epp = (pathlib.Path(BINARY).parent / "tactus-epp").exists()
    plain = [[name] for name in names if name not in ("version", "completion") and (name != "epp" or epp)]
    return plain + [["sim", part] for part in SIM_PARTS] + [["route", part] for part in ROUTE_PARTS]


class Flag:
    """An option as --describe-options has it: its values and its range."""

    def __init__(self, option, default):
        self.name, self.takes, self.default = option["name"], option["takes"], default
        self.flag = ("-" if len(self.name) == 1 else "--") + self.name
        self.least, self.most = option.get("least", -9e18), option.get("most", 9e18)

    def values(self):
        """Valid values that differ from the default."""
        if isinstance(self.default, bool):
            return ["off" if self.default else "on"]
        if isinstance(self.default, list):
            return LIST
        if isinstance(self.default, (int, float)):
            return [self.number()]
        if self.takes.startswith("<duration>"):
            return ["1234567us"]
        if self.takes == "<bytes>":
            return ["12345678"]
        choices = (
            [word for word in self.takes.split("|") if not word.startswith("<") and word != self.default]
            if "|" in self.takes
            else []
        )
        return (
            [choices[-1]] if choices else [self.default if "|" in self.takes or self.takes == self.default else NASTY]
        )

    def number(self):
        low, high = self.least, self.most
        if isinstance(self.default, int):
            return str(self.default + 1 if self.default + 1 <= high else self.default - 1)
        value = low + 0.1234567890123456 * (min(high, low + 1) - low) if low > -9e18 else -0.1234567890123456
        return repr(value)


class PrintedConfigurationTest(Folder):
    def printed(self, command, *args, **environment):
        done = tactus(*command, *args, "--print-config", **environment)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")
        return done.stdout

    def flags_of(self, command):
        defaults = tomllib.loads(self.printed(command))
        options = json.loads(tactus(*command, "--describe-options").stdout)["options"]
        of = {o["name"]: Flag(o, defaults[o["name"]]) for o in options if o["name"] in defaults}
        return of, defaults

    def test_every_command_reads_back_what_it_printed(self):
        config = self.folder / "c.toml"
        for command in commands():
            with self.subTest(command=" ".join(command)):
                flags, defaults = self.flags_of(command)
                self.assertTrue(flags)
                given = [word for f in flags.values() for value in f.values() for word in (f"{f.flag}={value}",)]
                given = [w if w.startswith("--") else w.replace("=", "", 1) for w in given]
                # A positional argument is a key too.
                keys = [key for key, value in defaults.items() if key not in flags and isinstance(value, str)]
                given += [f"it's {key}" for key in keys]
                printed = self.printed(command, *given)
                values = tomllib.loads(printed)
                for f in flags.values():
                    if isinstance(f.default, list):
                        self.assertEqual(values[f.name], LIST, f.flag)
                    elif f.values() == [NASTY]:
                        self.assertEqual(values[f.name], NASTY, f.flag)
                    elif f.values() != [f.default]:
                        self.assertNotEqual(values[f.name], f.default, f.flag)
                for key in keys:
                    self.assertEqual(values[key], f"it's {key}")
                config.write_text(printed)
                again = self.printed(command, "--config", config)
                self.assertEqual(again, printed)
                # The defaults as well.
                config.write_text(self.printed(command))
                self.assertEqual(self.printed(command, "--config", config), config.read_text())

    def test_environment_settings_are_printed_and_read_back(self):
        config = self.folder / "c.toml"
        for command in commands():
            with self.subTest(command=" ".join(command)):
                flags, _ = self.flags_of(command)
                environment = {"TACTUS_" + f.name.upper().replace("-", "_"): f.values()[-1] for f in flags.values()}
                printed = self.printed(command, **environment)
                values = tomllib.loads(printed)
                for f in flags.values():
                    if isinstance(f.default, list):
                        self.assertEqual(values[f.name], [LIST[-1]], f.flag)
                    elif f.values() != [f.default]:
                        self.assertNotEqual(values[f.name], f.default, f.flag)
                config.write_text(printed)
                self.assertEqual(self.printed(command, "--config", config), printed)

    def test_secrets_are_left_out_with_a_comment(self):
        config, seen = self.folder / "c.toml", set()
        for command in commands():
            secrets = re.findall(r"^# ([\w-]+): none is set$", self.printed(command), re.MULTILINE)
            for name in secrets:
                seen.add(name)
                with self.subTest(command=command, secret=name):
                    printed = self.printed(command, f"--{name}", "sesame")
                    self.assertNotIn("sesame", printed)
                    self.assertNotIn("***", printed)
                    variable = "TACTUS_" + name.upper().replace("-", "_")
                    self.assertIn(f"# {name}: is set, and left out here as a secret; set it with {variable}", printed)
                    config.write_text(printed)
                    # Reading it back gives no key at all, not an empty one.
                    self.assertIn(f"# {name}: none is set", self.printed(command, "--config", config))
                    self.assertEqual(self.printed(command, "--config", config, **{variable: "sesame"}), printed)
                    for args, environment in (([f"--{name}", "***"], {}), ([], {variable: "********"})):
                        done = tactus(*command, *args, "--print-config", **environment)
                        self.assertEqual((done.returncode, done.stdout), (2, ""))
                        self.assertIn("is the mask of a secret", done.stderr)
                    config.write_text(f'{name} = "***"\n')
                    done = tactus(*command, "--config", config)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("is the mask of a secret", done.stderr)
        self.assertLessEqual({"api-key", "admin-key", "replica-api-key"}, seen)
        self.assertIn("# api-key: 2 are set", self.printed(["serve"], "--api-key", "one", "--api-key", "two"))

    def test_values_that_no_file_can_hold_are_reported(self):
        done = subprocess.run(
            [BINARY.encode(), b"serve", b"--trace-out", b"a\xff", b"--print-config"], capture_output=True
        )
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"the value of 'trace-out' is not UTF-8", done.stderr)

    def test_a_file_may_name_the_model(self):
        config = self.folder / "c.toml"
        config.write_text(
            f"model = '{self.model}'\nload-format = 'dummy'\nkv-cache-memory = '64MiB'\nchat-template ="
            f" '{self.template}'\n"
        )
        done = tactus("run", "--config", config, "-p", "x", "--max-tokens", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = tactus("run", "no-such-model", "--config", config, "-p", "x")
        self.assertIn("no-such-model", done.stderr)


class OrderOfChecksTest(Folder):
    """Flags and output files, then the model, then the port: each of them wrong, and everything after it too."""

    def setUp(self):
        super().setUp()
        (self.folder / "file").write_text("a file")
        self.nowhere = self.folder / "file" / "x"  # below a file, which is not a folder
        self.input = self.folder / "in.jsonl"
        self.input.write_text(
            json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}) + "\n"
        )

    def check(self, args, code, expected, absent=()):
        done = tactus(*args, TACTUS_CACHE_DIR=str(self.folder / "cache"))
        self.assertEqual(done.returncode, code, f"{args}: {done.stderr}")
        self.assertIn(expected, done.stderr, args)
        for text in absent:
            self.assertNotIn(text, done.stderr, args)

    def test_serve_flags_files_model_port(self):
        older = self.folder / "older.run"
        older.write_text("an older run")
        with TakenPort() as port:
            wrong = [
                ("--scheduler", "nosuch"),
                ("--host", ""),
                ("--api-key-class", "x"),
                ("--tool-call-parser", "nosuch"),
                ("--kernels", "nosuch"),
                ("--speculation", "draft"),
                ("--kv-cache-dir", "x", "--prefix-caching", "off"),
                ("--quantization", "int8", "--dtype", "float32"),
                ("--max-body-total", "1"),
                ("--kv-secret-file", self.nowhere),
                ("--hand-over-to", "http://x"),
                ("--allowed-hosts", "a b"),
                ("--served-model-name", "a,,b"),
                ("--slo-class", "x:nonsense"),
                ("--chat-template", self.nowhere),
                ("--profile", self.nowhere),
                ("--api-key", "a b"),
            ]
            for flags in wrong:
                code = 1 if flags[-1] == self.nowhere and flags[0] != "--kv-secret-file" else 2
                self.check(
                    ["serve", "no-such-model", "--port", port, "--run-out", self.nowhere, *flags],
                    code,
                    flags[0].removeprefix("--") if "nosuch" in flags else flags[0],
                    ("no-such-model", "in use", "--run-out"),
                )
            for flags in (["--run-out", self.nowhere], ["--trace-out", self.nowhere], ["--files-dir", self.nowhere]):
                code = 2 if flags[0] == "--files-dir" else 1
                self.check(
                    ["serve", "no-such-model", "--port", port, *flags], code, flags[0], ("no-such-model", "in use")
                )
            for model, code in (("no-such-model", 1), (self.folder / "file", 2)):
                done = tactus(
                    "serve", model, "--port", port, "--run-out", older, TACTUS_CACHE_DIR=str(self.folder / "cache")
                )
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(
                    done.stderr, rf"\Atactus serve: .*{model}.*; also, port {port} on 127\.0\.0\.1 is in use.*\n\Z"
                )
            self.check(
                ["serve", *self.dummy, "--port", port, "--run-out", older],
                1,
                "in use",
                ("no-such-model", "memory plan"),
            )
            (self.model / "config.json").write_text("{")
            self.check(["serve", *self.dummy, "--port", port], 1, "config.json", ("memory plan",))
        self.check(["serve", "no-such-model", "--port", 0, "--run-out", older], 1, "no-such-model")
        self.assertEqual(older.read_text(), "an older run")

    def test_a_missing_library_of_a_device_is_named_once(self):
        done = tactus("serve", *self.dummy, "--device", "cuda", TACTUS_CUDA_LIBRARY=str(self.nowhere))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("TACTUS_CUDA_LIBRARY"), 1, done.stderr)

    def test_route_flags_and_files_before_the_port(self):
        with TakenPort() as port:
            for flags in (
                ["--balancer", "nosuch"],
                ["--host", ""],
                ["--max-body-total", "1"],
                ["--kv-secret-file", self.nowhere],
            ):
                self.check(
                    ["route", "--replicas", "http://127.0.0.1:1", "--port", port, "--run-out", self.nowhere, *flags],
                    2,
                    flags[0].removeprefix("--") if "nosuch" in flags else flags[0],
                    ("in use", "--run-out"),
                )
            self.check(
                ["route", "--replicas", "http://127.0.0.1:1", "--port", port, "--run-out", self.nowhere],
                1,
                "--run-out",
                ("in use",),
            )
            self.check(["route", "--replicas", "http://127.0.0.1:1", "--port", port], 1, "in use")

    def test_outputs_before_the_model(self):
        cases = [
            (["run", "-p", "x"], ["--trace-out"]),
            (["profile"], ["--output"]),
            (["batch", self.input], ["--output", "--errors", "--job", "--run-out", "--trace-out"]),
        ]
        for command, outputs in cases:
            base = command + (["-o", self.folder / "out.jsonl"] if command[0] == "batch" else [])
            for output in outputs:
                words = [w for w in base if output != "--output" or w not in ("-o", self.folder / "out.jsonl")]
                self.check([*words, "no-such-model", output, self.nowhere], 1, output, ("no-such-model",))
            self.check([*base, "no-such-model", "--scheduler", "nosuch"], 2, "nosuch", ("no-such-model",))
            self.check([*base, "no-such-model"], 1, "no-such-model")
        self.check(
            ["batch", self.nowhere, "no-such-model", "-o", self.folder / "out.jsonl"],
            1,
            str(self.nowhere),
            ("no-such-model",),
        )

    def test_outputs_before_the_run(self):
        load = ["--workload", "random:in=8,out=8", "--rate", "1", "--requests", "5"]
        sim = ["--model", "llama-3.1-8b", "--device", "h100", *load]
        with TakenPort(listening=False) as port:
            for output in ("--output", "--run-out"):
                self.check(
                    ["bench", "--url", f"http://127.0.0.1:{port}", *load, output, self.nowhere],
                    1,
                    output,
                    ("refused", "connect"),
                )
        for output in ("--output", "--run-out", "--steps-out", "--requests-out", "--trace-out"):
            done = tactus("sim", *sim, output, self.nowhere)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.assertIn(output, done.stderr)
            self.assertNotIn("requests/s", done.stdout + done.stderr)
        for args in (["explain", self.folder / "none.trace", "1"], ["report", self.folder / "none.run"]):
            self.check([*args, "--output", self.nowhere], 1, "--output", ("none.",))
        self.check(["report", self.folder / "none.run", "--pictures", self.nowhere], 1, "--pictures", ("none.run",))
        for args in (
            ["sim", "capacity", *sim[:4], "--workload", "chat", "--until", "p99(tbt)<=100ms"],
            ["sim", "sweep", *sim, "--vary", "rate=1,2"],
        ):
            for output in ("--csv", "--output"):
                done = tactus(*args, output, self.nowhere)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.assertIn(output, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
