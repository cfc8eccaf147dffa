"""Validates and normalizes requests before they become runs, for all protocols."""

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.json_text import INLINE_PARSE_BYTES, canonical, loads
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import AnswerOptions, RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument
from services.common import call_context, json_schema
from services.common.artifacts import INLINE_BYTES, ArtifactStore
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest

MAX_REQUEST_BYTES = 1_000_000
"""Longest request text; longer texts are sent as files."""

MAX_INPUTS = 1_000
MAX_TASKS = 1_000

METADATA_ENTRIES, METADATA_BYTES = 32, 128 * 1024
"""Maximum number and total size of a run's metadata entries."""

MAX_TEXT_CHARACTERS = 1_000
"""Maximum characters of a batch item's name, which may be a path, of each text of its failure, and of a stop text."""

MAX_STOPS = 4
"""Maximum number of stop texts, as in OpenAI's API."""

OPENAI_METADATA = "openai"
"""Metadata key of the options of a request by OpenAI's API."""

RERUN_METADATA = "verification"
"""Metadata key of what a rerun covers."""

_RESERVED_METADATA = frozenset({OPENAI_METADATA, RERUN_METADATA})
"""Metadata keys that only the gateway writes."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control and bidirectional characters: a name that contains them could display as other text or several lines."""
_NAME = re.compile(r"[\w.-]{1,64}")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class RequestValidator:
    """Validates requests, completes them with defaults, and stores their large values as artifacts.

    Args:
        store: artifact store of the values.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    async def validate_run(self, spec: RunSpec, files: Sequence[Artifact] = (), key: str = "") -> RunSpec:
        """Completes a spec in place: names inputs, checks artifacts, and stores large values as artifacts.

        Args:
            spec: spec as sent by the client.
            files: uploaded files; they become the inputs file1, file2, … after the spec's own inputs.
            key: idempotency key, if sent separately from the spec.

        Raises:
            InvalidRequest: the error names the invalid field.
            NotFound: ARTIFACT, the caller has no artifact with that digest.
        """
        _check_size(spec, len(files))
        _check_choices(spec)
        _check_metadata(spec)
        if spec.HasField("answer_options"):
            await asyncio.to_thread(_check_answer_options, spec.answer_options)
        _name_inputs(spec, files)
        spec.idempotency_key = _checked_key(key or spec.idempotency_key)
        await self.normalize_plan(spec.plan)
        for path, value in _input_values(spec):
            await self.normalize_value(path, value)
        return spec

    async def validate_batch(self, spec: BatchSpec, key: str = "") -> BatchSpec:
        """Validates a batch without its items, like `validate_run` for a run.

        Raises:
            InvalidRequest: the error names the invalid field.
            NotFound: ARTIFACT.
        """
        _check_length(spec.request)
        _check_choices(spec)
        _check_metadata(spec)
        spec.idempotency_key = _checked_key(key or spec.idempotency_key)
        await self.normalize_plan(spec.plan)
        return spec

    @staticmethod
    def check_item(item: NewItem) -> None:
        """Validates an item of a batch except its values; unnamed inputs become file1, file2, ….

        Raises:
            InvalidRequest: the error names the invalid field.
        """
        for text in (item.name, item.failure.reason, item.failure.message, item.failure.remedy, item.failure.port):
            _check_text(text)
        if _UNPRINTABLE.search(item.name):
            message = "the item's name contains control characters"
            raise InvalidRequest(message, remedy="remove line breaks and control characters", port="name")
        _check_count(len(item.inputs))
        _name_inputs(item)

    async def normalize_plan(self, plan: Plan) -> None:
        """Validates and normalizes the parameters and values of a plan."""
        if len(plan.tasks) > MAX_TASKS:
            raise InvalidRequest(
                f"the plan has more than {MAX_TASKS} tasks", remedy="send a plan with fewer tasks", port="plan"
            )
        for index, task in enumerate(plan.tasks):
            path = f"plan[{index}].parameters"
            if task.parameters_json:
                task.parameters_json = _canonical_object(task.parameters_json, path)
            for port in sorted(task.arguments):
                for path, value in _values(task.arguments[port], f"plan[{index}].arguments.{port}"):
                    await self.normalize_value(path, value)

    async def normalize_value(self, path: str, value: Value) -> None:
        """Normalizes a value: resolves an artifact, canonicalizes JSON, and stores long text or JSON as an artifact.

        Raises:
            InvalidRequest: the error names the invalid field.
            NotFound: ARTIFACT, the caller has no artifact with that digest.
        """
        match value.WhichOneof("kind"):
            case "artifact":
                known = await self._store.head(call_context.current().tenant, value.artifact.sha256)
                known.name = clean_name(value.artifact.name or known.name)
                value.artifact.CopyFrom(known)
            case "text" if len(content := value.text.encode()) > INLINE_BYTES:
                value.artifact.CopyFrom(await self._spill(content, "text/plain", "text.txt"))
            case "json":
                value.json = await _canonical(value.json, path)
                if len(content := value.json.encode()) > INLINE_BYTES:
                    value.artifact.CopyFrom(await self._spill(content, "application/json", "data.json"))
            case None:
                raise InvalidRequest(f"{path} has no value", remedy="give it a value, or leave it out", port=path)

    async def _spill(self, content: bytes, media_type: str, name: str) -> Artifact:
        return await self._store.put(call_context.current().tenant, content, media_type=media_type, name=name)


async def _canonical(text: str, path: str) -> str:
    def normalize() -> str:
        return canonical(loads(text.encode(), path), path)

    return normalize() if len(text) < INLINE_PARSE_BYTES else await asyncio.to_thread(normalize)


def _check_size(spec: RunSpec, files: int) -> None:
    if not spec.request.strip() and not spec.plan.tasks and not spec.HasField("pipeline"):
        raise InvalidRequest(
            "the request is empty",
            reason="EMPTY",
            remedy="describe the task, send a plan, or name a pipeline",
            port="request",
        )
    _check_length(spec.request)
    _check_count(len(spec.inputs) + files)


def _check_length(request: str) -> None:
    if len(request.encode()) > MAX_REQUEST_BYTES:
        raise InvalidRequest(
            f"the request is longer than {MAX_REQUEST_BYTES / 1e6:g} MB",
            reason="TOO_LARGE",
            remedy="send long texts as files",
            port="request",
        )


def _check_count(inputs: int) -> None:
    if inputs > MAX_INPUTS:
        raise InvalidRequest(
            f"the request has more than {MAX_INPUTS} inputs", remedy="send fewer inputs", port="inputs"
        )


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT_CHARACTERS:
        message = f"the item's name or failure text is longer than {MAX_TEXT_CHARACTERS} characters"
        raise InvalidRequest(message, remedy="shorten it", port="name")


def _check_choices(spec: RunSpec | BatchSpec) -> None:
    for field in spec.DESCRIPTOR.fields:
        if field.enum_type and getattr(spec, field.name) not in field.enum_type.values_by_number:
            raise InvalidRequest(
                f"{field.name} has an unknown value", remedy="use a value of the enum in the proto", port=field.name
            )
    budget = spec.budget
    times = (budget.expert_time.ToNanoseconds(), budget.wall_time.ToNanoseconds())
    if min(budget.llm_tokens, budget.tasks, *times) < 0:
        raise InvalidRequest("a budget is negative", remedy="leave out limits that do not apply", port="budget")


def _check_answer_options(options: AnswerOptions) -> None:
    if len(options.stop) > MAX_STOPS or any(not 0 < len(text) <= MAX_TEXT_CHARACTERS for text in options.stop):
        raise InvalidRequest(
            f"stop is not a list of up to {MAX_STOPS} texts of up to {MAX_TEXT_CHARACTERS} characters",
            remedy="send fewer and shorter texts",
            port="answer_options.stop",
        )
    if options.json_schema:
        json_schema.check(loads(options.json_schema.encode()), "answer_options.json_schema")


def _check_metadata(spec: RunSpec | BatchSpec) -> None:
    size = sum(len(key.encode()) + len(text.encode()) for key, text in spec.metadata.items())
    if used := sorted(_RESERVED_METADATA & spec.metadata.keys()):
        remedy = "use another name: this one is reserved for the gateway"
        raise InvalidRequest(f"the metadata key {used[0]} is reserved", remedy=remedy, port="metadata")
    if len(spec.metadata) > METADATA_ENTRIES or size > METADATA_BYTES:
        raise InvalidRequest(
            f"the metadata has more than {METADATA_ENTRIES} entries or {METADATA_BYTES // 1024} KiB",
            reason="TOO_LARGE",
            remedy="store the data elsewhere, and only its id in the metadata",
            port="metadata",
        )


def _name_inputs(spec: RunSpec | NewItem, files: Sequence[Artifact] = ()) -> None:
    for artifact in files:
        spec.inputs.add().value.artifact.CopyFrom(artifact)
    used = {named.name for named in spec.inputs if named.name}
    free = (name for number in range(1, 2 * MAX_INPUTS + 1) if (name := f"file{number}") not in used)
    for named in spec.inputs:
        named.name = named.name or next(free)
        if not _NAME.fullmatch(named.name):
            remedy = "use up to 64 letters, digits, dots, hyphens and underscores"
            raise InvalidRequest(f"invalid input name {named.name[:100]!r}", remedy=remedy, port="inputs")
    names = Counter(named.name for named in spec.inputs)
    if duplicate := next((name for name, count in names.items() if count > 1), None):
        raise InvalidRequest(f"two inputs are named {duplicate}", remedy="give each input its own name", port="inputs")


def _checked_key(key: str) -> str:
    if key and not _KEY.fullmatch(key):
        remedy = "use up to 255 visible ASCII characters, such as a UUID"
        raise InvalidRequest("the idempotency key is invalid", remedy=remedy, port="idempotency_key")
    return key or uuid.uuid4().hex


def _input_values(spec: RunSpec) -> Iterator[tuple[str, Value]]:
    for index, named in enumerate(spec.inputs):
        yield f"inputs[{index}]", named.value
    for number, turn in enumerate(spec.history):
        for index, named in enumerate(turn.attachments):
            yield f"history[{number}].attachments[{index}]", named.value


def _values(argument: Argument, path: str) -> Iterator[tuple[str, Value]]:
    match argument.WhichOneof("kind"):
        case "value":
            yield path, argument.value
        case "list":
            for index, item in enumerate(argument.list.items):
                if item.WhichOneof("kind") == "list":
                    raise InvalidRequest(f"{path} is a list of lists", remedy="flatten it", port=path)
                yield from _values(item, f"{path}[{index}]")
        case None:
            raise InvalidRequest(f"{path} has no value", remedy="give it a value, or leave it out", port=path)


def _canonical_object(text: str, path: str) -> str:
    content = loads(text.encode(), path)
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path} is not a JSON object", remedy="send an object", port=path)
    return canonical(content, path)
