"""deploy/ray on a real local Ray cluster: two replicas that stream to the official client, report their health and
their address for Prometheus, and are restarted when their server dies."""

import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request
from unittest import mock

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # disables usage reports
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "120"  # on a busy machine
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)  # otherwise Ray writes a token into the home folder

try:
    import ray
    import yaml
    from ray import serve
    from ray.serve.schema import ServeDeploySchema
except ImportError:
    ray = None
else:
    import tactus_serve

from openai import APIStatusError, OpenAI
from server_process import CHAT_TEMPLATE, TINY_CONFIG, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "fleet-key"
NO_RAY = "this Python has no Ray; scripts/test.sh slow makes one in .venv-ray"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children_of(binary):
    """Processes that run the program, by their command lines."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if words[0] == binary and "serve" in words:
            found[int(path.parent.name)] = words
    return found


def parent_of(process):
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


@unittest.skipIf(ray is None, NO_RAY)
class RayFleetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(TINY_CONFIG))
        (folder / "model/chat.jinja").write_text(CHAT_TEMPLATE)
        # A unique name, to find its processes.
        cls.binary = str(folder / "tactus-under-test")
        shutil.copy(os.environ["TACTUS_BINARY"], cls.binary)
        cls.targets = folder / "targets"
        os.environ["TACTUS_API_KEY"] = KEY
        cls.addClassCleanup(os.environ.pop, "TACTUS_API_KEY")
        ray.init(
            num_cpus=2,
            _node_ip_address="127.0.0.1",
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
        )
        cls.port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": cls.port})
        cls.handle = serve.run(
            tactus_serve.app(
                {
                    "model": str(folder / "model"),
                    "replicas": "2",
                    "cpus": "0.5",
                    "binary": cls.binary,
                    "targets_dir": str(cls.targets),
                    "start_limit_s": "100",
                    "stop_limit_s": "10",
                    "arguments": (
                        f"--load-format dummy --chat-template {folder}/model/chat.jinja --served-model-name tiny "
                        "--kv-cache-memory 64MiB"
                    ),
                }
            ),
            name="fleet",
            route_prefix="/",
        )
        cls.client = OpenAI(base_url=f"http://127.0.0.1:{cls.port}/v1", api_key=KEY, max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        serve.shutdown()
        ray.shutdown()
        wait_until(lambda: not children_of(cls.binary), "no server is left", about=lambda: str(children_of(cls.binary)))
        assert not list(cls.targets.glob("*.json")), "files of replicas that are gone"
        cls.folder.cleanup()

    def get(self, path):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30)

    def replicas(self):
        return serve.status().applications["fleet"].deployments["tactus"]

    def addresses(self):
        return sorted(json.loads(path.read_text())[0]["targets"][0] for path in self.targets.glob("*.json"))

    def counted(self):
        """Requests that each server has ended."""
        counts = {}
        for address in self.addresses():
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
                lines = [
                    line
                    for line in response.read().decode().splitlines()
                    if line.startswith("vllm:request_success_total")
                ]
            counts[address] = sum(float(line.rsplit(" ", 1)[1]) for line in lines)
        return counts

    def test_a_stream_and_an_answer(self):
        fields = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 12,
            "temperature": 0,
            "extra_body": {"ignore_eos": True},
        }
        whole = self.client.chat.completions.create(**fields)
        self.assertEqual((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 12))
        chunks = list(
            self.client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertGreater(len(chunks), 3, "it came as one piece")
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])

    def test_pieces_arrive_during_generation(self):
        stream = self.client.completions.create(
            model="tiny", prompt="a", stream=True, n=8, max_tokens=1500, extra_body={"ignore_eos": True}
        )
        before = self.counted()
        next(iter(stream))
        self.assertEqual(self.counted(), before, "the first piece came after the end")
        stream.close()
        # A client that goes away ends its request.
        aborted = lambda: sum(self.counted().values()) > sum(before.values())  # noqa: E731
        wait_until(aborted, "the request of a client that left is cancelled", about=lambda: str(self.counted()))

    def test_errors_are_the_server_s(self):
        with self.assertRaises(APIStatusError) as caught:
            self.client.completions.create(model="tiny", prompt="a", temperature=-1)
        self.assertEqual((caught.exception.status_code, caught.exception.body["param"]), (400, "temperature"))
        with (
            OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="wrong", max_retries=0) as stranger,
            self.assertRaises(APIStatusError) as caught,
        ):
            stranger.completions.create(model="tiny", prompt="a")
        self.assertEqual(caught.exception.status_code, 401)

    def test_both_replicas_work_and_report_their_health(self):
        self.assertEqual(len(self.addresses()), 2)
        self.assertEqual(self.replicas().replica_states, {"RUNNING": 2})
        for path in ("/health", "/ready", "/version", "/metrics"):
            with self.get(path) as response:
                self.assertEqual(response.status, 200, path)
        with self.get("/-/healthz") as response:  # Ray's own endpoint
            self.assertEqual(response.read(), b"success")
        before = self.counted()
        for i in range(40):
            self.client.completions.create(model="tiny", prompt=f"request {i}", max_tokens=1)
        after = self.counted()
        self.assertEqual(sum(after.values()) - sum(before.values()), 40)
        self.assertGreater(min(after[a] - before[a] for a in after), 0, "one replica had nothing to do")

    def test_a_server_that_dies_is_started_again(self):
        before = children_of(self.binary)
        self.assertEqual(len(before), 2)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        self.expect_another_than(victim)

    def test_a_killed_replica_ends_its_server(self):
        victim = min(children_of(self.binary))
        os.kill(parent_of(parent_of(victim)), signal.SIGKILL)  # the server's guard is between them
        self.expect_another_than(victim)

    def expect_another_than(self, victim):
        wait_until(
            lambda: len(children_of(self.binary)) == 2 and victim not in children_of(self.binary),
            "another server",
            limit_s=120,
            about=lambda: str(self.replicas()),
        )
        wait_until(
            lambda: self.replicas().replica_states == {"RUNNING": 2} and len(self.addresses()) == 2,
            "two replicas run",
            limit_s=120,
            about=lambda: f"{self.replicas()} {self.addresses()}",
        )
        for i in range(10):
            self.client.completions.create(model="tiny", prompt=f"again {i}", max_tokens=1)


@unittest.skipIf(ray is None, NO_RAY)
class RayAppTest(unittest.TestCase):
    """Tests without a cluster."""

    def setUp(self):
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("TACTUS_API_KEY", None)

    def made(self, **args):
        """(the program's arguments, a replica's environment) that app() builds from these."""
        deployment = tactus_serve.app({"model": "a-model", **args})._bound_deployment
        return deployment.init_args[0], deployment.ray_actor_options["runtime_env"]["env_vars"]

    def test_wrong_arguments_are_reported(self):
        with self.assertRaisesRegex(ValueError, "unknown arguments .*modle"):
            tactus_serve.app({"modle": "a"})
        with self.assertRaisesRegex(ValueError, "give model=PATH"):
            tactus_serve.app({})
        with self.assertRaisesRegex(FileNotFoundError, "no program 'no-such-tactus'"):
            tactus_serve.TactusServer(["a"], binary="no-such-tactus")
        with self.assertRaisesRegex(RuntimeError, "(?s)did not start.*no-such-model"):
            tactus_serve.TactusServer(["/no-such-model"], binary=os.environ["TACTUS_BINARY"], start_limit_s=30)

    def test_no_flag_is_given_twice(self):
        own = ("--host", "--port", "--shutdown-timeout", "--max-connections-per-client", "--max-streams-per-client")
        page = (ROOT / "docs/how-to/ray_serve.md").read_text()
        for flag in own:
            self.assertIn(f"`{flag}`", page)
            for given in (f"{flag} 1", f"{flag}=1", f"--load-format dummy {flag}=1"):
                with (
                    self.subTest(given=given),
                    self.assertRaisesRegex(ValueError, f"arguments: {flag} cannot be given"),
                ):
                    self.made(arguments=given)
        for given in ("", "--threads 3", "--threads=3", "--kv-cache-memory 64MiB"):
            words, _ = self.made(arguments=given, cpus="2")
            command = [
                os.environ["TACTUS_BINARY"],
                "serve",
                *words,
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--shutdown-timeout",
                "1s",
                "--print-config",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            with self.subTest(given=given):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"\nthreads = {3 if 'threads' in given else 2}\n", done.stdout)
        words, _ = self.made()  # includes the arguments that TactusServer adds
        with (
            mock.patch.object(subprocess, "Popen", side_effect=InterruptedError) as started,
            self.assertRaises(InterruptedError),
        ):
            tactus_serve.TactusServer(words, binary=os.environ["TACTUS_BINARY"])
        command = started.call_args.args[0]
        self.assertEqual({word for word in command if word.startswith("--")} - {"--threads"}, set(own))

    def test_the_key_is_that_of_the_environment(self):
        self.assertEqual(self.made()[1], {})
        os.environ["TACTUS_API_KEY"] = KEY
        self.assertEqual(self.made()[1], {"TACTUS_API_KEY": KEY})
        os.environ["TACTUS_API_KEY"] = ""
        with self.assertRaisesRegex(ValueError, "TACTUS_API_KEY is empty"):
            self.made()

    def test_the_configuration_file_fits(self):
        file = ROOT / "deploy/ray/serve.yaml"
        schema = ServeDeploySchema.model_validate(yaml.safe_load(file.read_text()))
        application = schema.applications[0]
        self.made(**application.args)
        # Without a key it would serve every client: the file has a place for the key, and does not start without one.
        os.environ.update(application.runtime_env["env_vars"])
        with self.assertRaisesRegex(ValueError, "TACTUS_API_KEY is empty"):
            self.made(**application.args)


if __name__ == "__main__":
    unittest.main()
