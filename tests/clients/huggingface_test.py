"""huggingface_hub and `tactus pull` on one cache: each finds what the other downloaded, and both lock alike."""

import pathlib
import subprocess
import sys
import textwrap
import unittest

from fake_hub import COMMIT
from hub_case import HubCase, safetensors_repository

TEXTS = ["config.json", "tokenizer.json", "model.safetensors.index.json", "chat_template.jinja"]


class HuggingFaceTest(HubCase):
    def setUp(self):
        super().setUp()
        self.repository = self.hub.repositories["org/m"] = safetensors_repository()

    def python(self, code, **environment):
        """Runs code with huggingface_hub: its variables are read when it is imported."""
        done = subprocess.run(
            [sys.executable, "-c", "import huggingface_hub as hub\n" + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment(HF_HUB_DISABLE_XET=1, HF_HUB_DISABLE_TELEMETRY=1, **environment),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_huggingface_hub_reads_what_tactus_downloaded(self):
        folder = self.pull("hf:org/m")
        self.hub.forget()
        found = self.python(
            """
            print(hub.snapshot_download("org/m", local_files_only=True))
            print(hub.hf_hub_download("org/m", "model-00001-of-00002.safetensors", local_files_only=True))
            print(hub.try_to_load_from_cache("org/m", "config.json"))
            """
        ).splitlines()
        self.assertEqual(
            [pathlib.Path(p) for p in found],
            [folder, folder / "model-00001-of-00002.safetensors", folder / "config.json"],
        )
        self.assertEqual(self.python('print(hub.hf_hub_download("org/m", "config.json"))'), str(folder / "config.json"))
        self.assertEqual([r for r in self.hub.of("hub") if "resolve-cache" in r[2] and r[1] == "GET"], [])
        scanned = self.python(
            """
            info = hub.scan_cache_dir()
            found = [(r.repo_id, r.nb_files, [x.commit_hash for x in r.revisions]) for r in info.repos]
            print(len(info.warnings), found)
            """
        )
        self.assertEqual(scanned, f"0 [('org/m', {len(self.blobs('org/m'))}, ['{COMMIT}'])]")

    def test_tactus_finds_what_huggingface_hub_downloaded(self):
        self.python('hub.snapshot_download("org/m")')
        self.assertIn("README.md", self.files("org/m"))
        self.hub.forget()
        folder = self.pull("hf:org/m")
        self.assertEqual((folder, self.hub.of("other")), (self.snapshot("org/m"), []))
        self.assertEqual(self.pull("hf:org/m", HF_HUB_OFFLINE=1), folder)
        self.assertIn("safetensors", self.tactus("models", "list").stdout)
        self.assertEqual(self.tactus("models", "rm", "hf:org/m").returncode, 0)
        self.assertEqual(self.python("print(len(hub.scan_cache_dir().repos))"), "0")

    def test_one_cache_may_be_filled_by_both(self):
        self.python("""[hub.hf_hub_download("org/m", name) for name in %r]""" % TEXTS)
        folder = self.pull("hf:org/m")
        self.assertEqual(
            (folder / "model-00002-of-00002.safetensors").read_bytes(),
            self.repository.large["model-00002-of-00002.safetensors"],
        )
        sent = [r[2] for r in self.hub.of("other", "GET") if "tokenizer.json" in r[2]]
        self.assertEqual(len(sent), 1)

    def test_a_lock_of_huggingface_hub_is_waited_for(self):
        lock = self.cache / ".locks/models--org--m" / (self.repository.etag("tokenizer.json") + ".lock")
        lock.parent.mkdir(parents=True)
        code = "from huggingface_hub.utils import WeakFileLock\n"
        code += f"with WeakFileLock({str(lock)!r}):\n print(flush=True); input()"
        holder = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        holder.stdout.readline()
        pull = self.start("pull", "hf:org/m")
        self.assertIn("tokenizer.json: another process downloads it; waiting", pull.stderr.readline())
        holder.stdin.write("\n")
        holder.stdin.flush()
        self.assertEqual(pull.communicate(timeout=60)[0].strip(), str(self.snapshot("org/m")))


if __name__ == "__main__":
    unittest.main()
