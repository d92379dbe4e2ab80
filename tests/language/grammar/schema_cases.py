"""Schemas in the styles of public APIs, with instances: some 40 by hand, the rest drawn from fields of known domains
with a fixed seed. Instances have their keys in schema order; jsonschema decides their validity."""

import copy
import random

# domain -> fields: (name, schema, valid values, invalid values)
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
BOOL = {"type": "boolean"}
URI = {"type": "string", "format": "uri"}
TIME = {"type": "string", "format": "date-time"}
DAY = {"type": "string", "format": "date"}
MAIL = {"type": "string", "format": "email"}
UUID = {"type": "string", "format": "uuid"}


def enum(*values):
    return {"enum": list(values)}


def short(most, least=0):
    return {"type": "string", "minLength": least, "maxLength": most}


def matching(pattern):
    return {"type": "string", "pattern": pattern}


def number(least=None, most=None, kind="number"):
    schema = {"type": kind}
    if least is not None:
        schema["minimum"] = least
    if most is not None:
        schema["maximum"] = most
    return schema


def many(schema, least=None, most=None):
    array = {"type": "array", "items": schema}
    if least is not None:
        array["minItems"] = least
    if most is not None:
        array["maxItems"] = most
    return array


def maybe(schema):
    return {"anyOf": [schema, {"type": "null"}]}


