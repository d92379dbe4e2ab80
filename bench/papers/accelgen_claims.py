"""AccelGen: objectives per request. Comparisons with other systems are in accelgen_systems.py; this file has its parts,
the measurements of section 3.2, sensitivity and overheads."""

import itertools

import accelgen_systems
from accelgen_settings import (
    ANSWERS,
    BELOW,
    FIGURES,
    LESS,
    LONG_STEPS,
    PAGED,
    PROMPT_LENGTHS,
    PROMPTS,
    SHARES,
    SHARES_ADD_UP,
    STANDS_IN,
    URGENT,
    USE,
    VARIED,
    against,
    both,
    change,
    compute_use,
    deployment,
    goodput,
    jct,
    kept,
    kv_use,
    only,
    over,
    points,
    run,
    scheduler,
    sooner,
    steps_kept,
    tokens_per_s,
    tokens_per_step,
)
from claims import ABOVE_ONE, Between, Claim, Near, Sim

PAPER = "AccelGen: Heterogeneous SLO-Guaranteed High-Throughput LLM Inference Serving"


def claims():
    return [*accelgen_systems.claims(), *ablations(), *section_3(), *sensitivity(), *overheads()]


def ablations():
    """Section 6.3, figure 12: ablations, one part left out."""
    names = ("accelgen", "no-chunk", "no-order", "no-batch")
    below = both(names, lambda name: run("opt-13b", name, rate=0.2))
    prompts = both(names, lambda name: run("opt-13b", name, rate=2.9, lengths=PROMPT_LENGTHS, also=("compute_use",)))
    at = f"{ANSWERS}, 0.2 requests/s"
    here = dict(unit="%", model="opt-13b a100")
    kept_of = (
        "the published policy keeps least of all here: what is late is urgent, and the parts that are left out act on"
        " what is urgent"
    )
    ships = {
        "goodput": "what a part is worth depends on how far the machine is overloaded, which the paper does not say",
        "jct": "first come, first served, what is late stands at the head of the queue and preempts what runs",
    }
    ships["attainment"] = ships["goodput"]
    for variant, papers in (
        ("no-chunk", (-97, -44, -28, 31, 39)),
        ("no-order", (-35, -52, -42, 17, 56)),
        ("no-batch", (-61, -27, -24, 19, 29)),
    ):
        for (what, figure, why), paper in zip(
            (
                ("throughput", tokens_per_s, LESS[variant]),
                ("goodput", goodput, kept_of),
                ("attainment", kept, kept_of),
                ("jct", jct("mean"), "with the part, what is preempted for urgent requests is computed again"),
                (
                    "step",
                    lambda r: r["step_ms"]["mean"],
                    "KV of five requests leaves steps of decodes, whichever part is left out",
                ),
            ),
            papers,
        ):
            yield Claim(
                f"ag-{variant}-{what}",
                "6.3, figure 12",
                f"{what} without: {variant}, against accelgen ({at})",
                f"{paper:+d} %",
                Near(paper, 0.5, 0),
                **only(below, "accelgen", variant),
                value=change(figure, variant),
                stands_in=STANDS_IN,
                perturb=what == "goodput",
                why=why,
                shipped_why="" if what == "jct" and variant != "no-order" else ships.get(what, ""),
                **here,
            )
    for variant, compute, kv in (("no-chunk", -28, -7), ("no-order", -8, -1), ("no-batch", -15, -11)):
        for what, paper, figure, says, stands_in in (
            ("compute", compute, compute_use, "compute use", USE),
            ("kv", kv, kv_use, "KV in use", STANDS_IN),
        ):
            yield Claim(
                f"ag-{variant}-{what}",
                "6.3, figure 12e",
                f"{says} without: {variant}, against accelgen ({PROMPTS})",
                f"{paper:+d} %",
                Near(paper, 0.5, 0),
                **only(prompts, "accelgen", variant),
                value=change(figure, variant),
                stands_in=stands_in,
                perturb=False,
                why=(
                    "a fixed budget of 512 tokens is smaller than those of equation 6, and fuller"
                    if variant == "no-chunk" and what == "compute"
                    else "which requests hold KV, and how often it is taken from them, decides what a step holds"
                ),
                **here,
            )


