"""docs/reference/metrics.md lists the metrics of a server and of a router as they describe them."""

import sys
import tempfile
import unittest

from router_process import Router
from server_process import ServerProcess
from tutorial_page import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import metrics_page  # noqa: E402


class MetricsPageTest(unittest.TestCase):
    def test_every_metric_is_on_it_as_the_programs_describe_it(self):
        folders = [tempfile.TemporaryDirectory() for _ in range(2)]
        for folder in folders:
            self.addCleanup(folder.cleanup)
        files, prompts = (folder.name for folder in folders)
        server = ServerProcess("--files-dir", files, "--kv-cache-dir", prompts, real_model=False)
        self.addCleanup(server.stop)
        router = Router([server.url])
        self.addCleanup(router.stop)
        made = metrics_page.page(metrics_page.answer(server.url), metrics_page.answer(router.url))
        self.maxDiff = None
        fix = "tools/metrics_page.py SERVER ROUTER --write, with the addresses of such a pair"
        self.assertMultiLineEqual(metrics_page.PAGE.read_text(encoding="utf-8"), made, fix)


if __name__ == "__main__":
    unittest.main()
