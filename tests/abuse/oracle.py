"""The rules of docs/reference/api.md for request bodies, as a table of fields: valid values, invalid values, and the
shape of answers.

Strategies draw bodies for the dummy model: 512 tokens, a context of 2,048, one token per byte of text.
"""

import json
import math

from hypothesis import strategies as st

VOCABULARY, CONTEXT = 512, 2048
MODEL = "abuse-model"
NAMES_BYTES = 1024

# Kinds of JSON values, for invalid fields.
OBJECTS = st.fixed_dictionaries({"a": st.integers(0, 3)})
LISTS = st.lists(st.booleans(), min_size=1, max_size=2)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=24)
NUMBERS = st.one_of(st.integers(-10, 10), st.floats(-10, 10))
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
IDS = st.integers(3, VOCABULARY - 1)
WRONG_IDS = st.one_of(st.sampled_from([-1, VOCABULARY, 2**31, 2**63, -(2**63), 1e300, 1.5, True, None, "1", [], {}]))


def number(low, high, *, above=False):
    right = st.one_of(
        st.floats(low, high, exclude_min=above, allow_subnormal=False),
        st.integers(int(low) + (1 if above or low != int(low) else 0), int(high)),
    )
    edges = [
        low if above else math.nextafter(low, -math.inf),
        math.nextafter(high, math.inf),
        low - 1,
        low - 0.01,
        high + 0.01,
        1e300,
        -1e300,
    ]
    if low > 0:
        edges.append(low / 2)
    wrong = st.one_of(
        st.sampled_from(edges),
        st.floats(max_value=low, exclude_max=not above, allow_infinity=False, min_value=-1e300),
        st.floats(min_value=high, exclude_min=True, allow_infinity=False),
        st.booleans(),
        TEXTS,
        LISTS,
        OBJECTS,
    )
    # 1e-400 is written as 0 or as a subnormal; values above zero must remain so.
    return right.filter(lambda v: not above or v > 1e-30 + low), wrong


def integer(low, high, wrong_low=True, wrong_high=True):
    wholes = [st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**30])] if wrong_high else []
    if wrong_high:
        wholes.append(st.integers(high + 1, 2**63 - 1) if high < 2**63 - 1 else st.nothing())
    if wrong_low:
        wholes.append(st.integers(-(2**63), low - 1))
    wrong = st.one_of(*wholes, st.sampled_from([low + 0.5, 1e300, -1e300]), st.booleans(), TEXTS, LISTS, OBJECTS)
    return st.one_of(st.integers(low, min(high, low + 2**31)), st.integers(low, min(high, low + 20)).map(float)), wrong


def boolean():
    return st.booleans(), st.one_of(NUMBERS, TEXTS, LISTS, OBJECTS, st.sampled_from(["true", 1, 0]))


