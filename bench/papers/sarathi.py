"""Sarathi (2023): decode-maximal batching and chunked prompts. Every request of its experiments on one device has P prompt and D answer tokens
with P + D = L, P / D = R; a batch has B sequences, a step C tokens."""
from claims import ABOVE_ONE, Between, Claim, Near, Sim

PAPER = "Sarathi: Efficient LLM Inference by Piggybacking Decodes with Chunked Prefills (2023)"
KERNELS = "--attention-kernels two"  # 4.3.1: chunks and decodes attend separately
SMALL = f"--model llama-13b --device a6000 {KERNELS} --override-context 4096"
LARGE = f"--model llama-33b --device a100 {KERNELS} --override-context 4096"
# All requests are there from the beginning. The papers' own memory is stated by the batch size: as many blocks as B sequences of L need.
AT_ONCE = "--rate 1000000 --arrivals constant --as-paper --ignore-eos on --prefix-caching off --seed {seed}"


def batch(deployment, length, ratio, size, scheduler, rounds=20):
    """`rounds` batches of equal requests."""
    answer = max(1, round(length / (ratio + 1)))
    blocks = size * (length // 16 + 2)
    return Sim(f"{deployment} --workload random:in={length - answer},out={answer} --requests {rounds * size} {AT_ONCE} --max-num-seqs {size} "
               f"--kv-blocks {blocks} {scheduler}")


BASELINE = "--scheduler request-level"


def chunks(size):
    return f"--scheduler sarathi --token-budget {size}"


def orca_at_best(length, size):
    """The paper: a special case of Sarathi whose chunk is the longest prompt; the decodes come on top."""
    return f"--scheduler sarathi --token-budget {length + size}"


def gain(new="new", old="old"):
    return lambda r: r[old]["duration_s"] / r[new]["duration_s"]


# Sequences that fit, as the paper has them: 18, 9 and 6 at 1K, 2K and 3K of LLaMA-13B on an A6000.
FITS = {1024: 18, 2048: 9, 3072: 6}


def balanced(chunk, size):
    return chunk / (size - 1)


RATIOS = (4, 8, 12, 20, 28, 36, 50, 63, 80, 100, 127, 160, 200)


def peak(deployment, length, size, chunk=256):
    """Runs of Sarathi and of the baseline at every ratio; the value is the ratio with the largest gain."""
    runs = {}
    for ratio in RATIOS:
        runs[f"sarathi, P:D {ratio}"] = batch(deployment, length, ratio, size, chunks(chunk), rounds=30)
        runs[f"baseline, P:D {ratio}"] = batch(deployment, length, ratio, size, BASELINE, rounds=30)
    return runs, lambda r: max(RATIOS, key=lambda x: r[f"baseline, P:D {x}"]["duration_s"] / r[f"sarathi, P:D {x}"]["duration_s"])


def ms(step):
    return 1000 * (step["end_s"] - step["start_s"])


def step_ms(result, prompt_tokens, decodes):
    """The first step of so many prompt tokens and decodes."""
    for step in result["steps_out"]:
        if (step["prompt_tokens"], step["decodes"]) == (prompt_tokens, decodes):
            return ms(step)
    raise KeyError(f"no step of {prompt_tokens} prompt tokens and {decodes} decodes")


def one_step(deployment, workload, requests):
    """What single steps take: prompts are computed whole."""
    return Sim(f"{deployment} --workload {workload} --requests {requests} --scheduler orca --as-paper --ignore-eos on --prefix-caching off --seed {{seed}}",
               requests, requests, steps=True)


def attention_ms(step, of="attention of decodes"):
    """A part of what `tactus sim step` prints."""
    return next(part["ms"] for part in step["parts"] if part["name"] == of)


def prompt_alone(deployment, tokens):
    return one_step(deployment, f"random:in={tokens},out=2 --concurrency 1", 1)


BESIDE = one_step(SMALL, "trace:{mix_1021_3_1024}", 4)  # 1,024 tokens in the step, as in the prompt's alone
ALONE = prompt_alone(SMALL, 1024)
FOUR = one_step(SMALL, "random:in=1024,out=8 --concurrency 4", 4)
# Figure 8's batches, up to the largest that fit, and table 4's.
SMALL_BATCHES = tuple((length, size) for length, sizes in ((1024, (2, 4, 9, 18)), (2048, (2, 4, 9)), (3072, (2, 4, 6))) for size in sizes)
LARGE_BATCHES = ((1024, 10), (2048, 5), (3072, 3))


def marginal_ms(r):
    return (step_ms(r["beside"], 1021, 3) - step_ms(r["alone"], 1024, 0)) / 3


def speedups(deployment, batches, chunk=256):
    """Largest over `batches` (tokens of a sequence, sequences) of: a decode in a step of their own, over what one adds to a chunk, both in one step of `chunk`
    tokens. The paper: the difference to a step of the prompt's tokens alone."""
    runs = {}
    for length, size in batches:
        memory = f" --kv-blocks {(size + 1) * (length // 16 + 2)}"  # the paper's batches fit
        runs[f"alone, {size}"] = prompt_alone(deployment, chunk - size + 1)
        runs[f"beside, {length} x {size}"] = one_step(deployment, f"trace:{{mix_{chunk - size + 1}_{size - 1}_{length}}}" + memory, size)
        runs[f"own, {length} x {size}"] = one_step(deployment, f"random:in={length},out=8 --concurrency {size}" + memory, size)

    def of(r, length, size):
        adds = step_ms(r[f"beside, {length} x {size}"], chunk - size + 1, size - 1) - step_ms(r[f"alone, {size}"], chunk - size + 1, 0)
        return step_ms(r[f"own, {length} x {size}"], 0, size) / size / (adds / (size - 1))
    return runs, lambda r: max(of(r, *batch) for batch in batches)


def prefill(deployment, length, chunk):
    """A prompt alone, in chunks or (None) at once."""
    return Sim(f"{deployment} --workload random:in={length},out=1 --requests 8 --concurrency 1 --as-paper --ignore-eos on --prefix-caching off "
               f"--seed {{seed}} " + ("--scheduler orca" if chunk is None else f"--scheduler sarathi-serve --token-budget {chunk}"))


def prefill_loss(chunk):
    runs = {"chunks": prefill(SMALL, 1024, chunk), "whole": prefill(SMALL, 1024, None)}
    return runs, lambda r: 100 * (1 - r["whole"]["ttft_ms"]["mean"] / r["chunks"]["ttft_ms"]["mean"])


# GPT-3 on 64 A100: eight stages of eight devices, or eight replicas. The paper's batch of 27 is a stage's; eight are in flight.
GPT = f"--model gpt-3 --device a100 --tp 8 {KERNELS} --override-context 4096 --workload lengths:{{zipf}} --requests {{requests}} " + AT_ONCE
PIPELINE = {
    "orca": Sim(f"{GPT} --pp 8 --max-num-seqs 216 --scheduler orca", 10000, 2000),
    "sarathi": Sim(f"{GPT} --pp 8 --max-num-seqs 216 --scheduler sarathi --token-budget 256", 10000, 2000),
    "replicas": Sim(f"{GPT} --replicas 8 --max-num-seqs 11 --scheduler orca", 10000, 2000),
}


def some(*names):
    return {name: PIPELINE[name] for name in names}


def bubble(result):
    return result["bubbles"]["per_request_ms"]["p50"]


def claims():
    rows = [
        Claim("s23-prefill-step", "4.3, table 2", "a prompt of 1,024 tokens alone takes so long (LLaMA-13B, A6000)", "234.8 ms", Near(234.8, 0.2, None),
              {"alone": ALONE}, lambda r: step_ms(r["alone"], 1024, 0), "ms", (1,), model="llama-13b a6000", perturb=False,
              why="our fit of the A6000's products comes from other people's profiles"),
        Claim("s23-decode-step", "4.3, table 2", "a step of four decodes behind 1,024 tokens each takes so long", "49.96 ms", Near(49.96, 0.2, None),
              {"four": FOUR}, lambda r: step_ms(r["four"], 0, 4), "ms", (1,), model="llama-13b a6000", perturb=False),
        Claim("s23-marginal", "4.3, table 2", "what a decode adds to a step of a chunk, both steps of 1,024 tokens in all", "1.2 ms", Near(1.2, 0.35, 12.49),
              {"beside": BESIDE, "alone": ALONE}, marginal_ms, "ms", (1,), model="llama-13b a6000",
              why="in the paper's table attention takes 5.2 ms more for three decodes, 1.7 each, as here; that its products take 1.6 ms less for as many tokens makes 1.2 of it"),
        Claim("s23-attention", "4.3, table 2", "of it the attention of a decode beside the chunk: a third of what three add in the table", "1.73 ms", Near(1.73, 0.2, None),
              {"beside": Sim(f"step {SMALL} --chunk 1021 --decodes 3x1024", 1, 1)}, lambda r: attention_ms(r["beside"]) / 3, "ms", (1,), model="llama-13b a6000", perturb=False),
        Claim("s23-decode-speedup", "5.1.1, figure 8", "decodes are up to so many times cheaper beside a chunk than in a step of their own: C = 256, ten batches of 2 to 18 sequences (LLaMA-13B, A6000)",
              "10", Near(10, 0.35), *speedups(SMALL, SMALL_BATCHES), "x", (1,), model="llama-13b a6000"),
        Claim("s23-decode-speedup-33b", "5.1.1, table 4", "the same of LLaMA-33B on an A100, batches of 10, 5 and 3 sequences of 1K, 2K and 3K", "4.25", Near(4.25, 0.35),
              *speedups(LARGE, LARGE_BATCHES), "x", (1,), model="llama-33b a100"),
    ]
    for length, value in ((1024, 1.27), (2048, 1.25), (3072, 1.23)):
        size = FITS[length]
        rows.append(Claim(f"s23-gain-{length // 1024}k", "5.2, figure 11a", f"throughput over the baseline with P + D = {length}, C = 256 and balanced P:D (B {size})",
                          f"{value}", Near(value, 0.5, of_effect=True), {"new": batch(SMALL, length, balanced(256, size), size, chunks(256)),
                                                       "old": batch(SMALL, length, balanced(256, size), size, BASELINE)}, gain(), "x", (1,),
                          model="llama-13b a6000"))
    rows += [
        Claim("s23-end-to-end-13b", "5.1.2, table 4", "end-to-end gain of LLaMA-13B on an A6000 at its best setting (1K, B 6, P:D 50)", "1.33", Near(1.33, 0.5, of_effect=True),
              {"new": batch(SMALL, 1024, 50, 6, chunks(256)), "old": batch(SMALL, 1024, 50, 6, BASELINE)}, gain(), "x", (1,), model="llama-13b a6000"),
        Claim("s23-end-to-end-33b", "5.1.2, table 4", "end-to-end gain of LLaMA-33B on an A100 at its best setting (1K, B 10, P:D 28)", "1.25", Near(1.25, 0.5, of_effect=True),
              {"new": batch(LARGE, 1024, 28, 10, chunks(256)), "old": batch(LARGE, 1024, 28, 10, BASELINE)}, gain(), "x", (1,), model="llama-33b a100"),
    ]
    for name, deployment, length, size, at in (("13b-1k", SMALL, 1024, 6, 50), ("33b-1k", LARGE, 1024, 10, 28), ("33b-2k", LARGE, 2048, 5, 63),
                                               ("33b-3k", LARGE, 3072, 3, 127)):
        runs, value = peak(deployment, length, size)
        rows.append(Claim(f"s23-peak-{name}", "5.1.3, table 4", f"the gain over P:D 1 to 200 is largest where chunks and decode steps balance, C / (B - 1) (B {size})",
                          f"P:D {at}", Near(at, 0.3, None), runs, value, "", (1,), model="llama-13b a6000" if deployment == SMALL else "llama-33b a100"))
    rows += [
        Claim("s23-tile", "5.4, figure 13c", "a chunk of 256, a multiple of the tile, does better than 320", "above 1", ABOVE_ONE,
              {"new": batch(SMALL, 1024, balanced(256, 18), 18, chunks(256)), "old": batch(SMALL, 1024, balanced(256, 18), 18, chunks(320))}, gain(), "x", (1,),
              model="llama-13b a6000"),
        *(Claim(f"s23-step-{tokens}", "4.4, figure 7", f"a prompt of {tokens} tokens alone takes so long (LLaMA-13B, A6000)", f"{paper} ms", Near(paper, 0.2, None),
                {"alone": prompt_alone(SMALL, tokens)}, lambda r, tokens=tokens: step_ms(r["alone"], tokens, 0), "ms", (1,), model="llama-13b a6000", perturb=False,
                stands_in="figure 7 does not name its model: LLaMA-13B on an A6000, whose table 2 it fits") for tokens, paper in ((128, 55), (256, 69.8))),
        Claim("s23-tile-step", "4.4, figure 7", "one token more than 256 makes a step so much longer", "32 %", Near(32, 0.3, 0),
              {"256": prompt_alone(SMALL, 256), "257": prompt_alone(SMALL, 257)}, lambda r: 100 * (step_ms(r["257"], 257, 0) / step_ms(r["256"], 256, 0) - 1), "%", (1,),
              model="llama-13b a6000", perturb=False, why="between measured sizes half of the rise follows a straight line, whatever tile the library picks"),
        Claim("s23-orca-best", "5.2, figure 11a", "Orca at its best gains so much at 1K", "1.11", Near(1.11, 0.5, of_effect=True),
              {"new": batch(SMALL, 1024, balanced(256, 18), 18, orca_at_best(1024, 18)), "old": batch(SMALL, 1024, balanced(256, 18), 18, BASELINE)}, gain(), "x", (1,),
              model="llama-13b a6000", why="decode steps are shorter here than the paper's (`s23-decode-step`), so there is less to hide beside whole prompts"),
        Claim("s23-orca-worst", "5.2, figure 11a", "Orca at its worst, all requests beginning and ending together, gains nothing", "1", Near(1, 0.03, None),
              {"new": batch(SMALL, 1024, balanced(256, 18), 18, "--scheduler orca"), "old": batch(SMALL, 1024, balanced(256, 18), 18, BASELINE)}, gain(), "x", (1,),
              model="llama-13b a6000"),
    ]
    for chunk, most in ((256, 20), (512, 10)):
        runs, value = prefill_loss(chunk)
        rows.append(Claim(f"s23-chunk-{chunk}", "5.4, figure 13b", f"chunks of {chunk} lose at most so much prefill speed", f"at most {most} %", Between(None, most),
                          runs, value, "%", (1,), model="llama-13b a6000", perturb=False))
    stands_in = "the Zipf exponent is lost from the paper's text: 0.4"
    rows += [
        Claim("s23-bubbles", "5.3, figure 12a", "median bubble time of a request, Orca over Sarathi (GPT-3, TP 8 PP 8)", "6.29", Near(6.29, 0.3), some("orca", "sarathi"),
              lambda r: bubble(r["orca"]) / bubble(r["sarathi"]), "x", model="gpt-3 a100", stands_in=stands_in,
              why="our steps of 256 tokens differ only in their contexts, and our stages have no host work of their own: bubbles are as few as the contexts allow"),
        Claim("s23-pipeline", "5.3, figure 12b", "10,000 requests are done so many times sooner than with Orca on the same pipeline", "1.91", Near(1.91, 0.5, of_effect=True),
              some("orca", "sarathi"), lambda r: r["orca"]["duration_s"] / r["sarathi"]["duration_s"], "x", model="gpt-3 a100", stands_in=stands_in,
              why="Orca's prompts of up to 3,700 tokens beside decodes leave longer bubbles here than the paper's simulator has"),
        Claim("s23-pipeline-replicas", "5.3, figure 12b", "and so many times sooner than with eight replicas of TP 8", "1.48", Near(1.48, 0.5, of_effect=True), some("replicas", "sarathi"),
              lambda r: r["replicas"]["duration_s"] / r["sarathi"]["duration_s"], "x", model="gpt-3 a100", stands_in=stands_in),
        Claim("s23-replicas-orca", "5.3, figure 12b", "the replicas in turn are so many times faster than the pipeline with Orca", "1.28", Near(1.28, 0.5, of_effect=True),
              some("orca", "replicas"), lambda r: r["orca"]["duration_s"] / r["replicas"]["duration_s"], "x", model="gpt-3 a100", stands_in=stands_in,
              why="Orca's pipeline is slower here than in the paper"),
    ]
    return rows
