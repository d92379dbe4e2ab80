"""Sarathi-Serve (OSDI 2024): capacity under an objective on the gap between tokens."""

import shared
from claims import ABOVE_ONE, Between, Capacity, Claim, Near, Sim
from sarathi import one_step, prompt_alone, step_ms
from simulations import GRID, LEAST

PAPER = "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve (OSDI 2024)"
FIGURES = shared.load("policies/sarathi_serve.py")
ETHERNET = "--devices-per-node 4 --network-gbytes-per-s 3.125"  # four devices share a node's 100 Gb/s
BACKEND = (  # the paper's engine: vLLM of 2024, separate kernels for chunks and decodes, Ray workers, no graphs (4.4)
    "--backend vllm-ray"
)
MODELS = {  # flags, strict and relaxed objective in ms, their budgets, the cost model's error
    "mistral": (
        f"--model mistral-7b --device a100 {BACKEND} --override-context 16384",
        (100, 500),
        (512, 2048),
        "mistral-7b a100",
    ),
    "yi": (f"--model yi-34b --device a100-pcie --tp 2 {BACKEND}", (200, 1000), (512, 2048), "yi-34b a100"),
    "llama2": (
        f"--model llama-2-70b --device a40 --tp 4 --pp 2 {BACKEND} --override-context 16384",
        (1000, 5000),
        (512, 1536),
        "llama-2-70b a40",
    ),
    "falcon": (
        f"--model falcon-180b --device a100-pcie --tp 4 --pp 2 {ETHERNET} {BACKEND} --override-context 16384",
        (1000, 5000),
        (512, 2048),
        "falcon-180b a100",
    ),
}
FALCON_TP8 = f"--model falcon-180b --device a100-pcie --tp 8 {ETHERNET} {BACKEND} --override-context 16384"
DATA = {
    "chat": "--workload sharegpt --max-model-len 8192 --long-prompts clip",
    "summaries": "--workload lengths:{summaries} --max-model-len 16384",
}
STANDS_IN = {
    "chat": "openchat_sharegpt4: the built-in `sharegpt`, quantiles of the trace",
    "summaries": (
        "arxiv_summarization: log-normal lengths with the paper's medians and 90th percentiles; the public file ends at"
        " 4,096 tokens"
    ),
}
SLOS = ("strict", "relaxed")
LEAST_RATE = GRID**LEAST  # of a search for a capacity, requests/s


def capacity(flags, data, objective_ms, scheduler, most=128):
    sim = Sim(
        f"{flags} {DATA[data]} --scheduler {scheduler} --requests {{requests}} --seed {{seed}} --as-paper --ignore-eos"
        f" on --prefix-caching off --max-num-seqs {most}",
        1000,
        250,
    )

    def keeps(result):
        return result["tbt_ms"]["p99"] <= objective_ms and result["scheduling_delay_ms"]["p50"] <= FIGURES.MAX_DELAY_MS

    return Capacity(sim, keeps, f"p99(tbt) <= {objective_ms} ms and p50(delay) <= {FIGURES.MAX_DELAY_MS} ms")


def sarathi(model, data, slo):
    flags, objectives, budgets, _ = MODELS[model]
    return capacity(flags, data, objectives[slo], f"sarathi-serve --token-budget {budgets[slo]}")


def baselines(model, data, slo):
    flags, objectives, *_ = MODELS[model]
    return {
        "vllm-v0": capacity(flags, data, objectives[slo], "vllm-v0"),
        "orca": capacity(flags, data, objectives[slo], "orca --reserve-full"),
    }


def ratio(new, *old):
    """The capacity over the best of `old`. A scheduler without a valid rate counts with the search's least rate."""
    return lambda r: r[new] / max(LEAST_RATE, *(r[name] for name in old))


def settings(model):
    """Runs of a model's four settings by name."""
    runs = {}
    for data in DATA:
        for slo, name in enumerate(SLOS):
            here = {"sarathi-serve": sarathi(model, data, slo), **baselines(model, data, slo)}
            runs |= {f"{run}, {data}, {name}": one for run, one in here.items()}
    return runs


def largest(over, *settings):
    """The largest gain over a baseline in these settings ("chat, strict")."""
    return lambda r: max(ratio(f"sarathi-serve, {setting}", f"{over}, {setting}")(r) for setting in settings)


def only(runs, *schedulers):
    return {name: run for name, run in runs.items() if name.split(",")[0] in schedulers}


