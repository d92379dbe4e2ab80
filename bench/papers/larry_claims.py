"""LARRY and SAL: time to first token of one replica by its scheduler, and of several by their balancer."""
import shared
from claims import BELOW_ONE, Between, Claim, Near, Sim

PAPER = "Is the GPU Half-Empty or Half-Full? Practical Scheduling Techniques for LLMs (LARRY, SAL)"
FIGURES = shared.load("policies/larry.py")
# Requests/s at which a replica works off what is there at once (bench/policies/larry.py).
HOLDS = {"70b-code": 4.86, "70b-chat": 6.67, "8b-code": 5.67, "8b-chat": 6.87}
LENGTHS = {"code": "{azure2023_code}", "chat": "{azure2023_conv}"}
STANDS_IN = "arrivals of Azure Functions: Poisson, at 80 % of what the replicas hold; lengths of the public Azure traces, or the built-in `code` and `chat`"
POLICIES = FIGURES.policies(["0.1", "1", "inf"])


def run(setting, flags, load=0.8, replicas=1, requests=4000):
    model, data = setting.split("-")
    deployment = " ".join(FIGURES.LARGE if model == "70b" else FIGURES.SMALL)
    return Sim(f"{deployment} --workload {LENGTHS[data]} --token-budget 1024 --tbt-slo none --max-queue 1048576 --long-prompts clip --prefix-caching off --exact-percentiles "
               f"--requests {{requests}} --seed {{seed}} --rate {load * replicas * HOLDS[setting]:.4g} {flags}", requests, 1000)


def everywhere(rows, load=0.8):
    """Runs of every setting by "setting: row"."""
    return {f"{setting}: {row}": run(setting, " ".join(POLICIES[row]), load) for setting in HOLDS for row in rows}


def ratios(figure, new, old):
    """figure of `new` over that of `old` in every setting."""
    return lambda r: [figure(r[f"{setting}: {new}"]) / figure(r[f"{setting}: {old}"]) for setting in HOLDS]


def at(metric, percentile):
    return lambda result: result[metric][percentile]


def worst(metric, percentile, new, old):
    return lambda r: max(ratios(at(metric, percentile), new, old)(r))


FLEETS = {"4 x 70b, code": ("70b-code", 4), "4 x 70b, chat": ("70b-chat", 4), "8 x 8b, code": ("8b-code", 8), "8 x 8b, chat": ("8b-chat", 8)}
SCHEDULERS = ("sarathi-serve", "larry")
BALANCERS = ("random", "p2c", "sal")


def fleet(balancers=BALANCERS, schedulers=SCHEDULERS):
    return {f"{name}: {scheduler}, {balancer}": run(setting, f"--replicas {n} --scheduler {scheduler} --balancer {balancer}", 0.8, n, n * 1000)
            for name, (setting, n) in FLEETS.items() for scheduler in schedulers for balancer in balancers}


def sal(metric, percentile):
    """Largest ratio of sal to the better of random and p2c."""
    def value(r):
        figure = at(metric, percentile)
        return max(figure(r[f"{name}: {s}, sal"]) / min(figure(r[f"{name}: {s}, {b}"]) for b in ("random", "p2c")) for name in FLEETS for s in SCHEDULERS)
    return value


