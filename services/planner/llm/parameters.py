"""Converts parameter values to the types of their JSON schemas."""

import contextlib
from collections.abc import Iterator, Mapping

from services.planner.llm.values import InputNames, OutputReference, interpret, is_external_reference
from services.planner.plan_check import Fault, list_names, schema_violation
from services.planner.task_spec import Parameter, Spec

MAX_NUMBER = 2**53
"""Larger integers lose precision in JSON."""

_BOOLEANS = {"true": True, "false": False}


def convert_parameters(
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


def unknown_argument(name: str, spec: Spec) -> Fault:
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
