"""Plain types for the result of a run, from which answers are composed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from protos.hugginggpt.internal.v1 import responder_pb2
from protos.hugginggpt.v1 import artifact_pb2, failure_pb2, plan_pb2, run_pb2, task_pb2, usage_pb2


@dataclass(frozen=True, slots=True)
class Artifact:
    """Metadata of a file; its content is not read here."""

    name: str
    media_type: str
    size_bytes: int

    @classmethod
    def from_proto(cls, artifact: artifact_pb2.Artifact, default_name: str = "") -> Self:
        """Converts an artifact; `default_name` is used if it has no name."""
        return cls(artifact.name or default_name, artifact.media_type, artifact.size_bytes)


@dataclass(frozen=True, slots=True)
class Json:
    """A structured output."""

    data: Any


Output = str | Json | Artifact


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason of a failure, and a remedy."""

    message: str
    remedy: str = ""

    @classmethod
    def from_proto(cls, failure: failure_pb2.Failure) -> Self:
        return cls(failure.message, failure.remedy)


class State(StrEnum):
    """Final state of a task; all states that are not final are OPEN."""

    OPEN = "not finished"
    SUCCEEDED = "done"
    REUSED = "taken from an earlier run"
    FAILED = "failed"
    SKIPPED = "not started"
    CANCELLED = "cancelled"

    @property
    def is_successful(self) -> bool:
        return self in {State.SUCCEEDED, State.REUSED}


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the run and its result."""

    id: int
    name: str
    state: State
    source: str = ""
    """Part of the request that the task covers."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""
    """Value of its question input, if it has one."""
    given: tuple[str, ...] = ()
    """Names of the uploaded files it used."""
    needs: frozenset[int] = frozenset()
    """Ids of the tasks whose outputs it used."""
    model: str = ""
    expert: str = ""
    seconds: float | None = None
    failure: Failure | None = None

    @classmethod
    def from_proto(cls, status: run_pb2.TaskStatus, files: Mapping[str, str]) -> Self:
        """Converts a task.

        Args:
            status: the task and its result.
            files: names of the uploaded files by their names in the plan.
        """
        task, result = status.task, status.result
        arguments = [single for argument in task.arguments.values() for single in _singles(argument)]
        names = (_file_name(argument, files) for argument in arguments)
        by = result.by if result.by.model_id else status.candidate
        return cls(
            id=task.id,
            name=task.task,
            state=_STATES.get(status.state, State.OPEN),
            source=task.source,
            outputs={port: _output(value) for port, value in result.outputs.items()},
            parameters=_object(task.parameters_json),
            question=task.arguments["question"].value.text if "question" in task.arguments else "",
            given=tuple(dict.fromkeys(name for name in names if name)),
            needs=frozenset(argument.reference.task_id for argument in arguments if argument.HasField("reference")),
            model=by.model_id,
            expert=by.expert,
            seconds=_seconds(result.usage),
            failure=Failure.from_proto(result.failure) if result.HasField("failure") else None,
        )

    @property
    def text(self) -> str:
        """Its text output; empty without one."""
        text = self.outputs.get("text")
        return text.strip() if isinstance(text, str) else ""

    def data(self, port: str) -> Any:
        """Returns the JSON output of a port; None without one."""
        output = self.outputs.get(port)
        return output.data if isinstance(output, Json) else None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(output for _, output in sorted(self.outputs.items()) if isinstance(output, Artifact))


class NoteKind(StrEnum):
    """Kind of a planner's note."""

    MISSING = "could not be planned, or needs clarification first"
    CHAT = "wants an answer but no task"
    UNUSED_FILE = "was sent but not used"
    OTHER = "about how the plan was made"