def section_3():
    """Section 3.2: measurements of other systems, and of the paper's two ideas separately."""
    here = dict(model="opt-13b a100", stands_in=STANDS_IN)
    slack = {
        name: run(
            "opt-13b",
            f"sarathi-serve --budget slo{flags}",
            rate=2.9,
            lengths=PROMPT_LENGTHS,
            slo=VARIED,
            also=("compute_use",),
        )
        for name, flags in (("fcfs", ""), ("slack", " --order slack"))
    }
    for what, says, paper, figure, why in (
        ("compute", "compute use", 37, compute_use, ""),
        (
            "kv",
            "KV in use",
            34,
            kv_use,
            "3.2 contradicts itself: sarathi-serve's KV use is 83 % there, and 34 % more of it are 111 %",
        ),
        (
            "steps",
            "steps that kept their objective",
            16,
            steps_kept,
            "steps that are sized for their tightest objective keep most of them in either order",
        ),
    ):
        yield Claim(
            f"ag-slack-{what}",
            "3.2, figure 7",
            f"sarathi-serve, steps sized for their tightest objective, in order of slack over first come: {says}"
            f" ({PROMPTS})",
            f"+{paper} %",
            Near(paper, 0.5, 0),
            slack,
            lambda r, figure=figure: 100 * (figure(r["slack"]) / figure(r["fcfs"]) - 1),
            "%",
            perturb=what == "steps",
            why=why,
            **here | ({"stands_in": USE} if what == "compute" else {}),
        )
    for where, at, how in (
        ("", f"{ANSWERS}, 0.1 requests/s", dict(rate=0.1, requests=600)),
        ("-prompts", PROMPTS, dict(rate=2.9, lengths=PROMPT_LENGTHS)),
    ):
        sized = {f"{ms} ms": run("opt-13b", f"sarathi-serve --tbt-slo {ms}ms", slo=VARIED, **how) for ms in (200, 1000)}
        yield Claim(
            f"ag-sarathi-slo-attainment{where}",
            "3.2, figure 5a",
            f"attainment of the requests' own objectives, sarathi-serve sized for 0.2 s over sized for 1 s ({at})",
            "above 1",
            ABOVE_ONE,
            sized,
            lambda r: kept(r["200 ms"]) / max(1e-4, kept(r["1000 ms"])),
            "x",
            why=(
                "gaps of 47 and 94 ms, the objectives of half of the requests, are shorter than full steps of either"
                " size, and the larger steps have the first tokens out sooner"
            ),
            **here,
        )
    yield Claim(
        "ag-sarathi-slo-compute",
        "3.2, figure 5b",
        f"and tokens per step for 1 s over 0.2 s ({PROMPTS})",
        "above 1",
        ABOVE_ONE,
        sized,
        lambda r: tokens_per_step(r["1000 ms"]) / tokens_per_step(r["200 ms"]),
        "x",
        **here,
    )
    yield from exclusive()


