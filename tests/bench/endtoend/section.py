"""Makespan of runs through the gateway, with one process per service and an LLM and an expert of known delays.

The LLM uses OpenAI's protocol: its first token comes after 0.1 s, then 500 tokens per second; a task takes its expert
0.05 s. A makespan ends with the last event that a client of the gateway's event stream receives. Its reference is plain
asyncio, which makes the same calls to the same LLM and expert alternately; its target is a difference from that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.client import RunTimings, run
from tests.bench.endtoend.controllers import CONTROLLERS, SHAPES, Controller
from tests.bench.endtoend.deployment import serve_scripted_llm, start_deployment
from tests.bench.endtoend.plain import PlainClient
from tests.bench.rows import Row, gap, median
from tests.bench.shapes import longest
from tests.fakes import ScriptedLLM

REPEATS = 3
LARGE = "random_100"
"""Run only once with an LLM, which takes seconds to write such a plan."""
MS_PER_RUN = 30.0
"""Target: difference of a run from plain asyncio."""
FIRST_EVENT_MS = 50.0
DETAILED = "chain_8"
"""Shape for which the times of the first events are reported."""
COUNTED = ("single", "chain_4", "chain_8")
"""Shapes for which LLM calls and tokens are reported; those of the original HuggingGPT are known."""


@dataclass(frozen=True)
class Clients:
    """Clients of one measurement, and the LLM that all of them use."""

    gateway: httpx.AsyncClient
    plain: PlainClient
    llm: ScriptedLLM


@dataclass(frozen=True)
class Cell:
    """Runs of one shape under one controller.

    Attributes:
        controller: of the runs.
        shape: name of the shape.
        runs: through the gateway.
        calls: LLM calls per run.
        plain: median seconds of the same graph by plain asyncio.
    """

    controller: Controller
    shape: str
    runs: Sequence[RunTimings]
    calls: float
    plain: float

    def seconds(self, kind: str) -> float:
        """Median seconds until the first event of a kind."""
        return median([run.first[kind] for run in self.runs], digits=6)


async def rows() -> list[Row]:
    """Figures of every shape under every controller."""
    measured, numbers = list[Row](), count()
    async with serve_scripted_llm(*SHAPES.values()) as llm:
        for llm_roles, controllers in groupby(CONTROLLERS, key=lambda controller: controller.llm_roles):
            with TemporaryDirectory() as home:
                async with (
                    start_deployment(Path(home), llm, llm_roles) as addresses,
                    httpx.AsyncClient(base_url=addresses.gateway, timeout=120) as gateway,
                    PlainClient.connected(llm.base_url, addresses.expert) as plain,
                ):
                    for controller in controllers:
                        clients = Clients(gateway, plain, llm)
                        cells = [await _cell(clients, controller, name, numbers) for name in controller.shapes()]
                        measured += [row for cell in cells for row in _rows(cell)]
                        measured += _missing(controller)
    return measured


async def _cell(clients: Clients, controller: Controller, name: str, numbers: Iterator[int]) -> Cell:
    await run(clients.gateway, controller.body("single", next(numbers)))
    before, repeats = len(clients.llm.requests), 1 if controller.llm_roles and name == LARGE else REPEATS
    runs = [await run(clients.gateway, controller.body(name, next(numbers))) for _ in range(repeats)]
    if any(timings.tasks != len(SHAPES[name].graph) for timings in runs if not controller.supplied):
        raise RuntimeError(f"{controller.name} planned another shape than {name}")
    calls = (len(clients.llm.requests) - before) / repeats
    await clients.plain.run(controller, SHAPES["single"], next(numbers))
    reference = [await clients.plain.run(controller, SHAPES[name], next(numbers)) for _ in range(repeats)]
    return Cell(controller, name, runs, calls, median(reference, digits=6))


def _rows(cell: Cell) -> Iterator[Row]:
    yield _makespan(cell)
    if cell.shape == DETAILED:
        yield from _first_events(cell)
    if cell.shape in COUNTED and cell.controller.llm_roles and cell.controller.answers:
        yield from _llm_usage(cell)


def _makespan(cell: Cell) -> Row:
    critical, tasks = cell.controller.critical(SHAPES[cell.shape])
    whole = cell.seconds("run_ended")
    note = (
        f"{cell.controller.about}: {whole / critical:.3f} x its critical path of {1000 * critical:.0f} ms, {tasks} "
        f"{'task' if tasks == 1 else 'tasks'} on it; reference: plain asyncio; target: reference + {MS_PER_RUN:g} ms"
    )
    return makespan_row(_makespan_id(cell.controller, cell.shape), whole, cell.plain, note)


def makespan_row(name: str, seconds: float, plain: float, note: str) -> Row:
    """The row of a makespan, whose target is a difference from plain asyncio.

    Args:
        name: of the row.
        seconds: of the run.
        plain: seconds of plain asyncio.
        note: of the row.
    """
    reference = round(1000 * plain, 1)
    return Row(name, round(1000 * seconds, 1), "ms", round(reference + MS_PER_RUN, 1), reference, note)


def _makespan_id(controller: Controller, shape: str) -> str:
    return f"endtoend.{controller.name}_{shape}_ms"


def _first_events(cell: Cell) -> Iterator[Row]:
    """Delays of the first event, task and text, with their lower bounds as references."""
    script = SHAPES[cell.shape]
    ready, planned = cell.controller.ready(script)
    last, _ = longest(script.graph, ready, script.seconds())
    soonest = median([timings.soonest for timings in cell.runs], digits=6)
    yield _first(cell, "event", soonest, 0.0, FIRST_EVENT_MS)
    yield _first(cell, "task", cell.seconds("task_started"), ready[1], 1000 * planned or None)
    if cell.controller.answers:
        first_token = scripted_llm.FIRST_SECONDS if "responder" in cell.controller.llm_roles else 0.0
        yield _first(cell, "answer", cell.seconds("answer_chunk"), max(last, planned) + first_token)


def _first(cell: Cell, kind: str, seconds: float, bound: float, target: float | None = None) -> Row:
    note = f"{cell.shape}, {cell.controller.about}; reference: lower bound"
    if kind == "task" and target:
        note += "; target: before the plan is complete"
    row = f"endtoend.{cell.controller.name}_first_{kind}_ms"
    return Row(row, round(1000 * seconds, 1), "ms", target and round(target, 1), round(1000 * bound, 1), note)


def _llm_usage(cell: Cell) -> Iterator[Row]:
    name, original = cell.controller.name, cell.controller.calls(len(SHAPES[cell.shape].graph))
    note = f"{cell.controller.about}; target and reference: JARVIS"
    yield Row(f"endtoend.{name}_calls_{cell.shape}", cell.calls, "", original, original, note)
    given, made = cell.runs[0].tokens
    note = f"{given} of prompts, {made} of answers, from the run's usage; counted by the scripted LLM"
    yield Row(f"endtoend.{name}_tokens_{cell.shape}", given + made, "", note=note)


def _missing(controller: Controller) -> Iterator[Row]:
    for name in SHAPES.keys() - controller.shapes().keys():
        why = "the embedded planner plans no request to this shape"
        yield gap(_makespan_id(controller, name), "ms", None, why)
