"""Capacity planning from the figures of README.md: python -m tests.bench.capacity 25 400 --tasks 3 --seconds 0.2."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from services.common.database import DEFAULT_CONNECTIONS
from tests.bench.expert_models.workloads import WORKLOADS

PAGE = Path(__file__).with_name("README.md")
RATES = (10.0, 1_000.0, 100_000.0)
"""Runs per second, and items per second, in the tables of the page."""
SERVICE_NAMES = ("gateway", "planner", "selector", "orchestrator", "responder")
DATABASE_CLIENTS = ("gateway", "orchestrator")
"""Services with connections to the database."""
REPLICAS = 2
"""Minimum of each service, so that one may fail."""
BUSY = 0.6
"""Highest planned utilization of a core: above it, requests that arrive at random wait long."""
DAY_SECONDS = 24 * 3600
DEMO_CORES = 2

EXAMPLES = {
    "bert": "`text`: a small BERT, 120 words",
    "vit": "`vision`: a small ViT, 224 pixels",
    **{f"{each.modality}_base": f"`{each.modality}`: {each.about}" for each in WORKLOADS},
    "sign": "`lite`: a sign read, spoken and judged",
}
"""Example models by name; README has figures of bert and vit if it is older than those of the modalities."""

Figures = Mapping[str, float]


def figures(text: str) -> Figures:
    """Values of the page's figures by row name, and core-seconds per item of the example models.

    Raises:
        ValueError: the page has no time per item.
    """
    rows = re.findall(r"^\| `(\S+)` \| ([\d.,]+)", text, re.MULTILINE)
    offline = re.findall(
        r"^\| `host\.(bert|vit|\w+_base)_.*share` .* of ([\d.]+) a second (?:on (\d+) cores )?offline",
        text,
        re.MULTILINE,
    )
    ((seconds, items),) = re.findall(r"^batch_\S+ \w+ in ([\d.]+) s: (\d+) items", text, re.MULTILINE)
    work = {name: int(cores or 1) / float(rate) for name, rate, cores in offline}
    found = {name: float(value.replace(",", "")) for name, value in rows}
    return {**found, **work, "sign": DEMO_CORES * float(seconds) / int(items)}


def service_rows(known: Figures, rates: Sequence[float], tasks: int) -> Iterator[Sequence[object]]:
    """Table rows: processes and database capacity that runs of this many tasks need, without experts."""
    processes = {name: [_processes(rate, _ms(known, name, tasks)) for rate in rates] for name in SERVICE_NAMES}
    yield from ([f"{name}, processes", *counts] for name, counts in processes.items())
    connections = [
        DEFAULT_CONNECTIONS * sum(counts)
        for counts in zip(*(processes[name] for name in DATABASE_CLIENTS), strict=True)
    ]
    yield ["PostgreSQL: cores busy", *(_rounded(rate * known["hops.postgres_ms"] / 1000) for rate in rates)]
    yield ["PostgreSQL: connections", *connections]
    yield [
        "PostgreSQL: growth, GB a day",
        *(_rounded(rate * known["hops.kept_kb"] * DAY_SECONDS / 1e6) for rate in rates),
    ]


def experts(seconds: Mapping[str, float], rates: Sequence[float]) -> Iterator[Sequence[object]]:
    """Table rows: cores, or GPUs, that items need, from the seconds of one item."""
    for name, each in seconds.items():
        yield [name, f"{each:.3g} s", *(ceil(rate * each / BUSY) for rate in rates)]


def _ms(known: Figures, name: str, tasks: int) -> float:
    """Core-milliseconds of a service per run. A further task costs a selection and work of the orchestrator."""
    further = {"selector": known["hops.selector_ms"], "orchestrator": known["growth.wide_1000_ms_per_task"]}
    return known[f"hops.{name}_ms"] + (tasks - 1) * further.get(name, 0.0)


def _processes(rate: float, ms: float) -> int:
    return max(REPLICAS, ceil(rate * ms / 1000 / BUSY))


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def inputs(known: Figures) -> Iterator[Sequence[object]]:
    """Table rows: the figures from which the other tables are computed."""
    ms = {name: f"{known[f'hops.{name}_ms']:g} ms" for name in (*SERVICE_NAMES, "postgres")}
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
    yield "an item of a batch, of one task", "`batches.cpu_per_task_ms`", f"{item}; no planning, no response"


def tables(known: Figures) -> str:
    """The tables of the page."""
    work = {
        **{label: known[name] for name, label in EXAMPLES.items() if name in known},
    }
    shown = [f"{rate:,.0f} a second" for rate in RATES]
    return "\n".join(
        [
            *_table(["what", "figure", "one run of one task takes"], inputs(known)),
            "",
            *_table(["runs of one task", *shown], service_rows(known, RATES, tasks=1)),
            "",
            *_table(["cores of experts", "an item", *shown], experts(work, RATES)),
            "",
            checked(known),
            "",
        ]
    )


def checked(known: Figures) -> str:
    """Comparison of the formula with the knee that the section `load` has measured."""
    if "load.knee_runs_per_s" not in known or "capacity.predicted_runs_per_s" not in known:
        return "The formula was not compared with a measured knee yet: run `python -m tests.bench load`."
    formula, knee, busy = (
        known[name] for name in ("capacity.formula_runs_per_s", "load.knee_runs_per_s", "capacity.busy_at_knee")
    )
    verdict = "holds" if knee >= formula else "does not hold"
    return (
        f"The formula {verdict} where it was tried: one process of each service, with PostgreSQL and the expert on "
        f"the same cores, and runs of one task that arrive at random. There it allows {formula:g} runs a second "
        f"(`capacity.formula_runs_per_s`). The knee, above which 1 % of runs take more than half a second, was at "
        f"{knee:g} (`load.knee_runs_per_s`), with {100 * busy:.0f} % of the cores busy. A queueing simulation of "
        f"these processes, each serving one request at a time for the measured time, has its knee at "
        f"{known['capacity.predicted_runs_per_s']:g}."
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity", description="Capacity that runs need.")
    parser.add_argument("rates", type=float, nargs="+", metavar="RATE", help="runs per second")
    parser.add_argument("--tasks", type=int, default=1, help="tasks per run")
    parser.add_argument("--seconds", type=float, default=0.0, help="measured seconds of a core or GPU per task")
    options = parser.parse_args()
    shown = [f"{rate:,g} a second" for rate in options.rates]
    known = figures(PAGE.read_text(encoding="utf-8"))
    rows = service_rows(known, options.rates, options.tasks)
    print(*_table([f"runs, tasks each: {options.tasks}", *shown], rows), sep="\n")
    tasks = [rate * options.tasks for rate in options.rates]
    print("", *_table(["experts", "a task", *shown], experts({"cores or GPUs": options.seconds}, tasks)), sep="\n")


if __name__ == "__main__":
    main()
