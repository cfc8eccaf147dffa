"""One task of a pipeline in a worker process: loads the model once and runs it on rows, as an expert server would."""

import asyncio
import hashlib
import json
import random
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from experts.bulk.isolated_model import load_isolated
from experts.bulk.pipeline import Cell, InputName, OutputName, ResolvedTask, package_of
from experts.bulk.storage import OutputFolder, file_name, read_file
from experts.host.active_calls import ActiveCalls, CallItems
from experts.host.app import create_models
from experts.host.conversion import convert_outputs, output_ports, plain_inputs
from experts.host.devices import default_threads
from experts.host.expert import read_expert
from experts.host.handler import Inputs, Media, Outputs, RemoteHandler
from experts.host.inference import CallSteps, Inference, InferenceResult
from experts.host.input_validation import InputValidator, ParameterReader
from experts.host.isolation import running
from experts.host.model_manager import ModelSlot
from experts.host.settings import Settings
from experts.host.threads import ThreadPool
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TABLE, MODALITY_TEXT, Artifact, Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.expert_pb2 import InferBatchItem
from protos.hugginggpt.v1.task_pb2 import Port
from services.common import call_context, logging
from services.common.errors import FailedPrecondition, InvalidRequest, RecoveryAction, ServiceError, recovery_action
from services.common.media_types import HEAD_BYTES, media_type

T = TypeVar("T")
Row = Mapping[str, Any]
"""Values of the pipeline's inputs by name: a path, text, bytes, a mapping with the fields of Cell, or None."""
Result = dict[str, Any]
"""Result of one task for one row: outputs by port, digests of inputs, model, seconds and error (frame.result_type)."""

SEED, SEED_BITS = "seed", 53
REMOTE_CALLS = 16
"""Maximum calls of one model in another service at the same time, by one worker."""
ATTEMPTS = 5
"""Attempts of a call that may succeed later, such as one that a server refused because of its load."""
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.5, 60.0


@dataclass(frozen=True)
class WorkerOptions:
    """Options of all workers of one task."""

    settings: Settings
    """Settings of experts, read where the job starts: Daft sets LOG_FORMAT in worker processes."""
    is_local: bool = False
    """Whether its data policy forbids data to leave the deployment."""
    output: str = ""
    """Folder for files that are outputs of the pipeline; empty: they stay in the rows."""
    processes: int = 1
    """Worker processes of the task on this machine, which share its cores."""
    cores: int = 1


class WorkerFailed(Exception):
    """A worker cannot run its task; the text is JSON with message and remedy, since Daft passes on only text."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(json.dumps({"message": error.message, "remedy": error.remedy}))


@dataclass
class _Item:
    """One row that is run: what its result needs to know about its inputs."""

    arguments: Mapping[str, Sequence[tuple[str, Cell]]]
    """By port: the name of the pipeline's input, empty for other values, and the value."""
    digests: list[dict[str, Any]] = field(default_factory=list)


