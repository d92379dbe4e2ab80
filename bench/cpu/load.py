"""The served scenarios: the stall test, saturation, and Poisson arrivals with bursts of long prompts; and their
reports.

Lengths, arrival times and token ids are drawn once per scenario from a seed, so every server gets the same requests.
"""

from __future__ import annotations

import asyncio
import math
import random
import time

from servers import Request, Served, Server

VOCABULARY = 32000


def percentile(values: list[float], q: float) -> float:
    """Linear interpolation between the two nearest ranks, as in `tactus bench`."""
    if not values:
        return math.nan
    v = sorted(values)
    at = q * (len(v) - 1)
    low = math.floor(at)
    high = min(low + 1, len(v) - 1)
    return v[low] + (v[high] - v[low]) * (at - low)


def prompt(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(300, VOCABULARY) for _ in range(tokens)]


def summary(values: list[float]) -> dict:
    return {
        "n": len(values),
        "p50_s": percentile(values, 0.5),
        "p99_s": percentile(values, 0.99),
        "max_s": max(values, default=math.nan),
    }


# --- Stalls: streams are running, long prompts arrive ---------------------------------------------------------------


async def stall(
    server: Server, streams: int = 6, prompts: int = 2, quiet_s: float = 6.0, long_prompt: int = 2048
) -> dict:
    """Gaps between tokens of `streams` decodes (128-token prompts) for `quiet_s`, then while long prompts arrive one
    after another, each shortly after the previous one's first token; and those prompts' times to first token."""
    rng = random.Random(11)
    running: list[Served] = []
    first = asyncio.Event()

    def note(served: Served) -> None:
        if served not in running:
            running.append(served)
        if len(running) == streams and all(len(r.token_times) >= 3 for r in running):
            first.set()

    tasks = [asyncio.create_task(server.send(Request(prompt(rng, 128), 2500), note)) for _ in range(streams)]
    waiter = asyncio.create_task(first.wait())
    try:
        done, _ = await asyncio.wait([waiter, *tasks], timeout=300, return_when=asyncio.FIRST_COMPLETED)
        if waiter not in done:
            ended = [t.result().error or "ended early" for t in tasks if t.done()]
            raise RuntimeError(f"the streams did not start: {ended or 'nothing within 300 s'}")
        quiet_start = time.monotonic()
        await asyncio.sleep(quiet_s)
        quiet_end = time.monotonic()
        ttfts, errors = [], []
        for _ in range(prompts):
            long = await asyncio.wait_for(server.send(Request(prompt(rng, long_prompt), 1)), 300)
            if long.ttft_s is None:
                errors.append(long.error or "no token")
            else:
                ttfts.append(long.ttft_s)
            await asyncio.sleep(0.3)
        end = time.monotonic()
        await asyncio.sleep(0.5)  # until the gap that contains the last prompt's end has ended
    finally:
        waiter.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    without = [g for r in running for t, g in r.gaps() if quiet_start < t <= quiet_end]
    # A gap counts as disturbed if it overlaps the prompts' time at all.
    disturbed = [g for r in running for t, g in r.gaps() if t > quiet_end and t - g < end]
    return {
        "streams": streams,
        "long_prompt": long_prompt,
        "quiet": summary(without),
        "disturbed": summary(disturbed),
        "ttft_s": ttfts,
        "errors": errors,
        "settings": server.settings,
    }


async def streams(server: Server, count: int, prompt_tokens: int, max_tokens: int) -> dict:
    """`count` concurrent streams: the step time while all of them decode, from the mean of the gaps within that
    time."""
    rng = random.Random(12)
    served = await asyncio.gather(*(server.send(Request(prompt(rng, prompt_tokens), max_tokens)) for _ in range(count)))
    errors = sorted({s.error for s in served if s.error})
    if errors:
        raise RuntimeError(errors[0])
    start = max(s.token_times[0] for s in served)
    end = min(s.token_times[-1] for s in served)
    steps = [g for s in served for t, g in s.gaps() if t <= end and t - g >= start]
    return {"streams": count, "step_s": sum(steps) / len(steps) if steps else math.nan, "gaps": len(steps)}


