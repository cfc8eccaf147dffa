"""Plain types of plans: tasks, arguments and notes, and their conversion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from protos.hugginggpt.v1 import artifact_pb2, plan_pb2, task_pb2
from services.common.media_types import modality_names
from services.llm.client import Usage
from services.planner.task_spec import Modality

HARD_LIMIT = 1_000
"""Limit of tasks in one plan."""

SPLIT_LIMIT = 32
"""Limit of tasks that result from one task with several values for a single-value port."""


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

    @classmethod
    def from_proto(cls, task: task_pb2.Task) -> Self:
        return cls(
            id=task.id,
            task=task.task,
            arguments={name: _argument_from_proto(argument) for name, argument in task.arguments.items()},
            parameters_json=task.parameters_json,
            pinned_model=task.pinned_model,
            pinned_revision=task.pinned_revision,
            source=task.source,
        )

    def to_proto(self) -> task_pb2.Task:
        return task_pb2.Task(
            id=self.id,
            task=self.task,
            arguments={name: _argument_to_proto(argument) for name, argument in self.arguments.items()},
            parameters_json=self.parameters_json,
            pinned_model=self.pinned_model,
            pinned_revision=self.pinned_revision,
            source=self.source,
        )


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

    def to_proto(self) -> plan_pb2.Note:
        kind = plan_pb2.NoteKind.Value(f"NOTE_KIND_{self.kind.name}")
        return plan_pb2.Note(kind=kind, text=self.text, span=self.span)


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

    def to_proto(self) -> plan_pb2.Decision:
        return plan_pb2.Decision(
            controller=plan_pb2.Controller.Value(f"CONTROLLER_{self.controller.upper()}"),
            llm_model=self.llm_model,
            reason=self.reason,
            confidence=self.confidence,
            fell_back_because=self.fell_back_because,
            usage=self.usage.to_proto() if self.usage else None,
            version=self.version,
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A complete plan of a controller that does not stream."""

    tasks: tuple[Task, ...]
    notes: tuple[Note, ...]
    decision: Decision
    intents: Mapping[int, str] = field(default_factory=dict)
    """By task id what its words were read as, where that is known: it may be narrower than the kind of task."""


# ---------------------------------------------------------------- modalities


def modalities(value: Value) -> tuple[Modality, ...]:
    """Returns the modalities a value fits, most natural first; a PDF fits every image port."""
    if isinstance(value, Text):
        return (Modality.TEXT,)
    if isinstance(value, Json):
        return (Modality.JSON,)
    return tuple(Modality[name] for name in modality_names(value.media_type))


# ---------------------------------------------------------------- conversion


def _argument_from_proto(argument: task_pb2.Argument) -> Argument:
    if argument.WhichOneof("kind") == "list":
        return Many(tuple(_single_from_proto(item) for item in argument.list.items))
    return _single_from_proto(argument)


def _single_from_proto(argument: task_pb2.Argument) -> Single:
    match argument.WhichOneof("kind"):
        case "value":
            return value_from_proto(argument.value)
        case "reference":
            return Reference(argument.reference.task_id, argument.reference.output)
        case "input":
            return Input(argument.input.name)
        case _:
            return Unset()


def value_from_proto(value: artifact_pb2.Value) -> Value | Unset:
    match value.WhichOneof("kind"):
        case "text":
            return Text(value.text)
        case "json":
            return Json(value.json)
        case "artifact":
            artifact = value.artifact
            return File(artifact.sha256, artifact.media_type, artifact.size_bytes, artifact.name)
        case _:
            return Unset()


def _argument_to_proto(argument: Argument) -> task_pb2.Argument:
    match argument:
        case Many(items):
            return task_pb2.Argument(list=task_pb2.ArgumentList(items=[_argument_to_proto(item) for item in items]))
        case Reference(task_id, output):
            return task_pb2.Argument(reference=task_pb2.Reference(task_id=task_id, output=output))
        case Input(name):
            return task_pb2.Argument(input=task_pb2.InputRef(name=name))
        case Unset():
            return task_pb2.Argument()
        case _:
            return task_pb2.Argument(value=_value_to_proto(argument))


def _value_to_proto(value: Value) -> artifact_pb2.Value:
    match value:
        case Text(text):
            return artifact_pb2.Value(text=text)
        case Json(content):
            return artifact_pb2.Value(json=content)
        case File(sha256, media_type, size_bytes, name):
            artifact = artifact_pb2.Artifact(sha256=sha256, media_type=media_type, size_bytes=size_bytes, name=name)
            return artifact_pb2.Value(artifact=artifact)
