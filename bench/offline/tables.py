"""Markdown tables and the picture of run.py's measurements, with the paper's values."""

import statistics

# Columns of the tables; run.py runs them.
ORDERS = ("fcfs", "dfs", "random", "balance", "blend")
OVERLAPS = ("off", "nano")
LARGE_DFS = "dfs, large steps"
SHARD_REQUESTS = 100_000  # each: the job grows with the shards, or its longest answers alone would decide
SHARDED = {"dfs": ("dfs",), "blend": ("blend",), "blend, lengths known": ("blend", "--planner-lengths", "known")}
# The paper's scanner, with its limits on the KV held by the two ends, or on the expected KV; with the step size of
# blend, which shows the cost of the scanner alone; and with known lengths, as for the paper's videos.
SCANS = {
    "blend": ("blend",),
    "dual scan": ("blend-dual-scan",),
    "dual scan, steps as blend": ("blend-dual-scan", "--budget", "efficient"),
    "dual scan, expected": ("blend-dual-scan", "--dual-scan-caps", "expected"),
    "dual scan, expected, steps as blend": ("blend-dual-scan", "--dual-scan-caps", "expected", "--budget", "efficient"),
    "blend, known": ("blend", "--planner-lengths", "known"),
    "dual scan, known": ("blend-dual-scan", "--planner-lengths", "known"),
}
GRID_ORDERS = ("blend", "blend, known", "dual scan", "dual scan, known")


def of(result, part, **labels):
    return [r for r in result["runs"] if r["part"] == part and all(r["labels"].get(k) == v for k, v in labels.items())]


def speed(runs):
    return runs[0]["tokens_per_s"] if runs else None


def gain(new, old):
    return f"{100 * (new / old - 1):+.1f} %" if new and old else ""


def mix_name(spec):
    return f"({spec['density']}, {100 * spec['sharing']:.0f} %)"


def distinct(values):
    return list(dict.fromkeys(values))


