"""Interprets values written by an LLM: references to outputs and inputs, literals, and forbidden references."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from services.planner.plan import File, Value


@dataclass(frozen=True, slots=True)
class OutputReference:
    """An output of the task with this id, by output name or modality."""

    wire_id: int
    resource: str


@dataclass(frozen=True, slots=True)
class InputReference:
    """An input of the run."""

    name: str


@dataclass(frozen=True, slots=True)
class MissingInput:
    """An input that the run does not have."""

    name: str


@dataclass(frozen=True, slots=True)
class TextLiteral:
    text: str


@dataclass(frozen=True, slots=True)
class JsonLiteral:
    """A number, boolean or object."""

    value: object


@dataclass(frozen=True, slots=True)
class ExternalReference:
    """A path or URL that is not an input of the run."""


@dataclass(frozen=True, slots=True)
class EmbeddedReference:
    """A reference inside other text, which cannot be resolved."""

    name: str


Interpretation = (
    OutputReference | InputReference | MissingInput | TextLiteral | JsonLiteral | ExternalReference | EmbeddedReference
)

_ID = r"(?P<id>\d{1,9})"
_NAME = r"[A-Za-z]\w{0,39}"
_KINDS = "generated|resource|text|image|audio|video|table|json"
_POINTERS = (
    re.compile(rf"<(?P<resource>{_NAME})>-{_ID}"),
    re.compile(rf"<(?P<resource>{_NAME})-{_ID}>"),
    re.compile(rf"(?:\{{\{{ ?|\$\{{)?task_{_ID}\.(?P<resource>{_NAME})(?: ?\}}\}}|\}})?"),
    re.compile(rf"(?P<resource>{_KINDS})-{_ID}", re.IGNORECASE),
    re.compile(rf"\$(?P<resource>){_ID}"),
)
_WITHIN = re.compile(
    rf"<\s?(?:{_KINDS}|labels|objects|segments|details|mask|depth|answers)\s?>?\s?[-_:#. ]\s?\d{{1,9}}>?"
    r"|(?:\{\{|\$\{)\s?(?:task|step|node)s?[ _.\[-]?\d[^{}]{0,40}\}",
    re.IGNORECASE,
)
"""A reference within other text, or one in another form; names of outputs are those of usual tasks."""
_BRACKETED = re.compile(r"<\s{0,4}([^<>\s](?:[^<>\n]{0,119}[^<>\s])?)\s{0,4}>")
_BETWEEN = re.compile(r"\s{0,4}(?:,|\band\b)\s{0,4}")
_LONGEST_LIST = 2_000
_FOREIGN = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,19}://|data:\w|file:|www\.)\S*"
    r"|(?:~|\.{1,2})?/\S+|[a-z]:\\.*|\\\\.*"
    r"|(?:\S{1,60} ){0,3}\S{1,120}\.(?:png|jpe?g|gif|webp|bmp|tiff?|svg|heic|wav|mp3|flac|ogg|opus|m4a|aac"
    r"|mp4|mov|avi|mkv|webm|pdf|csv|tsv|xlsx?|ods|parquet|txt|md|json|xml|html?|docx?|pptx?|zip)",
    re.IGNORECASE,
)
_REFERENCE_KEYS = {"task_id", "task", "output"}


class InputNames:
    """Inputs of a run by the names an LLM may use for them: their own, or that of the file."""

    def __init__(self, inputs: Mapping[str, Value]) -> None:
        self._exact = dict.fromkeys(inputs)
        self._by_file_name: dict[str, set[str]] = {}
        for name, value in inputs.items():
            if isinstance(value, File):
                self._by_file_name.setdefault(value.name, set()).add(name)

    def find(self, text: str) -> str | None:
        """Returns the input with this name or file name, or at this path; None if there is none or more than one."""
        if text in self._exact:
            return text
        found = self._by_file_name.get(text) or self._by_file_name.get(PurePosixPath(text).name) or set()
        return next(iter(found)) if len(found) == 1 else None

    def mentioned(self, text: str) -> str | None:
        """Returns the first input named in angle brackets within the text."""
        return next((inner for inner in _BRACKETED.findall(text) if inner in self._exact), None)


def interpret(value: object, names: InputNames) -> list[Interpretation]:
    """Interprets a value: nothing for an empty value, several results for a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return list(_text(value, names))
    if isinstance(value, list):
        return [meaning for item in value for meaning in _item(item, names)]
    if isinstance(value, dict):
        return list(_object(value, names))
    return [JsonLiteral(value)]


def is_external_reference(value: object) -> bool:
    """Whether a value contains a path or URL."""
    if isinstance(value, str):
        return bool(_FOREIGN.fullmatch(value.strip()))
    if isinstance(value, dict):
        return any(map(is_external_reference, value.values()))
    return isinstance(value, list) and any(map(is_external_reference, value))


def _item(item: object, names: InputNames) -> list[Interpretation]:
    return [JsonLiteral(item)] if isinstance(item, list) else interpret(item, names)


def _text(text: str, names: InputNames) -> Iterator[Interpretation]:
    stripped = text.strip()
    if not stripped:
        return
    if meaning := _one(stripped, names):
        yield meaning
        return
    if several := _several(stripped, names):
        yield from several
    elif mixed := _mixed(stripped, names):
        yield EmbeddedReference(mixed)
    else:
        yield TextLiteral(text)


def _one(text: str, names: InputNames) -> Interpretation | None:
    bracketed = _BRACKETED.fullmatch(text)
    inner = bracketed.group(1) if bracketed else text
    if name := names.find(inner):
        return InputReference(name)
    for pattern in _POINTERS:
        if found := pattern.fullmatch(text):
            parts = found.groupdict()
            return OutputReference(int(parts["id"]), parts["resource"])
    if _FOREIGN.fullmatch(inner):
        return ExternalReference()
    return MissingInput(inner) if bracketed else None


def _several(text: str, names: InputNames) -> list[Interpretation]:
    if len(text) > _LONGEST_LIST:
        return []
    parts = [_one(part, names) for part in _BETWEEN.split(text) if part]
    several: list[Interpretation] = [part for part in parts if isinstance(part, OutputReference | InputReference)]
    return several if len(several) == len(parts) else []


def _mixed(text: str, names: InputNames) -> str | None:
    found = _WITHIN.search(text)
    return found.group() if found else names.mentioned(text)


def _object(value: Mapping[str, object], names: InputNames) -> Iterator[Interpretation]:
    if value.keys() == {"input"}:
        yield from interpret(value["input"], names)
    elif pointer := _pointer(value):
        yield pointer
    elif value:
        yield JsonLiteral(value)


def _pointer(value: Mapping[str, object]) -> OutputReference | None:
    wire_id, output = value.get("task_id", value.get("task")), value.get("output", "")
    if not value.keys() <= _REFERENCE_KEYS or not isinstance(wire_id, int) or not isinstance(output, str):
        return None
    return None if isinstance(wire_id, bool) or wire_id < 0 else OutputReference(wire_id, output)