def claims():
    rows = []
    for metric, says in (("ttft_ms", "TTFT"), ("normalized_ttft_ms", "TTFT per prompt token")):
        for baseline, percentiles, why in (("fcfs", ("p50", "p95", "p99"), {"p99": "with short prompts first the longest wait longest; lambda 0.1 is lower (`ls-lambda-p99`)",
                                                                       "p50": "half of the chats wait for nothing at this load, whatever the order"}),
                                           ("trail-oracle, c = 0", ("p50", "p95"), {"p50": "the shortest answers first is the better order for the median per token"}),
                                           ("no-preempt", ("p50", "p95"), {"p50": "half of the chats wait for nothing at this load, whatever the order"})):
            for percentile in percentiles:
                rows.append(Claim(f"ls-{'norm-' if metric != 'ttft_ms' else ''}{baseline.split(',')[0]}-{percentile}", "6", f"{says}, {percentile.upper()}, of larry over {baseline}: largest of four settings", "below 1",
                                  BELOW_ONE, everywhere(("larry", baseline)), worst(metric, percentile, "larry", baseline), "x", model="8b a100, 70b h100", stands_in=STANDS_IN, why=why.get(percentile, "")))
    rows += [
        Claim("ls-tgt", "6", "time to the whole answer, P50, of larry over fcfs: largest of four settings", "equal", Between(None, 1.05, None), everywhere(("larry", "fcfs")),
              worst("e2e_ms", "p50", "larry", "fcfs"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-preempted", "6", "requests preempted, largest of four settings", "below 0.1 %", Between(None, 0.1), everywhere(("larry",)),
              lambda r: max(100 * x["preemptions"] / x["requests"]["completed"] for x in r.values()), "%", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-lambda-p50", "6, lambda", "a low lambda (0.01) is best at most percentiles: P50 over lambda 1, largest of four", "below 1", BELOW_ONE,
              everywhere(("larry", "larry, lambda 1")), worst("ttft_ms", "p50", "larry", "larry, lambda 1"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-lambda-p95", "6, lambda", "and P95", "below 1", BELOW_ONE, everywhere(("larry", "larry, lambda 1")), worst("ttft_ms", "p95", "larry", "larry, lambda 1"), "x", model="8b a100, 70b h100",
              stands_in=STANDS_IN),
        Claim("ls-lambda-p99", "6, lambda", "a higher one (0.1) is better at P99: over 0.01, largest of four", "below 1", BELOW_ONE,
              everywhere(("larry", "larry, lambda 0.1")), worst("ttft_ms", "p99", "larry, lambda 0.1", "larry"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-lambda-inf", "6, lambda", "a lambda without end is fcfs: P95 over fcfs, largest of four", "1", Near(1, 0.0001, None), everywhere(("larry, lambda inf", "fcfs")),
              worst("ttft_ms", "p95", "larry, lambda inf", "fcfs"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-rate-p50", "6, capacity", "at 95 % of what a replica holds: P50 of larry over fcfs, largest of four", "below 1", BELOW_ONE, everywhere(("larry", "fcfs"), 0.95),
              worst("ttft_ms", "p50", "larry", "fcfs"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN),
        Claim("ls-rate-p95", "6, capacity", "and P95, which gains less", "below 1", BELOW_ONE, everywhere(("larry", "fcfs"), 0.95),
              worst("ttft_ms", "p95", "larry", "fcfs"), "x", model="8b a100, 70b h100", stands_in=STANDS_IN,
              why="so near to saturation the longest prompts of chats wait for all shorter ones, and they are more than one in twenty; with code it is 0.6 to 0.8"),
    ]
    for metric, name, says in (("ttft_ms", "ttft", "TTFT"), ("normalized_ttft_ms", "norm", "TTFT per prompt token"), ("e2e_ms", "tgt", "time to the whole answer")):
        for percentile in ("p50", "p95"):
            rows.append(Claim(f"ls-sal-{name}-{percentile}", "7", f"{says}, {percentile.upper()}, of sal over the better of random and p2c: largest of four fleets x two schedulers", "below 1",
                              Between(None, 1.01) if metric == "e2e_ms" else BELOW_ONE, fleet(), sal(metric, percentile), "x", (1, 2), model="8b a100, 70b h100", stands_in=STANDS_IN))
    rows.append(Claim("ls-sal-larry", "7", "sal is best with larry: P95 TTFT of larry over sarathi-serve under sal, largest of four fleets", "below 1", BELOW_ONE, fleet(("sal",)),
                      lambda r: max(r[f"{name}: larry, sal"]["ttft_ms"]["p95"] / r[f"{name}: sarathi-serve, sal"]["ttft_ms"]["p95"] for name in FLEETS), "x", (1, 2), model="8b a100, 70b h100", stands_in=STANDS_IN,
                      why="sal leaves no queues whose order would matter: between 0.93 and 1.02 in every fleet"))
    return rows
