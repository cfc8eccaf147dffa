"""Validates a plan; reports all faults at once, each with a remedy."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from services.planner.plan import (
    HARD_LIMIT,
    Argument,
    Input,
    Json,
    Many,
    Reference,
    Single,
    Task,
    Unset,
    Value,
    modalities,
)
from services.planner.task_spec import Catalogue, Parameter, Port, Spec, failing_experts

MAX_REFERENCES = 20_000
"""Limit of references to outputs in one plan."""

MAX_LISTED_NAMES = 8
"""Limit of names in a remedy."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a task, and its remedy; without a task id, what is wrong with the plan."""

    message: str
    remedy: str
    task_id: int | None = None
    task: str = ""
    """Name of the task as an LLM wrote it."""
    source: str = ""
    """Part of the request that the task covers."""

    def __str__(self) -> str:
        name = f" ({self.task})" if self.task else ""
        where = "" if self.task_id is None else f"task {self.task_id}{name}: "
        return f"{where}{self.message} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class _Context:
    """Everything a task may refer to."""

    catalogue: Catalogue
    inputs: Mapping[str, Value]
    tasks: Mapping[int, Task]
    before: Collection[int]
    circular: Collection[int]


def find_faults(tasks: Sequence[Task], catalogue: Catalogue, inputs: Mapping[str, Value]) -> list[Fault]:
    """Returns all faults of a plan; none if it is valid."""
    if not tasks:
        return [Fault("the plan has no task", "give it at least one")]
    if len(tasks) > HARD_LIMIT:
        return [Fault(f"the plan has {len(tasks)} tasks", f"keep to {HARD_LIMIT}")]
    if (count := sum(1 for task in tasks for _ in references(task))) > MAX_REFERENCES:
        return [Fault(f"the plan has {count} references to outputs of tasks", f"keep to {MAX_REFERENCES}")]
    by_id = {task.id: task for task in reversed(tasks)}
    circular, before, found = _in_cycles(by_id), set[int](), list[Fault]()
    for task in tasks:
        context = _Context(catalogue, inputs, by_id, frozenset(before), circular)
        found += [replace(fault, task_id=task.id) for fault in (*_numbering(task, before), *_task(task, context))]
        before.add(task.id)
    return found


def references(task: Task) -> Iterator[Reference]:
    """Yields the references among a task's arguments."""
    for argument in task.arguments.values():
        items = argument.items if isinstance(argument, Many) else (argument,)
        yield from (item for item in items if isinstance(item, Reference))


def _in_cycles(tasks: Mapping[int, Task]) -> Collection[int]:
    graph = {task.id: {reference.task_id for reference in references(task)} & tasks.keys() for task in tasks.values()}
    found: set[int] = set()
    while cycle := _cycle(graph):
        found |= cycle
        graph = {task_id: needs - cycle for task_id, needs in graph.items() if task_id not in cycle}
    return found


def _cycle(graph: Mapping[int, Collection[int]]) -> set[int]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return set(error.args[1])
    return set()


def _numbering(task: Task, before: Collection[int]) -> Iterator[Fault]:
    if task.id < 1:
        yield Fault(f"{task.id} is no task id", "number the tasks from 1")
    elif task.id in before:
        yield Fault("its id is given twice", "give every task its own id")
    elif before and task.id < max(before):
        yield Fault("its id is smaller than that of a task before it", "list the tasks by growing id")
    if task.pinned_revision and not task.pinned_model:
        yield Fault("a revision is pinned without a model", "name the model it belongs to")


def unavailable_task(name: str, catalogue: Catalogue) -> tuple[str, str]:
    """Returns why a task is not available, and the remedy."""
    if experts := failing_experts(catalogue, name):
        return f"the task {name} is offered by {', '.join(experts)}, but is failing at the moment", "try again soon"
    remedy = f"use one that is: {list_names(catalogue, like=name)}" if catalogue else "add an expert that offers it"
    return f"no expert offers the task {name or '(unnamed)'}", remedy


def _task(task: Task, context: _Context) -> Iterator[Fault]:
    spec = context.catalogue.get(task.task)
    if spec is None:
        yield Fault(*unavailable_task(task.task, context.catalogue))
        return
    ports = {port.name: port for port in spec.inputs}
    for name, argument in task.arguments.items():
        if name in ports:
            yield from _argument(task, ports[name], argument, context)
        else:
            yield Fault(f"{spec.name} has no input port {name}", f"it has {list_names(ports)}")
    for port in spec.inputs:
        if port.required and port.name not in task.arguments:
            remedy = f"give it a {port.modality}: a value, an input or an earlier task's output"
            yield Fault(f"the required port {port.name} of {spec.name} is missing", remedy)
    yield from _parameters(task, spec)