@dataclass(frozen=True, slots=True)
class Note:
    kind: NoteKind
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier turn of the conversation."""

    by_user: bool
    text: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All facts of a run from which an answer is composed."""

    request: str
    tasks: tuple[Task, ...] = ()
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    sent: str = ""
    """Part of the answer that was already sent."""
    history: tuple[Turn, ...] = ()
    """Earlier turns, oldest first."""
    given: Mapping[str, Artifact] = field(default_factory=dict)
    """Uploaded files by their names in the plan."""
    json_schema: str = ""
    """JSON schema of the answer; empty for an answer in words."""
    stop: tuple[str, ...] = ()
    """Texts before which an LLM's answer ends."""

    llm: bool = False
    """Whether an LLM writes answers; templates are then only the fallback."""

    @classmethod
    def from_proto(cls, request: responder_pb2.RespondRequest) -> Self:
        artifacts = (named for named in request.inputs if named.value.HasField("artifact"))
        given = {named.name: Artifact.from_proto(named.value.artifact, named.name) for named in artifacts}
        files = {name: file.name for name, file in given.items()}
        return cls(
            request=request.conversation[-1].text if request.conversation else "",
            tasks=tuple(_tasks(request.tasks, files)),
            notes=tuple(Note(_NOTE_KINDS.get(note.kind, NoteKind.OTHER), note.text) for note in request.notes),
            failure=Failure.from_proto(request.failure) if request.HasField("failure") else None,
            sent=request.sent,
            history=tuple(Turn(turn.role == run_pb2.ROLE_USER, turn.text) for turn in request.conversation[:-1]),
            given=given,
            json_schema=request.options.json_schema,
            stop=tuple(request.options.stop),
        )

    @property
    def files(self) -> Mapping[str, Artifact]:
        """All files of the run by id: uploaded files and outputs of tasks."""
        made = {
            f"task{task.id}.{port}": output
            for task in self.tasks
            if task.state.is_successful
            for port, output in task.outputs.items()
            if isinstance(output, Artifact)
        }
        return {**self.given, **made}

    @property
    def is_chat_only(self) -> bool:
        """Whether the request is only conversation, without tasks or failures."""
        kinds = {note.kind for note in self.notes}
        return NoteKind.CHAT in kinds and NoteKind.MISSING not in kinds and not self.tasks and self.failure is None


# ---------------------------------------------------------------- conversion

CALCULATION = "calculation"
_NUMBERED_TEXT = re.compile(r"\btext ([1-9]\d{0,3})\b")

_NOTE_KINDS: Mapping[int, NoteKind] = {
    plan_pb2.NOTE_KIND_UNMAPPED: NoteKind.MISSING,
    plan_pb2.NOTE_KIND_CLARIFY: NoteKind.MISSING,
    plan_pb2.NOTE_KIND_CHAT: NoteKind.CHAT,
    plan_pb2.NOTE_KIND_TRIMMED: NoteKind.UNUSED_FILE,
}
_STATES: Mapping[int, State] = {
    run_pb2.TASK_STATE_SUCCEEDED: State.SUCCEEDED,
    run_pb2.TASK_STATE_REUSED: State.REUSED,
    run_pb2.TASK_STATE_FAILED: State.FAILED,
    run_pb2.TASK_STATE_SKIPPED: State.SKIPPED,
    run_pb2.TASK_STATE_CANCELLED: State.CANCELLED,
}


def _tasks(statuses: Iterable[run_pb2.TaskStatus], files: Mapping[str, str]) -> Iterator[Task]:
    """Converts tasks; calculations, which number their texts, name the files of the texts instead."""
    origins: dict[int, str] = {}
    for status in statuses:
        task = Task.from_proto(status, files)
        texts = [_origin(argument, files, origins) for argument in _singles(status.task.arguments["text"])]
        origins[task.id] = task.given[0] if len(task.given) == 1 else texts[0] if len(texts) == 1 else ""
        yield replace(task, outputs=_name_texts(task.outputs, texts)) if task.name == CALCULATION else task


def _origin(argument: task_pb2.Argument, files: Mapping[str, str], origins: Mapping[int, str]) -> str:
    """Name of the file that an argument comes from, itself or through the task before; empty if there is none."""
    if argument.HasField("reference"):
        return origins.get(argument.reference.task_id, "")
    return _file_name(argument, files)


def _name_texts(outputs: Mapping[str, Output], names: Sequence[str]) -> Mapping[str, Output]:
    """Replaces "text 1" by the name of the first file in a text output."""

    def name(found: re.Match[str]) -> str:
        index = int(found[1]) - 1
        return (names[index] if index < len(names) else "") or found[0]

    text = outputs.get("text")
    return {**outputs, "text": _NUMBERED_TEXT.sub(name, text)} if isinstance(text, str) else outputs


def _singles(argument: task_pb2.Argument) -> Iterator[task_pb2.Argument]:
    if argument.HasField("list"):
        yield from argument.list.items
    else:
        yield argument


def _file_name(argument: task_pb2.Argument, files: Mapping[str, str]) -> str:
    """Name of the file that an argument refers to; empty if it is not a file."""
    if argument.HasField("input"):
        return files.get(argument.input.name, "")
    return argument.value.artifact.name if argument.HasField("value") else ""


def _output(value: artifact_pb2.Value) -> Output:
    match value.WhichOneof("kind"):
        case "artifact":
            return Artifact.from_proto(value.artifact)
        case "json":
            return Json(_parsed(value.json))
        case _:
            return value.text


def _object(text: str) -> Mapping[str, Any]:
    parsed = _parsed(text or "{}")
    return parsed if isinstance(parsed, dict) else {}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _seconds(usage: usage_pb2.Usage) -> float | None:
    for field_name in ("elapsed", "busy"):
        if usage.HasField(field_name):
            return float(getattr(usage, field_name).ToTimedelta().total_seconds())
    return None
