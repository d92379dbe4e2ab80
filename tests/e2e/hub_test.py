"""Models by name against a fake hub: what is downloaded, and what happens to failing downloads
(docs/how-to/models.md)."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import unittest

from fake_hub import COMMIT, NO_RANGES, Repository, cut, git_hash, hold, other, sha256, status
from hub_case import MIB, NAME, HubCase, content, gguf_repository, safetensors_repository
from server_process import TakenPort, wait_until

Q4, Q8 = "model-Q4_K_M.gguf", "model-Q8_0.gguf"
RETRY_NOW = {"Retry_After": 0}


class ChoiceTest(HubCase):
    """Which files of a repository are one model."""

    def test_a_quantisation_is_one_file_in_the_shared_layout(self):
        path = self.pull(f"hf:{NAME}:q4_k_m")
        data = self.hub.repositories[NAME].large[Q4]
        self.assertEqual(path, self.snapshot() / Q4)
        self.assertEqual(path.read_bytes(), data)
        self.assertEqual(os.readlink(path), f"../../blobs/{sha256(data)}")
        self.assertEqual((self.repository_folder() / "refs/main").read_text(), COMMIT)
        self.assertEqual((self.files(), self.blobs()), ([Q4], [sha256(data)]))
        self.hub.forget()
        self.assertEqual(self.pull(f"hf:{NAME}:{Q4}"), path)
        self.assertEqual((len(self.hub.of("hub")), self.hub.of("other")), (1, []))

    def test_several_models_are_refused_with_their_list(self):
        text = self.fails(f"hf:{NAME}", says=["several models", "Q4_K_M (3.0 kB)", "Q8_0 (3.0 kB)"], code=2)
        self.assertNotIn("mmproj", text)
        self.fails(f"hf:{NAME}:Q5_K_M", says=["nothing that 'Q5_K_M' names", "Q4_K_M", "Q8_0"])
        self.assertFalse(self.repository_folder().exists())

    def test_safetensors_come_with_configuration_tokeniser_and_templates(self):
        self.hub.repositories["org/m"] = repository = safetensors_repository()
        folder = self.pull("hf:org/m")
        self.assertEqual(folder, self.snapshot("org/m"))
        left_out = {"README.md", "figures/plot.json", "consolidated.safetensors", "pytorch_model.bin"}
        self.assertEqual(self.files("org/m"), sorted({**repository.small, **repository.large}.keys() - left_out))
        for path in self.files("org/m"):
            self.assertEqual((folder / path).read_bytes(), repository.content(path))
        self.assertIn(git_hash(repository.small["config.json"]), self.blobs("org/m"))

    def test_a_split_file_comes_whole(self):
        parts = {f"BF16/m-BF16-0000{i}-of-00003.gguf": content(str(i), 500 + i) for i in (1, 2, 3)}
        self.hub.repositories["org/split"] = repository = Repository(large=dict(parts))
        self.assertEqual(self.pull("hf:org/split"), self.snapshot("org/split") / min(parts))
        self.assertEqual(self.files("org/split"), sorted(parts))
        del repository.large["BF16/m-BF16-00002-of-00003.gguf"]
        self.fails("hf:org/split:bf16", says=["lacks BF16/m-BF16-00002-of-00003.gguf", "3 parts"])

    def test_other_forms_of_the_name(self):
        path = self.snapshot() / Q4
        for name in (
            f"hf:{NAME}@v1.0:Q4_K_M",
            f"hf:{NAME}@{COMMIT}:Q4_K_M",
            f"hf:{NAME}@refs/pr/1:Q4_K_M",
            f"hf.co/{NAME}:Q4_K_M",
            f"{self.hub.url}/{NAME}/blob/main/{Q4}",
            f"https://huggingface.co/{NAME}/resolve/main/{Q4}?download=true",
        ):
            self.assertEqual(self.pull(name), path, name)
        self.assertEqual((self.repository_folder() / "refs/v1.0").read_text(), COMMIT)
        self.assertEqual((self.repository_folder() / "refs/refs/pr/1").read_text(), COMMIT)
        self.assertFalse((self.repository_folder() / "refs" / COMMIT).exists())
        self.fails(NAME, says=[f"would be hf:{NAME}"])
        for name in ("hf:", "hf:a/b/c", "hf:../x", "hf:a/b@", "hf:a/b:", "hf:a/b:../x", "hf:a--b/c", "https://x/y.bin"):
            self.fails(name, says=[name], code=2)

    def test_a_built_in_name_stands_for_a_repository(self):
        self.hub.repositories["ggml-org/gemma-3-270m-it-GGUF"] = Repository(
            large={"gemma-3-270m-it-Q8_0.gguf": content("g", 900)}
        )
        self.assertEqual(self.pull("gemma3:270m").name, "gemma-3-270m-it-Q8_0.gguf")
        self.fails("gemma3:3b", says=["gemma3:270m", "gemma3:4b"])
        listed = self.tactus("pull", "--list").stdout
        self.assertIn("hf:ggml-org/gemma-3-270m-it-GGUF:Q8_0", listed)

    def test_the_listing_of_a_hub_without_hashes_is_completed(self):
        repository = self.hub.repositories["org/m"] = safetensors_repository()
        repository.sizes = False
        self.pull("hf:org/m")
        self.assertIn(sha256(repository.large["tokenizer.json"]), self.blobs("org/m"))
        self.assertIn(git_hash(repository.small["config.json"]), self.blobs("org/m"))
        self.assertGreater(len(self.hub.of("hub", "HEAD")), 0)

    def test_a_hostile_listing_is_refused(self):
        repository = self.hub.repositories[NAME]
        for path in ("../../escape.gguf", "/etc/x.gguf", "a//b.gguf", "a\\b.gguf"):
            repository.extra_siblings = [{"rfilename": path, "size": 1, "blobId": "0" * 40}]
            self.fails(f"hf:{NAME}:Q4_K_M", says=["unsafe path"])
        repository.extra_siblings = [{"rfilename": "x-Q2_K.gguf", "size": 1, "blobId": "../../../x"}]
        self.fails(f"hf:{NAME}:Q2_K", says=["no size or no hash"])
        repository.extra_siblings, repository.commit = [], "../../x"
        self.fails(f"hf:{NAME}:Q4_K_M", says=["not the hub's list"])
        index = self.hub.repositories["org/m"] = safetensors_repository()
        index.small["model.safetensors.index.json"] = json.dumps({"weight_map": {"t": "../../x.safetensors"}}).encode()
        self.fails("hf:org/m", says=["tensor 't' is no path"])
        self.assertEqual([p for p in self.folder.rglob("*escape*")], [])


class TransferTest(HubCase):
    """Ranges, cuts, hashes."""

    def setUp(self):
        super().setUp()
        self.repository = self.hub.repositories[NAME] = gguf_repository(6 * MIB)
        self.data = self.repository.large[Q4]

    def pulled(self, *args, **options):
        self.assertEqual(self.pull(f"hf:{NAME}:Q4_K_M", *args, **options).read_bytes(), self.data)
        self.assertEqual((self.blobs(), self.files()), ([sha256(self.data)], [Q4]))

    def ranges(self):
        return [r[3].get("Range") for r in self.hub.of("other")]

    def test_parts_come_in_parallel(self):
        self.hub.barriers[Q4] = threading.Barrier(3)  # no answer is sent before three are asked for
        self.pulled("--connections", 3)
        self.assertEqual(sorted(self.ranges()), [f"bytes={i * MIB}-{(i + 1) * MIB - 1}" for i in range(6)])
        self.assertEqual(self.hub.sent[Q4], len(self.data))

    def test_a_server_without_ranges_sends_everything_once_more(self):
        self.hub.always[Q4] = NO_RANGES
        self.pulled()

    def test_a_cut_answer_continues_where_it_ended(self):
        self.hub.faults[Q4].append(cut(300_000))
        self.pulled("--connections", 1)
        again = [r[3] for r in self.hub.of("other") if r[3]["Range"] == f"bytes=300000-{MIB - 1}"]
        self.assertEqual([headers["If-Range"] for headers in again], [f'"{sha256(self.data)[:16]}"'])
        self.assertEqual(self.hub.sent[Q4], len(self.data))

    def test_a_server_that_stops_sending_counts_as_cut(self):
        forever = threading.Event()
        self.addCleanup(forever.set)
        self.hub.faults[Q4].append(hold(forever, after=100_000))
        self.pulled("--connections", 1, HF_HUB_DOWNLOAD_TIMEOUT=1)
        self.assertIn(f"bytes=100000-{MIB - 1}", self.ranges())

    def interrupt(self, by):
        """Stops a pull after two and a half of six parts, and returns what it printed."""
        forever = threading.Event()
        self.addCleanup(forever.set)
        self.hub.faults[Q4].extend([{}, {}, hold(forever, after=MIB // 2)])
        process = self.start("pull", f"hf:{NAME}:Q4_K_M", "--connections", 1)
        record = self.repository_folder() / "blobs" / f"{sha256(self.data)}.tactus.json"
        done = [MIB, MIB, MIB // 2, 0, 0, 0]

        def recorded():
            return record.exists() and json.loads(record.read_text())["done"] == done

        wait_until(recorded, "the record of two and a half parts")
        process.send_signal(by)
        text = process.communicate(timeout=60)[1]
        forever.set()
        self.hub.forget()
        return process.returncode, text

    def assert_only_the_rest_was_asked_for(self):
        rest = [2 * MIB + MIB // 2, 3 * MIB, 4 * MIB, 5 * MIB]
        ends = [3 * MIB, 4 * MIB, 5 * MIB, 6 * MIB]
        self.assertEqual(sorted(self.ranges()), [f"bytes={a}-{b - 1}" for a, b in zip(rest, ends)])

    def test_ctrl_c_keeps_what_has_arrived(self):
        code, text = self.interrupt(signal.SIGINT)
        self.assertEqual((code, text), (130, "tactus pull: stopped by Ctrl-C\n"))
        self.assertEqual(self.files(), [])
        self.pulled()
        self.assert_only_the_rest_was_asked_for()

    def test_a_killed_download_continues(self):
        self.assertEqual(self.interrupt(signal.SIGKILL)[0], -signal.SIGKILL)
        self.pulled()
        self.assert_only_the_rest_was_asked_for()

    def test_a_damaged_part_of_an_earlier_download_is_fetched_again(self):
        self.interrupt(signal.SIGKILL)
        with (self.repository_folder() / "blobs" / f"{sha256(self.data)}.tactus").open("r+b") as file:
            file.seek(1000)
            file.write(b"damage")
        done = self.tactus("pull", f"hf:{NAME}:Q4_K_M")
        self.assertIn("was damaged; once more from the beginning", done.stderr)
        self.pulled()

    def test_a_damaged_record_is_ignored(self):
        self.interrupt(signal.SIGKILL)
        record = self.repository_folder() / "blobs" / f"{sha256(self.data)}.tactus.json"
        good = json.loads(record.read_text())
        for text in ("", "[]", "{", json.dumps(good | {"piece_bytes": 0}), json.dumps(good | {"done": [MIB + 1] * 6})):
            record.write_text(text)
            self.hub.faults[Q4].append(status(404))  # the first request fails: the record is read each time
            self.tactus("pull", f"hf:{NAME}:Q4_K_M", "--connections", 1)
        self.pulled()

    def test_a_wrong_hash_is_named_and_nothing_stays(self):
        wrong = content("wrong", len(self.data))
        self.hub.always[Q4] = other(wrong)
        self.fails(f"hf:{NAME}:Q4_K_M", says=[sha256(self.data), sha256(wrong), "removed"])
        self.assertEqual((self.blobs(), self.files()), ([], []))
        del self.hub.always[Q4]
        self.pulled()

    def test_a_wrong_hash_of_a_small_file_is_named(self):
        repository = self.hub.repositories["org/m"] = safetensors_repository()
        wrong = repository.small["config.json"].replace(b"64", b"65")
        self.hub.always["config.json"] = other(wrong)
        self.fails("hf:org/m", says=[git_hash(repository.small["config.json"]), git_hash(wrong), "config.json"])

    def test_a_wrong_size_is_named(self):
        self.hub.always[Q4] = other(self.data + b"more")
        self.fails(f"hf:{NAME}:Q4_K_M", says=[f"{len(self.data)} bytes by the hub's list", str(len(self.data) + 4)])

    def test_a_pipe_gets_one_line_with_the_result(self):
        done = self.tactus("pull", f"hf:{NAME}:Q4_K_M")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rf"\Ahf:{NAME}:Q4_K_M: [0-9.]+ .?B in \d+ s\n\Z")

    def test_two_processes_share_the_work(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.hub.faults[Q4].append(hold(release, after=1000))
        first = self.start("pull", f"hf:{NAME}:Q4_K_M")
        wait_until(lambda: self.hub.held, "the first download")
        second = self.start("pull", f"hf:{NAME}:Q4_K_M")
        line = second.stderr.readline()
        self.assertIn("another process downloads it; waiting", line)
        release.set()
        outputs = [p.communicate(timeout=60)[0] for p in (first, second)]
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual((first.returncode, second.returncode), (0, 0))
        self.assertEqual(self.hub.sent[Q4], len(self.data))
        self.pulled()

    def test_a_limit_of_file_sizes_is_an_error(self):
        limited = ("bash", "-c", 'ulimit -f 2048; exec "$@"', "bash")
        done = self.tactus("pull", f"hf:{NAME}:Q4_K_M", under=limited)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ulimit -f", done.stderr)
        self.assertEqual(self.files(), [])

    def test_a_full_disk_is_an_error(self):
        self.cache.mkdir(parents=True)
        mounted = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
        mount = f'mount -t tmpfs -o size=4m tmpfs "{self.cache}" && '
        if subprocess.run([*mounted, mount + "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        done = self.tactus("pull", f"hf:{NAME}:Q4_K_M", under=(*mounted, mount + 'exec "$@"', "sh"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("6.3 MB are missing", done.stderr)
        self.assertIn("HF_HUB_CACHE", done.stderr)
        # Filled by another program while the download runs.
        release = threading.Event()
        self.addCleanup(release.set)
        self.hub.always[Q4] = hold(release, after=1000)
        mount = mount.replace("size=4m", "size=8m")
        pull = self.start("pull", f"hf:{NAME}:Q4_K_M", under=(*mounted, mount + 'exec "$@"', "sh"))
        wait_until(lambda: self.hub.held, "the download")
        with self.assertRaises(OSError), open(f"/proc/{pull.pid}/root{self.cache}/fill", "wb", buffering=0) as file:
            while file.write(bytes(100_000)):
                pass
        release.set()
        self.assertIn("its disk is full", pull.communicate(timeout=60)[1])
        self.assertEqual(pull.returncode, 1)


class AccessTest(HubCase):
    """Tokens, gated repositories, errors of the hub."""

    def bearers(self, where):
        return {r[3].get("Authorization") for r in self.hub.of(where)}

    def test_a_token_goes_to_the_hub_and_not_to_the_other_host(self):
        self.hub.repositories[NAME].gated = True
        self.pull(f"hf:{NAME}:Q4_K_M", HF_TOKEN="hf_right")
        self.assertEqual(self.bearers("hub"), {"Bearer hf_right"})
        self.assertEqual((self.bearers("other"), len(self.hub.of("other"))), ({None}, 1))

    def test_the_places_of_tokens(self):
        self.hub.repositories[NAME].gated = True
        self.home.mkdir()
        (self.home / "token").write_text("hf_right\n")
        self.pull(f"hf:{NAME}:Q4_K_M")
        (self.home / "token").write_text("hf_wrong")
        self.pull(f"hf:{NAME}:Q4_K_M", HUGGING_FACE_HUB_TOKEN="hf_right")
        self.pull(f"hf:{NAME}:Q4_K_M", HF_TOKEN="hf_right", HUGGING_FACE_HUB_TOKEN="hf_wrong")
        home = self.folder / "home"
        (home / ".cache/huggingface").mkdir(parents=True)
        (home / ".cache/huggingface/token").write_text("hf_right")
        self.pull(f"hf:{NAME}:Q4_K_M", HF_HOME="", XDG_CACHE_HOME="", HOME=home)
        self.fails(f"hf:{NAME}:Q4_K_M", says=["token in HF_TOKEN has a character"], code=2, HF_TOKEN="a\nb")

    def test_gated_repositories_name_their_page_and_the_token(self):
        self.hub.repositories[NAME].gated = True
        page = f"{self.hub.url}/{NAME}"
        self.fails(f"hf:{NAME}:Q4_K_M", says=["is gated (status 401)", "no token is set", page, "HF_TOKEN"])
        self.fails(
            f"hf:{NAME}:Q4_K_M", says=["is gated (status 403)", "token in HF_TOKEN was sent", page], HF_TOKEN="hf_other"
        )
        self.hub.refused_token = "hf_old"
        text = self.fails(f"hf:{NAME}:Q4_K_M", says=["token in HF_TOKEN is refused (status 401"], HF_TOKEN="hf_old")
        self.assertNotIn("hf_old", text)

    def test_missing_repositories_and_revisions(self):
        self.fails("hf:org/none", says=["hf:org/none does not exist or is private (status 401)"])
        self.fails("hf:org/none", says=["hf:org/none does not exist", "status 404"], HF_TOKEN="hf_right")
        self.fails(f"hf:{NAME}@v9:Q4_K_M", says=["hf:org/model-GGUF@v9", "no such branch, tag or commit"])

    def test_limits_and_faults_of_the_hub_are_tried_again(self):
        self.hub.listing_faults.extend([status(429, **RETRY_NOW), status(503, **RETRY_NOW)])
        self.hub.faults[Q4].extend([status(500, **RETRY_NOW), status(429, **RETRY_NOW), status(403)])
        self.pull(f"hf:{NAME}:Q4_K_M")
        self.assertEqual(len(self.hub.of("other")), 4)

    def test_lasting_limits_and_faults_are_errors(self):
        self.hub.listing_faults.append(status(429, Retry_After=3600))
        self.fails(f"hf:{NAME}:Q4_K_M", says=["limits requests (status 429)", "in 3600 s", "HF_TOKEN"])
        self.hub.listing_faults.extend([status(502, **RETRY_NOW)] * 6)
        self.fails(f"hf:{NAME}:Q4_K_M", says=["status 502", "6 tries"])
        self.hub.always[Q4] = status(503, **RETRY_NOW)
        self.fails(f"hf:{NAME}:Q4_K_M", says=[Q4, self.hub.other_url, "status 503", "try 6 of 6"])

    def test_an_unreachable_hub_is_an_error_unless_the_model_is_there(self):
        with TakenPort(listening=False) as port:
            away = {"HF_ENDPOINT": f"http://127.0.0.1:{port}"}
            self.fails(f"hf:{NAME}:Q4_K_M", says=["cannot be reached", "HF_HUB_OFFLINE"], **away)
            path = self.pull(f"hf:{NAME}:Q4_K_M")
            done = self.tactus("pull", f"hf:{NAME}:Q4_K_M", **away)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, str(path)))
            self.assertIn("the model in the cache is used as it is", done.stderr)

    def test_offline_uses_the_cache_alone(self):
        self.fails(f"hf:{NAME}:Q4_K_M", says=["not in the cache", "HF_HUB_OFFLINE"], HF_HUB_OFFLINE=1)
        path = self.pull(f"hf:{NAME}:Q4_K_M")
        self.hub.forget()
        self.assertEqual(self.pull(f"hf:{NAME}:Q4_K_M", HF_HUB_OFFLINE=1), path)
        self.assertEqual(self.pull(f"hf:{NAME}", TRANSFORMERS_OFFLINE="true"), path)
        self.fails(f"hf:{NAME}:Q8_0", says=["in the cache", "'Q8_0'"], HF_HUB_OFFLINE="ON")
        self.assertEqual(self.hub.of("hub"), [])

    def test_folders_of_the_environment(self):
        elsewhere = self.folder / "elsewhere"
        self.assertTrue(self.pull(f"hf:{NAME}:Q4_K_M", HF_HUB_CACHE=elsewhere).is_relative_to(elsewhere))
        self.fails(f"hf:{NAME}", says=["HF_ENDPOINT is 'ftp://x'"], code=2, HF_ENDPOINT="ftp://x")

    @unittest.skipUnless(shutil.which("openssl"), "no openssl")
    def test_tls_with_a_certificate_that_must_be_trusted(self):
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
            + ["-days", "2", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        hub = self.new_hub(tls=context, repositories={NAME: self.hub.repositories[NAME]})
        self.fails(f"hf:{NAME}:Q4_K_M", says=["certificate", "is not trusted", "SSL_CERT_FILE"], HF_ENDPOINT=hub.url)
        self.pull(f"hf:{NAME}:Q4_K_M", HF_ENDPOINT=hub.url, SSL_CERT_FILE=certificate)
        # An address without TLS is not followed from one with it.
        hub.other_url, hub.repositories[NAME] = self.hub.other_url, self.hub.repositories[NAME]
        self.fails(f"hf:{NAME}:Q8_0", says=["Q8_0"], HF_ENDPOINT=hub.url, SSL_CERT_FILE=certificate)


class UrlTest(HubCase):
    """Files of plain URLs."""

    def setUp(self):
        super().setUp()
        self.data = content("url", 3 * MIB)
        self.hub.files["files/m-Q8_0.gguf"] = self.data
        self.url = f"{self.hub.other_url}/files/m-Q8_0.gguf"

    def test_a_url_is_downloaded_once_into_the_catalogue(self):
        path = self.pull(self.url, HF_TOKEN="hf_right")
        self.assertEqual(path.read_bytes(), self.data)
        self.assertTrue(path.is_relative_to(self.folder / "tactus/models"))
        self.assertEqual({r[3].get("Authorization") for r in self.hub.of("other")}, {None})
        self.hub.forget()
        self.assertEqual(self.pull(self.url), path)
        self.assertEqual(self.hub.of("other"), [])
        listed = json.loads(self.tactus("models", "list", "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["path"], m["format"]) for m in listed], [(path.parent.name, str(path), "gguf")])
        self.assertEqual([p.name for p in path.parent.iterdir()], [path.name])

    def test_a_given_hash_is_checked(self):
        self.pull(f"{self.url}#sha256={sha256(self.data)}")
        shutil.rmtree(self.folder / "tactus")
        self.fails(f"{self.url}#sha256={'0' * 64}", says=["0" * 64, sha256(self.data)])
        self.fails(f"{self.url}#md5=1", says=["sha256="], code=2)

    def test_a_changed_file_is_not_mixed_with_the_old_one(self):
        forever = threading.Event()
        self.addCleanup(forever.set)
        self.hub.faults["files/m-Q8_0.gguf"].extend([{}, {}, hold(forever, after=1000)])
        process = self.start("pull", self.url, "--connections", 1)
        wait_until(lambda: list(self.folder.rglob("*.tactus.json")), "the record")
        process.kill()
        process.communicate()
        self.hub.files["files/m-Q8_0.gguf"] = new = content("new", 3 * MIB)
        self.hub.faults.clear()
        self.assertEqual(self.pull(self.url).read_bytes(), new)

    def test_errors_of_urls(self):
        self.fails(f"{self.hub.other_url}/none.gguf", says=["none.gguf does not exist", "status 404"])
        self.hub.always["files/m-Q8_0.gguf"] = status(403)
        self.fails(self.url, says=["denies access (status 403)"])


if __name__ == "__main__":
    unittest.main()
