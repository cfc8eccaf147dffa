"""Plain types of plans: task specs, tasks, arguments and notes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.common.media_types import modality_names
from services.llm.usage import Usage

HARD_LIMIT = 1_000
"""Limit of tasks in one plan."""

SPLIT_LIMIT = 32
"""Limit of tasks that result from one task with several values for a single-value port."""


class Modality(StrEnum):
    """Modality of a port; the names are those of the protobuf enum."""

    UNSPECIFIED = "anything"
    TEXT = "text"
    IMAGE = "picture"
    AUDIO = "recording"
    VIDEO = "video"
    TABLE = "table"
    JSON = "JSON"


# ---------------------------------------------------------------- arguments


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    json: str


@dataclass(frozen=True, slots=True)
class File:
    """An artifact, identified by its digest."""

    sha256: str
    media_type: str
    size_bytes: int
    name: str


Value = Text | Json | File


@dataclass(frozen=True, slots=True)
class Reference:
    """An output of another task."""

    task_id: int
    output: str


@dataclass(frozen=True, slots=True)
class Input:
    """A named input of the run."""

    name: str


@dataclass(frozen=True, slots=True)
class Unset:
    """An argument without content, or a nested list."""


Single = Value | Reference | Input | Unset


@dataclass(frozen=True, slots=True)
class Many:
    """Arguments of a port that takes a list."""

    items: tuple[Single, ...]


Argument = Single | Many


# ---------------------------------------------------------------- task specs


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
    """Specification of a task."""

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
"""Available tasks by name."""


class OfferedTasks(dict[str, Spec]):
    """A catalogue that also contains the offered tasks whose models all fail.

    Args:
        specs: available tasks.
        failing: names of the other offered tasks, with the experts that offer them.
    """

    def __init__(self, specs: Iterable[Spec], failing: Mapping[str, Sequence[str]]) -> None:
        super().__init__((spec.name, spec) for spec in specs)
        self.failing = failing


def failing_experts(catalogue: Catalogue, task: str) -> Sequence[str]:
    """Returns the experts that offer a task whose models have all failed."""
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
    """Kind of a note; the names are those of the protobuf enum."""

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
    """0 to 1; 0: not estimated."""
    llm_model: str = ""
    """Name of the LLM that was called, if any."""
    fell_back_because: str = ""
    usage: Usage | None = None
    version: str = ""
    """Version of the prompt or of the weights."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A complete plan of a controller that does not stream."""

    tasks: tuple[Task, ...]
    notes: tuple[Note, ...]
    decision: Decision
    senses: Mapping[int, str] = field(default_factory=dict)
    """By task id what its words were read as, where that is known: it may be narrower than the kind of task."""


# ---------------------------------------------------------------- modalities


def modalities(value: Value) -> tuple[Modality, ...]:
    """Returns the modalities a value fits, most natural first; a PDF fits every image port."""
    if isinstance(value, Text):
        return (Modality.TEXT,)
    if isinstance(value, Json):
        return (Modality.JSON,)
    return tuple(Modality[name] for name in modality_names(value.media_type))
