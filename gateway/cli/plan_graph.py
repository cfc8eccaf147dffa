"""Renders a plan as a tree: each task below the last task or input that it depends on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from gateway.cli.terminal import one_line

if TYPE_CHECKING:
    from gateway.client import Port

VALUE_CHARACTERS = 40
"""Length limit of a shown value."""

_COMMIT = 12
"""Shown digits of a commit."""

Task = Mapping[str, Any]


def render(inputs: "Sequence[Port]", plan: Sequence[Task]) -> list[Tree]:
    """Builds a tree for each input, and for each task without dependencies.

    Args:
        inputs: inputs of the plan.
        plan: tasks, each after those that it depends on.
    """
    nodes: dict[str | int | None, Tree] = {port.name: Tree(_input(port), guide_style="dim") for port in inputs}
    roots = list(nodes.values())
    for task in plan:
        parent, label = nodes.get(_last_dependency(task)), _label(task)
        nodes[task["id"]] = parent.add(label) if parent else Tree(label, guide_style="dim")
        if parent is None:
            roots.append(nodes[task["id"]])
    return roots


def flow(inputs: "Sequence[Port]", outputs: "Sequence[Port]") -> str:
    """Modalities of the inputs and outputs."""
    return f"{_modalities(inputs)} → {_modalities(outputs)}"


def model(task: Task) -> str:
    """The pinned model of a task."""
    if not task.get("pinned_model"):
        return "any model"
    revision = str(task.get("pinned_revision", ""))[:_COMMIT]
    return f"{task['pinned_model']}@{revision}" if revision else str(task["pinned_model"])


def task_dependencies(arguments: Mapping[str, Any]) -> set[int]:
    """Ids of the tasks whose outputs are arguments of a task."""
    return {need for need in _dependencies(arguments.values()) if isinstance(need, int)}


def _modalities(ports: "Sequence[Port]") -> str:
    return ", ".join(dict.fromkeys(port.modality for port in ports)) or "nothing"


def _input(port: "Port") -> Text:
    description = f"  {one_line(port.description)}" if port.description else ""
    optional = "" if port.required else ", optional"
    return Text.assemble((one_line(port.name), "bold cyan"), f"  {port.modality}{optional}", (description, "dim"))


def _label(task: Task) -> Text:
    arguments = ", ".join(f"{port} ← {_origin(argument)}" for port, argument in task.get("arguments", {}).items())
    parameters = "".join(f", {name} {_short(value)}" for name, value in task.get("parameters", {}).items())
    return Text.assemble(
        (f"{task['id']} ", "dim"),
        (one_line(task["task"]), "bold"),
        f"  {one_line(arguments + parameters)}  ",
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
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"


def _last_dependency(task: Task) -> str | int | None:
    dependencies = list(_dependencies(list(task.get("arguments", {}).values())))
    numbers = [need for need in dependencies if isinstance(need, int)]
    return max(numbers) if numbers else next(iter(dependencies), None)


def _dependencies(arguments: Any) -> Iterator[str | int]:
    for argument in arguments:
        match argument:
            case {"input": str() as name}:
                yield name
            case {"task_id": int() as task_id}:
                yield task_id
            case list():
                yield from _dependencies(argument)
