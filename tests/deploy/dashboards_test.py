"""Rules and dashboards with a real server: it has every metric that they name, and a real Prometheus that scrapes it
has data for every panel."""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request

import metric_names
from container_test import help_of
from prometheus_test import GRAFANA, PROMETHEUS, filled, fleet_metrics, panels, rules, yaml
from server_process import ServerProcess, wait_until

PICKER = pathlib.Path(os.environ["TACTUS_BINARY"] + "-epp")


def load_panels():
    spec = importlib.util.spec_from_file_location("panels", GRAFANA / "panels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def complete(server, **fields):
    body = json.dumps(
        {"model": "test-model", "prompt": "one two three", "max_tokens": 8, "ignore_eos": True, **fields}
    ).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


class Prometheus:
    """A Prometheus that scrapes these jobs, name -> URL, twice a second."""

    def __init__(self, jobs):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(PROMETHEUS / "tactus_rules.yaml"), str(PROMETHEUS / "fleet_rules.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [url.removeprefix("http://")]}]}
                for job, url in jobs.items()
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        for _ in range(5):  # another program may take the port in between
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            self.log = open(folder / "log", "w+b")
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yaml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=self.log,
                stderr=self.log,
                cwd=folder,
            )
            self.url = f"http://127.0.0.1:{port}"
            if (
                wait_until(
                    lambda: self.process.poll() is not None or self.ready(),
                    "Prometheus is ready",
                    about=self.last_lines,
                )
                and self.process.poll() is None
            ):
                return
            self.log.close()
        raise AssertionError("Prometheus does not start" + self.last_lines())

    def ready(self):
        try:
            return get(self.url + "/-/ready")
        except OSError:
            return False

    def last_lines(self):
        return "\n" + (pathlib.Path(self.folder.name) / "log").read_text(errors="replace")[-3000:]

    def query(self, expression):
        answer = json.loads(get(self.url + "/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        return answer["data"]["result"]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=30)
        self.log.close()
        self.folder.cleanup()


class Front:
    """A `tactus route` or `tactus epp` in front of one server; `port_flag` is the flag of its metrics port."""

    def __init__(self, command, port_flag, replica):
        self.log = tempfile.NamedTemporaryFile()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [*command, port_flag, str(port), "--replicas", replica],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def __enter__(self):
        def answers():
            try:
                return self.process.poll() is not None or get(self.url + "/health")
            except OSError:
                return False

        wait_until(answers, "it answers", about=self.last_lines)
        if self.process.poll() is not None:
            raise AssertionError("it has ended" + self.last_lines())
        return self

    def last_lines(self):
        return "\n" + pathlib.Path(self.log.name).read_text(errors="replace")[-3000:]

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=60)
        self.log.close()


@unittest.skipIf(yaml is None, "this Python has no PyYAML; scripts/test.sh makes one in .venv")
class DashboardsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = tempfile.TemporaryDirectory()
        cls.server = ServerProcess(
            "--files-dir",
            pathlib.Path(cls.files.name) / "files",
            "--gate",
            "predict",
            "--kv-cache-dir",
            pathlib.Path(cls.files.name) / "kv",
            "--kv-cache-dir-size",
            "256MiB",
            "--slo-class",
            "chat:ttft=10s,tbt=5s",
            real_model=False,
        )

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        cls.files.cleanup()
        assert status == 0, status

    def work(self):
        complete(self.server, slo={"class": "chat"})
        complete(self.server, slo={"class": "chat"})
        complete(self.server, slo={"jct_ms": 10}, max_tokens=1500)  # which takes longer than its objective

    def test_a_server_has_every_metric_that_rules_and_dashboards_name(self):
        self.work()
        text = get(self.server.url + "/metrics")
        types = metric_names.families(text)
        recorded = {rule["record"] for rule in rules() if "record" in rule}
        elsewhere = metric_names.series({name: entry["type"] for name, entry in fleet_metrics().items()}) | {"up"}
        known = metric_names.series(types) | recorded | elsewhere
        named = [(f"{board}: {panel}", expression) for board, panel, expression in panels()]
        named += [(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]
        for where, expression in named:
            with self.subTest(where=where):
                missing = {name for name in metric_names.named(filled(expression))} - known
                self.assertEqual(missing, set())
                for name, label in metric_names.labels_named(filled(expression)):
                    sample = re.search(rf"(?m)^{name}\{{(.*)\}} ", text)
                    if sample and label not in ("instance", "job"):
                        self.assertIn(label, re.findall(r'(\w+)="', sample.group(1)), f"a label of {name}")

    def test_every_metric_is_shown_somewhere(self):
        types = metric_names.families(get(self.server.url + "/metrics"))
        shown = {
            re.sub("_(bucket|sum|count)$", "", name)
            for _, _, expression in panels()
            for name in metric_names.named(filled(expression))
        }
        shown |= {name for _, _, expression in panels() for name in metric_names.named(filled(expression))}
        not_shown = set(load_panels().NOT_SHOWN)
        self.assertEqual(
            set(types) - shown - not_shown, set(), "deploy/grafana/panels.py: add a panel, or a reason to NOT_SHOWN"
        )
        self.assertEqual(not_shown & (shown - {""}), set(), "shown all the same")
        self.assertEqual(not_shown - set(types), set(), "no metrics of a server")

    @unittest.skipIf(help_of("route") is None, "this program has no command route")
    def test_a_router_has_the_metrics_of_the_list(self):
        with Front([os.environ["TACTUS_BINARY"], "route"], "--port", self.server.url) as router:
            wait_until(
                lambda: 'tactus_route_replicas{state="ready"} 1' in get(router.url + "/metrics"),
                "it sees the replica",
                about=router.last_lines,
            )
            complete(router)
            self.check_metrics("router", get(router.url + "/metrics"))

    @unittest.skipUnless(PICKER.exists(), "this program has no endpoint picker")
    def test_an_endpoint_picker_has_the_metrics_of_the_list(self):
        with Front([PICKER, "--grpc-port", "0", "--health-port", "0"], "--metrics-port", self.server.url) as picker:
            ready = re.compile(r"(?m)^tactus_epp_endpoint_ready\{.*\} 1$")
            wait_until(
                lambda: ready.search(get(picker.url + "/metrics")), "it sees the replica", about=picker.last_lines
            )
            self.check_metrics("endpoint picker", get(picker.url + "/metrics"))

    def check_metrics(self, part, text):
        listed = json.loads((PROMETHEUS / "fleet_metrics.json").read_text())[part]
        prefix = next(iter(listed)).rsplit("_", 1)[0].split("_")[1]
        types = {
            name: kind for name, kind in metric_names.families(text).items() if name.startswith(f"tactus_{prefix}_")
        }
        self.assertEqual(
            types, {name: entry["type"] for name, entry in listed.items()}, "deploy/prometheus/fleet_metrics.json"
        )
        for name, entry in listed.items():
            for labels in re.findall(rf"(?m)^{name}{{(.*)}} ", text):
                self.assertEqual(sorted(re.findall(r'(\w+)="', labels)), sorted(entry["labels"]), name)

    @unittest.skipIf(shutil.which("prometheus") is None, "no prometheus; scripts/setup.sh test installs Debian's")
    def test_a_prometheus_that_scrapes_it_answers_every_panel(self):
        jobs = {"tactus-replicas": self.server.url}
        with contextlib.ExitStack() as fronts:
            if help_of("route") is not None:
                router = fronts.enter_context(Front([os.environ["TACTUS_BINARY"], "route"], "--port", self.server.url))
                wait_until(
                    lambda: 'tactus_route_replicas{state="ready"} 1' in get(router.url + "/metrics"),
                    "it sees the replica",
                    about=router.last_lines,
                )
                jobs["tactus-router"] = router.url
            if PICKER.exists():
                jobs["tactus-epp"] = fronts.enter_context(
                    Front([PICKER, "--grpc-port", "0", "--health-port", "0"], "--metrics-port", self.server.url)
                ).url
            prometheus = Prometheus(jobs)
            self.addCleanup(prometheus.close)
            wait_until(
                lambda: len(prometheus.query("up == 1")) == len(jobs), "it scrapes all", about=prometheus.last_lines
            )

            def work():
                self.work()
                if "tactus-router" in jobs:
                    complete(router)

            work()
            # Rates need two samples after it.
            wait_until(
                lambda: prometheus.query("increase(tactus_steps_total[1m]) > 0"),
                "it has seen the work",
                about=prometheus.last_lines,
            )
            work()
            samples = "".join(get(url + "/metrics") for url in jobs.values())
            answered = 0
            for board, panel, expression in panels():
                names = metric_names.named(filled(expression)) - {"up"}
                if board != "tactus.json" and not all(re.search(rf"(?m)^{name}[ {{]", samples) for name in names):
                    continue  # of a part that is missing, or without events to count
                query = filled(expression).replace('=~"m"', '=~".*"').replace('=~"r"', '=~".*"')
                with self.subTest(board=board, panel=panel):
                    wait_until(
                        lambda: prometheus.query(query),
                        f"an answer to {query}",
                        limit_s=10,
                        about=prometheus.last_lines,
                    )
                answered += board != "tactus.json"
            self.assertGreaterEqual(answered, 10 * (len(jobs) > 1))
            groups = json.loads(get(prometheus.url + "/api/v1/rules"))["data"]["groups"]
            failed = [
                (rule["name"], rule["lastError"])
                for group in groups
                for rule in group["rules"]
                if rule.get("lastError")
            ]
            self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main()
