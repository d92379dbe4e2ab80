"""Certificates for tests, made by openssl: an authority, and certificates that it signs for this machine's loopback."""

import pathlib
import ssl
import subprocess
import tempfile


def openssl(*args):
    made = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, timeout=60)
    if made.returncode != 0:
        raise RuntimeError(f"openssl {args[0]}: {made.stderr}")
    return made.stdout


class Authority:
    """Its own certificate is in the file `file`."""

    def __init__(self, name="Test authority", above=None):
        """`above`: the authority that signs this one's certificate; None: it signs itself."""
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.file, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        self.count = 0
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
        if above is None:
            openssl("req", "-x509", *new, "-days", 2, "-keyout", self.key, "-out", self.file)
            return
        request, extensions = self.folder / "ca.csr", self.folder / "ca.ext"
        extensions.write_text("basicConstraints=critical,CA:TRUE\n")
        openssl("req", *new, "-keyout", self.key, "-out", request)
        openssl(
            *("x509", "-req", "-in", request, "-CA", above.file, "-CAkey", above.key, "-CAcreateserial", "-days", 2),
            *("-extfile", extensions, "-out", self.file),
        )

    def close(self):
        self.temporary.cleanup()

    def sign(self, name="localhost", alternatives="DNS:localhost,IP:127.0.0.1", kind="ec"):
        """(certificate, key): files of a certificate for this name."""
        self.count += 1
        cert, key, request = (self.folder / f"{self.count}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / f"{self.count}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "basicConstraints=CA:FALSE\n")
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["-newkey", "rsa:2048"]
        openssl("req", *new, "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days", 2),
            *("-extfile", extensions, "-out", cert),
        )
        return cert, key

    def context(self, client=None):
        """A client's: trusts this authority; shows `client`, a pair of sign()."""
        context = ssl.create_default_context(cafile=self.file)
        if client:
            context.load_cert_chain(*client)
        return context


def serial_of(port, context):
    """Serial number of the certificate that the port shows."""
    import socket

    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.getpeercert()["serialNumber"]
