"""The expected duration of a run, from nominal speeds of two Zen 5 cores. run.py prints it first; no reported figure
depends on it.

Every constant is from a measured run; a machine of half the speed takes twice as long, which the progress lines show
early.
"""

from __future__ import annotations

PREFILLS = [128, 512, 2048]
BATCHES = [32, 16, 8, 4, 1]  # descending: OpenVINO reduces its larger set, which saves its prompts
CONTEXTS = [128, 1024]
BOX_S = {"saturation": 90.0, "poisson": 40.0}  # per server: in total; after the last arrival

# Prompt tokens per second, ours with its default activations.
PREFILL = {
    "bf16": {"tactus": 430, "OpenVINO": 345, "llama.cpp": 235, "ik_llama.cpp": 330},
    "int8": {"tactus": 640, "OpenVINO": 400, "llama.cpp": 126, "ik_llama.cpp": 320},
    "int4": {"tactus": 600, "OpenVINO": 450, "llama.cpp": 240, "ik_llama.cpp": 320},
}
INT8_ACTIVATIONS = 1.1  # factor on the default's speed
CEILINGS_S = 0.05  # before and after every engine's turn
LOAD_S = {"tactus": 3, "OpenVINO": 4, "llama.cpp": 4, "ik_llama.cpp": 6}


def kind(name: str) -> str:
    """The engine's name in the tables here: "tactus" for "tactus int8, default numerics"."""
    return next((k for k in ("tactus", "OpenVINO", "ik_llama.cpp", "llama.cpp") if name.startswith(k)), "tactus")


def prefill_rate(name: str, fmt: str) -> float:
    return PREFILL[fmt][kind(name)] * (INT8_ACTIVATIONS if "int8 activations" in name else 1.0)


def prompt_s(name: str, fmt: str, tokens: int) -> float:
    """The time of a long prompt, whose attention grows with its square."""
    return tokens / prefill_rate(name, fmt) * (1 + tokens / 16384)


def decode_step_s(name: str, batch: int, context: int) -> float:
    engine, far = kind(name), context > 512
    if context > 2048:
        per_8192 = {"tactus": 0.006, "OpenVINO": 0.02, "llama.cpp": 0.04, "ik_llama.cpp": 0.03 * batch}[engine]
        return decode_step_s(name, batch, 1024) + batch * per_8192 * context / 8192
    if engine == "tactus":
        return (0.02 + 0.0014 * batch) * (1.5 if far else 1)
    if engine == "OpenVINO":
        return (0.03 + 0.0028 * batch) * (1.7 if far else 1)
    if engine == "ik_llama.cpp" and far:
        return 0.03 + 0.0014 * batch * batch  # every query reads every sequence's cells
    return 0.03 + 0.008 * batch * (1.5 if far else 1)


def prefill_turns(rounds: int) -> int:
    return rounds if rounds == 1 else rounds + 1


def decode_turns(batch: int, rounds: int) -> tuple[int, int]:
    """The number of turns, and of steps in each without the first, which is a warm-up."""
    return 2 * rounds, 2 if batch >= 16 else 4


def fill_s(name: str, fmt: str, batch: int, context: int) -> float:
    """Contexts of a decode cell: OpenVINO computes every one, the others copy the first."""
    return context / prefill_rate(name, fmt) * (batch if kind(name) == "OpenVINO" else 1 + 0.02 * batch)


def long_fill_s(name: str, fmt: str, batch: int, context: int, has_prompt: bool) -> float:
    """Ours copies the contexts of 2,048 tokens, as does the llama.cpp family with one sequence, otherwise that of the
    previous prompt."""
    engine = kind(name)
    if engine == "OpenVINO":
        return batch * prompt_s(name, fmt, context)
    if engine == "tactus" or batch == 1:
        return prompt_s(name, fmt, 2048) + 0.5 * batch * context / 8192
    return (0 if has_prompt else prompt_s(name, fmt, context)) + batch


def cells_s(
    names: list[str], fmt: str, rounds: int, prefills: list[int], batches: list[int], contexts: list[int]
) -> float:
    total = 0.0
    for name in names:
        for tokens in prefills:
            turn = tokens / prefill_rate(name, fmt) * (1.6 if tokens > 512 and kind(name) == "llama.cpp" else 1.0)
            total += (1 if turn > 12 else prefill_turns(rounds)) * (turn + CEILINGS_S)
        for context in contexts:
            total += fill_s(name, fmt, max(batches), context)
            for batch in batches:
                turns, steps = decode_turns(batch, rounds)
                total += turns * ((steps + 1) * decode_step_s(name, batch, context) + CEILINGS_S)
    return total


def loading_s(names: list[str], fmt: str) -> float:
    return sum(LOAD_S[kind(n)] + 128 / prefill_rate(n, fmt) for n in names) + 2


def hybrid_s(names: list[str], fmt: str, rounds: int) -> float:
    each = lambda n: 1.1 * 1024 / prefill_rate(n, fmt) + fill_s(n, fmt, 16, 128) + 5 * decode_step_s(n, 16, 128)
    return sum(rounds * (each(n) + CEILINGS_S) for n in names)


def served_s(name: str, fmt: str, scenario: str, prompt_tokens: int, output_tokens: int, arrivals_s: float) -> float:
    """One server in one load: its start, and its work or its time box."""
    decode = output_tokens * decode_step_s(name, 8, 600) / 8
    work = prompt_tokens / prefill_rate(name, fmt) + decode
    return LOAD_S[kind(name)] + (
        min(BOX_S[scenario], work)
        if scenario == "saturation"
        else arrivals_s + min(BOX_S[scenario], 5 + max(0.0, work - arrivals_s))
    )


def stall_s(name: str, fmt: str, prompts: int, quiet_s: float) -> float:
    slow = 2.0 if "-b 64" in name else 1.0
    return (
        LOAD_S[kind(name)]
        + 6 * 128 / prefill_rate(name, fmt) * slow
        + 1
        + quiet_s
        + prompts * (0.3 + 1.1 * slow * 2048 / prefill_rate(name, fmt))
    )
