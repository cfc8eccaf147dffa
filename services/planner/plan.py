"""What a plan is made of: kinds of task, tasks, what they are given, and remarks. Plain Python, no protobuf."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.common.media_types import modality_names
from services.llm.usage import Usage

HARD_LIMIT = 1_000
"""Most tasks in one plan."""

SPLIT_LIMIT = 32
"""Most tasks that one task becomes when it is given several resources."""


class Modality(StrEnum):
    """What a port carries; the names are the protos'."""

    UNSPECIFIED = "anything"
    TEXT = "text"
    IMAGE = "picture"
    AUDIO = "recording"
    VIDEO = "video"
    TABLE = "table"
    JSON = "JSON"


# ---------------------------------------------------------------- what tasks are given


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    json: str


@dataclass(frozen=True, slots=True)
class File:
    """An artifact: bytes in the store, known by their digest."""

    sha256: str
    media_type: str
    size_bytes: int
    name: str


Value = Text | Json | File


@dataclass(frozen=True, slots=True)
class Reference:
    """An output of an earlier task."""

    task_id: int
    output: str


@dataclass(frozen=True, slots=True)
class Input:
    """A named input of the run."""

    name: str


@dataclass(frozen=True, slots=True)
class Unset:
    """An argument without content: nothing at all, or a list within a list."""


Single = Value | Reference | Input | Unset


@dataclass(frozen=True, slots=True)
class Many:
    """Several arguments for a port that takes many."""

    items: tuple[Single, ...]


Argument = Single | Many


# ---------------------------------------------------------------- kinds of task


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    modality: Modality
    required: bool = True
    many: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    json_schema: str = "{}"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A kind of task."""

    name: str
    description: str = ""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    examples: tuple[str, ...] = ()

    def output(self, name: str) -> Port | None:
        return next((port for port in self.outputs if port.name == name), None)

    def takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.parameters)


Catalogue = Mapping[str, Spec]
"""The kinds of task that can be planned now, by name."""


class OfferedTasks(dict[str, Spec]):
    """A catalogue that also knows which kinds of task are offered and fail.

    Args:
        specs: kinds of task that can be planned now.
        failing: names of other kinds of task, with the experts that offer them and whose models have all failed.
    """

    def __init__(self, specs: Iterable[Spec], failing: Mapping[str, Sequence[str]]) -> None:
        super().__init__((spec.name, spec) for spec in specs)
        self.failing = failing


def failing_experts(catalogue: Catalogue, task: str) -> Sequence[str]:
    """The experts that offer a kind of task and whose models for it have all failed."""
    return catalogue.failing.get(task, ()) if isinstance(catalogue, OfferedTasks) else ()


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    task: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    parameters_json: str = ""
    pinned_model: str = ""
    pinned_revision: str = ""
    source: str = ""


class NoteKind(StrEnum):
    """What kind of remark; the names are the protos'."""

    UNMAPPED = "no task for these words"
    CLARIFY = "something must be said first"
    CHAT = "needs an answer, no task"
    FELL_BACK = "another controller took over"
    TRIMMED = "left out, such as a file that nothing was about"


@dataclass(frozen=True, slots=True)
class Note:
    kind: NoteKind
    text: str
    span: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    controller: str
    reason: str
    confidence: float = 0.0
    """0 to 1; 0 is not estimated."""
    llm_model: str = ""
    """The LLM asked, if one was."""
    fell_back_because: str = ""
    usage: Usage | None = None
    version: str = ""
    """Of the prompt or the weights by which it was planned."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole plan as a controller without a stream gives it."""

    tasks: tuple[Task, ...]
    notes: tuple[Note, ...]
    decision: Decision
    senses: Mapping[int, str] = field(default_factory=dict)
    """By task id what its words were read as, where that is known: it may be narrower than the kind of task."""


# ---------------------------------------------------------------- what fits where


def modalities(value: Value) -> tuple[Modality, ...]:
    """The ports a value fits, the most natural first; a PDF is taken wherever a picture is."""
    if isinstance(value, Text):
        return (Modality.TEXT,)
    if isinstance(value, Json):
        return (Modality.JSON,)
    return tuple(Modality[name] for name in modality_names(value.media_type))
