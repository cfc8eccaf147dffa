"""Traces and metrics of models: batches, loads, memory. Labels are the models, tasks and devices of this expert."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol
from weakref import WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanContext

from experts.host.batch_composer import QueuedCall
from protos.hugginggpt import semantic_conventions as names
from services.common import tracing

_meter = metrics.get_meter("hugginggpt.expert")

batch_items = _meter.create_histogram(
    "expert_batch_items",
    description="Calls in one batch, by model.",
    explicit_bucket_boundaries_advisory=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
)
batch_seconds = _meter.create_histogram(
    "expert_batch_duration", unit="s", description="Duration of batches on their device, by model."
)
load_seconds = _meter.create_histogram(
    "expert_model_load_duration", unit="s", description="Duration of model loads, by model and outcome: loaded, failed."
)
evictions = _meter.create_counter(
    "expert_model_evictions", description="Models unloaded to free memory for others, by model and device."
)


class ObservedModels(Protocol):
    """The models of an expert, as the metrics observe them."""

    @property
    def depths(self) -> Mapping[tuple[str, str], int]:
        """Number of calls by model and state: "waiting" or "running"."""

    @property
    def memory(self) -> Mapping[tuple[str, str], int]:
        """Bytes by device and kind: "models" (in use) or "budget"."""

    @property
    def utilization(self) -> Mapping[str, float]:
        """Recent utilization of each device, 0 to 1, where it is known."""


_observed: "WeakSet[ObservedModels]" = WeakSet()


def watch(models: ObservedModels) -> None:
    """Includes models in the metrics for as long as they exist."""
    _observed.add(models)


def _observe_calls(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_observed):
        for (model_id, state), calls in models.depths.items():
            yield Observation(calls, {names.REQUEST_MODEL: model_id, "state": state})


def _observe_memory(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_observed):
        for (device, kind), size in models.memory.items():
            yield Observation(size, {"device": device, "kind": kind})


def _observe_utilization(_: CallbackOptions) -> Iterator[Observation]:
    for models in tuple(_observed):
        for device, share in models.utilization.items():
            yield Observation(share, {"device": device})


_meter.create_observable_gauge(
    "expert_calls", [_observe_calls], description="Calls of this expert, by model and state: waiting, running."
)
_meter.create_observable_gauge(
    "expert_memory",
    [_observe_memory],
    unit="By",
    description="Device memory of models, by device and kind: models (in use), budget.",
)
_meter.create_observable_gauge(
    "expert_gpu_use", [_observe_utilization], unit="1", description="Recent utilization of a GPU, 0 to 1, by device."
)


def span_contexts_of(batch: Sequence[QueuedCall]) -> list[SpanContext]:
    """Returns the spans of the calls in a batch, each once; none if tracing is off."""
    if not tracing.provider():
        return []
    found = (queued.context.run(tracing.current_span_context) for queued in batch)
    return list({span.span_id: span for span in found if span.is_valid}.values())


def create_batch_span(model_id: str, items: int, links: Sequence[SpanContext]) -> Span:
    """Starts the span of a batch, linked to the spans of its calls; see `tracing.use_span`."""
    facts: tracing.Attributes = {names.REQUEST_MODEL: model_id, names.ITEMS: items}
    return tracing.create_span(names.span_name(names.RUN_BATCH, model_id), facts, links=links)


def batch_span(model_id: str, items: int, links: Sequence[SpanContext]) -> AbstractContextManager[object]:
    """Opens the span of a batch that runs within the block."""
    if not tracing.provider():
        return nullcontext()
    return tracing.use_span(create_batch_span(model_id, items, links))


@contextmanager
def load_span(model_id: str, task: str, device: str) -> Iterator[None]:
    """Opens the span of a load."""
    facts: tracing.Attributes = {names.REQUEST_MODEL: model_id, names.TASK: task, names.DEVICE: device}
    with tracing.start_span(names.span_name(names.LOAD_MODEL, model_id), facts):
        yield


def record_load(model_id: str, seconds: float, *, succeeded: bool) -> None:
    """Records a load that has ended."""
    load_seconds.record(seconds, {names.REQUEST_MODEL: model_id, "outcome": "loaded" if succeeded else "failed"})


def record_batch(model_id: str, items: int, seconds: float) -> None:
    """Records a batch that succeeded."""
    label = {names.REQUEST_MODEL: model_id}
    batch_items.record(items, label)
    batch_seconds.record(seconds, label)
