"""Assigns the streams that feed a step to its input ports."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.planner.embedded.languages import tags
from services.planner.embedded.streams import Stream
from services.planner.plan import Reference
from services.planner.task_spec import Modality, Port, Spec

_ASIDE = ("question", "instruction")
"""Text ports that take a stream only if no other port takes text."""


def taken(spec: Spec, fed: Iterable[Stream]) -> dict[str, Stream]:
    """A stream for each port that something fits; of each producer one, its main output first."""
    filled: dict[str, Stream] = {}
    served = set[object]()
    streams = sorted(fed, key=lambda stream: stream.clause) if compares(spec) else [*fed]
    cut = _cut(spec, streams)
    for stream in streams:
        if stream.producer in cut:
            continue
        maker = stream.producer, stream.clause, tuple(getattr(one, "task_id", one) for one in stream.arguments)
        port = None if maker in served else _port(spec.inputs, stream, filled)
        if port:
            served.add(maker)
            filled[port.name] = _joined(filled.get(port.name), stream)
    return _shared_out(spec, filled) if compares(spec) else filled


def compares(spec: Spec) -> bool:
    """Whether a task takes one text and, on another port, several."""
    texts = [port for port in spec.inputs if port.required and port.modality is Modality.TEXT]
    return any(port.many for port in texts) and not all(port.many for port in texts)


def _cut(spec: Spec, streams: Iterable[Stream]) -> set[str]:
    """The tasks that made the mask of a task that takes one; their other outputs are no picture to work on."""
    takes_mask = any(port.name == "mask" for port in spec.inputs)
    return {stream.producer for stream in streams if takes_mask and stream.port == "mask"}


def _shared_out(spec: Spec, filled: dict[str, Stream]) -> dict[str, Stream]:
    """The first of several texts alone, the others for the port that takes many."""
    one, many = _compared(spec)
    first = filled.get(one)
    if first is None or len(first.arguments) == 1:
        return filled
    rest = replace(first, arguments=first.arguments[1:])
    return filled | {one: replace(first, arguments=first.arguments[:1]), many: _joined(filled.get(many), rest)}


def in_order(spec: Spec, filled: dict[str, Stream]) -> dict[str, Stream]:
    """What tasks have made is compared in the order of the tasks: the first with the others."""
    one, many = _compared(spec)
    made = [single for name in (one, many) for single in filled[name].arguments if isinstance(single, Reference)]
    made.sort(key=lambda reference: reference.task_id)
    if len(made) < len(filled[one].arguments) + len(filled[many].arguments) or len(set(made)) < len(made):
        return filled
    first, rest = (replace(filled[name], arguments=tuple(part)) for name, part in ((one, made[:1]), (many, made[1:])))
    return filled | {one: first, many: rest}


def _compared(spec: Spec) -> tuple[str, str]:
    """The ports for one text and for those it is compared with."""
    texts = [port for port in spec.inputs if port.required and port.modality is Modality.TEXT]
    return next(port.name for port in texts if not port.many), next(port.name for port in texts if port.many)


def _port(ports: Sequence[Port], stream: Stream, filled: dict[str, Stream]) -> Port | None:
    """The one that takes it: a free one before a taken one."""
    fitting = [port for port in ports if port.modality is stream.modality and port.name != "mask"]
    fitting.sort(key=lambda port: (port.name in filled and not port.many, port.name in _ASIDE, not port.required))
    return fitting[0] if fitting else None


def _joined(there: Stream | None, more: Stream) -> Stream:
    if there is None:
        return more
    known = there.languages and more.languages
    languages = (*there.languages, *more.languages) if known else ()
    return replace(there, arguments=(*there.arguments, *more.arguments), languages=languages)


_ORDINAL = re.compile(r"\bthe\s+(first|second|third|fourth|last)\b")
_ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}


def meant(stream: Stream, masked: str) -> Stream:
    """Of several values, those that lower-case words pick: "read the Thai one", "the second answer"."""
    named = set(tags(masked))
    kept = [index for index, tag in enumerate(stream.languages) if tag in named]
    if kept and len(stream.languages) == len(stream.arguments):
        return _only(stream, kept)
    ordinals = {_ORDINALS[word] for word in _ORDINAL.findall(masked)}
    several = len(stream.arguments)
    if several > 1 and len(ordinals) == 1 and max(ordinals) < several:
        return _only(stream, [ordinals.pop() % several])
    return stream


def _only(stream: Stream, kept: Sequence[int]) -> Stream:
    languages = tuple(stream.languages[index] for index in kept) if stream.languages else ()
    return replace(stream, arguments=tuple(stream.arguments[index] for index in kept), languages=languages)
