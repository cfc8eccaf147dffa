"""Assigns a task's arguments to ports and parameters, whatever names the LLM gave them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.planner.llm.names import match_parameter, normalize_name, words
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

_MODALITIES = {
    **dict.fromkeys(("image", "img", "picture", "photo", "pic", "page", "scan", "document", "frame"), Modality.IMAGE),
    **dict.fromkeys(("audio", "sound", "speech", "recording", "voice", "wav", "music"), Modality.AUDIO),
    **dict.fromkeys(("video", "clip", "movie"), Modality.VIDEO),
    **dict.fromkeys(("table", "csv", "spreadsheet", "sheet", "dataframe"), Modality.TABLE),
    **dict.fromkeys(("json", "data"), Modality.JSON),
    **dict.fromkeys(
        ("text", "prompt", "sentence", "content", "passage", "paragraph", "caption", "string", "context", "query"),
        Modality.TEXT,
    ),
}
"""Modalities suggested by words in argument names."""

_QUESTIONS = {"query", "q", "ask", "prompt"}


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


def bind_arguments(parsed: ParsedTask, spec: Spec, names: InputNames, inputs: Mapping[str, Value]) -> Binding:
    """Binds arguments: by exact name, by similar name, by modality, as parameter, then by value."""
    binding = Binding(spec)
    remaining = [(name, value) for name, value in parsed.given if not _empty(value)]
    for match in (_by_exact_name, _by_similar_name, _by_modality, _by_parameter_name, _by_value):
        unbound = []
        for name, value in remaining:
            interpretations = interpret(value, names)
            target = match(name, interpretations, binding, inputs)
            if target is None:
                unbound.append((name, value))
            elif isinstance(target, Port):
                _assign(binding, target, interpretations)
            else:
                binding.parameters.setdefault(target, value)
        remaining = unbound
    binding.unmatched.extend(name for name, value in remaining if not _is_duplicate(interpret(value, names), binding))
    return binding


def _assign(binding: Binding, port: Port, interpretations: Sequence[Interpretation]) -> None:
    items = binding.ports.setdefault(port.name, [])
    items.extend(item for item in interpretations if item not in items or port.many or len(interpretations) > 1)
    if not items:
        del binding.ports[port.name]


def _empty(value: object) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


_Target = Port | str | None


def _by_exact_name(
    name: str, _interpretations: Sequence[Interpretation], binding: Binding, _inputs: Mapping[str, Value]
) -> _Target:
    port = next((port for port in binding.spec.inputs if port.name == name), None)
    return port or (name if binding.spec.takes(name) else None)


def _by_similar_name(
    name: str, _interpretations: Sequence[Interpretation], binding: Binding, _inputs: Mapping[str, Value]
) -> _Target:
    base = normalize_name(name).rstrip("0123456789")
    port = next(
        (
            port
            for port in _unbound_ports(binding)
            if base and normalize_name(port.name).rstrip("s") == base.rstrip("s")
        ),
        None,
    )
    return port or next(
        (port for port in _unbound_ports(binding) if port.name == "question" and base in _QUESTIONS), None
    )


def _by_parameter_name(
    name: str, _interpretations: Sequence[Interpretation], binding: Binding, _inputs: Mapping[str, Value]
) -> _Target:
    if any(_MODALITIES.get(word) is Modality.TEXT for word in words(name)):
        return None  # "prompt" is not "negative_prompt"
    return match_parameter(
        name, [parameter.name for parameter in binding.spec.parameters if parameter.name not in binding.parameters]
    )


def _by_modality(
    name: str, _interpretations: Sequence[Interpretation], binding: Binding, _inputs: Mapping[str, Value]
) -> _Target:
    interpretations = {_MODALITIES[word] for word in map(_singular, words(name)) if word in _MODALITIES}
    if len(interpretations) != 1:
        return None
    unbound_ports = [port for port in _unbound_ports(binding) if port.modality in interpretations]
    if not unbound_ports:  # image1, image2: several values for the only port
        base = normalize_name(name).rstrip("0123456789")
        return next(
            (port for port in binding.spec.inputs if normalize_name(port.name) == base != normalize_name(name)), None
        )
    return unbound_ports[0] if len(unbound_ports) == 1 else None


def _by_value(
    _name: str, interpretations: Sequence[Interpretation], binding: Binding, inputs: Mapping[str, Value]
) -> _Target:
    unbound_ports = [
        port
        for port in _unbound_ports(binding)
        if interpretations and all(_accepts(port, item, inputs) for item in interpretations)
    ]
    required = [port for port in unbound_ports if port.required]
    candidates = required or unbound_ports
    return candidates[0] if len(candidates) == 1 else None


def _accepts(port: Port, item: Interpretation, inputs: Mapping[str, Value]) -> bool:
    if isinstance(item, InputReference):
        return port.modality in modalities(inputs[item.name])
    if isinstance(item, OutputReference):
        modality = _MODALITIES.get(item.resource.lower())
        return modality is None or modality is port.modality
    return isinstance(item, TextLiteral) and port.modality is Modality.TEXT


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _unbound_ports(binding: Binding) -> Iterator[Port]:
    return (port for port in binding.spec.inputs if port.name not in binding.ports)


def _is_duplicate(interpretations: Sequence[Interpretation], binding: Binding) -> bool:
    """Whether the same reference is already bound under another name."""
    bound = [item for items in binding.ports.values() for item in items]
    return bool(interpretations) and all(
        isinstance(item, InputReference | OutputReference) and item in bound for item in interpretations
    )