def exclusive():
    """Exclusive request allocation, one long prompt at a time: figure 6 of section 3.2, which compares with
    Sarathi-Serve; ours also compares the policy without it."""
    base = deployment("opt-13b").replace("--override-context 16384", "--override-context 12288")

    def together(name, blocks=FIGURES.blocks_of(FIGURES.SETTINGS["opt-13b"])):
        return Sim(
            f"{base} --workload trace:{{era}} --requests 22 --seed {{seed}} --slo ttft=1h,tbt=1h --scheduler"
            f" {scheduler(name, 'opt-13b')}".replace("--kv-blocks 457", f"--kv-blocks {blocks}"),
            22,
            22,
        )

    here = dict(unit="x", model="opt-13b a100")
    says = "two long prompts and twenty short ones: mean time to completion"
    answers = "figure 6 does not say how long the answers are: 256 tokens"
    beside = "4.2; the comparison is ours"
    yield Claim(
        "ag-era",
        "3.2, figure 6",
        f"{says} with stall-free batching over that with accelgen and ERA (OPT-13B, 12 GB of KV: 457 blocks)",
        "above 1",
        ABOVE_ONE,
        **both(("accelgen", "sarathi-serve"), together),
        value=sooner(others=("sarathi-serve",)),
        stands_in=answers,
        **here,
    )
    yield Claim(
        "ag-era-off",
        beside,
        f"{says} with accelgen without ERA over that with it (OPT-13B, 12 GB of KV: 457 blocks)",
        "above 1",
        ABOVE_ONE,
        **both(("accelgen", "era off"), together),
        value=sooner(others=("era off",)),
        stands_in=answers,
        **here,
    )
    yield Claim(
        "ag-era-roomy",
        beside,
        "the same with memory for both long prompts (800 blocks of 32 tokens), which 4.2 does not exempt",
        "above 1",
        ABOVE_ONE,
        **both(("accelgen", "era off"), lambda name: together(name, 800)),
        value=sooner(others=("era off",)),
        stands_in=answers,
        why=(
            "the second long prompt waits for the whole answer of the first, though its KV would fit: hence the"
            " default, `--era kv`"
        ),
        shipped_why="`--era kv` holds nothing back where the KV fits",
        **here,
    )


def sensitivity():
    """Sections 6.4 and 6.5, and objectives on the time to completion."""

    def along(values, make):
        """The runs of each side's policy, by value."""
        sides = [both(("accelgen",), lambda name, value=value: make(name, value)) for value in values]
        return {
            side: {f"{value}": two[side]["accelgen"] for value, two in zip(values, sides)}
            for side in ("runs", "shipped")
        }

    rates = along(BELOW, lambda name, rate: run("opt-13b", name, rate=rate, requests=600))
    long = along(
        SHARES,
        lambda name, share: run(
            "opt-13b",
            name,
            rate=0.08,
            lengths=f"accelgen_8192_{share}",
            requests=600,
            also=("kept_tokens_per_s",),
        ),
    )
    kept_tokens = lambda r: r["kept_tokens_per_s"]
    loads = "0.04 to 0.15 requests/s, below what the machine completes"
    for claim, runs, figure, says, at, why in (
        ("rates", rates, goodput, "goodput at 0.15 requests/s over that at 0.04", f"{ANSWERS}; {loads}", LONG_STEPS),
        (
            "long-share",
            long,
            kept_tokens,
            "goodput in tokens/s with 28 % of prompts above 4,096 tokens over that without",
            f"{ANSWERS}, 0.08 requests/s",
            LONG_STEPS,
        ),
    ):
        first, *_, last = runs["runs"]
        here = dict(
            unit="x",
            model="opt-13b a100",
            stands_in=STANDS_IN
            if claim == "rates"
            else f"tokens of requests that kept all their objectives; {STANDS_IN}",
            why=why,
        )
        yield Claim(
            f"ag-{claim}",
            "6.4, figure 13",
            f"{says} ({at})",
            "rises",
            Between(1.1, None, 1),
            **runs,
            value=lambda r, first=first, last=last, figure=figure: figure(r[last]) / figure(r[first]),
            **here,
        )
        yield Claim(
            f"ag-{claim}-falls",
            "6.4, figure 13",
            f"and least over the one before, of those between ({at})",
            "never falls",
            Between(0.97, None),
            **runs,
            value=lambda r, figure=figure: min(figure(r[b]) / figure(r[a]) for a, b in itertools.pairwise(r)),
            **here,
        )
    yield Claim(
        "ag-jct-attainment",
        "6.2, figure 11c",
        "requests that kept objectives on the time to completion, points more than the best of five systems"
        f" ({ANSWERS}, 0.25 requests/s)",
        "34 to 93 %",
        Between(34, 93, 0),
        **against("opt-13b", slo="--slo-mix 'all:1:jct=5..15x'"),
        value=points(kept),
        unit="points",
        model="opt-13b a100",
        stands_in="the paper does not state these objectives: 5 to 15 times the request's time alone",
        why=URGENT,
    )
    for data, lengths, rate, paper in (
        ("bookcorpus", "uniform_4097_8192_512", 0.25, 2.57),
        ("alpaca", "uniform_10_500_2048", 0.5, 1.41),
        ("sharegpt", "uniform_10_2048_2048", 0.35, 1.45),
    ):
        yield Claim(
            f"ag-data-{data}",
            "6.5, figure 14",
            f"goodput over the best of five systems, one data set alone: {data} ({ANSWERS}, {rate} requests/s)",
            f"at least {paper}",
            Between(paper, None, 1),
            **against("opt-13b", rate=rate, lengths=lengths, requests=600),
            value=over(goodput),
            unit="x",
            model="opt-13b a100",
            stands_in=(
                "one data set's lengths: uniform over the range that the paper states, BookCorpus cut at 8,192"
                " tokens; answers of up to 512 or 2,048 tokens, rates and objectives are ours"
            ),
            why=URGENT,
        )


