"""Shared by tests of the commands: the program as scripts call it, and a folder with a tiny model."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from server_process import CHAT_TEMPLATE, TINY_CONFIG

BINARY = os.environ["TACTUS_BINARY"]
TOKENIZER = pathlib.Path(__file__).parent.parent / "language" / "text" / "data" / "llama3.tokenizer.json"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}


def tactus(*args, stdin="", timeout=120, under=(), **environment):
    return subprocess.run(
        [*under, BINARY, *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(ENVIRONMENT, **environment),
    )


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.model = self.folder / "tiny"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(TINY_CONFIG))
        self.template = self.folder / "chat.jinja"
        self.template.write_text(CHAT_TEMPLATE)
        self.dummy = [self.model, "--load-format", "dummy", "--kv-cache-memory", "64MiB"]
