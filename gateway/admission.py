"""What a request must be before a run is made of it; the same over HTTP and gRPC."""

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.json_text import QUICK_BYTES, canonical, loads
from gateway.openai import request_options as openai_terms
from gateway.provenance import rerun_terms as recording_terms
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument
from services.common import call_context
from services.common.artifacts import INLINE_BYTES, ArtifactStore
from services.common.artifacts.naming import clean_name
from services.common.errors import InvalidRequest

REQUEST_BYTES = 1_000_000
"""Longest request in words; more is a file."""

MAX_INPUTS = 1_000
MAX_TASKS = 1_000

METADATA_ENTRIES, METADATA_BYTES = 32, 128 * 1024
"""Most that is kept with a run for whoever asked."""

WORDS_CHARACTERS = 1_000
"""Longest name of an item of a batch, paths being names, too, and longest word on why it fails."""

_OURS = frozenset({openai_terms.NOTE, recording_terms.NOTE})
"""Names in a run's metadata that only the gateway itself writes."""

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What breaks a line, or turns the order of what is read: a name that has it can pretend to be more lines."""
_NAME = re.compile(r"[\w.-]{1,64}")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class Admission:
    """Lets requests in.

    Args:
        store: where the artifacts they name must be.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    async def admit(self, spec: RunSpec, files: Sequence[Artifact] = (), key: str = "") -> RunSpec:
        """A spec as the orchestrator takes it: files are inputs, artifacts are there, values are short.

        Args:
            spec: as sent; completed in place.
            files: sent with it; they become the inputs file1, file2, … after its own.
            key: the idempotency key, if it came beside the spec.

        Raises:
            InvalidRequest: naming what is wrong and where.
            NotFound: ARTIFACT, the caller has none of that digest.
        """
        _check_size(spec, len(files))
        _check_choices(spec)
        _check_metadata(spec)
        _name_inputs(spec, files)
        spec.idempotency_key = _checked_key(key or spec.idempotency_key)
        await self.settle_plan(spec.plan)
        for where, value in _sent_values(spec):
            await self.settle(where, value)
        return spec

    async def admit_batch(self, spec: BatchSpec, key: str = "") -> BatchSpec:
        """Does for a batch, without its items, what admit does for a run.

        Raises:
            InvalidRequest: naming what is wrong and where.
            NotFound: ARTIFACT.
        """
        _check_length(spec.request)
        _check_choices(spec)
        _check_metadata(spec)
        spec.idempotency_key = _checked_key(key or spec.idempotency_key)
        await self.settle_plan(spec.plan)
        return spec

    @staticmethod
    def check_item(item: NewItem) -> None:
        """Looks at an item of a batch, but not at its values; inputs without a name become file1, file2 and so on.

        Raises:
            InvalidRequest: naming what is wrong with it.
        """
        for text in (item.name, item.failure.reason, item.failure.message, item.failure.remedy, item.failure.port):
            _check_words(text)
        if _UNSEEN.search(item.name):
            message = "its name has characters that break lines or hide what it says"
            raise InvalidRequest(message, remedy="leave control characters out", port="name")
        _check_count(len(item.inputs))
        _name_inputs(item)

    async def settle_plan(self, plan: Plan) -> None:
        """Does for a plan what admit does for a spec."""
        if len(plan.tasks) > MAX_TASKS:
            raise InvalidRequest(f"the plan has more than {MAX_TASKS} tasks", remedy="send a shorter one", port="plan")
        for index, task in enumerate(plan.tasks):
            where = f"plan[{index}].parameters"
            if task.parameters_json:
                task.parameters_json = _canonical_object(task.parameters_json, where)
            for port in sorted(task.arguments):
                for place, value in _values(task.arguments[port], f"plan[{index}].arguments.{port}"):
                    await self.settle(place, value)

    async def settle(self, where: str, value: Value) -> None:
        """A value as the orchestrator takes it: an artifact is there, JSON is canonical, what is long is an artifact.

        Raises:
            InvalidRequest: naming what is wrong and where.
            NotFound: ARTIFACT, the caller has none of that digest.
        """
        match value.WhichOneof("kind"):
            case "artifact":
                known = await self._store.head(call_context.current().tenant, value.artifact.sha256)
                known.name = clean_name(value.artifact.name or known.name)
                value.artifact.CopyFrom(known)
            case "text" if len(content := value.text.encode()) > INLINE_BYTES:
                value.artifact.CopyFrom(await self._spill(content, "text/plain", "text.txt"))
            case "json":
                value.json = await _canonical(value.json, where)
                if len(content := value.json.encode()) > INLINE_BYTES:
                    value.artifact.CopyFrom(await self._spill(content, "application/json", "data.json"))
            case None:
                raise InvalidRequest(f"{where} has no value", remedy="give it one, or leave it out", port=where)

    async def _spill(self, content: bytes, media_type: str, name: str) -> Artifact:
        return await self._store.put(call_context.current().tenant, content, media_type=media_type, name=name)