ALL = tuple(f"{data}, {slo}" for data in DATA for slo in SLOS)


def decode_batch(flags):
    """A step of 32 decodes after 4,096 tokens, through all stages, of which the paper's objectives are multiples. (A
    closed loop of 64 requests does not show it: two stages then divide them unevenly, 62 and 2.)"""
    return Sim(f"step {flags} --decodes 32x4096", 1, 1)


FIVE = (100, 200, 300, 500, 1000)


def five(model, budget):
    """Capacity of sarathi-serve and vllm-v0 at five objectives, B = 128."""
    flags = MODELS[model][0]
    runs = {}
    for ms in FIVE:
        runs[f"sarathi-serve, {ms} ms"] = capacity(flags, "chat", ms, f"sarathi-serve --token-budget {budget}")
        runs[f"vllm-v0, {ms} ms"] = capacity(flags, "chat", ms, "vllm-v0")
    return runs


def at(ms):
    return ratio(f"sarathi-serve, {ms} ms", f"vllm-v0, {ms} ms")


def table4(data, rate):
    """128 requests on Yi, steps of 1,024 tokens."""
    return {
        name: Sim(
            f"{MODELS['yi'][0]} {DATA[data]} --scheduler {name} --token-budget 1024 --requests {{requests}} --rate"
            f" {rate} --seed {{seed}} --as-paper --ignore-eos on --prefix-caching off --max-num-seqs 128",
            128,
            128,
        )
        for name in ("hybrid-only", "chunked-only", "sarathi-serve")
    }


def over(metric, percentile, name):
    return lambda r: r[name][metric][percentile] / r["sarathi-serve"][metric][percentile]


LENGTHS = (2048, 4096, 8192, 16384)


def chunking(budget):
    flags = MODELS["yi"][0]
    # The figure is about prefill time. The driver's time between steps is left out: with four times the steps a prompt
    # has four times as much of it.
    base = "--scheduler {} --cpu-overhead 0us --as-paper --ignore-eos on --prefix-caching off --seed {{seed}}"
    runs = {}
    for length in LENGTHS:
        load = f"{flags} --workload random:in={length},out=1 --requests 4 --concurrency 1 "
        runs[f"whole {length}"] = Sim(load + base.format("orca"))
        runs[f"chunks {length}"] = Sim(load + base.format(f"sarathi-serve --token-budget {budget}"))
    return runs, lambda r: max(
        100 * (r[f"chunks {n}"]["ttft_ms"]["mean"] / r[f"whole {n}"]["ttft_ms"]["mean"] - 1) for n in LENGTHS
    )


HOST = "with the host time that was measured of such engines ours is longer"
STEP_REASONS = {
    "mistral": HOST,
    "yi": HOST + " (its authors' own log has 88 ms for a step of 32, of context unknown)",
    "llama2": "",
    "falcon": (
        "all-reduces of a 2024 engine over PCIe and sends over Ethernet are priced as profiled, and no published figure"
        " says where the rest of the time goes"
    ),
}


RARE = (
    "a long prompt's step alone takes longer than the objective here, so vLLM keeps it only at rates at which such"
    " prompts are rare"
)
BUBBLE = (
    "the paper does not say whether 1,150 ms are a stage's or the whole pass: no four A100 compute a prompt of 4,096"
    " tokens of 180B in that time, so a stage's. Its decodes of about 200 ms are then read as the whole pass"
    " (`ss-step-falcon`), of which a stage is half"
)


