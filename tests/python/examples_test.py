"""The examples of README.md and docs/how-to/python.md run unchanged on the default model; those for a cluster are left
out."""

import contextlib
import io
import pathlib
import re
import unittest

import tactus
from server_process import default_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Variables that the reader must define.
GIVEN = {"token_ids": [[i % 7] * 50 + [i] for i in range(40)]}


class DefaultModel(tactus.LLM):
    """LLM() with this machine's copy of the default model."""

    def __init__(self, model="", **options):
        super().__init__(default_model() if model in ("", "model.gguf") else model, kv_cache_memory="256MiB", **options)


class DefaultAsyncModel(tactus.AsyncLLM):
    def __init__(self, model="", **options):
        super().__init__(default_model() if model == "model.gguf" else model, kv_cache_memory="256MiB", **options)


@unittest.skipIf(default_model() is None, "TACTUS_DEFAULT_MODEL names no model")
class ExamplesTest(unittest.TestCase):
    def test_the_examples_run(self):
        counted = 0
        for page in ("README.md", "docs/how-to/python.md"):
            for block in re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S):
                if "from tactus import" not in block or "ray" in block:
                    continue
                counted += 1
                with self.subTest(page=page, first=block.splitlines()[0]):
                    originals = tactus.LLM, tactus.AsyncLLM
                    tactus.LLM, tactus.AsyncLLM = DefaultModel, DefaultAsyncModel
                    try:
                        with (
                            contextlib.redirect_stdout(io.StringIO()) as said,
                            contextlib.redirect_stderr(io.StringIO()),
                        ):
                            exec(compile(block, page, "exec"), dict(GIVEN))
                    except tactus.UnimplementedError as error:  # the grammar library is missing
                        self.skipTest(str(error))
                    finally:
                        tactus.LLM, tactus.AsyncLLM = originals
                    if "capital of France" in block:
                        self.assertIn("Paris", said.getvalue())
        self.assertEqual(counted, 6)


if __name__ == "__main__":
    unittest.main()
