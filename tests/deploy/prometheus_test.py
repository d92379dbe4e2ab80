"""deploy/prometheus and deploy/grafana with Debian's promtool: rules, their unit tests, configuration, the adapter's
queries, every panel's expression; and names that the parts share."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

import metric_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy/prometheus", ROOT / "deploy/grafana"
JOBS = {"tactus-replicas", "tactus-router", "tactus-epp"}
VALUES = {"$__rate_interval": "1m", "$model": "m", "$replica": "r"}


def filled(expression):
    for name, value in VALUES.items():
        expression = expression.replace(name, value)
    return expression


def panels():
    """(dashboard, panel, expression) of every target."""
    for path in sorted(GRAFANA.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield path.name, panel["title"], target["expr"]


def rules():
    return [
        rule
        for path in (PROMETHEUS / "tactus_rules.yaml", PROMETHEUS / "fleet_rules.yaml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


def fleet_metrics():
    """Metrics of a fleet's programs in addition to a single server's: name -> type and labels."""
    return {
        name: entry
        for part in json.loads((PROMETHEUS / "fleet_metrics.json").read_text()).values()
        for name, entry in part.items()
    }


def promtool(*arguments, cwd=PROMETHEUS):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=cwd)


@unittest.skipIf(yaml is None, "this Python has no PyYAML; scripts/test.sh makes one in .venv")
@unittest.skipIf(shutil.which("promtool") is None, "no promtool; scripts/setup.sh test installs Debian's")
class PrometheusTest(unittest.TestCase):
    def accept(self, *arguments, **kwargs):
        done = promtool(*arguments, **kwargs)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def check_expressions(self, expressions):
        """Checks each expression as a recording rule in a separate file."""
        with tempfile.TemporaryDirectory() as folder:
            groups = [{"name": f"g{i}", "rules": [{"record": "a:b", "expr": e}]} for i, e in enumerate(expressions)]
            (pathlib.Path(folder) / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
            return promtool("check", "rules", "rules.yaml", cwd=folder)

    def test_rules_and_configuration(self):
        self.accept("check", "rules", "tactus_rules.yaml", "fleet_rules.yaml")
        output = self.accept("check", "config", "prometheus.yaml")
        self.assertIn("2 rule files found", output)
        for path in PROMETHEUS.glob("targets/*.json"):
            self.assertTrue(all(set(entry) == {"targets", "labels"} for entry in json.loads(path.read_text())))

    def test_the_rules_fire_as_described(self):
        self.accept("test", "rules", "tactus_rules_test.yaml")
        tested = (PROMETHEUS / "tactus_rules_test.yaml").read_text()
        untested = [
            rule["alert"]
            for rule in rules()
            if "alert" in rule and not re.search(rf"alertname: {rule['alert']}\b", tested)
        ]
        self.assertEqual(untested, [], "alerts without a test")

    def test_a_wrong_rule_fails_its_test(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in PROMETHEUS.glob("*.yaml"):
                text = path.read_text()
                if path.name == "tactus_rules.yaml":
                    self.assertIn("vllm:kv_cache_usage_perc > 0.95", text)
                    text = text.replace("vllm:kv_cache_usage_perc > 0.95", "vllm:kv_cache_usage_perc > 0.995")
                (pathlib.Path(folder) / path.name).write_text(text)
            done = promtool("test", "rules", "tactus_rules_test.yaml", cwd=folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("TactusKvFull", done.stdout + done.stderr)

    def test_every_alert_has_severity_summary_and_documentation(self):
        page = (ROOT / "docs/how-to/deploy.md").read_text()
        for rule in rules():
            if "alert" in rule:
                with self.subTest(alert=rule["alert"]):
                    self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))
                    self.assertTrue(rule["annotations"]["summary"])
                    self.assertIn(rule["alert"], page, "docs/how-to/deploy.md does not say what to do")

    def test_jobs_have_one_name_everywhere(self):
        texts = [rule["expr"] for rule in rules()] + [expression for _, _, expression in panels()]
        texts += [
            (ROOT / "deploy/kubernetes/fleet/components" / path).read_text()
            for path in ("keda/scaled_object.yaml", "monitoring/service_monitor.yaml")
        ]
        used = {job for text in texts for job in re.findall(r'job="([^"]+)"', text)}
        self.assertLessEqual(used, JOBS)
        scraped = set(re.findall(r"job_name: (\S+)", (PROMETHEUS / "prometheus.yaml").read_text()))
        self.assertEqual(scraped, JOBS)

    def test_the_autoscaler_queries_the_adapters_metrics(self):
        custom = yaml.safe_load((PROMETHEUS / "adapter_rules.yaml").read_text())["rules"]["custom"]
        expressions = []
        for rule in custom:
            self.assertEqual(set(rule), {"seriesQuery", "resources", "name", "metricsQuery"})
            name = re.search(r'__name__="([^"]+)"', rule["seriesQuery"]).group(1)
            query = (
                rule["metricsQuery"]
                .replace("<<.Series>>", name)
                .replace("<<.LabelMatchers>>", 'namespace="n",pod=~"a|b"')
                .replace("<<.GroupBy>>", "pod")
            )
            self.assertNotIn("<<", query)
            expressions += [rule["seriesQuery"], query]
        self.assertEqual(self.check_expressions(expressions).returncode, 0)
        scaler = yaml.safe_load((ROOT / "deploy/kubernetes/fleet/components/hpa/hpa.yaml").read_text())
        self.assertEqual(
            {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]},
            {rule["name"]["as"] for rule in custom},
        )

    def test_keda_s_queries_and_kserve_s_parse(self):
        expressions = [
            line.split("query:", 1)[1].strip()
            for path in (ROOT / "deploy").rglob("*.yaml")
            for line in path.read_text().splitlines()
            if line.strip().startswith("query:")
        ]
        self.assertGreaterEqual(len(expressions), 3)
        done = self.check_expressions(expressions)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_panel_s_expression_parses(self):
        found = list(panels())
        self.assertGreater(len(found), 60)
        done = self.check_expressions([filled(expression) for _, _, expression in found])
        if done.returncode:  # names the panel
            for dashboard, panel, expression in found:
                with self.subTest(dashboard=dashboard, panel=panel):
                    one = self.check_expressions([filled(expression)])
                    self.assertEqual(one.returncode, 0, one.stdout + one.stderr)
        self.assertNotEqual(self.check_expressions(["sum by (a (b)"]).returncode, 0)

    def test_dashboards_are_those_of_the_panels(self):
        done = subprocess.run(
            [sys.executable, str(GRAFANA / "make_dashboards.py"), "--check"],
            capture_output=True,
            text=True,
            timeout=30,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for path in GRAFANA.glob("*.json"):
            board = json.loads(path.read_text())
            with self.subTest(dashboard=path.name):
                ids = [panel["id"] for panel in board["panels"]]
                self.assertEqual(len(ids), len(set(ids)))
                places = [
                    (p["gridPos"]["x"] + i, p["gridPos"]["y"] + j)
                    for p in board["panels"]
                    for i in range(p["gridPos"]["w"])
                    for j in range(p["gridPos"]["h"])
                ]
                self.assertEqual(len(places), len(set(places)), "panels on top of each other")
                known = {choice["name"] for choice in board["templating"]["list"]} | {"__rate_interval"}
                self.assertLessEqual(set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))), known)

    def test_metrics_of_routers_and_pickers_are_those_of_the_list(self):
        listed = fleet_metrics()
        series = metric_names.series({name: entry["type"] for name, entry in listed.items()})
        texts = [rule["expr"] for rule in rules()] + [expression for _, _, expression in panels()]
        used = {
            name
            for text in texts
            for name in metric_names.named(filled(text))
            if re.match("tactus_(route|epp|fleet)_", name)
        }
        self.assertLessEqual(used, series)
        self.assertEqual(
            {re.sub("_(bucket|sum|count)$", "", name) for name in used}, set(listed), "a metric that nothing shows"
        )
        for text in texts:
            for name, label in metric_names.labels_named(filled(text)):
                if name in series:
                    family = listed.get(name) or listed[name.rsplit("_", 1)[0]]
                    self.assertIn(label, [*family["labels"], "instance"], f"{name} in {text}")


if __name__ == "__main__":
    unittest.main()
