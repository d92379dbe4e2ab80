"""Checks objects against their schemas: built-in kinds with kubernetes-validate, others with crd_schemas.yaml, whose
pods are again built-in. If the published definitions are available: objects and crd_schemas.yaml against those."""

import copy
import pathlib

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ("1.33", "1.37")  # the oldest with all used fields, and the latest
SCHEMAS = yaml.safe_load((pathlib.Path(__file__).parent / "crd_schemas.yaml").read_text())
INT_OR_STRING = {"type": ["integer", "string"]}
# Names, types and constraints; not descriptions, nor rules in the cluster's own language.
KEYWORDS = {
    "type",
    "enum",
    "pattern",
    "required",
    "properties",
    "items",
    "additionalProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
}


def strict(schema):
    """Converts to JSON Schema and closes every object that has properties, like an API server that rejects unknown
    fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return INT_OR_STRING
    made = {name: value for name, value in schema.items() if name in KEYWORDS}
    if "(?i)" in str(made.get("pattern", "")):  # Go accepts that within an expression, Python does not
        del made["pattern"]
    if "properties" in made:
        made["properties"] = {name: strict(value) for name, value in made["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = strict(made[name])
    return made


def whole(spec):
    """The schema of an object with this spec."""
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {},
            "kind": {},
            "metadata": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "namespace": {"type": "string"},
                    "labels": {"additionalProperties": {"type": "string"}},
                    "annotations": {"additionalProperties": {"type": "string"}},
                },
            },
            "spec": strict(spec),
        },
    }


def pods(kind, item):
    """The pods within a custom object, as separate objects."""

    def found(schema, value):
        if value is None:
            return
        metadata = {"name": "pod"}
        if schema.get("pod") == "template":
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**metadata, **value.get("metadata", {})},
                "spec": value["spec"],
            }
        elif schema.get("pod") == "part":
            spec = {
                name: value[name]
                for name in (
                    "containers",
                    "volumes",
                    "securityContext",
                    "automountServiceAccountToken",
                    "enableServiceLinks",
                    "terminationGracePeriodSeconds",
                )
                if name in value
            }
            model = {k: v for k, v in value.get("model", {}).items() if k in ("args", "env")}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"containers": [{"name": "model", **model}], **spec},
            }
        for name, inner in schema.get("properties", {}).items():
            yield from found(inner, value.get(name))

    return list(found(SCHEMAS[kind]["spec"], item["spec"]))


def check_built_in(item):
    for version in VERSIONS:
        kubernetes_validate.validate(copy.deepcopy(item), version, strict=True)


def check(item):
    """Raises ValidationError of one of the two packages, or ValueError."""
    known = SCHEMAS.get(item["kind"])
    if known is None:
        return check_built_in(item)
    if item["apiVersion"] != known["apiVersion"]:
        raise ValueError(f"{item['kind']} of {item['apiVersion']}: crd_schemas.yaml has {known['apiVersion']}")
    jsonschema.validate(item, whole(known["spec"]), cls=jsonschema.Draft7Validator)
    for pod in pods(item["kind"], item):
        check_built_in(pod)


def published(kind, folder):
    """The published schema of the kind's spec; None if its file is not in the folder."""
    path = pathlib.Path(folder) / SCHEMAS[kind]["source"].rsplit("/", 1)[1]
    if not path.is_file():
        return None
    version = SCHEMAS[kind]["apiVersion"].split("/")[1]
    definition = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = next(v for v in definition["spec"]["versions"] if v["name"] == version and v["served"])
    return found["schema"]["openAPIV3Schema"]["properties"]["spec"]


def looser(ours, theirs, path="spec"):
    """Fields and values that our schema allows and the published one does not, as lines of text."""
    if theirs.get("x-kubernetes-int-or-string"):
        return [] if ours.get("x-kubernetes-int-or-string") else [f"{path}: published: a number or a text"]
    if ours.get("pod") == "template":
        return []
    lines = [
        f"{path}: {name}: {ours.get(name)}, published: {theirs[name]}"
        for name in (
            "type",
            "enum",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
        )
        if name in theirs and ours.get(name) != theirs[name] and not narrower(name, ours, theirs)
    ]
    lines += [
        f"{path}: published: {name} is required"
        for name in theirs.get("required", [])
        if name not in ours.get("required", [])
    ]
    for name, schema in ours.get("properties", {}).items():
        if name not in theirs.get("properties", {}):
            lines.append(f"{path}.{name}: not published")
        elif path + "." + name not in ("spec.containers", "spec.volumes"):  # checked as those of a pod
            lines += looser(schema, theirs["properties"][name], f"{path}.{name}")
    if isinstance(ours.get("items"), dict) and ours["items"].get("properties"):
        lines += looser(ours["items"], theirs["items"], path + "[]")
    return lines


def narrower(name, ours, theirs):
    """A text's bound is not needed here if our pattern bounds it, and numbers may have tighter bounds."""
    if name in ("minLength", "maxLength"):
        return "pattern" in ours or name == "minLength" and theirs[name] == 0
    return name in ours and (
        name.startswith("min") and ours[name] >= theirs[name] or name.startswith("max") and ours[name] <= theirs[name]
    )
