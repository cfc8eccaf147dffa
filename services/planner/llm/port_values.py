"""What a port is given in the end: what was written if it fits, else the one thing there is that does."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.planner.llm.names import plain
from services.planner.llm.plan_format import Wrong
from services.planner.llm.values import Absent, Data, Foreign, Given, Meaning, Mixed, Names, Pointer, Words
from services.planner.plan import (
    Catalogue,
    Input,
    Json,
    Modality,
    Port,
    Reference,
    Single,
    Spec,
    Task,
    Text,
    Value,
    modalities,
)
from services.planner.plan_check import listed

_SAID = {"question", "instruction"}
"""Ports for what somebody says: no document is put there unasked."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a task may be given; a group is what one task as written became."""

    catalogue: Catalogue
    inputs: Mapping[str, Value]
    names: Names
    groups: dict[int, Sequence[Task]] = field(default_factory=dict)
    """By the model's ids."""
    standing: list[Sequence[Task]] = field(default_factory=list)


def settled(port: Port, said: Sequence[Meaning], scene: Scene) -> tuple[list[Single], list[Wrong]]:
    """What a port is given by what was written for it, and why not."""
    if port.modality is Modality.JSON and all(isinstance(item, Data | Words) for item in said):
        return _json(port, said)
    given: list[Single] = []
    wrong: list[Wrong] = []
    for item in said:
        single = _single(port, item, scene)
        if isinstance(single, Wrong):
            wrong.append(single)
        else:
            given += single
    return given, wrong


def filled(port: Port, needs: Sequence[int] | None, used: Collection[Single], scene: Scene) -> list[Single] | None:
    """The one artifact or output that fits a port and is not used yet; first among what the task says it needs."""
    if port.modality is Modality.TEXT and port.name in _SAID:
        return None
    named = [scene.groups[need] for need in needs or () if need in scene.groups]
    found = list(_outputs(port, named, used, scene))
    if found and port.many:
        return [single for group in found for single in group]
    if not found:
        found = [[Input(name)] for name in _fitting(port, scene.inputs) if Input(name) not in used]
        found += _outputs(port, scene.standing if needs != () else (), used, scene)
    return found[0] if len(found) == 1 else None


def output_for(port: Port, spec: Spec, resource: str = "") -> str | None:
    """The output of a task that a port can take: the one that is named, else the one most like the port."""
    fitting = [output for output in spec.outputs if output.modality is port.modality and (port.many or not output.many)]
    kind = port.modality.name.lower()
    said = plain(resource)
    liked = (plain(port.name), kind) if said == kind else (said, plain(port.name), kind)
    ranked = sorted(fitting, key=lambda output: [plain(output.name) != name for name in liked])
    return ranked[0].name if ranked else None


def missing(port: Port, spec: Spec) -> Wrong:
    """That nothing was found for a required port."""
    remedy = f"give it a {port.modality}: a value, an input or an earlier task's output"
    return Wrong(f"the required port {port.name} of {spec.name} is missing", remedy)


def _outputs(
    port: Port, groups: Sequence[Sequence[Task]], used: Collection[Single], scene: Scene
) -> Iterator[list[Single]]:
    for group in groups:
        spec = scene.catalogue.get(group[0].task)
        output = output_for(port, spec) if spec else None
        if output and Reference(group[0].id, output) not in used:
            yield [Reference(task.id, output) for task in group]


def _fitting(port: Port, inputs: Mapping[str, Value]) -> list[str]:
    """The inputs a port can take; those for which it is the natural one, if there are any."""
    fitting = {name: modalities(value) for name, value in inputs.items() if port.modality in modalities(value)}
    return [name for name, kinds in fitting.items() if kinds[0] is port.modality] or list(fitting)


# ---------------------------------------------------------------- what was written


def _single(port: Port, item: Meaning, scene: Scene) -> list[Single] | Wrong:
    if isinstance(item, Pointer):
        return _pointed(port, item, scene)
    if isinstance(item, Given):
        return _input(port, item.name, scene.inputs)
    if isinstance(item, Words | Data):
        return _literal(port, item)
    return _refused(port, item, scene.inputs)


def _pointed(port: Port, pointer: Pointer, scene: Scene) -> list[Single] | Wrong:
    group = scene.groups.get(pointer.wire_id)
    if not group:
        message = f"port {port.name} refers to task {pointer.wire_id}, which is not there"
        return Wrong(message, "refer to one that is")
    spec = scene.catalogue.get(group[0].task)
    output = output_for(port, spec, pointer.resource) if spec else None
    if output:
        return [Reference(task.id, output) for task in group]
    gives = listed({str(output.modality) for output in spec.outputs}) if spec else "nothing known"
    message = f"port {port.name} takes a {port.modality}, but task {pointer.wire_id} ({group[0].task}) gives {gives}"
    return Wrong(message, f"refer to a {port.modality}, or put a task between that makes one")


def _input(port: Port, name: str, inputs: Mapping[str, Value]) -> list[Single] | Wrong:
    kinds = modalities(inputs[name])
    if port.modality in kinds:
        return [Input(name)]
    is_a = " or ".join(kinds) or "of no known kind"
    return Wrong(f"port {port.name} takes a {port.modality}, but input {name} is {is_a}", f"give it a {port.modality}")


def _literal(port: Port, item: Words | Data) -> list[Single] | Wrong:
    if port.modality is Modality.TEXT and isinstance(item, Words):
        return [Text(item.text)]
    if port.modality is Modality.TEXT and isinstance(item, Data) and isinstance(item.value, bool | int | float):
        return [Text(json.dumps(item.value))]
    kind = "text" if isinstance(item, Words) else "data"
    message = f"port {port.name} takes a {port.modality}, but what it is given is {kind}"
    return Wrong(message, f"give it a {port.modality}: an input or an earlier task's output")


def _refused(port: Port, item: Absent | Foreign | Mixed, inputs: Mapping[str, Value]) -> Wrong:
    there = f"the run has {listed(inputs)}" if inputs else "send it with the request"
    if isinstance(item, Absent):
        return Wrong(f"there is no input {item.name}", there)
    if isinstance(item, Foreign):
        return Wrong(f"port {port.name} is given a path or an address that is no input of the run", there)
    message = f"port {port.name} is given {item.name} within other words"
    return Wrong(message, "give the reference alone, or the words themselves")


def _json(port: Port, said: Sequence[Meaning]) -> tuple[list[Single], list[Wrong]]:
    values = [item.value if isinstance(item, Data) else item.text for item in said if isinstance(item, Data | Words)]
    try:
        written = json.dumps(values[0] if len(values) == 1 else values, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return [], [Wrong(f"what it is given for port {port.name} is not valid JSON", "correct it")]
    return [Json(written)], []