def text(most=NAMES_BYTES):
    return TEXTS, st.one_of(
        NUMBERS,
        st.booleans(),
        LISTS,
        OBJECTS,
        st.integers(most + 1, most + 50).map(lambda n: "u" * n),
        st.just("\u00e9" * (most // 2 + 1)),
    )


def refused(*values):
    """A known field that is not implemented: any of these values gives 400."""
    return st.none(), st.sampled_from(values)


STOPS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
WRONG_STOPS = st.one_of(
    st.just(""),
    st.just([""]),
    st.just(["a", ""]),
    st.just("s" * 1025),
    st.just(["a"] * 17),
    NUMBERS,
    st.booleans(),
    OBJECTS,
    st.just(["a", 1]),
    st.just([None]),
)
BIAS = st.dictionaries(st.integers(0, VOCABULARY - 1).map(str), st.floats(-100, 100), max_size=4)
WRONG_BIAS = st.one_of(
    st.sampled_from(
        [
            {"512": 1},
            {"-1": 1},
            {"x": 1},
            {"": 1},
            {"1.0": 1},
            {"1": 101},
            {"1": -100.5},
            {"1": "1"},
            {"1": None},
            {"1": True},
            {"1": []},
            {"1": 1, "01": 2},
            {"99999999999": 1},
        ]
    ),
    LISTS,
    TEXTS,
    NUMBERS,
    st.booleans(),
)
# From 1 ms: objectives below the engine's shortest step are refused (tests/base/objectives_test.cc).
SLO_MS = number(1, 1e9)[0], number(0, 1e9, above=True)[1]
SLO = st.fixed_dictionaries({}, optional={name: SLO_MS[0] for name in ("ttft_ms", "tbt_ms", "jct_ms")})
WRONG_SLO = st.one_of(
    st.fixed_dictionaries({"ttft_ms": SLO_MS[1]}),
    st.fixed_dictionaries({"jct_ms": SLO_MS[1]}),
    LISTS,
    TEXTS,
    st.booleans(),
    NUMBERS,
)

PARTS = st.lists(st.one_of(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), TEXTS), max_size=3)
USER = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": st.one_of(TEXTS, PARTS)},
    optional={"name": TEXTS, "tool_call_id": TEXTS},
)
MESSAGES = st.lists(USER, min_size=1, max_size=4)
NO_MESSAGES = [[], {}, "hi", 1, True, [None], ["hi"], [[]], [{}]]
NO_ROLES = [
    [{"content": "x"}],
    [{"role": "robot", "content": "x"}],
    [{"role": 1, "content": "x"}],
    [{"role": "USER", "content": "x"}],
]
NO_CONTENTS = [
    None,
    1,
    {},
    [1],
    [{}],
    [[]],
    [{"type": "text"}],
    [{"type": "text", "text": 1}],
    [{"type": "input_audio"}],
    [{"type": "image_url", "image_url": {"url": "x"}}],
]
WRONG_MESSAGES = st.one_of(
    st.sampled_from(
        [
            *NO_MESSAGES,
            *NO_ROLES,
            [{"role": "user"}],
            *([{"role": "user", "content": c}] for c in NO_CONTENTS),
            [{"role": "assistant", "tool_calls": "x", "content": "x"}],
        ]
    ),
    MESSAGES.map(lambda m: [*m, {"role": "user", "content": 7}]),
)

