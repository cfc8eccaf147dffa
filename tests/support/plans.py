"""Builders for requests and plans in a short notation."""

import json
from collections.abc import Iterable, Sequence
from itertools import product

from services.planner.catalog import standard_specs
from services.planner.embedded.planning import Embedded
from services.planner.plan import (
    Argument,
    Catalogue,
    Draft,
    File,
    Input,
    Many,
    Modality,
    Port,
    Reference,
    Spec,
    Task,
    Text,
)
from services.planner.request import Named, Request, Turn

STANDARD = standard_specs()

_THINGS = ("leaf", "wheel", "cloud", "coin", "bridge", "stamp", "violin", "brick", "shell", "engine")
_DEEDS = ("polish", "weigh", "date", "rank", "trace", "price", "stain", "fold")

LITE: Catalogue = {
    name: STANDARD[name]
    for name in (
        "image-to-text",
        "document-question-answering",
        "text-to-speech",
        "automatic-speech-recognition",
        "text-classification",
        "object-detection",
        "summarization",
        "question-answering",
        "token-classification",
        "image-to-image",
        "image-segmentation",
        "audio-to-audio",
    )
}
"""Tasks that the lite expert offers."""

_MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "pdf": "application/pdf",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "txt": "text/plain",
    "csv": "text/csv",
    "json": "application/json",
}

_embedded = Embedded(STANDARD)


def file(name: str) -> File:
    """An input file as the gateway describes it."""
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return File(sha256=name.encode().hex().ljust(64, "0"), media_type=media_type, size_bytes=1, name=name)


def inputs(names: Iterable[str]) -> tuple[Named, ...]:
    """Input files of a request, with the names that the gateway assigns."""
    return tuple(Named(f"file{number}", file(name)) for number, name in enumerate(names, start=1))


def asked(words: str, names: Iterable[str] = (), *, earlier: Sequence[Turn] = ()) -> Request:
    """A planning request with files and earlier turns."""
    return Request((*earlier, Turn(by_user=True, text=words)), inputs(names))


def planned(request: Request, catalogue: Catalogue = LITE) -> Draft:
    """The plan of the embedded planner."""
    return _embedded.plan(request, catalogue)


def written(tasks: Iterable[Task]) -> list[str]:
    """Tasks in short notation: task(port=argument; parameter=value), with references such as 1.text."""
    return [_task(task) for task in tasks]


def _task(task: Task) -> str:
    given = ", ".join(f"{port}={_argument(argument)}" for port, argument in task.arguments.items())
    knobs = json.loads(task.parameters_json or "{}")
    turned = ", ".join(f"{name}={value}" for name, value in knobs.items())
    return f"{task.task}({given}{'; ' if turned else ''}{turned})"


def _argument(argument: Argument) -> str:
    match argument:
        case Reference(task_id, output):
            return f"{task_id}.{output}"
        case Input(name):
            return name
        case Text(text):
            return repr(text)
        case Many(items):
            return f"[{', '.join(map(_argument, items))}]"
        case File(name=name):
            return f"<{name}>"
        case _:
            return str(argument)


def crowd(size: int) -> Catalogue:
    """A catalogue of the given size: the standard tasks and invented ones."""
    media = (Modality.TEXT, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO)
    made = {
        name: Spec(name, f"Can {deed} a {thing} when it is given as {takes}.", _port(takes), _port(gives))
        for deed, thing, takes, gives in product(_DEEDS, _THINGS, media, media[1:])
        if (name := f"{thing}-{deed}-{takes.name.lower()}-{gives.name.lower()}")
    }
    return {**dict(list(made.items())[: size - len(STANDARD)]), **STANDARD}


def _port(modality: Modality) -> tuple[Port, ...]:
    return (Port(modality.name.lower(), modality),)
