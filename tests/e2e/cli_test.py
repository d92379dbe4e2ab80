"""The commands as scripts call them: results on stdout, exit statuses, errors that name the fault."""

import json
import os
import shutil
import subprocess
import threading
import unittest

from command_case import BINARY, ENVIRONMENT, TOKENIZER, Folder, tactus
from server_process import (
    TINY_CONFIG,
    TakenPort,
    default_model,
)


class ProfileTest(Folder):
    def test_a_run_too_short_for_a_fit_replaces_nothing(self):
        out = self.folder / "profile.csv"
        out.write_text("good\n")
        done = tactus("profile", *self.dummy, "-o", out, "--time-limit", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--time-limit is 0", done.stderr)
        done = tactus("profile", *self.dummy, "-o", out, "--time-limit", "1us")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"{out} is unchanged", done.stderr)
        self.assertEqual(out.read_text(), "good\n")
        self.assertIn("prefill_tokens,", (self.folder / "profile.csv.partial").read_text())
        done = tactus("profile", *self.dummy, "--time-limit", "1us", XDG_CACHE_HOME=str(self.folder / "cache"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual([p for p in (self.folder / "cache").rglob("*") if p.is_file()], [])

    def test_a_pipe_gets_no_progress_but_the_result(self):
        done = tactus("profile", *self.dummy, "-o", self.folder / "profile.csv", "--time-limit", "1s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"steps in {self.folder / 'profile.csv'}", done.stderr)
        self.assertNotIn(", round ", done.stderr)
        self.assertNotIn("\r", done.stderr)


class UsageTest(Folder):
    def test_wrong_usage_exits_2_and_names_the_error(self):
        for args, expected in [
            (["nosuch"], "unknown command 'nosuch'"),
            (["sweep"], "it is 'tactus sim sweep'"),
            (["serve", "--port", "99999"], "--port: 99999 is out of range"),
            (["serve", "--nosuch"], "--nosuch"),
            (["bench"], "--url is missing"),
            (["bench", "--url", "http://127.0.0.1:1"], "the workload has no arrival times"),
            (["models", "nosuch"], "is not list, inspect, rm or convert"),
            (["tokenize"], "MODEL is missing"),
            (["version", "now"], "unexpected argument 'now'"),
            (["models", "list", "x"], "unexpected argument 'x'"),
            (["template", "x.jinja"], "--messages"),
            (["bench", "--url", "ftp://x", "--rate", "1"], "ftp://x"),
            (
                "sim --steps-out /no/such/folder/x --model llama-3.1-8b --device h100 --workload chat --rate 1".split(),
                "--steps-out",
            ),
            (["sim", "--times", "model"], "--replay"),
            (["sim", "--replay", "x", "--step-noise", "10"], "--step-noise 10 applies to simulated steps only"),
            (["sim", "--replay", "x", "--steps-out", "x"], "--times model"),
            (["serve", "--host", ""], "--host is empty"),
            (["serve", "--port", "1", "--port", "2"], "--port is given twice"),
            (["run", "--raw"], "--raw"),
            (["run", "-p", "x", "--top-p", "0"], "--top-p"),
            (["run", "-p", "x", "--temperature", "-0.5"], "--temperature"),
            ([], "usage: tactus"),
            (["serve", "--scheduler", "oracle"], "exists only in simulation"),
            (["bench", "--url", "x", "--rate", "1", "--workload", "z"], "workload 'z'"),
            (["bench", "--url", "http://x", "--rate", "1", "--warmup", "soon"], "--warmup"),
        ]:
            with self.subTest(args=args):
                done = tactus(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_configuration_file_is_checked_by_types(self):
        config = self.folder / "c.toml"
        for text, expected in (
            ("port = [1, 2]", "'port' = [ 1, 2 ] is a list; it takes a whole number"),
            ("port = 99999999999999999999", "64 bits"),
            ("nosuch = 1", "unknown key 'nosuch'"),
        ):
            config.write_text("\n" + text + "\n")
            done = tactus("serve", "--config", config)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{config}: line 2", done.stderr)
            self.assertIn(expected, done.stderr)

    def test_a_printed_configuration_is_read_back_as_it_is(self):
        config = self.folder / "c.toml"
        for command in ("serve", "run", "sim", "bench", "profile"):
            printed = tactus(command, "--print-config").stdout
            config.write_text(printed)
            again = tactus(command, "--print-config", "--config", config)
            self.assertEqual((again.returncode, again.stdout), (0, printed), again.stderr)

    def test_help_version_and_configuration_exit_0(self):
        for args, expected in [
            (["--help"], "usage: tactus"),
            (["serve", "--help-all"], "sarathi-serve"),
            (["--version"], "tactus 0."),
            (["serve", "--print-config", "--max-num-seqs", "9"], "max-num-seqs = 9"),
        ]:
            done = tactus(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout)
        done = tactus("serve", "--print-config", TACTUS_MAX_NUM_SEQS="11", TACTUS_API_KEY="sesame")
        self.assertIn("max-num-seqs = 11", done.stdout)
        self.assertNotIn("sesame", done.stdout)

    def test_a_missing_or_broken_model_exits_1_and_is_named(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
        for command in (
            ["serve", broken, "--port", "0"],
            ["run", broken, "-p", "x"],
            ["models", "inspect", broken],
            ["tokenize", broken, "x"],
        ):
            done = tactus(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("broken.gguf", done.stderr)
        done = tactus("run", "no-such-model", "-p", "x", TACTUS_CACHE_DIR=str(self.folder / "empty"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-model", done.stderr)
        done = tactus("serve", "--port", "0", TACTUS_CACHE_DIR=str(self.folder / "empty"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("scripts/", done.stderr)

    def test_too_large_models_are_refused_with_the_arithmetic(self):
        done = tactus("run", *self.dummy[:3], "--kv-cache-memory", "900GiB", "-p", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--kv-cache-memory", done.stderr)
        self.assertIn("900.00 GiB", done.stderr)


class NumericsTest(Folder):
    def test_dummy_weights_in_every_format_answer(self):
        for extra in (
            ["--quantization", "q8_0"],
            ["--quantization", "int8", "--activation-dtype", "int8"],
            ["--quantization", "int4", "--kv-cache-dtype", "int8"],
            ["--activation-dtype", "float32"],
            ["--dtype", "float32"],
            [],
        ):
            with self.subTest(extra=extra):
                done = tactus(
                    "run",
                    *self.dummy,
                    "--chat-template",
                    self.template,
                    "-p",
                    "x",
                    "--max-tokens",
                    "3",
                    "--temperature",
                    "0",
                    *extra,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)

    def test_contradictions_are_refused_with_the_way_out(self):
        for extra, expected in (
            (["--quantization", "int8", "--dtype", "float32"], "leave one of them out"),
            (["--activation-dtype", "int8"], "add --quantization"),
            (["--activation-dtype", "bfloat16", "--quantization", "int4"], "use auto, mixed, int16 or int8"),
            (["--quantization", "int5"], "'int5' is not one of: none, q8_0, int8, int4"),
        ):
            with self.subTest(extra=extra):
                done = tactus("run", *self.dummy, "--chat-template", self.template, "-p", "x", *extra)
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(expected, done.stderr)

    def test_inspect_plans_for_the_requested_numerics(self):
        def inspect(*extra):
            done = tactus("models", "inspect", self.model, "--json", *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        plain, small, exact = inspect(), inspect("--quantization", "int4"), inspect("--dtype", "float32")
        self.assertEqual(small["numerics"], "mixed int8 and int16 activations, KV bf16")
        weights = [report["memory_plan"]["weight_bytes"] for report in (small, plain, exact)]
        self.assertEqual(weights, sorted(weights))
        self.assertEqual(len(set(weights)), 3)


class ToolsTest(Folder):
    def test_template(self):
        messages = self.folder / "messages.json"
        messages.write_text(json.dumps([{"role": "user", "content": "Héllo"}]))
        done = tactus("template", self.template, "--messages", messages, "--add-generation-prompt")
        self.assertEqual((done.returncode, done.stdout), (0, "<user>Héllo\n<assistant>"), done.stderr)
        bad = self.folder / "bad.jinja"
        bad.write_text("{% for x in y %}")
        done = tactus("template", bad, "--messages", messages)
        self.assertEqual(done.returncode, 1)
        shutil.copy(TOKENIZER, self.model / "tokenizer.json")
        (self.model / "config.json").write_text(json.dumps(dict(TINY_CONFIG, vocab_size=1024)))
        done = tactus("template", self.model, "--messages", messages)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("has no chat template", done.stderr)

    def test_inspect(self):
        done = tactus("models", "inspect", self.model, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("llama", done.stdout)
        json.loads(done.stdout)

    def tokenizer_of(self, count):
        """A byte-level BPE tokeniser of `count` tokens next to the configuration."""
        names = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]]
        vocabulary = {name: i for i, name in enumerate(names + [f"<unused{i}>" for i in range(len(names), count)])}
        (self.model / "tokenizer.json").write_text(
            json.dumps(
                {
                    "version": "1.0",
                    "added_tokens": [],
                    "normalizer": None,
                    "post_processor": None,
                    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                    "decoder": {"type": "ByteLevel"},
                    "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
                }
            )
        )

    def test_inspect_refuses_what_a_start_refuses_and_shows_the_rest(self):
        self.tokenizer_of(512)
        self.assertEqual(tactus("models", "inspect", self.model).returncode, 0)
        self.tokenizer_of(600)
        started = tactus("run", *self.dummy, "--raw", "-p", "x")
        self.assertNotEqual(started.returncode, 0)
        why = started.stderr.splitlines()[-1].removeprefix("tactus run: ")
        self.assertIn("600", why)
        done = tactus("models", "inspect", self.model)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(why, done.stderr)
        self.assertIn("cannot start", done.stdout)
        self.assertIn("2 of hidden size 64", done.stdout)
        done = tactus("models", "inspect", self.model, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["start"], why)
        self.assertEqual(json.loads(done.stdout)["shape"]["vocab_size"], 512)

    def test_inspect_checks_the_shapes_of_the_tensors(self):
        header = json.dumps(
            {"model.embed_tokens.weight": {"dtype": "F32", "shape": [500, 64], "data_offsets": [0, 500 * 64 * 4]}}
        ).encode()
        (self.model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(500 * 64 * 4))
        self.tokenizer_of(512)
        started = tactus("run", self.model, "--kv-cache-memory", "64MiB", "--raw", "-p", "x")
        self.assertNotEqual(started.returncode, 0)
        why = started.stderr.splitlines()[-1].removeprefix("tactus run: ")
        self.assertIn("500", why)
        for dtype in ("auto", "float32"):
            done = tactus("models", "inspect", self.model, "--json", "--dtype", dtype)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(json.loads(done.stdout)["start"], why)

    def test_tokenize_reads_its_input_with_a_limit(self):
        self.tokenizer_of(512)
        for extra in ([], ["--lines"]):
            with open("/dev/zero", "rb") as endless:
                done = subprocess.run(
                    [BINARY, "tokenize", str(self.model), "--ids", *extra],
                    stdin=endless,
                    capture_output=True,
                    timeout=60,
                    env=ENVIRONMENT,
                )
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertIn(b"standard input", done.stderr)
            self.assertIn(b"67108864", done.stderr)
        done = tactus("tokenize", self.model, "--lines", stdin="ab\n\nc")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 3), done.stderr)

    def test_models_list_shows_what_the_cache_holds(self):
        cache = self.folder / "cache/models/mine"
        cache.mkdir(parents=True)
        (cache / "config.json").write_text(json.dumps(TINY_CONFIG))
        folders = {"TACTUS_CACHE_DIR": str(self.folder / "cache"), "HF_HUB_CACHE": str(self.folder / "hub")}
        done = tactus("models", "list", "--json", **folders)
        self.assertEqual([m["name"] for m in json.loads(done.stdout)["models"]], ["mine"])

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_tokenize(self):
        done = tactus("tokenize", default_model(), "Hello world", "--json")
        out = json.loads(done.stdout)
        self.assertEqual(out["count"], len(out["tokens"]))
        again = tactus("tokenize", default_model(), "--ids", stdin="Hello world")
        self.assertEqual([int(t) for t in again.stdout.split()], out["tokens"])


class OutputTest(Folder):
    """Results that cannot be written are failures; nothing is written into other files."""

    def commands(self):
        messages = self.folder / "messages.json"
        messages.write_text(json.dumps([{"role": "user", "content": "x"}]))
        return [
            ["--help"],
            ["--version"],
            ["version"],
            ["serve", "--help"],
            ["serve", "--print-config"],
            ["models", "list", "--json"],
            ["models", "inspect", self.model],
            ["template", self.template, "--messages", messages],
            ["sim", "--list"],
            [
                "sim",
                "--model",
                "llama-3.1-8b",
                "--device",
                "h100",
                "--workload",
                "random",
                "--rate",
                "5",
                "--requests",
                "3",
            ],
            [
                "sim",
                "--model",
                "llama-3.1-8b",
                "--device",
                "h100",
                "--workload",
                "random",
                "--rate",
                "5",
                "--requests",
                "3",
                "--json",
            ],
            ["run", *self.dummy, "--raw", "-p", "x", "--max-tokens", "3"],
        ]

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_a_full_device_exits_1_with_a_message(self):
        for command in self.commands():
            with self.subTest(command=command), open("/dev/full", "w") as full:
                done = subprocess.run(
                    [BINARY, *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=60,
                    env=ENVIRONMENT,
                )
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot write to standard output", done.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_an_answer_to_a_full_device_is_aborted(self):
        long = self.folder / "long"
        long.mkdir()
        (long / "config.json").write_text(json.dumps(dict(TINY_CONFIG, max_position_embeddings=800_000)))
        with open("/dev/full", "w") as full:  # 700,000 tokens are minutes of work
            done = subprocess.run(
                [
                    BINARY,
                    "run",
                    long,
                    "--load-format",
                    "dummy",
                    "--kv-cache-memory",
                    "256MiB",
                    "--max-queue",
                    "2",
                    "--raw",
                    "-p",
                    "x",
                    "--max-tokens",
                    "700000",
                    "--temperature",
                    "0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                env=ENVIRONMENT,
            )
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_closed_streams_get_nothing_of_another_file(self):
        trace = self.folder / "trace.bin"
        command = [
            BINARY,
            "run",
            *self.dummy,
            "--raw",
            "-p",
            "x",
            "--max-tokens",
            "40",
            "--temperature",
            "0",
            "--trace-out",
            trace,
        ]
        answer = subprocess.run(
            list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=ENVIRONMENT
        ).stdout
        for closed in ("<&- >&- 2>&-", ">&- 2>&-", ">&-"):
            with self.subTest(closed=closed):
                trace.unlink()
                done = subprocess.run(
                    ["bash", "-c", f'exec "$@" {closed}', "bash", *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=60,
                    env=ENVIRONMENT,
                )
                self.assertEqual(done.returncode, 1)  # the answer could not be written
                self.assertTrue(trace.read_bytes().startswith(b"TACTRACE"))
                self.assertNotIn(answer[:-1][-12:], trace.read_bytes())
                done = tactus("sim", "--replay", trace)
                self.assertEqual(done.returncode, 0, done.stderr)  # a complete trace, and nothing else


class InputTest(Folder):
    """Files and pipes named by the user: read with a limit, with errors that name the fault."""

    def test_files_without_an_end_are_refused(self):
        messages = self.folder / "messages.json"
        messages.write_text("[]")
        for command in (
            ["template", self.template, "--messages", "/dev/zero"],
            ["template", self.template, "--messages", messages, "--tools", "/dev/zero"],
            ["serve", "--config", "/dev/zero"],
            ["run", *self.dummy, "--chat-template", "/dev/zero", "-p", "x"],
            ["sim", "--model", "llama-3.1-8b", "--device", "h100", "--workload", "trace:/dev/zero"],
            ["sim", "--model", "/dev/zero", "--device", "h100", "--workload", "chat", "--rate", "1"],
            ["sim", "--cost", "/dev/zero", "--workload", "chat", "--rate", "1"],
            ["sim", "--replay", "/dev/zero"],
        ):
            with self.subTest(command=command):
                # Little memory, so that a command that reads without limit ends soon.
                done = tactus(
                    *command, timeout=30, under=["bash", "-c", 'ulimit -c 0; ulimit -v 4000000; exec "$@"', "bash"]
                )
                self.assertIn(done.returncode, (1, 2))
                self.assertIn("/dev/zero", done.stderr)
                self.assertEqual(done.stdout, "")

    def test_folders_missing_files_and_bad_json_are_named(self):
        broken = self.folder / "broken.json"
        broken.write_text("[{]")
        for path, expected in (
            (self.folder, "is a folder"),
            (self.folder / "missing.json", "No such file"),
            (broken, "line 1, column 3"),
        ):
            done = tactus("template", self.template, "--messages", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(path), done.stderr)
            self.assertIn(expected, done.stderr)

    def test_messages_may_come_from_a_pipe(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(
            target=lambda: pipe.write_text(json.dumps([{"role": "user", "content": "piped"}])), daemon=True
        )
        writer.start()
        done = tactus("template", self.template, "--messages", pipe, timeout=60)
        writer.join(10)
        self.assertEqual((done.returncode, done.stdout), (0, "<user>piped\n"), done.stderr)

    def test_text_that_is_not_utf8_is_replaced_with_a_warning(self):
        def run(*args, stdin=b""):
            return subprocess.run(
                [
                    BINARY,
                    "run",
                    *map(str, self.dummy),
                    "--chat-template",
                    str(self.template),
                    "--max-tokens",
                    "3",
                    "--temperature",
                    "0",
                    *args,
                ],
                input=stdin,
                capture_output=True,
                timeout=60,
                env=ENVIRONMENT,
            )

        plain = run("-p", "a\ufffdb")
        for done in (run("-p", b"a\xffb"), run(stdin=b"a\xffb\n")):
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"not valid UTF-8", done.stderr)
            self.assertNotIn(b"internal error", done.stderr)
            self.assertEqual(done.stdout, plain.stdout)
        self.assertNotIn(b"UTF-8", plain.stderr)
        done = run("-p", "x", "--system", b"\xc3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"--system is not valid UTF-8", done.stderr)

    def test_names_that_are_not_utf8_do_no_harm(self):
        odd = os.path.join(os.fsencode(self.folder), b"m\xff")
        os.mkdir(odd)
        with open(os.path.join(odd, b"config.json"), "w") as config:
            config.write(json.dumps(TINY_CONFIG))
        done = subprocess.run(
            [BINARY, "models", "inspect", odd, "--json"], capture_output=True, timeout=60, env=ENVIRONMENT
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("llama", json.loads(done.stdout)["architecture"])


class PortTest(Folder):
    """An error of the model is reported even if the port is taken; a taken port is reported before anything slow."""

    def test_a_broken_model_is_reported_before_a_taken_port(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
        with TakenPort() as port:
            for model in (broken, self.folder / "missing.gguf"):
                done = tactus("serve", model, "--port", port)
                self.assertEqual(done.returncode, 1, done.stderr)
                last = done.stderr.splitlines()[-1]
                self.assertIn(model.name, last)
                self.assertIn(f"port {port}", done.stderr)

    def test_a_taken_port_is_reported_if_the_model_is_good(self):
        with TakenPort() as port:
            done = tactus("serve", *self.dummy, "--port", port)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"port {port}", done.stderr.splitlines()[-1])
        self.assertNotIn("memory", done.stderr)  # nothing was planned or loaded


if __name__ == "__main__":
    unittest.main()
