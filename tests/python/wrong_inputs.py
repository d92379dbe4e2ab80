"""Every parameter of every public call, with values that are always invalid. Used by inputs_test.py and tests/abuse."""

import asyncio
import decimal
import fractions
import inspect

import tactus
from tactus import PlanCosts, SamplingParams, plan, simulate

CHAT = [{"role": "user", "content": "a"}]
COSTS = PlanCosts(flops_per_token=1, attention_flops=0, kv_bytes_per_token=1, flops_per_s=1, bytes_per_s=1)
SURROGATE = "a\ud800b"


class Whole:
    """Like a numpy integer: has __index__, is not an int."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Real:
    """Like numpy's float32: has __float__, is not a float."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)


class Float64(float):
    """Like numpy's float64: a float whose repr is not a number."""

    def __repr__(self):
        return f"np.float64({float(self)})"


class Array:
    """Like a numpy array: has tolist, is not a sequence."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


class Broken:
    def __index__(self):
        raise ValueError("broken")

    def __float__(self):
        raise ValueError("broken")

    def __repr__(self):
        raise ValueError("broken")


NAN, INF = float("nan"), float("inf")
# Invalid for every parameter.
NEVER = [b"ab", bytearray(b"ab"), memoryview(b"ab"), object(), {1, 2}, frozenset(), 3j, ..., int, len,
         Broken(), Real(NAN), (i for i in ()), range]  # fmt: skip
NO_NUMBER = [*NEVER[:9], NEVER[10], NAN, Float64(NAN), "x", [1], {"a": 1}, (1,), True, Array([1, 2])]
NO_WHOLE = [*NO_NUMBER, 1.5, Float64(1.5), Real(0.5), INF, decimal.Decimal("1.5"), fractions.Fraction(1, 3)]
NO_TEXT = [*NEVER[:12], 3, 1.5, True, ["a"], {"a": 1}, SURROGATE]
NO_FLAG = [*NEVER[:12], 3, "x", [True], {"a": 1}, 1.0]
NO_IDS = [*NEVER[:4], {1, 2}, 3, "ab", {1: 2}, 1.5, True, [b"a"], ["1"], [1.5], [NAN], [None], [[1]], [True], [-1],
          [2**40], [3j], [1, "a"], [1, b"a"], Array([1.5])]  # fmt: skip
NO_OBJECT = [*NEVER[:12], 3, [1], True, {1: object()}, {"a": NAN}, {"a": b"x"}, {"a": SURROGATE}, {SURROGATE: 1},
             {"a": {1, 2}}, {b"a": 1}]  # fmt: skip
NO_PROMPT = [*NEVER[:12], 3, 1.5, True, None, {}, {"text": "a"}, {"prompt": 3}, {"prompt": b"a"}, {"prompt": "a", 1: 2},
             {"prompt": {"prompt": "a"}}, {"prompt": "a", "prompt_token_ids": [1]}, {"prompt_token_ids": b"ab"},
             {"prompt_token_ids": "ab"}, {"prompt_token_ids": []}, {"prompt_token_ids": [1.5]},
             {"prompt": "a", "cache_salt": b"x"}, {"prompt": "a", "cache_salt": SURROGATE}, {"prompt": SURROGATE},
             SURROGATE, [1, "a"], [1, b"a"], [1, None], [True], [1.5], [NAN], [-1], [2**31], [10**30], [10000],
             Array([b"a"])]  # fmt: skip
NO_CHAT = [*NEVER[:12], 3, "hello", {"role": "user", "content": "a"}, [3], [b"a"], [{}], [{"role": b"user"}],
           [{"role": "user", "content": b"a"}], [{"role": "user", "content": SURROGATE}],
           [{"role": "user", "content": NAN}], [{"role": "user", "content": {1, 2}}], [{1: 2}],
           [{"role": "user", "content": object()}], [{"content": "a"}]]  # fmt: skip
NO_PARAMS = [*NEVER[:12], 3, "x", {"n": 1}, [{"n": 1}], [3], [None], [SamplingParams()] * 7, True]


class Case:
    """`call(value)` must be rejected with an error that names `name`."""

    def __init__(self, label, name, call, values):
        self.label, self.name, self.call, self.values = label, name, call, values


def _of(function, name, values, label=None, **others):
    label = label or getattr(function, "__qualname__", "")
    return Case(f"{label}({name}=)", name, lambda value: function(**{**others, name: value}), values)


def cases(llm, awaited, make_llm):
    """`make_llm(**options)`: loads a model."""
    params = {
        **dict.fromkeys(("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"), [*NO_NUMBER, INF]),
        "repetition_penalty": [*NO_NUMBER, INF],
        **dict.fromkeys(("n", "top_k", "max_tokens", "min_tokens", "seed", "logprobs"), [*NO_WHOLE, 2**70, -(2**70)]),
        "stop": [*NEVER[:12], 3, True, {"a": 1}, [b"a"], [3], [None], SURROGATE, [SURROGATE], [["a"]], ""],
        "stop_token_ids": NO_IDS,
        "ignore_eos": NO_FLAG,
        "parallel_tool_calls": NO_FLAG,
        "logit_bias": [
            *NEVER[:12],
            3,
            "ab",
            [1],
            {1: b"a"},
            {1: NAN},
            {"x": 1},
            {1.5: 1},
            {b"1": 1},
            {True: 1},
            {-1: 1},
            {1: 1000},
            {5: 1, "5": 2},
            {None: 1},
        ],  # fmt: skip
        "structured_outputs": [
            *NO_OBJECT,
            "x",
            {"jsn": {}},
            {"json": 3},
            {"choice": []},
            {"choice": "ab"},
            {"regex": 3},
            {"json": {}, "regex": "a"},
        ],  # fmt: skip
        "response_format": [*NO_OBJECT, "x", {"type": "xml"}, {}, {"type": "json_schema"}],
        "tools": [*NEVER[:12], 3, "x", {"a": 1}, [3], [{}], [{"type": "function"}], [b"a"], [{"type": object()}]],
        "tool_choice": [*NEVER[:12], 3, [1], "maybe", {"a": 1}, SURROGATE],
        "slo": [*NO_OBJECT, "x", {"ttft_ms": "soon"}, {"ttft_ms": -1}, {"tbt": 1}, {"class": 3}],
    }
    assert set(params) == set(inspect.signature(SamplingParams).parameters) - {"unknown"}
    listed = [_of(SamplingParams, name, values) for name, values in params.items()]
    listed.append(Case("SamplingParams of an unknown name", "tempratur", lambda _: SamplingParams(tempratur=1), [0]))
    some = [*NO_PROMPT[:9], None, *({"prompt": v} for v in (3, b"a", None)), *[[p] for p in NO_PROMPT if p != 3]]
    quiet = {"use_tqdm": False}
    for call, its in ((llm.generate, quiet), (_sync(awaited.generate), {})):
        listed += [
            _of(call, "prompts", [v for v in some if v is not None], **its),
            _of(call, "sampling_params", NO_PARAMS, prompts=["a", "b"], **its),
            _of(
                call,
                "priority",
                [3, "ab", b"ab", {1: 2}, {1}, [1], ["x"], [1.5], [2**40], [b"a"], [None], [NAN]],
                prompts=["a"] * 2,
                **its,
            ),  # fmt: skip
            _of(
                call,
                "places",
                [
                    3,
                    "ab",
                    b"ab",
                    {1: 2},
                    [1, 2],
                    [(1,), (2,)],
                    [("a", 1), (1, 1)],
                    [(0, 0)],
                    [(1.5, 1), (1, 1)],
                    [(2**40, 0), (1, 1)],
                    [(0, -1), (1, 1)],
                    [b"ab", b"ab"],
                ],
                prompts=["a"] * 2,
                **its,
            ),  # fmt: skip
        ]
    listed.append(_of(llm.generate, "use_tqdm", [3, "x", b"a", None, [1]], prompts="a"))
    for call, its in ((llm.chat, quiet), (_sync(awaited.chat), {})):
        listed += [
            _of(call, "messages", [*NO_CHAT, [NO_CHAT[0]], [[3]], [["a"]], [CHAT, "a"]], **its),
            _of(call, "sampling_params", NO_PARAMS, messages=[CHAT, CHAT], **its),
            _of(call, "add_generation_prompt", NO_FLAG, messages=CHAT, **its),
            _of(call, "chat_template_kwargs", [*NO_OBJECT, "x"], messages=CHAT, **its),
        ]
    listed.append(_of(llm.chat, "use_tqdm", [3, "x", b"a", None, [1]], messages=CHAT))
    listed += [
        _of(llm.answer_each, "prompts", [*NEVER[:6], "abc", {"a": 1}, 3, None]),
        _of(llm.answer_each, "sampling_params", NO_PARAMS, prompts=["a", "b"]),
        _of(llm.answer_each, "chat", NO_FLAG, prompts=["a"]),
        _of(llm.answer_each, "places", [3, "ab", [(1,)], [1], [(1, "a")]], prompts=["a"]),
    ]
    for its in (llm, awaited):
        listed += [
            _of(its.stream, "prompt", NO_PROMPT[:-9] + [[1, "a"], [1, b"a"], [-1], [2**31], [[1]]]),
            _of(its.stream, "sampling_params", [v for v in NO_PARAMS if v is not None], prompt="a"),
            _of(its.stream_chat, "messages", NO_CHAT[:15]),
            _of(its.stream_chat, "sampling_params", NO_PARAMS, messages=CHAT),
            _of(its.stream_chat, "add_generation_prompt", NO_FLAG, messages=CHAT),
            _of(its.stream_chat, "chat_template_kwargs", [*NO_OBJECT, "x"], messages=CHAT),
            _of(its.encode, "text", [*NO_TEXT, None]),
            _of(its.encode, "add_special_tokens", [*NO_FLAG, None], text="a"),
            _of(its.encode_chat, "messages", NO_CHAT),
            _of(its.encode_chat, "add_generation_prompt", NO_FLAG, messages=CHAT),
            _of(its.encode_chat, "chat_template_kwargs", [*NO_OBJECT, "x"], messages=CHAT),
            _of(its.decode, "token_ids", [*NO_IDS, None, [10000]]),
        ]
    no_option = [v for v in NEVER if not inspect.isgenerator(v)] + [NAN, SURROGATE, "a\0b", {"a": 1}, [b"a"]]
    for name in ("model", "chat_template", "max_num_seqs", "seed", "dtype", "kv_cache_memory", "prefix_caching"):
        listed.append(_of(make_llm, name, [*no_option, *([] if name == "model" else [[1, 2]])], label="LLM"))
    listed.append(Case("LLM of an unknown name", "max_seqs", lambda _: make_llm(max_seqs=1), [0]))
    works = {"model": "llama-3.1-8b", "device": "a100", "workload": "chat", "rate": 2, "requests": 3}
    for name in works:
        listed.append(_of(simulate, name, [*no_option, [1, 2]], **{k: v for k, v in works.items() if k != name}))
    job = {"prompts": [[1, 2], [3]], "costs": COSTS, "kv_tokens": 9}
    no_counts = [*NEVER[:5], "ab", {1: 2}, [1], [1, "a"], [1, 1.5], [1, NAN], [1, -1], [1, 2**40], [1, b"a"]]
    planned = {
        "prompts": [
            *NEVER[:4],
            "ab",
            {"a": 1},
            {1},
            3,
            None,
            ["text"],
            [b"ab"],
            [[]],
            [[-1]],
            [["a"]],
            [[2**31]],
            [{1: 2}],
            [3],
            [None],
            [[1.5]],
            [[True]],
        ],  # fmt: skip
        "max_tokens": [*no_counts, 0, -1, 1.5, NAN, 2**40],
        "output_lengths": [*no_counts, 3],
        "costs": [*NEVER[:5], 3, "x", (1, 0, 1, 1, 1), None],
        "order": [*NO_TEXT, None, "best"],
        "shards": [*NO_WHOLE, None, 0, -1, 2**31 - 1, 2**40],
        "kv_tokens": [*NO_WHOLE, None, 0, -1, 2**70],
        "groups": [*no_counts, 3],
        "split_share": [*NO_NUMBER, None, -1, INF],
        "overlap": [*NEVER[:5], 3, "ab", [1], [1, 2, 3], [NAN, 0], [0, INF], ["a", "b"], [-1, 0]],
        "seed": [*NO_WHOLE, None, -1, 2**70],
        "planner_memory_bytes": [*NO_WHOLE, None, -1, 2**70],
    }
    assert set(planned) == set(inspect.signature(plan).parameters)
    listed += [_of(plan, name, values, **{**job, name: None}) for name, values in planned.items()]
    figures = dict(flops_per_token=1, attention_flops=0, kv_bytes_per_token=1, flops_per_s=1, bytes_per_s=1)
    listed += [_of(PlanCosts, name, [*NO_NUMBER, None, INF, 10**400], **figures) for name in figures]
    listed.append(_of(PlanCosts, "overlap", planned["overlap"], **figures))
    device = {"model": "llama-3.1-8b", "device": "a100"}
    listed += [
        _of(PlanCosts.of, "model", [*NO_TEXT, None, "no model"], device="a100"),
        _of(PlanCosts.of, "device", [*NO_TEXT, None, "a99"], model="llama-3.1-8b"),
        _of(PlanCosts.of, "tensor_parallel_size", [*NO_WHOLE, None, 0, -1], **device),
        _of(PlanCosts.of, "token_budget", no_option, **device),
    ]
    return listed


def _sync(method):
    def call(**arguments):
        return asyncio.run(method(**arguments))

    call.__qualname__ = method.__qualname__
    return call


def fault(case, value):
    """The error in how a call handles a value; empty if it rejects the value correctly."""
    try:
        taken = case.call(value)
    except tactus.TactusError as error:
        text = str(error)
        if case.name.replace("chat_template_kwargs", "chat_template") not in text and "prompt" not in text:
            return f"the error does not name it: {text!r}"
        if not text or text != error.message or "incompatible function" in text or len(text) > 2000:
            return f"no plain message: {text!r}"
        return ""
    except BaseException as error:  # the error to find
        return f"{type(error).__name__}, which is not a TactusError: {error}"
    return f"it was accepted: {taken!r:.100}"
