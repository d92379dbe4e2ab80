"""The list of what a package contains (SPDX 2.3, JSON): Tactus, the libraries that it ships or links, their versions
and licences."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from closure import package_of

# Rows of docs/reference/third_party.md whose code is compiled into the programs and in no other file.
COMPILED_IN = {
    "Boost (Asio, Beast, Math)": "BSL-1.0",
    "nlohmann-json": "MIT",
}


def versions_of_page(page: Path) -> dict[str, str]:
    """Library to version, from the table of third_party.md."""
    rows = (line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| "))
    return {row[0].removeprefix("| ").strip(): row[1].strip() for row in rows if len(row) >= 4}


def spdx_id(name: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def digest_of(tree: Path) -> str:
    """32 hexadecimal digits that depend on the names and contents of a package's files. A wheel's RECORD, which lists
    the others, is left out: it is written again later."""
    digest = hashlib.sha256()
    for path in sorted(p for p in tree.rglob("*") if p.is_file() and p.name != "RECORD"):
        digest.update(path.relative_to(tree).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def document(
    version: str,
    libraries: dict[str, Path],
    shipped: Path,
    page: Path,
    time_s: int,
    content: str,
    more: dict[str, str] | None = None,
) -> str:
    """The document. `libraries`: the machine's shared libraries by their names in the package, where they lie in the
    folder `shipped`; `content`: digest_of its files; `more`: further rows of the page that are compiled
    in, and their licences."""
    packages = [
        {
            "SPDXID": "SPDXRef-tactus",
            "name": "tactus",
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": "Apache-2.0",
            "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION",
            "primaryPackagePurpose": "APPLICATION",
        }
    ]
    relations = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relatedSpdxElement": "SPDXRef-tactus", "relationshipType": "DESCRIBES"}
    ]

    def add(name: str, version: str, licence: str, relation: str, digest: str = "", purl: str = "") -> None:
        entry: dict = {
            "SPDXID": spdx_id(name),
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "primaryPackagePurpose": "LIBRARY",
        }
        if digest:
            entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
        if purl:
            reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
            entry["externalRefs"] = [reference]
        packages.append(entry)
        relations.append(
            {"spdxElementId": "SPDXRef-tactus", "relatedSpdxElement": spdx_id(name), "relationshipType": relation}
        )

    versions = versions_of_page(page)
    for name, licence in (COMPILED_IN | (more or {})).items():
        if name not in versions:
            raise SystemExit(f"package: {page} has no row '{name}'; sbom.py and the page must agree")
        add(name, versions[name], licence, "STATIC_LINK")
    for name, path in libraries.items():
        package, package_version = package_of(path)
        digest = hashlib.sha256((shipped / name).read_bytes()).hexdigest()
        purl = f"pkg:deb/debian/{package}@{package_version}" if package else ""
        # Debian's copyright file of the package is shipped beside the library: it has several licences for most.
        add(name, package_version or "NOASSERTION", "NOASSERTION", "DYNAMIC_LINK", digest, purl)
    made = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        json.dumps(
            {
                "spdxVersion": "SPDX-2.3",
                "dataLicense": "CC0-1.0",
                "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"tactus-{version}",
                "documentNamespace": f"https://spdx.org/spdxdocs/tactus-{version}-{content}",
                "creationInfo": {"created": made, "creators": ["Tool: tactus-package"]},
                "packages": packages,
                "relationships": relations,
            },
            indent=1,
        )
        + "\n"
    )
