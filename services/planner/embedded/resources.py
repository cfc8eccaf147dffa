"""Resources of a request: the files and texts sent with it, then those of earlier turns, latest first."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from services.planner.plan import File, Input, Single, Text, Value, modalities
from services.planner.request import Named, Request, Turn
from services.planner.task_spec import Modality

_EXTENSIONS = {
    Modality.IMAGE: "png jpg jpeg gif bmp webp tif tiff heic heif svg pdf",
    Modality.AUDIO: "wav mp3 ogg oga opus flac m4a aac wma aiff amr",
    Modality.VIDEO: "mp4 mov avi mkv webm mpg mpeg m4v",
    Modality.TABLE: "csv tsv xlsx xls ods parquet",
    Modality.TEXT: "txt md rst log html htm rtf doc docx odt srt vtt tex py",
    Modality.JSON: "json jsonl xml yaml yml",
}
BY_EXTENSION = {ending: modality for modality, endings in _EXTENSIONS.items() for ending in endings.split()}

LIKE_A_FILE = re.compile(
    rf"(?<![\w.-])[\w][\w().%+@-]*\.(?:{'|'.join(sorted(BY_EXTENSION, key=len, reverse=True))})(?![\w-]|\.\w)",
    re.IGNORECASE,
)
LIKE_A_URL = re.compile(r"\b(?:https?|ftp|s3|gs)://[^\s<>\"'“”]+[^\s<>\"'“”.,;:!?)\]]", re.IGNORECASE)

_QUOTATION = re.compile(r"(?:^>[^\n]*\n?)+|“[^”]+”", re.MULTILINE)
_NAME_LIKE = re.compile(r"^(?=.*[\d._-])(?=.*\w).{3,}$", re.DOTALL)
_STEM_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True, slots=True)
class Resource:
    """Something a task can be given."""

    argument: Single
    modalities: tuple[Modality, ...]
    """The most natural first."""
    names: tuple[str, ...] = ()
    """Lower case: what a request may call it."""
    pdf: bool = False
    age: int = 0
    """0: sent with this request; else how many turns ago."""
    made: bool = False
    """It is from an answer."""

    @property
    def stem_words(self) -> frozenset[str]:
        """The words of its names, endings left out."""
        stems = (name.rpartition(".")[0] or name for name in self.names)
        return frozenset(word for stem in stems for word in _STEM_WORD.findall(stem))


def resources(request: Request) -> tuple[Resource, ...]:
    """All there is, what was sent now first."""
    now = [_resource(named, Input(named.name), 0) for named in request.inputs]
    known = {_identity(named.value) for named in request.inputs}
    earlier = []
    for age, turn in enumerate(reversed(request.conversation)):
        for named in (*turn.attachments, *_answer_text(turn)):
            if _identity(named.value) not in known:
                known.add(_identity(named.value))
                earlier.append(replace(_resource(named, named.value, age), made=not turn.by_user))
    return (*now, *earlier)


def _answer_text(turn: Turn) -> list[Named]:
    """The text of an answer, or the text that it quotes."""
    if turn.by_user or not turn.text.strip():
        return []
    quotations = [quotation.strip("\n“”") for quotation in _QUOTATION.findall(turn.text)]
    words = quotations[-1] if quotations else turn.text
    return [Named("", Text(re.sub(r"^> ?", "", words, flags=re.MULTILINE).strip()))]


def names_of(resource: Resource) -> Iterator[str]:
    """Names that are no ordinary words."""
    return (name for name in resource.names if _NAME_LIKE.search(name))


def _identity(value: Value) -> str:
    if isinstance(value, File):
        return value.sha256
    return value.text if isinstance(value, Text) else value.json


def _resource(named: Named, argument: Single, age: int) -> Resource:
    names = [named.name.lower()]
    if isinstance(named.value, File) and named.value.name:
        names.insert(0, named.value.name.lower())
    pdf = isinstance(named.value, File) and named.value.media_type.startswith("application/pdf")
    return Resource(argument, modalities(named.value), tuple(names), pdf=pdf, age=age)


def modality_of_name(name: str) -> Modality:
    """What a file is likely to be, by the ending of its name."""
    return BY_EXTENSION.get(name.rpartition(".")[2].lower(), Modality.UNSPECIFIED)