class TaskWorker:
    """Loads the model of one task and runs it on rows.

    Args:
        task: the task.
        options: of the job.

    Raises:
        WorkerFailed: the model cannot be loaded.
    """

    def __init__(self, task: ResolvedTask, options: WorkerOptions) -> None:
        logging.setup("bulk", level="WARNING", style=options.settings.log_format)
        self._task, self._options = task, options
        self._folder = OutputFolder(options.output) if options.output else None
        policy = DATA_POLICY_LOCAL if options.is_local else DATA_POLICY_OPEN
        self._caller = Caller(tenant="default", policy=policy)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=f"task-{task.id}", daemon=True).start()
        self._stack = AsyncExitStack()  # never left: the process ends with the worker
        try:
            self._await(self._open())
        except ServiceError as error:
            raise WorkerFailed(error) from error

    def run(self, rows: Sequence[Row], results: Mapping[int, Sequence[Result]]) -> list[Result]:
        """Runs the task on rows.

        Args:
            rows: values of the pipeline's inputs.
            results: of the tasks it depends on, by id, in the order of the rows.

        Returns:
            A result for each row; a row that fails has an error and affects no other.
        """
        return self._await(self._run(rows, results))

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        settings, task = self._options.settings, self._task
        expert = read_expert(package_of(task.expert))
        offer = expert.find(task.task, task.model)
        if task.revision and offer.card.revision != task.revision:
            raise FailedPrecondition(
                f"{task.model} is at revision {offer.card.revision or 'unknown'} on this machine, not {task.revision}",
                reason="REVISION",
                remedy="install the same versions on all machines",
            )
        if expert.devices is None:
            own = offer
            offer = replace(own, loader=lambda _model, device: load_isolated(task, own, device))
        expert = replace(expert, offers=(offer,), preload=(offer.card.id,))
        self._spec, self._ports = offer.spec, output_ports(offer.spec)
        self._validator = InputValidator(offer.spec)
        self._parameters = ParameterReader(offer.spec).read(task.parameters_json)
        self._draws_seed = any(each.name == SEED for each in offer.spec.parameters) and SEED not in self._parameters
        self._max_bytes = settings.max_input_bytes
        self._share = share = max(1, self._options.cores // self._options.processes)
        isolation = replace(
            settings.isolation, workers=share, slow_workers=share, engine_workers=share, modules=expert.isolated_modules
        )
        self._stack.enter_context(running(isolation, ahead=False))
        cpu = ThreadPool("cpu", settings.threads or default_threads(), elastic=True)
        models = create_models(expert, settings)
        self._inference, self._calls = Inference(cpu), ActiveCalls()
        self._slot: ModelSlot = models.get(task.task, offer.card.id)
        await models.check_placements()
        await self._stack.enter_async_context(expert.connections(models.notify_change))
        async with self._slot.use() as loaded:  # so that a model that cannot be loaded ends the job at once
            is_remote, is_concurrent = isinstance(loaded.handler, RemoteHandler), loaded.handler.concurrent
        limit = REMOTE_CALLS if is_remote else share
        self._calls_at_once = asyncio.Semaphore(limit) if is_concurrent else None

    async def _run(self, rows: Sequence[Row], results: Mapping[int, Sequence[Result]]) -> list[Result]:
        done: dict[int, Result] = {}
        items: dict[int, _Item] = {}
        for index, row in enumerate(rows):
            found = {task_id: of_task[index] for task_id, of_task in results.items()}
            if failed := next((result for result in found.values() if result["error"]), None):
                done[index] = self._result(error=failed["error"])
                continue
            try:
                items[index] = _Item(self._resolve(row, found))
            except InvalidRequest as error:
                done[index] = self._result(error=self._failure(error))
        with call_context.use_caller(self._caller):
            done |= await self._run_items(items)
        return [done[index] for index in range(len(rows))]

    async def _run_items(self, items: Mapping[int, _Item]) -> dict[int, Result]:
        """Runs items, and again those whose call may succeed later."""
        done: dict[int, Result] = {}
        waiting, delay = dict(items), FIRST_DELAY_SECONDS
        for attempt in range(ATTEMPTS):
            outcomes = await self._infer(list(waiting.values()))
            retried: dict[int, ServiceError] = {}
            for (index, item), outcome in zip(waiting.items(), outcomes, strict=True):
                if isinstance(outcome, InferenceResult):
                    done[index] = self._result(outcome.result, item.digests, outcome.busy_seconds)
                    continue
                if recovery_action(outcome) is RecoveryAction.RETRY:
                    retried[index] = outcome
                done[index] = self._result(digests=item.digests, error=self._failure(outcome))
            waiting = {index: replace(waiting[index], digests=[]) for index in retried}
            if not waiting or attempt == ATTEMPTS - 1:
                break
            requested = max(each.retry_after.total_seconds() if each.retry_after else 0 for each in retried.values())
            await asyncio.sleep(min(max(requested, delay * random.uniform(0.5, 1.0)), MAX_DELAY_SECONDS))  # noqa: S311  # jitter
            delay *= 2
        return done

    async def _infer(self, items: Sequence[_Item]) -> list["InferenceResult[dict[str, Any]] | ServiceError"]:
        """Runs items once: all together, or a few at a time where each is a call to another process or service."""
        if self._calls_at_once is None:
            return await self._infer_together(items)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._infer_alone(item)) for item in items]
        return [each.result() for each in running]

    async def _infer_alone(self, item: _Item) -> "InferenceResult[dict[str, Any]] | ServiceError":
        assert self._calls_at_once  # noqa: S101  # as _infer has checked
        async with self._calls_at_once:
            return (await self._infer_together([item]))[0]

    async def _infer_together(self, items: Sequence[_Item]) -> list["InferenceResult[dict[str, Any]] | ServiceError"]:
        if not items:
            return []
        with self._calls.track("", "") as call:
            whole = call.items(len(items))
            steps = [self._steps(item, whole) for item in items]
            return await self._inference.run_items(self._slot, whole, steps, with_files=self._prepares_alone(items))

    def _prepares_alone(self, items: Sequence[_Item]) -> bool:
        """Whether each item is prepared in a job of its own: it has files, and there are cores to read them at once."""
        if self._share == 1:
            return False
        if any(port.modality not in (MODALITY_TEXT, MODALITY_JSON) for port in self._ports.values()):
            return True
        return any(
            cell.url is not None or cell.content is not None
            for item in items
            for cells in item.arguments.values()
            for _, cell in cells
        )

    def _steps(self, item: _Item, call: CallItems) -> "CallSteps[dict[str, Any]]":
        parameters = self._parameters
        if self._draws_seed:
            parameters = {**parameters, SEED: _draw_seed(self._task.id, item.arguments)}
        return CallSteps(partial(self._read, item), parameters, self._write, call)

    def _resolve(self, row: Row, results: Mapping[int, Result]) -> dict[str, list[tuple[str, Cell]]]:
        """Returns the values of the task's arguments by port, without optional ones that the row lacks."""
        values: dict[str, list[tuple[str, Cell]]] = {}
        for port, arguments in self._task.arguments.items():
            is_text = next(each.modality for each in self._spec.inputs if each.name == port) in (
                MODALITY_TEXT,
                MODALITY_JSON,
            )
            for argument in arguments:
                match argument:
                    case InputName(name):
                        cell = _to_cell(row.get(name), is_text=is_text)
                        found = (name, cell) if cell else None
                    case OutputName(task_id, output):
                        cell = _to_cell(results[task_id]["outputs"].get(output), is_text=is_text)
                        if cell is None:
                            raise InvalidRequest(
                                f"task {task_id} has no output {output} for this row",
                                remedy="choose another model, or use another output",
                            )
                        found = ("", cell)
                    case Cell():
                        found = ("", argument)
                if found:
                    values.setdefault(port, []).append(found)
        return values

    def _read(self, item: _Item) -> Inputs:
        """Reads the files of an item and converts its values; on a CPU thread."""
        request, contents = InferBatchItem(), dict[str, list[bytes]]()
        ports = {port.name: port for port in self._spec.inputs}
        for name, cells in item.arguments.items():
            received = [self._receive(item, ports[name], input_name, cell) for input_name, cell in cells]
            contents[name] = [content for _, content in received]
            if ports[name].many:
                request.lists[name].values.extend(value for value, _ in received)
            else:
                request.inputs[name].CopyFrom(received[0][0])
        given = self._validator.read(request, max_bytes=self._max_bytes)
        return plain_inputs(
            [(each.port, list(zip(each.values, contents[each.port.name], strict=True))) for each in given]
        )

    def _receive(self, item: _Item, port: Port, input_name: str, cell: Cell) -> tuple[Value, bytes]:
        if cell.text is not None:
            content = cell.text.encode()
            value = _text_value(port, cell.text)
        else:
            content = read_file(cell.url) if cell.url is not None else cell.content or b""
            name = cell.name or file_name(cell.url or "") or port.name
            kind = cell.media_type or media_type(name, content[:HEAD_BYTES], whole=len(content) <= HEAD_BYTES)
            value = Value(artifact=Artifact(media_type=kind, size_bytes=len(content), name=name))
        if input_name:
            digest = hashlib.sha256(content).hexdigest()
            item.digests.append({"input": input_name, "sha256": digest, "size": len(content)})
        return value, content if cell.text is None else b""

    def _write(self, outputs: Outputs) -> dict[str, Any]:
        """Converts the outputs of an item to cells, and writes files that are outputs of the pipeline."""
        converted = convert_outputs(self._ports, self._task.model, outputs, inline_bytes=inf)
        used = self._task.stored_outputs | self._task.forwarded_outputs
        return {name: self._output_cell(name, output) for name, output in converted.items() if name in used}

    def _output_cell(self, name: str, output: Value | Media) -> dict[str, Any]:
        if isinstance(output, Value):
            return {"text": output.text or output.json}
        url = None
        if self._folder and name in self._task.stored_outputs:
            url = self._folder.write_media(output.content, output.media_type)
        content = None if url and name not in self._task.forwarded_outputs else output.content
        return {"url": url, "content": content, "media_type": output.media_type, "name": output.name}

    def _result(
        self,
        outputs: Mapping[str, Any] | None = None,
        digests: Sequence[Mapping[str, Any]] = (),
        seconds: float | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> Result:
        model = None
        if seconds is not None:
            model = f"{self._task.model}@{self._slot.revision}" if self._slot.revision else self._task.model
        return {"outputs": outputs or {}, "digests": list(digests), "model": model, "seconds": seconds, "error": error}

    def _failure(self, error: ServiceError) -> dict[str, Any]:
        return {"code": error.reason, "message": error.message, "remedy": error.remedy, "task": self._task.id}


def _to_cell(value: Any, *, is_text: bool) -> Cell | None:
    """Returns the value of a row or of an earlier task; None if there is none."""
    if isinstance(value, Mapping):
        known: dict[str, Any] = {name: value.get(name) for name in ("url", "text", "content")}
        if known["content"] is not None:
            described = {name: value.get(name) or "" for name in ("media_type", "name")}
            return Cell(content=known["content"], **described)
        return Cell(**known) if any(each is not None for each in known.values()) else None
    if value is None:
        return None
    if isinstance(value, bytes):
        return Cell(content=value)
    return Cell(text=str(value)) if is_text else Cell(url=str(value))


def _text_value(port: Port, text: str) -> Value:
    return Value(json=text) if port.modality in (MODALITY_JSON, MODALITY_TABLE) else Value(text=text)


def _draw_seed(task_id: int, arguments: Mapping[str, Sequence[tuple[str, Cell]]]) -> int:
    """Returns a seed that is the same whenever the task runs on the same values."""
    values = [
        (port, [(cell.url, cell.text, _digest(cell.content)) for _, cell in cells])
        for port, cells in sorted(arguments.items())
    ]
    drawn = hashlib.sha256(repr((task_id, values)).encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - SEED_BITS)


def _digest(content: bytes | None) -> str:
    return hashlib.sha256(content).hexdigest() if content is not None else ""
