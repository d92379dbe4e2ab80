"""Names of metrics in PromQL expressions and in a server's metrics text."""

import re

WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
FUNCTION = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(")


def named(expression):
    """Metrics in an expression: its names except functions, keywords and labels."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = FUNCTION.sub("(", text)
    return {name for name in re.findall(r"(?<![\w.:])[a-zA-Z_:][a-zA-Z0-9_:]*", text) if name not in WORDS}


def labels_named(expression):
    """(metric, label) of every matcher, and ("", label) of every grouping."""
    found = set()
    for metric, inner in re.findall(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}", expression):
        found |= {(metric, label) for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inner)}
    return found


def families(text):
    """name -> type of the families that a Prometheus text declares."""
    return dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))


def series(types):
    """Names of the series of families of these types."""
    return {
        name + suffix
        for name, kind in types.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
