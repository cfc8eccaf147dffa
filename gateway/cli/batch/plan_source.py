"""What runs on each item: a kept plan, one that is supplied, or one made of words on the first item."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from gateway.cli import pipeline_commands, plan_graph, terminal
from gateway.cli.batch import report
from gateway.cli.batch.items import Items
from gateway.cli.batch.live_view import View
from gateway.cli.batch.parameters import UNKNOWN, Parameters
from gateway.cli.errors import Problem
from gateway.client import Failure, HuggingGPT, InvalidRequest, Port, Run

FIRST = 3
"""Items on which planning is tried: of more it is not the file's fault."""


@dataclass(frozen=True)
class Source:
    """What is run on each item.

    Args:
        told: what the client is told of it.
        takes: its parameters.
    """

    told: Mapping[str, Any]
    takes: Parameters


def kept(house: HuggingGPT, named: str) -> Source:
    """A pipeline: NAME for its latest version, or NAME@VERSION."""
    found = pipeline_commands.found(house, named)
    modalities = {port.name: port.modality for port in found.inputs}
    required = [port.name for port in found.inputs if port.required]
    return Source({"pipeline": found}, Parameters(f"{found.name}@{found.version}", modalities, required))


def supplied(plan: Sequence[Mapping[str, Any]], file: Path) -> Source:
    """A plan in a file: the inputs to which its tasks refer are its parameters."""
    names = dict.fromkeys(name for task in plan for name in _inputs(task))
    return Source({"plan": plan}, Parameters(f"the plan in {file}", dict.fromkeys(names, UNKNOWN), list(names)))


def worded(request: str) -> Source:
    """Words, of which the first item makes a plan."""
    return Source({"request": request}, Parameters("the request"))


def made(
    house: HuggingGPT, source: Source, items: Items, options: Mapping[str, Any], view: View, *, agreed: bool
) -> Source:
    """Has the first item planned that can be, shows the plan and asks whether that is what is wanted.

    Raises:
        Problem: there is no plan, or it is not wanted.
    """
    run, inputs = _planned(house, source.told["request"], items, options)
    view.close()
    for tree in plan_graph.drawn(inputs, _tasks(run)):
        terminal.err().print(tree, soft_wrap=True)
    if not agreed and not typer.confirm(f"Run this on {report.items(items.count)}?", err=True):
        raise Problem("nothing was run")
    return Source({"run": run}, source.takes)


def _planned(house: HuggingGPT, request: str, items: Items, options: Mapping[str, Any]) -> tuple[Run, Sequence[Port]]:
    """The run that planned, and what went into it, as its tasks take it."""
    refused: InvalidRequest | None = None
    for item in islice(items, FIRST):
        try:
            run = house.ask(request, mode="plan", inputs=item.inputs, **options)
        except InvalidRequest as error:
            refused = refused or error
        else:
            return _with_plan(run), _ports(house, _tasks(run), item.inputs)
    raise refused or Problem("there is nothing to plan on")


def _tasks(run: Run) -> list[Mapping[str, Any]]:
    return [status.task for status in run.tasks]


def _ports(house: HuggingGPT, plan: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[Port]:
    kinds = {kind.name: {port.name: port for port in kind.inputs} for kind in house.tasks()}
    taken: dict[str, Port] = {}
    for task in plan:
        for port, argument in task.get("arguments", {}).items():
            known = kinds.get(task["task"], {}).get(port, Port(name=port))
            taken.update((name, known) for name in _inputs(argument) if name not in taken)
    return [taken.get(name, Port(name=name)).model_copy(update={"name": name, "required": True}) for name in names]


def _with_plan(run: Run) -> Run:
    if run.is_completed and run.tasks:
        return run
    said = run.failure or Failure(message="; ".join(str(note.get("text", "")) for note in run.notes))
    raise Problem(f"no plan came of the request: {said.message or run.state}", remedy=said.remedy)


def _inputs(arguments: Any) -> Iterator[str]:
    match arguments:
        case {"input": str() as name}:
            yield name
        case dict():
            for argument in arguments.values():
                yield from _inputs(argument)
        case list():
            for argument in arguments:
                yield from _inputs(argument)
