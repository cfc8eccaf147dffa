"""Builders for requests and plans in a short notation."""

import json
from collections.abc import Iterable, Sequence
from itertools import product

from services.planner.embedded.planning import Embedded
from services.planner.plan import Argument, Draft, File, Input, Many, Reference, Task, Text
from services.planner.request import Named, Request, Turn
from services.planner.task_spec import Catalogue, Modality, Port, Spec, standard_specs

STANDARD = standard_specs()

_OBJECTS = ("leaf", "wheel", "cloud", "coin", "bridge", "stamp", "violin", "brick", "shell", "engine")
_ACTIONS = ("polish", "weigh", "date", "rank", "trace", "price", "stain", "fold")

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
        "image-conversion",
        "audio-conversion",
        "text-statistics",
        "page-count",
        "calculation",
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


def plan_request(text: str, names: Iterable[str] = (), *, earlier: Sequence[Turn] = ()) -> Request:
    """A planning request with files and earlier turns."""
    return Request((*earlier, Turn(by_user=True, text=text)), inputs(names))


def embedded_plan(request: Request, catalogue: Catalogue = LITE) -> Draft:
    """The plan of the embedded planner."""
    return _embedded.plan(request, catalogue)


def notation(tasks: Iterable[Task]) -> list[str]:
    """Tasks in short notation: task(port=argument; parameter=value), with references such as 1.text."""
    return [_task(task) for task in tasks]


def _task(task: Task) -> str:
    arguments = ", ".join(f"{port}={_argument(argument)}" for port, argument in task.arguments.items())
    parameters = json.loads(task.parameters_json or "{}")
    listed_parameters = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f"{task.task}({arguments}{'; ' if listed_parameters else ''}{listed_parameters})"


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


def large_catalogue(size: int) -> Catalogue:
    """A catalogue of the given size: the standard tasks and invented ones."""
    media = (Modality.TEXT, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO)
    invented = {
        name: Spec(
            name,
            f"Can {action} a {subject} when it is given as {input_modality}.",
            _port(input_modality),
            _port(output_modality),
        )
        for action, subject, input_modality, output_modality in product(_ACTIONS, _OBJECTS, media, media[1:])
        if (name := f"{subject}-{action}-{input_modality.name.lower()}-{output_modality.name.lower()}")
    }
    return {**dict(list(invented.items())[: size - len(STANDARD)]), **STANDARD}


def _port(modality: Modality) -> tuple[Port, ...]:
    return (Port(modality.name.lower(), modality),)
