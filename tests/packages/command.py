"""Runs the commands of these tests."""

import os
import subprocess


def run(*command, cwd=None, env=None, umask=-1, limit_s=600):
    """The output of a command; AssertionError with all of it if it fails. `env` is added to this process's, without
    TMPDIR, which names a folder that a root does not have."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
        cwd=cwd,
        env={**{k: v for k, v in os.environ.items() if k != "TMPDIR"}, **(env or {})},
        umask=umask,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout
