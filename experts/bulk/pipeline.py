"""A pipeline resolved to the models that run it: checked before anything starts."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experts.bulk.storage import absolute
from experts.host.expert import Expert, Offer, package_in, read_expert
from experts.host.input_validation import ParameterReader, describe_port
from protos.hugginggpt.pipeline_file import PipelineFileError, check_pipeline
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TABLE, MODALITY_TEXT
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common import strict_json
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, ServiceError

DEFAULT_EXPERTS = ("lite",)
FILES, COLUMNS = "files", "columns"
"""Where media that a pipeline makes are: next to the table, or in it."""

DIGEST_DIGITS = 16
"""Digits of the digest that identifies a resolved pipeline."""


@dataclass(frozen=True)
class Cell:
    """A value of a row or of an argument: one of url, text and content is set."""

    url: str | None = None
    """Path or object URL of a file."""
    text: str | None = None
    """Text, or JSON text for a port that takes JSON."""
    content: bytes | None = None
    media_type: str = ""
    name: str = ""


@dataclass(frozen=True)
class InputName:
    """An argument that is an input of the pipeline."""

    name: str


@dataclass(frozen=True)
class OutputName:
    """An argument that is an output of an earlier task."""

    task_id: int
    output: str


Argument = InputName | OutputName | Cell


@dataclass(frozen=True)
class ResolvedTask:
    """A task of the plan with the model that runs it; can be sent to other processes."""

    id: int
    task: str
    expert: str
    """Name of an expert of this project, or the folder of another one."""
    model: str
    revision: str
    """Commit or version of the model; empty if it is known only once the model is loaded."""
    arguments: Mapping[str, tuple[Argument, ...]]
    """By input port."""
    parameters_json: str = ""
    stored_outputs: frozenset[str] = frozenset()
    """Output ports that are outputs of the pipeline."""
    forwarded_outputs: frozenset[str] = frozenset()
    """Output ports that later tasks take."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the pipeline's inputs that it takes."""
        return tuple(dict.fromkeys(each.name for each in self._flat() if isinstance(each, InputName)))

    @property
    def dependencies(self) -> tuple[int, ...]:
        """Ids of the tasks whose outputs it takes."""
        return tuple(dict.fromkeys(each.task_id for each in self.references))

    @property
    def references(self) -> tuple[OutputName, ...]:
        """Outputs of earlier tasks that it takes."""
        return tuple(each for each in self._flat() if isinstance(each, OutputName))

    @property
    def model_name(self) -> str:
        """The model with its revision, as tables record it."""
        return f"{self.model}@{self.revision}" if self.revision else self.model

    def _flat(self) -> Iterator[Argument]:
        for arguments in self.arguments.values():
            yield from arguments


@dataclass(frozen=True)
class PipelineOutput:
    """An output of the pipeline."""

    name: str
    """Unique among the outputs: the port, or task<id>.<port> if several tasks are final."""
    task_id: int
    port: str
    is_file: bool
    """Whether it is media, not text or JSON."""


@dataclass(frozen=True)
class ResolvedPipeline:
    """A pipeline whose tasks all have a model; can be sent to other processes."""

    name: str
    tasks: tuple[ResolvedTask, ...]
    inputs: Mapping[str, bool]
    """Whether each input is required, by name, in order of use."""
    outputs: tuple[PipelineOutput, ...]
    texts: frozenset[str] = frozenset()
    """Inputs whose values in a table are text or JSON, not paths."""
    is_local: bool = False
    """Whether its data policy forbids data to leave the deployment."""
    has_media_columns: bool = False
    """Whether media are columns of the table, not files next to it."""
    version: str = field(init=False)
    """Identifies the plan, its models and the columns: results of another version are computed again."""

    def __post_init__(self) -> None:
        tasks = [
            (task.id, task.task, task.model_name, sorted(task.arguments.items()), task.parameters_json)
            for task in self.tasks
        ]
        columns = (COLUMNS,) if self.has_media_columns and any(each.is_file for each in self.outputs) else ()
        digest = hashlib.sha256(repr((tasks, self.outputs, *columns)).encode()).hexdigest()[:DIGEST_DIGITS]
        object.__setattr__(self, "version", f"{self.name}@{digest}")


def read_experts(names: Iterable[str]) -> dict[str, Expert]:
    """Reads experts by name or folder, in order.

    Raises:
        ServiceError: there is no such expert, or none of its engines is installed.
    """
    return {name: read_expert(package_of(name)) for name in names}


def package_of(expert: str) -> str:
    """Returns the package of an expert and makes it importable.

    Args:
        expert: name of an expert of this project, or the folder of another one.

    Raises:
        FailedPrecondition: there is neither.
    """
    if expert.isidentifier() and not Path(expert, "tasks.py").is_file():
        if find_spec(f"experts.{expert}") is None or find_spec(f"experts.{expert}.tasks") is None:
            raise FailedPrecondition(
                f"there is no expert {expert}", remedy="name an expert of this project, or the folder of your own"
            )
        return f"experts.{expert}"
    return package_in(Path(expert))


def resolve(
    content: Mapping[str, Any],
    experts: Mapping[str, Expert],
    *,
    values: Mapping[str, str] | None = None,
    policy: str = "",
    media: str = FILES,
) -> ResolvedPipeline:
    """Resolves the content of a pipeline file to the models of experts.

    Args:
        content: as in the file.
        experts: by name or folder; the first one with a task's model runs it.
        values: text or path of inputs that are the same for all rows, by name.
        policy: "local" or "open"; empty for the pipeline's own.
        media: FILES or COLUMNS.

    Raises:
        InvalidRequest: the pipeline is invalid.
        NotFound: TASK or MODEL, no expert has one.
        FailedPrecondition: REVISION, or POLICY.
    """
    try:
        check_pipeline(content)
    except PipelineFileError as error:
        raise InvalidRequest(f"the pipeline is invalid: {error.message}", remedy=error.remedy) from None
    offers = [(task, *_find_offer(task, experts)) for task in content["plan"]]
    builder = _Builder(offers, values or {})
    is_local = "local" in (policy, content.get("policy"))
    if is_local:
        _check_policy(offers)
    return ResolvedPipeline(
        name=content["name"],
        tasks=tuple(builder.tasks()),
        inputs=builder.inputs,
        outputs=tuple(builder.outputs()),
        texts=frozenset(builder.texts),
        is_local=is_local,
        has_media_columns=media == COLUMNS,
    )


def _find_offer(task: Mapping[str, Any], experts: Mapping[str, Expert]) -> tuple[str, Offer]:
    """Returns the expert and the offer for a task of the plan."""
    name, model, revision = task["task"], task.get("model", ""), task.get("revision", "")
    error: ServiceError | None = None
    for expert, read in experts.items():
        try:
            offer = read.find(name, model)
        except NotFound as missing:
            if error is None or missing.reason == "MODEL":
                error = missing
            continue
        if revision and offer.card.revision and revision != offer.card.revision:
            error = FailedPrecondition(
                f"task {task['id']} needs {model} at revision {revision}; {expert} has {offer.card.revision}",
                reason="REVISION",
                remedy="remove the revision from the pipeline, or install the one that it names",
            )
            continue
        return expert, offer
    assert error  # noqa: S101  # there is at least one expert
    if error.reason == "REVISION":
        raise error
    raise NotFound(f"task {task['id']}: {error.message}", reason=error.reason, remedy=_remedy(name, error))


def _remedy(task: str, error: ServiceError) -> str:
    """Names the experts of this project to add, by their extras, for a task that no given expert has."""
    if error.reason != "TASK":
        return error.remedy
    return f"name further experts, such as --experts lite,text,vision; hugginggpt tasks shows which one has {task}"


def _check_policy(offers: Iterable[tuple[Mapping[str, Any], str, Offer]]) -> None:
    for task, _, offer in offers:
        if offer.card.location == MODEL_LOCATION_EXTERNAL:
            raise FailedPrecondition(
                f"task {task['id']} runs on {offer.card.id}, outside this deployment, but the data policy is local",
                reason="POLICY",
                remedy="choose another model, or use --policy open with a pipeline that allows it",
            )


