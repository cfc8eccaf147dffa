"""Spans of an expert's batches and loads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from experts.host.handler import Call
from tests.fakes.tracing import RecordedTraces
from tests.support.expert_host import Batches, Start, hosts, wait_for_event

INFER, INFER_BATCH = "hugginggpt.v1.ExpertService/Infer", "hugginggpt.v1.ExpertService/InferBatch"
SECRET = "must not appear in a trace"


@pytest.fixture
async def start_host(traces: RecordedTraces, tmp_path: Path) -> AsyncIterator[Start]:
    async with asyncio.timeout(20), hosts(tmp_path) as start_host:
        yield start_host


def ids(*spans: ReadableSpan) -> set[int]:
    return {span.context.span_id for span in spans if span.context}


def batches(traces: RecordedTraces) -> list[ReadableSpan]:
    return [span for span in traces.get_finished_spans() if span.name.startswith("run_batch")]


async def test_batch_has_one_span_linked_to_its_calls(start_host: Start, traces: RecordedTraces) -> None:
    model = Batches()
    host = await start_host(model)
    with trace.get_tracer("test").start_as_current_span("above"):
        calls = [asyncio.ensure_future(host.infer("first"))]
        await wait_for_event(model.entered)
        await model.all_prepared(1)
        for text in ("a", "b", SECRET):
            calls.append(asyncio.ensure_future(host.infer(text)))
            await model.all_prepared(1)
        await host.until_waiting(3)
        model.release.set()
        await asyncio.gather(*calls)
    alone, together = batches(traces)
    servers = [span for span in await traces.ended(INFER, 8) if span.kind is trace.SpanKind.SERVER]
    assert [(span.attributes or {})["hugginggpt.batch.items"] for span in (alone, together)] == [1, 3]
    linked = {link.context.span_id for link in together.links}
    assert len(linked) == 3
    assert linked < ids(*servers)
    for batch in (alone, together):
        assert batch.parent
        assert batch.parent.span_id in ids(*servers)
    assert together.parent
    assert together.parent.span_id in linked
    assert not any(SECRET in span.to_json() for span in traces.get_finished_spans())


async def test_batch_of_one_call_is_linked_to_it_once(start_host: Start, traces: RecordedTraces) -> None:
    model = Batches()
    model.release.set()
    host = await start_host(model)
    await host.infer_batch("a", "b", "c")
    (batch,) = batches(traces)
    assert (batch.attributes or {})["hugginggpt.batch.items"] == 3
    servers = [span for span in await traces.ended(INFER_BATCH, 2) if span.kind is trace.SpanKind.SERVER]
    assert [link.context.span_id for link in batch.links] == list(ids(*servers))


@dataclass
class Computed:
    """A batch that the device has computed."""

    raws: Sequence[str]

    def wait(self) -> None:
        """Returns at once."""

    def fetch(self) -> Sequence[str]:
        return self.raws


class AsynchronousModel(Batches):
    asynchronous = True

    def launch(self, items: Sequence[str], call: Call) -> Computed:
        return Computed(items)


async def test_batch_of_an_asynchronous_model_is_linked_to_its_call(start_host: Start, traces: RecordedTraces) -> None:
    host = await start_host(AsynchronousModel())
    reply = await host.infer_batch("a", "b")
    assert [result.outputs["text"].text for result in reply.results] == ["a", "b"]
    (batch,) = batches(traces)
    assert len(batch.links) == 1


class FetchedBatch(Computed):
    """A batch that counts the spans of batches that have ended when it is fetched."""

    def __init__(self, items: Sequence[str], ended: list[int], traces: RecordedTraces) -> None:
        super().__init__(items)
        self._ended, self._traces = ended, traces

    def fetch(self) -> Sequence[str]:
        self._ended.append(len(batches(self._traces)))
        return super().fetch()


class FetchedModel(AsynchronousModel):
    def __init__(self, traces: RecordedTraces) -> None:
        super().__init__()
        self.ended: list[int] = []
        self._traces = traces

    def launch(self, items: Sequence[str], call: Call) -> Computed:
        return FetchedBatch(items, self.ended, self._traces)


async def test_span_of_a_launched_batch_ends_when_its_results_are_fetched(
    start_host: Start, traces: RecordedTraces
) -> None:
    model = FetchedModel(traces)
    host = await start_host(model)
    await host.infer_batch("a")
    assert model.ended == [0]
    assert len(batches(traces)) == 1


class FailingModel(AsynchronousModel):
    def launch(self, items: Sequence[str], call: Call) -> Computed:
        raise ValueError(items[0])


async def test_span_of_a_batch_that_cannot_be_launched_has_the_error_type(
    start_host: Start, traces: RecordedTraces
) -> None:
    host = await start_host(FailingModel())
    await host.infer_batch("a")
    (batch,) = batches(traces)
    assert (batch.attributes or {})["error.type"] == "ValueError"


async def test_load_span_belongs_to_the_call_that_waits_for_it(start_host: Start, traces: RecordedTraces) -> None:
    host = await start_host(preload=())
    await host.infer()
    (load,) = (span for span in traces.get_finished_spans() if span.name.startswith("load_model"))
    assert (load.attributes or {})["hugginggpt.device"] == "cpu"
    assert load.parent
    assert load.parent.span_id in ids(*await traces.ended(INFER, 2))


async def test_failed_batch_span_has_the_error_type_without_its_message(
    start_host: Start, traces: RecordedTraces
) -> None:
    model = Batches()
    model.release.set()
    host = await start_host(model)
    with pytest.raises(grpc.aio.AioRpcError):
        await host.infer("poison")
    (batch,) = batches(traces)
    assert (batch.attributes or {})["error.type"] == "ValueError"
    assert "poison" not in batch.to_json()
