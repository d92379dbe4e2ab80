"""TLS of `tactus epp`: which ports have it, chains, wrong files, and a reload under a running stream."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

try:
    import grpc
    from epp_process import GET, LIMIT_S, EppProcess, destination
except ImportError as error:
    raise unittest.SkipTest(f"no package of tests/requirements.txt: {error}")
from certificates import Authority, serial_of
from fake_replica import FakeReplica
from server_process import wait_until

TACTUS = os.environ["TACTUS_BINARY"]
if not pathlib.Path(TACTUS + "-epp").exists():
    raise unittest.SkipTest("this build has no endpoint picker: no gRPC")


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = Authority()
        cls.replica = FakeReplica("a")

    @classmethod
    def tearDownClass(cls):
        cls.replica.kill()
        cls.authority.close()

    def picker(self, cert, key, *args, ports=("grpc", "health", "metrics")):
        return EppProcess([self.replica], "--tls-cert", cert, "--tls-key", key, *args, tls=(self.authority, ports))

    def assert_picks(self, epp):
        conversation = epp.conversation()
        conversation.headers(GET, end=True)
        self.assertEqual(destination(conversation.receive("request_headers")), self.replica.address)
        conversation.cancel()

    def test_a_certificate_is_for_all_ports(self):
        with self.picker(*self.authority.sign(kind="rsa")) as epp:
            self.assert_picks(epp)
            for port in epp.ports[:2]:
                self.assertEqual(epp.health("readiness", port), 1)
            self.assertIn("ok", epp.http("/ready"))
            self.assertGreater(epp.metric("tactus_tls_not_after_seconds"), time.time())
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{epp.ports[2]}/metrics", timeout=LIMIT_S)
            self.assertEqual(caught.exception.code, 400, "the metrics port answers without TLS")
            epp.tls_ports = ()
            with self.assertRaises(grpc.RpcError, msg="the health port answers without TLS"):
                epp.health("liveness")
            epp.tls_ports = ("grpc", "health", "metrics")

    def test_other_ports_may_stay_without_tls(self):
        pair = self.authority.sign()
        for name, ports in (("grpc", ("grpc",)), ("grpc-and-metrics", ("grpc", "metrics"))):
            with self.subTest(name), self.picker(*pair, "--tls-ports", name, ports=ports) as epp:
                self.assert_picks(epp)
                self.assertEqual(epp.health("readiness"), 1)
                self.assertIn("tactus_epp_streams ", epp.http("/metrics"))

    def test_a_chain_is_sent_whole(self):
        intermediate = Authority("An intermediate authority", above=self.authority)
        self.addCleanup(intermediate.close)
        cert, key = intermediate.sign()
        cert.write_text(cert.read_text() + intermediate.file.read_text())
        with self.picker(cert, key) as epp:  # whose clients know the root alone
            self.assert_picks(epp)
            self.assertIn("ok", epp.http("/ready"))

    def test_a_reload_changes_the_certificate_of_every_port_and_keeps_streams(self):
        cert, key = self.authority.folder / "live.pem", self.authority.folder / "live.key"

        def place(pair):
            shutil.copy(pair[1], key)
            shutil.copy(pair[0], cert)

        def serials(epp):
            return [serial_of(port, self.authority.context()) for port in epp.ports]

        def reload(epp, line):
            seen = len(epp.lines)
            epp.process.send_signal(signal.SIGHUP)
            wait_until(
                lambda: any(line in said for said in epp.lines[seen:]),
                f"'{line}'",
                about=lambda: f"; it said {epp.lines}",
            )

        first, second = self.authority.sign(), self.authority.sign()
        place(first)
        with self.picker(cert, key) as epp:
            old = serials(epp)
            self.assertEqual(len(set(old)), 1)
            conversation = epp.conversation()
            conversation.headers(GET, end=True)
            conversation.receive("request_headers")
            place(second)
            self.assertEqual(serials(epp), old, "the files were read again without a SIGHUP")
            reload(epp, "reloaded: the log, certificates, ")
            new = serials(epp)
            self.assertEqual(len(set(new)), 1, "some port kept its certificate")
            self.assertNotEqual(new, old, "new connections get the new certificate")
            damages = (
                (b"no certificate", "--tls-cert", "not a PEM file"),
                (first[0].read_bytes(), "--tls-key", "not the key of the certificate"),
            )
            for damage, option, reason in damages:
                cert.write_bytes(damage)
                reload(epp, f"error: reload: {option}")
                self.assertTrue(any(reason in line and "as before" in line for line in epp.lines), epp.lines)
                self.assertEqual(serials(epp), new, "a bad file replaced the certificate")
            conversation.response_headers(end=True)
            conversation.receive("response_headers")  # of the stream that began before
            conversation.expect_end()
            self.assert_picks(epp)

    def test_wrong_files_are_refused_with_the_option(self):
        cert, key = self.authority.sign()
        for args, reason in (
            (["--tls-cert", cert], "--tls-key is missing: --tls-cert needs it"),
            (["--tls-key", key], "--tls-cert is missing: --tls-key needs it"),
            (["--tls-cert", self.authority.folder / "none", "--tls-key", key], "--tls-cert: "),
            (["--tls-cert", "/dev/null", "--tls-key", key], "--tls-cert: /dev/null"),
            (["--tls-cert", __file__, "--tls-key", key], "--tls-cert: .*it is not a PEM file"),
            (["--tls-cert", cert, "--tls-key", self.authority.key], "--tls-key: .*is not the key of the certificate"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-ports", "some"], "--tls-ports"),
        ):
            command = [TACTUS, "epp", "--replicas", self.replica.url, *map(str, args)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, reason)


if __name__ == "__main__":
    unittest.main()