class _Builder:
    """Builds resolved tasks, inputs and outputs, and checks that they fit together."""

    def __init__(self, offers: Sequence[tuple[Mapping[str, Any], str, Offer]], values: Mapping[str, str]) -> None:
        self.inputs: dict[str, bool] = {}
        self.texts: set[str] = set()
        self._offers, self._values = offers, values
        self._given: set[str] = set()
        self._specs: dict[int, TaskSpec] = {}
        self._arguments: dict[int, dict[str, tuple[Argument, ...]]] = {}
        for task, _, offer in offers:
            if task["id"] in self._specs:
                raise InvalidRequest(f"two tasks have the id {task['id']}", remedy="give each task its own id")
            ParameterReader(offer.spec).read(strict_json.write(task.get("parameters", {})))
            self._arguments[task["id"]] = self._read_arguments(task, offer.spec)
            self._specs[task["id"]] = offer.spec
        if unused := sorted(values.keys() - self._given):
            names = ", ".join(sorted(self.inputs.keys() | self._given)) or "none"
            raise InvalidRequest(f"the pipeline has no input {unused[0]}", remedy=f"its inputs are {names}")

    def tasks(self) -> Iterator[ResolvedTask]:
        taken = [each for arguments in self._arguments.values() for each in _flat(arguments)]
        references = {(each.task_id, each.output) for each in taken if isinstance(each, OutputName)}
        stored = {(output.task_id, output.port) for output in self.outputs()}
        for task, expert, offer in self._offers:
            task_id = task["id"]
            yield ResolvedTask(
                id=task_id,
                task=task["task"],
                expert=expert,
                model=offer.card.id,
                revision=offer.card.revision,
                arguments=self._arguments[task_id],
                parameters_json=strict_json.write(task["parameters"]) if task.get("parameters") else "",
                stored_outputs=frozenset(port for each, port in stored if each == task_id),
                forwarded_outputs=frozenset(port for each, port in references if each == task_id),
            )

    def outputs(self) -> Iterator[PipelineOutput]:
        """Outputs of the tasks that no other task uses, named as those of pipelines in service mode."""
        used = {each.task_id for arguments in self._arguments.values() for each in _references(arguments)}
        final = [task_id for task_id in self._specs if task_id not in used]
        for task_id in final:
            for port in self._specs[task_id].outputs:
                name = port.name if len(final) == 1 else f"task{task_id}.{port.name}"
                yield PipelineOutput(name, task_id, port.name, is_file=not _is_text(port))

    def _read_arguments(self, task: Mapping[str, Any], spec: TaskSpec) -> dict[str, tuple[Argument, ...]]:
        ports = {port.name: port for port in spec.inputs}
        arguments: dict[str, tuple[Argument, ...]] = {}
        for name, given in task.get("args", {}).items():
            if name not in ports:
                known = ", ".join(ports)
                raise InvalidRequest(f"task {task['id']} ({spec.name}) has no input {name}", remedy=f"use {known}")
            port = ports[name]
            items = given if port.many and isinstance(given, list) else [given]
            arguments[name] = tuple(self._read_argument(task["id"], port, item) for item in items)
        for name, port in ports.items():
            if port.required and not arguments.get(name):
                raise InvalidRequest(
                    f"task {task['id']} ({spec.name}) needs the input {name}", remedy=f"give it {describe_port(port)}"
                )
        return arguments

    def _read_argument(self, task_id: int, port: Port, given: Any) -> Argument:
        match given:
            case {"input": str(name)} if name in self._values:
                self._given.add(name)
                value = self._values[name]
                return Cell(text=value) if _is_text(port) else Cell(url=absolute(value))
            case {"input": str(name)}:
                self.inputs[name] = self.inputs.get(name, False) or port.required
                if _is_text(port):
                    self.texts.add(name)
                return InputName(name)
            case {"task_id": int(earlier), "output": str(output)}:
                self._check_reference(task_id, earlier, output)
                return OutputName(earlier, output)
            case {"artifact": _}:
                raise InvalidRequest(
                    f"input {port.name} of task {task_id} is a stored file, which bulk mode cannot read",
                    remedy=f"make it an input of the pipeline: {port.name}: {{input: {port.name}}}",
                )
            case {"json": content} if len(given) == 1:
                return Cell(text=strict_json.write(content))
            case str() if port.modality == MODALITY_TEXT:
                return Cell(text=given)
        if port.modality in (MODALITY_JSON, MODALITY_TABLE):
            return Cell(text=strict_json.write(given))
        raise InvalidRequest(
            f"input {port.name} of task {task_id} takes {describe_port(port)}, not {json.dumps(given)[:60]}",
            remedy="refer to an input of the pipeline or to an output of an earlier task",
        )

    def _check_reference(self, task_id: int, earlier: int, output: str) -> None:
        spec = self._specs.get(earlier)
        if spec is None:
            raise InvalidRequest(
                f"task {task_id} refers to task {earlier}, which does not come before it",
                remedy="refer to an earlier task",
            )
        outputs = [port.name for port in spec.outputs]
        if output not in outputs:
            raise InvalidRequest(
                f"task {earlier} ({spec.name}) has no output {output}", remedy=f"use {', '.join(outputs)}"
            )


def _is_text(port: Port) -> bool:
    return port.modality in (MODALITY_TEXT, MODALITY_JSON)


def _flat(arguments: Mapping[str, Collection[Argument]]) -> Iterator[Argument]:
    for each in arguments.values():
        yield from each


def _references(arguments: Mapping[str, Collection[Argument]]) -> Iterator[OutputName]:
    return (each for each in _flat(arguments) if isinstance(each, OutputName))
