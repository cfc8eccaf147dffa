"""hugginggpt tasks, models and experts list."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from gateway.cli import routed, terminal
from gateway.cli.door import gateway
from gateway.cli.view import one_line, printable

Draw = Callable[[Mapping[str, Any]], Iterator[RenderableType]]


def show(path: str, draw: Draw, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints what the gateway says at a path."""
    with (
        terminal.err().status("asking the gateway") as status,
        gateway(url, lambda what: status.update(what or "asking the gateway"), api_key) as house,
    ):
        content = house.fetch(path)
    if as_json:
        terminal.tell_json(content)
    else:
        console = Console(highlight=False)
        for entry in draw(content):
            console.print(entry)


def tasks(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    for task in content["data"]:
        asleep = "asleep" if task.get("dormant") else ""
        flow = f"{_ports(task['inputs'])} → {_ports(task['outputs'])}"
        yield _line(task["name"], flow, ", ".join(task.get("experts", ())), asleep)
        yield _below(task.get("description", ""))


def models(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    routes = content.get("routes", ())
    for task, cards in groupby(content["models"], key=lambda card: card.get("task", "")):
        yield Text(one_line(task), style="cyan")
        for card in cards:
            state = ": ".join(filter(None, (card.get("state", ""), card.get("failure", ""))))
            line = _line(card["id"], card.get("expert", ""), state, card.get("license", ""))
            if laid_down := ", ".join(routed.of_model(card, routes)):
                line.append(f"  {laid_down}", "yellow")
            yield Padding(line, (0, 0, 0, 2))
            yield _below(card.get("description", ""), 4)
    for problem in routed.problems(routes):
        yield Text(f"routing table: {one_line(problem)}", style="red")


def experts(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    for expert in content["data"]:
        state = "asleep" if expert.get("dormant") else "awake" if expert.get("addresses") else "gone"
        yield _line(expert.get("name", ""), state, ", ".join(expert.get("addresses", ())))
        yield _below(", ".join(expert.get("tasks", ())))
        for problem in expert.get("problems", ()):
            yield Padding(Text(one_line(problem), style="red"), (0, 0, 0, 2))


def _line(name: str, *facts: str) -> Text:
    told = "  ".join(one_line(fact) for fact in facts if fact)
    return Text.assemble((one_line(name), "bold"), "  ", told)


def _below(text: str, indent: int = 2) -> RenderableType:
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, indent))


def _ports(ports: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{port['name']}{'' if port.get('required') else '?'}" for port in ports)