async def _canonical(text: str, where: str) -> str:
    def again() -> str:
        return canonical(loads(text.encode(), where), where)

    return again() if len(text) < QUICK_BYTES else await asyncio.to_thread(again)


def _check_size(spec: RunSpec, files: int) -> None:
    if not spec.request.strip() and not spec.plan.tasks and not spec.HasField("pipeline"):
        raise InvalidRequest(
            "the request is empty",
            reason="EMPTY",
            remedy="say what should be done, supply a plan, or name a pipeline",
            port="request",
        )
    _check_length(spec.request)
    _check_count(len(spec.inputs) + files)


def _check_length(request: str) -> None:
    if len(request.encode()) > REQUEST_BYTES:
        raise InvalidRequest(
            f"the request is longer than {REQUEST_BYTES / 1e6:g} MB",
            reason="TOO_LARGE",
            remedy="send long texts as files",
            port="request",
        )


def _check_count(inputs: int) -> None:
    if inputs > MAX_INPUTS:
        raise InvalidRequest(f"there are more than {MAX_INPUTS} inputs", remedy="send fewer", port="inputs")


def _check_words(text: str) -> None:
    if len(text) > WORDS_CHARACTERS:
        message = f"its name, or why it fails, is longer than {WORDS_CHARACTERS} characters"
        raise InvalidRequest(message, remedy="shorten it", port="name")


def _check_choices(spec: RunSpec | BatchSpec) -> None:
    for field in spec.DESCRIPTOR.fields:
        if field.enum_type and getattr(spec, field.name) not in field.enum_type.values_by_number:
            raise InvalidRequest(f"{field.name} has no such value", remedy="see the proto's enum", port=field.name)
    budget = spec.budget
    times = (budget.expert_time.ToNanoseconds(), budget.wall_time.ToNanoseconds())
    if min(budget.llm_tokens, budget.tasks, *times) < 0:
        raise InvalidRequest("a budget cannot be negative", remedy="leave out what has no limit", port="budget")


def _check_metadata(spec: RunSpec | BatchSpec) -> None:
    size = sum(len(key.encode()) + len(text.encode()) for key, text in spec.metadata.items())
    if taken := sorted(_OURS & spec.metadata.keys()):
        remedy = "use another name: the house keeps things of its own there"
        raise InvalidRequest(f"metadata cannot have the name {taken[0]}", remedy=remedy, port="metadata")
    if len(spec.metadata) > METADATA_ENTRIES or size > METADATA_BYTES:
        raise InvalidRequest(
            f"the metadata has more than {METADATA_ENTRIES} entries or {METADATA_BYTES // 1024} KiB",
            reason="TOO_LARGE",
            remedy="keep it elsewhere, and only its id here",
            port="metadata",
        )


def _name_inputs(spec: RunSpec | NewItem, files: Sequence[Artifact] = ()) -> None:
    for artifact in files:
        spec.inputs.add().value.artifact.CopyFrom(artifact)
    taken = {named.name for named in spec.inputs if named.name}
    free = (name for number in range(1, 2 * MAX_INPUTS + 1) if (name := f"file{number}") not in taken)
    for named in spec.inputs:
        named.name = named.name or next(free)
        if not _NAME.fullmatch(named.name):
            remedy = "use up to 64 letters, digits, dots, hyphens and underscores"
            raise InvalidRequest(f"an input cannot be called {named.name[:100]!r}", remedy=remedy, port="inputs")
    names = Counter(named.name for named in spec.inputs)
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise InvalidRequest(f"two inputs are called {twice}", remedy="give each its own name", port="inputs")


def _checked_key(key: str) -> str:
    if key and not _KEY.fullmatch(key):
        remedy = "use up to 255 visible ASCII characters, such as a UUID"
        raise InvalidRequest("the idempotency key cannot be used", remedy=remedy, port="idempotency_key")
    return key or uuid.uuid4().hex


def _sent_values(spec: RunSpec) -> Iterator[tuple[str, Value]]:
    for index, named in enumerate(spec.inputs):
        yield f"inputs[{index}]", named.value
    for number, turn in enumerate(spec.history):
        for index, named in enumerate(turn.attachments):
            yield f"history[{number}].attachments[{index}]", named.value


def _values(argument: Argument, where: str) -> Iterator[tuple[str, Value]]:
    match argument.WhichOneof("kind"):
        case "value":
            yield where, argument.value
        case "list":
            for index, item in enumerate(argument.list.items):
                if item.WhichOneof("kind") == "list":
                    raise InvalidRequest(f"{where} is a list of lists", remedy="flatten it", port=where)
                yield from _values(item, f"{where}[{index}]")
        case None:
            raise InvalidRequest(f"{where} has no value", remedy="give it one, or leave it out", port=where)


def _canonical_object(text: str, where: str) -> str:
    content = loads(text.encode(), where)
    if not isinstance(content, dict):
        raise InvalidRequest(f"{where} is not a JSON object", remedy="send an object", port=where)
    return canonical(content, where)
