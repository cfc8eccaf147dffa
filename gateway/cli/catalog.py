"""The commands tasks and models."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.connect import connected_gateway
from gateway.cli.options import ApiKey, Json, Url
from gateway.cli.terminal import one_line, printable

_LONGEST_NAME, _NARROWEST, _GAP = 36, 12, 2
"""Widths in cells: maximum of the name column, minimum of the others, and the gap between columns."""

_FAILED_MODEL = re.compile(r"model (?P<model>\S+) has failed: (?P<reason>.*)")
_NAMED_MODELS = 3
"""Models named of those that have failed for the same reason."""

Draw = Callable[[Mapping[str, Any]], Iterator[RenderableType]]


def tasks(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the available tasks, with an example of each."""
    with terminal.problems_reported():
        show("/v1/tasks", _tasks, url, api_key, as_json=as_json)


def models(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the available models."""
    with terminal.problems_reported():
        show("/v1/models", _models, url, api_key, as_json=as_json)


def show(path: str, draw: Draw, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Fetches a path of the gateway and prints it."""
    with connected_gateway(url, api_key) as client:
        content = client.fetch(path)
    if as_json:
        terminal.print_json(content)
    else:
        console = Console(highlight=False)
        for entry in draw(content):
            console.print(entry)


def _tasks(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (
            task["name"],
            f"{_ports(task['inputs'])} → {_ports(task['outputs'])}",
            ", ".join(task.get("experts", ())) + (" (dormant)" if task.get("dormant") else ""),
        )
        for task in content["data"]
    ]
    for task, line in zip(content["data"], aligned(rows), strict=True):
        yield line
        yield below(task.get("description", ""))
        for example in task.get("examples", ())[:1]:
            yield below(f"for example: {example}")


def _describe_memory(card: Mapping[str, Any]) -> str:
    """Returns the memory for which a model is the choice, and whether its machine has less; empty if not given."""
    name = card.get("memory_class", "")
    return f"for {name}" + (", more than this expert has" if card.get("exceeds_memory") else "") if name else ""


def _models(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    routes = content.get("routes", ())
    for task, cards in groupby(content["models"], key=lambda card: card.get("task", "")):
        yield Text(one_line(task), style="cyan")
        for card in cards:
            line = _line(card["id"], card.get("expert", ""), card.get("state", ""), card.get("license", ""))
            if memory := _describe_memory(card):
                line.append(f"  {memory}", "yellow" if card.get("exceeds_memory") else "dim")
            if rules := ", ".join(_describe_rules(card, routes)):
                line.append(f"  {rules}", "yellow")
            yield Padding(line, (0, 0, 0, 2))
            if failure := card.get("failure", ""):
                yield Padding(Text(one_line(failure), style="red"), (0, 0, 0, 4))
            yield below(card.get("description", ""), 4)
    for problem in routing_problems(routes):
        yield Text(f"routing table: {one_line(problem)}", style="red")


def expert_problems(expert: Mapping[str, Any]) -> Iterator[str]:
    """Problems of an expert; models that have failed for the same reason are reported together."""
    models_by_reason: dict[str, list[str]] = {}
    for problem in expert.get("problems", ()):
        if found := _FAILED_MODEL.fullmatch(problem):
            models_by_reason.setdefault(found["reason"], []).append(found["model"])
        else:
            yield problem
    for reason, (first, *others) in models_by_reason.items():
        if not others:
            yield f"model {first} has failed: {reason}"
            continue
        named, more = ", ".join([first, *others][:_NAMED_MODELS]), len(others) + 1 - _NAMED_MODELS
        yield f"{len(others) + 1} models have failed: {reason} ({named}{f' and {more} more' if more > 0 else ''})"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[RenderableType]:
    """Renders rows with aligned columns; a cell that is too long wraps within its column."""
    if not rows:
        return
    name, *others = (max(cell_len(one_line(row[column])) for row in rows) for column in range(len(rows[0])))
    name = min(name, _LONGEST_NAME)
    left = Console().width - name - _GAP * len(others)
    widths = [name, *_shared(others, left)]
    for row in rows:
        grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        for width in widths:
            grid.add_column(width=width, overflow="fold")
        grid.add_row(*(Text(one_line(cell), style="" if column else "bold") for column, cell in enumerate(row)))
        yield grid


def _shared(needed: Sequence[int], width: int) -> list[int]:
    """Column widths that fit: the widest columns are narrowed first."""
    widths = list(needed)
    while sum(widths) > max(width, _NARROWEST * len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths


def _line(name: str, *facts: str) -> Text:
    text = "  ".join(one_line(fact) for fact in facts if fact)
    return Text.assemble((one_line(name), "bold"), "  ", text)


def below(text: str, indent: int = 2) -> RenderableType:
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, indent))


def _ports(ports: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{port['name']}{'' if port.get('required') else '?'}" for port in ports)


def _describe_rules(card: Mapping[str, Any], routes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Describes the rules for a model and its task.

    Args:
        card: card of the model.
        routes: routes of the gateway; those without a task apply to all.
    """
    for route in routes:
        if route.get("task", card["task"]) == card["task"]:
            yield from _rules(card, route)


def routing_problems(routes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Problems of the table, such as unknown model names."""
    return [problem for route in routes for problem in route.get("problems", ())]


def _rules(card: Mapping[str, Any], route: Mapping[str, Any]) -> Iterator[str]:
    candidates = route.get("candidates", ())
    total = sum(each["weight"] for each in candidates)
    own = next((each for each in candidates if _matches(each, card)), None)
    is_forbidden = any(_matches(each, card) for each in route.get("forbidden", ()))
    if is_forbidden:
        yield "forbidden"
    elif _matches(route.get("model", {}), card):
        yield "always first"
    elif _matches(route.get("shadow", {}), card):
        yield "shadow"
    elif own and own["weight"]:
        yield f"weight {own['weight']:g} of {total:g}"
    elif candidates:
        yield "candidate" if own else "not chosen"
    if card["id"] in route.get("scores", {}):
        yield f"score {route['scores'][card['id']]:.2f}"


def _matches(name: Mapping[str, Any], card: Mapping[str, Any]) -> bool:
    return name.get("id") == card["id"] and name.get("revision", "") in {"", card.get("revision", "")}