A_UUID, A_TIME = "123e4567-e89b-12d3-a456-426614174000", "2024-05-06T07:08:09Z"
DOMAINS = {
    "github_issue": [
        ("id", COUNT, [1, 93021], [-1, "1", 1.5]),
        ("title", short(80, 1), ["Crash at start", "é"], ["", 5]),
        ("state", enum("open", "closed"), ["open"], ["opened", None]),
        ("labels", many(TEXT), [[], ["bug", "ci"]], [[1], "bug"]),
        ("assignee", maybe(matching("^[a-z0-9-]{1,39}$")), [None, "octo-cat"], ["Octo Cat", 7]),
        ("locked", BOOL, [True], ["true", 0]),
        ("created_at", TIME, [A_TIME], ["yesterday", 17]),
        ("url", URI, ["https://api.example.com/issues/1"], ["not a uri", 1]),
    ],
    "kubernetes_deployment": [
        ("apiVersion", {"const": "apps/v1"}, ["apps/v1"], ["v1"]),
        ("kind", {"const": "Deployment"}, ["Deployment"], ["Pod", 1]),
        ("name", matching("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), ["web-1", "a"], ["Web", "-a", ""]),
        ("replicas", number(0, 1000, "integer"), [0, 3, 1000], [1001, -1, "3"]),
        ("labels", {"type": "object", "additionalProperties": TEXT}, [{}, {"app": "web"}], [{"app": 1}, []]),
        ("image", matching("^[a-z0-9./-]+(:[a-zA-Z0-9._-]+)?$"), ["nginx:1.25", "registry/x"], ["NGINX", "a:"]),
        (
            "ports",
            many(
                {
                    "type": "object",
                    "properties": {"containerPort": number(1, 65535, "integer"), "protocol": enum("TCP", "UDP")},
                    "required": ["containerPort"],
                    "additionalProperties": False,
                },
                1,
            ),
            [[{"containerPort": 80}], [{"containerPort": 53, "protocol": "UDP"}]],
            [[], [{"containerPort": 0}], [{"protocol": "TCP"}]],
        ),
    ],
    "function_call": [
        ("location", TEXT, ["Paris, France", ""], [1, None]),
        ("unit", enum("celsius", "fahrenheit"), ["celsius"], ["kelvin"]),
        ("days", number(1, 14, "integer"), [1, 14], [0, 15, 2.5]),
        ("query", short(200), ['what "is" it?\n'], [["a"]]),
        ("limit", number(1, 100, "integer"), [10], [101]),
        ("include", many(enum("hourly", "daily", "alerts"), None, 3), [[], ["hourly"]], [["weekly"]]),
        ("verbose", BOOL, [False], [0]),
        ("threshold", number(0, 1), [0, 0.25, 1], [1.01, -0.5]),
    ],
    "resume": [
        ("name", short(60, 1), ["Ada Lovelace"], [""]),
        ("email", MAIL, ["ada@example.org"], ["ada", "a@@b"]),
        ("birth", DAY, ["1815-12-10"], ["10.12.1815", "1815-13-01"]),
        ("skills", many(short(20), 1, 4), [["maths"], ["a", "b"]], [[], ["a"] * 5]),
        (
            "jobs",
            many(
                {
                    "type": "object",
                    "properties": {
                        "employer": TEXT,
                        "from": number(1900, 2100, "integer"),
                        "to": maybe(number(1900, 2100, "integer")),
                    },
                    "required": ["employer", "from", "to"],
                    "additionalProperties": False,
                }
            ),
            [[], [{"employer": "Engine Co", "from": 1990, "to": None}]],
            [[{"employer": "x"}], [{"employer": "x", "from": 1, "to": 2}]],
        ),
        ("website", URI, ["https://example.org/ada"], ["example"]),
    ],
    "invoice": [
        ("number", matching("^INV-[0-9]{4,6}$"), ["INV-0001", "INV-123456"], ["INV-1", "inv-0001"]),
        ("currency", matching("^[A-Z]{3}$"), ["EUR"], ["eur", "EURO"]),
        ("total", number(0), [0, 12.5, 1000000], [-1, "12"]),
        ("due", DAY, ["2024-02-29"], ["2024-2-9"]),
        ("paid", BOOL, [True], [None]),
        (
            "lines",
            many(
                {
                    "type": "object",
                    "properties": {
                        "sku": matching("^[A-Z0-9-]{3,12}$"),
                        "quantity": {"type": "integer", "minimum": 1},
                        "price": {"type": "number", "minimum": 0},
                    },
                    "required": ["sku", "quantity", "price"],
                    "additionalProperties": False,
                },
                1,
                3,
            ),
            [[{"sku": "AB-1", "quantity": 2, "price": 3.5}]],
            [[], [{"sku": "a", "quantity": 1, "price": 1}], [{"sku": "ABC", "quantity": 0, "price": 1}]],
        ),
    ],
    "calendar_event": [
        ("uid", UUID, [A_UUID], ["123", A_UUID + "0"]),
        ("summary", TEXT, ["Lunch"], [3]),
        ("start", TIME, [A_TIME, "2024-01-01T00:00:00+02:00"], ["2024-01-01"]),
        ("minutes", {"type": "integer", "minimum": 5, "multipleOf": 5}, [5, 60], [3, 7]),
        ("attendees", many(MAIL), [[], ["a@b.org"]], [["nobody"]]),
        ("status", enum("confirmed", "tentative", "cancelled"), ["tentative"], ["maybe"]),
        ("reminder", maybe(COUNT), [None, 10], ["10"]),
    ],
    "geojson": [
        ("type", {"const": "Point"}, ["Point"], ["Line"]),
        (
            "coordinates",
            {"type": "array", "prefixItems": [number(-180, 180), number(-90, 90)], "items": False, "minItems": 2},
            [[7.5, 47.25], [-180, 90]],
            [[1], [181, 0], [0, 0, 0]],
        ),
        ("name", TEXT, ["Basel"], [None]),
        ("bbox", many({"type": "number"}, 4, 4), [[0, 1, 2.5, -3]], [[0, 1, 2], [0, 1, 2, "3"]]),
        ("elevation", number(-500, 9000), [0, -413.25], [9001]),
    ],
    "package": [
        ("name", matching("^(@[a-z0-9-]+/)?[a-z0-9._-]+$"), ["left-pad", "@scope/x"], ["Left Pad", "@/x"]),
        ("version", matching("^[0-9]+\\.[0-9]+\\.[0-9]+(-[a-z0-9.]+)?$"), ["1.2.3", "0.0.1-rc.1"], ["1.2", "v1.2.3"]),
        ("private", BOOL, [False], ["no"]),
        ("license", enum("MIT", "Apache-2.0", None), ["MIT", None], ["GPL"]),
        ("keywords", many(short(10)), [["a b"]], [["longer than ten"]]),
        (
            "dependencies",
            {"type": "object", "additionalProperties": matching("^[~^]?[0-9.]+$")},
            [{"x": "^1.2"}, {}],
            [{"x": "latest"}],
        ),
        (
            "engines",
            {"type": "object", "properties": {"node": TEXT}, "additionalProperties": False},
            [{}, {"node": ">=18"}],
            [{"npm": "9"}],
        ),
    ],
    "log_event": [
        ("level", enum("debug", "info", "warn", "error"), ["info"], ["INFO"]),
        ("timestamp", {"type": "integer", "minimum": 1500000000}, [1700000000], [1]),
        ("message", TEXT, ["tab\there \\ and \u2603", "\U0001f600"], [{}]),
        ("code", maybe(number(100, 599, "integer")), [None, 404], [99, 600]),
        ("ratio", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5, 0.001], [0, 1]),
        ("host", {"type": "string", "format": "ipv4"}, ["10.0.0.255"], ["10.0.0.256", "host"]),
        ("trace", matching("^[0-9a-f]{32}$"), ["0" * 32], ["xyz"]),
    ],
    "recipe": [
        ("title", short(40, 3), ["Rösti"], ["ab"]),
        ("servings", number(1, 12, "integer"), [4], [0, 13]),
        ("vegan", BOOL, [True], ["yes"]),
        ("steps", many(short(100, 1), 1, 10), [["Grate.", "Fry."]], [[], [""]]),
        (
            "ingredients",
            many(
                {
                    "type": "object",
                    "properties": {
                        "item": TEXT,
                        "grams": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "to taste"}]},
                    },
                    "required": ["item", "grams"],
                    "additionalProperties": False,
                },
                1,
            ),
            [[{"item": "potato", "grams": 500}, {"item": "salt", "grams": "to taste"}]],
            [[{"item": "x", "grams": 0}], [{"item": "x", "grams": "some"}]],
        ),
        ("time", {"type": "string", "format": "duration"}, ["PT30M", "P1D"], ["30 minutes"]),
    ],
}

