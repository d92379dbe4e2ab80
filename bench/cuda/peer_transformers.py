#!/usr/bin/env python3
"""Output tokens per second of transformers' continuous batching on a GPU, for scripts/gpu.sh measure: a model of random
bf16 weights, prompts of random tokens, answers of one length. Prints one JSON object; what fails is in it.

  peer_transformers.py CONFIG_FOLDER PROMPT_TOKENS ANSWER_TOKENS REQUESTS
"""

import json
import random
import sys
import time


def main():
    folder, prompt_tokens, answer_tokens, requests = sys.argv[1], *map(int, sys.argv[2:5])
    result = {"prompt_tokens": prompt_tokens, "answer_tokens": answer_tokens, "requests": requests}
    try:
        import torch
        import transformers

        result |= {"torch": torch.__version__, "transformers": transformers.__version__}
        config = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("cuda"):
            torch.set_default_dtype(torch.bfloat16)
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        model.set_attn_implementation("paged|sdpa")
        draw = random.Random(1)
        inputs = [[draw.randrange(1000, config.vocab_size) for _ in range(prompt_tokens)] for _ in range(requests)]
        settings = transformers.GenerationConfig(
            max_new_tokens=answer_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        model.generate_batch(inputs[:2], generation_config=settings, progress_bar=False)
        torch.cuda.synchronize()
        start = time.perf_counter()
        answers = model.generate_batch(inputs, generation_config=settings, progress_bar=False)
        result["seconds"] = time.perf_counter() - start
        result["output_tokens"] = sum(len(answer.generated_tokens) for answer in answers.values())
        result["output_tokens_per_s"] = result["output_tokens"] / result["seconds"]
    except Exception as fault:  # the peer's fault is a result
        result["error"] = f"{type(fault).__name__}: {fault}"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
