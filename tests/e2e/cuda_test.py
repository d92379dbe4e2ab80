"""The CUDA backend behind the program's front doors: `tactus serve --device cuda` loads a library with an emulated
device and answers as the CPU does. TACTUS_EMULATED_CUDA names the library."""

import json
import os
import pathlib
import shutil
import threading
import unittest

import openai
from command_case import Folder, tactus
from server_process import ServerProcess

LIBRARY = os.environ.get("TACTUS_EMULATED_CUDA", "")
PROMPTS = [[5, 6, 7], [1, *range(100, 140)], [9] * 17, [1, 2, 3, 4]]
SIZES = ["--max-model-len", "128", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--threads", "1"]


def server(device, *args, environment=None):
    environment = {"TACTUS_CUDA_LIBRARY": LIBRARY} | (environment or {}) if device == "cuda" else {}
    return ServerProcess(
        "--device", device, *SIZES, *args, real_model=False, kv_cache_memory="4MiB", environment=environment
    )


def client_of(running):
    return openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=120)


def logprobs_of(running):
    with client_of(running) as client:
        answer = client.completions.create(
            model="test-model", prompt=PROMPTS[0], max_tokens=4, temperature=0, logprobs=3
        )
        return answer.choices[0].logprobs.token_logprobs


@unittest.skipUnless(LIBRARY, "TACTUS_EMULATED_CUDA is not set")
class CudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = {device: server(device, "--dtype", "float32") for device in ("cpu", "cuda")}

    @classmethod
    def tearDownClass(cls):
        for device, running in cls.servers.items():
            status = running.stop()
            assert status == 0, f"{device}: exit status {status}" + running.last_lines()
            found = [line for line in running.lines if line.startswith("emulated device:")]
            assert not found, "".join(found)

    def both(self, ask):
        answers = {}
        for device, running in self.servers.items():
            with client_of(running) as client:
                answers[device] = ask(client)
        self.assertEqual(answers["cpu"], answers["cuda"])
        return answers["cuda"]

    def test_greedy_answers_are_those_of_the_cpu(self):
        def ask(client):
            texts = []
            for prompt in PROMPTS:
                answer = client.completions.create(model="test-model", prompt=prompt, max_tokens=12, temperature=0)
                texts.append((answer.choices[0].text, answer.usage.completion_tokens))
            return texts

        self.both(ask)

    def test_sampled_answers_with_penalties_are_those_of_the_cpu(self):
        def ask(client):
            answer = client.completions.create(
                model="test-model",
                prompt=PROMPTS[1],
                max_tokens=10,
                n=2,
                temperature=0.9,
                top_p=0.9,
                seed=7,
                frequency_penalty=0.5,
                presence_penalty=0.2,
                logit_bias={"17": 2},
                extra_body={"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1},
            )
            return [choice.text for choice in answer.choices]

        self.both(ask)

    def test_a_batch_of_streams_gets_the_answers_of_single_requests(self):
        def ask(client):
            streams = [
                client.completions.create(model="test-model", prompt=p, max_tokens=10, temperature=0, stream=True)
                for p in PROMPTS
            ]
            return ["".join(chunk.choices[0].text for chunk in stream if chunk.choices) for stream in streams]

        self.both(ask)

    def test_logprobs_are_near_those_of_the_cpu(self):
        for cpu, cuda in zip(*map(logprobs_of, self.servers.values()), strict=True):
            self.assertAlmostEqual(cpu, cuda, places=4)

    def test_int8_weights_answer_as_those_of_the_cpu(self):
        values = []
        for device in ("cpu", "cuda"):
            running = server(device, "--quantization", "int8")
            values.append(logprobs_of(running))
            self.assertEqual(running.stop(), 0, running.last_lines())
            lines = "".join(running.lines)
            self.assertIn("int8", next(line for line in running.lines if line.startswith("model:")))
            self.assertNotIn("emulated device:", lines)
        for cpu, cuda in zip(*values, strict=True):
            self.assertAlmostEqual(cpu, cuda, delta=0.05)

    def test_unknown_and_contradicting_forms_of_weights_are_refused(self):
        for options, words in (
            (["--quantization", "int5"], ["--quantization: 'int5'", "q8_0, int8, int4"]),
            (["--quantization", "int8", "--dtype", "float32"], ["--quantization int8", "--dtype float32"]),
        ):
            with self.assertRaises(RuntimeError) as refused:
                server("cuda", *options)
            for word in words:
                self.assertIn(word, str(refused.exception))

    def test_what_the_backend_lacks_is_refused_by_name(self):
        for option, value in (("--weight-cache", "folder"), ("--activation-dtype", "int8"), ("--kernels", "ref")):
            with self.assertRaises(RuntimeError) as refused:
                server("cuda", option, value)
            self.assertIn(f"{option} {value}", str(refused.exception))

    def test_tokens_in_fp8_are_refused_beside_weights_of_16_bits(self):
        with self.assertRaises(RuntimeError) as refused:
            server("cuda", "--activation-dtype", "fp8")
        self.assertIn("--activation-dtype fp8 contradicts --load-format dummy", str(refused.exception))

    def test_the_start_names_the_device(self):
        self.assertRegex("".join(self.servers["cuda"].lines), r"model: llama, .*, on [Ee]mulated")


@unittest.skipUnless(LIBRARY, "TACTUS_EMULATED_CUDA is not set")
class StepTimesTest(Folder):
    def write_profile(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            (prefill, context, decodes, 50 * decodes, 1 + 0.01 * prefill + 0.1 * decodes + 0.0001 * prefill * context)
            for prefill in (0, 4, 16, 64)
            for context in (0, 32)
            for decodes in (0, 1, 4)
            if prefill + decodes > 0 and (prefill > 0 or context == 0)
        ]
        path.write_text(
            "# device: emulated device\nprefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n"
            + "".join(",".join(map(str, row)) + "\n" for row in rows)
        )

    def test_a_run_on_the_device_is_replayed_with_the_times_of_its_profile(self):
        trace = self.folder / "run.trace"
        running = server("cuda", "--trace-out", trace)
        with client_of(running) as client:
            streams = [
                client.completions.create(model="test-model", prompt=p, max_tokens=12, stream=True) for p in PROMPTS
            ]
            for stream in streams:
                self.assertGreater(len(list(stream)), 1)
        model, kept = running.folder.name, self.folder / "kept"
        shutil.copytree(model, kept)
        self.assertEqual(running.stop(), 0)
        shutil.copytree(kept, model)  # the server's end removed it; a device is found by a model that it computes
        self.addCleanup(shutil.rmtree, model)
        places = {"TACTUS_CUDA_LIBRARY": LIBRARY, "TACTUS_CACHE_DIR": str(self.folder / "cache")}
        replay = ["sim", "--replay", trace, "--times", "model"]
        # The file's name is that of the device, not that of a processor with one thread.
        name = pathlib.Path(running.folder.name).name
        profile = self.folder / "cache" / "profiles" / f"{name}-emulated-device.csv"
        missing = tactus(*replay, **places)
        self.assertEqual(missing.returncode, 1, missing.stderr)
        self.assertIn(f"no step times at '{profile}'", missing.stderr)
        self.write_profile(profile)
        steps = self.folder / "steps.csv"
        done = tactus(*replay, "--json", "--steps-out", steps, **places)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertIs(result["recorded"]["identical"], True)
        self.assertEqual(result["measured"]["requests"]["completed"], len(PROMPTS))
        self.assertEqual(result["predicted"]["requests"]["completed"], len(PROMPTS))
        self.assertEqual(result["step_time"]["steps"], len(steps.read_text().splitlines()) - 1)
        self.assertIn(str(profile), result["step_time"]["model"])
        simulated = tactus(
            *("sim", "--cost", profile, "--kv-blocks", 64, "--max-model-len", 128, "--workload", "random:in=20,out=8"),
            *("--concurrency", 4, "--requests", 20, "--json"),
        )
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        self.assertEqual(json.loads(simulated.stdout)["requests"]["completed"], 20)

    def test_a_profile_of_the_device_goes_to_a_file_of_its_name(self):
        profile = ["profile", self.model, "--load-format", "dummy", *SIZES, "--kv-cache-memory", "1MiB"]
        short = ["--time-limit", "1us"]  # too few steps for a file: the message names it
        done = tactus(*profile, *short, "--device", "cuda", TACTUS_CUDA_LIBRARY=LIBRARY)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("profiles/tiny-emulated-device.csv was not written", done.stderr)
        refused = tactus(*profile, *short, "--device", "cpu", "--overlap", "nano")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("--overlap nano is not possible on a CPU", refused.stderr)

    def test_flashinfers_attention_is_refused_by_name_where_it_is_not_served(self):
        profile = ["profile", self.model, "--load-format", "dummy", "--attention-backend", "flashinfer"]
        on_cpu = tactus(*profile, "--device", "cpu")
        self.assertEqual(on_cpu.returncode, 2, on_cpu.stderr)
        self.assertIn("--attention-backend flashinfer is not possible on a CPU", on_cpu.stderr)
        on_device = tactus(*profile, "--device", "cuda", TACTUS_CUDA_LIBRARY=LIBRARY)
        self.assertEqual(on_device.returncode, 2, on_device.stderr)
        self.assertRegex(on_device.stderr, "the model has heads of [0-9]+ values")

    def test_overlap_and_freer_rounding_are_options_of_the_device(self):
        answers = []
        for options in ([], ["--overlap", "nano"], ["--batch-invariant", "off"]):
            running = server("cuda", "--dtype", "float32", *options)
            with client_of(running) as client:
                answer = client.completions.create(model="test-model", prompt=PROMPTS[1], max_tokens=8, temperature=0)
                answers.append(answer.choices[0].text)
            self.assertEqual(running.stop(), 0)
            found = [line for line in running.lines if line.startswith("emulated device:")]
            self.assertEqual(found, [])
        self.assertEqual(answers[1], answers[0])
        self.assertEqual(answers[2], answers[0], "f32 sums in another order")


@unittest.skipUnless(LIBRARY, "TACTUS_EMULATED_CUDA is not set")
class FailureTest(unittest.TestCase):
    def test_a_device_that_fails_ends_all_requests_and_the_process(self):
        running = server("cuda", environment={"TACTUS_EMULATED_STEPS": "40"})
        with client_of(running) as client:
            errors = []

            def ask():
                try:
                    client.completions.create(
                        model="test-model", prompt=PROMPTS[0], max_tokens=100, extra_body={"ignore_eos": True}
                    )
                except openai.APIStatusError as error:
                    errors.append((error.status_code, error.message))

            threads = [threading.Thread(target=ask) for _ in range(6)]  # two of them wait
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
        self.assertEqual(len(errors), 6, errors)
        failed = [message for status, message in errors if status == 500]
        self.assertTrue(failed, errors)
        for message in failed:
            self.assertIn("an injected error", message)
        for status, _ in errors:
            self.assertIn(status, (500, 503))  # 503: it came after the failure
        self.assertNotEqual(running.stop(send=False), 0)
        lines = "".join(running.lines)
        self.assertIn("the device has failed: launch of CountSampled: an injected error", lines)
        self.assertNotIn("emulated device:", lines)


if __name__ == "__main__":
    unittest.main()
