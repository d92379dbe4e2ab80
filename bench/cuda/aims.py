"""What a run of measure.py is compared with: floors of the same card, public figures of other engines on an H100, and
transformers in the same run."""

TPOT_MS = {8: 7.4, 32: 9.9, 128: 19.3}  # TensorRT-LLM 1.0, Llama-3.1-8B in bf16 on an H100, 1024/512, by streams
OFFLINE_TOKENS_PER_S = 12500  # vLLM, the same model and card, 1000/1000
OVER_TRANSFORMERS = 3
OVER_FLOOR = {"decode": 1.25, "prefill": 1.3}
GAP_US = 20


def compare(result):
    """A list of aims: what, unit, aim, `value` (None: not measured), `kept`; at most the aim, or at least."""
    rows = []

    def add(what, unit, value, most=None, least=None):
        kept = None if value is None else value <= most if most is not None else value >= least
        bound = {"most": most} if most is not None else {"least": least}
        rows.append({"what": what, "unit": unit, **bound, "value": value, "kept": kept})

    cells = [c for c in result.get("steps", {}).get("cells", []) if "step_ms" in c]
    for kind, most in OVER_FLOOR.items():
        ratios = [c["over_floor"] for c in cells if c["kind"] == kind and "over_floor" in c]
        add(f"{kind}: the worst cell over its floor", "times", max(ratios, default=None), most=most)
    add("decode: the longest gap of a cell", "us", max((c["gap_us"] for c in cells if "gap_us" in c), default=None),
        most=GAP_US)  # fmt: skip
    served = {load["streams"]: load for load in result.get("served", []) if load["answer_tokens"] == 512}
    for streams, most in TPOT_MS.items():
        tpot = (served.get(streams, {}).get("tpot_ms") or {}).get("mean")
        add(f"served, {streams} streams: mean time per token", "ms", tpot, most=most)
    offline = [r["output_token_throughput"] for r in result.get("offline", []) if r["prompt_tokens"] == 1000]
    add("offline, 1000/1000: answers", "tokens/s", max(offline, default=None), least=OFFLINE_TOKENS_PER_S)
    add("served over transformers, 64 of 1024/256", "times", over_transformers(result), least=OVER_TRANSFORMERS)
    return rows


def over_transformers(result):
    """Answer tokens per second of the served load with the peer's prompts and as many streams as it had requests."""
    peer = result.get("transformers") or {}
    shape = ("prompt_tokens", "answer_tokens")
    for load in result.get("served", []):
        same = load["streams"] == peer.get("requests") and all(load[key] == peer.get(key) for key in shape)
        if same and peer.get("output_tokens_per_s"):
            return load["output_token_throughput"] / peer["output_tokens_per_s"]
    return None


def table(rows):
    lines = []
    for row in rows:
        bound = f"at most {row['most']:g}" if "most" in row else f"at least {row['least']:g}"
        value = "not measured" if row["value"] is None else f"{row['value']:.4g} {row['unit']}"
        verdict = {True: "kept", False: "missed", None: ""}[row["kept"]]
        lines.append(f"{row['what']:<48} {value:>18}  {bound:<15} {verdict}".rstrip())
    return "\n".join(lines)
