"""Parameters as their schemas want them."""

import contextlib
import json
from collections.abc import Iterator, Mapping

from services.planner.llm.plan_format import Wrong
from services.planner.llm.values import Names, Pointer, foreign, meanings
from services.planner.plan import Parameter, Spec
from services.planner.plan_check import listed, objection

LARGEST = 2**53
"""Numbers beyond this one change on their way through JSON."""

_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def turned(given: Mapping[str, object], spec: Spec, names: Names) -> tuple[dict[str, object], list[Wrong]]:
    """The parameters, each gently made what its schema asks for, and what is wrong with the others."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    values: dict[str, object] = {}
    wrong: list[Wrong] = []
    for name, value in given.items():
        fit = _fit(known[name], value, names)
        if isinstance(fit, Wrong):
            wrong.append(fit)
        else:
            values[name] = fit[0]
    return values, wrong


def unknown(name: str, spec: Spec) -> Wrong:
    """That a task takes nothing of this name."""
    ports = listed([port.name for port in spec.inputs])
    knobs = listed([parameter.name for parameter in spec.parameters])
    what = f"no input port or parameter {name[:60]}" if name else "no place for a value without a name"
    return Wrong(f"{spec.name} has {what}", f"it has {ports}" + (f"; {knobs}" if knobs else ""))


def _fit(parameter: Parameter, value: object, names: Names) -> tuple[object] | Wrong:
    if foreign(value):
        return Wrong(f"parameter {parameter.name} is given a path or an address", "give it a plain value")
    if isinstance(value, str) and any(isinstance(item, Pointer) for item in meanings(value, names)):
        return Wrong(f"parameter {parameter.name} takes a value, not another task's output", "write the value itself")
    for form in _forms(value):
        if _sane(form) and not objection(parameter, form):
            return (form,)
    reason = objection(parameter, value) if _sane(value) else "it is too large a number"
    return Wrong(f"parameter {parameter.name}: {reason}", f"it must match {parameter.json_schema}")


def _forms(value: object) -> Iterator[object]:
    """A value as it is, then what else may have been meant."""
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    yield value
    if isinstance(value, str):
        yield from _read(value)
    elif isinstance(value, int | float):
        yield json.dumps(value)
    if not isinstance(value, list):
        yield [value]


def _read(text: str) -> Iterator[object]:
    word = text.strip()
    if word.lower() in _TRUTH:
        yield _TRUTH[word.lower()]
    yield word.lower()
    with contextlib.suppress(ValueError):
        number = float(word)
        yield int(number) if number.is_integer() else number
    if word.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(word)
    if "," in word:
        yield [part.strip() for part in word.split(",") if part.strip()]


def _sane(value: object) -> bool:
    """Whether every number in it is finite and keeps its value in JSON."""
    if isinstance(value, list):
        return all(map(_sane, value))
    if isinstance(value, dict):
        return all(map(_sane, value.values()))
    return not isinstance(value, int | float) or -LARGEST <= value <= LARGEST
