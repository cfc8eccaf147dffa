"""Converts a task as an LLM wrote it into valid tasks, or the faults that prevent it."""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.planner.llm.argument_binding import Binding, bind_arguments, normalize_name, words
from services.planner.llm.plan_format import ParsedTask
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
    interpret,
    is_external_reference,
)
from services.planner.plan import (
    SPLIT_LIMIT,
    Argument,
    Input,
    Json,
    Many,
    Reference,
    Single,
    Task,
    Text,
    Value,
    modalities,
)
from services.planner.plan_assembler import PlanAssembler
from services.planner.plan_check import Fault, list_names, schema_violation, unavailable_task
from services.planner.task_spec import Catalogue, Modality, Parameter, Port, Spec

_ALIASES = {
    "asr": "automatic-speech-recognition",
    "speech-recognition": "automatic-speech-recognition",
    "speech-to-text": "automatic-speech-recognition",
    "transcription": "automatic-speech-recognition",
    "tts": "text-to-speech",
    "speech-synthesis": "text-to-speech",
    "ocr": "image-to-text",
    "optical-character-recognition": "image-to-text",
    "image-captioning": "image-to-text",
    "vqa": "visual-question-answering",
    "ner": "token-classification",
    "named-entity-recognition": "token-classification",
    "sentiment-analysis": "text-classification",
    "sentiment-classification": "text-classification",
    "text-summarization": "summarization",
    "image-generation": "text-to-image",
    "image-editing": "image-to-image",
    "super-resolution": "image-super-resolution",
    "image-inpainting": "inpainting",
    "pose-estimation": "keypoint-detection",
}
"""Common names of tasks that the Hub calls otherwise."""

Arguments = Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class NormalizationContext:
    """Everything a task may refer to."""

    catalogue: Catalogue
    inputs: Mapping[str, Value]
    names: InputNames
    plan: PlanAssembler


@dataclass(frozen=True, slots=True)
class NormalizedTask:
    """Result of a parsed task: arguments of each resulting task, and the parameters they share."""

    spec: Spec
    given: tuple[Arguments, ...]
    parameters_json: str


def normalize_task(parsed: ParsedTask, context: NormalizationContext) -> NormalizedTask | list[Fault]:
    """Repairs and validates a parsed task; returns all faults if it cannot run."""
    name = match_task(parsed.task, context.catalogue)
    if name is None:
        return [Fault(*unavailable_task(parsed.task, context.catalogue))]
    return _normalize(parsed, context.catalogue[name], context)


def waits_for(parsed: ParsedTask, context: NormalizationContext) -> set[int]:
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


def _normalize(parsed: ParsedTask, spec: Spec, context: NormalizationContext) -> NormalizedTask | list[Fault]:
    binding = bind_arguments(parsed, spec, context.names, context.inputs)
    given, faults = _ports(parsed, binding, context)
    parameters, parameter_faults = _convert_parameters(binding.parameters, spec, context.names)
    faults += parameter_faults + [_unknown_argument(name, spec) for name in binding.unmatched]
    pieces = _split(given, spec)
    if isinstance(pieces, Fault):
        faults.append(pieces)
    if faults or isinstance(pieces, Fault):
        return faults
    return NormalizedTask(spec, tuple(pieces), json.dumps(parameters, ensure_ascii=False) if parameters else "")


def _ports(
    parsed: ParsedTask, binding: Binding, context: NormalizationContext
) -> tuple[dict[str, list[Single]], list[Fault]]:
    given: dict[str, list[Single]] = {}
    faults: dict[str, list[Fault]] = {port.name: [_missing_port(port, binding.spec)] for port in binding.missing}
    for port in binding.spec.inputs:
        interpretations = binding.ports.get(port.name, [])
        singles, port_faults = _resolve_port(port, interpretations, context) if interpretations else ([], [])
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
        if found := _infer_port_value(port, parsed.needs, used, context):
            given[port.name] = found
            del faults[port.name]
    given = {port.name: given[port.name] for port in binding.spec.inputs if port.name in given}
    return given, [one for several in faults.values() for one in several]


def match_task(requested: str, names: Collection[str]) -> str | None:
    """Returns the task that a name means: the same words in any spelling, or an alias. None if it is not available."""
    if requested in names:
        return requested
    alias = _ALIASES.get("-".join(words(requested)))
    if alias in names:
        return alias
    found = [name for name in names if normalize_name(name) == normalize_name(requested)]
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------- ports

_STATEMENT_PORTS = {"question", "instruction"}
"""Ports for statements of the user; values are never inferred for them."""


