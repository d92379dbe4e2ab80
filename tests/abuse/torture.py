"""One set of seeded requests through many scheduler set-ups: every answer is the same, byte for byte.

A set-up is a preset, a preset with one of its five choices exchanged, or other sizes: KV memory so small that sequences
are preempted, block sizes, budgets, swap, few sequences at once, no prefix cache, one thread. Set-ups that `serve`
refuses are not counted, but must be refused in order: exit status 1 or 2 and a reason. The first set-up is the
reference.
"""

import concurrent.futures
import random
import re

from program import DidNotStart, Server, tactus
from wire import Lost, Wire, request

ANSWER_LIMIT_S = 120
SIMULATION_ONLY = {"oracle", "trail-oracle"}  # they need lengths that a server does not know
# 256 bytes per token: the longest request fits, two of them do not.
MAX_MODEL_LEN = "384"
TINY_KV = "104KiB"
PLENTY = "16MiB"


def listed(section):
    """Names under a heading of `tactus sim --list`."""
    text = tactus("sim", "--list").stdout
    body = re.search(rf"^{section}\n((?:  .*\n?)*)", text, re.M).group(1)
    return [line.split()[0] for line in body.splitlines()]


def requests_of(seed):
    """Greedy and seeded requests, short and long prompts, shared prefixes, several choices, stops, logprobs, priorities
    and objectives."""
    draw = random.Random(seed)
    shared = [draw.randrange(3, 512) for _ in range(64)]
    out = []
    for i in range(24):
        prompt = [draw.randrange(3, 512) for _ in range(draw.choice((1, 3, 15, 16, 17, 40, 90, 200)))]
        body = {
            "prompt": shared + prompt if i % 3 == 0 else prompt,
            "max_tokens": draw.choice((1, 2, 8, 30, 60, 90)),
            "seed": i,
            "temperature": 0 if i % 2 == 0 else 0.9,
            "ignore_eos": i % 4 != 3,
            "priority": i % 5 - 2,
        }
        if i % 5 == 0:
            body["n"] = 3
        if i % 6 == 0:
            body["logprobs"] = 2
        if i % 7 == 0:
            body.update(echo=True, logprobs=1)
        if i % 8 == 0:
            body["stop"] = ["a", "\u00e9x"]
        if i % 4 == 1:
            body["slo"] = {"ttft_ms": 100 + i, "tbt_ms": 50}
        if i % 9 == 4:
            body.update(repetition_penalty=1.2, presence_penalty=0.5, logit_bias={"65": 5})
        out.append(body)
    return out


def setups(quick):
    """name, arguments. Sizes rotate over the set-ups, so that each choice is tested with small memory and odd block
    sizes."""
    presets = listed("schedulers")
    sizes = [
        (PLENTY, ()),
        (TINY_KV, ()),
        (TINY_KV, ("--block-size", "4")),
        (PLENTY, ("--block-size", "1", "--token-budget", "37")),
        (TINY_KV, ("--prefix-caching", "off")),
        (PLENTY, ("--max-num-seqs", "3")),
        (TINY_KV, ("--swap-space", "1MiB")),
        (PLENTY, ("--threads", "1", "--token-budget", "16")),
    ]
    rows = [("sarathi-serve, the reference", ["--scheduler", "sarathi-serve"], PLENTY, ())]
    for preset in presets:
        for memory, more in (sizes[0], sizes[1]):
            rows.append((f"{preset} {memory}", ["--scheduler", preset], memory, more))
    count = 0
    for choice, section in (
        ("--order", "order"),
        ("--admission", "admission"),
        ("--composition", "composition"),
        ("--budget", "budget"),
        ("--preemption", "preemption"),
    ):
        for name in listed(section):
            for preset in ("sarathi-serve", "vllm"):
                memory, more = sizes[1 + count % (len(sizes) - 1)]
                count += 1
                rows.append(
                    (
                        f"{preset} {choice} {name} {memory} {' '.join(more)}".strip(),
                        ["--scheduler", preset, choice, name],
                        memory,
                        more,
                    )
                )
    for swapping in ("swap", "proactive-swap"):
        for size in ("64KiB", "1MiB"):
            rows.append((f"{swapping} into {size}", ["--preemption", swapping, "--swap-space", size], TINY_KV, ()))
    for block in (1, 2, 3, 7, 32, 256):
        rows.append((f"blocks of {block}", ["--block-size", str(block)], "1MiB" if block > 7 else TINY_KV, ()))
    for budget in (1, 5, 64, 4096):
        rows.append((f"a budget of {budget}", ["--token-budget", str(budget)], PLENTY, ()))
    return rows[:1] + rows[1::14] if quick else rows


def answers(server, bodies):
    """Sends all requests at once; returns the parts of the answers that a schedule must not change."""

    def one(body):
        with Wire(server.port, ANSWER_LIMIT_S) as wire:
            wire.send(request("POST", "/v1/completions", body))
            answer = wire.read()
            parsed = answer.json()
            usage = {k: v for k, v in parsed.get("usage", {}).items() if k != "prompt_tokens_details"}
            return {
                "status": answer.status,
                "choices": parsed.get("choices"),
                "usage": usage,
                "error": parsed.get("error"),
            }

    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(one, bodies))


def run(tally, seed):
    bodies = requests_of(seed)
    reference = None
    ran = preemptions = swapped = refused = 0
    for name, arguments, memory, more in setups(tally.quick):
        command = [*arguments, *more, "--max-model-len", MAX_MODEL_LEN]
        try:
            server = Server(*command, kv_memory=memory)
        except DidNotStart as stopped:
            refused += 1
            # Contradictory combinations may be refused; a preset may be refused only if it is for simulations.
            may = len(arguments) > 2 or arguments[1] in SIMULATION_ONLY
            tally.check(
                f"{name} runs, or is refused with a reason",
                may and stopped.status in (1, 2) and "tactus serve: " in stopped.text,
                f"exit status {stopped.status}: {stopped.text}",
                repr(command),
            )
            continue
        with server:
            try:
                got = answers(server, bodies)
                reference = reference or got
                wrong = next(
                    (f"request {i}: {a} instead of {b}" for i, (a, b) in enumerate(zip(got, reference)) if a != b), ""
                )
                if not wrong and any(a["status"] != 200 for a in got):
                    wrong = f"{next(a for a in got if a['status'] != 200)}"
                if not wrong and not server.idle(30):
                    wrong = "KV blocks or requests are left"
                preemptions += server.metric("vllm:num_preemptions_total")
                swapped += server.metric("tactus_swapped_out_blocks_total")
                status = server.stop()
                wrong = wrong or ("" if status == 0 else f"exit status {status}")
            except (Lost, OSError, ValueError) as lost:
                wrong = (
                    f"{type(lost).__name__} {lost}; exit status {server.process.poll()}: {''.join(server.lines[-5:])}"
                )
            ran += 1
            tally.check(name, not wrong, wrong[:2000], {"arguments": command, "kv_memory": memory, "requests": bodies})
    tally.figure("set-ups", ran)
    tally.figure("refused", refused)
    tally.figure("preemptions", int(preemptions))
    tally.figure("blocks swapped out", int(swapped))
    tally.check("sequences were preempted", preemptions > 0, "the memory was not small enough for this test")
    if not tally.quick:
        tally.check("blocks were swapped", swapped > 0, "no set-up swapped")
        tally.check("enough set-ups", ran >= 60, f"only {ran} set-ups ran")
