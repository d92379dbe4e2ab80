#!/usr/bin/env python3
"""Compares verdicts on instances of some 300 schemas: compare_grammars.py GRAMMAR_LINES

Compares our engine (the program tests/language/grammar/grammar_lines) with JSON Schema's semantics (jsonschema) and
another implementation of grammars (xgrammar). Our engine must refuse every invalid instance and accept every valid one
of a schema that it accepts, except for the cases in OURS. Where xgrammar differs from jsonschema, XGRAMMAR must name
the reason. scripts/test.sh slow runs it."""

import collections
import importlib.machinery
import json
import re
import subprocess
import sys
import types

import jsonschema
import schema_cases


class Absent(types.ModuleType):
    """Replaces packages of gigabytes that xgrammar imports but does not call here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


import tvm_ffi  # noqa: E402, F401  (searches for torch, so imported before the replacement)

for package in ("torch", "transformers"):
    sys.modules[package] = Absent(package)
    sys.modules[package].__spec__ = importlib.machinery.ModuleSpec(package, None)
import xgrammar  # noqa: E402
from xgrammar.testing import _is_grammar_accept_string  # noqa: E402

# Where our engine differs from JSON Schema: (case or schema as text, instance as text, reason), as regexes.
OURS = [
    ("^multiple_of_cents$", r"^1\.5$", "a multiple of a fraction has all its decimals: 1.50"),
    ("email", "a@@b", "jsonschema's check of e-mail addresses looks for an @ alone"),
]
# Where xgrammar differs from it.
XGRAMMAR = [
    ("email", "a@@b", "jsonschema's check of e-mail addresses looks for an @ alone"),
    ("^all_of_merge$", "", "allOf of several schemas is its first"),
    (
        "^(enum_mixed|const_object)$",
        r"[\[{]",
        "arrays and objects of enum and const are compact for any separators",
    ),
    ("multipleOf", "", "multipleOf is ignored beside a bound, and for numbers"),
    ("^pattern_unanchored$", "", "a pattern is anchored"),
    ("^pattern_and_length$", "", "lengths are ignored beside a pattern"),
    ("^refused_", "", "the keyword is ignored"),
    ('"maxLength": 200', "\\\\n", "no escaped characters in a string of bounded length"),
]
# Cases that our engine refuses, and the keyword named in its message.
REFUSED = {
    "refused_not": "not",
    "refused_if": "if",
    "refused_unique": "uniqueItems",
    "refused_contains": "contains",
    "refused_dependent": "dependentRequired",
    "refused_names": "propertyNames",
    "refused_unevaluated": "unevaluatedProperties",
    "refused_one_of": "oneOf",
    "refused_lookahead": "pattern",
}


def text_of(instance):
    """The spelling of answers: ", " and ": " as separators, characters unescaped."""
    return json.dumps(instance, ensure_ascii=False)


def meant(schema, instances):
    checker = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = checker(schema, format_checker=checker.FORMAT_CHECKER)
    return [validator.is_valid(instance) for instance in instances]


def theirs(schema, answers):
    """xgrammar's verdicts; None: it refuses the schema."""
    try:
        grammar = xgrammar.Grammar.from_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )
        return [_is_grammar_accept_string(grammar, answer) for answer in answers]
    except Exception:  # its errors have no common class
        return None


def explained(table, name, schema, answer):
    for where, what, reason in table:
        if (re.search(where, name) or re.search(where, json.dumps(schema))) and re.search(what, answer):
            return reason
    return None


def main():
    cases = list(schema_cases.cases())
    lines = [
        {"kind": "json_schema", "rule": json.dumps(schema), "answers": [text_of(i) for i in instances]}
        for _, schema, instances in cases
    ]
    done = subprocess.run(
        [sys.argv[1]],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    ours = [json.loads(line) for line in done.stdout.splitlines()]
    problems, reasons, count, refused, xgrammar_refused = [], collections.Counter(), 0, 0, 0
    for (name, schema, instances), line, verdict in zip(cases, lines, ours, strict=True):
        valid = meant(schema, instances)
        if "error" in verdict:
            refused += 1
            if f"'{REFUSED.get(name)}'" not in verdict["error"]:
                problems.append(f"{name}: refused: {verdict['error']}")
        elif name in REFUSED:
            problems.append(f"{name}: accepted, though it uses '{REFUSED[name]}'")
        other = theirs(schema, line["answers"])
        xgrammar_refused += other is None
        for i, (answer, right) in enumerate(zip(line["answers"], valid)):
            count += 1
            for who, table, says in (
                ("ours", OURS, verdict["accepted"][i] == -1 if "accepted" in verdict else right),
                ("xgrammar", XGRAMMAR, other[i] if other else right),
            ):
                if says == right:
                    continue
                reason = explained(table, name, schema, answer)
                if reason is None:
                    problems.append(
                        f"{name}: {who} {'accepts' if says else 'refuses'} the {'valid' if right else 'invalid'}"
                        f" {answer} of {json.dumps(schema)}"
                    )
                else:
                    reasons[f"{who}: {reason}"] += 1
    print(f"{len(cases)} schemas, {count} instances; refused: {refused} by ours, {xgrammar_refused} by xgrammar")
    for reason, times in sorted(reasons.items()):
        print(f"  {times} times {reason}")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
