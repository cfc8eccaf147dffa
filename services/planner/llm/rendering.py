"""Renders tasks, plans and turns for a prompt, each on one line."""

import json
from collections.abc import Mapping
from typing import Any

from services.planner.llm.demonstrations import Demonstration
from services.planner.llm.inputs import Item, shortened
from services.planner.plan import Argument, File, Input, Json, Many, Reference, Single, Text
from services.planner.request import Prior, Turn
from services.planner.task_spec import Parameter, Port, Spec

DESCRIPTION_CHARACTERS, SUMMARY_CHARACTERS, TEXT_CHARACTERS = 160, 200, 200
"""Limits of a task's description, of a result summary and of a text argument."""

PARAMETERS, CHOICES, CHOICE_CHARACTERS = 6, 12, 40
"""Limits of a task's parameters, of a parameter's choices and of the length of a choice."""


def task(spec: Spec) -> str:
    """Renders a catalogue task: description, inputs, outputs and parameters."""
    inputs = ", ".join(_port(port, optional="" if port.required else "?") for port in spec.inputs)
    outputs = ", ".join(_port(port) for port in spec.outputs)
    parameters = ", ".join(map(_parameter, spec.parameters[:PARAMETERS]))
    line = f"{spec.name}: {shortened(spec.description, DESCRIPTION_CHARACTERS)} ({inputs}) -> {outputs}"
    return _one_line(f"{line}; parameters: {parameters}" if parameters else line)


def demonstration(example: Demonstration) -> str:
    """Renders an example request and its plan."""
    files = "".join(f"\nThere is: <file{number}>: {name}" for number, name in enumerate(example.files, start=1))
    return f"Request: {example.request}{files}\nAnswer: {_json({'tasks': example.tasks})}\n"


def turn(message: Turn, characters: int) -> str:
    """Renders an earlier turn."""
    return f"{'user' if message.by_user else 'assistant'}: {_one_line(shortened(message.text, characters))}"


def existing(prior: Prior, items: tuple[Item, ...], *, failed: bool) -> str:
    """Renders an existing task of the run and its result."""
    written = prior.task
    names = {item.argument: item.name for item in items}
    args = {port: _argument(argument, names) for port, argument in written.arguments.items()}
    line = _json({"task": written.task, "id": written.id, "args": args | _parameters(written.parameters_json)})
    summary = f": {_json(shortened(prior.summary, SUMMARY_CHARACTERS))}" if prior.summary else ""
    return f"{'failed' if failed else prior.state} {line}{summary}"


def _port(port: Port, optional: str = "") -> str:
    return f"{port.name}{optional}{'*' if port.many else ''}: {port.modality.name.lower()}"


def _parameter(parameter: Parameter) -> str:
    try:
        schema = json.loads(parameter.json_schema or "{}")
    except (ValueError, RecursionError):
        return parameter.name
    if not isinstance(schema, dict):
        return parameter.name
    choices = schema.get("enum")
    if isinstance(choices, list):
        return (
            f"{parameter.name}: {'|'.join(shortened(str(choice), CHOICE_CHARACTERS) for choice in choices[:CHOICES])}"
        )
    return f"{parameter.name}: {schema.get('type', 'any')}"


def _argument(argument: Argument, names: Mapping[Single, str]) -> Any:
    if isinstance(argument, Many):
        return [_argument(item, names) for item in argument.items]
    if argument in names:
        return f"<{names[argument]}>"
    match argument:
        case Reference(task_id, output):
            return f"<{output}>-{task_id}"
        case Text(text) | Json(text):
            return shortened(text, TEXT_CHARACTERS)
        case Input(name) | File(name=name):
            return f"<{name}>"
        case _:
            return None


def _parameters(parameters_json: str) -> dict[str, Any]:
    parameters = json.loads(parameters_json or "{}")
    return parameters if isinstance(parameters, dict) else {}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False)