PROMPT_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
PROMPT_IDS = st.lists(IDS, min_size=1, max_size=24)
PROMPTS = st.one_of(
    PROMPT_TEXT,
    PROMPT_IDS,
    st.lists(PROMPT_TEXT, min_size=1, max_size=3),
    st.lists(st.one_of(PROMPT_IDS, PROMPT_TEXT), min_size=1, max_size=3),
)
NO_PROMPTS = [
    [],
    {},
    1,
    True,
    "",
    [[]],
    [""],
    ["a", ""],
    [None],
    [{}],
    ["a", 1],
    [[1], 2],
    [["a"]],
    [[[1]]],
    [True],
    ["a"] * 257,
    [1.5],
    [[1, None]],
    "x" * 2048,
    [5] * 2049,
    ["x", "y" * 3000],
]
WRONG_ID_LISTS = st.tuples(st.lists(IDS, max_size=3), WRONG_IDS).map(lambda both: [*both[0], both[1]])
WRONG_PROMPTS = st.one_of(st.sampled_from(NO_PROMPTS), WRONG_ID_LISTS.map(lambda ids: [1, *ids]))
WRONG_SEEDS = st.one_of(st.sampled_from([2**64, -(2**63) - 1, 0.5, 1e300]), st.booleans(), TEXTS, LISTS, OBJECTS)
STREAM_OPTIONS = st.fixed_dictionaries(
    {}, optional={"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()}
)
WRONG_STREAM_OPTIONS = st.one_of(
    LISTS, TEXTS, NUMBERS, st.booleans(), st.sampled_from([{"include_usage": 1}, {"continuous_usage_stats": "x"}])
)
# Output rules: at most one field of a request may state one.
SCHEMAS = st.sampled_from(
    [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "string"}}}, {"enum": ["a", 1]}, {}]
)
NO_SCHEMAS = [{"type": "objekt"}, {"unevaluatedProperties": False}, [1], 1]
FORMATS = st.one_of(
    st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
    SCHEMAS.map(lambda schema: {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}),
)
WRONG_FORMATS = st.one_of(
    st.sampled_from([{"type": "json_schema"}, {}, {"type": 1}, "text", 1, []]),
    st.sampled_from(NO_SCHEMAS).map(
        lambda schema: {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    ),
)
RULES = ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
TOOLS = st.lists(st.sampled_from(["f", "g", "h-1"]), unique=True, max_size=3).map(
    lambda names: [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
)
NO_TOOLS = [
    {},
    "x",
    1,
    [1],
    [{}],
    [{"type": "function"}],
    [{"type": "function", "function": {}}],
    [{"type": "function", "function": {"name": ""}}],
    [{"type": "function", "function": {"name": "a b"}}],
    [{"type": "function", "function": {"name": "f", "parameters": 1}}],
    [{"type": "function", "function": {"name": "f"}}] * 2,
    [{"type": "retrieval"}],
]
TEMPLATE_FIELDS = [{"messages": []}, {"tools": []}, {"documents": []}, {"add_generation_prompt": True}]


def only(right, *wrong):
    """A field with one implemented value."""
    return st.just(right), st.sampled_from(wrong)


# field: (valid values, invalid values)
SAMPLED = {  # for completions and chats
    "temperature": number(0, 2),
    "top_p": number(0, 1, above=True),
    "top_k": integer(-1, 2**31 - 1),
    "min_p": number(0, 1),
    "repetition_penalty": number(0.01, 10),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "logit_bias": (BIAS, WRONG_BIAS),
    "seed": (st.integers(-(2**63), 2**64 - 1), WRONG_SEEDS),
    "n": (st.integers(1, 3), integer(1, 128)[1]),
    "stop": (st.one_of(STOPS, st.lists(STOPS, max_size=16)), WRONG_STOPS),
    "stop_token_ids": (
        st.lists(IDS, max_size=4),
        st.one_of(WRONG_ID_LISTS, st.just([5] * 257), OBJECTS, TEXTS, NUMBERS),
    ),
    "ignore_eos": boolean(),
    "min_tokens": (st.integers(0, 4), st.one_of(integer(0, CONTEXT)[1], st.just(5000))),
    "max_tokens": (st.integers(4, 12), integer(1, 2**63 - 1)[1] | st.integers(CONTEXT, 2**63 - 1)),
    "max_completion_tokens": (st.integers(4, 12), integer(1, 2**63 - 1)[1]),
    "stream": boolean(),
    "stream_options": (STREAM_OPTIONS, WRONG_STREAM_OPTIONS),
    "priority": integer(-(2**31), 2**31 - 1),
    "slo": (SLO, WRONG_SLO),
    "ttft_slo_ms": SLO_MS,
    "tpot_slo_ms": SLO_MS,
    "ttlt_slo_ms": SLO_MS,
    "user": text(),
    "cache_salt": text(),
    "model": (st.just(MODEL), st.one_of(NUMBERS, st.booleans(), LISTS, OBJECTS, st.just("m" * 1025))),
    "response_format": (FORMATS, WRONG_FORMATS),
    "modalities": only(["text"], ["audio"], ["text", "audio"], "text"),
    "use_beam_search": only(False, True, 1, "x"),
    "continue_final_message": only(False, True, 1),
    "skip_special_tokens": only(True, False, 1, "x"),
    "suffix": refused("x", 1),
    "functions": refused([{"name": "f"}]),
    "audio": refused({"voice": "v"}),
    "guided_json": (SCHEMAS, st.sampled_from([*NO_SCHEMAS, "x"])),
    "guided_regex": (st.sampled_from(["a", "[a-z]{1,8}", "(yes|no)"]), st.sampled_from(["", "(", "a{9,1}", 1, [], {}])),
    "guided_choice": (st.lists(STOPS, min_size=1, max_size=4), st.sampled_from([[], [""], [1], "a", 1, {}])),
    "guided_grammar": (
        st.just('start: "a" | "b" start'),
        st.sampled_from(["", "x", "start: foo", 'root ::= "a"', 1, {}]),
    ),
    "structured_outputs": (
        st.sampled_from([{}, {"choice": ["a"]}, {"regex": "a+"}, {"json": {}}]),
        st.sampled_from([[], 1, "x", {"choice": []}, {"regex": "("}, {"structural_tag": "x"}]),
    ),
    "prompt_logprobs": refused(0, 1),
    "chat_template": refused("x"),
}
TEMPLATED = {
    "messages": (MESSAGES, WRONG_MESSAGES),
    "add_generation_prompt": boolean(),
    "documents": (st.lists(JUNK, max_size=3), st.one_of(OBJECTS, TEXTS, NUMBERS)),
    "chat_template_kwargs": (
        st.dictionaries(TEXTS.map(lambda k: "k" + k), JUNK, max_size=3),
        st.one_of(LISTS, TEXTS, NUMBERS, st.sampled_from(TEMPLATE_FIELDS)),
    ),
    "prompt": refused("x", [1], 1),
    "add_special_tokens": only(False, True, 1),
    "continue_final_message": only(False, True, 1),
}
CHAT = {
    **SAMPLED,
    **TEMPLATED,
    "logprobs": boolean(),
    "top_logprobs": integer(0, 20),
    "echo": only(False, True, 1),
    "tools": (TOOLS, st.sampled_from(NO_TOOLS)),
    "tool_choice": (
        st.sampled_from(["none", "auto"]),
        st.sampled_from(["required", "any", {}, {"type": "function"}, 1]),
    ),
    "parallel_tool_calls": (st.booleans(), st.one_of(NUMBERS, TEXTS, LISTS, OBJECTS)),
    "reasoning_effort": (st.sampled_from(["none", "low", "high"]), st.one_of(st.just("much"), NUMBERS, LISTS, OBJECTS)),
}
COMPLETION = {
    **SAMPLED,
    "prompt": (PROMPTS, WRONG_PROMPTS),
    "messages": refused([], "x", 1),
    "logprobs": integer(0, 20),
    "echo": boolean(),
    "add_special_tokens": boolean(),
}
TOKENIZE = {
    "prompt": (TEXTS, st.one_of(NUMBERS, st.booleans(), LISTS, OBJECTS)),
    "add_special_tokens": boolean(),
    "return_token_strs": boolean(),
    "model": SAMPLED["model"],
}
TOKENIZE_CHAT = {**TEMPLATED, "return_token_strs": boolean(), "model": SAMPLED["model"]}
DETOKENIZE = {
    "tokens": (
        st.lists(st.integers(0, VOCABULARY - 1), max_size=40),
        st.one_of(WRONG_ID_LISTS, OBJECTS, TEXTS, NUMBERS),
    ),
    "model": SAMPLED["model"],
}

# name: (target, fields, required field)
ROUTES = {
    "completions": ("/v1/completions", COMPLETION, "prompt"),
    "chat": ("/v1/chat/completions", CHAT, "messages"),
    "tokenize": ("/tokenize", TOKENIZE, "prompt"),
    "tokenize a chat": ("/tokenize", TOKENIZE_CHAT, "messages"),
    "detokenize": ("/detokenize", DETOKENIZE, "tokens"),
}


def settle(body, chat):
    """Removes fields that are valid alone but not together (docs/reference/api.md names each), and keeps answers
    short."""
    if body.get("stream") is not True:
        body.pop("stream_options", None)
    if chat and body.get("logprobs") is not True:
        body.pop("top_logprobs", None)
    for name in [name for name in RULES if body.get(name) is not None][1:]:
        body.pop(name)
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = 8
    # A first token due after the last one is refused, in any of the fields.
    slo = body.get("slo") or {}
    first = [slo.get("ttft_ms"), body.get("ttft_slo_ms")]
    last = [slo.get("jct_ms"), body.get("ttlt_slo_ms")]
    if max((ms for ms in first if ms is not None), default=0) > min(
        (ms for ms in last if ms is not None), default=math.inf
    ):
        body.pop("ttlt_slo_ms", None)
        body["slo"] = {name: ms for name, ms in slo.items() if name != "jct_ms"}
    return body


def right_bodies(route):
    """Bodies that must get 200. Null counts as absent, unknown fields are ignored."""
    _, fields, needed = ROUTES[route]
    optional = {
        name: st.one_of(right, right, right, st.none()) for name, (right, _) in fields.items() if name != needed
    }
    unknown = st.dictionaries(TEXTS.map(lambda key: "x-" + key), JUNK, max_size=2)

    # Only a few optional fields at a time: all together would mostly test their mutual limits.
    def some(names):
        return st.fixed_dictionaries({needed: fields[needed][0], **{name: optional[name] for name in names}})

    body = st.lists(st.sampled_from(sorted(optional)), max_size=8, unique=True).flatmap(some)
    generates = route in ("completions", "chat")
    return st.tuples(body, unknown).map(
        lambda both: settle({**both[1], **both[0]}, route == "chat") if generates else {**both[1], **both[0]}
    )


def wrong_bodies(route, field):
    """Valid bodies with one invalid field: 400, and the error names the field."""
    _, fields, _ = ROUTES[route]

    def spoil(both):
        body, value = both
        # Dependent fields would be invalid without it.
        for dependent in {
            "stream": ["stream_options"],
            "logprobs": ["top_logprobs"],
            "n": ["best_of"],
            **{rule: [r for r in RULES if r != rule] for rule in RULES},
            "tool_choice": ["tools"],
            "max_completion_tokens": ["min_tokens"],
            "max_tokens": ["max_completion_tokens", "min_tokens"],
        }.get(field, []):
            body.pop(dependent, None)
        if field == "stream_options":
            body["stream"] = True
        if field == "top_logprobs":
            body["logprobs"] = True
        body[field] = value
        return body

    return st.tuples(right_bodies(route), fields[field][1]).map(spoil)


# --- answers


def wrong_shape(route, body, answer):
    """Empty, or the fault in a 200's body."""
    try:
        if route == "detokenize":
            return "" if isinstance(answer["prompt"], str) else "prompt is no string"
        if route.startswith("tokenize"):
            return wrong_tokens(body, answer)
        return wrong_generation(route == "chat", body, answer)
    except (KeyError, TypeError, IndexError) as missing:
        return f"not the documented shape: {missing!r}"


def wrong_tokens(body, answer):
    tokens, strings = answer["tokens"], answer["token_strs"]
    if (
        answer["count"] != len(tokens)
        or answer["max_model_len"] != CONTEXT
        or not all(0 <= t < VOCABULARY for t in tokens)
    ):
        return "count, max_model_len or ids are wrong"
    if (strings is not None and len(strings) != len(tokens)) if body.get("return_token_strs") else strings is not None:
        return "token_strs do not fit return_token_strs"
    return ""


def choices_of(body):
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], (int, float)) else 1
    return prompts * (body.get("n") or 1)


