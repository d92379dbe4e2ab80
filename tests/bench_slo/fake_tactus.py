#!/usr/bin/env python3
"""A fake of the program: `serve` answers run.py's requests, the other commands print output in the real format.
FAKE_DIR: folder for its command lines; FAKE_HANG: its load tests never end; FAKE_TOKENS: prompt tokens that its servers
count for each one sent; FAKE_OLD: its profiles have no variation of steps; FAKE_SIMULATED: number of requests of
simulations."""

import http.server
import json
import os
import pathlib
import sys
import time

FOLDER = pathlib.Path(os.environ["FAKE_DIR"])
HELP = """usage: tactus serve

Schedulers (--scheduler), each a combination of five choices that can be replaced one by one:
  sarathi-serve    chunked prompts join all decodes within a token budget
                   fcfs, prompt-fits, stall-free, tbt-slo, youngest-recompute
  fast             short answers first
                   mlfq, prompt-fits, ranked-whole, prefill-cap, proactive-swap
  trail-oracle     trail with perfect predictions; simulation only
                   srpt, prompt-fits, stall-free, fixed, by-rank-recompute

--order:
  fcfs                     first come, first served
"""


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = {
            "/metrics": 'vllm:cache_config_info{block_size="16",num_gpu_blocks="777"} 1\n',
            "/v1/models": '{"data":[{"id":"m","max_model_len":4096}]}',
        }.get(self.path, "ok")
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_):
        pass


def value(name):
    return sys.argv[sys.argv.index(name) + 1]


def result(kept, requests=10):
    latency = {"mean": 1.0, "p50": 10.0, "p90": 20.0, "p95": 25.0, "p99": 30.0, "max": 31.0}
    chat = {
        "completed": requests,
        "failed": 0,
        "rejected": 0,
        "stated": requests,
        "kept": int(kept * requests),
        "slo_attainment": kept,
        "ttft_ms": latency,
        "tbt_ms": latency,
    }
    return {
        "duration_s": 5.0,
        "requests": {"completed": requests, "failed": 0, "rejected": 0, "unfinished": 0},
        "goodput": kept * requests / 5,
        "slo_attainment": kept,
        "request_throughput": 2.0,
        "ttft_ms": latency,
        "tbt_ms": latency,
        "classes": {"chat": chat},
    }


def main():
    command = sys.argv[1]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    if command == "serve" and "--help-all" in sys.argv:
        print(HELP)
    elif command == "version":
        print("fake 1")
    elif command == "serve":
        with (FOLDER / "server-pids").open("a") as pids:
            pids.write(f"{os.getpid()}\n")
        http.server.ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Server).serve_forever()
    elif command == "profile":
        pathlib.Path(value("-o")).write_text(
            ("" if os.environ.get("FAKE_OLD") else "# spread of steps with prompts: 0.174\n") + "steps\n"
        )
        print("12 measured steps", file=sys.stderr)
    elif command == "sim" and "--steps-out" in sys.argv:
        pathlib.Path(value("--steps-out")).write_text(
            "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms,predicted_ms\n64,0,1,9,30,20\n0,0,1,9,2,4\n"
        )
        print(json.dumps({"steps": 2}))
    elif command == "sim":
        noise = {"with_prompts": 0.174, "decodes_only": 0.118} if "--step-noise" in sys.argv else None
        print(
            json.dumps(
                result(0.5 if noise else 0.75, int(os.environ.get("FAKE_SIMULATED", "10"))) | {"step_noise": noise}
            )
        )
    elif value("--workload").startswith("random:"):
        sent, prompt, answer = int(value("--requests")), 200, 8
        counted = int(os.environ.get("FAKE_TOKENS", "1"))
        print(
            json.dumps(
                result(1.0, sent)
                | {
                    "input_token_throughput": counted * sent * prompt / 5,
                    "output_token_throughput": sent * answer / 5,
                }
            )
        )
    else:
        (FOLDER / "load-began").touch()
        time.sleep(60 if os.environ.get("FAKE_HANG") else 0)
        print(json.dumps(result(0.8)))
        return 1  # as in the program if requests failed, which is still a result
    return 0


sys.exit(main())
