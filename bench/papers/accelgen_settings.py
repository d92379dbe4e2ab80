"""Parts of AccelGen's claims: settings, reasons, runs and figures. Its own settings contradict each other
(bench/policies/accelgen.py), so claims are measured with objectives that can be met, and once with the paper's. `runs`
is the policy as published, `accelgen-paper`, and decides the verdict; `shipped` is `accelgen`, with this project's
amendments (docs/concepts/policies_accelgen.md)."""

import shared
from claims import Sim

FIGURES = shared.load("policies/accelgen.py")
FEASIBLE = "--slo-mix 'all:1:ttft=5..15x,tbt=140.6..234.4ms'"  # U[0.5, 1.5] x 10 x alone, 187.5 ms x U[0.75, 1.25]
# Section 3: gaps of {0.25, 0.5, 1, 2} times 187.5 ms.
VARIED = (
    "--slo-mix '"
    + ";".join(f"{name}:0.25:ttft=5..15x,tbt={187.5 * scale:g}ms" for name, scale in zip("abcd", (0.25, 0.5, 1, 2)))
    + "'"
)
OWN = "--slo-mix 'all:1:ttft=0.5..1.5x,tbt=140.6..234.4ms'"
MODELS = {
    "opt-13b": ("opt-13b a100", 0.25),
    "llama-13b": ("llama-13b a100", 0.2),
    "opt-175b": ("opt-175b a100", 0.15),
    "llama-3-70b": ("70b a100", 1.0),
}
OTHERS = ("orca", "vllm", "fastgen", "sarathi-serve", "fastserve")
PAGED = OTHERS[:4]

# The variants of AccelGen: the paper's policy without one whole section (4.2, 4.3, 4.4), and the shipped policy without
# the same sections. Leaving out only a part of 4.4 (`accelgen-no-batch`) is not one of the paper's ablations.
PUBLISHED = {
    "accelgen": "accelgen-paper",
    "no-chunk": "accelgen-paper-no-chunk",
    "no-order": "accelgen-paper-no-order",
    "no-batch": "accelgen-paper-no-batch",
    "era off": "accelgen-paper --era off",
}
SHIPPED = {
    "accelgen": "accelgen",
    "no-chunk": "accelgen --budget fixed --token-budget 512 --era off",
    "no-order": "accelgen-no-order",
    "no-batch": "accelgen --composition stall-free --admission prompt-fits --preemption youngest-recompute",
    "era off": "accelgen --era off",
}

# Settings, as named in claims. In the second one prompts fill the KV, not answers: only there are steps as full as in
# the paper (section 3.2: sarathi-serve uses 64 % of its budget).
ANSWERS = "OPT-13B, 12 GB of KV"
PROMPTS = "OPT-13B, 12 GB of KV, answers of 1 to 32 tokens, 2.9 requests/s"
PROMPT_LENGTHS = "accelgen_8192_14_32"
BELOW = (0.04, 0.06, 0.08, 0.1, 0.125, 0.15)  # requests/s; the machine completes 0.21
SHARES = (0, 7, 14, 21, 28)  # % of prompts above 4,096 tokens

STANDS_IN = (
    "Alpaca, ShareGPT and BookCorpus: lengths of the paper's figure 8, the longest of 8,192 or 16,384 tokens; arrivals"
    " as fast as overload it, not 8/s, which is 37 times what OPT-13B holds; first tokens due after 5 to 15 times the"
    " prompt's time alone, not 0.5 to 1.5"
)
STEPS = (
    "the paper's is the share of iterations that meet their objective: here of gaps between tokens, without first"
    " tokens; " + STANDS_IN
)
USE = (
    "compute use is tokens of a step over its budget (3.1); of orca and fastserve, which have none, over the pivot of"
    " 768; " + STANDS_IN
)
IN_WINDOW = "the window is from a fifth to four fifths of the arrivals; " + STANDS_IN
NO_FASTSERVE = "FastServe is left out: under this overload it swaps more than it computes; "