def longest(body):
    return body.get("max_completion_tokens") or body.get("max_tokens") or 8


def wrong_generation(chat, body, answer):
    count = choices_of(body)
    if answer["object"] != ("chat.completion" if chat else "text_completion") or not answer["id"].startswith(
        "chatcmpl-" if chat else "cmpl-"
    ):
        return "object or id"
    if [choice["index"] for choice in answer["choices"]] != list(range(count)):
        return f"choices: {len(answer['choices'])} instead of {count}"
    for choice in answer["choices"]:
        if choice["finish_reason"] not in ("stop", "length", "tool_calls"):
            return f"finish_reason {choice['finish_reason']!r}"
        text = choice["message"]["content"] if chat else choice["text"]
        if not isinstance(text, str) and not (chat and text is None and choice["message"].get("tool_calls")):
            return "no text"
        wants = body.get("logprobs") is True if chat else body.get("logprobs") is not None
        if bool(choice.get("logprobs")) != wants:
            return "logprobs are there, or not, against the request"
    usage = answer["usage"]
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"] or usage["prompt_tokens"] < 1:
        return f"usage {usage}"
    if not 0 < usage["completion_tokens"] <= count * longest(body):
        return f"{usage['completion_tokens']} tokens of {count} choices of at most {longest(body)}"
    to_the_end = body.get("ignore_eos") and not body.get("stop") and not body.get("stop_token_ids")
    if to_the_end and usage["completion_tokens"] != count * longest(body):
        return f"{usage['completion_tokens']} tokens instead of {count} x {longest(body)}"
    return ""


def wrong_stream(chat, body, data):
    """Empty, or the fault in a stream's bytes."""
    events = [e[6:] for e in data.decode().split("\n\n") if e.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return "no [DONE] at the end"
    chunks = [json.loads(e) for e in events[:-1]]
    if any("error" in chunk for chunk in chunks):
        return f"an error in the stream: {chunks[-1]}"
    finished = [c["index"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason")]
    if sorted(finished) != list(range(choices_of(body))):
        return f"finished choices {finished} instead of {choices_of(body)}"
    asked = (body.get("stream_options") or {}).get("include_usage")
    if bool(asked) != (not chunks[-1]["choices"]):
        return "the usage chunk is there, or not, against the request"
    return ""
