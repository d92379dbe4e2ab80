"""The manifests in deploy/kubernetes: every object fits its schema, strictly, and what they run is a command line that this
program takes."""
import os
import pathlib
import re
import shlex
import subprocess
import unittest

try:
    import kubernetes_validate
    import yaml
except ImportError:
    kubernetes_validate = None

MANIFESTS = sorted((pathlib.Path(__file__).resolve().parents[2] / "deploy/kubernetes").glob("*.yaml"))
VERSIONS = ("1.33", "1.37")   # the oldest that has all that is used, and the latest


@unittest.skipIf(kubernetes_validate is None, "this Python has no kubernetes-validate; scripts/test.sh slow makes one in .venv-ray")
class ManifestsTest(unittest.TestCase):
    def objects(self):
        found = [(path.name, item) for path in MANIFESTS for item in yaml.safe_load_all(path.read_text())]
        self.assertTrue(found, "no manifests")
        return found

    def job(self):
        return next(item for _, item in self.objects() if item["kind"] == "Job")

    def test_every_object_fits_its_schema(self):
        for name, item in self.objects():
            for version in VERSIONS:
                with self.subTest(name=name, kind=item["kind"], version=version):
                    kubernetes_validate.validate(item, version, strict=True)

    def test_the_check_notices_a_wrong_field(self):
        job = self.job()
        job["spec"]["completionModus"] = "Indexed"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, VERSIONS[0], strict=True)

    def test_each_part_runs_once(self):
        spec = self.job()["spec"]
        container = spec["template"]["spec"]["containers"][0]
        shards = {entry["name"]: entry["value"] for entry in container["env"]}["SHARDS"]
        self.assertEqual((spec["completionMode"], spec["completions"], spec["parallelism"]), ("Indexed", int(shards), int(shards)))
        seen = set()
        for index in range(int(shards)):
            environment = dict(os.environ, SHARDS=shards, JOB_COMPLETION_INDEX=str(index))
            shell, flag, script = container["command"]
            words = subprocess.run([shell, flag, script.replace("exec tactus", "printf '%s\\n'")], capture_output=True, text=True, check=True,
                                   timeout=30, env=environment).stdout.splitlines()
            seen.add(words[words.index("--shard") + 1])
        self.assertEqual(seen, {f"{i}/{shards}" for i in range(1, int(shards) + 1)})

    def test_the_program_takes_the_flags(self):
        script = self.job()["spec"]["template"]["spec"]["containers"][0]["command"][2]
        known = subprocess.run([os.environ["TACTUS_BINARY"], "batch", "--help"], capture_output=True, text=True, check=True, timeout=30).stdout
        for word in shlex.split(script.replace("$((JOB_COMPLETION_INDEX + 1))", "1")):
            if word.startswith("--"):
                self.assertTrue(re.search(rf"(?m)^  {re.escape(word)}\b", known), f"`tactus batch --help` has no {word}")


if __name__ == "__main__":
    unittest.main()
