"""A real trained model of 260 k parameters against llama2.c's own forward pass: TACTUS_DATA/tinymodel, converted by
tools/convert_llama2c.py and served in the f32 reference mode. Skipped where TACTUS_DATA is not set."""

import collections
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import openai
from server_process import ServerProcess

DATA = pathlib.Path(os.environ.get("TACTUS_DATA", "")) / "tinymodel"
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/convert_llama2c.py"
TOLERANCE = 1e-3  # of a logit, for different summation orders


@unittest.skipUnless(
    os.environ.get("TACTUS_DATA") and DATA.is_dir(), "TACTUS_DATA does not name a folder with tinymodel"
)
class TinyModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run(
            [sys.executable, TOOL, DATA / "stories260K.bin", DATA / "tok512.bin", cls.folder.name],
            check=True,
            timeout=120,
        )
        cls.server = ServerProcess("--dtype", "float32", model=cls.folder.name)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        status = cls.server.stop()
        assert status == 0, f"exit status {status}" + cls.server.last_lines()
        cls.folder.cleanup()

    def test_greedy_tokens_are_those_of_llama2c(self):
        cases = collections.defaultdict(list)
        with open(DATA / "golden_greedy.csv", newline="") as f:
            for row in csv.DictReader(f):
                cases[int(row["case"])].append(row)
        for case, rows in cases.items():
            # Positions whose token is not the greedy choice were forced: the prompt ends with the last of them.
            forced = [i for i in range(1, len(rows)) if rows[i]["token"] != rows[i - 1]["next_greedy"]]
            prompt = [int(r["token"]) for r in rows[: (forced[-1] if forced else 0) + 1]]
            expected = rows[len(prompt) - 1 :]
            # If the two best are nearly equal, another summation order may choose the other: compare up to that point.
            for count, row in enumerate(expected, 1):
                if float(row["top1_logit"]) - float(row["top2_logit"]) < 2 * TOLERANCE:
                    expected = expected[: count - 1]
                    break
            self.assertGreater(len(expected), 20, f"case {case}: a near tie came too early for a meaningful comparison")
            ids = [int(row["next_greedy"]) for row in expected]
            answer = self.client.completions.create(
                model="test-model", prompt=prompt, max_tokens=len(ids), temperature=0, extra_body={"ignore_eos": True}
            )
            self.assertEqual(answer.usage.completion_tokens, len(ids))
            # An answer continues its prompt's text; SentencePiece drops the first space only if that is empty.
            continued = self.text(prompt + ids)[len(self.text(prompt)) :]
            self.assertEqual(
                answer.choices[0].text, continued.removeprefix(" ") if len(prompt) == 1 else continued, f"case {case}"
            )

    def text(self, tokens):
        request = urllib.request.Request(
            self.server.url + "/detokenize",
            json.dumps({"tokens": tokens}).encode(),
            {"Content-Type": "application/json"},
        )
        return json.load(urllib.request.urlopen(request, timeout=60))["prompt"]


if __name__ == "__main__":
    unittest.main()
