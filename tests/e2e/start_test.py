"""The output of a starting command: at most ten lines, a fact each, the last with the address and an example request;
the rest with --verbose. Files that a start stores for later ones, and the model names of a server."""

import itertools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from command_case import Folder, tactus
from router_process import Router
from server_process import ServerProcess


def ask(url, path, body=None):
    """Status and answer."""
    import urllib.error
    import urllib.request

    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url + path, data, {"Content-Type": "application/json"}), timeout=60
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class StartLineTest(Folder):
    def test_a_server_starts_with_a_fact_per_line_and_a_command_that_answers(self):
        server = ServerProcess(real_model=False, name="tiny")
        try:
            # The end of text of a tiny model is not a control token, which causes a warning.
            lines = [line for line in server.lines if "end of text" not in line]
            for line, fact in itertools.zip_longest(
                lines,
                (
                    r"model: llama, \d+\.\d M parameters, weights \S+",
                    r"memory: up to \d+\.\d\d GiB for weights, KV cache and requests\n",
                    r"KV cache: [1-9]\d* tokens; longest context [1-9]\d* tokens\n",
                    r"scheduler: tactus, at most [1-9]\d* tokens per step\n",
                    rf"ready: tiny on {server.url} - try: curl ",
                ),
            ):
                self.assertRegex(line, r"\A" + fact)
            if shutil.which("curl"):
                command = shlex.split(lines[-1].split(" - try: ")[1])
                answer = json.loads(subprocess.run([*command, "-s"], capture_output=True, text=True, timeout=60).stdout)
                self.assertEqual(answer["object"], "chat.completion")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_the_line_suits_keys_and_models_without_a_template(self):
        server = ServerProcess("--api-key", "sesame", "--load-format", "dummy", model=self.model, name="tiny,little")
        try:
            self.assertIn(
                f"ready: tiny (also little) on {server.url} - try: curl {server.url}/v1/completions -H 'Authorization:"
                " Bearer KEY' ",
                server.lines[-1],
            )
            self.assertNotIn("sesame", "".join(server.lines))
        finally:
            server.stop()

    def test_verbose_shows_the_start_and_warnings_are_always_shown(self):
        server = ServerProcess("--verbose", real_model=False)
        text = "".join(server.lines)
        server.stop()
        for told in ("listening on", "memory plan", "scheduler ", "weights ", "ready after"):
            self.assertIn(told, text)
        server = ServerProcess("--host", "0.0.0.0", real_model=False)
        lines = [line for line in server.lines if "end of text" not in line]
        server.stop()
        self.assertRegex(lines[0], r"warning: http://0\.0\.0\.0:\d+ is reachable from other machines")
        self.assertEqual(len(lines), 6, lines)

    def test_a_router_starts_with_one_line(self):
        server = ServerProcess(real_model=False, name="tiny")
        try:
            router = Router([server.url])
            self.assertRegex(
                "".join(router.lines),
                rf"\Arouting on {router.url} \(sal\): tiny by 1 of 1 replicas - try: curl {router.url}/v1/\S+ .*\n\Z",
            )
            router.stop()
            router = Router([server.url], "--verbose")
            self.assertIn(f"replica {server.url}: ready", "".join(router.lines))
            router.stop()
        finally:
            server.stop()

    def test_a_batch_prints_its_input_and_outputs(self):
        batch = self.folder / "in.jsonl"
        batch.write_text(
            json.dumps(
                {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 2}}
            )
            + "\n"
        )
        done = tactus("batch", batch, "-o", self.folder / "out.jsonl", *self.dummy)
        self.assertEqual(done.returncode, 0, done.stderr)
        first = done.stderr.splitlines()[0]
        self.assertEqual(first, f"1 lines in {batch}; answers of {self.model} go to {self.folder / 'out.jsonl'}")
        self.assertNotIn("memory plan", done.stderr)
        done = tactus("batch", batch, "-o", self.folder / "out.jsonl", *self.dummy, "--overwrite", "--verbose")
        self.assertIn("memory plan", done.stderr)


class MemoryTest(Folder):
    def test_kv_memory_is_allocated_on_demand(self):
        inspected = tactus("models", "inspect", self.model, "--kv-cache-memory", "2GiB")
        self.assertRegex(inspected.stdout, r"KV cache +up to +\d[\d.]+ GiB as needed, \d+ blocks")
        server = ServerProcess(
            "--verbose",
            "--kv-cache-memory",
            "2GiB",
            real_model=False,
            kv_cache_memory=None,
            config={"max_position_embeddings": 131072},
        )
        try:
            text = "".join(server.lines)
            blocks = re.search(r"KV cache +up to +2\.00 GiB as needed, (\d+) blocks", text)[1]
            self.assertIn(f"\nKV cache: {16 * int(blocks)} tokens;", text)
            total = re.search(r"total +up to +(\S+ GiB)", text)[1]
            self.assertIn(f"\nmemory: up to {total} ", text)
            resident = lambda: (
                int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])
                << 10
            )
            self.assertLess(resident(), 1 << 30)
            self.assertEqual(
                ask(server.url, "/v1/completions", {"prompt": "x" * 500, "max_tokens": 50, "ignore_eos": True})[0], 200
            )
            self.assertLess(resident(), 1 << 30)
        finally:
            server.stop()