# Keywords that the domains lack, by hand: (name, schema, instances)
HAND = [
    ("any", {}, [None, 1, "a", [1, {"b": []}], {"a": {}}]),
    ("boolean_schema", True, [1, {"a": [None]}]),
    ("null", {"type": "null"}, [None, 0, "null"]),
    ("types", {"type": ["string", "integer", "null"]}, ["a", 3, None, 1.5, True, []]),
    ("any_object", {"type": "object"}, [{}, {"a": {"b": [1, 2]}}, [], "x"]),
    ("any_array", {"type": "array"}, [[], [1, "a", None], {}]),
    ("closed_empty", {"type": "object", "additionalProperties": False}, [{}, {"a": 1}]),
    (
        "open_object",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        [{"a": 1}, {"a": 1, "b": "x"}, {"b": 1}, {}],
    ),
    (
        "typed_rest",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        [{"a": 1, "b": "x"}, {"b": "x"}, {"a": 1, "b": 2}, {}],
    ),
    (
        "map_bounds",
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
        [{"a": 1}, {"a": 1, "b": 2}, {}, {"a": 1, "b": 2, "c": 3}],
    ),
    (
        "pattern_properties",
        {"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "integer"}}, "additionalProperties": False},
        [{"x_a": 1}, {"x_a": 1, "x_bc": 2}, {}, {"y": 1}, {"x_a": "1"}],
    ),
    (
        "recursive_tree",
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "integer"},
                        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    },
                    "required": ["value", "next"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        },
        [
            {"value": 1, "next": None},
            {"value": 1, "next": {"value": 2, "next": None}},
            {"value": 1},
            {"value": 1, "next": 2},
        ],
    ),
    (
        "recursive_root",
        {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
            "additionalProperties": False,
        },
        [{}, {"children": []}, {"children": [{"children": [{}]}]}, {"children": [1]}, {"child": 1}],
    ),
    (
        "definitions_draft7",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"id": {"type": "integer", "minimum": 1}},
            "type": "object",
            "properties": {"id": {"$ref": "#/definitions/id"}},
            "required": ["id"],
            "additionalProperties": False,
        },
        [{"id": 1}, {"id": 0}, {}],
    ),
    (
        "all_of_merge",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]
        },
        [{"a": 1, "b": "x"}, {"a": 1}, {"a": 1, "b": 2}],
    ),
    ("one_of_distinct", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1, None, 1.5]),
    (
        "one_of_tagged",
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                    "required": ["kind", "radius"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                    "required": ["kind", "side"],
                    "additionalProperties": False,
                },
            ]
        },
        [
            {"kind": "circle", "radius": 1.5},
            {"kind": "square", "side": 2},
            {"kind": "circle", "side": 2},
            {"kind": "line"},
        ],
    ),
    (
        "any_of_tagged",
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"tool": {"const": "search"}, "query": {"type": "string"}},
                    "required": ["tool", "query"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"tool": {"const": "stop"}},
                    "required": ["tool"],
                    "additionalProperties": False,
                },
            ]
        },
        [{"tool": "search", "query": "x"}, {"tool": "stop"}, {"tool": "stop", "query": "x"}, {"tool": "run"}],
    ),
    (
        "enum_mixed",
        {"enum": [1, "one", None, True, [1, 2], {"a": 1}]},
        [1, "one", None, True, [1, 2], {"a": 1}, 2, "two", [1], {"a": 2}],
    ),
    ("const_text", {"const": 'a "quoted" \\ text\n'}, ['a "quoted" \\ text\n', "a quoted text"]),
    ("const_object", {"const": {"a": [1, 2], "b": None}}, [{"a": [1, 2], "b": None}, {"a": [1, 2]}]),
    ("integer_range", {"type": "integer", "minimum": -17, "maximum": 234}, [-17, 0, 234, -18, 235, 1000, 99]),
    ("integer_exclusive", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, [1, 9, 0, 10]),
    ("integer_half_open", {"type": "integer", "minimum": 123456789}, [123456789, 999999999999, 123456788, -1]),
    ("number_range", {"type": "number", "minimum": -1.5, "maximum": 2.25}, [-1.5, 0, 2.25, 2.26, -1.51, 3]),
    ("multiple_of", {"type": "integer", "multipleOf": 7}, [0, 14, 7007, 8]),
    ("multiple_of_cents", {"type": "number", "multipleOf": 0.25, "minimum": 0}, [0.25, 1.5, 0, 0.3]),
    (
        "tuple",
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}},
        [["a", 1], ["a", 1, True], ["a"], [], [1, "a"], ["a", 1, 2]],
    ),
    (
        "tuple_draft7",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [{"type": "string"}, {"type": "integer"}],
            "additionalItems": False,
        },
        [["a", 1], ["a"], ["a", 1, 1], [1]],
    ),
    (
        "nested_arrays",
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
        [[], [[1], [2, 3]], [[]], [1]],
    ),
    (
        "unicode_lengths",
        {"type": "string", "minLength": 2, "maxLength": 3},
        ["éé", "日本語", "\U0001f600a", "a", "日本語版"],
    ),
    ("pattern_unanchored", {"type": "string", "pattern": "b+"}, ["abba", "b", "aaa", ""]),
    ("pattern_alternatives", {"type": "string", "pattern": "^(cat|dog)s?$"}, ["cat", "dogs", "cow", "catss"]),
    ("pattern_and_length", {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4}, ["abcd", "a", "abcde", "A"]),
    (
        "pattern_phone",
        {"type": "string", "pattern": "^\\+?[0-9]{1,3}( [0-9]{2,4}){2,3}$"},
        ["+41 44 123", "1 234 5678 90", "44", "+41-44-1"],
    ),
    ("format_time", {"type": "string", "format": "time"}, ["10:11:12Z", "25:00:00Z", "ten"]),
    ("format_ipv6", {"type": "string", "format": "ipv6"}, ["::1", "fe80::1", "12345::", "x"]),
    ("format_hostname", {"type": "string", "format": "hostname"}, ["example.org", "a-b.c", "-a.b", "a b"]),
    (
        "nullable_reference",
        {
            "$defs": {"a": {"type": "string", "maxLength": 2}},
            "type": "object",
            "properties": {"x": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}},
            "required": ["x"],
            "additionalProperties": False,
        },
        [{"x": "ab"}, {"x": None}, {"x": "abc"}, {}],
    ),
    (
        "annotated",
        {
            "title": "T",
            "description": "D",
            "type": "object",
            "properties": {"a": {"type": "string", "description": "d", "default": "x", "examples": ["y"]}},
            "required": ["a"],
            "additionalProperties": False,
        },
        [{"a": "z"}, {"a": 1}],
    ),
    # Refused schemas, named by their keyword.
    ("refused_not", {"not": {"type": "string"}}, [1, "a"]),
    ("refused_if", {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, [{}, {"a": 1}]),
    ("refused_unique", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [[1, 2], [1, 1]]),
    ("refused_contains", {"type": "array", "contains": {"type": "string"}}, [["a"], [1]]),
    ("refused_dependent", {"type": "object", "dependentRequired": {"a": ["b"]}}, [{}, {"a": 1}]),
    ("refused_names", {"type": "object", "propertyNames": {"pattern": "^a"}}, [{"a": 1}, {"b": 1}]),
    (
        "refused_unevaluated",
        {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
        [{"a": 1}, {"b": 1}],
    ),
    ("refused_one_of", {"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 5}]}, [1, 3, 9]),
    ("refused_lookahead", {"type": "string", "pattern": "^(?!a).*$"}, ["b", "a"]),
]


def drawn(seed, domain):
    """A schema over some fields of the domain, with instances."""
    rng = random.Random(f"{domain} {seed}")
    fields = [f for f in DOMAINS[domain] if rng.random() < 0.7] or DOMAINS[domain][:2]
    required = [name for name, *_ in fields if rng.random() < 0.6]
    schema = {"type": "object", "properties": {name: copy.deepcopy(s) for name, s, *_ in fields}}
    if required:
        schema["required"] = required
    if rng.random() < 0.8:
        schema["additionalProperties"] = False
    if rng.random() < 0.3:  # one field by reference
        name = rng.choice(fields)[0]
        schema["$defs"] = {name: schema["properties"][name]}
        schema["properties"][name] = {"$ref": f"#/$defs/{name}"}
    if rng.random() < 0.3:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": domain, **schema}

    def one():
        return {name: rng.choice(valid) for name, _, valid, _ in fields if name in required or rng.random() < 0.5}

    instances = [one() for _ in range(3)]
    for name, _, _, wrong in fields:
        broken = one()
        broken = {n: rng.choice(wrong) if n == name else broken[n] for n, *_ in fields if n == name or n in broken}
        instances.append(broken)
    for name in required[:2]:
        instances.append({n: v for n, v in one().items() if n != name})
    instances.append({**one(), "unknown field": 1})
    nested = rng.random()
    if nested < 0.15:
        return {"type": "array", "items": schema, "minItems": 1}, [[i] for i in instances] + [
            [],
            [instances[0], instances[1]],
        ]
    if nested < 0.3:
        outer = {
            "type": "object",
            "properties": {"data": schema, "ok": BOOL},
            "required": ["data"],
            "additionalProperties": False,
        }
        if "$defs" in schema:
            outer["$defs"] = schema.pop("$defs")
        return outer, [{"data": i} for i in instances] + [{}, {"data": instances[0], "ok": True}]
    return schema, instances


def cases():
    """(name, schema, instances), at least 300."""
    yield from HAND
    for domain in DOMAINS:
        for seed in range(26):
            schema, instances = drawn(seed, domain)
            # "$ref": "#/$defs/..." means the document's root.
            if schema.get("type") == "array" and "$defs" in schema["items"]:
                schema["$defs"] = schema["items"].pop("$defs")
            yield f"{domain}_{seed}", schema, instances
