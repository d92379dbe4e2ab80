"""The manifests in deploy/: every object fits its schema strictly, command lines are valid for this program, and
references exist."""

import copy
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from container_test import fleet_secret_is_built, has_flag, help_of

try:
    import crds
    import jsonschema
    import kubernetes_validate
    import kustomize
    import yaml
except ImportError:
    kubernetes_validate = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
KSERVE = ROOT / "deploy/kserve"
OVERLAYS = {folder.name: folder for folder in sorted((KUBERNETES / "fleet/overlays").iterdir())}
OVERLAYS |= {f"kserve-{name}": KSERVE / name for name in ("router", "gateway")}
NO_PACKAGE = "this Python has no kubernetes-validate; scripts/test.sh makes one in .venv"
REFUSED = (
    (ValueError,)
    if kubernetes_validate is None
    else (ValueError, jsonschema.ValidationError, kubernetes_validate.ValidationError)
)


def pod_specs(item):
    """(labels, pod's spec) of an object that creates pods."""
    if item["kind"] == "Pod":
        yield item["metadata"].get("labels", {}), item["spec"]
    elif item["kind"] in ("Deployment", "Job"):
        yield item["spec"]["template"]["metadata"]["labels"], item["spec"]["template"]["spec"]
    elif item["kind"] in crds.SCHEMAS:
        for pod in crds.pods(item["kind"], item):
            yield pod["metadata"].get("labels", {}), pod["spec"]


def selects(selector, labels):
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        e["operator"] == "In" and labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", [])
    )


