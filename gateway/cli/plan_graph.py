"""A plan as text: each task beneath the last thing that it needs, with what it takes from where."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from gateway.cli.live_view import one_line
from gateway.client import Port

SHOWN = 40
"""Letters of a value."""

_COMMIT = 12
"""Digits of a commit, as people compare them."""

Task = Mapping[str, Any]


def drawn(inputs: Sequence[Port], plan: Sequence[Task]) -> list[Tree]:
    """A tree for each input, and for each task that needs nothing.

    Args:
        inputs: what the plan takes.
        plan: its tasks; each one needs only earlier ones.
    """
    placed: dict[str | int | None, Tree] = {port.name: Tree(_input(port), guide_style="dim") for port in inputs}
    roots = list(placed.values())
    for task in plan:
        above, label = placed.get(_last_need(task)), _label(task)
        placed[task["id"]] = above.add(label) if above else Tree(label, guide_style="dim")
        if above is None:
            roots.append(placed[task["id"]])
    return roots


def flow(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """What goes in and what comes out, in kinds."""
    return f"{_kinds(inputs)} → {_kinds(outputs)}"


def model(task: Task) -> str:
    """The model to which a task is pinned."""
    if not task.get("pinned_model"):
        return "any model"
    revision = str(task.get("pinned_revision", ""))[:_COMMIT]
    return f"{task['pinned_model']}@{revision}" if revision else str(task["pinned_model"])


def _kinds(ports: Sequence[Port]) -> str:
    return ", ".join(dict.fromkeys(port.modality for port in ports)) or "nothing"


def _input(port: Port) -> Text:
    said = f"  {one_line(port.description)}" if port.description else ""
    optional = "" if port.required else ", may be left out"
    return Text.assemble((one_line(port.name), "bold cyan"), f"  {port.modality}{optional}", (said, "dim"))


def _label(task: Task) -> Text:
    given = ", ".join(f"{port} ← {_origin(argument)}" for port, argument in task.get("arguments", {}).items())
    knobs = "".join(f", {name} {_short(value)}" for name, value in task.get("parameters", {}).items())
    return Text.assemble(
        (f"{task['id']} ", "dim"),
        (one_line(task["task"]), "bold"),
        f"  {one_line(given + knobs)}  ",
        (one_line(model(task)), "green" if task.get("pinned_model") else "dim"),
    )


def _origin(argument: Any) -> str:
    match argument:
        case {"input": name}:
            return str(name)
        case {"task_id": task_id, "output": output}:
            return f"{task_id}.{output}"
        case {"artifact": {"name": name}}:
            return str(name)
        case list():
            return " and ".join(map(_origin, argument))
    return _short(argument)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _last_need(task: Task) -> str | int | None:
    needs = list(_needs(list(task.get("arguments", {}).values())))
    numbers = [need for need in needs if isinstance(need, int)]
    return max(numbers) if numbers else next(iter(needs), None)


def _needs(arguments: Any) -> Iterator[str | int]:
    for argument in arguments:
        match argument:
            case {"input": str() as name}:
                yield name
            case {"task_id": int() as task_id}:
                yield task_id
            case list():
                yield from _needs(argument)
