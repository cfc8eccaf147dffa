"""Figures that `make eval` and `make chaos` measure, which take minutes of their own: read from what they wrote."""

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
"""By the name in the file: unit, target, and whether it is the least."""


async def rows() -> list[Row]:
    return [*_plans(), *_chaos()]


def _plans() -> Iterator[Row]:
    told = _written(EVAL)
    for name, (unit, target, at_least) in PLANS.items():
        row = f"plan.taskbench_{name}"
        if told is None:
            yield gap(row, unit, target, "make eval measures it, for minutes", at_least=at_least)
        else:
            note = f"{told['taskbench']['n']:,} requests of TaskBench, {told['how']}"
            yield Row(row, round(told["taskbench"][name], 2), unit, target, note=note, at_least=at_least)


def _chaos() -> Iterator[Row]:
    told = _written(CHAOS)
    if told is None:
        yield gap("run.chaos_wrong", "", 0, "make chaos counts it, for minutes")
    else:
        note = (
            f"complaints about {sum(one['runs'] for one in told):,} runs while services are killed, paused and confused"
        )
        yield Row("run.chaos_wrong", sum(len(one["complaints"]) for one in told), "", 0, note=note)


def _written(path: Path) -> Any:
    """What is there; None if nothing is."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
