"""Which port or parameter each argument is for, however it was called."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.planner.llm.names import parameter_meant, plain, words
from services.planner.llm.plan_format import Sketch
from services.planner.llm.values import Given, Meaning, Names, Pointer, Words, meanings
from services.planner.plan import Modality, Port, Spec, Value, modalities

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
"""What a name for an argument says about what it carries."""

_QUESTIONS = {"query", "q", "ask", "prompt"}


@dataclass(frozen=True, slots=True)
class Binding:
    """A task's arguments sorted; stray are those that nothing is for."""

    spec: Spec
    ports: dict[str, list[Meaning]] = field(default_factory=dict)
    parameters: dict[str, object] = field(default_factory=dict)
    stray: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[Port]:
        """The required ports that were given nothing."""
        return [port for port in self.spec.inputs if port.required and port.name not in self.ports]


def bound(sketch: Sketch, spec: Spec, names: Names, inputs: Mapping[str, Value]) -> Binding:
    """Sorts what a task was given: names that are right first, then names that are nearly so, then what fits."""
    binding = Binding(spec)
    open_ = [(name, value) for name, value in sketch.given if not _empty(value)]
    for fits in (_exactly, _nearly, _by_modality, _parameter, _by_value):
        left = []
        for name, value in open_:
            said = meanings(value, names)
            target = fits(name, said, binding, inputs)
            if target is None:
                left.append((name, value))
            elif isinstance(target, Port):
                _claim(binding, target, said)
            else:
                binding.parameters.setdefault(target, value)
        open_ = left
    binding.stray.extend(name for name, value in open_ if not _again(meanings(value, names), binding))
    return binding


def _claim(binding: Binding, port: Port, said: Sequence[Meaning]) -> None:
    items = binding.ports.setdefault(port.name, [])
    items.extend(item for item in said if item not in items or port.many or len(said) > 1)
    if not items:
        del binding.ports[port.name]


def _empty(value: object) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


_Target = Port | str | None


def _exactly(name: str, _said: Sequence[Meaning], binding: Binding, _inputs: Mapping[str, Value]) -> _Target:
    port = next((port for port in binding.spec.inputs if port.name == name), None)
    return port or (name if binding.spec.takes(name) else None)


def _nearly(name: str, _said: Sequence[Meaning], binding: Binding, _inputs: Mapping[str, Value]) -> _Target:
    meant = plain(name).rstrip("0123456789")
    port = next((port for port in _free(binding) if meant and plain(port.name).rstrip("s") == meant.rstrip("s")), None)
    return port or next((port for port in _free(binding) if port.name == "question" and meant in _QUESTIONS), None)


def _parameter(name: str, _said: Sequence[Meaning], binding: Binding, _inputs: Mapping[str, Value]) -> _Target:
    if any(_MODALITIES.get(word) is Modality.TEXT for word in words(name)):
        return None  # a prompt is no negative_prompt
    return parameter_meant(
        name, [known.name for known in binding.spec.parameters if known.name not in binding.parameters]
    )


def _by_modality(name: str, _said: Sequence[Meaning], binding: Binding, _inputs: Mapping[str, Value]) -> _Target:
    said = {_MODALITIES[word] for word in map(_singular, words(name)) if word in _MODALITIES}
    if len(said) != 1:
        return None
    free = [port for port in _free(binding) if port.modality in said]
    if not free:  # image1, image2: several for the one port there is
        base = plain(name).rstrip("0123456789")
        return next((port for port in binding.spec.inputs if plain(port.name) == base != plain(name)), None)
    return free[0] if len(free) == 1 else None


def _by_value(_name: str, said: Sequence[Meaning], binding: Binding, inputs: Mapping[str, Value]) -> _Target:
    free = [port for port in _free(binding) if said and all(_may_carry(port, item, inputs) for item in said)]
    required = [port for port in free if port.required]
    found = required or free
    return found[0] if len(found) == 1 else None


def _may_carry(port: Port, item: Meaning, inputs: Mapping[str, Value]) -> bool:
    if isinstance(item, Given):
        return port.modality in modalities(inputs[item.name])
    if isinstance(item, Pointer):
        carried = _MODALITIES.get(item.resource.lower())
        return carried is None or carried is port.modality
    return isinstance(item, Words) and port.modality is Modality.TEXT


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _free(binding: Binding) -> Iterator[Port]:
    return (port for port in binding.spec.inputs if port.name not in binding.ports)


def _again(said: Sequence[Meaning], binding: Binding) -> bool:
    """Whether the same thing was given under a better name too."""
    there = [item for items in binding.ports.values() for item in items]
    return bool(said) and all(isinstance(item, Given | Pointer) and item in there for item in said)
