"""Builders and a client for pipelines and batches of an orchestrator."""

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    batch_pb2,
    caller_pb2,
    event_pb2,
    gateway_pb2,
    pipeline_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
)
from services.common import call_context
from services.common.errors import ServiceError, from_rpc

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

SECONDS = 60


def given(name: str) -> task_pb2.Argument:
    """A task argument that refers to a named input."""
    return task_pb2.Argument(input=task_pb2.InputRef(name=name))


def step(task_id: int, name: str = "summarization", model: str = "", **arguments: task_pb2.Argument) -> task_pb2.Task:
    return task_pb2.Task(id=task_id, task=name, arguments=arguments or {"text": given("note")}, pinned_model=model)


PLAN = plan_pb2.Plan(tasks=[step(1)])
PINNED = plan_pb2.Plan(tasks=[step(1, model="model")])


def note(text: str, name: str = "") -> batch_pb2.NewItem:
    return batch_pb2.NewItem(
        name=name or text, inputs=[artifact_pb2.NamedValue(name="note", value=artifact_pb2.Value(text=text))]
    )


def notes(count: int) -> list[batch_pb2.NewItem]:
    return [note(f"note {number}") for number in range(1, count + 1)]


def parts(
    items: Sequence[batch_pb2.NewItem], page: int = 100, /, **spec: Any
) -> Iterator[gateway_pb2.CreateBatchRequest]:
    yield gateway_pb2.CreateBatchRequest(
        spec=batch_pb2.BatchSpec(**({"plan": PLAN} if not spec.keys() & SOURCES else {}) | spec)
    )
    for begin in range(0, len(items), page):
        yield gateway_pb2.CreateBatchRequest(items=gateway_pb2.NewItems(items=items[begin : begin + page]))
    yield gateway_pb2.CreateBatchRequest(end=gateway_pb2.BatchEnd(items=len(items)))


SOURCES = {"plan", "pipeline", "request", "run_id"}


class OrchestratorClient:
    """Client of an orchestrator that calls on behalf of a tenant."""

    def __init__(self, stub: "OrchestratorServiceAsyncStub", tenant: str = "default", **caller_fields: Any) -> None:
        self.stub = stub
        with call_context.use_caller(
            caller_pb2.Caller(tenant=tenant, policy=caller_pb2.DATA_POLICY_OPEN, **caller_fields)
        ):
            self.call_options: dict[str, Any] = {"timeout": SECONDS, "metadata": call_context.metadata()}

    async def save(self, name: str = "short", **fields: Any) -> pipeline_pb2.Pipeline:
        return await self.stub.SavePipeline(gateway_pb2.SavePipelineRequest(name=name, **fields), **self.call_options)

    async def start(self, items: Sequence[batch_pb2.NewItem], page: int = 100, /, **spec: Any) -> batch_pb2.Batch:
        return await self.send(parts(items, page, **spec))

    async def send(self, requests: Iterable[gateway_pb2.CreateBatchRequest]) -> batch_pb2.Batch:
        return await self.stub.CreateBatch(iter(requests), **self.call_options)

    async def get(self, batch_id: str) -> batch_pb2.Batch:
        return await self.stub.GetBatch(gateway_pb2.GetBatchRequest(batch_id=batch_id), **self.call_options)

    async def watch(self, batch_id: str) -> AsyncIterator[batch_pb2.Batch]:
        """Yields the batch after each change until it ends."""
        async for batch in self.stub.WatchBatch(gateway_pb2.WatchBatchRequest(batch_id=batch_id), **self.call_options):
            yield batch

    async def ended(self, batch_id: str) -> batch_pb2.Batch:
        """Waits for a batch to end and returns it."""
        return [batch async for batch in self.watch(batch_id)][-1]

    async def waiting_for(self, batch_id: str) -> str:
        """Waits until the batch waits, and returns for what."""
        async for batch in self.watch(batch_id):
            if batch.waiting_for:
                return str(batch.waiting_for)
        return ""

    async def items(self, batch_id: str, page: int = 100, **fields: Any) -> list[batch_pb2.BatchItem]:
        items: list[batch_pb2.BatchItem] = []
        token = ""
        while True:
            request = gateway_pb2.ListBatchItemsRequest(batch_id=batch_id, page_token=token, page_size=page, **fields)
            reply = await self.stub.ListBatchItems(request, **self.call_options)
            items += reply.items
            if not (token := reply.next_page_token):
                return items

    async def cancel(self, batch_id: str) -> None:
        await self.stub.CancelBatch(gateway_pb2.CancelBatchRequest(batch_id=batch_id), **self.call_options)

    async def resume(self, batch_id: str, *, failed_only: bool = False) -> batch_pb2.Batch:
        request = gateway_pb2.ResumeBatchRequest(batch_id=batch_id, failed_only=failed_only)
        return await self.stub.ResumeBatch(request, **self.call_options)

    async def delete(self, batch_id: str) -> None:
        await self.stub.DeleteBatch(gateway_pb2.DeleteBatchRequest(batch_id=batch_id), **self.call_options)

    async def list_batches(self, **fields: Any) -> gateway_pb2.ListBatchesResponse:
        return await self.stub.ListBatches(gateway_pb2.ListBatchesRequest(**fields), **self.call_options)

    async def pipeline(self, name: str, version: int = 0) -> pipeline_pb2.Pipeline:
        request = gateway_pb2.GetPipelineRequest(name=name, version=version)
        return await self.stub.GetPipeline(request, **self.call_options)

    async def delete_pipeline(self, name: str, version: int = 0) -> None:
        request = gateway_pb2.DeletePipelineRequest(name=name, version=version)
        await self.stub.DeletePipeline(request, **self.call_options)

    async def list_pipelines(self, **fields: Any) -> gateway_pb2.ListPipelinesResponse:
        return await self.stub.ListPipelines(gateway_pb2.ListPipelinesRequest(**fields), **self.call_options)

    async def get_run(self, run_id: str) -> run_pb2.Run:
        return await self.stub.GetRun(gateway_pb2.GetRunRequest(run_id=run_id), **self.call_options)

    async def delete_run(self, run_id: str) -> None:
        await self.stub.DeleteRun(gateway_pb2.DeleteRunRequest(run_id=run_id), **self.call_options)

    async def list_runs(self, **fields: Any) -> Sequence[run_pb2.Run]:
        return (await self.stub.ListRuns(gateway_pb2.ListRunsRequest(**fields), **self.call_options)).runs

    async def ended_runs(self) -> Sequence[orchestrator_pb2.EndedRun]:
        request = orchestrator_pb2.ListEndedRunsRequest()
        return (await self.stub.ListEndedRuns(request, **self.call_options)).runs

    async def run(self, **spec: Any) -> list[event_pb2.RunEvent]:
        return [
            event
            async for event in self.stub.CreateRun(
                orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(**spec)), **self.call_options
            )
        ]


async def rpc_error(call: Awaitable[Any]) -> ServiceError:
    """Awaits a call that fails, and returns its error."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc(raised.value)


def state(batch: batch_pb2.Batch | batch_pb2.BatchItem) -> str:
    return run_pb2.RunState.Name(batch.state).removeprefix("RUN_STATE_")