def overheads():
    """Sections 6.2 and 6.3: the time of the scheduler itself."""
    runs = against("opt-13b")
    here = dict(unit="%", model="opt-13b a100", perturb=False)
    own = (
        "the scheduler's own time, of the machine that this runs on, median of a run's steps; the paper's is of Python"
        f" in vLLM; {STANDS_IN}"
    )
    decides = lambda r: r["decision_us"]["p50"]
    at = f"{ANSWERS}, 0.25 requests/s"
    yield Claim(
        "ag-decision",
        "6.2, figure 11f",
        f"the scheduler's time for a step over the time of the step ({at}; of the machine that this runs on, median)",
        "0.02 %",
        Between(None, 0.02),
        **only(runs, "accelgen"),
        value=lambda r: 100 * decides(r["accelgen"]) / (1000 * r["accelgen"]["step_ms"]["mean"]),
        stands_in="of the time to completion, as the paper has it, each step's share is the same; " + STANDS_IN,
        **here,
    )
    yield Claim(
        "ag-overhead-others",
        "6.2, figure 11f",
        "the scheduler's time for a step, percent less than accelgen's: the least of orca, vllm, fastgen and"
        f" sarathi-serve ({at})",
        "28 to 93 %",
        Between(28, 93, 0),
        **only(runs, "accelgen", *PAGED),
        value=lambda r: min(-change(decides, name)(r) for name in PAGED),
        stands_in=own,
        **here,
    )
    yield Claim(
        "ag-overhead-fastserve",
        "6.2, figure 11f",
        f"and of fastserve, percent more ({at})",
        "95 %",
        Near(95, 0.5, 0),
        **only(runs, "accelgen", "fastserve"),
        value=change(decides, "fastserve"),
        why="under this overload it preempts and swaps in many steps",
        stands_in=own,
        **here,
    )
    names = ("accelgen", "no-order", "no-chunk", "no-batch")
    parts = both(names, lambda name: run("opt-13b", name, rate=0.25))
    for variant, paper in (("no-order", -63), ("no-chunk", -81), ("no-batch", -82)):
        yield Claim(
            f"ag-{variant}-overhead",
            "6.3, figure 12f",
            f"the scheduler's time for a step without: {variant}, against accelgen ({at})",
            f"{paper:+d} %",
            Near(paper, 0.5, 0),
            **only(parts, "accelgen", variant),
            value=change(decides, variant),
            why=SHARES_ADD_UP,
            stands_in=own,
            **here,
        )