def _resolve_port(
    port: Port, interpretations: Sequence[Interpretation], context: NormalizationContext
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


def _infer_port_value(
    port: Port, needs: Sequence[int] | None, used: Collection[Single], context: NormalizationContext
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


def _output_for(port: Port, spec: Spec, resource: str = "") -> str | None:
    """Returns the output of a task that fits a port: the named one, else the most similar."""
    fitting = [output for output in spec.outputs if output.modality is port.modality and (port.many or not output.many)]
    kind, written = port.modality.name.lower(), normalize_name(resource)
    preferred = [*([written] if written != kind else []), normalize_name(port.name), kind]
    ranked = sorted(fitting, key=lambda output: [normalize_name(output.name) != name for name in preferred])
    return ranked[0].name if ranked else None


def _missing_port(port: Port, spec: Spec) -> Fault:
    """Returns the fault of a missing required port."""
    remedy = f"give it a {port.modality}: a value, an input or an earlier task's output"
    return Fault(f"the required port {port.name} of {spec.name} is missing", remedy)


def _outputs(
    port: Port, groups: Sequence[Sequence[Task]], used: Collection[Single], context: NormalizationContext
) -> Iterator[list[Single]]:
    for group in groups:
        spec = context.catalogue.get(group[0].task)
        output = _output_for(port, spec) if spec else None
        if output and Reference(group[0].id, output) not in used:
            yield [Reference(task.id, output) for task in group]


def _fitting(port: Port, inputs: Mapping[str, Value]) -> list[str]:
    return [name for name, value in inputs.items() if port.modality in modalities(value)]


# ---------------------------------------------------------------- written values


def _single(port: Port, item: Interpretation, context: NormalizationContext) -> list[Single] | Fault:
    if isinstance(item, OutputReference):
        return _output(port, item, context)
    if isinstance(item, InputReference):
        return _input(port, item.name, context.inputs)
    if isinstance(item, TextLiteral | JsonLiteral):
        return _literal(port, item)
    return _rejected(port, item, context.inputs)


def _output(port: Port, pointer: OutputReference, context: NormalizationContext) -> list[Single] | Fault:
    group = context.plan.groups.get(pointer.wire_id)
    if not group:
        message = f"port {port.name} refers to task {pointer.wire_id}, which is not there"
        return Fault(message, "refer to one that is")
    spec = context.catalogue.get(group[0].task)
    output = _output_for(port, spec, pointer.resource) if spec else None
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


# ---------------------------------------------------------------- parameters

MAX_NUMBER = 2**53
"""Larger integers lose precision in JSON."""

_BOOLEANS = {"true": True, "false": False}


def _convert_parameters(
    given: Mapping[str, object], spec: Spec, names: InputNames
) -> tuple[dict[str, object], list[Fault]]:
    """Converts parameters to their schemas' types; returns the values and the faults of the others."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    values: dict[str, object] = {}
    faults: list[Fault] = []
    for name, value in given.items():
        fit = _fit(known[name], value, names)
        if isinstance(fit, Fault):
            faults.append(fit)
        else:
            values[name] = fit[0]
    return values, faults


def _unknown_argument(name: str, spec: Spec) -> Fault:
    """Returns the fault of an argument that the task does not have."""
    ports = list_names([port.name for port in spec.inputs])
    parameters = list_names([parameter.name for parameter in spec.parameters])
    what = f"no input port or parameter {name[:60]}" if name else "no place for a value without a name"
    return Fault(f"{spec.name} has {what}", f"it has {ports}" + (f"; {parameters}" if parameters else ""))


def _fit(parameter: Parameter, value: object, names: InputNames) -> tuple[object] | Fault:
    if is_external_reference(value):
        return Fault(f"parameter {parameter.name} is given a path or an address", "give it a plain value")
    if isinstance(value, str) and any(isinstance(item, OutputReference) for item in interpret(value, names)):
        return Fault(f"parameter {parameter.name} takes a value, not another task's output", "write the value itself")
    for form in _forms(value):
        if _is_exact(form) and not schema_violation(parameter, form):
            return (form,)
    reason = schema_violation(parameter, value) if _is_exact(value) else "it is too large a number"
    return Fault(f"parameter {parameter.name}: {reason}", f"it must match {parameter.json_schema}")


def _forms(value: object) -> Iterator[object]:
    """Yields a value, then other values that a text may stand for: a boolean, a number or a list."""
    yield value
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _BOOLEANS:
            yield _BOOLEANS[text.lower()]
        with contextlib.suppress(ValueError):
            number = float(text)
            yield int(number) if number.is_integer() else number
        yield [part.strip() for part in text.split(",") if part.strip()]


def _is_exact(value: object) -> bool:
    """Whether all numbers are finite and exact in JSON."""
    if isinstance(value, list):
        return all(map(_is_exact, value))
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    return not isinstance(value, int | float) or -MAX_NUMBER <= value <= MAX_NUMBER


# ---------------------------------------------------------------- several values for a port that takes one


def _split(given: Mapping[str, Sequence[Single]], spec: Spec) -> list[dict[str, Argument]] | Fault:
    """Returns the arguments of each resulting task; ports with equal numbers of values are paired."""
    many = {port.name for port in spec.inputs if port.many}
    sizes = {name: len(items) for name, items in given.items() if name not in many and len(items) > 1}
    if len(set(sizes.values())) > 1:
        counts = " and ".join(f"{name} {size}" for name, size in sizes.items())
        return Fault(f"its ports are given different numbers of things: {counts}", "write one task for each")
    tasks = max(sizes.values(), default=1)
    if tasks > SPLIT_LIMIT:
        message = f"port {list_names(sizes)} is given {tasks} things, and one task becomes {SPLIT_LIMIT} at most"
        return Fault(message, f"give it {SPLIT_LIMIT} or fewer")
    return [
        {name: Many(tuple(items)) if name in many else items[at % len(items)] for name, items in given.items()}
        for at in range(tasks)
    ]
