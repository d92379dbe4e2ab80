"""TLS of `tactus serve` and `tactus route`: certificates that a test authority signs, client certificates, what is not
TLS, handshakes that do not end, and a reload under a running stream."""

import errno
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from certificates import Authority, openssl, serial_of
from command_case import Folder, tactus
from router_process import Router
from server_process import ServerProcess, wait_until

# A model whose stream of LONG tokens takes seconds on any machine.
SLOW = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "max_position_embeddings": 4096}
LONG = 2000
PROMPT = {"prompt": "to be", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def running(url, context):
    text = answer(url, "/metrics", context=context)[1]
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("vllm:num_requests_running"))


def setUpModule():
    global AUTHORITY, OTHER
    AUTHORITY, OTHER = Authority(), Authority("Another authority")


def tearDownModule():
    AUTHORITY.close()
    OTHER.close()


def answer(url, path, body=None, context=None, headers=()):
    """(status, text)"""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def port_of(url):
    return int(url.rsplit(":", 1)[1])


def raw(port, context=None):
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) if context else plain


def read_all(connection):
    text = b""
    while piece := connection.recv(65536):
        text += piece
    return text


def request_text(body, *headers, version="1.1", path="/v1/completions"):
    text = json.dumps(body)
    head = [f"POST {path} HTTP/{version}", "Host: localhost", "Content-Type: application/json", *headers]
    return ("\r\n".join([*head, f"Content-Length: {len(text)}", "", ""]) + text).encode()


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cert, cls.key = AUTHORITY.sign(kind="rsa")
        cls.server = ServerProcess("--tls-cert", cls.cert, "--ssl-keyfile", cls.key, real_model=False)
        cls.url = cls.server.url.replace("127.0.0.1", "localhost")
        cls.context = AUTHORITY.context()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.last_lines()

    def test_the_address_is_https_and_answers(self):
        self.assertTrue(self.server.url.startswith("https://127.0.0.1:"), self.server.url)
        self.assertEqual(answer(self.url, "/health", context=self.context)[0], 200)
        status, text = answer(self.url, "/v1/completions", PROMPT, self.context)
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 8)

    @unittest.skipIf(shutil.which("curl") is None, "no curl")
    def test_curl_speaks_http_1_1_over_tls_1_2_and_1_3(self):
        for version in ("1.2", "1.3"):
            done = subprocess.run(
                [
                    "curl",
                    "-sSv",
                    f"--tlsv{version}",
                    "--tls-max",
                    version,
                    "--cacert",
                    AUTHORITY.file,
                    f"{self.url}/ready",
                ],
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"TLSv{version}", done.stderr)
            self.assertIn("HTTP/1.1 200", done.stderr)

    def test_older_protocols_are_refused(self):
        done = subprocess.run(
            [
                "openssl",
                "s_client",
                "-connect",
                f"localhost:{port_of(self.url)}",
                "-tls1_1",
                "-cipher",
                "ALL:@SECLEVEL=0",
            ],
            capture_output=True,
            text=True,
            input="",
            timeout=60,
        )
        self.assertNotEqual(done.returncode, 0, done.stdout)

    def test_one_connection_has_many_requests_and_long_bodies(self):
        connection = http.client.HTTPSConnection("localhost", port_of(self.url), timeout=60, context=self.context)
        for size in (1, 5000, 200_000, 3):
            connection.request(
                "POST", "/tokenize", json.dumps({"prompt": "a" * size}), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            self.assertEqual((response.status, json.loads(response.read())["count"] > 0), (200, True), size)
        connection.close()

    def test_pipelined_requests_are_answered_in_order(self):
        with raw(port_of(self.url), self.context) as connection:
            paths = ["/health", "/version", "/ready"] * 60  # longer than what is read ahead at once
            connection.sendall(
                b"".join(f"GET {p} HTTP/1.1\r\nHost: localhost\r\nX-Fill: {'x' * 200}\r\n\r\n".encode() for p in paths)
            )
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = read_all(connection)
        self.assertEqual(text.count(b"HTTP/1.1 200 OK"), len(paths) + 1)

    def test_a_stream_ends_whole_also_by_closing(self):
        body = dict(PROMPT, stream=True, max_tokens=64)
        for version in ("1.1", "1.0"):
            with raw(port_of(self.url), self.context) as connection:
                connection.sendall(request_text(body, "Connection: close", version=version))
                text = read_all(connection)  # raises without TLS's own end
            self.assertIn(b"data: [DONE]", text, version)

    def test_plain_http_gets_an_answer_that_says_so(self):
        with raw(port_of(self.url)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = read_all(connection)
        self.assertTrue(text.startswith(b"HTTP/1.1 400 "), text)
        self.assertIn(b"https://", text)

    def test_noise_is_not_answered(self):
        for noise in (b"\0" * 64, b"\x16\x03\x01\x00\x05hello", b"SSH-2.0-x\r\n", os.urandom(512)):
            with raw(port_of(self.url)) as connection:
                try:
                    connection.sendall(noise)
                    connection.shutdown(socket.SHUT_WR)
                    text = read_all(connection)
                except OSError as error:  # the server may reset the connection before any of the three
                    self.assertIn(error.errno, (errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE))
                    text = b""
            self.assertNotIn(b"HTTP/1.1 200", text, noise)
        self.assertEqual(answer(self.url, "/health", context=self.context)[0], 200)

    def test_a_client_of_another_authority_refuses_the_server(self):
        with self.assertRaises(ssl.SSLCertVerificationError):
            raw(port_of(self.url), OTHER.context())

    def test_the_metrics_have_the_end_of_the_certificate(self):
        text = answer(self.url, "/metrics", context=self.context)[1]
        line = next(line for line in text.splitlines() if line.startswith("tactus_tls_not_after_seconds"))
        stated = openssl("x509", "-enddate", "-noout", "-in", self.cert).split("=", 1)[1].strip()
        self.assertEqual(float(line.split()[-1]), ssl.cert_time_to_seconds(stated))


class HandshakeTest(unittest.TestCase):
    def failures(self, url, context):
        text = answer(url, "/metrics", context=context)[1]
        return sum(
            float(line.split()[-1]) for line in text.splitlines() if line.startswith("tactus_tls_failures_total")
        )

    def test_handshakes_that_do_not_end_are_cut_off_and_hold_nothing_up(self):
        cert, key = AUTHORITY.sign()
        server = ServerProcess("--tls-cert", cert, "--tls-key", key, "--read-timeout", "2s", real_model=False)
        url, context = server.url, AUTHORITY.context()
        before = self.failures(url, context)
        silent = [raw(port_of(url)) for _ in range(20)]
        slow = raw(port_of(url))
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500
        try:
            for i in range(1, 400):
                try:
                    slow.sendall(hello[i - 1 : i])
                except OSError:
                    break
                if i == 3:  # the others are open
                    self.assertEqual(answer(url, "/v1/completions", PROMPT, context)[0], 200)
                time.sleep(0.05)
            else:
                self.fail("a handshake of single bytes was not cut off")
            for connection in silent:
                self.assertEqual(connection.recv(1), b"", "a handshake without a byte was not cut off")
        finally:
            for connection in [*silent, slow]:
                connection.close()
        wait_until(lambda: self.failures(url, context) >= before + 21, "failures counted", about=server.last_lines)
        self.assertEqual(server.stop(), 0, server.last_lines())


class LongStreamTest(unittest.TestCase):
    def test_a_stream_survives_a_reload_and_a_client_that_leaves_ends_its_own(self):
        folder = AUTHORITY.folder
        cert, key = folder / "live.pem", folder / "live.key"

        def place(pair):
            shutil.copy(pair[1], key)
            shutil.copy(pair[0], cert)

        first, second = AUTHORITY.sign(), AUTHORITY.sign()
        place(first)
        server = ServerProcess("--tls-cert", cert, "--tls-key", key, real_model=False, config=SLOW)
        context = AUTHORITY.context()
        port = port_of(server.url)

        def reload(line):
            seen = len(server.lines)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: any(line in said for said in server.lines[seen:]), f"'{line}'", about=server.last_lines)

        old = serial_of(port, context)
        with raw(port, context) as connection:
            connection.sendall(request_text(dict(PROMPT, stream=True, max_tokens=LONG), "Connection: close"))
            text = connection.recv(4096)
            place(second)
            reload("certificates")
            new = serial_of(port, context)
            self.assertNotEqual(new, old, "new connections get the new certificate")
            self.assertEqual(running(server.url, context), 1, "the stream had ended before the reload")
            text += read_all(connection)
        self.assertIn(b"data: [DONE]", text, "the stream broke off at the reload")
        with raw(port, context) as connection:
            connection.sendall(request_text(dict(PROMPT, stream=True, max_tokens=LONG)))
            connection.recv(4096)
            self.assertEqual(running(server.url, context), 1)
        wait_until(lambda: running(server.url, context) == 0, "the request of a client that left to end")
        aborted = [
            line for line in answer(server.url, "/metrics", context=context)[1].splitlines() if '"abort"' in line
        ]
        self.assertEqual([line.split()[-1] for line in aborted], ["1"], "it ran to its end")
        for damage, reason in ((b"no certificate", "not a PEM file"), (first[1].read_bytes(), "no certificate")):
            cert.write_bytes(damage)
            reload("error: reload: --tls-cert")
            self.assertIn(reason, server.lines[-1] + server.lines[-2])
            self.assertEqual(serial_of(port, context), new, "a bad file replaced the certificate")
        shutil.copy(first[0], cert)  # its key is not there
        reload("error: reload: --tls-key")
        self.assertEqual(serial_of(port, context), new)
        self.assertEqual(server.stop(), 0, server.last_lines())


class ClientCertificateTest(unittest.TestCase):
    def test_every_request_but_probes_needs_a_certificate_of_the_authority(self):
        server = ServerProcess(
            *("--tls-cert", AUTHORITY.sign()[0], "--tls-key", AUTHORITY.folder / f"{AUTHORITY.count}.key"),
            *("--ssl-ca-certs", AUTHORITY.file),
            real_model=False,
        )
        url = server.url.replace("127.0.0.1", "localhost")
        without_certificate = AUTHORITY.context()
        member = AUTHORITY.context(AUTHORITY.sign("client", alternatives=""))
        stranger = AUTHORITY.context(OTHER.sign("stranger", alternatives=""))
        for path in ("/health", "/ready"):
            self.assertEqual(answer(url, path, context=without_certificate)[0], 200, path)
        for path, body in (("/metrics", None), ("/v1/models", None), ("/v1/completions", PROMPT), ("/", None)):
            status, text = answer(url, path, body, without_certificate)
            self.assertEqual((status, "--tls-client-ca" in text), (403, True), f"{path}: {text}")
            self.assertEqual(answer(url, path, body, member)[0], 200, path)
        with self.assertRaises((ssl.SSLError, ConnectionError, urllib.error.URLError)):
            answer(url, "/health", context=stranger)
        self.assertEqual(server.stop(), 0, server.last_lines())


class OptionsTest(Folder):
    def test_files_that_cannot_serve_are_refused_by_option_and_reason(self):
        cert, key = AUTHORITY.sign()
        other_key = AUTHORITY.sign()[1]
        locked = self.folder / "locked.key"
        openssl("pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked)
        broken = self.folder / "broken.pem"
        broken.write_text(cert.read_text() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        cases = [
            (["--tls-cert", cert], "--tls-key is missing"),
            (["--tls-key", key], "--tls-cert is missing"),
            (["--tls-cert", cert, "--tls-key", other_key], "not the key of the certificate"),
            (["--tls-cert", cert, "--tls-key", locked], "encrypted"),
            (["--tls-cert", self.folder / "none", "--tls-key", key], "--tls-cert"),
            (["--tls-cert", key, "--tls-key", key], "it has no certificate"),
            (["--tls-cert", broken, "--tls-key", key], "damaged"),
            (["--tls-cert", cert, "--tls-key", cert], "it has no private key"),
            (["--tls-client-ca", AUTHORITY.file], "--tls-client-ca"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key], "--tls-client-ca"),
            (["--replica-cert", cert], "--replica-key is missing"),
            (["--replica-ca", self.folder / "none"], "--replica-ca"),
        ]
        for args, text in cases:
            for command in (["serve", *self.dummy], ["route", "--replicas", "https://127.0.0.1:9"]):
                with self.subTest(command=command[0], args=args):
                    done = tactus(*command, "--port", 0, *args)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(text, done.stderr)


class FleetTest(unittest.TestCase):
    def test_a_router_and_its_replicas_speak_tls_with_client_certificates(self):
        cert, key = AUTHORITY.sign()
        member = AUTHORITY.sign("router", alternatives="")
        replicas = [
            ServerProcess("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", AUTHORITY.file, real_model=False)
            for _ in range(2)
        ]
        urls = [replica.url for replica in replicas]
        router = Router(
            urls,
            *("--tls-cert", str(cert), "--tls-key", str(key), "--slow-start", "0", "--replica-ca", str(AUTHORITY.file)),
            *("--replica-cert", str(member[0]), "--replica-key", str(member[1])),
        )
        context = AUTHORITY.context()
        url = router.url.replace("127.0.0.1", "localhost")
        self.assertTrue(url.startswith("https://"))

        def ready():
            status, text = answer(url, "/ready", context=context)
            return status == 200 and json.loads(text)["replicas"] == 2

        wait_until(ready, "two replicas ready", about=router.last_lines)
        served = set()
        for i in range(20):
            request = urllib.request.Request(
                url + "/v1/completions",
                json.dumps(dict(PROMPT, prompt=f"request {i}", stream=i % 2 == 0)).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60, context=context) as response:
                text = response.read().decode()
                served.add(response.headers["x-tactus-replica"])
            self.assertTrue("[DONE]" in text or json.loads(text)["usage"]["completion_tokens"] == 8, text)
        self.assertEqual(len(served), 2, served)
        router.process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: any("reloaded:" in line and "certificates" in line for line in router.lines),
            "the reload",
            about=router.last_lines,
        )
        self.assertEqual(answer(url, "/v1/completions", PROMPT, context)[0], 200, "after the reload")
        self.assertEqual(router.stop(), 0)

        for args, reason in (
            (["--replica-ca", str(OTHER.file)], "certificate"),
            (["--replica-ca", str(AUTHORITY.file), "--replica-tls-name", "another.example"], "certificate"),
            (["--replica-ca", str(AUTHORITY.file)], "403"),  # it shows no certificate
        ):
            with self.subTest(args=args):
                router = Router(urls, *args, "--verbose")

                def has_reason(router=router, reason=reason):
                    return reason in router.get("/fleet/replicas")[1]

                wait_until(has_reason, f"the reason '{reason}'", about=lambda: router.get("/fleet/replicas")[1])
                self.assertEqual(json.loads(router.get("/ready")[1])["replicas"], 0)
                self.assertEqual(router.stop(), 0)
        # Certificates with the fleet's name, reached by addresses.
        named = AUTHORITY.sign("replicas.fleet", alternatives="DNS:replicas.fleet")
        server = ServerProcess("--tls-cert", named[0], "--tls-key", named[1], real_model=False)
        router = Router(
            [server.url],
            "--replica-ca",
            str(AUTHORITY.file),
            "--replica-tls-name",
            "replicas.fleet",
            "--slow-start",
            "0",
        )
        router.await_ready(1)
        self.assertEqual(router.stop(), 0)
        for replica in [*replicas, server]:
            self.assertEqual(replica.stop(), 0, replica.last_lines())


class MoveTest(unittest.TestCase):
    def test_a_sequence_moves_between_replicas_over_tls(self):
        cert, key = AUTHORITY.sign()
        member = AUTHORITY.sign("member", alternatives="")
        secret = AUTHORITY.folder / "secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        joins = ["--replica-ca", AUTHORITY.file, "--replica-cert", member[0], "--replica-key", member[1]]
        joins += ["--kv-secret-file", secret]
        replicas = [
            ServerProcess(
                *("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", AUTHORITY.file, *joins),
                real_model=False,
                config=SLOW,
            )
            for _ in range(2)
        ]
        router = Router(
            [r.url for r in replicas], *map(str, joins), "--slow-start", "0", "--rebalance-interval", "20ms"
        )
        router.await_ready(2)
        with raw(port_of(router.url)) as connection:
            connection.sendall(request_text(dict(PROMPT, stream=True, max_tokens=LONG), "Connection: close"))
            text = connection.recv(4096)
            at = text.split(b"x-tactus-replica: ")[1].split(b"\r\n")[0].decode()
            self.assertEqual(router.post("/fleet/drain", {"url": "https://" + at})[0], 200)
            text += read_all(connection)
        self.assertIn(b"data: [DONE]", text)
        self.assertEqual(router.metric('tactus_route_migrations_total{result="followed"}'), 1, router.last_lines())
        self.assertEqual(router.stop(), 0)
        for replica in replicas:
            self.assertEqual(replica.stop(), 0, replica.last_lines())


if __name__ == "__main__":
    unittest.main()
