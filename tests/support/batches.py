"""Pipelines and batches of an orchestrator, in few words."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1 import types_pb2 as types
from services.common import call_context

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

SECONDS = 60


def given(name: str) -> types.Argument:
    """An argument that is a named input."""
    return types.Argument(input=types.Input(name=name))


def step(task_id: int, name: str = "summarization", model: str = "", **arguments: types.Argument) -> types.Task:
    return types.Task(id=task_id, task=name, arguments=arguments or {"text": given("note")}, pinned_model=model)


PLAN = types.Plan(tasks=[step(1)])
PINNED = types.Plan(tasks=[step(1, model="model")])


def note(text: str, name: str = "") -> types.NewItem:
    return types.NewItem(name=name or text, inputs=[types.NamedValue(name="note", value=types.Value(text=text))])


def notes(count: int) -> list[types.NewItem]:
    return [note(f"note {number}") for number in range(1, count + 1)]


def parts(items: Sequence[types.NewItem], page: int = 100, /, **spec: Any) -> Iterator[pb.StartBatchRequest]:
    yield pb.StartBatchRequest(spec=types.BatchSpec(**({"plan": PLAN} if not spec.keys() & SOURCES else {}) | spec))
    for begin in range(0, len(items), page):
        yield pb.StartBatchRequest(items=pb.NewItems(items=items[begin : begin + page]))
    yield pb.StartBatchRequest(whole=pb.WholeBatch(items=len(items)))


SOURCES = {"plan", "pipeline", "request", "run_id"}


class Asking:
    """An orchestrator, asked on behalf of a tenant."""

    def __init__(self, stub: "OrchestratorServiceAsyncStub", tenant: str = "default", **who: Any) -> None:
        self.stub = stub
        with call_context.acting_for(types.Caller(tenant=tenant, policy=types.DATA_POLICY_OPEN, **who)):
            self.means: dict[str, Any] = {"timeout": SECONDS, "metadata": call_context.metadata()}

    async def save(self, name: str = "short", **wanted: Any) -> types.Pipeline:
        return await self.stub.SavePipeline(pb.SavePipelineRequest(name=name, **wanted), **self.means)

    async def start(self, items: Sequence[types.NewItem], page: int = 100, /, **spec: Any) -> types.Batch:
        return await self.send(parts(items, page, **spec))

    async def send(self, requests: Iterable[pb.StartBatchRequest]) -> types.Batch:
        return await self.stub.StartBatch(iter(requests), **self.means)

    async def get(self, batch_id: str) -> types.Batch:
        return await self.stub.GetBatch(pb.GetBatchRequest(batch_id=batch_id), **self.means)

    async def watch(self, batch_id: str) -> AsyncIterator[types.Batch]:
        """The batch whenever it has changed, to its end."""
        async for batch in self.stub.WatchBatch(pb.WatchBatchRequest(batch_id=batch_id), **self.means):
            yield batch

    async def ended(self, batch_id: str) -> types.Batch:
        """The batch once it is over."""
        return [batch async for batch in self.watch(batch_id)][-1]

    async def waiting_for(self, batch_id: str) -> str:
        """Why the batch begins no new item, once it does not."""
        async for batch in self.watch(batch_id):
            if batch.waiting_for:
                return str(batch.waiting_for)
        return ""

    async def items(self, batch_id: str, page: int = 100, **wanted: Any) -> list[types.BatchItem]:
        found: list[types.BatchItem] = []
        after = 0
        while True:
            request = pb.ListItemsRequest(batch_id=batch_id, after=after, page_size=page, **wanted)
            reply = await self.stub.ListItems(request, **self.means)
            found += reply.items
            if not (after := reply.next_after):
                return found

    async def cancel(self, batch_id: str) -> None:
        await self.stub.CancelBatch(pb.CancelBatchRequest(batch_id=batch_id), **self.means)

    async def resume(self, batch_id: str, *, failed_only: bool = False) -> types.Batch:
        request = pb.ResumeBatchRequest(batch_id=batch_id, failed_only=failed_only)
        return await self.stub.ResumeBatch(request, **self.means)

    async def run(self, **spec: Any) -> list[types.RunEvent]:
        return [event async for event in self.stub.Run(pb.RunRequest(spec=types.RunSpec(**spec)), **self.means)]


def state(batch: types.Batch | types.BatchItem) -> str:
    return types.RunState.Name(batch.state).removeprefix("RUN_STATE_")
