"""tactus.ray on a real local cluster of two workers: the same answers as from one LLM, the shards of a planned job, a
deployment."""

import json
import os
import secrets
import socket
import unittest
import urllib.error
import urllib.request

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # disables usage reports
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "120"  # on a busy machine
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)  # otherwise Ray writes a token into the home folder

try:
    import ray
    import ray.data
    from ray import serve
except ImportError:
    ray = None

import tactus
import tactus.ray
from server_process import wait_until
from tactus import PlanCosts, SamplingParams
from tiny_model import TinyModel

COSTS = PlanCosts(flops_per_token=1e6, attention_flops=1e3, kv_bytes_per_token=1e3, flops_per_s=1e11, bytes_per_s=1e10)
PARAMS = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@unittest.skipIf(ray is None, "this Python has no Ray; scripts/test.sh slow makes one in .venv-ray")
class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()
        cls.llm_options = {"model": str(cls.tiny.path), **cls.tiny.options}
        ray.init(
            num_cpus=2,
            _node_ip_address="127.0.0.1",
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.tiny.close()

    def expected(self, prompts, params=PARAMS):
        with self.tiny.llm() as llm:
            return [
                output.outputs[0].text for output in llm.generate(prompts, SamplingParams(**params), use_tqdm=False)
            ]

    def test_rows_of_a_dataset(self):
        prompts = [f"row {i}" for i in range(100)]
        rows = [{"id": i, "prompt": prompt} for i, prompt in enumerate(prompts)]
        rows[7]["prompt"] = "x" * 100000  # too long
        answered = (
            ray.data.from_items(rows)
            .map_batches(
                tactus.ray.BatchWorker,
                batch_size=10,
                num_cpus=1,
                compute=ray.data.ActorPoolStrategy(size=2),
                fn_constructor_kwargs={"llm": self.llm_options, "sampling_params": PARAMS},
            )
            .take_all()
        )
        answered.sort(key=lambda row: row["id"])
        expected = self.expected(prompts)
        self.assertEqual([row["answer"] for row in answered[:7] + answered[8:]], expected[:7] + expected[8:])
        self.assertIsNone(answered[7]["answer"])
        self.assertIn("exceed the context of 2048 tokens", answered[7]["error"])
        self.assertEqual({row["output_tokens"] for row in answered if row["error"] is None}, {12})

    def test_a_planned_job(self):
        heads = [[(17 * h + i) % 500 + 1 for i in range(64)] for h in range(6)]
        prompts = [heads[i % 6] + [i % 500 + 1, i // 2 + 1] for i in range(90)]
        answered = tactus.ray.generate(prompts, PARAMS, workers=2, costs=COSTS, llm=self.llm_options)
        self.assertEqual([row["answer"] for row in answered], self.expected(prompts))
        cached = sum(row["cached_tokens"] for row in answered)
        # Each worker computes each common prefix once: at most one miss per prefix and shard.
        self.assertGreaterEqual(cached, (90 - 2 * 6) * 48)

    def test_each_worker_gets_one_shard(self):
        prompts = [[i + 1] * 20 for i in range(40)]
        planned = tactus.plan(prompts, max_tokens=8, costs=COSTS, kv_tokens=10000, shards=2)
        dataset = tactus.ray.shard_dataset([{"prompt": p} for p in prompts], planned)
        blocks = [ray.get(ref) for ref in dataset.to_arrow_refs()]
        self.assertEqual([block.column(tactus.ray.ROW_COLUMN).to_pylist() for block in blocks], planned.shards)
        with self.assertRaisesRegex(ValueError, "1 for a plan of 40"):
            tactus.ray.shard_dataset([{}], planned)

    def start_serve(self):
        port = free_port()
        self.addCleanup(serve.shutdown)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        return port

    def test_a_client_disconnect_ends_its_request(self):
        port = self.start_serve()
        handle = serve.run(tactus.ray.deployment(self.llm_options, ray_actor_options={"num_cpus": 1}), route_prefix="/")
        body = json.dumps({"prompt": "a", "stream": True, "n": 64, "max_tokens": 1900, "ignore_eos": True}).encode()
        for streamed in (True, False):
            with self.subTest(streamed=streamed), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                before = handle.outcome.remote().result()["requests"]["failed"]
                sent = body if streamed else body.replace(b"true", b"false", 1)
                client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent)
                if streamed:
                    self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200"))
                else:
                    steps = handle.outcome.remote().result()["steps"]
                    wait_until(lambda: handle.outcome.remote().result()["steps"] > steps + 10, "it runs")
                client.close()
                wait_until(
                    lambda: handle.outcome.remote().result()["requests"]["failed"] == before + 1,
                    "its request is cancelled",
                )

    def test_a_deployment(self):
        port = self.start_serve()
        serve.run(
            tactus.ray.deployment(self.llm_options, num_replicas=2, ray_actor_options={"num_cpus": 0.5}),
            route_prefix="/",
        )

        def post(body, data=None):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", data or json.dumps(body).encode())
            return urllib.request.urlopen(request, timeout=60)

        with post({"prompt": "served", **PARAMS}) as response:
            answer = json.load(response)
        self.assertEqual([output["text"] for output in answer["outputs"]], self.expected(["served"]))
        self.assertEqual(answer["usage"], {"completion_tokens": 12})
        with post({"prompt": "served", "stream": True, **PARAMS}) as response:
            pieces = [json.loads(line) for line in response]
        self.assertEqual("".join(piece["text"] for piece in pieces), answer["outputs"][0]["text"])
        self.assertEqual(pieces[-1]["finish_reason"], "length")
        with post({"messages": [{"role": "user", "content": "hi"}], **PARAMS}) as response:
            self.assertEqual(len(json.load(response)["outputs"][0]["token_ids"]), 12)
        for body, data, message in [
            ({"prompt": "a", "temperature": -1}, None, "temperature: -1"),
            ({"prompt": "a", "best": 1}, None, "'best'"),
            ({}, None, "either prompt or messages"),
            (None, b"{", "line 1"),
            (None, b"[]", "JSON object"),
        ]:
            with self.subTest(message=message):
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    post(body, data)
                with caught.exception:
                    self.assertEqual(caught.exception.code, 400)
                    self.assertIn(message, json.load(caught.exception)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
