"""Converts a parsed task into one or more valid tasks, or the faults that prevent it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from services.planner.llm.argument_binding import Binding, bind_arguments
from services.planner.llm.names import match_task
from services.planner.llm.parameters import convert_parameters, unknown_argument
from services.planner.llm.plan_format import ParsedTask
from services.planner.llm.port_values import RepairContext, infer_port_value, missing, resolve_port
from services.planner.llm.task_split import split
from services.planner.llm.values import EmbeddedReference, ExternalReference, OutputReference, interpret
from services.planner.plan import Argument, Single
from services.planner.plan_check import Fault, unavailable_task
from services.planner.task_spec import Spec

Arguments = Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class NormalizedTask:
    """Result of a parsed task: arguments of each resulting task, and the parameters they share."""

    spec: Spec
    given: tuple[Arguments, ...]
    parameters_json: str


def normalize_task(parsed: ParsedTask, context: RepairContext) -> NormalizedTask | list[Fault]:
    """Repairs and validates a parsed task; returns all faults if it cannot run."""
    name = match_task(parsed.task, context.catalogue)
    if name is None:
        return [Fault(*unavailable_task(parsed.task, context.catalogue))]
    return _normalize(parsed, context.catalogue[name], context)


def waits_for(parsed: ParsedTask, context: RepairContext) -> set[int]:
    """Ids of the tasks that a task depends on: its references, and its declared dependencies if a port is empty."""
    ids = {
        meaning.wire_id
        for _, value in parsed.given
        for meaning in interpret(value, context.names)
        if isinstance(meaning, OutputReference)
    }
    name = match_task(parsed.task, context.catalogue)
    if parsed.needs and name and bind_arguments(parsed, context.catalogue[name], context.names, context.inputs).missing:
        ids.update(parsed.needs)
    return ids


def _normalize(parsed: ParsedTask, spec: Spec, context: RepairContext) -> NormalizedTask | list[Fault]:
    binding = bind_arguments(parsed, spec, context.names, context.inputs)
    given, faults = _ports(parsed, binding, context)
    parameters, parameter_faults = convert_parameters(binding.parameters, spec, context.names)
    faults += parameter_faults + [unknown_argument(name, spec) for name in binding.unmatched]
    pieces = split(given, spec)
    if isinstance(pieces, Fault):
        faults.append(pieces)
    if faults or isinstance(pieces, Fault):
        return faults
    return NormalizedTask(spec, tuple(pieces), json.dumps(parameters, ensure_ascii=False) if parameters else "")


def _ports(parsed: ParsedTask, binding: Binding, context: RepairContext) -> tuple[dict[str, list[Single]], list[Fault]]:
    given: dict[str, list[Single]] = {}
    faults: dict[str, list[Fault]] = {port.name: [missing(port, binding.spec)] for port in binding.missing}
    for port in binding.spec.inputs:
        interpretations = binding.ports.get(port.name, [])
        singles, port_faults = resolve_port(port, interpretations, context) if interpretations else ([], [])
        if port_faults:
            faults[port.name] = port_faults
        elif singles:
            given[port.name] = singles
    for port in binding.spec.inputs:
        interpretations = binding.ports.get(port.name, [])
        if (
            port.name not in faults
            or len(interpretations) > 1
            or any(isinstance(item, ExternalReference | EmbeddedReference) for item in interpretations)
        ):
            continue
        used = {single for singles in given.values() for single in singles}
        if found := infer_port_value(port, parsed.needs, used, context):
            given[port.name] = found
            del faults[port.name]
    given = {port.name: given[port.name] for port in binding.spec.inputs if port.name in given}
    return given, [one for several in faults.values() for one in several]
