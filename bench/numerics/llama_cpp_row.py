#!/usr/bin/env python3
"""The row of llama.cpp for numerics_table's chat answers: its next-token distributions, asked of a running llama-server
position by position, against the f32 reference that numerics_table wrote with --dump.

  llama-server -m MODEL.gguf --port 8099 -c 1024 -np 1
  numerics_table MODEL.gguf CHATS.json --dump reference.f32
  llama_cpp_row.py http://127.0.0.1:8099 CHATS.json reference.f32

The server names the 1000 most likely tokens; the others count as one. KL of such a coarsened distribution is a lower bound.
"""
import array
import json
import math
import sys
import urllib.request

TOP = 1000


def complete(url, tokens, count, top):
    body = {"prompt": tokens, "n_predict": count, "temperature": 0, "n_probs": top, "cache_prompt": True, "return_tokens": True}
    request = urllib.request.Request(url + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
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


def main():
    url, chats, dump = sys.argv[1:4]
    golden = json.load(open(chats))
    vocab = golden["vocab_size"]
    kls, same, likelihood, predicted = [], 0, 0.0, 0
    with open(dump, "rb") as reference_file:
        for case in golden["cases"]:
            for done in range(len(case["greedy"]) + 1):
                row = array.array("f")
                row.fromfile(reference_file, vocab)
                reference = log_softmax(row)
                reply = complete(url, case["prompt"] + case["greedy"][:done], 1, TOP)
                theirs = {t["id"]: t["logprob"] for t in reply["completion_probabilities"][0]["top_logprobs"]}
                kls.append(divergence(reference, theirs))
                same += max(theirs, key=theirs.get) == max(range(vocab), key=reference.__getitem__)
                if done < len(case["greedy"]):
                    predicted += 1
                    likelihood += theirs.get(case["greedy"][done], -20.0)
    first = golden["cases"][0]
    answer = complete(url, first["prompt"], 8, 0)["tokens"]
    kls.sort()
    n = len(kls)
    print(f"| llama.cpp, measured | {sum(kls) / n:.2e} | {kls[min(n - 1, n * 99 // 100)]:.2e} | {kls[-1]:.2e} | {100 * same / n:.2f} % "
          f"| {math.exp(-likelihood / predicted):.3f} | {'yes' if answer[:7] == first['greedy'][:7] else 'no'} |")


if __name__ == "__main__":
    main()
