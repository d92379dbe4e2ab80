"""Fails if two installed packages have different contents for one file: pip writes both, and its order decides which
one a test imports. Runs with the Python of the environment that it checks."""

import collections
import importlib.metadata
import sys


def shared_files(distributions):
    """{path: [names of the packages]} of files that several packages carry with different contents."""
    owners = collections.defaultdict(dict)
    for distribution in distributions:
        for file in distribution.files or ():
            if file.hash is not None and "__pycache__" not in file.parts:
                owners[str(file)][distribution.metadata["Name"]] = file.hash.value
    return {path: sorted(names) for path, names in owners.items() if len(set(names.values())) > 1}


def main():
    found = shared_files(importlib.metadata.distributions())
    for path, names in sorted(found.items())[:5]:
        print(f"{path} is in {' and '.join(names)}, with different contents", file=sys.stderr)
    if found:
        print(
            f"{len(found)} files of {sys.prefix} are in several packages: give one its own environment", file=sys.stderr
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