# --- Load -----------------------------------------------------------------------------------------------------------


def saturation_requests(count: int = 20, seed: int = 5) -> list[Request]:
    rng = random.Random(seed)
    return [Request(prompt(rng, rng.randint(256, 768)), rng.randint(32, 64)) for _ in range(count)]


def poisson_requests(count: int, rate: float, bursts: int, seed: int = 6) -> list[Request]:
    """Poisson arrivals of 256-1024 tokens in and 32-64 out, the first at time 0; plus `bursts` evenly spaced bursts of
    two prompts of 2,000 tokens."""
    rng = random.Random(seed)
    requests, at = [], 0.0
    for i in range(count):
        at += rng.expovariate(rate) if i else 0.0
        requests.append(Request(prompt(rng, rng.randint(256, 1024)), rng.randint(32, 64), at))
    for b in range(bursts):
        when = at * (b + 0.5) / bursts
        requests += [Request(prompt(rng, 2000), 32, when, "burst") for _ in range(2)]
    return sorted(requests, key=lambda r: r.due_s)


async def saturate(server: Server, requests: list[Request], at_once: int = 8, box_s: float = math.inf) -> dict:
    """Keeps `at_once` requests in flight until all are done, or until `box_s` is over: tokens received by then
    count."""
    gate = asyncio.Semaphore(at_once)

    async def one(request: Request) -> Served:
        async with gate:
            return await server.send(request)

    return await boxed(server, [one(r) for r in requests], requests, box_s)


async def arrive(server: Server, requests: list[Request], box_s: float = math.inf) -> dict:
    """Sends every request at its arrival time; requests still running `box_s` after the last arrival are cancelled."""
    start = time.monotonic()

    async def one(request: Request) -> Served:
        await asyncio.sleep(max(0.0, start + request.due_s - time.monotonic()))
        return await server.send(request)

    return await boxed(server, [one(r) for r in requests], requests, max(r.due_s for r in requests) + box_s)


async def boxed(server: Server, sending: list, requests: list[Request], box_s: float) -> dict:
    start = time.monotonic()
    tasks = [asyncio.create_task(s) for s in sending]
    _, late = await asyncio.wait(tasks, timeout=None if math.isinf(box_s) else box_s)
    end = time.monotonic()
    for task in late:
        task.cancel()  # send() then returns its partial result; a request that was not sent yet has none
    served = []
    for task, request in zip(tasks, requests):
        try:
            served.append(await task)
        except asyncio.CancelledError:
            served.append(Served(request, end, error="not sent"))
    return load_report(served, start, server, end if late else None)


def load_report(served: list[Served], start: float, server: Server, cut_s: float | None = None) -> dict:
    """`cut_s`: the time at which the time box closed, if it did. Tokens received by then count, also of unfinished
    requests; prompts count once their first token has arrived."""
    good = [s for s in served if not s.error and s.done_s]
    begun = [s for s in served if s.token_times and (s in good or cut_s is not None)]
    end = cut_s if cut_s is not None else max((s.done_s for s in good), default=start)
    tokens = sum(
        s.request.max_tokens if s in good else s.tokens for s in begun
    )  # every engine was set to ignore the end of text
    seconds = end - start
    rate = lambda amount: amount / seconds if seconds > 0 else 0.0
    errors = {s.error for s in served if s.error and (cut_s is None or s.error not in ("cancelled", "not sent"))}
    return {
        "requests": len(served),
        "completed": len(good),
        "cut": cut_s is not None,
        "seconds": seconds,
        "requests_per_s": rate(len(good)),
        "output_tokens_per_s": rate(tokens),
        "all_tokens_per_s": rate(tokens + sum(len(s.request.prompt) for s in begun)),
        "ttft": summary([s.ttft_s for s in begun if s.ttft_s is not None]),
        "tbt": summary([g for s in begun for _, g in s.gaps()]),
        "streamed_tokens": sum(s.tokens for s in begun),
        "errors": sorted(errors)[:3],
        "settings": server.settings,
    }
