#!/usr/bin/env python3
"""Writes the dashboards of panels.py in Grafana's import format: tactus.json (replicas), tactus_fleet.json. --check
writes nothing and fails if a file differs."""

import json
import pathlib
import sys

import panels

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS, WIDTH, HEIGHT = 24, 6, 7
SOURCE = {"type": "prometheus", "uid": "${source}"}


def choice(name, label, query):
    """ "All" means the values of the query: routers also have metrics with replicas' names."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard(uid, title, rows, choices):
    made, y, number = [], 0, 1
    for row, contents in rows:
        made.append(
            {
                "id": number,
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            }
        )
        number, y = number + 1, y + 1
        for place, (name, unit, targets) in enumerate(contents):
            made.append(
                {
                    "id": number,
                    "type": "timeseries",
                    "title": name,
                    "datasource": SOURCE,
                    "gridPos": {
                        "x": place * WIDTH % COLUMNS,
                        "y": y + place * WIDTH // COLUMNS * HEIGHT,
                        "w": WIDTH,
                        "h": HEIGHT,
                    },
                    "fieldConfig": {
                        "defaults": {
                            "unit": unit,
                            "min": None if unit == "percentunit" and "Slack" in name else 0,
                            "custom": {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"},
                        },
                        "overrides": [],
                    },
                    "options": {
                        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                        "tooltip": {"mode": "multi", "sort": "desc"},
                    },
                    "targets": [
                        {
                            "refId": chr(ord("A") + i),
                            "datasource": SOURCE,
                            "expr": expression,
                            "legendFormat": legend,
                            "range": True,
                        }
                        for i, (expression, legend) in enumerate(targets)
                    ],
                }
            )
            number += 1
        y += -(-len(contents) * WIDTH // COLUMNS) * HEIGHT
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["tactus"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [source, *choices]},
        "panels": made,
    }


def made():
    """The names and texts of the files."""
    replicas = choice("replica", "Replica", 'label_values(vllm:num_requests_running{model_name=~"$model"}, instance)')
    boards = {
        "tactus.json": dashboard(
            "tactus-replicas",
            "Tactus: replicas",
            panels.SERVER,
            [choice("model", "Model", "label_values(vllm:num_requests_running, model_name)"), replicas],
        ),
        "tactus_fleet.json": dashboard(
            "tactus-fleet",
            "Tactus: fleet",
            panels.FLEET,
            [choice("replica", "Instance", 'label_values({__name__=~"tactus_(route|epp|fleet)_.+"}, instance)')],
        ),
    }
    return {name: json.dumps(board, indent=1) + "\n" for name, board in boards.items()}


def main():
    for name, text in made().items():
        if sys.argv[1:] != ["--check"]:
            (HERE / name).write_text(text)
        elif not (HERE / name).is_file() or (HERE / name).read_text() != text:
            print(
                f"deploy/grafana/{name} differs from panels.py; run deploy/grafana/make_dashboards.py",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
