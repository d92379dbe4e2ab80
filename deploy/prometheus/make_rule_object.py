#!/usr/bin/env python3
"""Writes the rules of this folder as an object for the Prometheus operator,
deploy/kubernetes/fleet/components/monitoring/
prometheus_rule.yaml. --check writes nothing and fails where that file is another."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
OBJECT = HERE.parent / "kubernetes/fleet/components/monitoring/prometheus_rule.yaml"
HEAD = """# The rules of deploy/prometheus, made by make_rule_object.py there: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tactus
  labels: {app.kubernetes.io/name: tactus}
spec:
  groups:
"""


def made():
    text = HEAD
    for path in sorted(HERE.glob("*_rules.yaml")):
        if path.name == "adapter_rules.yaml":
            continue
        _, groups = path.read_text().split("\ngroups:\n")
        text += "".join(f"  {line}\n" if line else "\n" for line in groups.splitlines())
    return text


def main():
    if sys.argv[1:] == ["--check"]:
        if not OBJECT.is_file() or OBJECT.read_text() != made():
            print(f"{OBJECT} is not what the rules give; run deploy/prometheus/make_rule_object.py", file=sys.stderr)
            return 1
        return 0
    OBJECT.write_text(made())
    return 0


if __name__ == "__main__":
    sys.exit(main())
