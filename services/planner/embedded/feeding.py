"""Which port takes what a step is fed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.planner.embedded.languages import tags
from services.planner.embedded.streams import Stream
from services.planner.plan import Modality, Port, Spec

_ASIDE = ("question", "instruction")
"""Text ports that are filled from elsewhere only where no other takes text."""


def taken(spec: Spec, fed: Iterable[Stream]) -> dict[str, Stream]:
    """A stream for each port that something fits; of each producer one, its main output first."""
    filled: dict[str, Stream] = {}
    served = set[object]()
    for stream in fed:
        maker = stream.producer, stream.clause, tuple(getattr(one, "task_id", one) for one in stream.arguments)
        port = None if maker in served else _port(spec.inputs, stream, filled)
        if port:
            served.add(maker)
            filled[port.name] = _joined(filled.get(port.name), stream)
    return filled


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


def meant(stream: Stream, masked: str) -> Stream:
    """Of several translations, those of which lower-case words name the language: "read the Thai one"."""
    named = set(tags(masked))
    kept = [index for index, tag in enumerate(stream.languages) if tag in named]
    if not kept or len(stream.languages) != len(stream.arguments):
        return stream
    return replace(
        stream,
        arguments=tuple(stream.arguments[index] for index in kept),
        languages=tuple(stream.languages[index] for index in kept),
    )


def is_aside(port: Port) -> bool:
    """Whether a text port says what to do or to find out, rather than taking what to do it with."""
    return port.modality is Modality.TEXT and port.name in _ASIDE