def mixes_table(result):
    lines = [
        "### Orders",
        "",
        (
            "Tokens per second of a replica; blend against the best other order, against the faster dfs with overlap"
            " (paper: +19.3 to +22.7 %, mean 20.8 %), against dfs without (up to +44 %), against random (the paper's"
            " NanoFlow-Balance; mixes 1 and 2: +36 %); its share of the practical bound (paper 86.6 %) and of the"
            " optimal sharing (at least 97 %)."
        ),
        "",
        (
            "| deployment, job | overlap | fcfs | dfs | random | balance | blend | dfs, large steps | over the best"
            " other | over dfs | over dfs, no overlap | over random | of the bound | of optimal sharing |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    runs = of(result, "mixes")
    for deployment in distinct(r["labels"]["deployment"] for r in runs):
        for name in distinct(mix_name(r["spec"]) for r in runs):
            here = [r for r in runs if r["labels"]["deployment"] == deployment and mix_name(r["spec"]) == name]
            for overlap in OVERLAPS:
                by = {r["labels"]["order"]: r for r in here if r["labels"]["overlap"] == overlap}
                plain = {r["labels"]["order"]: r for r in here if r["labels"]["overlap"] == "off"}
                if "blend" not in by:
                    continue
                blend, t = by["blend"], {order: r["tokens_per_s"] for order, r in by.items()}
                share = blend["plan"]["share_of_practical_bound"]
                sharing = (
                    blend["sharing"] / blend["plan"]["optimal_sharing"]
                    if blend["sharing"] and blend["plan"]["optimal_sharing"]
                    else None
                )
                speeds = " | ".join(f"{t[o]:.0f}" if o in t else "" for o in (*ORDERS, LARGE_DFS))
                best_dfs, plain_dfs = (
                    max((r["tokens_per_s"] for o, r in runs.items() if o in ("dfs", LARGE_DFS)), default=None)
                    for runs in (by, plain)
                )
                best = max((speed for order, speed in t.items() if order != "blend"), default=None)
                gains = [gain(t["blend"], other) for other in (best, best_dfs, plain_dfs, t.get("random"))]
                shares = [f"{100 * value:.1f} %" if value else "" for value in (share, sharing)]
                lines.append(f"| {deployment}, {name} | {overlap} | {speeds} | {' | '.join(gains + shares)} |")
    return "\n".join(lines)


def scan_table(result):
    runs = of(result, "scan")
    if not runs:
        return ""
    references = {order: "blend, known" if order.endswith("known") else "blend" for order in SCANS}
    others = [order for order, reference in references.items() if order != reference]
    lines = [
        "### The paper's dual scanner",
        "",
        "Tokens per second with overlap, and against blend; with lengths known, against blend that knows them.",
        "",
        "| job | requests | blend | " + " | ".join(f"{order} | against blend" for order in others) + " |",
        "|---" * (3 + 2 * len(others)) + "|",
    ]
    for requests in distinct(r["spec"]["requests"] for r in runs):
        for name in distinct(mix_name(r["spec"]) for r in runs):
            t = {
                r["labels"]["order"]: r["tokens_per_s"]
                for r in runs
                if r["spec"]["requests"] == requests and mix_name(r["spec"]) == name
            }
            cells = [f"{t[o]:.0f} | {gain(t[o], t.get(references[o]))}" if o in t else " | " for o in others]
            lines.append(f"| {name} | {requests:,} | {t.get('blend', 0):.0f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def grid_table(result):
    return "\n\n".join(part for part in (grid_of(result, order) for order in GRID_ORDERS) if part)


def grid_of(result, order):
    runs = of(result, "grid")
    gains = {}
    for r in runs:
        if r["labels"]["order"] == order:
            dfs = [
                d["tokens_per_s"] for d in runs if d["labels"]["order"] in ("dfs", LARGE_DFS) and d["spec"] == r["spec"]
            ]
            if dfs:
                gains[(r["spec"]["density"], r["spec"]["sharing"])] = 100 * (r["tokens_per_s"] / max(dfs) - 1)
    if not gains:
        return ""
    sharings = sorted({s for _, s in gains})
    lines = [
        f"### Grid: {order}",
        "",
        (
            f"Over the faster dfs, both with overlap, in percent: {min(gains.values()):.1f} to"
            f" {max(gains.values()):.1f}, mean {statistics.mean(gains.values()):.1f} (paper: 14 to 34, mean 22.5, most"
            f" at a density of 1.30); most at {max(gains, key=gains.get)}."
        ),
        "",
        "| density | " + " | ".join(f"sharing {100 * s:.0f} %" for s in sharings) + " |",
        "|---|" + "---|" * len(sharings),
    ]
    for density in sorted({d for d, _ in gains}):
        lines.append(
            f"| {density:.2f} | "
            + " | ".join(f"{gains[density, s]:.1f}" if (density, s) in gains else "" for s in sharings)
            + " |"
        )
    return "\n".join(lines)


def pair_table(result, part, title, key, about):
    runs = of(result, part)
    if not runs:
        return ""
    lines = [f"### {title}", "", about, "", f"| job | {key} | dfs | blend | gain |", "|---|---|---|---|---|"]
    for name in distinct(mix_name(r["spec"]) for r in runs):
        for value in distinct(r["labels"][key] for r in runs):
            t = {
                r["labels"]["order"]: r["tokens_per_s"]
                for r in runs
                if mix_name(r["spec"]) == name and r["labels"][key] == value
            }
            lines.append(
                f"| {name} | {value} | {t.get('dfs', 0):.0f} | {t.get('blend', 0):.0f} |"
                f" {gain(t.get('blend'), t.get('dfs'))} |"
            )
    return "\n".join(lines)


def sample_table(result):
    runs = of(result, "sample")
    if not runs:
        return ""
    kinds = distinct(r["labels"]["lengths"] for r in runs)
    lines = [
        "### What the plan knows of lengths",
        "",
        "Tokens per second of blend with overlap (paper: a sample of 1 % is as good as all lengths).",
        "",
        "| job | " + " | ".join(kinds) + " | sample 0.01 against known |",
        "|---|" + "---|" * (len(kinds) + 1),
    ]
    for name in distinct(mix_name(r["spec"]) for r in runs):
        t = {r["labels"]["lengths"]: r["tokens_per_s"] for r in runs if mix_name(r["spec"]) == name}
        lines.append(
            f"| {name} | "
            + " | ".join(f"{t.get(k, 0):.0f}" for k in kinds)
            + f" | {gain(t.get('sample 0.01'), t.get('planner-lengths known'))} |"
        )
    return "\n".join(lines)


def shards_table(result):
    runs = of(result, "shards")
    if not runs:
        return ""
    lines = [
        "### Shards",
        "",
        (
            f"Tokens per second of all replicas together, and for each against one replica. A job of {SHARD_REQUESTS:,}"
            " requests for each (paper: what is lost grows linearly with the shards)."
        ),
        "",
        "| shards | " + " | ".join(f"{order} | each" for order in SHARDED) + " |",
        "|---" * (1 + 2 * len(SHARDED)) + "|",
    ]
    for n in distinct(r["labels"]["shards"] for r in runs):
        cells = []
        for order in SHARDED:
            here, one = (
                speed(of(result, "shards", shards=n, order=order)),
                speed(of(result, "shards", shards=1, order=order)),
            )
            cells += [f"{here:.0f}" if here else "", gain(here / n, one) if here and one else ""]
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def planning_table(result):
    runs = of(result, "planning")
    if not runs:
        return ""
    lines = [
        "### Planning time",
        "",
        (
            "Of one core of the machine above (paper: under 1 % of the run). A decision is all that the scheduler does"
            " for a step, every look into the tree of cached prefixes and every change of it included (paper: 80 us for"
            " one operation of its tree on average, 230 at P99)."
        ),
        "",
        "| requests | planning s | us per request | of the simulated run | decision P50 us | P99 |",
        "|---|---|---|---|---|---|",
    ]
    for r in runs:
        n, s = r["plan"]["requests"], r["plan"]["planning_s"]
        lines.append(
            f"| {n} | {s:.2f} | {1e6 * s / n:.1f} | {100 * s / r['duration_s']:.3f} % | {r['decision_us']['p50']:.1f} |"
            f" {r['decision_us']['p99']:.1f} |"
        )
    return "\n".join(lines)


def report(result):
    parts = [
        f"{result['date'][:10]}, commit {result['commit']}, {result['machine']['cpu']}; `{result['command']}`",
        mixes_table(result),
        scan_table(result),
        grid_table(result),
        pair_table(
            result, "sources", "Other sources", "dense", "Paper: up to +31 % with Azure's, up to +17 % with ShareGPT."
        ),
        sample_table(result),
        shards_table(result),
        planning_table(result),
        pair_table(
            result,
            "overlap",
            "Interference",
            "interference",
            "The gain where both kinds of work slow each other down less or more than assumed (0.26).",
        ),
        flat_table(result),
    ]
    return "\n\n".join(p for p in parts if p)


def flat_table(result):
    if "flat" not in result:
        return ""
    lines = [
        "### Flatness",
        "",
        (
            "Compute and memory time of the steps by the paper's cost model, in milliseconds, over 400 stretches of the"
            " run: mean, and standard deviation over mean."
        ),
        "",
        "| order | compute | varies | memory | varies |",
        "|---|---|---|---|---|",
    ]
    for order, curve in result["flat"].items():
        cells = []
        for kind in ("compute_s", "memory_s"):
            mean = statistics.mean(curve[kind])
            cells += [f"{1000 * mean:.1f}", f"{statistics.pstdev(curve[kind]) / mean:.2f}"]
        lines.append(f"| {order} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(result):
    """The picture of both orders: compute and memory time of the steps over the run."""
    width, height, margin = 560, 130, 40
    top = max(max(c[k]) for c in result["flat"].values() for k in ("compute_s", "memory_s"))
    parts = []
    for row, (order, curve) in enumerate(result["flat"].items()):
        y0 = margin + row * (height + margin)
        parts.append(
            f'<text x="{margin}" y="{y0 - 8}">{order}: milliseconds per step of compute (green) and memory (orange),'
            f" most {1000 * top:.0f}</text>"
        )
        parts.append(f'<rect x="{margin}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#cccccc"/>')
        for kind, colour in (("compute_s", "#1b9e77"), ("memory_s", "#d95f02")):
            values = curve[kind]
            points = " ".join(
                f"{margin + width * i / max(1, len(values) - 1):.1f},{y0 + height * (1 - v / top):.1f}"
                for i, v in enumerate(values)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    total = margin + len(result["flat"]) * (height + margin)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * margin}" height="{total}"'
        ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%"'
        f' fill="white"/>{"".join(parts)}</svg>\n'
    )
