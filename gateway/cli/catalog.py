"""hugginggpt tasks, models and experts list."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.cli import routing, terminal
from gateway.cli.connect import gateway
from gateway.cli.live_view import one_line, printable

_LONGEST_NAME, _NARROWEST, _GAP = 36, 12, 2
"""Widths in cells: maximum of the name column, minimum of the others, and the gap between columns."""

Draw = Callable[[Mapping[str, Any]], Iterator[RenderableType]]


def show(path: str, draw: Draw, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Fetches a path of the gateway and prints it."""
    with (
        terminal.err().status("connecting to the gateway") as status,
        gateway(url, lambda what: status.update(what or "connecting to the gateway"), api_key) as client,
    ):
        content = client.fetch(path)
    if as_json:
        terminal.print_json(content)
    else:
        console = Console(highlight=False)
        for entry in draw(content):
            console.print(entry)


def tasks(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (
            task["name"],
            f"{_ports(task['inputs'])} → {_ports(task['outputs'])}",
            ", ".join(task.get("experts", ())) + (" (dormant)" if task.get("dormant") else ""),
        )
        for task in content["data"]
    ]
    for task, line in zip(content["data"], _aligned(rows), strict=True):
        yield line
        yield _below(task.get("description", ""))


def models(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    routes = content.get("routes", ())
    for task, cards in groupby(content["models"], key=lambda card: card.get("task", "")):
        yield Text(one_line(task), style="cyan")
        for card in cards:
            state = ": ".join(filter(None, (card.get("state", ""), card.get("failure", ""))))
            line = _line(card["id"], card.get("expert", ""), state, card.get("license", ""))
            if rules := ", ".join(routing.describe_model_rules(card, routes)):
                line.append(f"  {rules}", "yellow")
            yield Padding(line, (0, 0, 0, 2))
            yield _below(card.get("description", ""), 4)
    for problem in routing.problems(routes):
        yield Text(f"routing table: {one_line(problem)}", style="red")


def experts(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (
            expert.get("name", ""),
            "dormant" if expert.get("dormant") else "available" if expert.get("addresses") else "unreachable",
            ", ".join(expert.get("addresses", ())),
        )
        for expert in content["data"]
    ]
    for expert, line in zip(content["data"], _aligned(rows), strict=True):
        yield line
        yield _below(", ".join(expert.get("tasks", ())))
        for problem in expert.get("problems", ()):
            yield Padding(Text(one_line(problem), style="red"), (0, 0, 0, 2))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[RenderableType]:
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


def _below(text: str, indent: int = 2) -> RenderableType:
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, indent))


def _ports(ports: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{port['name']}{'' if port.get('required') else '?'}" for port in ports)
