"""A tiny random model for tests of the package: answers are random text of the right shape, the same in every run."""

import json
import pathlib
import tempfile

import tactus
from server_process import CHAT_TEMPLATE, TINY_CONFIG


class TinyModel:
    """A folder with the model; `options`: options of LLM and `tactus serve` to run it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name)
        (path / "config.json").write_text(json.dumps(TINY_CONFIG))
        (path / "chat.jinja").write_text(CHAT_TEMPLATE)
        self.path = path
        self.options = {
            "load_format": "dummy",
            "chat_template": str(path / "chat.jinja"),
            "kv_cache_memory": "64MiB",
            "threads": 1,
        }

    def llm(self, **options):
        return tactus.LLM(str(self.path), **dict(self.options, **options))

    def close(self):
        self.folder.cleanup()
