"""Files and batches with the official client against the real server: uploads and results, limits, cancel and expiry,
interactive requests during a batch, kill -9 in the middle of one."""

import gzip
import io
import json
import os
import pathlib
import socket
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import openai
from server_process import ServerProcess, wait_until

MODEL = "test-model"
LIMIT_S = 120
ENDED = ("completed", "failed", "expired", "cancelled")


def completion(custom_id, prompt="x", **fields):
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": dict({"model": MODEL, "prompt": prompt}, **fields),
    }


def chat(custom_id, text, **fields):
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": dict({"model": MODEL, "messages": [{"role": "user", "content": text}]}, **fields),
    }


def jsonl(lines):
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


class BatchesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "files"

    def start(self, *args, key="none", **kwargs):
        self.server = ServerProcess("--files-dir", self.folder, *args, real_model=False, **kwargs)
        self.addCleanup(self.stop, self.server)
        self.client = self.client_of(key)
        return self.server

    def stop(self, server):
        if server.process.poll() is None:
            self.assertEqual(server.stop(), 0, server.last_lines())

    def client_of(self, key):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0, timeout=LIMIT_S)
        self.addCleanup(client.close)
        return client

    def upload(self, lines, name="in.jsonl", client=None):
        return (client or self.client).files.create(file=(name, jsonl(lines)), purpose="batch")

    def batch_of(self, lines, endpoint="/v1/completions", window="24h", **fields):
        return self.client.batches.create(
            input_file_id=self.upload(lines).id, endpoint=endpoint, completion_window=window, **fields
        )

    def ended(self, batch):
        def look():
            now = self.client.batches.retrieve(batch.id)
            return now if now.status in ENDED else None

        return wait_until(look, f"the end of {batch.id}", LIMIT_S, self.server.last_lines)

    def lines_of(self, file_id):
        return [json.loads(line) for line in self.client.files.content(file_id).text.splitlines()] if file_id else []

    def results(self, batch):
        """Answers and errors by custom_id; a duplicate fails the test."""
        found = {}
        for file_id in (batch.output_file_id, batch.error_file_id):
            for line in self.lines_of(file_id):
                self.assertNotIn(line["custom_id"], found, "twice in the results")
                found[line["custom_id"]] = line
        return found

    def metric(self, name):
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    def begun(self, batch, lines=1):
        return wait_until(
            lambda: self.client.batches.retrieve(batch.id).request_counts.completed >= lines,
            "the first lines",
            LIMIT_S,
            self.server.last_lines,
        )

    # --- Files ---

    def test_a_file_is_kept_listed_read_and_deleted(self):
        self.start()
        content = jsonl([completion("a")])
        first = self.client.files.create(file=("../../etc/a\\b/in\n.jsonl", content), purpose="batch")
        self.assertRegex(first.id, "^file-[0-9a-f]{32}$")
        self.assertEqual(
            (first.object, first.bytes, first.purpose, first.status), ("file", len(content), "batch", "processed")
        )
        self.assertNotIn("/", first.filename)
        second = self.client.files.create(
            file=("b.jsonl", content * 3), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        self.assertEqual(second.expires_at, second.created_at + 3600)
        self.assertEqual([f.id for f in self.client.files.list()], [second.id, first.id], "the newest first")
        self.assertEqual(
            [f.id for f in self.client.files.list(order="asc", limit=1)], [first.id, second.id], "page after page"
        )
        self.assertEqual([f.id for f in self.client.files.list(purpose="batch_output")], [])
        self.assertEqual(self.client.files.content(second.id).content, content * 3)
        self.assertEqual(self.client.files.retrieve(first.id), first)
        self.assertTrue(self.client.files.delete(first.id).deleted)
        with self.assertRaises(openai.NotFoundError) as gone:
            self.client.files.content(first.id)
        self.assertEqual(gone.exception.param, "file_id")
        self.assertEqual(len(list((self.folder / "files").iterdir())), 1)

    def test_a_large_file_passes_through_in_pieces(self):
        self.start("--max-body", "64KiB", "--max-file-size", "100MiB")
        content = os.urandom(1 << 20) * 64

        def peak_kb():
            status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
            return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

        before_kb = peak_kb()
        file = self.client.files.create(file=("large", io.BytesIO(content)), purpose="batch")
        self.assertEqual(file.bytes, len(content))
        self.assertTrue(self.client.files.content(file.id).content == content, "the content differs")
        self.assertLess(peak_kb() - before_kb, 16 << 10, "KiB of memory for a file of 64 MiB")
        self.assertEqual(self.metric("tactus_http_body_bytes "), 0)

    def test_refused_uploads_leave_nothing_on_disk(self):
        self.start("--max-file-size", "1MiB", "--files-quota", "2MiB")

        def refused(error, param, **arguments):
            with self.assertRaises(error) as raised:
                self.client.files.create(**dict({"file": ("a", b"x"), "purpose": "batch"}, **arguments))
            self.assertEqual(raised.exception.param, param, raised.exception)
            return str(raised.exception)

        self.assertIn("'fine-tune'", refused(openai.BadRequestError, "purpose", purpose="fine-tune"))
        self.assertIn("--max-file-size", refused(openai.APIStatusError, "file", file=("a", b"x" * ((1 << 20) + 1))))
        self.assertIn(
            "3600 to",
            refused(openai.BadRequestError, "expires_after", expires_after={"anchor": "created_at", "seconds": 5}),
        )
        for i in range(2):
            self.client.files.create(file=("a", b"x" * 1_000_000), purpose="batch")
        self.assertIn("--files-quota", refused(openai.APIStatusError, "file", file=("a", b"x" * 1_000_000)))

        def post(body, content_type="multipart/form-data; boundary=B", **headers):
            request = urllib.request.Request(
                self.server.url + "/v1/files", body, dict({"Content-Type": content_type}, **headers)
            )
            with self.assertRaises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(request, timeout=60)
            with raised.exception as error:
                return error.code, json.load(error)["error"]["message"]

        part = b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        file, purpose = part % (b"file", b'; filename="a"', b"content"), part % (b"purpose", b"", b"batch")
        self.assertEqual(post(purpose + file)[0], 400, "no end")
        self.assertIn("purpose: missing", post(file + b"--B--")[1])
        self.assertIn("file: missing", post(purpose + b"--B--")[1])
        self.assertIn("twice", post(purpose + file + file + b"--B--")[1])
        self.assertEqual(post(b"{}")[0], 400)
        self.assertEqual(post(b"{}", "application/json")[0], 415)
        self.assertEqual(post(purpose + file + b"--B--", Origin="http://evil.example")[0], 403, "a web page")
        self.assertEqual(len(list((self.folder / "files").iterdir())), 2)
        # A disk thread removes the pieces of a refused upload, which may be after its answer.
        uploads = self.folder / "uploads"
        wait_until(lambda: not list(uploads.iterdir()), "the removal of refused uploads", 10)

    def raw_upload(self, head, body):
        host, port = self.server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n"
            + head
            + b"\r\n\r\n"
            + body
        )
        return connection

    def test_ten_gigabytes_are_refused_by_content_length_and_while_received(self):
        self.start("--max-file-size", "1MiB", "--files-quota", "1MiB")
        announced = self.raw_upload(b"Content-Length: 10000000000", b"")
        self.assertIn(b"413", announced.recv(65536).split(b"\r\n")[0], "before anything was sent")
        part = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        endless = self.raw_upload(b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(part), part))
        try:
            for _ in range(10_000):
                endless.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
            self.fail("10 GB were taken")
        except OSError:  # the server has closed the connection
            pass
        wait_until(lambda: not list((self.folder / "uploads").iterdir()), "nothing is left of the upload")

    def test_a_disconnect_during_upload_leaves_nothing(self):
        self.start()
        part = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        connection = self.raw_upload(b"Content-Length: 5000000", part + b"x" * 3_000_000)
        uploads = self.folder / "uploads"
        wait_until(lambda: [f for f in uploads.iterdir() if f.stat().st_size > 1_000_000], "the upload on the disk")
        connection.close()
        wait_until(lambda: not list(uploads.iterdir()), "nothing is left of the upload")
        self.assertEqual(self.metric("tactus_files_uploading_bytes"), 0)

    def test_without_a_folder_the_routes_name_the_flag(self):
        server = ServerProcess(real_model=False)
        self.addCleanup(self.stop, server)
        with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
            with self.assertRaises(openai.APIStatusError) as raised:
                client.batches.list()
        self.assertEqual(raised.exception.status_code, 501)
        self.assertIn("--files-dir", str(raised.exception))

    def test_keys_do_not_see_each_others_files_and_batches(self):
        self.start("--api-key", "one", "--api-key", "two", key="one")
        other = self.client_of("two")
        file = self.upload([completion("a", max_tokens=2)])
        batch = self.client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        done = self.ended(batch)
        for ask in (
            lambda: other.files.retrieve(file.id),
            lambda: other.files.content(done.output_file_id),
            lambda: other.files.delete(file.id),
            lambda: other.batches.retrieve(batch.id),
            lambda: other.batches.cancel(batch.id),
            lambda: other.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"),
        ):
            self.assertRaises(openai.NotFoundError, ask)
        self.assertEqual((list(other.files.list()), list(other.batches.list())), ([], []))
        # With the keys in another order: a file belongs to the key, not to its position.
        self.stop(self.server)
        self.start("--api-key", "two", "--api-key", "one", key="one")
        self.assertEqual(self.client.files.retrieve(file.id).id, file.id)
        self.assertRaises(openai.NotFoundError, lambda: self.client_of("two").files.retrieve(file.id))

    # --- Batches ---

    def test_a_batch_gives_each_line_its_result(self):
        self.start()
        lines = [
            chat("c", "hello", max_tokens=5, temperature=0),
            chat("again", "hello", max_tokens=5, temperature=0),
            completion("other url"),
            chat("range", "x", n=0),
            chat("model", "x", model="gpt-4"),
            b"{broken",
            chat("c", "a duplicate"),
        ]
        batch = self.batch_of(lines, endpoint="/v1/chat/completions", metadata={"who": "me"})
        self.assertEqual(
            (batch.object, batch.endpoint, batch.completion_window, batch.metadata),
            ("batch", "/v1/chat/completions", "24h", {"who": "me"}),
        )
        self.assertIn(batch.status, ("validating", "in_progress"))
        self.assertEqual(batch.expires_at, batch.created_at + 24 * 3600)
        done = self.ended(batch)
        self.assertEqual(done.status, "completed")
        self.assertEqual(
            (done.request_counts.total, done.request_counts.completed, done.request_counts.failed), (7, 2, 5)
        )
        self.assertTrue(done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at)
        self.assertEqual((done.errors, done.failed_at, done.cancelled_at, done.expired_at), (None, None, None, None))
        answers = {line["custom_id"]: line for line in self.lines_of(done.output_file_id)}
        self.assertEqual(set(answers), {"c", "again"})
        self.assertEqual(answers["c"]["response"]["status_code"], 200)
        direct = self.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=5, temperature=0
        )
        self.assertEqual(
            answers["c"]["response"]["body"]["choices"][0]["message"]["content"], direct.choices[0].message.content
        )
        self.assertEqual(done.usage.output_tokens, 2 * direct.usage.completion_tokens)
        errors = {line["error"]["line"]: line["error"] for line in self.lines_of(done.error_file_id)}
        self.assertEqual(
            {n: e["code"] for n, e in errors.items()},
            {3: "invalid_line", 4: "invalid_request", 5: "invalid_request", 6: "invalid_line", 7: "invalid_line"},
        )
        self.assertIn("is not the batch's endpoint", errors[3]["message"])
        output = self.client.files.retrieve(done.output_file_id)
        self.assertEqual(output.purpose, "batch_output")
        self.assertEqual(self.metric('tactus_batches{status="completed"}'), 1)
        self.assertEqual(self.metric("tactus_batch_lines_total"), 7)
        self.assertEqual(list((self.folder / "jobs").iterdir()), [], "the job's state is gone")

    def test_a_batch_of_responses(self):
        self.start()
        line = {
            "custom_id": "r",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"input": "hi", "max_output_tokens": 2},
        }
        content = gzip.compress(jsonl([line]) + b"\n\n" + jsonl([completion("c")]))
        file = self.client.files.create(file=("in.jsonl.gz", content), purpose="batch")
        batch = self.ended(
            self.client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        )
        self.assertEqual(
            (batch.status, batch.request_counts.total, batch.request_counts.completed), ("completed", 2, 1)
        )
        found = self.results(batch)
        self.assertEqual(found["r"]["response"]["body"]["object"], "response")
        self.assertEqual(found["c"]["error"]["param"], "url")

    def test_fields_that_are_not_known_are_named_or_refused(self):
        lines = [completion("a", max_tokens=2), completion("b", max_tokens=2, wish=1)]
        self.start()
        batch = self.ended(self.batch_of(lines))
        self.assertEqual(batch.request_counts.completed, 2)
        found = self.results(batch)
        self.assertNotIn("headers", found["a"]["response"])
        self.assertEqual(found["b"]["response"]["headers"], {"x-tactus-ignored": "wish"})
        openai.types.Completion.model_validate(found["b"]["response"]["body"], strict=True)
        self.stop(self.server)
        self.start("--strict-fields")
        batch = self.ended(self.batch_of(lines))
        self.assertEqual((batch.request_counts.completed, batch.request_counts.failed), (1, 1))
        refused = self.results(batch)["b"]
        self.assertEqual((refused["response"]["status_code"], refused["error"]["param"]), (400, "wish"))
        self.assertIn("--strict-fields", refused["error"]["message"])

    def test_invalid_batches_are_refused(self):
        self.start("--max-batch-lines", "3")
        file = self.upload([completion("a")])
        empty = self.client.files.create(file=("empty", b""), purpose="batch")
        good = {"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h"}

        def refused(error, param, **changed):
            with self.assertRaises(error) as raised:
                self.client.batches.create(**dict(good, **changed))
            self.assertEqual(raised.exception.param, param, raised.exception)

        refused(openai.NotFoundError, "input_file_id", input_file_id="file-none")
        refused(openai.NotFoundError, "input_file_id", input_file_id="../batches.db")
        refused(openai.BadRequestError, "endpoint", endpoint="/v1/embeddings")
        refused(openai.BadRequestError, "completion_window", completion_window="soon")
        refused(openai.BadRequestError, "completion_window", completion_window="31d")
        refused(openai.BadRequestError, "metadata", metadata={f"k{i}": "v" for i in range(17)})
        refused(openai.BadRequestError, "metadata", metadata={"k": "v" * 513})
        blank = self.client.files.create(file=("blank", b"\n \n"), purpose="batch")
        damaged = self.client.files.create(
            file=("damaged", gzip.compress(jsonl([completion("a")]))[:-9]), purpose="batch"
        )
        for bad, code in (
            (empty.id, "empty_file"),
            (blank.id, "empty_file"),
            (damaged.id, "invalid_file"),
            (self.upload([completion(f"{i}") for i in range(4)]).id, "too_many_lines"),
        ):
            failed = self.ended(self.client.batches.create(**dict(good, input_file_id=bad)))
            self.assertEqual((failed.status, failed.errors.data[0].code), ("failed", code))
            self.assertIsNotNone(failed.failed_at)
            self.assertEqual((failed.output_file_id, failed.error_file_id), (None, None))
            self.assertTrue(self.client.files.delete(bad).deleted, "it is not read any more")
        done = self.ended(self.client.batches.create(**good))
        refused(openai.BadRequestError, "input_file_id", input_file_id=done.output_file_id)
        with self.assertRaises(openai.BadRequestError) as late:
            self.client.batches.cancel(done.id)
        self.assertIn("it is completed", str(late.exception))
        batches = list(self.client.batches.list(limit=1))
        self.assertEqual(len(batches), 5)
        self.assertEqual(batches[0].id, done.id, "the newest first")

    def long_lines(self, count=2000, tokens=60):
        return [
            completion(f"a{i}", f"number {i}", max_tokens=tokens, temperature=0, ignore_eos=True) for i in range(count)
        ]

    def test_a_cancel_keeps_finished_lines(self):
        self.start("--threads", "1", "--max-num-seqs", "8")
        batch = self.batch_of(self.long_lines())
        self.begun(batch)
        with self.assertRaises(openai.BadRequestError) as used:
            self.client.files.delete(batch.input_file_id)
        self.assertIn(batch.id, str(used.exception))
        cancelling = self.client.batches.cancel(batch.id)
        self.assertIn(cancelling.status, ("cancelling", "cancelled"))
        self.assertIsNotNone(cancelling.cancelling_at)
        done = self.ended(batch)
        self.assertEqual(done.status, "cancelled")
        results = self.results(done)
        self.assertEqual(len(results), 2000)
        self.assertGreaterEqual(done.request_counts.completed, 1)
        codes = {r["error"]["code"] for r in results.values() if r["error"]}
        self.assertEqual(codes, {"batch_cancelled"})

    def test_an_expired_window_ends_the_remaining_lines(self):
        self.start("--threads", "1", "--max-num-seqs", "2")
        batch = self.batch_of(self.long_lines(3000, 200), window="2s")
        done = self.ended(batch)
        self.assertEqual(done.status, "expired")
        self.assertIsNotNone(done.expired_at)
        results = self.results(done)
        self.assertEqual(len(results), 3000)
        self.assertEqual({r["error"]["code"] for r in results.values() if r["error"]}, {"batch_expired"})
        self.assertEqual(done.request_counts.completed + done.request_counts.failed, 3000)

    def test_many_batches_wait_for_their_turn_and_all_end(self):
        self.start("--max-batches", "2")
        batches = [self.batch_of([completion(f"{k}-{i}", f"{i}", max_tokens=4) for i in range(20)]) for k in range(12)]
        for k, batch in enumerate(batches):
            done = self.ended(batch)
            self.assertEqual((done.status, done.request_counts.completed), ("completed", 20))
            self.assertEqual(set(self.results(done)), {f"{k}-{i}" for i in range(20)})
        self.assertLessEqual(self.metric("tactus_batches_running"), 2)

    # --- With other requests, and across a restart of the server ---

    def test_interactive_requests_are_never_refused_beside_a_batch(self):
        self.start("--max-queue", "4", "--max-num-seqs", "4", "--threads", "1")
        batch = self.batch_of(self.long_lines(300, 100))
        self.begun(batch)
        texts = []

        def ask(question):
            # Its own client: a separate stream each.
            with openai.OpenAI(
                base_url=self.server.url + "/v1", api_key="none", max_retries=0, timeout=LIMIT_S
            ) as client:
                for _ in range(5):
                    stream = client.completions.create(
                        model=MODEL, prompt=question, max_tokens=8, temperature=0, stream=True
                    )
                    texts.append("".join(chunk.choices[0].text for chunk in stream))

        threads = [threading.Thread(target=ask, args=(f"question {i}",)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(len(texts), 10, "none was refused" + self.server.last_lines())
        self.assertEqual(
            self.metric('tactus_http_responses_total{code="503"}')
            + self.metric('tactus_http_responses_total{code="429"}'),
            0,
        )
        self.client.batches.cancel(batch.id)
        self.assertEqual(self.ended(batch).status, "cancelled")

    def test_a_restarted_server_resumes_and_does_every_line_once(self):
        lines = [completion(f"a{i}", f"number {i}", max_tokens=30 + i % 50, ignore_eos=True) for i in range(400)] + [
            completion("bad", n=0)
        ]
        flags = ["--load-format", "dummy", "--seed", "7", "--threads", "1", "--max-num-seqs", "8"]
        model = self.folder.parent / "model"  # the batch resumes only with the same model
        self.make_model(model)
        self.start(*flags, model=model)
        reference = self.results(self.ended(self.batch_of(lines)))
        batch = self.batch_of(lines)
        waiting = self.batch_of([completion("late", max_tokens=3)], window="1h")
        kills = 0
        for kills in range(1, 4):
            done = self.begun(batch, lines=60 * kills)
            if self.client.batches.retrieve(batch.id).status in ENDED:
                break
            self.server.process.kill()
            self.server.stop(send=False)
            self.start(*flags, model=model)
        done = self.ended(batch)
        self.assertEqual(done.status, "completed")
        results = self.results(done)
        self.assertEqual(len(results), 401)
        answers = lambda found: {
            k: [c["text"] for c in r["response"]["body"]["choices"]] for k, r in found.items() if not r["error"]
        }
        # Lines without a seed get one from the job, which --seed makes equal.
        self.assertEqual(answers(results), answers(reference))
        self.assertEqual(self.ended(waiting).status, "completed")
        self.assertGreaterEqual(kills, 2, "it was too fast to be killed")

    def test_sigterm_leaves_a_batch_for_the_next_server(self):
        model = self.folder.parent / "model"
        self.make_model(model)
        self.start("--load-format", "dummy", "--threads", "1", "--max-num-seqs", "4", model=model)
        batch = self.batch_of(self.long_lines(400, 40))
        self.begun(batch, 5)
        self.assertEqual(self.server.stop(), 0)
        self.start("--load-format", "dummy", "--threads", "2", model=model)
        done = self.ended(batch)
        self.assertEqual((done.status, done.request_counts.completed), ("completed", 400))
        self.assertEqual(len(self.results(done)), 400)

    def test_a_folder_has_one_server(self):
        self.start()
        with self.assertRaises(RuntimeError) as second:
            ServerProcess("--files-dir", self.folder, real_model=False)
        self.assertIn("is in use by another server", str(second.exception))

    @staticmethod
    def make_model(folder):
        from server_process import CHAT_TEMPLATE, TINY_CONFIG

        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
        (folder / "chat.jinja").write_text(CHAT_TEMPLATE)


if __name__ == "__main__":
    unittest.main()
