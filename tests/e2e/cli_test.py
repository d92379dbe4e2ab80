"""The commands as scripts call them: results on stdout, exit statuses, errors that name what is wrong."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from server_process import CHAT_TEMPLATE, TINY_CONFIG, ServerProcess, default_model

BINARY = os.environ["TACTUS_BINARY"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}


def tactus(*args, stdin="", timeout=120, under=(), **environment):
    return subprocess.run([*under, BINARY, *map(str, args)], input=stdin, capture_output=True, text=True, timeout=timeout,
                          env=dict(ENVIRONMENT, **environment))


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


class UsageTest(Folder):
    def test_wrong_usage_is_2_and_says_what(self):
        for args, expected in [(["nosuch"], "unknown command 'nosuch'"), (["serve", "--port", "99999"], "--port: 99999 is out of range"),
                               (["serve", "--nosuch"], "--nosuch"), (["bench"], "--url is missing"),
                               (["bench", "--url", "http://127.0.0.1:1"], "--rate"), (["models", "nosuch"], "neither list nor inspect"),
                               (["tokenize"], "MODEL is missing"), (["bench", "--url", "x", "--rate", "1", "--workload", "z"], "workload 'z'")]:
            with self.subTest(args=args):
                done = tactus(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_help_version_and_configuration_are_0(self):
        for args, expected in [(["--help"], "usage: tactus"), (["serve", "--help"], "sarathi-serve"), (["--version"], "tactus 0."),
                               (["serve", "--print-config", "--max-num-seqs", "9"], "max-num-seqs = 9")]:
            done = tactus(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout)
        done = tactus("serve", "--print-config", TACTUS_MAX_NUM_SEQS="11", TACTUS_API_KEY="sesame")
        self.assertIn("max-num-seqs = 11", done.stdout)
        self.assertNotIn("sesame", done.stdout)

    def test_a_missing_or_broken_model_is_1_and_named(self):
        broken = self.folder / "broken.gguf"
        broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
        for command in (["serve", broken], ["run", broken, "-p", "x"], ["models", "inspect", broken], ["tokenize", broken, "x"]):
            done = tactus(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("broken.gguf", done.stderr)
        done = tactus("run", "no-such-model", "-p", "x", TACTUS_CACHE_DIR=str(self.folder / "empty"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-model", done.stderr)
        done = tactus("serve", TACTUS_CACHE_DIR=str(self.folder / "empty"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("scripts/", done.stderr)

    def test_what_does_not_fit_is_refused_with_the_arithmetic(self):
        done = tactus("run", *self.dummy[:3], "--kv-cache-memory", "900GiB", "-p", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--kv-cache-memory", done.stderr)
        self.assertIn("900.00 GiB", done.stderr)


class NumericsTest(Folder):
    def test_dummy_weights_in_every_format_answer(self):
        for extra in (["--quantization", "q8_0"], ["--quantization", "int8", "--activation-dtype", "int8"],
                      ["--quantization", "int4", "--kv-cache-dtype", "int8"], ["--activation-dtype", "float32"], ["--dtype", "float32"], []):
            with self.subTest(extra=extra):
                done = tactus("run", *self.dummy, "--chat-template", self.template, "-p", "x", "--max-tokens", "3", "--temperature", "0", *extra)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)

    def test_contradictions_are_refused_with_the_way_out(self):
        for extra, expected in ((["--quantization", "int8", "--dtype", "float32"], "leave one of them out"),
                                (["--activation-dtype", "int8"], "add --quantization"),
                                (["--activation-dtype", "bfloat16", "--quantization", "int4"], "use auto, int16 or int8"),
                                (["--quantization", "int5"], "'int5' is not one of: none, q8_0, int8, int4")):
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
        self.assertEqual(small["numerics"], "int16 activations, KV bf16")
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

    def test_inspect(self):
        done = tactus("models", "inspect", self.model, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("llama", done.stdout)
        json.loads(done.stdout)

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
            done = tactus("run", default_model(), "-p", "What is the capital of France?", "--temperature", "0", "--dtype", dtype,
                          "--kv-cache-memory", "256MiB")
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_a_chat_remembers_and_ends_with_its_input(self):
        done = tactus("run", default_model(), "--temperature", "0", "--max-tokens", "24", "--kv-cache-memory", "256MiB",
                      stdin="What is the capital of France?\n/nonsense\nAnd of Italy?\n/clear\nAnd of Italy?\n/exit\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[:2], ["The capital of France is Paris.", "The capital of Italy is Rome."])
        self.assertNotIn("Rome", done.stdout.splitlines()[2])   # forgotten
        self.assertIn("no command", done.stderr)

    def test_an_unused_weight_cache_is_said(self):
        done = tactus("run", *self.dummy, "--raw", "-p", "x", "--max-tokens", "3", "--quantization", "int8", "--weight-cache", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: --weight-cache is not used: dummy weights have no files", done.stderr)

    @unittest.skipUnless(default_model(), "TACTUS_DEFAULT_MODEL is not set")
    def test_an_unusable_weight_cache_is_said_and_does_no_harm(self):
        def answer(*cache):
            done = tactus("run", default_model(), "-p", "What is the capital of France?", "--temperature", "0", "--max-model-len", "256",
                          "--kv-cache-memory", "64MiB", *cache)
            self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)
            return done.stderr

        no_folder = self.folder / "file"
        no_folder.write_text("")
        self.assertRegex(answer("--weight-cache", no_folder), f"warning: {no_folder}/.* cannot be written: Not a directory")
        cache = ["--weight-cache", self.folder / "cache"]
        self.assertNotIn("warning", answer(*cache))
        written, = cache[1].iterdir()
        with written.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        self.assertIn("its checksum is wrong", answer(*cache))
        self.assertNotIn("warning", answer(*cache))   # it was written again

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
        result = json.loads(cls.server.output)   # the result object at exit
        assert result["requests"]["completed"] > 0 and len(result["plan_hash"]) == 16, result

    def bench(self, *args):
        return tactus("bench", "--url", self.server.url, "--vocab-size", "256", *args)

    def test_closed_loop(self):
        out = self.folder / "report.json"
        done = self.bench("--requests", "12", "--concurrency", "4", "--workload", "random:in=20,out=6", "--warmup", "2", "--json", "-o", out,
                          "--slo", "ttft=100s,tbt=100s")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report, json.loads(out.read_text()))
        self.assertEqual(report["requests"], {"completed": 12, "failed": 0, "rejected": 0})
        self.assertEqual(report["slo_attainment"], 1.0)
        tokens = report["output_token_throughput"] * report["duration_s"]
        self.assertAlmostEqual(tokens, 12 * 6, delta=0.01)
        for name in ("ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "normalized_ttft_ms"):
            self.assertEqual(sorted(report[name]), ["max", "mean", "p50", "p90", "p95", "p99"])
            self.assertLessEqual(report[name]["p50"], report[name]["max"])

    def test_open_loop_of_every_arrival_process_and_api(self):
        for extra in (["--arrivals", "gamma:2"], ["--arrivals", "constant"], ["--endpoint", "chat"], ["--prompt-format", "text"]):
            done = self.bench("--requests", "5", "--rate", "50", "--workload", "random:in=8,out=3", "--json", *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["requests"]["completed"], 5, done.stderr)

    def test_shared_prefixes_and_turns_hit_the_prefix_cache(self):
        done = self.bench("--requests", "6", "--concurrency", "1", "--workload", "prefix:shared=64,unique=8,out=2", "--json")
        self.assertEqual(json.loads(done.stdout)["cached_prompt_tokens"], 5 * 64)
        done = self.bench("--requests", "6", "--concurrency", "2", "--workload", "multi-turn:turns=3,in=32,out=4", "--json")
        report = json.loads(done.stdout)
        self.assertEqual(report["requests"]["completed"], 6, done.stderr)
        self.assertGreater(report["cached_prompt_tokens"], 0)

    def test_an_idle_server_sleeps(self):
        self.assertEqual(self.bench("--requests", "4", "--concurrency", "2", "--workload", "random:in=8,out=8").returncode, 0)

        def cpu_seconds():   # of all threads: fields 14 and 15, counted from behind the name
            fields = pathlib.Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        time.sleep(0.2)
        before = cpu_seconds()
        time.sleep(2)
        self.assertLess(cpu_seconds() - before, 0.1)   # 0.002 s measured; one spinning thread takes 2 s, or its share of a busy machine

    def test_interrupted_keeps_what_is_done(self):
        command = [BINARY, "bench", "--url", self.server.url, "--requests", "100000", "--concurrency", "4", "--vocab-size", "256",
                   "--workload", "random:in=8,out=4", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertGreater(json.loads(out)["requests"]["completed"], 0)
        self.assertEqual(json.loads(out)["requests"]["failed"], 0)

    def test_a_server_that_is_not_there_is_1(self):
        done = tactus("bench", "--url", "http://127.0.0.1:1", "--requests", "1", "--concurrency", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("127.0.0.1", done.stderr)


if __name__ == "__main__":
    unittest.main()
