"""An OCI image made without a daemon: one layer with the archive's files, the loader and glibc of this machine, its
certificates of authorities, and a user. `docker load`, `podman load` and `skopeo copy oci-archive:...` read it.

    image.py STAGE OUT.oci.tar --version V --time SECONDS     STAGE: the folder that archive.py has bundled
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from closure import OF_GLIBC, needed
from options import arguments

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
USER = 10001
# Names of hosts are looked up by libraries that glibc loads by name.
LOOKUP = ["libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"]


class Layer:
    """A tar file whose bytes depend on nothing but what is added, in order."""

    def __init__(self, time_s: int) -> None:
        self.time_s = time_s
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.USTAR_FORMAT)
        self.folders: set[str] = set()

    def _info(self, name: str, mode: int, owner: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode, info.mtime, info.uid, info.gid = mode, self.time_s, owner, owner
        return info

    def folder(self, name: str, mode: int = 0o755, owner: int = 0) -> None:
        parent = str(Path(name).parent)
        if parent != "." and parent not in self.folders:
            self.folder(parent)
        if name in self.folders:
            return
        self.folders.add(name)
        info = self._info(name, mode, owner)
        info.type = tarfile.DIRTYPE
        self.tar.addfile(info)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(str(Path(name).parent))
        info = self._info(name, mode, 0)
        info.size = len(content)
        self.tar.addfile(info, io.BytesIO(content))

    def done(self) -> bytes:
        self.tar.close()
        return self.bytes.getvalue()


def layer_of(stage: Path, time_s: int) -> bytes:
    layer = Layer(time_s)
    for name in ("tmp",):
        layer.folder(name, 0o1777)
    programs = sorted(p for p in (stage / "bin").iterdir() if p.is_file())
    of_glibc = {name: path for name, path in needed(programs).items() if OF_GLIBC.match(name)}
    folder = next(path.parent for name, path in of_glibc.items() if name.startswith("libc.so"))
    for name in LOOKUP:
        if (folder / name).exists():
            of_glibc[name] = folder / name
    for name, path in sorted(of_glibc.items()):
        # The loader's path is in the programs; the loader finds the others in its built-in folder.
        where = path if name.startswith("ld-linux") else folder / name
        layer.file(str(where).lstrip("/"), path.read_bytes(), 0o755)
    layer.file("etc/ssl/certs/ca-certificates.crt", CERTIFICATES.read_bytes())
    layer.file("etc/passwd", f"root:x:0:0::/:/\ntactus:x:{USER}:{USER}::/var/lib/tactus:/\n".encode())
    layer.file("etc/group", f"root:x:0:\ntactus:x:{USER}:\n".encode())
    layer.file("etc/nsswitch.conf", b"hosts: files dns\n")
    for path in sorted(stage.rglob("*")):
        if path.is_file() and path.relative_to(stage).parts[:2] != ("share", "man"):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            layer.file(f"usr/local/{path.relative_to(stage).as_posix()}", path.read_bytes(), mode)
    layer.folder("models")
    layer.folder("var/lib/tactus", 0o750, USER)
    return layer.done()


def main() -> None:
    args = arguments(__doc__.splitlines()[0])
    if not CERTIFICATES.exists():
        raise SystemExit(f"package: {CERTIFICATES} is missing; install the package ca-certificates")
    plain = layer_of(args.stage, args.time)
    packed = gzip.compress(plain, 6, mtime=0)
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    made = datetime.fromtimestamp(args.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {
        "org.opencontainers.image.title": "tactus",
        "org.opencontainers.image.version": args.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {
        "created": made,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [
                "PATH=/usr/local/bin",
                "TACTUS_HOST=0.0.0.0",
                "TACTUS_CACHE_DIR=/var/lib/tactus/cache",
                "HOME=/var/lib/tactus",
            ],
            "Entrypoint": ["/usr/local/bin/tactus"],
            "Cmd": ["serve", "/models/model.gguf"],
            "WorkingDir": "/var/lib/tactus",
            "ExposedPorts": {"8000/tcp": {}},
            "Volumes": {"/models": {}, "/var/lib/tactus": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        "history": [{"created": made, "created_by": "tools/package/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [blob(packed, "application/vnd.oci.image.layer.v1.tar+gzip")],
        "annotations": labels,
    }
    entry = blob(json.dumps(manifest).encode(), manifest["mediaType"])
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"tactus:{args.version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    archive = Layer(args.time)
    archive.file("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
    archive.file("index.json", json.dumps(index).encode())
    for digest, content in sorted(blobs.items()):
        archive.file(f"blobs/sha256/{digest}", content)
    content = archive.done()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(content)
    print(f"{hashlib.sha256(content).hexdigest()}  {args.out.name}")


if __name__ == "__main__":
    main()
