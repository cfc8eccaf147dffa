"""Arguments of tasks in one comparable form, for plans and for labels."""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from services.planner.embedded.languages import TAGS
from services.planner.plan import Argument, File, Input, Json, Many, Reference, Task, Text
from services.planner.request import Request
from services.planner.task_spec import standard_specs
from tests.eval.lines import Answer
from tests.eval.planners import Outcome

Given = tuple[str, str]
"""Name of a port or parameter, and its value in comparable form."""

Filled = tuple[str, frozenset[Given]]
"""Name of a task, and its arguments."""

_LANGUAGES = frozenset(("language", "source_language", "target_language"))
_FOLLOWS = frozenset(("language", "source_language"))
"""Parameters that often follow from the plan: if the label omits one, a plan may contain it."""

_MARKS = r"[\s.,;:!?'\"“”‘’«»„「」]+"
_AROUND = re.compile(rf"^(?:{_MARKS}|please\b|(?:an?|the)\s)+|(?:{_MARKS}|\bplease\b)+$")


def comparable(outcome: Outcome, answer: Answer) -> tuple[list[Filled], list[Filled]]:
    """Tasks of a plan, without optional parameters that the label omits, and tasks of the right plan; unordered."""
    expected = label_arguments(answer)
    listed = {(task, name) for task, arguments in expected for name, _ in arguments}
    planned = [(task, frozenset(_needed(task, arguments, listed))) for task, arguments in plan_arguments(outcome)]
    return planned, expected


def label_arguments(answer: Answer) -> list[Filled]:
    """Tasks of a right plan, with their arguments; tasks without arguments may be missing."""
    names = answer.graph.tasks
    return [(names[entry["task"]], frozenset(_labelled(entry, names))) for entry in answer.arguments or ()]


def plan_arguments(outcome: Outcome) -> list[Filled]:
    """Tasks of a plan, with their arguments."""
    names = {task.id: task.task for task in outcome.draft.tasks}
    return [(task.task, frozenset(_given(task, names, outcome.request))) for task in outcome.draft.tasks]


def triples(filled: Iterable[Filled], parts: Sequence[int] = (0, 1, 2)) -> Counter[tuple[str, ...]]:
    """Task, port or parameter, and value of every argument, or only the chosen parts of these triples."""
    all_triples = ((task, name, form) for task, arguments in filled for name, form in arguments)
    return Counter(tuple(triple[part] for part in parts) for triple in all_triples)


def _needed(task: str, arguments: Iterable[Given], listed: Container[tuple[str, str]]) -> Iterator[Given]:
    return ((name, form) for name, form in arguments if name not in _FOLLOWS or (task, name) in listed)


def _labelled(entry: Mapping[str, Any], names: Sequence[str]) -> Iterator[Given]:
    task = names[entry["task"]]
    for name, value in entry.items():
        if name != "task":
            yield from ((name, form) for form in _labelled_forms(name, _items(task, name, value), names))


def _items(task: str, name: str, value: Any) -> list[Any]:
    """Values of an argument: a list for a port is several values, a list for a parameter is one."""
    return value if isinstance(value, list) and name in _ports(task) else [value]


@cache
def _ports(task: str) -> frozenset[str]:
    spec = standard_specs().get(task)
    return frozenset(port.name for port in spec.inputs) if spec else frozenset()


def _labelled_forms(name: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
    for value in values:
        if isinstance(value, dict) and "file" in value:
            yield _file(value["file"])
        elif isinstance(value, dict) and "output_of" in value:
            yield _output(names[value["output_of"]])
        else:
            yield _literal(value, name)


def _given(task: Task, names: Mapping[int, str], request: Request) -> Iterator[Given]:
    for port, argument in task.arguments.items():
        for form in _forms(argument, names, request):
            yield port, form
    for parameter, value in json.loads(task.parameters_json or "{}").items():
        yield parameter, _literal(value, parameter)


def _forms(argument: Argument, names: Mapping[int, str], request: Request) -> Iterator[str]:
    match argument:
        case Many(items):
            for item in items:
                yield from _forms(item, names, request)
        case Reference(task_id, _):
            yield _output(names[task_id])
        case Input(name):
            for named in request.inputs:
                if named.name == name:
                    yield from _forms(named.value, names, request)
        case File(name=name):
            yield _file(name)
        case Text(text):
            yield _literal(text)
        case Json(text):
            yield _literal(json.loads(text))


def _file(name: str) -> str:
    return f"file {name}"


def _output(name: str) -> str:
    return f"output of {name}"


def _literal(value: Any, name: str = "") -> str:
    """Comparable form of a value: lists in any order, languages by tag.

    Texts are compared without case, repeated spaces, and surrounding punctuation, "please" or articles.
    """
    if isinstance(value, str):
        normalized = _AROUND.sub("", " ".join(value.casefold().split()))
        return f"text {TAGS.get(normalized, normalized).casefold() if name in _LANGUAGES else normalized}"
    if isinstance(value, list):
        return f"list {sorted(map(_literal, value))}"
    if isinstance(value, int | float):
        return f"number {float(value):g}"
    return f"JSON {json.dumps(value, sort_keys=True, ensure_ascii=False)}"
