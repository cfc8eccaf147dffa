"""One task as written made one or more tasks as run, or the reasons why it cannot be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from services.planner.llm.argument_binding import Binding, bound
from services.planner.llm.names import nearest, shares_a_word
from services.planner.llm.parameters import turned, unknown
from services.planner.llm.plan_format import Sketch, Wrong
from services.planner.llm.port_values import Scene, filled, missing, settled
from services.planner.llm.task_split import split
from services.planner.llm.values import Foreign, Mixed, Pointer, meanings
from services.planner.plan import Argument, Single, Spec
from services.planner.plan_check import unoffered

Given = Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task becomes: the arguments of each, and the parameters that all share."""

    spec: Spec
    given: tuple[Given, ...]
    parameters_json: str


def shaped(sketch: Sketch, scene: Scene) -> Shape | list[Wrong]:
    """A task with everything mended that can be, or every reason why it cannot run."""
    name = nearest(sketch.task, scene.catalogue)
    if name is not None:
        return _shaped(sketch, scene.catalogue[name], scene)
    shapes = [
        _shaped(sketch, spec, scene) for spec in scene.catalogue.values() if shares_a_word(sketch.task, spec.name)
    ]
    fitting = [shape for shape in shapes if isinstance(shape, Shape)]
    return fitting[0] if len(fitting) == 1 else [_unoffered(sketch, scene)]


def waits_for(sketch: Sketch, scene: Scene) -> set[int]:
    """The ids whose outputs a task needs: what it points to, and what it says if a port is still empty."""
    ids = {
        meaning.wire_id
        for _, value in sketch.given
        for meaning in meanings(value, scene.names)
        if isinstance(meaning, Pointer)
    }
    name = nearest(sketch.task, scene.catalogue)
    if sketch.needs and name and bound(sketch, scene.catalogue[name], scene.names, scene.inputs).missing:
        ids.update(sketch.needs)
    return ids


def _shaped(sketch: Sketch, spec: Spec, scene: Scene) -> Shape | list[Wrong]:
    binding = bound(sketch, spec, scene.names, scene.inputs)
    given, wrong = _ports(sketch, binding, scene)
    parameters, ill = turned(binding.parameters, spec, scene.names)
    wrong += ill + [unknown(name, spec) for name in binding.stray]
    pieces = split(given, spec)
    if isinstance(pieces, Wrong):
        wrong.append(pieces)
    if wrong or isinstance(pieces, Wrong):
        return wrong
    return Shape(spec, tuple(pieces), json.dumps(parameters, ensure_ascii=False) if parameters else "")


def _ports(sketch: Sketch, binding: Binding, scene: Scene) -> tuple[dict[str, list[Single]], list[Wrong]]:
    given: dict[str, list[Single]] = {}
    wrong: dict[str, list[Wrong]] = {port.name: [missing(port, binding.spec)] for port in binding.missing}
    for port in binding.spec.inputs:
        said = binding.ports.get(port.name, [])
        singles, amiss = settled(port, said, scene) if said else ([], [])
        if amiss:
            wrong[port.name] = amiss
        elif singles:
            given[port.name] = singles
    for port in binding.spec.inputs:
        said = binding.ports.get(port.name, [])
        if port.name not in wrong or len(said) > 1 or any(isinstance(item, Foreign | Mixed) for item in said):
            continue
        used = {single for singles in given.values() for single in singles}
        if found := filled(port, sketch.needs, used, scene):
            given[port.name] = found
            del wrong[port.name]
    given = {port.name: given[port.name] for port in binding.spec.inputs if port.name in given}
    return given, [one for several in wrong.values() for one in several]


def _unoffered(sketch: Sketch, scene: Scene) -> Wrong:
    return Wrong(*unoffered(sketch.task, scene.catalogue))
