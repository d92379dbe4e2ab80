#!/usr/bin/env python3
"""Renders real chat templates with transformers and with Tactus, and compares byte for byte.

    check_templates.py DIR --render build/release/tests/language/text/jinja_render [--history PROGRAM] [--verbose]

DIR holds *.jinja files. Without DIR the source package of llama-cpp-python is downloaded with pip for its templates.
Both sides use the same clock (UTC). Errors must occur on both sides; texts must be equal. Exit 1 on any difference.
--history build/release/tests/api/api_test: also sends every kind of answer back as history with every template. Needs
transformers with jinja2.
"""

import argparse
import collections
import datetime
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time

NOW_S = 1753362793  # 2025-07-24 13:13:13 UTC


def tool(name, description, properties, required):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


TOOLS = [
    tool(
        "get_weather",
        "The weather at a place; \"quotes\" & <tags> 'too'.",
        {
            "city": {"type": "string", "description": "Name of the city"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit", "default": "celsius"},
        },
        ["city"],
    ),
    tool(
        "search",
        "Search the web – ünïcode 検索",
        {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "filters": {
                "type": "object",
                "properties": {
                    "lang": {"type": ["string", "null"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["lang"],
            },
            "exact": {"type": "boolean", "description": "Only exact matches"},
        },
        ["query", "exact"],
    ),
    tool("no_arguments", "Takes nothing", {}, []),
]


# Some templates support only this part of JSON schema.
SIMPLE_TOOLS = [
    tool(
        "add",
        "Adds",
        {"a": {"type": "integer", "description": "First"}, "b": {"type": "number", "description": "Second"}},
        ["a", "b"],
    ),
    tool(
        "say",
        "Says",
        {
            "words": {"type": "array", "items": {"type": "string"}, "description": "Words"},
            "loud": {"type": "boolean", "description": "Loud"},
        },
        [],
    ),
]


def call(name, arguments, call_id="abcdef123"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    user = {"role": "user", "content": "What is the capital of France?"}
    system = {"role": "system", "content": "You are a helpful assistant.\nBe brief."}
    assistant = {"role": "assistant", "content": "Paris."}
    follow = {"role": "user", "content": "And of Germany?"}
    weather = {"city": "Zürich", "unit": "celsius"}
    result = {
        "role": "tool",
        "name": "get_weather",
        "tool_call_id": "abcdef123",
        "content": '{"temp": 21.5, "sky": "clear"}',
    }
    asks = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", weather)]}
    yield "user", [user]
    yield "system, user", [system, user]
    yield "multi-turn", [system, user, assistant, follow]
    yield "ends with assistant", [user, assistant]
    yield "long", [system] + [user, assistant] * 6 + [follow]
    yield "developer", [{"role": "developer", "content": "Speak like a pirate."}, user]
    yield "system only", [system]
    yield "two systems", [system, {"role": "system", "content": "Second."}, user]
    yield "late system", [user, assistant, system, follow]
    yield "two users", [user, follow]
    yield "assistant first", [assistant, user]
    yield "empty list", []
    yield "empty content", [{"role": "user", "content": ""}]
    yield (
        "white space",
        [
            {"role": "user", "content": "  \n leading and trailing \t\n"},
            {"role": "assistant", "content": "\n\n x \n"},
            follow,
        ],
    )
    yield "content is None", [user, {"role": "assistant", "content": None}, follow]
    yield "no content", [user, {"role": "assistant"}, follow]
    yield (
        "unicode",
        [
            {"role": "user", "content": "naïve Straße ÄÖÜ 你好 \U0001f600 e\u0301 \u200d \u00a0nbsp"},
            {"role": "assistant", "content": "ΑΣ"},
            follow,
        ],
    )
    yield "markup", [{"role": "user", "content": "<b>&amp;</b> \"x\" 'y' {{ not }} {% a %} template \\n <|im_end|>"}]
    yield (
        "parts",
        [{"role": "user", "content": [{"type": "text", "text": "Part one. "}, {"type": "text", "text": "Part two."}]}],
    )
    yield (
        "parts, system",
        [
            {"role": "system", "content": [{"type": "text", "text": "Sys."}]},
            user,
            {"role": "assistant", "content": [{"type": "text", "text": "Ok."}]},
            follow,
        ],
    )
    yield "image part", [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
    yield (
        "image_url part",
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
                ],
            }
        ],
    )
    yield "strange part", [{"role": "user", "content": [{"type": "strange", "x": 1}, "bare"]}]
    yield "strange role", [user, {"role": "critic", "content": "Hm."}]
    yield "no role", [{"content": "x"}]
    yield "think", [user, {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nParis."}, follow]
    yield "unclosed think", [user, {"role": "assistant", "content": "Hm </think> Paris."}, follow]
    yield (
        "reasoning_content",
        [user, {"role": "assistant", "content": "Paris.", "reasoning_content": "France, so Paris."}, follow],
    )
    yield "reasoning, last", [user, {"role": "assistant", "content": "Paris.", "reasoning": "France, so Paris."}]
    yield "thinking + call", [user, dict(asks, thinking="I need the weather.")]
    yield "tool call", [user, asks]
    yield "tool result", [system, user, asks, result]
    yield "tool answer", [user, asks, result, {"role": "assistant", "content": "It is 21.5 degrees."}, follow]
    yield "call with content", [user, dict(asks, content="Let me look."), result]
    yield "call, content None", [user, dict(asks, content=None), result]
    yield "call, no content", [user, {k: v for k, v in asks.items() if k != "content"}, result]
    yield (
        "arguments as text",
        [user, dict(asks, tool_calls=[call("get_weather", json.dumps(weather, ensure_ascii=False))]), result],
    )
    yield (
        "two calls",
        [
            user,
            dict(
                asks,
                tool_calls=[
                    call("get_weather", weather, "abcdef123"),
                    call(
                        "search",
                        {"query": 'a"b', "limit": 3, "exact": True, "filters": {"lang": None, "tags": ["x", "y"]}},
                        "xyzxyz789",
                    ),
                ],
            ),
            result,
            dict(result, name="search", tool_call_id="xyzxyz789", content="[]"),
        ],
    )
    yield (
        "call of no arguments",
        [user, dict(asks, tool_calls=[call("no_arguments", {})]), dict(result, name="no_arguments", content="")],
    )
    yield (
        "odd arguments",
        [
            user,
            dict(
                asks,
                tool_calls=[
                    call(
                        "search",
                        {"query": 1.0, "n": -0.5, "big": 1e20, "t": False, "l": [1, [2, {"a": None}]], "s": "<&>'é"},
                    )
                ],
            ),
        ],
    )
    yield (
        "call id missing",
        [
            user,
            dict(asks, tool_calls=[{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]),
            {"role": "tool", "content": "done"},
        ],
    )
    yield (
        "flat call",
        [user, dict(asks, tool_calls=[{"name": "f", "arguments": {"a": 1}}]), {"role": "tool", "content": "done"}],
    )
    yield "empty calls", [user, dict(assistant, tool_calls=[]), follow]
    yield "result as dict", [user, asks, dict(result, content={"temp": 21.5})]
    yield "result as parts", [user, asks, dict(result, content=[{"type": "text", "text": "sunny"}])]
    yield "result first", [result, user]
    yield (
        "call then call",
        [
            user,
            asks,
            result,
            dict(asks, tool_calls=[call("search", {"query": "q"}, "qqqqqqqq1")]),
            dict(result, name="search", tool_call_id="qqqqqqqq1", content="found"),
            {"role": "assistant", "content": "Done."},
        ],
    )
    yield "ipython role", [user, asks, {"role": "ipython", "content": "21"}]


def cases():
    base = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    for name, messages in conversations():
        for prompt in (False, True):
            for tools in (None, TOOLS):
                yield (
                    f"{name}{', prompt' if prompt else ''}{', tools' if tools else ''}",
                    dict(base, messages=messages, tools=tools, add_generation_prompt=prompt),
                )
    messages = dict(conversations())
    documents = [{"title": "Doc A", "text": "Text of A."}, {"title": "Doc <B>", "text": "Ü"}]
    extras = [
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"thinking": True},
        {"reasoning_effort": "high"},
        {"reasoning_effort": "low", "model_identity": "You are X."},
        {"documents": documents},
        {"date_string": "26 Jul 2024"},
        {"tools_in_user_message": False},
        {"builtin_tools": ["browser", "python"]},
        {"preserve_thinking": True},
        {"keep_past_thinking": True},
        {"custom_tools": TOOLS},
        {"controls": {"length": "short"}},
        {"clear_thinking": False},
        {"thinking_budget": 512},
        {"truncate_history_thinking": False},
        {"system_prompt": "From outside."},
        {"xml_tools": TOOLS, "python_tools": TOOLS},
        {"add_vision_id": True},
        {"default_system_prompt": False},
        {"response_format": {"type": "json_object"}},
        {"parallel_tool_calls": False},
        {"thinking_mode": "chat"},
        {"functions": json.dumps(TOOLS), "datetime": "2025-07-24"},
        {"tools": SIMPLE_TOOLS},
    ]
    for extra in extras:
        for name in ("system, user", "multi-turn", "reasoning_content", "tool answer", "call then call", "image part"):
            for prompt in (False, True):
                for tools in (None, TOOLS):
                    yield (
                        f"{name} {json.dumps(extra)[:40]}{', prompt' if prompt else ''}{', tools' if tools else ''}",
                        {**base, "messages": messages[name], "tools": tools, "add_generation_prompt": prompt, **extra},
                    )
    bare = {"messages": messages["multi-turn"], "add_generation_prompt": True}
    yield "no special tokens", bare


def reference(source, variables):
    import transformers.utils.chat_template_utils as utils

    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(NOW_S)

    utils.datetime = Frozen
    variables = dict(variables)
    try:
        rendered, _ = utils.render_jinja_template(
            conversations=[variables.pop("messages")],
            tools=variables.pop("tools", None),
            documents=variables.pop("documents", None),
            chat_template=source,
            add_generation_prompt=variables.pop("add_generation_prompt", False),
            **variables,
        )
        return {"text": rendered[0]}
    except Exception as error:  # any error: the other side must fail too
        return {"error": f"{type(error).__name__}: {error}"}


def download(folder):
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-q",
            "-d",
            folder,
            "llama-cpp-python==0.3.36",
        ],
        check=True,
    )
    with tarfile.open(glob.glob(os.path.join(folder, "*.tar.gz"))[0]) as archive:
        archive.extractall(folder, filter="data")
    return glob.glob(os.path.join(folder, "*", "vendor/llama.cpp/models/templates"))[0]


def history_holds(program, folder):
    """Whether the answers are valid history for every template of the folder (tests/api/chat/history_test.cc)."""
    run = subprocess.run(
        [program, "--gtest_filter=*/History.*/file_*", "--gtest_brief=1"],
        check=False,
        env={**os.environ, "TACTUS_TEMPLATES": os.path.abspath(folder)},
        capture_output=True,
        text=True,
    )
    said = run.stdout.splitlines()
    print("history: " + (said[-1].strip() if said else "nothing was run"), flush=True)
    if run.returncode != 0:
        print("\n".join(line[:600] for line in said[:60]) + run.stderr[-2000:])
    return run.returncode == 0 and any("PASSED" in line and " 0 tests" not in line for line in said)


def show(name, theirs, ours):
    print(f"    {name}")
    if "text" in theirs and "text" in ours:
        a, b = theirs["text"], ours["text"]
        k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(
            f"      at {k}: reference {a[max(0, k - 40) : k + 60]!r}\n              tactus   "
            f" {b[max(0, k - 40) : k + 60]!r}"
        )
    else:
        print(f"      reference {str(theirs)[:300]}\n      tactus    {str(ours)[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?")
    parser.add_argument("--render", required=True, help="the jinja_render executable")
    parser.add_argument("--history", help="the api_test executable")
    parser.add_argument("--verbose", action="store_true", help="show pairs of error messages as well")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    failed = 0
    totals = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        fetched = options.dir or download(folder)
        templates = sorted(glob.glob(os.path.join(fetched, "*.jinja")))
        everything = list(cases())
        path = os.path.join(folder, "cases.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for _, variables in everything:
                file.write(json.dumps(variables, ensure_ascii=False) + "\n")
        if options.history and not history_holds(options.history, fetched):
            failed += 1
        print(f"{'template':62} {'equal':>6} {'errors':>7} {'differ':>7}")
        for template in templates:
            with open(template, encoding="utf-8", newline="") as file:
                source = file.read()
            output = subprocess.run([options.render, template, path, str(NOW_S)], capture_output=True, check=True)
            lines = output.stdout.decode().splitlines()
            assert len(lines) == len(everything), f"{template}: {len(lines)} answers for {len(everything)} cases"
            differ, errors = [], 0
            for (name, variables), line in zip(everything, lines):
                ours, theirs = json.loads(line), reference(source, variables)
                if "error" in ours and "error" in theirs:
                    errors += 1
                    if options.verbose:
                        show(name, theirs, ours)
                elif ours != theirs:
                    differ.append((name, theirs, ours))
            equal = len(everything) - len(differ) - errors
            print(f"{os.path.basename(template):62} {equal:6} {errors:7} {len(differ):7}", flush=True)
            for difference in differ[:3]:
                show(*difference)
            totals.update(equal=equal, errors=errors, differ=len(differ))
            failed += bool(differ)
    print(
        f"{len(templates)} templates, {len(everything)} conversations each: {totals['equal']} equal texts, "
        f"{totals['errors']} errors on both sides, {totals['differ']} differences in {failed} templates"
    )
    return 1 if failed or not templates else 0


if __name__ == "__main__":
    sys.exit(main())
