"""Plan of a batch: a saved pipeline, a plan file, or a request planned on the first item."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from gateway.cli import pipelines, plan_graph, terminal
from gateway.cli.batch import report
from gateway.cli.batch.items import Items
from gateway.cli.batch.live_view import View
from gateway.cli.batch.parameters import UNKNOWN, Parameters
from gateway.cli.errors import Problem
from gateway.client import Failure, HuggingGPT, InvalidRequest, Port, Run

PLANNING_ITEMS = 3
"""Items on which planning is tried before it fails."""


@dataclass(frozen=True)
class Source:
    """Plan of each item.

    Args:
        options: the client's options for it.
        parameters: its parameters.
    """

    options: Mapping[str, Any]
    parameters: Parameters


def from_pipeline(client: HuggingGPT, reference: str) -> Source:
    """A saved pipeline: NAME for its latest version, or NAME@VERSION."""
    found = pipelines.find(client, reference)
    modalities = {port.name: port.modality for port in found.inputs}
    required = [port.name for port in found.inputs if port.required]
    return Source({"pipeline": found}, Parameters(f"{found.name}@{found.version}", modalities, required))


def from_plan(plan: Sequence[Mapping[str, Any]], file: Path) -> Source:
    """A plan in a file; its parameters are the inputs that its tasks refer to."""
    names = dict.fromkeys(name for task in plan for name in _inputs(task))
    return Source({"plan": plan}, Parameters(f"the plan in {file}", dict.fromkeys(names, UNKNOWN), list(names)))


def from_request(request: str) -> Source:
    """A request that is planned on the first item."""
    return Source({"request": request}, Parameters("the request"))


def plan_on_first_item(
    client: HuggingGPT, source: Source, items: Items, options: Mapping[str, Any], view: View, *, is_confirmed: bool
) -> Source:
    """Plans the request on the first valid item, shows the plan and asks for confirmation.

    Raises:
        Problem: planning failed, or the user declined.
    """
    run, inputs = _planned(client, source.options["request"], items, options)
    view.close()
    for tree in plan_graph.render(inputs, _tasks(run)):
        terminal.err().print(tree, soft_wrap=True)
    if not is_confirmed and not typer.confirm(f"Run this on {report.items(items.count)}?", err=True):
        raise Problem("cancelled: nothing was run")
    return Source({"run": run}, source.parameters)


def _planned(client: HuggingGPT, request: str, items: Items, options: Mapping[str, Any]) -> tuple[Run, Sequence[Port]]:
    """The run that planned, and its inputs as ports."""
    refused: InvalidRequest | None = None
    for item in islice(items, PLANNING_ITEMS):
        try:
            run = client.ask(request, mode="plan", inputs=item.inputs, **options)
        except InvalidRequest as error:
            refused = refused or error
        else:
            return _with_plan(run), _ports(client, _tasks(run), item.inputs)
    raise refused or Problem("there are no items to plan on")


def _tasks(run: Run) -> list[Mapping[str, Any]]:
    return [status.task for status in run.tasks]


def _ports(client: HuggingGPT, plan: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[Port]:
    kinds = {kind.name: {port.name: port for port in kind.inputs} for kind in client.tasks()}
    taken: dict[str, Port] = {}
    for task in plan:
        for port, argument in task.get("arguments", {}).items():
            known = kinds.get(task["task"], {}).get(port, Port(name=port))
            taken.update((name, known) for name in _inputs(argument) if name not in taken)
    return [taken.get(name, Port(name=name)).model_copy(update={"name": name, "required": True}) for name in names]


def _with_plan(run: Run) -> Run:
    if run.is_completed and run.tasks:
        return run
    failure = run.failure or Failure(message="; ".join(str(note.get("text", "")) for note in run.notes))
    raise Problem(f"the request could not be planned: {failure.message or run.state}", remedy=failure.remedy)


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
