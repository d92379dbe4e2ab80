"""The least time that a step can take on a card: its bytes at the card's bandwidth, or its arithmetic at the card's
rate, as measured on the same card in the same run (tests/cuda/conformance/rates.cu)."""

LARGE_MIB = 1024  # smaller copies are bound by their launch
LARGE_TOKENS = 8192


def card_rates(rates):
    """(bytes per second of reading, FLOP per second of bf16 products) of the JSON that `rates` prints."""
    reads = [
        row["gb_per_s"]["median"] for row in rates["device_memory"] if row["what"] == "read" and row["mib"] >= LARGE_MIB
    ]
    products = [
        row["tflops"]["median"] for row in rates["products"] if row.get("type") == "bf16" and row["m"] >= LARGE_TOKENS
    ]
    return max(reads) * 1e9, max(products) * 1e12


class Model:
    """A dense model of Llama's form in bf16, by its config.json."""

    def __init__(self, config):
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        hidden, kv_heads = config["hidden_size"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or hidden // self.heads
        attention = hidden * self.head_dim * (2 * self.heads + 2 * kv_heads)
        self.layer_values = self.layers * (attention + 3 * hidden * config["intermediate_size"])
        self.head_values = hidden * config["vocab_size"]  # of the last product, for sampled rows alone
        self.kv_bytes = 2 * 2 * self.layers * kv_heads * self.head_dim  # of a token

    def bytes(self, decodes, context):
        """Weights once, and the K and V that decodes read."""
        return 2 * (self.layer_values + self.head_values) + decodes * context * self.kv_bytes

    def flops(self, prompt, decodes, context):
        """Products of all tokens, the last product of a row per sequence, scores and sums of attention."""
        rows = decodes + (prompt > 0)
        pairs = prompt * (prompt + 1) // 2 + decodes * context
        return (
            2 * self.layer_values * (prompt + decodes)
            + 2 * self.head_values * rows
            + 4 * self.layers * self.heads * self.head_dim * pairs
        )

    def floor_ms(self, cell, bandwidth, rate):
        prompt, decodes, context = cell["prompt"], cell["decodes"], cell["context"]
        return 1e3 * max(self.bytes(decodes, context) / bandwidth, self.flops(prompt, decodes, context) / rate)


def add_floors(cells, model, bandwidth, rate):
    """Adds floor_ms, and the step's time over it: chained steps where they were measured, else a step alone."""
    for cell in cells:
        if "step_ms" not in cell:
            continue
        cell["floor_ms"] = model.floor_ms(cell, bandwidth, rate)
        cell["over_floor"] = cell.get("chained_ms", cell["step_ms"]) / cell["floor_ms"]


def costs_of_invariance(cells):
    """Per number of tokens: the time of a layer's products with one algorithm for all numbers, over that of the best
    for each (cells of bench/cuda/product_cells.cc)."""
    layer = [cell for cell in cells if cell["product"] != "lm_head"]
    costs = {}
    for tokens in sorted({cell["tokens"] for cell in layer}):
        same = [cell for cell in layer if cell["tokens"] == tokens]
        costs[tokens] = sum(c["invariant_us"] for c in same) / sum(c["chosen_us"] for c in same)
    return costs


def table(cells):
    lines = ["kind     prompt decodes context    step ms  chained ms   floor ms  share of the floor  gap us"]
    for c in cells:
        head = f"{c['kind']:<8} {c['prompt']:>6} {c['decodes']:>7} {c['context']:>7}"
        if "step_ms" not in c:
            lines.append(f"{head}  {c.get('left_out', '')}")
            continue
        chained = f"{c['chained_ms']:.3f}" if "chained_ms" in c else "-"
        gap = f"{c['gap_us']:.0f}" if "gap_us" in c else "-"
        floor, share = (f"{c['floor_ms']:.3f}", f"{1 / c['over_floor']:.1%}") if "floor_ms" in c else ("-", "-")
        lines.append(f"{head} {c['step_ms']:>10.3f} {chained:>11} {floor:>10} {share:>18} {gap:>8}")
    return "\n".join(lines)
