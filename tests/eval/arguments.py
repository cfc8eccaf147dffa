"""Whether the tasks got the right file, text, question and language."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.planner.plan import Argument, File, Input, Json, Many, Reference, Task, Text
from services.planner.request import Request
from tests.eval.lines import Line
from tests.eval.metrics import Tally
from tests.eval.planners import Outcome

Given = tuple[str, str, str]
"""A task's name, a port or parameter, and its value in one comparable form."""

_EDGES = " \t\n.,;:!?'\"“”‘’«»「」"


def scores(lines: Sequence[Line], outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    """How many plans, and micro F1 in percent over all their arguments; None where no line has labels for them.

    argument_f1 wants task, port or parameter, and value right; t_f1 only the first two; v_f1 the task and the value,
    wherever it is given. (TaskBench's t-F1 and v-F1 know no ports: they take the type of a resource for its name.)
    """
    pairs = [
        (given(outcome), labelled(line))
        for line, outcome in zip(lines, outcomes, strict=True)
        if line.arguments is not None
    ]
    if not pairs:
        return None

    def f1(*parts: int) -> float | None:
        return Tally.of_bags((_only(planned, parts), _only(right, parts)) for planned, right in pairs).f1

    return {"n": len(pairs), "argument_f1": f1(0, 1, 2), "t_f1": f1(0, 1), "v_f1": f1(0, 2)}


def labelled(line: Line) -> Counter[Given]:
    """What a line says its tasks are given."""
    names = line.graph.tasks if line.graph else ()
    return Counter(
        (names[entry["task"]], port, form)
        for entry in line.arguments or ()
        for port, value in entry.items()
        if port != "task"
        for form in _labelled_forms(value, names)
    )


def given(outcome: Outcome) -> Counter[Given]:
    """What a plan gives to its tasks."""
    names = {task.id: task.task for task in outcome.draft.tasks}
    return Counter(
        (task.task, name, form) for task in outcome.draft.tasks for name, form in _given(task, names, outcome.request)
    )


def _only(found: Counter[Given], parts: Sequence[int]) -> Counter[tuple[str, ...]]:
    kept: Counter[tuple[str, ...]] = Counter()
    for triple, count in found.items():
        kept[tuple(triple[part] for part in parts)] += count
    return kept


def _labelled_forms(value: Any, names: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list) and all(isinstance(one, dict) and one.keys() & {"file", "output_of"} for one in value):
        for one in value:
            yield from _labelled_forms(one, names)
    elif isinstance(value, dict) and "file" in value:
        yield _file(value["file"])
    elif isinstance(value, dict) and "output_of" in value:
        yield _output(names[value["output_of"]])
    else:
        yield _literal(value)


def _given(task: Task, names: Mapping[int, str], request: Request) -> Iterator[tuple[str, str]]:
    for port, argument in task.arguments.items():
        for form in _forms(argument, names, request):
            yield port, form
    for parameter, value in json.loads(task.parameters_json or "{}").items():
        yield parameter, _literal(value)


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


def _literal(value: Any) -> str:
    """Texts are alike whatever their capitals, spaces, and marks or quotes around them."""
    if isinstance(value, str):
        return "text " + " ".join(value.casefold().split()).strip(_EDGES)
    return "JSON " + json.dumps(value, sort_keys=True, ensure_ascii=False).casefold()
