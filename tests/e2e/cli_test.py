"""The commands as scripts call them: results on stdout, exit statuses, errors that name what is wrong."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from fake_endpoint import FakeEndpoint
from server_process import (
    CHAT_TEMPLATE,
    TINY_CONFIG,
    ServerProcess,
    TakenPort,
    catches_sigint,
    default_model,
    wait_until,
)

BINARY = os.environ["TACTUS_BINARY"]
TOKENIZER = pathlib.Path(__file__).parent.parent / "text" / "data" / "llama3.tokenizer.json"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}


def tactus(*args, stdin="", timeout=120, under=(), **environment):
    return subprocess.run(
        [*under, BINARY, *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(ENVIRONMENT, **environment),
    )


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.model = self.folder / "tiny"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(TINY_CONFIG))
        self.template = self.folder / "chat.jinja"
        self.template.write_text(CHAT_TEMPLATE)
        self.dummy = [self.model, "--load-format", "dummy", "--kv-cache-memory", "64MiB"]


class ProfileTest(Folder):
    def test_a_run_too_short_for_a_fit_replaces_nothing(self):
        out = self.folder / "profile.csv"
        out.write_text("good\n")
        done = tactus("profile", *self.dummy, "-o", out, "--time-limit", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--time-limit 0", done.stderr)
        done = tactus("profile", *self.dummy, "-o", out, "--time-limit", "1us")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"{out} is as it was", done.stderr)
        self.assertEqual(out.read_text(), "good\n")
        self.assertIn("prefill_tokens,", (self.folder / "profile.csv.partial").read_text())
        done = tactus("profile", *self.dummy, "--time-limit", "1us", XDG_CACHE_HOME=str(self.folder / "cache"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual([p for p in (self.folder / "cache").rglob("*") if p.is_file()], [])

    def test_progress_is_a_line_per_tenth_where_no_terminal_is(self):
        done = tactus("profile", *self.dummy, "-o", self.folder / "profile.csv", "--time-limit", "1s")
        tenths = [int(shown) // 10 for shown in re.findall(r"^ *(\d+) %: ", done.stderr, re.MULTILINE)]
        self.assertGreater(len(tenths), 1, done.stderr)
        self.assertEqual(tenths, sorted(set(tenths) - {0}), done.stderr)


class UsageTest(Folder):
    def test_wrong_usage_is_2_and_says_what(self):
        for args, expected in [
            (["nosuch"], "unknown command 'nosuch'"),
            (["sweep"], "it is 'tactus sim sweep'"),
            (["serve", "--port", "99999"], "--port: 99999 is out of range"),
            (["serve", "--nosuch"], "--nosuch"),
            (["bench"], "--url is missing"),
            (["bench", "--url", "http://127.0.0.1:1"], "how fast?"),
            (["models", "nosuch"], "neither list nor inspect"),
            (["tokenize"], "MODEL is missing"),
            (["version", "now"], "unexpected argument 'now'"),
            (["models", "list", "x"], "unexpected argument 'x'"),
            (["template", "x.jinja"], "--messages"),
            (["bench", "--url", "https://x", "--rate", "1"], "https://x"),
            (
                "sim --steps-out /no/such/folder/x --model llama-3.1-8b --device h100 --workload chat --rate 1".split(),
                "--steps-out",
            ),
            (["sim", "--times", "model"], "--replay"),
            (["sim", "--replay", "x", "--step-noise", "10"], "--step-noise 10 is for simulated steps"),
            (["sim", "--replay", "x", "--steps-out", "x"], "--times model"),
            (["serve", "--host", ""], "--host is empty"),
            (["serve", "--port", "1", "--port", "2"], "--port is given twice"),
            (["run", "--raw"], "--raw"),
            (["run", "-p", "x", "--top-p", "0"], "--top-p"),
            (["run", "-p", "x", "--temperature", "-0.5"], "--temperature"),
            ([], "usage: tactus"),
            (["serve", "--scheduler", "oracle"], "exists in simulation only"),
            (["bench", "--url", "x", "--rate", "1", "--workload", "z"], "workload 'z'"),
            (["bench", "--url", "http://x", "--rate", "1", "--warmup", "soon"], "--warmup"),
        ]:
            with self.subTest(args=args):
                done = tactus(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_configuration_file_is_taken_by_its_types(self):
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

    def test_help_version_and_configuration_are_0(self):
        for args, expected in [
            (["--help"], "usage: tactus"),
            (["serve", "--help"], "sarathi-serve"),
            (["--version"], "tactus 0."),
            (["serve", "--print-config", "--max-num-seqs", "9"], "max-num-seqs = 9"),
        ]:
            done = tactus(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout)
        done = tactus("serve", "--print-config", TACTUS_MAX_NUM_SEQS="11", TACTUS_API_KEY="sesame")
        self.assertIn("max-num-seqs = 11", done.stdout)
        self.assertNotIn("sesame", done.stdout)

    def test_a_missing_or_broken_model_is_1_and_named(self):
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

    def test_what_does_not_fit_is_refused_with_the_arithmetic(self):
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

    def test_inspect_plans_for_the_numerics_that_are_asked_for(self):
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
        """A byte-level BPE tokeniser of so many tokens beside the configuration."""
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
        done = tactus("models", "list", "--json", TACTUS_CACHE_DIR=str(self.folder / "cache"))
        self.assertEqual([m["name"] for m in json.loads(done.stdout)["models"]], ["mine"])

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_tokenize(self):
        done = tactus("tokenize", default_model(), "Hello world", "--json")
        out = json.loads(done.stdout)
        self.assertEqual(out["count"], len(out["tokens"]))
        again = tactus("tokenize", default_model(), "--ids", stdin="Hello world")
        self.assertEqual([int(t) for t in again.stdout.split()], out["tokens"])


class RunTest(Folder):
    def test_one_answer_is_repeatable(self):
        args = ["run", *self.dummy, "--raw", "-p", "Hello", "--max-tokens", "12", "--seed", "7", "--temperature", "0.8"]
        first, second = tactus(*args), tactus(*args)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, second.stdout)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_the_default_model_knows_the_capital_of_france_in_every_numerics(self):
        for dtype in ("auto", "float32", "bfloat16"):
            done = tactus(
                "run",
                default_model(),
                "-p",
                "What is the capital of France?",
                "--temperature",
                "0",
                "--dtype",
                dtype,
                "--kv-cache-memory",
                "256MiB",
            )
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_a_chat_remembers_and_ends_with_its_input(self):
        done = tactus(
            "run",
            default_model(),
            "--temperature",
            "0",
            "--max-tokens",
            "24",
            "--kv-cache-memory",
            "256MiB",
            stdin="What is the capital of France?\n/nonsense\nAnd of Italy?\n/clear\nAnd of Italy?\n/exit\n",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.splitlines()[:2], ["The capital of France is Paris.", "The capital of Italy is Rome."]
        )
        self.assertNotIn("Rome", done.stdout.splitlines()[2])  # forgotten
        self.assertIn("no command", done.stderr)

    def test_an_unused_weight_cache_is_said(self):
        done = tactus(
            "run",
            *self.dummy,
            "--raw",
            "-p",
            "x",
            "--max-tokens",
            "3",
            "--quantization",
            "int8",
            "--weight-cache",
            self.folder,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: --weight-cache is not used: dummy weights have no files", done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_an_unusable_weight_cache_is_said_and_does_no_harm(self):
        def answer(*cache):
            done = tactus(
                "run",
                default_model(),
                "-p",
                "What is the capital of France?",
                "--temperature",
                "0",
                "--max-model-len",
                "256",
                "--kv-cache-memory",
                "64MiB",
                *cache,
            )
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)
            return done.stderr

        no_folder = self.folder / "file"
        no_folder.write_text("")
        self.assertRegex(
            answer("--weight-cache", no_folder), f"warning: {no_folder}/.* cannot be written: Not a directory"
        )
        cache = ["--weight-cache", self.folder / "cache"]
        self.assertNotIn("warning", answer(*cache))
        (written,) = cache[1].iterdir()
        with written.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        self.assertIn("its checksum is wrong", answer(*cache))
        self.assertNotIn("warning", answer(*cache))  # it was written again

    def test_a_machine_out_of_threads_is_said_with_the_way_out(self):
        limited = ["bash", "-c", 'ulimit -c 0; ulimit -v "$0"; exec "$@"', "2000000"]
        done = tactus("run", *self.dummy, "--raw", "-p", "x", "--threads", "1024", under=limited)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"compute thread \d+ of 1024")
        self.assertIn("lower --threads", done.stderr)

    def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(self):
        done = tactus("run", *self.dummy, "--raw", "-p", "x" * 5000)
        self.assertEqual(done.returncode, 1)
        self.assertIn("5000", done.stderr)
        self.assertIn("2048", done.stderr)


class BenchTest(Folder):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess("--json", real_model=False)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, "".join(cls.server.lines)
        result = json.loads(cls.server.output)  # the result object at exit
        assert result["requests"]["completed"] > 0 and len(result["plan_hash"]) == 16, result

    def bench(self, *args):
        return tactus("bench", "--url", self.server.url, "--vocab-size", "256", *args)

    def test_closed_loop(self):
        out = self.folder / "report.json"
        done = self.bench(
            "--requests",
            "12",
            "--concurrency",
            "4",
            "--workload",
            "random:in=20,out=6",
            "--warmup",
            "2",
            "--json",
            "-o",
            out,
            "--slo",
            "ttft=100s,tbt=100s",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report, json.loads(out.read_text()))
        self.assertEqual(report["requests"], {"completed": 12, "failed": 0, "rejected": 0, "unfinished": 0})
        self.assertEqual(report["slo_attainment"], 1.0)
        tokens = report["output_token_throughput"] * report["duration_s"]
        self.assertAlmostEqual(tokens, 12 * 6, delta=0.01)
        for name in ("ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "normalized_ttft_ms"):
            self.assertEqual(sorted(report[name]), ["max", "mean", "p50", "p90", "p95", "p99"])
            self.assertLessEqual(report[name]["p50"], report[name]["max"])

    def test_a_measured_part_of_the_load(self):
        r = json.loads(
            self.bench(
                *"--requests 40 --rate 40 --arrivals constant --workload random:in=8,out=2 --warmup 200ms --measure"
                " 500ms --json".split()
            ).stdout
        )
        self.assertEqual(
            (r["measured_from_s"], r["duration_s"], r["requests"]["completed"] in (19, 20, 21)), (0.2, 0.5, True)
        )

    def test_open_loop_of_every_arrival_process_and_api(self):
        for extra in (
            ["--arrivals", "gamma:2"],
            ["--arrivals", "constant"],
            ["--endpoint", "chat"],
            ["--prompt-format", "text"],
            ["--concurrency", "0"],
        ):
            done = self.bench("--requests", "5", "--rate", "50", "--workload", "random:in=8,out=3", "--json", *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["requests"]["completed"], 5, done.stderr)

    def test_shared_prefixes_and_turns_hit_the_prefix_cache(self):
        done = self.bench(
            "--requests", "6", "--concurrency", "1", "--workload", "prefix:shared=64,unique=8,out=2", "--json"
        )
        self.assertEqual(json.loads(done.stdout)["cached_prompt_tokens"], 5 * 64)
        done = self.bench(
            "--requests", "6", "--concurrency", "2", "--workload", "multi-turn:turns=3,in=32,out=4", "--json"
        )
        report = json.loads(done.stdout)
        self.assertEqual(report["requests"]["completed"], 6, done.stderr)
        self.assertGreater(report["cached_prompt_tokens"], 0)

    def test_an_idle_server_sleeps(self):
        self.assertEqual(
            self.bench("--requests", "4", "--concurrency", "2", "--workload", "random:in=8,out=8").returncode, 0
        )

        def running():  # threads that have or want a processor: field 3, behind the name
            states = [
                stat.read_text().rsplit(")", 1)[1].split()[0]
                for stat in pathlib.Path(f"/proc/{self.server.process.pid}/task").glob("*/stat")
            ]
            self.assertGreater(len(states), 2)
            return states.count("R")

        # A thread that spins is found running every time, on any machine; one that looks up now and then hardly ever.
        samples = []
        for _ in range(100):
            samples.append(running())
            time.sleep(0.01)
        self.assertLess(sum(count > 0 for count in samples), 50, samples)

    def metric(self, *names):  # the server's, summed
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))

    def completed(self):  # by the server
        return self.metric("vllm:request_success_total")

    def completed_when_idle(self):  # what an earlier test left has ended, and is counted
        wait_until(
            lambda: (
                self.metric("vllm:num_requests_running", "vllm:num_requests_waiting", "tactus_http_exchanges ") <= 1
            ),
            "the server is idle",
            about=self.server.last_lines,
        )
        return self.completed()

    def interrupt(self, *args, before=lambda: True):
        """Ctrl-C once before() holds; what was printed."""
        process = subprocess.Popen(
            [BINARY, "bench", "--url", self.server.url, "--vocab-size", "256", "--json", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            wait_until(lambda: catches_sigint(process) and before(), "the load runs", about=self.server.last_lines)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, 130, err)
        return json.loads(out)["requests"]

    def test_interrupted_keeps_what_is_done(self):
        start = self.completed_when_idle()
        requests = self.interrupt(
            "--requests",
            "1000000",
            "--concurrency",
            "4",
            "--workload",
            "random:in=8,out=4",
            before=lambda: self.completed() > start + 20,
        )
        self.assertGreater(requests["completed"], 10)
        self.assertEqual(requests["failed"], 0)

    def test_interrupted_in_the_warm_up_ends_too(self):
        start = self.completed_when_idle()
        requests = self.interrupt(
            "--requests",
            "5",
            "--concurrency",
            "4",
            "--warmup",
            "1000",
            "--workload",
            "random:in=8,out=300",
            before=lambda: self.completed() > start,
        )
        self.assertEqual(requests["completed"], 0)

    def test_a_server_that_is_not_there_is_1(self):
        with TakenPort(listening=False) as port:
            done = tactus("bench", "--url", f"http://127.0.0.1:{port}", "--requests", "1", "--concurrency", "1")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"127.0.0.1:{port}", done.stderr)
            done = tactus(
                "bench", "--url", f"http://127.0.0.1:{port}", "--model", "m", "--requests", "7", "--concurrency", "2"
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("7 of 7 requests failed: 7 x ", done.stderr)


class BenchFailuresTest(Folder):
    """Against an endpoint that answers as the test says: failures make the run fail, refusals are a result."""

    def bench(self, answers, *args):
        with FakeEndpoint(answers) as url:
            return tactus(
                "bench",
                "--url",
                url,
                "--model",
                "m",
                "--workload",
                "random:in=4,out=2",
                "--concurrency",
                "1",
                "--json",
                *args,
                timeout=60,
            )

    def test_any_failed_request_is_1_with_the_reasons(self):
        done = self.bench(["ok", "broken", "ok", "broken", "cut", "ok"], "--requests", "6")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            json.loads(done.stdout)["requests"], {"completed": 3, "failed": 3, "rejected": 0, "unfinished": 0}
        )
        self.assertIn(
            "3 of 6 requests failed: 2 x HTTP 500: it broke; 1 x the stream ended without [DONE]", done.stderr
        )

    def test_refused_requests_are_a_result_unless_all_are(self):
        done = self.bench(["ok", "busy", "quota", "busy"], "--requests", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            json.loads(done.stdout)["requests"], {"completed": 1, "failed": 0, "rejected": 3, "unfinished": 0}
        )
        self.assertIn("3 of 4 requests were refused: 2 x HTTP 503: queue full; 1 x HTTP 429: too many", done.stderr)
        done = self.bench(["busy"], "--requests", "3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 of 3 requests were refused", done.stderr)

    def test_an_unwritable_output_is_said_before_the_run_and_loses_no_report(self):
        done = self.bench(["ok"], "--requests", "2", "-o", self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(str(self.folder), done.stderr)

    def test_answers_of_odd_shapes_are_failures_or_nothing(self):
        for answer in ("odd events", "odd error", "not http"):
            with self.subTest(answer=answer):
                done = self.bench([answer], "--requests", "1")
                self.assertNotIn("internal error", done.stderr)
                self.assertIn(done.returncode, (0, 1), done.stderr)
                self.assertEqual(sum(json.loads(done.stdout)["requests"].values()), 1)


class OutputTest(Folder):
    """Results that could not be written are failures; nothing is written where it does not belong."""

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
    def test_a_full_device_is_1_and_said(self):
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
    def test_an_answer_that_nobody_can_read_is_given_up(self):
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
                self.assertEqual(done.returncode, 1)  # the answer went nowhere
                self.assertTrue(trace.read_bytes().startswith(b"TACTRACE"))
                self.assertNotIn(answer[:-1][-12:], trace.read_bytes())
                done = tactus("sim", "--replay", trace)
                self.assertEqual(done.returncode, 0, done.stderr)  # a whole trace, and nothing but


class InputTest(Folder):
    """Files and pipes that a user names: read with a limit, and what is wrong with them is said."""

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
                # Little memory, so that a command that reads on ends soon.
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
            (broken, "byte 3"),
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

    def test_text_that_is_not_utf8_is_replaced_and_that_is_said(self):
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
    """A fault of the model is said even where the port is taken; a taken port before anything slow."""

    def test_a_broken_model_is_said_before_a_taken_port(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
        with TakenPort() as port:
            for model in (broken, self.folder / "missing.gguf"):
                done = tactus("serve", model, "--port", port)
                self.assertEqual(done.returncode, 1, done.stderr)
                last = done.stderr.splitlines()[-1]
                self.assertIn(model.name, last)
                self.assertIn(f"port {port}", done.stderr)

    def test_a_taken_port_is_said_where_the_model_is_good(self):
        with TakenPort() as port:
            done = tactus("serve", *self.dummy, "--port", port)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"port {port}", done.stderr.splitlines()[-1])
        self.assertNotIn("memory", done.stderr)  # nothing was planned or loaded


if __name__ == "__main__":
    unittest.main()