@unittest.skipIf(kubernetes_validate is None, NO_PACKAGE)
class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = [
            p
            for p in sorted((ROOT / "deploy").rglob("*.yaml"))
            if p.is_relative_to(KUBERNETES) or p.is_relative_to(KSERVE)
        ]
        cls.files = [
            (str(p.relative_to(ROOT)), item)
            for p in files
            if p.name != "kustomization.yaml"
            for item in kustomize.load(p)
        ]
        cls.fleets = {name: kustomize.build(folder) for name, folder in OVERLAYS.items()}

    def objects(self):
        return self.files + [(name, item) for name, items in self.fleets.items() for item in items]

    def one(self, kind, name=None, of=None):
        found = [
            item
            for item in of or [item for _, item in self.files]
            if item["kind"] == kind and name in (None, item["metadata"]["name"])
        ]
        self.assertEqual(len(found), 1, f"{kind} {name or ''}")
        return copy.deepcopy(found[0])

    # --- Schemas ---

    def test_every_object_fits_its_schema(self):
        self.assertGreater(len(self.files), 30)
        for name, item in self.objects():
            with self.subTest(file=name, kind=item["kind"], name=item["metadata"]["name"]):
                crds.check(item)

    def test_the_check_notices_a_wrong_field(self):
        def changed(kind, name, *path, value):
            item = inner = self.one(kind, name)
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = value
            return item

        container = ("leaderWorkerTemplate", "workerTemplate", "spec", "containers", 0)
        for item in [
            changed("Job", None, "spec", "completionModus", value="Indexed"),
            changed("InferencePool", None, "spec", "targetPort", value=8000),
            changed("InferencePool", None, "apiVersion", value="inference.networking.x-k8s.io/v1alpha2"),
            changed("HTTPRoute", None, "spec", "rules", 0, "timeouts", "request", value="ten"),
            changed("ScaledObject", None, "spec", "triggers", 0, "metadata", "threshold", value=4),
            changed("ScaledObject", None, "metadata", "label", value={}),
            changed("LeaderWorkerSet", None, "spec", *container, "arg", value=[]),
            changed("ServingRuntime", None, "spec", "containers", 0, "ports", 0, "containerPort", value="8080"),
            changed(
                "InferenceService", None, "spec", "predictor", "model", "env", 0, "valueFrom", value={"secret": "a"}
            ),
        ]:
            with self.subTest(kind=item["kind"]), self.assertRaises(REFUSED):
                crds.check(item)

    @unittest.skipUnless(os.environ.get("TACTUS_CRDS"), "TACTUS_CRDS names no folder of published definitions")
    def test_the_published_definitions_agree(self):
        found = 0
        for kind in crds.SCHEMAS:
            schema = crds.published(kind, os.environ["TACTUS_CRDS"])
            with self.subTest(kind=kind):
                self.assertIsNotNone(schema, f"not in TACTUS_CRDS: {crds.SCHEMAS[kind]['source']}")
                self.assertEqual(crds.looser(crds.SCHEMAS[kind]["spec"], schema), [])
                for _, item in self.objects():
                    if item["kind"] == kind:
                        jsonschema.validate(item, crds.whole(schema), cls=jsonschema.Draft7Validator)
                        found += 1
        self.assertGreater(found, len(crds.SCHEMAS))

    @unittest.skipIf(shutil.which("kubectl") is None, "no kubectl, whose kustomize could be compared with")
    def test_kubectl_renders_every_overlay_equally(self):
        def sorted_(items):
            return sorted(items, key=lambda o: (o["kind"], o["metadata"]["name"]))

        for name, folder in OVERLAYS.items():
            done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
            with self.subTest(overlay=name):
                self.assertEqual(done.returncode, 0, done.stderr)
                made = sorted_(yaml.safe_load_all(done.stdout))
                self.assertEqual(
                    json.dumps(made, sort_keys=True, indent=1),
                    json.dumps(sorted_(self.fleets[name]), sort_keys=True, indent=1),
                )

    # --- Command lines ---

    def command_lines(self):
        """(where, words after `tactus`) of every container that runs it."""
        for name, item in self.objects():
            for _, spec in pod_specs(item):
                for container in spec["containers"]:
                    words = container.get("args", [])
                    if container.get("command", [""])[0] == "/bin/sh":
                        script = (
                            container["command"][2]
                            .replace("$((JOB_COMPLETION_INDEX + 1))", "1")
                            .replace("$replicas", "http://a:1,http://b:1")
                        )
                        words = shlex.split(script[script.index("exec tactus ") + len("exec tactus ") :])
                    elif "command" in container:
                        continue
                    yield f"{name}: {item['kind']} {item['metadata']['name']}", words

    def test_the_program_accepts_the_command_lines(self):
        secret, seen, missing = fleet_secret_is_built(), set(), set()
        for where, words in self.command_lines():
            with self.subTest(where=where):
                command = (
                    words[0] if not words[0].startswith("-") else "serve"
                )  # arguments of a KServe model follow the runtime's
                seen.add(command)
                if help_of(command) is None:
                    missing.add(command)
                    continue
                kept = [w for w in words if secret or not w.startswith("--kv-secret-file")]
                for flag in [w.split("=")[0] for w in kept if w.startswith("--")]:
                    self.assertTrue(has_flag(command, flag), f"`tactus {command} --help` has no {flag}")
                kept = [w.replace("{{.Name}}", "a-model") for w in kept]
                arguments = kept[1:] if words[0] == command else kept
                done = subprocess.run(
                    [os.environ["TACTUS_BINARY"], command, *arguments, "--print-config"],
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(seen, {"serve", "route", "epp", "batch"})
        self.assertLessEqual(missing, {"route", "epp"})
        if missing:
            self.skipTest(f"this program has no command {', '.join(sorted(missing))}: their flags were not checked")

    def test_kserve_s_two_halves_are_one_command_line(self):
        runtime, service = self.one("ServingRuntime")["spec"], self.one("InferenceService")["spec"]["predictor"]
        self.assertEqual(service["model"]["runtime"], self.one("ServingRuntime")["metadata"]["name"])
        self.assertIn(service["model"]["modelFormat"]["name"], [f["name"] for f in runtime["supportedModelFormats"]])
        container = runtime["containers"][0]
        words = [w.replace("{{.Name}}", "a-model") for w in container["args"] + service["model"]["args"]]
        done = subprocess.run(
            [os.environ["TACTUS_BINARY"], *words, "--print-config"], capture_output=True, text=True, timeout=30
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            service["securityContext"]["fsGroup"],
            container["securityContext"]["runAsUser"],
            "the secret would be root's alone",
        )
        # The folder of its model is created and filled.
        claim, folder = service["model"]["storageUri"].removeprefix("pvc://").split("/")
        self.one("PersistentVolumeClaim", claim)
        for line in (
            rf"exec tactus-copy-model -- mkdir -p /models/{folder}",
            rf"cp \S+ tactus-copy-model:/models/{folder}/\S+",
        ):
            self.assertRegex((ROOT / "docs/how-to/kserve.md").read_text(), rf"(?m)^kubectl -n tactus {line}$")
        port = int(re.search(r"(?m)^port = (\d+)$", done.stdout).group(1))
        named = {
            str(port),
            *(str(p["containerPort"]) for p in container["ports"]),
            runtime["annotations"]["prometheus.kserve.io/port"],
            *(str(container[p]["httpGet"]["port"]) for p in ("startupProbe", "livenessProbe", "readinessProbe")),
        }
        self.assertEqual(named, {str(port)})

    def test_each_part_of_the_job_runs_once(self):
        spec = self.one("Job")["spec"]
        container = spec["template"]["spec"]["containers"][0]
        shards = {entry["name"]: entry["value"] for entry in container["env"]}["SHARDS"]
        self.assertEqual(
            (spec["completionMode"], spec["completions"], spec["parallelism"]), ("Indexed", int(shards), int(shards))
        )
        seen = set()
        for index in range(int(shards)):
            words = self.run_script(container["command"], SHARDS=shards, JOB_COMPLETION_INDEX=str(index))
            seen.add(words[words.index("--shard") + 1])
        self.assertEqual(seen, {f"{i}/{shards}" for i in range(1, int(shards) + 1)})

    def test_a_cell_s_router_knows_its_workers(self):
        cells = self.one("LeaderWorkerSet")
        template = cells["spec"]["leaderWorkerTemplate"]
        command = template["leaderTemplate"]["spec"]["containers"][0]["command"]
        words = self.run_script(command, HOSTNAME="tactus-cells-1", LWS_GROUP_SIZE=str(template["size"]))
        urls = next(w for w in words if w.startswith("--replicas=")).removeprefix("--replicas=").split(",")
        self.assertEqual(
            urls, [f"http://tactus-cells-1-{i}.{cells['metadata']['name']}:8000" for i in range(1, template["size"])]
        )

    def run_script(self, command, **environment):
        shell, flag, script = command
        return subprocess.run(
            [shell, flag, script.replace("exec tactus", "printf '%s\\n'")],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env=dict(os.environ, **environment),
        ).stdout.splitlines()

    def test_volumes_exist_and_are_filled_before_use(self):
        def claims(path):
            return {
                v["persistentVolumeClaim"]["claimName"]
                for item in kustomize.load(path)
                for _, spec in pod_specs(item)
                for v in spec.get("volumes", [])
                if "persistentVolumeClaim" in v
            }

        copiers = {name: path for path in KUBERNETES.glob("copy_*.yaml") for name in claims(path)}
        makers = {
            item["metadata"]["name"]: path
            for path in KUBERNETES.rglob("*.yaml")
            if path.name != "kustomization.yaml"
            for item in kustomize.load(path)
            if item["kind"] == "PersistentVolumeClaim"
        }
        for path in [p for p in KUBERNETES.rglob("*.yaml") if p.name != "kustomization.yaml"]:
            for name in claims(path):
                with self.subTest(file=path.name, volume=name):
                    self.assertNotEqual(makers.get(name), path, "nothing could be on the volume before it is used")
                    self.assertIn(name, makers)
                    self.assertIn(name, copiers, "nothing shows how to fill it")
        for path, copied in (
            (copiers["tactus-models"], "tactus-copy-model"),
            (copiers["tactus-batch"], "tactus-copy-batch"),
        ):
            pod = self.one("Pod", copied)["spec"]["containers"][0]
            for target in re.findall(rf"kubectl -n tactus cp \S+ {copied}:(\S+)", path.read_text()):
                self.assertIn(str(pathlib.Path(target).parent), [m["mountPath"] for m in pod["volumeMounts"]])
        # The job reads the files that are copied.
        words = self.one("Job")["spec"]["template"]["spec"]["containers"][0]["command"][2].split()
        for target in (words[words.index("batch") + 1], next(w for w in words if w.endswith(".gguf"))):
            self.assertIn(f"tactus-copy-batch:{target}\n", copiers["tactus-batch"].read_text())

    def test_commands_in_files_and_on_pages_name_existing_objects(self):
        for path in [
            *KUBERNETES.glob("*.yaml"),
            *((ROOT / "docs/how-to" / page) for page in ("deploy.md", "python.md", "kserve.md")),
        ]:
            for line in re.findall(r"(?m)^(?:#   )?(kubectl .*)$", path.read_text()):
                with self.subTest(file=path.name, line=line):
                    for name in re.findall(r"-[fk] (\S+)", line):
                        self.assertTrue(((path.parent if path.suffix == ".yaml" else ROOT) / name).exists())
                    for name in re.findall(r"\bpod/(\S+)|[ :](tactus-copy-[\w-]+):", line):
                        self.one("Pod", name[0] or name[1])
                    if not re.match(r"kubectl (create namespace|apply -k|kustomize) ", line):  # overlays set theirs
                        self.assertTrue(line.startswith("kubectl -n tactus "), "which namespace?")

    # --- Pods ---

    def test_every_pod_is_confined(self):
        for name, item in self.objects():
            if item["kind"] in ("ServingRuntime", "InferenceService"):  # two parts of one pod
                runtime, service = self.one("ServingRuntime")["spec"], self.one("InferenceService")["spec"]["predictor"]
                specs = [{**service, "containers": runtime["containers"]}]
                specs[0]["securityContext"] = {
                    **specs[0]["securityContext"],
                    **runtime["containers"][0]["securityContext"],
                }
            else:
                specs = [spec for _, spec in pod_specs(item)]
            for spec in specs:
                with self.subTest(file=name, kind=item["kind"], name=item["metadata"]["name"]):
                    self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                    self.assertEqual(spec["securityContext"]["runAsUser"], 10001)
                    self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertFalse(spec["automountServiceAccountToken"])
                    for container in spec["containers"]:
                        own = container["securityContext"]
                        self.assertEqual(
                            (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"], own["capabilities"]),
                            (False, True, {"drop": ["ALL"]}),
                        )
                        self.assertIn("memory", container["resources"]["limits"])
                        if container.get("command", [""])[0] != "sleep":
                            # A Service named tactus would make TACTUS_PORT=tcp://..., which is the option --port.
                            self.assertIs(spec.get("enableServiceLinks"), False)

    def test_no_pod_is_killed_while_it_drains(self):
        for name, item in self.objects():
            for _, spec in pod_specs(item):
                for container in spec["containers"]:
                    text = " ".join(container.get("args", []) + container.get("command", []))
                    if (
                        given := re.search(r"--shutdown-timeout=(\d+)s", text)
                    ) and "terminationGracePeriodSeconds" in spec:
                        pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                        with self.subTest(file=name, kind=item["kind"]):
                            self.assertGreater(spec["terminationGracePeriodSeconds"], pause + int(given.group(1)) + 10)

    def test_memory_is_enough_for_weights_and_kv(self):
        def bytes_of(text):
            number, unit = re.fullmatch(r"(\d+)([KMGT])iB?", text).groups()
            return int(number) << {"K": 10, "M": 20, "G": 30, "T": 40}[unit]

        containers = [
            (name, c)
            for name, item in self.objects()
            if item["kind"] not in ("ServingRuntime", "InferenceService")
            for _, spec in pod_specs(item)
            for c in spec["containers"]
        ]
        runtime, service = (
            self.one("ServingRuntime")["spec"]["containers"][0],
            self.one("InferenceService")["spec"]["predictor"]["model"],
        )
        containers.append(("deploy/kserve", {**runtime, "args": runtime["args"] + service["args"]}))
        seen = set()
        for name, container in containers:
            text = " ".join(container.get("args", []) + container.get("command", []))
            if given := re.search(r"--kv-cache-memory[= ](\S+)", text):
                seen.add(name)
                with self.subTest(file=name):
                    left = (
                        bytes_of(container["resources"]["limits"]["memory"]) - bytes_of(given.group(1)) - (2 << 30)
                    )  # as in docs/how-to/deploy.md
                    self.assertGreaterEqual(left, 512 << 20, "for weights")
                    self.assertEqual(
                        container["resources"]["requests"]["memory"], container["resources"]["limits"]["memory"]
                    )
        self.assertGreaterEqual(len(seen), 7)

    # --- References ---

    def kserve_pod(self):
        """(labels, pod's spec) of KServe's pods for our service: its label, and the runtime's containers."""
        runtime, service = self.one("ServingRuntime")["spec"], self.one("InferenceService")
        return {"serving.kserve.io/inferenceservice": service["metadata"]["name"]}, {
            "containers": runtime["containers"]
        }

    def test_a_fleet_refers_only_to_its_objects(self):
        for overlay, items in self.fleets.items():
            pods = [(labels, spec) for item in items for labels, spec in pod_specs(item)]
            replicas = pods + ([self.kserve_pod()] if overlay.startswith("kserve-") else [])
            names = {(item["kind"], item["metadata"]["name"]) for item in items}
            services = {item["metadata"]["name"]: item for item in items if item["kind"] == "Service"}
            self.assertEqual(len(names), len(items), f"{overlay}: two objects of one name")
            for item in items:
                with self.subTest(overlay=overlay, kind=item["kind"], name=item["metadata"]["name"]):
                    self.assertEqual(item["metadata"]["namespace"], "tactus")
                    spec = item["spec"]
                    if item["kind"] == "Service":
                        chosen = [s for labels, s in replicas if selects({"matchLabels": spec["selector"]}, labels)]
                        self.assertEqual(len(chosen), 1)
                        ports = {
                            port["name"]: port["containerPort"] for c in chosen[0]["containers"] for port in c["ports"]
                        }
                        for port in spec["ports"]:
                            self.assertIn(port["targetPort"], ports)
                    elif item["kind"] in ("PodDisruptionBudget", "Deployment"):
                        self.assertEqual(sum(selects(spec["selector"], labels) for labels, _ in pods), 1)
                    elif item["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
                        self.assertIn(("Deployment", spec["scaleTargetRef"]["name"]), names)
                        self.assertNotIn("replicas", self.one("Deployment", "tactus-replicas", of=items)["spec"])
                    elif item["kind"] == "InferencePool":
                        chosen = [s for labels, s in replicas if selects(spec["selector"], labels)]
                        self.assertEqual(
                            [p["containerPort"] for s in chosen for c in s["containers"] for p in c["ports"]],
                            [p["number"] for p in spec["targetPorts"]],
                        )
                        picker = spec["endpointPickerRef"]
                        self.assertIn(
                            picker["port"]["number"], [p["port"] for p in services[picker["name"]]["spec"]["ports"]]
                        )
                    elif item["kind"] == "HTTPRoute":
                        self.assertIn(("Gateway", spec["parentRefs"][0]["name"]), names)
                        self.assertIn(("InferencePool", spec["rules"][0]["backendRefs"][0]["name"]), names)
                    elif item["kind"] == "NetworkPolicy":
                        self.assertTrue(any(selects(spec["podSelector"], labels) for labels, _ in pods))
            for _, spec in pods:
                for container in spec["containers"]:
                    for word in container["args"]:
                        if word.startswith("--replicas-dns="):
                            name, port = word.removeprefix("--replicas-dns=").split(":")
                            self.assertEqual(
                                services[name]["spec"]["clusterIP"],
                                "None",
                                f"{overlay}: {word} must be a headless Service",
                            )
                            self.assertIn(int(port), [p["port"] for p in services[name]["spec"]["ports"]])
                    ports = {port["name"] for port in container["ports"]}
                    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                        port = container.get(probe, {}).get("httpGet", {}).get("port")
                        self.assertTrue(port is None or port in ports, f"{overlay}: {probe}: {port}")
                    self.assertLessEqual(
                        {m["name"] for m in container.get("volumeMounts", [])},
                        {v["name"] for v in spec.get("volumes", [])},
                    )
                for volume in spec.get("volumes", []):
                    if claim := volume.get("persistentVolumeClaim"):
                        self.assertIn(("PersistentVolumeClaim", claim["claimName"]), names)

    def test_files_named_on_the_operators_pages_exist(self):
        for page in ("deploy.md", "ray_serve.md", "kserve.md"):
            for name in set(re.findall(r"(?<![\w/])deploy/[\w./*-]*[\w*]", (ROOT / "docs/how-to" / page).read_text())):
                with self.subTest(page=page, name=name):
                    self.assertTrue(list(ROOT.glob(name)), "is not there")

    def test_routes_without_a_key_are_listed(self):
        routes = re.findall(
            r'\{"([^"]+)", Route::\w+, [^,]+, (true|false)\}', (ROOT / "src/serve/routes.cc").read_text()
        )
        self.assertGreater(len(routes), 20)
        ask_for_none = {path for path, is_open in routes if is_open == "true"}
        for page in ("how-to/deploy.md", "reference/reliability.md"):
            found = re.search(
                r"((?:`/[^`]*`(?:,| and)\s+)+`/[^`]*`)\s+(?:ask\s+for|need)\s+no\s+key",
                (ROOT / "docs" / page).read_text(),
            )
            with self.subTest(page=page):
                self.assertIsNotNone(found, "names none")
                self.assertEqual(set(re.findall(r"`([^`]*)`", found.group(1))), ask_for_none)

    def test_secrets_are_those_that_the_operators_page_makes(self):
        page = (ROOT / "docs/how-to/deploy.md").read_text()
        made = re.search(r"kubectl -n tactus create secret generic (\S+)((?:.*\\\n)*.*)", page)
        self.assertIsNotNone(made, "docs/how-to/deploy.md makes no secret")
        keys = set(re.findall(r"--from-(?:literal|file)=\"?([\w-]+)=", made.group(2)))
        used = set()
        for name, item in self.objects():
            for _, spec in pod_specs(item):
                for entry in [
                    e["valueFrom"]["secretKeyRef"]
                    for c in spec["containers"]
                    for e in c.get("env", [])
                    if "valueFrom" in e
                ]:
                    used.add((entry["name"], entry["key"]))
                for volume in [v["secret"] for v in spec.get("volumes", []) if "secret" in v]:
                    used |= {(volume["secretName"], entry["key"]) for entry in volume["items"]}
        self.assertEqual(used, {(made.group(1), key) for key in keys})

    def test_network_policies_let_a_fleet_work(self):
        def peer_fits(peer, labels, namespace):
            space = peer.get("namespaceSelector")
            if (
                space is None
                and namespace != "tactus"
                or space is not None
                and not selects(space, {"kubernetes.io/metadata.name": namespace})
            ):
                return False
            return selects(peer.get("podSelector", {}), labels)

        def port_fits(rule, port):
            return "ports" not in rule or any(
                p.get("port") == port and p.get("protocol") == "TCP" for p in rule["ports"]
            )

        def allowed(policies, direction, own, other, namespace, port):
            found = [
                p["spec"]
                for p in policies
                if selects(p["spec"]["podSelector"], own) and direction in p["spec"]["policyTypes"]
            ]
            key, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
            return not found or any(
                port_fits(rule, port)
                and (peers not in rule or any(peer_fits(peer, other, namespace) for peer in rule[peers]))
                for spec in found
                for rule in spec.get(key, [])
            )

        app = {"app.kubernetes.io/name": "tactus"}
        replica, router, epp = ({**app, "app.kubernetes.io/component": c} for c in ("replica", "router", "epp"))
        proxy, prometheus, stranger = (
            {"gateway.networking.k8s.io/gateway-name": "tactus"},
            {"app": "prometheus"},
            {"app": "other"},
        )
        kserve, _ = self.kserve_pod()
        cases = {
            "one-node": [
                (router, "tactus", replica, 8000, True),
                (replica, "tactus", replica, 8000, True),
                (stranger, "tactus", replica, 8000, False),
                (stranger, "default", router, 8000, True),
                (router, "tactus", stranger, 443, False),
                (replica, "tactus", stranger, 443, False),
            ],
            "router-keda": [
                (prometheus, "monitoring", replica, 8000, True),
                (prometheus, "monitoring", router, 8000, True),
            ],
            "gateway-hpa": [
                (proxy, "gateways", replica, 8000, True),
                (proxy, "gateways", epp, 9002, True),
                (epp, "tactus", replica, 8000, True),
                (prometheus, "monitoring", epp, 9090, True),
                (prometheus, "monitoring", epp, 9002, False),
                (stranger, "tactus", epp, 9002, False),
            ],
            "kserve-router": [
                (router, "tactus", kserve, 8080, True),
                (router, "tactus", replica, 8000, False),
                (kserve, "tactus", kserve, 8080, True),
                (stranger, "default", router, 8000, True),
                (stranger, "istio-system", kserve, 8080, True),
            ],
            "kserve-gateway": [
                (epp, "tactus", kserve, 8080, True),
                (epp, "tactus", replica, 8000, False),
                (proxy, "gateways", kserve, 8080, True),
                (proxy, "gateways", epp, 9002, True),
                (stranger, "tactus", epp, 9002, False),
            ],
        }
        self.assertEqual(set(cases), set(self.fleets))
        for overlay, pairs in cases.items():
            policies = [item for item in self.fleets[overlay] if item["kind"] == "NetworkPolicy"]
            for source, namespace, target, port, wanted in pairs:
                with self.subTest(overlay=overlay, source=source, target=target, port=port):
                    out = namespace != "tactus" or allowed(policies, "Egress", source, target, "tactus", port)
                    self.assertEqual(out and allowed(policies, "Ingress", target, source, namespace, port), wanted)

    def test_services_and_policies_of_cells_select_their_pods(self):
        items = [item for name, item in self.files if name.endswith("leader_worker_set.yaml")]
        pods = [labels for item in items for labels, _ in pod_specs(item)]
        monitor = self.one("ServiceMonitor", "tactus")["spec"]["selector"]
        for item in items:
            if item["kind"] == "Service":
                self.assertEqual(
                    sum(selects({"matchLabels": item["spec"]["selector"]}, labels) for labels in pods),
                    1,
                    item["metadata"]["name"],
                )
                self.assertTrue(selects(monitor, item["metadata"]["labels"]), "is not scraped")
            elif item["kind"] == "NetworkPolicy":
                self.assertEqual([selects(item["spec"]["podSelector"], labels) for labels in pods], [False, True])
                sources = item["spec"]["ingress"][0]["from"][0]["podSelector"]
                self.assertTrue(all(selects(sources, labels) for labels in pods))
        fleet = self.one("Service", "tactus-replicas")["spec"]["selector"]
        self.assertFalse(
            any(selects({"matchLabels": fleet}, labels) for labels in pods),
            "a fleet beside them would take their replicas",
        )

    def test_the_rules_are_those_of_the_files(self):
        done = subprocess.run(
            [os.sys.executable, str(ROOT / "deploy/prometheus/make_rule_object.py"), "--check"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
