"""Whole runs through the gateway: every service a process, an LLM and an expert of known pace behind them.

The LLM speaks OpenAI's protocol: its first token comes after 0.1 s, then 500 a second; a task takes its expert 0.05 s.
Makespans are to the last event, as a client of the gateway's event stream has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.bench.endtoend import speech
from tests.bench.endtoend.asking import Told, ask
from tests.bench.endtoend.company import speaking, standing
from tests.bench.endtoend.controllers import CONTROLLERS, SHAPES, Controller
from tests.bench.rows import Row, gap, median
from tests.bench.shapes import longest
from tests.fakes import ScriptedLLM

REPEATS = 3
LARGE = "random_100"
"""Asked for once by an LLM: it takes seconds to write such a plan."""
MS_PER_TASK = 5.0
FIRST_EVENT_MS = 50.0
TOLD = "chain_8"
"""Of which it is said when each part of it came."""
COUNTED = ("single", "chain_4", "chain_8")
"""Of which LLM calls and tokens are told; the first HuggingGPT's are known of them."""


@dataclass(frozen=True)
class Cell:
    """Runs of one shape under one controller."""

    controller: Controller
    shape: str
    runs: Sequence[Told]
    calls: float
    """Of LLMs, by each."""

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
                    standing(Path(home), llm, asking) as url,
                    httpx.AsyncClient(base_url=url, timeout=120) as client,
                ):
                    for controller in controllers:
                        cells = [await _cell(client, llm, controller, name, numbers) for name in controller.shapes()]
                        measured += [row for cell in cells for row in _told(cell)]
                        measured += _missing(controller)
    return measured


async def _cell(
    client: httpx.AsyncClient, llm: ScriptedLLM, controller: Controller, name: str, numbers: Iterator[int]
) -> Cell:
    await ask(client, controller.body("single", next(numbers)))
    before, repeats = len(llm.requests), 1 if controller.asking and name == LARGE else REPEATS
    runs = [await ask(client, controller.body(name, next(numbers))) for _ in range(repeats)]
    if any(run.tasks != len(SHAPES[name].graph) for run in runs if not controller.supplied):
        raise RuntimeError(f"{controller.name} planned another shape than {name}")
    return Cell(controller, name, runs, (len(llm.requests) - before) / repeats)


def _told(cell: Cell) -> Iterator[Row]:
    yield _makespan(cell)
    if cell.shape == TOLD:
        yield from _firsts(cell)
    if cell.shape in COUNTED and cell.controller.asking and cell.controller.answers:
        yield from _counted(cell)


def _makespan(cell: Cell) -> Row:
    critical, tasks = cell.controller.critical(SHAPES[cell.shape])
    whole = cell.seconds("run_ended")
    return Row(
        f"endtoend.{cell.controller.name}_{cell.shape}_x",
        round(whole / critical, 3),
        "x",
        round(1 + MS_PER_TASK / 1000 * tasks / critical, 3),
        note=f"{cell.controller.about}: {1000 * whole:.0f} ms; its critical path has {1000 * critical:.0f} ms, {tasks} "
        f"{'task' if tasks == 1 else 'tasks'} on it",
    )


def _firsts(cell: Cell) -> Iterator[Row]:
    """What a reader of the events waits for, beside the soonest that it could come."""
    script = SHAPES[cell.shape]
    ready, planned = cell.controller.ready(script)
    last, _ = longest(script.graph, ready, script.seconds())
    yield _first(cell, "event", median([run.soonest for run in cell.runs], digits=6), 0.0, FIRST_EVENT_MS)
    yield _first(cell, "task", cell.seconds("task_started"), ready[1], 1000 * planned or None)
    if cell.controller.answers:
        speaks = speech.FIRST_SECONDS if "responder" in cell.controller.asking else 0.0
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
        yield gap(f"endtoend.{controller.name}_{name}_x", "x", None, why)