# Reasons for differences: contradictions within the paper, or what happens here instead.
SHORT = (
    "steps of 768 tokens take 92 ms here (OPT-13B), so every system with small steps keeps gaps of 140 to 234 ms. In"
    " the paper 66 to 84 % of the others' steps are longer than 187.5 ms (3.2), at 64 % of 768 tokens a step: 68"
    " TFLOP/s, a fifth of what an A100 computes, while 3.1 says that 768 tokens nearly saturate it"
)
URGENT = (
    "under overload nearly every prompt is late, and the published policy calls what is late urgent: late prompts take"
    " KV and steps from those that could be kept, and are computed again after each preemption"
)
LONG_STEPS = (
    "equation 6 takes a step's time for proportional to its tokens and knows nothing of the KV that decodes read, so"
    " that the published policy's steps last longer than the gaps that they were sized for (`--accelgen-model on`"
    " mends it)"
)
DRAIN = (
    "to the drain every system has served the same requests, so that an order gains little there and loses what it"
    " computes twice; `ag-tokens-window` and `ag-requests-window` are of a window"
)
KEEPS_UP = "the machine keeps up with this load: hardly a request waits, whatever the order"
AGAIN = "what is preempted for urgent requests is computed again"
LONG_FIRST = (
    "what is preempted for others is computed again, and short requests do not go first: larry, which serves them"
    " first, has more requests/s in a window (docs/measurements/accelgen.md)"
)
BEHIND = (
    "requests that have missed their objective wait for those that can be kept, which is where the goodput comes from"
)
LESS = {
    "no-chunk": (
        "6.3 contradicts itself: 28 % less compute use (12e) in steps that take 39 % longer are 48 % fewer tokens/s,"
        " not 97 % (12a); and goodput, which is a part of throughput, falls by 44 % alone (12b)"
    ),
    "no-order": "to the drain every order serves the same requests",
    "no-batch": (
        "6.3 contradicts itself: 15 % less compute use (12e) in steps that take 29 % longer are 34 % fewer tokens/s,"
        " not 61 % (12a); here a load that the machine keeps up with is served by all"
    ),
}
SHARES_ADD_UP = "6.3 contradicts itself: three parts of one decision cannot be 63, 81 and 82 % of it"


def scheduler(name, model):
    pivot = FIGURES.SETTINGS[model]["pivot"]
    if name == "orca":  # 8 sequences, each with memory for the longest request; the paper's has 8K
        return f"orca --max-num-seqs 8 --reserve-full on --max-model-len {FIGURES.SETTINGS[model]['longest'] + 2048}"
    if name == "fastserve":
        return "fastserve --max-num-seqs 8"
    return name if name.startswith(("accelgen", "oracle")) or "--" in name else f"{name} --token-budget {pivot}"


def deployment(model):
    setting = FIGURES.SETTINGS[model]
    return (
        f"{' '.join(setting['deployment'])} --device a100 --kv-blocks {FIGURES.blocks_of(setting)} --block-size"
        f" {FIGURES.BLOCK} --prefix-caching off"
    )


def run(model, name, rate=None, lengths=None, slo=FEASIBLE, requests=1000, quick=300, window=False, **more):
    lengths = lengths or f"accelgen_{FIGURES.SETTINGS[model]['longest']}"
    inside = "".join(f" {word}" for word in FIGURES.window_flags(requests)) if window else ""
    return Sim(
        f"{deployment(model)} --workload lengths:{{{lengths}}} --requests {{requests}}"
        + (f" --rate {rate or MODELS[model][1]}" if rate != "found" else "")
        + f" --seed {{seed}} {slo}{inside} --scheduler {scheduler(name, model)}",
        requests,
        quick,
        **more,
    )


def both(names, make):
    """A claim's runs and those of the shipped policy, with the same names; `make` gets each variant."""
    return {
        side: {name: make(stands_for.get(name, name)) for name in names}
        for side, stands_for in (("runs", PUBLISHED), ("shipped", SHIPPED))
    }


def against(model, **how):
    return both(("accelgen", *OTHERS), lambda name: run(model, name, **how))


def only(two, *names):
    """The runs of the given names, from both sets."""
    return {side: {name: runs[name] for name in names} for side, runs in two.items()}


def goodput(r):
    return r["goodput"] or 0.0


def tokens_per_s(r):
    return r["input_token_throughput"] + r["output_token_throughput"]


def requests_per_s(r):
    return r["request_throughput"]


def tokens_per_step(r):
    return tokens_per_s(r) * r["duration_s"] / r["steps"]


def compute_use(r):
    """Tokens over budget, mean over steps; for a system without a budget, over the pivot of OPT-13B."""
    bound = not r["scheduler"].startswith(("orca", "fastserve"))
    return r["compute_use"] if bound else tokens_per_step(r) / FIGURES.SETTINGS["opt-13b"]["pivot"]


def kv_use(r):
    return r["kv_utilization"]


def kept(r):
    return r["slo_attainment"]


def steps_kept(r):
    return r["step_attainment"]


def jct(which):
    return lambda r: r["e2e_ms"][which]


def over(figure, which=min, others=OTHERS):
    """The least (over the best of the others) or the largest ratio. A system that keeps no request counts as one
    request in 10,000 s."""
    return lambda r: which(figure(r["accelgen"]) / max(1e-4, figure(r[name])) for name in others)


def points(figure, which=min, others=OTHERS):
    return lambda r: 100 * which(figure(r["accelgen"]) - figure(r[name]) for name in others)


def sooner(which=min, others=OTHERS, figure=jct("mean")):
    return lambda r: which(figure(r[name]) for name in others) / figure(r["accelgen"])


def change(figure, name):
    """Percent by which a variant exceeds accelgen."""
    return lambda r: 100 * (figure(r[name]) / figure(r["accelgen"]) - 1)
