#!/usr/bin/env python3
"""The rows of llama.cpp for numerics_table: next-token distributions of a running llama-server, position by position,
against the f32 reference that numerics_table wrote with --dump; for the chat answers, and for TOKENS if given (as far
as the dump goes).

  llama-server -m MODEL.gguf --port 8099 -c 1024 -np 1
  numerics_table MODEL.gguf CHATS.json TOKENS.txt 512 --dump reference.f32
  llama_cpp_row.py http://127.0.0.1:8099 CHATS.json reference.f32 TOKENS.txt

The server returns the 1000 most likely tokens; the others count as one. KL of this coarser distribution is a lower
bound.
"""

import array
import json
import math
import sys
import urllib.request

TOP = 1000


def complete(url, tokens, count, top):
    body = {
        "prompt": tokens,
        "n_predict": count,
        "temperature": 0,
        "n_probs": top,
        "cache_prompt": True,
        "return_tokens": True,
    }
    request = urllib.request.Request(
        url + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def log_softmax(logits):
    high = max(logits)
    total = high + math.log(math.fsum(math.exp(x - high) for x in logits))
    return [x - total for x in logits]


def divergence(reference, theirs):
    """KL(reference || theirs) with everything outside `theirs` (token -> logprob) as one outcome."""
    kl = sum(math.exp(reference[t]) * (reference[t] - lp) for t, lp in theirs.items())
    rest_p = max(1.0 - math.fsum(math.exp(reference[t]) for t in theirs), 1e-12)
    rest_q = max(1.0 - math.fsum(math.exp(lp) for lp in theirs.values()), 1e-12)
    return max(kl + rest_p * math.log(rest_p / rest_q), 0.0)


class Scores:
    def __init__(self):
        self.kls, self.same, self.likelihood, self.predicted, self.unnamed = [], 0, 0.0, 0, 0

    def add(self, url, prompt, following, row):
        """`row`: the reference's logits after `prompt`; `following`: the next token, or None."""
        reference = log_softmax(row)
        reply = complete(url, prompt, 1, TOP)
        theirs = {t["id"]: t["logprob"] for t in reply["completion_probabilities"][0]["top_logprobs"]}
        self.kls.append(divergence(reference, theirs))
        self.same += max(theirs, key=theirs.get) == max(range(len(row)), key=reference.__getitem__)
        if following is not None:
            self.predicted += 1
            self.likelihood += theirs.get(following, 0.0)
            self.unnamed += following not in theirs

    def row(self):
        kls, n = sorted(self.kls), len(self.kls)
        perplexity = (
            f"{math.exp(-self.likelihood / self.predicted):.3f}"
            if self.unnamed == 0
            else f"not known ({self.unnamed} tokens not named)"
        )
        return (
            f"| llama.cpp, measured | {sum(kls) / n:.2e} | {kls[min(n - 1, n * 99 // 100)]:.2e} | {kls[-1]:.2e} "
            f"| {100 * self.same / n:.2f} % | {perplexity} |"
        )


def main():
    url, chats, dump = sys.argv[1:4]
    golden = json.load(open(chats))
    vocab = golden["vocab_size"]
    with open(dump, "rb") as reference_file:

        def next_row():
            row = array.array("f")
            row.frombytes(reference_file.read(4 * vocab))
            return row

        scores = Scores()
        for case in golden["cases"]:
            for done in range(len(case["greedy"]) + 1):
                following = case["greedy"][done] if done < len(case["greedy"]) else None
                scores.add(url, case["prompt"] + case["greedy"][:done], following, next_row())
        first = golden["cases"][0]
        answer = complete(url, first["prompt"], 8, 0)["tokens"]
        print(scores.row(), "yes |" if answer[:7] == first["greedy"][:7] else "no |", flush=True)
        if len(sys.argv) > 4:
            tokens, scores, window, at = [int(word) for word in open(sys.argv[4]).read().split()], Scores(), 512, 0
            while row := next_row():
                start = at // window * window
                following = tokens[at + 1] if (at + 1) % window else None
                scores.add(url, tokens[start : at + 1], following, row)
                at += 1
            print(scores.row(), f"   ({at} positions)")


if __name__ == "__main__":
    main()
