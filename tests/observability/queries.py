"""Reads all queries of dashboards, alert rules and scalers from their files."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.manifests.rendering import K8S

FOLDER = K8S / "components" / "observability"
RULES = FOLDER / "prometheus" / "rules.yaml"
_VARIABLE_VALUES = {"$__rate_interval": "10s", "$__range": "1m", "$model": ".*", "$task": ".*"}
_VALUES = re.compile(r"label_values\((.+), *(\w+)\)")
_SCALER = re.compile(r"^ *query: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Query:
    """A PromQL query without variables, and its location."""

    location: str
    text: str


def dashboards() -> dict[str, Any]:
    """Dashboards by file name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("dashboards/*.json"))}


def of_dashboards() -> Iterator[Query]:
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                if "expr" in target:
                    yield Query(f"{name}: {panel['title']}", _filled(target["expr"]))
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query" and (found := _VALUES.fullmatch(variable["query"]["query"])):
                yield Query(f"{name}: ${variable['name']}", f"count by ({found[2]}) ({found[1]})")


def rules() -> list[dict[str, Any]]:
    """Queries of alert rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def of_rules() -> Iterator[Query]:
    """Queries of alert rules over metrics of HuggingGPT; rules of the other group use those of the cluster."""
    own = next(group for group in yaml.safe_load(RULES.read_text())["groups"] if group["name"] == "hugginggpt")
    return (Query(rule["alert"], rule["expr"]) for rule in own["rules"])


def of_scalers() -> Iterator[Query]:
    for path in sorted(K8S.glob("components/**/*.yaml")):
        yield from (Query(str(path.relative_to(K8S)), found) for found in _SCALER.findall(path.read_text()))


def _filled(text: str) -> str:
    for variable, value in _VARIABLE_VALUES.items():
        text = text.replace(variable, value)
    return text
