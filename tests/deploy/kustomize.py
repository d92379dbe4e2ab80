"""The output of `kubectl kustomize FOLDER` for the part of kustomize that deploy/ uses: resources, components, JSON
patches, patches that delete, replica counts, one namespace. Anything else is an error. If kubectl is installed,
manifests_test.py compares the two.
"""

import copy
import pathlib

import yaml

FIELDS = {"apiVersion", "kind", "namespace", "resources", "components", "patches", "replicas"}


def load(path):
    return [item for item in yaml.safe_load_all(path.read_text()) if item is not None]


def operate(item, operation):
    """Applies one operation of a JSON patch; KeyError or IndexError if its path does not exist."""
    if set(operation) - {"op", "path", "value"}:
        raise ValueError(f"patch: unknown fields in {operation}")
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    for part in parents:
        item = item[int(part)] if isinstance(item, list) else item[part]
    last = int(last) if isinstance(item, list) else last
    if operation["op"] not in ("replace", "remove"):
        raise ValueError(f"patch: {operation['op']}: this reads replace and remove")
    item[last]  # both operations need an existing item
    if operation["op"] == "remove":
        del item[last]
    else:
        item[last] = operation["value"]


def apply(folder, objects):
    """The objects of the folder's kustomization, applied to the given objects."""
    made = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(made) - FIELDS:
        raise ValueError(f"{folder}/kustomization.yaml: {sorted(unknown)}: this reads {sorted(FIELDS)}")
    for name in made.get("resources", []):
        path = (folder / name).resolve()
        objects = objects + (apply(path, []) if path.is_dir() else load(path))
    for name in made.get("components", []):
        objects = apply((folder / name).resolve(), objects)
    objects = copy.deepcopy(objects)
    for patch in made.get("patches", []):
        target = patch["target"]
        found = [o for o in objects if o["kind"] == target["kind"] and o["metadata"]["name"] == target["name"]]
        if len(found) != 1:
            raise ValueError(f"{folder}/kustomization.yaml: a patch of {target}: {len(found)} such objects")
        read = yaml.safe_load(patch["patch"])
        if isinstance(read, dict):
            same = {"apiVersion": found[0]["apiVersion"], "kind": target["kind"], "metadata": {"name": target["name"]}}
            if read != {"$patch": "delete", **same}:
                raise ValueError(
                    f"{folder}/kustomization.yaml: a patch of {target}: this reads JSON patches and $patch: delete"
                )
            objects.remove(found[0])
            continue
        for operation in read:
            operate(found[0], operation)
    for count in made.get("replicas", []):
        next(o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == count["name"])["spec"][
            "replicas"
        ] = count["count"]
    for item in objects if "namespace" in made else ():
        item["metadata"]["namespace"] = made["namespace"]
    return objects


def build(folder):
    return apply(pathlib.Path(folder).resolve(), [])
