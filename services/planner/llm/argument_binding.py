"""Assigns a task's arguments to ports and parameters, whatever names the LLM gave them."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from services.planner.llm.plan_format import ParsedTask
from services.planner.llm.values import (
    InputNames,
    InputReference,
    Interpretation,
    OutputReference,
    TextLiteral,
    interpret,
)
from services.planner.plan import Value, modalities
from services.planner.task_spec import Modality, Port, Spec

_PORT_SYNONYMS = {"query": "question"}
"""Other names of ports, where values do not tell them apart."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Arguments of a task by port and parameter; `unmatched` are names that match neither."""

    spec: Spec
    ports: dict[str, list[Interpretation]] = field(default_factory=dict)
    parameters: dict[str, object] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[Port]:
        """Required ports without an argument."""
        return [port for port in self.spec.inputs if port.required and port.name not in self.ports]


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    value: object
    interpretations: Sequence[Interpretation]

    @property
    def stem(self) -> str:
        """The name without a number at its end."""
        return normalize_name(self.name).rstrip("0123456789")


_Target = Port | str | None


def bind_arguments(parsed: ParsedTask, spec: Spec, names: InputNames, inputs: Mapping[str, Value]) -> Binding:
    """Binds arguments: by exact name, by similar name, as parameter, by value, then as further values of a port."""
    binding = Binding(spec)
    written = (_Argument(name, value, interpret(value, names)) for name, value in parsed.given)
    arguments = [argument for argument in written if argument.interpretations]

    def by_value(argument: _Argument, binding: Binding) -> _Target:
        return _by_value(argument, binding, inputs)

    for match in (_by_exact_name, _by_similar_name, _by_parameter_name, by_value, by_value, _by_numbered_name):
        arguments = list(_bind(arguments, match, binding))
    binding.unmatched.extend(argument.name for argument in arguments)
    return binding


def _bind(
    arguments: Sequence[_Argument], match: Callable[[_Argument, Binding], _Target], binding: Binding
) -> Iterator[_Argument]:
    """Binds the arguments that match; yields the others."""
    for argument in arguments:
        target = match(argument, binding)
        if target is None:
            yield argument
        elif isinstance(target, Port):
            binding.ports.setdefault(target.name, []).extend(argument.interpretations)
        else:
            binding.parameters.setdefault(target, argument.value)


def _by_exact_name(argument: _Argument, binding: Binding) -> _Target:
    port = next((port for port in binding.spec.inputs if port.name == argument.name), None)
    return port or (argument.name if binding.spec.takes(argument.name) else None)


def _by_similar_name(argument: _Argument, binding: Binding) -> _Target:
    """Ignores case, separators, plurals and numbers."""
    stem = _PORT_SYNONYMS.get(argument.stem, argument.stem).rstrip("s")
    return next((port for port in _unbound_ports(binding) if normalize_name(port.name).rstrip("s") == stem), None)


def _by_parameter_name(argument: _Argument, binding: Binding) -> _Target:
    return match_parameter(
        argument.name,
        [parameter.name for parameter in binding.spec.parameters if parameter.name not in binding.parameters],
    )


def _by_value(argument: _Argument, binding: Binding, inputs: Mapping[str, Value]) -> _Target:
    """Returns the only port without an argument that accepts the values."""
    ports = [
        port
        for port in _unbound_ports(binding)
        if all(_accepts(port, item, inputs) for item in argument.interpretations)
    ]
    return ports[0] if len(ports) == 1 else None


def _by_numbered_name(argument: _Argument, binding: Binding) -> _Target:
    """image1 and image2 are several values for the port image."""
    return next(
        (port for port in binding.spec.inputs if argument.stem == port.name != normalize_name(argument.name)), None
    )


def _accepts(port: Port, item: Interpretation, inputs: Mapping[str, Value]) -> bool:
    if isinstance(item, InputReference):
        return port.modality in modalities(inputs[item.name])
    if isinstance(item, OutputReference):
        modality = Modality.__members__.get(item.resource.upper())
        return modality is None or modality is port.modality
    return isinstance(item, TextLiteral) and port.modality is Modality.TEXT


def _unbound_ports(binding: Binding) -> Iterator[Port]:
    return (port for port in binding.spec.inputs if port.name not in binding.ports)


# ---------------------------------------------------------------- names

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_LONGEST = 120


def words(name: str) -> tuple[str, ...]:
    """Splits a name into lower-case words."""
    return _words(name[:_LONGEST])


@lru_cache(maxsize=8_192)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORD.findall(name))


def normalize_name(name: str) -> str:
    """The words of a name, joined without separators."""
    return "".join(words(name))


_SYNONYMS = {"lang": "language", "src": "source", "tgt": "target", "classes": "labels"}


def match_parameter(requested: str, names: Collection[str]) -> str | None:
    """Returns the only parameter whose name contains all words of the given one."""
    query = {_SYNONYMS.get(word, word) for word in words(requested)}
    found = ((name, set(words(name))) for name in names)
    matching = [name for name, known in found if query and query <= known and "negative" not in known - query]
    return matching[0] if len(matching) == 1 else None
