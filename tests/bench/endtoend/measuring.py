"""Whole runs through the gateway: every service a process, an LLM and an expert of known pace behind them.

The LLM speaks OpenAI's protocol: its first token comes after 0.1 s, then 500 a second; a task takes its expert 0.05 s.
Makespans are to the last event, as a client of the gateway's event stream has it. The reference of a makespan is plain
asyncio, which makes the same calls to the same LLM and expert in the same minutes; the target is a difference from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.client import Told, ask
from tests.bench.endtoend.controllers import CONTROLLERS, SHAPES, Controller
from tests.bench.endtoend.deployment import speaking, standing
from tests.bench.endtoend.plain import PlainClient
from tests.bench.rows import Row, gap, median
from tests.bench.shapes import longest
from tests.fakes import ScriptedLLM

REPEATS = 3
LARGE = "random_100"
"""Asked for once by an LLM: it takes seconds to write such a plan."""
MS_PER_RUN = 30.0
"""The most that a run may take longer than plain asyncio."""
FIRST_EVENT_MS = 50.0
TOLD = "chain_8"
"""Of which it is said when each part of it came."""
COUNTED = ("single", "chain_4", "chain_8")
"""Of which LLM calls and tokens are told; the first HuggingGPT's are known of them."""


@dataclass(frozen=True)
class Clients:
    """The clients of one measurement, and the LLM that all of them reach."""

    gateway: httpx.AsyncClient
    plain: PlainClient
    llm: ScriptedLLM


@dataclass(frozen=True)
class Cell:
    """Runs of one shape under one controller."""

    controller: Controller
    shape: str
    runs: Sequence[Told]
    calls: float
    """Of LLMs, by each."""
    plain: float
    """Seconds of the same graph by plain asyncio, the median."""

    def seconds(self, kind: str) -> float:
        """Until the first event of a kind."""
        return median([run.first[kind] for run in self.runs], digits=6)


async def rows() -> list[Row]:
    """Figures of every shape under every controller."""
    measured, numbers = list[Row](), count()
    async with speaking(*SHAPES.values()) as llm:
        for asking, controllers in groupby(CONTROLLERS, key=lambda controller: controller.asking):
            with TemporaryDirectory() as home:
                async with (
                    standing(Path(home), llm, asking) as addresses,
                    httpx.AsyncClient(base_url=addresses.gateway, timeout=120) as gateway,
                    PlainClient.connected(llm.base_url, addresses.expert) as plain,
                ):
                    for controller in controllers:
                        clients = Clients(gateway, plain, llm)
                        cells = [await _cell(clients, controller, name, numbers) for name in controller.shapes()]
                        measured += [row for cell in cells for row in _told(cell)]
                        measured += _missing(controller)
    return measured


async def _cell(clients: Clients, controller: Controller, name: str, numbers: Iterator[int]) -> Cell:
    await ask(clients.gateway, controller.body("single", next(numbers)))
    before, repeats = len(clients.llm.requests), 1 if controller.asking and name == LARGE else REPEATS
    runs = [await ask(clients.gateway, controller.body(name, next(numbers))) for _ in range(repeats)]
    if any(run.tasks != len(SHAPES[name].graph) for run in runs if not controller.supplied):
        raise RuntimeError(f"{controller.name} planned another shape than {name}")
    calls = (len(clients.llm.requests) - before) / repeats
    await clients.plain.run(controller, SHAPES["single"], next(numbers))
    reference = [await clients.plain.run(controller, SHAPES[name], next(numbers)) for _ in range(repeats)]
    return Cell(controller, name, runs, calls, median(reference, digits=6))


def _told(cell: Cell) -> Iterator[Row]:
    yield _makespan(cell)
    if cell.shape == TOLD:
        yield from _firsts(cell)
    if cell.shape in COUNTED and cell.controller.asking and cell.controller.answers:
        yield from _counted(cell)


def _makespan(cell: Cell) -> Row:
    critical, tasks = cell.controller.critical(SHAPES[cell.shape])
    whole = cell.seconds("run_ended")
    note = (
        f"{cell.controller.about}: {whole / critical:.3f} x its critical path of {1000 * critical:.0f} ms, {tasks} "
        f"{'task' if tasks == 1 else 'tasks'} on it; reference: plain asyncio; target: reference + {MS_PER_RUN:g} ms"
    )
    return makespan_row(_makespan_id(cell.controller, cell.shape), whole, cell.plain, note)


def makespan_row(name: str, seconds: float, plain: float, note: str) -> Row:
    """The row of a makespan, its target a difference from plain asyncio.

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


def _firsts(cell: Cell) -> Iterator[Row]:
    """What a reader of the events waits for, beside the soonest that it could come."""
    script = SHAPES[cell.shape]
    ready, planned = cell.controller.ready(script)
    last, _ = longest(script.graph, ready, script.seconds())
    yield _first(cell, "event", median([run.soonest for run in cell.runs], digits=6), 0.0, FIRST_EVENT_MS)
    yield _first(cell, "task", cell.seconds("task_started"), ready[1], 1000 * planned or None)
    if cell.controller.answers:
        speaks = scripted_llm.FIRST_SECONDS if "responder" in cell.controller.asking else 0.0
        yield _first(cell, "answer", cell.seconds("answer_chunk"), max(last, planned) + speaks)


def _first(cell: Cell, what: str, seconds: float, soonest: float, target: float | None = None) -> Row:
    note = f"{cell.shape}, {cell.controller.about}; reference: the soonest it could be"
    if what == "task" and target:
        note += "; target: before the plan is whole"
    row = f"endtoend.{cell.controller.name}_first_{what}_ms"
    return Row(row, round(1000 * seconds, 1), "ms", target and round(target, 1), round(1000 * soonest, 1), note)


def _counted(cell: Cell) -> Iterator[Row]:
    name, theirs = cell.controller.name, cell.controller.calls(len(SHAPES[cell.shape].graph))
    note = f"{cell.controller.about}; target and reference: JARVIS"
    yield Row(f"endtoend.{name}_calls_{cell.shape}", cell.calls, "", theirs, theirs, note)
    given, made = cell.runs[0].tokens
    told = f"{given} of prompts, {made} of answers, as usage tells; the LLM counts words and signs, and 4 characters"
    yield Row(f"endtoend.{name}_tokens_{cell.shape}", given + made, "", note=told)


def _missing(controller: Controller) -> Iterator[Row]:
    for name in SHAPES.keys() - controller.shapes().keys():
        why = "no request in words is planned to this shape without an LLM"
        yield gap(_makespan_id(controller, name), "ms", None, why)
