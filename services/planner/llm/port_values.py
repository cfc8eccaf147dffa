"""Resolves the values of ports: what the LLM wrote if it fits, else the only fitting input or output."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.planner.llm.names import normalize_name
from services.planner.llm.values import (
    EmbeddedReference,
    ExternalReference,
    InputNames,
    InputReference,
    Interpretation,
    JsonLiteral,
    MissingInput,
    OutputReference,
    TextLiteral,
)
from services.planner.plan import Input, Json, Reference, Single, Task, Text, Value, modalities
from services.planner.plan_assembler import PlanAssembler
from services.planner.plan_check import Fault, list_names
from services.planner.task_spec import Catalogue, Modality, Port, Spec

_STATEMENT_PORTS = {"question", "instruction"}
"""Ports for statements of the user; values are never inferred for them."""


@dataclass(frozen=True, slots=True)
class RepairContext:
    """Everything a task may refer to."""

    catalogue: Catalogue
    inputs: Mapping[str, Value]
    names: InputNames
    plan: PlanAssembler


def resolve_port(
    port: Port, interpretations: Sequence[Interpretation], context: RepairContext
) -> tuple[list[Single], list[Fault]]:
    """Resolves the values written for a port; returns arguments and faults."""
    if port.modality is Modality.JSON and all(isinstance(item, JsonLiteral | TextLiteral) for item in interpretations):
        return _json(port, interpretations)
    arguments: list[Single] = []
    faults: list[Fault] = []
    for item in interpretations:
        single = _single(port, item, context)
        if isinstance(single, Fault):
            faults.append(single)
        else:
            arguments += single
    return arguments, faults


def infer_port_value(
    port: Port, needs: Sequence[int] | None, used: Collection[Single], context: RepairContext
) -> list[Single] | None:
    """Returns the only unused input or output that fits a port; declared dependencies first. None if ambiguous."""
    if port.modality is Modality.TEXT and port.name in _STATEMENT_PORTS:
        return None
    named = [context.plan.groups[need] for need in needs or () if need in context.plan.groups]
    candidates = list(_outputs(port, named, used, context))
    if candidates and port.many:
        return [single for group in candidates for single in group]
    if not candidates:
        candidates = [[Input(name)] for name in _fitting(port, context.inputs) if Input(name) not in used]
        candidates += _outputs(port, context.plan.sources if needs != () else (), used, context)
    return candidates[0] if len(candidates) == 1 else None


def output_for(port: Port, spec: Spec, resource: str = "") -> str | None:
    """Returns the output of a task that fits a port: the named one, else the most similar."""
    fitting = [output for output in spec.outputs if output.modality is port.modality and (port.many or not output.many)]
    kind = port.modality.name.lower()
    interpretations = normalize_name(resource)
    preferred = (
        (normalize_name(port.name), kind)
        if interpretations == kind
        else (interpretations, normalize_name(port.name), kind)
    )
    ranked = sorted(fitting, key=lambda output: [normalize_name(output.name) != name for name in preferred])
    return ranked[0].name if ranked else None


def missing(port: Port, spec: Spec) -> Fault:
    """Returns the fault of a missing required port."""
    remedy = f"give it a {port.modality}: a value, an input or an earlier task's output"
    return Fault(f"the required port {port.name} of {spec.name} is missing", remedy)


def _outputs(
    port: Port, groups: Sequence[Sequence[Task]], used: Collection[Single], context: RepairContext
) -> Iterator[list[Single]]:
    for group in groups:
        spec = context.catalogue.get(group[0].task)
        output = output_for(port, spec) if spec else None
        if output and Reference(group[0].id, output) not in used:
            yield [Reference(task.id, output) for task in group]


def _fitting(port: Port, inputs: Mapping[str, Value]) -> list[str]:
    return [name for name, value in inputs.items() if port.modality in modalities(value)]


# ---------------------------------------------------------------- written values


def _single(port: Port, item: Interpretation, context: RepairContext) -> list[Single] | Fault:
    if isinstance(item, OutputReference):
        return _output(port, item, context)
    if isinstance(item, InputReference):
        return _input(port, item.name, context.inputs)
    if isinstance(item, TextLiteral | JsonLiteral):
        return _literal(port, item)
    return _rejected(port, item, context.inputs)


def _output(port: Port, pointer: OutputReference, context: RepairContext) -> list[Single] | Fault:
    group = context.plan.groups.get(pointer.wire_id)
    if not group:
        message = f"port {port.name} refers to task {pointer.wire_id}, which is not there"
        return Fault(message, "refer to one that is")
    spec = context.catalogue.get(group[0].task)
    output = output_for(port, spec, pointer.resource) if spec else None
    if output:
        return [Reference(task.id, output) for task in group]
    modality_names = list_names({str(output.modality) for output in spec.outputs}) if spec else "nothing known"
    message = (
        f"port {port.name} takes a {port.modality}, but task {pointer.wire_id} ({group[0].task}) gives {modality_names}"
    )
    return Fault(message, f"refer to a {port.modality}, or put a task between that makes one")


def _input(port: Port, name: str, inputs: Mapping[str, Value]) -> list[Single] | Fault:
    kinds = modalities(inputs[name])
    if port.modality in kinds:
        return [Input(name)]
    is_a = " or ".join(kinds) or "of no known kind"
    return Fault(f"port {port.name} takes a {port.modality}, but input {name} is {is_a}", f"give it a {port.modality}")


def _literal(port: Port, item: TextLiteral | JsonLiteral) -> list[Single] | Fault:
    if port.modality is Modality.TEXT and isinstance(item, TextLiteral):
        return [Text(item.text)]
    if port.modality is Modality.TEXT and isinstance(item, JsonLiteral) and isinstance(item.value, bool | int | float):
        return [Text(json.dumps(item.value))]
    kind = "text" if isinstance(item, TextLiteral) else "data"
    message = f"port {port.name} takes a {port.modality}, but what it is given is {kind}"
    return Fault(message, f"give it a {port.modality}: an input or an earlier task's output")


def _rejected(
    port: Port, item: MissingInput | ExternalReference | EmbeddedReference, inputs: Mapping[str, Value]
) -> Fault:
    remedy = f"the run has {list_names(inputs)}" if inputs else "send it with the request"
    if isinstance(item, MissingInput):
        return Fault(f"there is no input {item.name}", remedy)
    if isinstance(item, ExternalReference):
        return Fault(f"port {port.name} is given a path or an address that is no input of the run", remedy)
    message = f"port {port.name} is given {item.name} within other words"
    return Fault(message, "give the reference alone, or the words themselves")


def _json(port: Port, interpretations: Sequence[Interpretation]) -> tuple[list[Single], list[Fault]]:
    values = [
        item.value if isinstance(item, JsonLiteral) else item.text
        for item in interpretations
        if isinstance(item, JsonLiteral | TextLiteral)
    ]
    try:
        content = json.dumps(values[0] if len(values) == 1 else values, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return [], [Fault(f"what it is given for port {port.name} is not valid JSON", "correct it")]
    return [Json(content)], []