def claims():
    rows = []
    for model, paper in (("mistral", 20), ("yi", 40), ("llama2", 200), ("falcon", 200)):
        flags, _, _, error = MODELS[model]
        rows.append(
            Claim(
                f"ss-step-{model}",
                "5.1, table 3",
                f"time of a step of 32 decodes after 4,096 tokens each ({flags.split()[1]}; a fifth of the"
                " strict objective)",
                f"{paper} ms",
                Near(paper, 0.25, None),
                {"decodes": decode_batch(flags)},
                lambda r: r["decodes"]["step_ms"],
                "ms",
                (1,),
                model=error,
                perturb=False,
                derived="a fifth of the strict objective, which is rounded",
                why=STEP_REASONS[model],
            )
        )
    for model, (flags, objectives, budgets, error) in MODELS.items():
        for data in DATA:
            for slo, name in enumerate(SLOS):
                rows.append(
                    Claim(
                        f"ss-capacity-{model}-{data}-{name}",
                        "5.1, figures 10 and 11",
                        f"capacity over the better of vLLM and Orca: {flags.split()[1]}, {data}, {objectives[slo]} ms",
                        "at least 1",
                        Between(0.97, None, 0.97),
                        {"sarathi-serve": sarathi(model, data, slo), **baselines(model, data, slo)},
                        ratio("sarathi-serve", "vllm-v0", "orca"),
                        "x",
                        model=error,
                        stands_in=STANDS_IN[data],
                    )
                )
    memory = (
        "memory is not what holds Orca back here. With the activations of all prompts that a step may hold, KV has room"
        " for 23 sequences of 8,192 tokens (11,854 blocks; 37,375 with one prompt's), and the capacity is the same."
        " With room for five (--kv-blocks 2560) the gain is 5.1, for three 7.9. The paper does not say how many fit"
    )
    reasons = {
        "yi": "",
        "llama2": memory,
        "mistral": (
            "the objective is five steps of 20 ms; ours take 27, so it is tighter here, and whole prompts break it"
            " first"
        ),
    }
    # 5.1 names the setting for Yi, and the data for LLaMA2.
    for model, baseline, paper, where in (
        ("mistral", "vllm-v0", 2.6, ALL),
        ("yi", "vllm-v0", 3.7, ("chat, strict",)),
        ("yi", "orca", 4.0, ("chat, strict",)),
        ("llama2", "vllm-v0", 4.3, ("chat, strict", "chat, relaxed")),
        ("llama2", "orca", 6.3, ("chat, strict", "chat, relaxed")),
    ):
        runs = {
            name: run
            for name, run in only(settings(model), "sarathi-serve", baseline).items()
            if name.split(", ", 1)[1] in where
        }
        setting = {1: "chat, strict", 2: "chat, the larger of two objectives", 4: "the largest of four settings"}[
            len(where)
        ]
        rows.append(
            Claim(
                f"ss-upto-{model}-{baseline}",
                "5.1",
                f"gain in capacity of {MODELS[model][0].split()[1]} over {baseline}: {setting}",
                f"up to {paper}",
                Near(paper, 0.25),
                runs,
                largest(baseline, *where),
                "x",
                model=MODELS[model][3],
                why=reasons[model],
                stands_in=STANDS_IN["chat"],
            )
        )
    for model in ("mistral", "yi", "llama2", "falcon"):
        rows.append(
            Claim(
                f"ss-vllm-orca-{model}",
                "5.1",
                f"with the relaxed objective vLLM is far ahead of Orca: its capacity over Orca's ({model}, chat)",
                "above 1",
                ABOVE_ONE,
                baselines(model, "chat", 1),
                ratio("vllm-v0", "orca"),
                "x",
                model=MODELS[model][3],
                stands_in=STANDS_IN["chat"],
            )
        )
    flags, objectives, budgets, error = MODELS["falcon"]
    for slo, paper in ((0, 3.6), (1, 1.48)):
        rows.append(
            Claim(
                f"ss-pp-{SLOS[slo]}",
                "5.3, figure 13b",
                f"Falcon-180B, TP 4 PP 2, chat, {SLOS[slo]}: capacity over vLLM with the same pipeline",
                f"{paper}",
                Near(paper, 0.25),
                {
                    "sarathi-serve": sarathi("falcon", "chat", slo),
                    "vllm-v0": baselines("falcon", "chat", slo)["vllm-v0"],
                },
                ratio("sarathi-serve", "vllm-v0"),
                "x",
                model=error,
                stands_in=STANDS_IN["chat"],
                why=RARE,
            )
        )
    rows += [
        Claim(
            "ss-tp8-strict",
            "5.3, figure 13b",
            "and over vLLM with TP 8 across the nodes, strict",
            "4.3",
            Near(4.3, 0.25),
            {
                "sarathi-serve": sarathi("falcon", "chat", 0),
                "tp8": capacity(FALCON_TP8, "chat", objectives[0], "vllm-v0"),
            },
            ratio("sarathi-serve", "tp8"),
            "x",
            model=error,
            stands_in=STANDS_IN["chat"],
            why=RARE,
        ),
        Claim(
            "ss-upto-falcon",
            "1",
            "the largest gain in capacity of Falcon-180B over vLLM, with the same pipeline or with TP 8, chat and"
            " summaries, strict",
            "up to 5.6",
            Near(5.6, 0.25),
            {
                f"{name}, {data}": one
                for data in DATA
                for name, one in (
                    ("sarathi-serve", sarathi("falcon", data, 0)),
                    ("pp", baselines("falcon", data, 0)["vllm-v0"]),
                    ("tp8", capacity(FALCON_TP8, data, objectives[0], "vllm-v0")),
                )
            },
            lambda r: max(
                ratio(f"sarathi-serve, {data}", f"{name}, {data}")(r) for data in DATA for name in ("pp", "tp8")
            ),
            "x",
            model=error,
            stands_in=STANDS_IN["chat"],
            why=RARE,
        ),
        Claim(
            "ss-tp8-tbt",
            "5.3, figure 13a",
            "gap between tokens of 32 decodes with TP 8 across nodes over that with TP 4 PP 2",
            "2",
            Near(2, 0.25),
            {"tp8": decode_batch(FALCON_TP8), "pp": decode_batch(flags)},
            lambda r: r["tp8"]["step_ms"] / r["pp"]["step_ms"],
            "x",
            (1,),
            model=error,
            why=(
                "see `ss-step-falcon`: over Ethernet a ring all-reduce is priced by bandwidth and hops, without the"
                " host's part"
            ),
        ),
        Claim(
            "ss-bubble-prompt",
            "3.3",
            "Falcon-180B: time of a prompt of 4,096 tokens in a stage",
            "about 1,150 ms",
            Near(1150, 0.25, None),
            {"prompt": prompt_alone(flags, 4096)},
            lambda r: step_ms(r["prompt"], 4096, 0) / 2,
            "ms",
            (1,),
            model=error,
            stands_in=BUBBLE,
            perturb=False,
        ),
        Claim(
            "ss-bubble",
            "3.3",
            "bubble: that time less the time of 32 decodes",
            "950 ms",
            Near(950, 0.3, 0),
            {"prompt": prompt_alone(flags, 4096), "decodes": decode_batch(flags)},
            lambda r: (step_ms(r["prompt"], 4096, 0) - r["decodes"]["step_ms"]) / 2,
            "ms",
            (1,),
            model=error,
            stands_in=BUBBLE,
        ),
    ]
    for model, ms in (("mistral", 100), ("yi", 200)):
        rows.append(
            Claim(
                f"ss-batch-{model}",
                "5.2, figure 12",
                f"vLLM's capacity under {ms} ms with at most 32, 64 and 128 sequences: largest over least ({model})",
                "about 1",
                Near(1, 0.15, None),
                {f"at most {n}": capacity(MODELS[model][0], "chat", ms, "vllm-v0", n) for n in (32, 64, 128)},
                lambda r: max(r.values()) / max(LEAST_RATE, min(r.values())),
                "x",
                model=MODELS[model][3],
                stands_in=STANDS_IN["chat"],
            )
        )
    strict, relaxed = five("mistral", 512), five("yi", 2048)
    rows += [
        Claim(
            "ss-slo-mistral",
            "5.2, figure 12",
            "five objectives, Mistral-7B, chat, steps of 512: capacity over vLLM at 100 ms",
            "3.5",
            Near(3.5, 0.25),
            strict,
            at(100),
            "x",
            model="mistral-7b a100",
            stands_in="figure 12's caption gives the 3.5 to Yi-34B, its text to Mistral-7B; " + STANDS_IN["chat"],
        ),
        Claim(
            "ss-slo-yi",
            "5.2, figure 12",
            "five objectives, Yi-34B, chat, steps of 2,048: capacity over vLLM at 1 s",
            "1.65",
            Near(1.65, 0.25),
            relaxed,
            at(1000),
            "x",
            model="yi-34b a100",
            stands_in=STANDS_IN["chat"],
        ),
        Claim(
            "ss-slo-shape",
            "5.2, figure 12",
            "the gain shrinks from the strictest of five objectives to the loosest (Mistral-7B): first over last",
            "above 1",
            Between(1.03, None, 1),
            strict,
            lambda r: at(FIVE[0])(r) / at(FIVE[-1])(r),
            "x",
            model="mistral-7b a100",
            stands_in=STANDS_IN["chat"],
        ),
        Claim(
            "ss-hybrid-step",
            "4.2, figure 9",
            "largest time of a step with a whole prompt over that of its decodes (Mistral-7B, 8,192 tokens and 32"
            " decodes)",
            "28.3",
            Near(28.3, 0.4),
            {"mixed": one_step(MODELS["mistral"][0], "trace:{mix_8192_32_1024}", 33)},
            lambda r: step_ms(r["mixed"], 8192, 32) / step_ms(r["mixed"], 0, 33),
            "x",
            (1,),
            model="mistral-7b a100",
            stands_in=(
                "the text does not say of which model, batch and prompt 28.3 is: Mistral-7B, 32 decodes behind 1,024"
                " tokens, a prompt of 8,192"
            ),
        ),
    ]
    for data, rate, hybrid, chunked in (
        ("chat", 1.0, (0.53 / 0.76, 0.68 / 0.14), (1.04 / 0.76, 0.17 / 0.14)),
        ("summaries", 0.4, (3.78 / 3.90, 1.38 / 0.17), (5.38 / 3.90, 0.20 / 0.17)),
    ):
        stands_in = (
            f"table 4 states no rate: {rate} requests/s, at which Sarathi-Serve's median TTFT comes nearest to the"
            f" paper's; {STANDS_IN[data]}"
        )
        for name, (ttft, tbt) in (("hybrid-only", hybrid), ("chunked-only", chunked)):
            for metric, percentile, paper in (("ttft_ms", "p50", ttft), ("tbt_ms", "p99", tbt)):
                rows.append(
                    Claim(
                        f"ss-table4-{data}-{name}-{metric[:-3]}",
                        "5.4.2, table 4",
                        f"{percentile.upper()} {metric[:-3].upper()} of {name} over both together (Yi-34B, {data})",
                        f"{paper:.2f}",
                        Near(paper, 0.5, of_effect=True),
                        table4(data, rate),
                        over(metric, percentile, name),
                        "x",
                        (1, 2, 3),
                        model="yi-34b a100",
                        derived="a ratio of two times that the table rounds to 10 ms",
                        stands_in=stands_in,
                        why=(
                            "whole prompts are too fast here (`ss-chunking-512`): without any load one takes 0.82 of"
                            " the time of steps of 1,024 tokens, and queues widen that"
                        ),
                    )
                )
    for budget, most in ((512, 25), (2048, 5)):
        runs, value = chunking(budget)
        rows.append(
            Claim(
                f"ss-chunking-{budget}",
                "5.4.1, figure 14",
                f"slowdown of a prompt of 2K to 16K in chunks of {budget} (Yi-34B)",
                f"at most ~{most} %" if budget == 512 else "almost none (at most 5 %)",
                Between(None, most * 1.1, 25 if budget == 2048 else None),
                runs,
                value,
                "%",
                (1,),
                model="yi-34b a100",
                perturb=False,
                why=(
                    "with the driver's time between steps a prompt of 2,048 tokens takes 436 ms in chunks of 512 and"
                    " 336 whole here, 436 and 378 by the authors' log: chunks are as long as theirs, whole prompts are"
                    " too fast. The driver's time of every chunk would make it 38 % and 10 %"
                ),
            )
        )
    stall = table4("summaries", 0.4)
    stall = {
        name: Sim(
            sim.flags.replace("--scheduler hybrid-only", "--scheduler vllm-v0").replace(
                "--token-budget 1024", "--token-budget 512"
            ),
            128,
            128,
        )
        for name, sim in stall.items()
        if name != "chunked-only"
    }
    stall["vllm-v0"] = stall.pop("hybrid-only")
    rows += [
        Claim(
            "ss-stall-vllm",
            "1, figure 1a",
            "vLLM's longest gap between tokens with 128 requests of arXiv lengths (Yi-34B)",
            "several seconds",
            Between(2, None),
            stall,
            lambda r: r["vllm-v0"]["tbt_ms"]["max"] / 1000,
            "s",
            (1, 2, 3),
            model="yi-34b a100",
            stands_in=STANDS_IN["summaries"],
        ),
        Claim(
            "ss-stall-sarathi",
            "1, figure 1a",
            "Sarathi-Serve's longest gap over vLLM's, the same requests",
            "no stalls",
            Between(None, 0.15, 1),
            stall,
            lambda r: r["sarathi-serve"]["tbt_ms"]["max"] / r["vllm-v0"]["tbt_ms"]["max"],
            "x",
            (1, 2, 3),
            model="yi-34b a100",
            stands_in=STANDS_IN["summaries"],
        ),
    ]
    return rows