class StepTimesTest(Folder):
    def start(self, *args):
        """The lines of a start, with the test's cache folder."""
        server = ServerProcess(
            "--verbose",
            "--load-format",
            "dummy",
            *args,
            model=self.model,
            environment={"TACTUS_CACHE_DIR": str(self.folder / "cache")},
        )
        server.stop()
        return "".join(server.lines)

    def test_step_times_are_measured_once_and_stored(self):
        kept = self.folder / "cache" / "step_times"
        first = self.start()
        self.assertIn("step times measured in", first)
        (file,) = kept.iterdir()
        second = self.start()
        self.assertNotIn("measuring", second)
        self.assertIn(f"step times of an earlier start, {file}", second)
        self.assertIn("--measure-step-times measures again", second)
        # Measured again on request, and if the file is truncated, corrupt, or from another program version.
        whole = file.read_text()
        self.assertIn("step times measured in", self.start("--measure-step-times"))
        self.assertNotEqual(file.read_text(), whole)
        whole = file.read_text()
        for damaged in (
            whole[: len(whole) // 2],
            whole[: whole.rindex("#")],
            "",
            whole.replace("prefill", "prefill", 1).replace(",0,", ",1,", 1),
            whole.replace("# version: ", "# version: 9"),
        ):
            file.write_text(damaged)
            self.assertIn(f"step times of an earlier start, {file}, are not used: ", text := self.start())
            self.assertIn("step times measured in", text)
        self.assertNotIn("measuring", self.start())
        self.assertEqual(len(list(kept.iterdir())), 1)

    def test_each_model_thread_count_and_format_has_separate_step_times(self):
        kept = self.folder / "cache" / "step_times"
        self.start("--threads", "1")
        for i, args in enumerate(
            (
                ["--threads", "2"],
                ["--threads", "1", "--quantization", "int8"],
                ["--threads", "1", "--kernels", "scalar"],
                ["--threads", "1", "--max-num-seqs", "3"],
            )
        ):
            self.assertIn("step times measured in", self.start(*args), args)
            self.assertEqual(len(list(kept.iterdir())), i + 2)
        self.assertNotIn("measuring", self.start("--threads", "1"))


class NamesTest(Folder):
    def check(self, server, names):
        status, models = ask(server.url, "/v1/models")
        self.assertEqual((status, [model["id"] for model in models["data"]]), (200, names))
        for name in names:
            self.assertEqual(ask(server.url, f"/v1/models/{name}")[1]["id"], name)
            status, answer = ask(
                server.url,
                "/v1/chat/completions",
                {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]},
            )
            self.assertEqual((status, answer["model"]), (200, names[0]))
            self.assertEqual(
                ask(
                    server.url,
                    "/v1/messages",
                    {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]},
                )[0],
                200,
            )
            self.assertEqual(
                ask(server.url, "/v1/responses", {"model": name, "max_output_tokens": 16, "input": "x"})[0], 200
            )
        has = ", ".join(f"'{name}'" for name in names)
        for path, body in (("/v1/models/nosuch", None), ("/v1/completions", {"model": "nosuch", "prompt": "x"})):
            status, answer = ask(server.url, path, body)
            self.assertEqual(
                (status, answer["error"]["message"]),
                (404, f"model 'nosuch' does not exist here; this server has {has}"),
            )

    def test_every_model_name_is_listed_and_accepted(self):
        config = self.folder / "names.toml"
        config.write_text("served-model-name = ['one', 'two,three']\n")
        for args, environment, names in (
            (["--served-model-name", "one", "--served-model-name", "two"], {}, ["one", "two"]),
            (["--served-model-name", "one,two", "--served-model-name=three,one"], {}, ["one", "two", "three"]),
            (["--served-model-name", "one", "two", "three", "--max-num-seqs", "4"], {}, ["one", "two", "three"]),
            (["--config", config], {}, ["one", "two", "three"]),
            ([], {"TACTUS_SERVED_MODEL_NAME": "one,two"}, ["one", "two"]),
        ):
            with self.subTest(args=args, environment=environment):
                server = ServerProcess(*args, real_model=False, name=None, environment=environment)
                try:
                    self.check(server, names)
                finally:
                    server.stop()

    def test_an_empty_variable_is_the_models_own_name(self):
        server = ServerProcess(
            "--load-format", "dummy", model=self.model, name=None, environment={"TACTUS_SERVED_MODEL_NAME": ""}
        )
        self.assertTrue(server.lines[-1].startswith("ready: tiny on "), server.lines)
        server.stop()

    def test_wrong_names_are_refused(self):
        for name, why in (
            ("a,", "a name is empty"),
            (",", "a name is empty"),
            ("x" * 300, "has 300 bytes; at most 256"),
        ):
            done = tactus("serve", *self.dummy, "--served-model-name", name)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("--served-model-name: ", done.stderr)
            self.assertIn(why, done.stderr)
        done = tactus("serve", "--served-model-name", "a", "b", "c")  # the first word after the name is MODEL
        self.assertIn("unexpected argument 'c'", done.stderr)

    def test_a_router_accepts_replicas_by_any_model_name(self):
        first = ServerProcess(real_model=False, name="one,both")
        second = ServerProcess(real_model=False, name="two,both")
        try:
            router = Router([first.url, second.url], "--model", "both")
            router.await_ready(2)
            for _ in range(4):
                self.assertEqual(
                    router.post("/v1/completions", {"model": "both", "prompt": "x", "max_tokens": 1})[0], 200
                )
            router.stop()
        finally:
            first.stop()
            second.stop()


if __name__ == "__main__":
    unittest.main()