def _argument(task: Task, port: Port, argument: Argument, context: _Context) -> Iterator[Fault]:
    if not isinstance(argument, Many):
        yield from _single(task, port, argument, context)
        return
    if not port.many:
        yield Fault(f"port {port.name} takes one {port.modality}, not a list", "split the task")
    elif not argument.items:
        yield Fault(f"the list for port {port.name} is empty", f"give it at least one {port.modality}")
    for item in argument.items:
        yield from _single(task, port, item, context)


def _single(task: Task, port: Port, argument: Single, context: _Context) -> Iterator[Fault]:
    if isinstance(argument, Reference):
        yield from _reference(task, port, argument, context)
    elif isinstance(argument, Input):
        if argument.name not in context.inputs:
            remedy = f"the run has {list_names(context.inputs)}" if context.inputs else "send it with the request"
            yield Fault(f"there is no input {argument.name or '(unnamed)'}", remedy)
        else:
            yield from _value(port, context.inputs[argument.name], f"input {argument.name}")
    elif isinstance(argument, Unset):
        yield Fault(f"port {port.name} is given nothing", f"give it a {port.modality}")
    else:
        yield from _value(port, argument, "what it is given")


def _reference(task: Task, port: Port, reference: Reference, context: _Context) -> Iterator[Fault]:
    task_id = reference.task_id
    if task_id not in context.tasks:
        yield Fault(f"port {port.name} refers to task {task_id}, which is not there", "refer to one that is")
        return
    if task.id in context.circular and task_id in context.circular:
        yield Fault(f"it waits for task {task_id}, which waits for it in turn", "break the circle")
        return
    if task_id not in context.before:
        yield Fault(f"it refers to task {task_id}, which comes after it", "list the needed task first")
        return
    source = context.catalogue.get(context.tasks[task_id].task)
    if source is None:  # reported for that task
        return
    output = source.output(reference.output)
    if output is None:
        names = list_names([port.name for port in source.outputs])
        message = f"task {task_id} ({source.name}) has no output {reference.output or '(unnamed)'}"
        yield Fault(message, f"it has {names}")
    elif output.modality is not port.modality:
        message = (
            f"port {port.name} takes a {port.modality}, but {reference.output} of task {task_id} is {output.modality}"
        )
        yield Fault(message, f"refer to a {port.modality}, or put a task between that makes one")
    elif output.many and not port.many:
        yield Fault(f"port {port.name} takes one {port.modality}, not a list", "split the task")


def _value(port: Port, value: Value, what: str) -> Iterator[Fault]:
    if isinstance(value, Json):
        try:
            json.loads(value.json)
        except (ValueError, RecursionError):
            yield Fault(f"{what} for port {port.name} is not valid JSON", "correct it")
            return
    fitting = modalities(value)
    if port.modality not in fitting:
        is_a = " or ".join(fitting) or "of no known kind"
        message = f"port {port.name} takes a {port.modality}, but {what} is {is_a}"
        yield Fault(message, f"give it a {port.modality}")


# ---------------------------------------------------------------- parameters


def _parameters(task: Task, spec: Spec) -> Iterator[Fault]:
    try:
        given = json.loads(task.parameters_json or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        yield Fault("its parameters are not a JSON object", 'write them as {"name": value}')
        return
    known = {parameter.name: parameter for parameter in spec.parameters}
    for name, value in given.items():
        if name not in known:
            remedy = f"it has {list_names(known)}" if known else "it has none"
            yield Fault(f"{spec.name} has no parameter {name}", remedy)
        elif wrong := schema_violation(known[name], value):
            yield Fault(f"parameter {name}: {wrong}", f"it must match {known[name].json_schema}")


def schema_violation(parameter: Parameter, value: object) -> str:
    """Returns why a value violates the parameter's schema; empty if it is valid."""
    validator = _validator(parameter.json_schema)
    if validator is None:
        return "its expert describes it by a schema that cannot be read"
    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable:
        return "its expert describes it by a schema that refers elsewhere"
    return error.message[:200] if error else ""


@lru_cache(maxsize=4_096)
def _validator(json_schema: str) -> Draft202012Validator | None:
    try:
        schema = json.loads(json_schema or "{}")
        Draft202012Validator.check_schema(schema)
    except (ValueError, RecursionError, SchemaError):
        return None
    # An empty registry: schemas come from experts, and this process must not fetch what they refer to.
    return Draft202012Validator(schema, registry=Registry())


def list_names(names: Collection[str], *, like: str = "") -> str:
    """Lists names for a remedy, up to MAX_LISTED_NAMES; first those similar to `like`, then alphabetically."""
    similar = get_close_matches(like, names, n=MAX_LISTED_NAMES)
    shown = [*similar, *sorted(set(names) - set(similar))]
    more = f" and {len(shown) - MAX_LISTED_NAMES} more" if len(shown) > MAX_LISTED_NAMES else ""
    return ", ".join(shown[:MAX_LISTED_NAMES]) + more
