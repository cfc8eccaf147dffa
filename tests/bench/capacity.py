"""What a rate of runs needs, by README's figures: python -m tests.bench.capacity 25 400 --tasks 3 --seconds 0.2."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from services.common.database.postgres import READERS, WRITERS

README = Path(__file__).parents[2] / "README.md"
RATES = (10.0, 1_000.0, 100_000.0)
"""Runs a second, and items a second, that k8s/README.md tells of."""
ROOMS = ("gateway", "planner", "selector", "orchestrator", "responder")
KEEPERS = ("gateway", "orchestrator")
"""Those that hold connections to the database."""
CONNECTIONS = WRITERS + READERS + 1
REPLICAS = 2
"""There are at least so many, so that one may go."""
BUSY = 0.6
"""Share of a core that a process is to use: beyond it, what comes at irregular times waits long."""
DAY_SECONDS = 24 * 3600
DEMO_CORES = 2

Figures = Mapping[str, float]


def figures(text: str) -> Figures:
    """README's table of figures by name, and seconds of a core for an item: bert, vit, sign.

    Raises:
        ValueError: what an item takes is not told there.
    """
    rows = re.findall(r"^\| `(\S+)` \| ([\d.,]+)", text, re.MULTILINE)
    offline = re.findall(r"^\| `host\.(bert|vit)_.* of ([\d.]+) a second offline", text, re.MULTILINE)
    ((seconds, items),) = re.findall(r"^batch_\S+ \w+ in ([\d.]+) s: (\d+) items", text, re.MULTILINE)
    work = {name: 1 / float(rate) for name, rate in offline}
    found = {name: float(value.replace(",", "")) for name, value in rows}
    return {**found, **work, "sign": DEMO_CORES * float(seconds) / int(items)}


def house(known: Figures, rates: Sequence[float], tasks: int) -> Iterator[Sequence[object]]:
    """Rows of a table: what stands there whatever experts do, for runs of so many tasks."""
    processes = {room: [_processes(rate, _ms(known, room, tasks)) for rate in rates] for room in ROOMS}
    yield from ([f"{room}, processes", *counts] for room, counts in processes.items())
    connections = [CONNECTIONS * sum(counts) for counts in zip(*(processes[room] for room in KEEPERS), strict=True)]
    yield ["PostgreSQL: cores busy", *(_rounded(rate * known["hops.postgres_ms"] / 1000) for rate in rates)]
    yield ["PostgreSQL: connections", *connections]
    yield [
        "PostgreSQL: growth, GB a day",
        *(_rounded(rate * known["hops.kept_kb"] * DAY_SECONDS / 1e6) for rate in rates),
    ]


def experts(seconds: Mapping[str, float], rates: Sequence[float]) -> Iterator[Sequence[object]]:
    """Rows of a table: cores, or GPUs, that items of so many seconds need."""
    for name, each in seconds.items():
        yield [name, f"{each:.3g} s", *(ceil(rate * each / BUSY) for rate in rates)]


def _ms(known: Figures, room: str, tasks: int) -> float:
    """Of a core, for a run. A further task is a further choice, and work of the orchestrator."""
    further = {"selector": known["hops.selector_ms"], "orchestrator": known["growth.wide_1000_ms_per_task"]}
    return known[f"hops.{room}_ms"] + (tasks - 1) * further.get(room, 0.0)


def _processes(rate: float, ms: float) -> int:
    return max(REPLICAS, ceil(rate * ms / 1000 / BUSY))


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def takes(known: Figures) -> Iterator[Sequence[object]]:
    """Rows of a table: what the tables below it are made from."""
    ms = {room: f"{known[f'hops.{room}_ms']:g} ms" for room in (*ROOMS, "postgres")}
    further = f"{known['growth.wide_1000_ms_per_task']:g} ms for each further task (`growth.wide_1000_ms_per_task`)"
    item = f"{known['batches.cpu_per_task_ms']:g} ms of an orchestrator"
    yield "gateway", "`hops.gateway_ms`", f"{ms['gateway']} of a core"
    yield "planner, without an LLM", "`hops.planner_ms`", ms["planner"]
    yield "selector", "`hops.selector_ms`", f"{ms['selector']}, and again for each further task"
    yield "orchestrator", "`hops.orchestrator_ms`", f"{ms['orchestrator']}; {further}"
    yield "responder, without an LLM", "`hops.responder_ms`", ms["responder"]
    yield "PostgreSQL", "`hops.postgres_ms`, `hops.kept_kb`", f"{ms['postgres']}, {known['hops.kept_kb']:g} kB of disk"
    if "telemetry.run_ms" in known:
        yield "tracing every run", "`telemetry.run_ms`", f"{known['telemetry.run_ms']:g} ms more, of all five"
    yield "an item of a batch, of one task", "`batches.cpu_per_task_ms`", f"{item}; it is not planned, nor answered"


def told(known: Figures) -> str:
    """The tables of k8s/README.md."""
    work = {
        "`text`: a small BERT, 120 words": known["bert"],
        "`vision`: a small ViT, 224 pixels": known["vit"],
        "`lite`: a sign read, spoken and judged": known["sign"],
    }
    shown = [f"{rate:,.0f} a second" for rate in RATES]
    return "\n".join(
        [
            *_table(["what", "figure", "one run of one task takes"], takes(known)),
            "",
            *_table(["runs of one task", *shown], house(known, RATES, tasks=1)),
            "",
            *_table(["cores of experts", "an item", *shown], experts(work, RATES)),
            "",
            checked(known),
            "",
        ]
    )


def checked(known: Figures) -> str:
    """What became of the formula where runs came at random and ever faster."""
    if "load.knee_runs_per_s" not in known or "capacity.predicted_runs_per_s" not in known:
        return "The formula was not held against a knee yet: `python -m tests.bench load` does that."
    promised, knee, busy = (
        known[name] for name in ("capacity.formula_runs_per_s", "load.knee_runs_per_s", "capacity.busy_at_knee")
    )
    held = "holds" if knee >= promised else "does not hold"
    return (
        f"The formula {held} where it was tried: one process of each, with PostgreSQL and the expert on the same "
        f"cores, and runs of one task that come at random. It allows {promised:g} a second there "
        f"(`capacity.formula_runs_per_s`). The knee, beyond which a run in a hundred takes more than half a "
        f"second, was at {knee:g} (`load.knee_runs_per_s`), with {100 * busy:.0f} % of the cores at work. "
        f"A simulation of those processes, each doing one thing at a time for as long as the figures say, has it at "
        f"{known['capacity.predicted_runs_per_s']:g}."
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity", description="What a rate of runs needs.")
    parser.add_argument("rates", type=float, nargs="+", metavar="RATE", help="runs a second")
    parser.add_argument("--tasks", type=int, default=1, help="of a run")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a core or GPU, for a task; what you measured")
    asked = parser.parse_args()
    shown = [f"{rate:,g} a second" for rate in asked.rates]
    known = figures(README.read_text(encoding="utf-8"))
    print(*_table([f"runs, tasks each: {asked.tasks}", *shown], house(known, asked.rates, asked.tasks)), sep="\n")
    tasks = [rate * asked.tasks for rate in asked.rates]
    print("", *_table(["experts", "a task", *shown], experts({"cores or GPUs": asked.seconds}, tasks)), sep="\n")


if __name__ == "__main__":
    main()
