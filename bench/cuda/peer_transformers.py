#!/usr/bin/env python3
"""Output tokens per second of transformers' continuous batching on a GPU, for scripts/gpu.sh measure: a model of random
bf16 weights, prompts of random tokens, answers of one length. Prints one JSON object; what fails is in it.

  peer_transformers.py CONFIG_FOLDER REQUESTS PROMPT_TOKENS ANSWER_TOKENS

The seconds are those from the first request's start to the last one's end, as transformers reports them: the cache and
CUDA graphs are made before. Attention is the fastest that it finds (flash, if a package of it is installed), else its
own.
"""

import contextlib
import json
import random
import sys

ATTENTION = (None, "paged|sdpa")  # None: transformers chooses


def generate(model, inputs, settings):
    """The finished answers; RuntimeError: an answer is missing, failed or short."""
    answers = list(model.generate_batch(inputs, generation_config=settings, progress_bar=False).values())
    faults = [answer.error for answer in answers if answer.error]
    short = [answer for answer in answers if len(answer.generated_tokens) != settings.max_new_tokens]
    if faults or short or len(answers) != len(inputs):
        raise RuntimeError(
            f"{len(answers)} of {len(inputs)} answers, {len(short)} short, {len(faults)} failed {faults[:1]}"
        )
    return answers


def measure():
    import torch
    import transformers

    folder, (requests, prompt_tokens, answer_tokens) = sys.argv[1], map(int, sys.argv[2:5])
    result = {"requests": requests, "prompt_tokens": prompt_tokens, "answer_tokens": answer_tokens}
    result |= {"torch": torch.__version__, "transformers": transformers.__version__}
    config = transformers.AutoConfig.from_pretrained(folder)
    draw = random.Random(1)
    inputs = [
        [draw.randrange(config.vocab_size // 10, config.vocab_size) for _ in range(prompt_tokens)]
        for _ in range(requests)
    ]
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()

    def settings(tokens):
        return transformers.GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)

    for attention in ATTENTION:
        try:
            if attention:
                model.set_attn_implementation(attention)
            generate(model, inputs[:2], settings(4))
            result["attention"] = attention or "chosen by transformers"
            break
        except Exception as fault:
            if attention == ATTENTION[-1]:
                raise
            print(f"transformers' own choice of attention fails: {fault}", file=sys.stderr)
    answers = generate(model, inputs, settings(answer_tokens))
    first, end = min(a.lifespan[0] for a in answers), max(a.lifespan[1] for a in answers)
    result["seconds"] = end - first
    result["output_tokens"] = sum(len(answer.generated_tokens) for answer in answers)
    result["output_tokens_per_s"] = result["output_tokens"] / result["seconds"]
    return result


def main():
    try:
        with contextlib.redirect_stdout(sys.stderr):  # transformers prints
            result = measure()
    except Exception as fault:  # the peer's fault is a result
        result = {"error": f"{type(fault).__name__}: {fault}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
