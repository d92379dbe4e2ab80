"""The CUDA backend behind the program's front doors: `tactus serve --device cuda` loads a library with an emulated
device and answers as the CPU does. TACTUS_EMULATED_CUDA names the library."""

import os
import threading
import unittest

import openai
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
        values = []
        for running in self.servers.values():
            with client_of(running) as client:
                answer = client.completions.create(
                    model="test-model", prompt=PROMPTS[0], max_tokens=4, temperature=0, logprobs=3
                )
                values.append(answer.choices[0].logprobs.token_logprobs)
        for cpu, cuda in zip(*values, strict=True):
            self.assertAlmostEqual(cpu, cuda, places=4)

    def test_what_the_backend_lacks_is_refused_by_name(self):
        for option, value in (("--quantization", "int8"), ("--activation-dtype", "int8"), ("--kernels", "ref")):
            with self.assertRaises(RuntimeError) as refused:
                server("cuda", option, value)
            self.assertIn(f"{option} {value}", str(refused.exception))

    def test_the_start_names_the_device(self):
        self.assertRegex("".join(self.servers["cuda"].lines), r"model: llama, .*, on [Ee]mulated")


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
