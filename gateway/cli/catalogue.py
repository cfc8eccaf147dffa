"""hugginggpt tasks, models and experts list."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.door import gateway
from gateway.cli.view import printable

Draw = Callable[[Any], Table]


def show(path: str, draw: Draw, url: str | None, *, as_json: bool) -> None:
    """Prints what the gateway says at a path."""
    console = terminal.err()
    with (
        console.status("asking the gateway") as status,
        gateway(url, lambda what: status.update(what or "asking")) as api,
    ):
        content = api.get(path)
    if as_json:
        terminal.tell_json(content)
    else:
        Console(highlight=False).print(draw(content))


def tasks_table(content: Mapping[str, Any]) -> Table:
    table = _table("task", "takes", "gives", "experts", "what it does")
    for task in content["data"]:
        experts = ", ".join(task.get("experts", ())) + (" (asleep)" if task.get("dormant") else "")
        _add(table, task["name"], _ports(task["inputs"]), _ports(task["outputs"]), experts, task["description"])
    return table


def models_table(content: Mapping[str, Any]) -> Table:
    table = _table("task", "model", "expert", "state", "licence", "what it does")
    for card in content["models"]:
        state = ": ".join(filter(None, (card.get("state", ""), card.get("failure", ""))))
        told = (card.get(key, "") for key in ("task", "id", "expert"))
        _add(table, *told, state, card.get("license", ""), card.get("description", ""))
    return table


def experts_table(content: Mapping[str, Any]) -> Table:
    table = _table("expert", "state", "addresses", "tasks", "problems")
    for expert in content["data"]:
        state = "asleep" if expert.get("dormant") else "awake" if expert.get("addresses") else "gone"
        lists = (", ".join(expert.get(key, ())) for key in ("addresses", "tasks"))
        _add(table, expert.get("name", ""), state, *lists, "; ".join(expert.get("problems", ())))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    first, *rest = (printable(cell) for cell in cells)
    table.add_row(Text(first, style="bold"), *(Text(cell) for cell in rest))


def _ports(ports: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{port['name']}{'' if port.get('required') else '?'}" for port in ports)
