"""Metric instruments as the code declares them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from protos.hugginggpt import semantic_conventions

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "services", "experts")
KINDS = {
    "create_histogram": "histogram",
    "create_counter": "counter",
    "create_up_down_counter": "gauge",
    "create_observable_gauge": "gauge",
}
UNITS = {"s": ("_seconds", "seconds"), "By": ("_bytes", "bytes"), "1": ("", "a share"), "{token}": ("", "tokens")}
"""Suffixes of Prometheus names by unit, and the unit's name."""


@dataclass(frozen=True)
class Instrument:
    """A declared instrument."""

    name: str
    """Name in OTLP."""
    kind: str
    unit: str
    description: str
    """Description and labels."""

    @property
    def prometheus_name(self) -> str:
        """Name in Prometheus."""
        unit, _ = UNITS[self.unit] if self.unit else ("", "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")

    @property
    def kind_and_unit(self) -> str:
        """Kind and unit."""
        return f"{self.kind}, {UNITS[self.unit][1]}" if self.unit else self.kind


def instruments() -> list[Instrument]:
    """Instruments by package and name."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return [found for file in files for found in sorted(_declared(file), key=lambda each: each.name)]


def _declared(file: Path) -> Iterator[Instrument]:
    text = file.read_text(encoding="utf-8")
    if "metrics.get_meter(" not in text:
        return
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in KINDS:
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            texts = (_text(keywords[name]) if name in keywords else "" for name in ("unit", "description"))
            yield Instrument(_text(call.args[0]), KINDS[call.func.attr], *texts)


def _text(node: ast.expr) -> str:
    """Value of a string literal or a constant of the semantic conventions."""
    return str(getattr(semantic_conventions, node.attr) if isinstance(node, ast.Attribute) else ast.literal_eval(node))
