"""What is traced and counted of models: batches, loads, memory. Labels are models, tasks and devices of this expert."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol
from weakref import WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import SpanContext

from experts.host.batch_composer import Member
from services.common import semantic_conventions as names
from services.common import tracing

_meter = metrics.get_meter("hugginggpt.expert")

batch_items = _meter.create_histogram(
    "expert_batch_items",
    description="Calls that ran together on a device, by model.",
    explicit_bucket_boundaries_advisory=(1, 2, 4, 8, 16, 32, 64, 128),
)
batch_seconds = _meter.create_histogram(
    "expert_batch_duration", unit="s", description="Time of batches on their device, by model."
)
load_seconds = _meter.create_histogram(
    "expert_model_load_duration", unit="s", description="Loads of models, by model and outcome: loaded or failed."
)
evictions = _meter.create_counter(
    "expert_model_evictions", description="Models that left memory so that others could come in, by model and device."
)


class Watched(Protocol):
    """The models of an expert, as far as they are counted."""

    @property
    def depths(self) -> Mapping[tuple[str, str], int]:
        """Calls, by model and state: waiting or running."""

    @property
    def memory(self) -> Mapping[tuple[str, str], int]:
        """Bytes, by device and what they are: taken by models, or their budget there."""

    @property
    def use(self) -> Mapping[str, float]:
        """The share of the last moments in which each device computed, where somebody knows."""


_watched: "WeakSet[Watched]" = WeakSet()


def watch(models: Watched) -> None:
    """Has models counted for as long as they are there."""
    _watched.add(models)


def _depths(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_watched):
        for (model_id, state), calls in models.depths.items():
            yield Observation(calls, {names.REQUEST_MODEL: model_id, "state": state})


def _memory(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_watched):
        for (device, kind), size in models.memory.items():
            yield Observation(size, {"device": device, "kind": kind})


def _use(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_watched):
        for device, share in models.use.items():
            yield Observation(share, {"device": device})


_meter.create_observable_gauge(
    "expert_calls", [_depths], description="Calls of this expert, by model and state: waiting or running."
)
_meter.create_observable_gauge(
    "expert_memory", [_memory], unit="By", description="Memory for models, by device and kind: models or budget."
)
_meter.create_observable_gauge(
    "expert_gpu_use", [_use], unit="1", description="Share of the last moments in which a GPU computed, by device."
)


def members_of(batch: Sequence[Member]) -> list[SpanContext]:
    """The spans of the calls in a batch; none where nothing is traced."""
    if not tracing.provider():
        return []
    found = (member.context.run(tracing.current_span_context) for member in batch)
    return [span for span in found if span.is_valid]


def running(model_id: str, items: int, members: Sequence[SpanContext]) -> AbstractContextManager[object]:
    """The span of a batch, linked to those of its members."""
    if not tracing.provider():
        return nullcontext()
    facts: tracing.Attributes = {names.REQUEST_MODEL: model_id, names.ITEMS: items}
    return tracing.start_span(names.span_name(names.RUN_BATCH, model_id), facts, links=members)


@contextmanager
def loading(model_id: str, task: str, device: str) -> Iterator[None]:
    """The span of a load."""
    facts: tracing.Attributes = {names.REQUEST_MODEL: model_id, names.TASK: task, names.DEVICE: device}
    with tracing.start_span(names.span_name(names.LOAD_MODEL, model_id), facts):
        yield


def loaded(model_id: str, seconds: float, *, well: bool) -> None:
    """A load has ended."""
    load_seconds.record(seconds, {names.REQUEST_MODEL: model_id, "outcome": "loaded" if well else "failed"})


def ran(model_id: str, items: int, seconds: float) -> None:
    """A batch ran well."""
    label = {names.REQUEST_MODEL: model_id}
    batch_items.record(items, label)
    batch_seconds.record(seconds, label)
