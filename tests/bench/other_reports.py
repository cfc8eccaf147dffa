"""Figures of `make eval` and `make chaos`, which take minutes each: read from their reports."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.rows import Row, gap

EVAL, CHAOS = Path("out/eval.json"), Path("out/chaos.json")

PLANS: Mapping[str, tuple[str, float, bool]] = {
    "node_f1": ("%", 87, True),
    "edge_f1": ("%", 53, True),
    "p50_ms": ("ms", 15, False),
    "p95_ms": ("ms", 40, False),
}
"""Unit, target, and whether the target is a minimum, by name in the report."""


async def rows() -> list[Row]:
    return [*_plans(), *_chaos()]


def _plans() -> Iterator[Row]:
    report = _read(EVAL)
    for name, (unit, target, at_least) in PLANS.items():
        row = f"plan.taskbench_{name}"
        if report is None:
            yield gap(row, unit, target, "make eval measures it, in minutes", at_least=at_least)
        else:
            note = f"{report['taskbench']['n']:,} requests of TaskBench, {report['how']}"
            yield Row(row, round(report["taskbench"][name], 2), unit, target, note=note, at_least=at_least)


def _chaos() -> Iterator[Row]:
    report = _read(CHAOS)
    if report is None:
        yield gap("run.chaos_wrong", "", 0, "make chaos measures it, in minutes")
    else:
        runs = sum(campaign["runs"] for campaign in report)
        note = f"violations in {runs:,} runs with faults injected: processes killed and paused, connections cut"
        yield Row("run.chaos_wrong", sum(len(campaign["complaints"]) for campaign in report), "", 0, note=note)


def _read(path: Path) -> Any:
    """The report; None if the file does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
