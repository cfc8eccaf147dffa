"""Runs as both doors know them: what is asked of the orchestrator."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from gateway.auth.audit import Audit
from gateway.limits.quotas import Quotas
from gateway.limits.throttle import Throttle
from gateway.public_view import make_public
from gateway.run_stream import Call, Feed, Reopen
from gateway.service_calls import ask
from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller, DataPolicy
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_VIEW_BASIC,
    Run,
    RunSpec,
)
from services.common import call_context
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

ENDED = frozenset({RUN_STATE_COMPLETED, RUN_STATE_INCOMPLETE, RUN_STATE_FAILED, RUN_STATE_CANCELLED})
"""States a run does not leave."""

STREAM_SECONDS = 24 * 3600.0
"""Longest life of one stream; the feed opens another one after it."""


class Runs:
    """Starts runs, watches them, and passes on what else one can do to them.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", quotas: Quotas, audit: Audit) -> None:
        self._stub = stub
        self._quotas = quotas
        self._audit = audit
        self._throttle = Throttle()
        self._feeds: WeakSet[Feed] = WeakSet()
        self._stopped = False

    async def start(self, spec: RunSpec) -> Feed:
        """Has a run accepted; its events, from the first."""
        request, metadata = orchestrator_pb2.CreateRunRequest(spec=spec), call_context.metadata()
        with self._throttle.asking(call_context.current().tenant):
            return await self._started(request, metadata)

    async def _started(self, request: orchestrator_pb2.CreateRunRequest, metadata: Sequence[tuple[str, bytes]]) -> Feed:
        async with self._quotas.run() as taken:
            feed = self._feed(
                Feed(self._stub.CreateRun(request, timeout=STREAM_SECONDS, metadata=metadata), self._reopen())
            )
            await feed.accepted()
            await taken(feed.run_id)
        return feed

    async def watch(self, run_id: str, after: int) -> Feed:
        """The events of a run that is there, after a number."""
        run = await ask(self._stub.GetRun, gateway_pb2.GetRunRequest(run_id=run_id, view=RUN_VIEW_BASIC))
        reopen = self._reopen()
        feed = self._feed(Feed(reopen(run_id, after), reopen, run_id, after))
        feed.ended = run.state in ENDED and after >= run.last_sequence
        return feed

    async def get(self, run_id: str) -> Run:
        run = await ask(self._stub.GetRun, gateway_pb2.GetRunRequest(run_id=run_id))
        make_public(run)
        return run

    async def policy(self, run_id: str, asked: "DataPolicy.ValueType") -> "DataPolicy.ValueType":
        """What holds for what comes in to follow on a run: local if it keeps its data in, else what is asked for."""
        feed = await self.watch(run_id, 0)
        try:
            await feed.accepted()
            first = await feed.read()
        finally:
            feed.stop()
        kept_open = first is not None and first.run_accepted.caller.policy == DATA_POLICY_OPEN
        return asked if kept_open else DATA_POLICY_LOCAL

    async def bound(self, run_id: str) -> Caller:
        """The current caller, as files are brought in for what is to follow on a run; for none without an id."""
        who = Caller()
        who.CopyFrom(call_context.current())
        if run_id:
            who.policy = await self.policy(run_id, who.policy)
        return who

    async def list(self, request: gateway_pb2.ListRunsRequest) -> gateway_pb2.ListRunsResponse:
        if request.page_size < 0:
            raise InvalidRequest("page_size is negative", remedy="send 0 for the usual size", port="page_size")
        return await ask(self._stub.ListRuns, request)

    async def cancel(self, run_id: str) -> None:
        await ask(self._stub.CancelRun, gateway_pb2.CancelRunRequest(run_id=run_id))

    async def approve(self, run_id: str, plan: Plan | None) -> None:
        await ask(self._stub.ApproveRun, gateway_pb2.ApproveRunRequest(run_id=run_id, plan=plan))

    async def delete(self, run_id: str) -> None:
        """Removes an ended run because somebody says so."""
        await self._audit.record("run.delete", run_id)
        await self.discard(run_id)

    async def discard(self, run_id: str) -> None:
        """Removes an ended run that was not to be kept from the start: nobody has to answer for it."""
        await ask(self._stub.DeleteRun, gateway_pb2.DeleteRunRequest(run_id=run_id))

    async def hold(self, holder: str, sha256s: Collection[str]) -> None:
        """Keeps artifacts from being collected, instead of those the holder named before."""
        await ask(self._stub.HoldArtifacts, orchestrator_pb2.HoldArtifactsRequest(holder=holder, sha256s=sha256s))

    def stop(self) -> None:
        """Ends all streams, and those to come, so that their readers go elsewhere."""
        self._stopped = True
        for feed in tuple(self._feeds):
            feed.stop()

    def _feed(self, feed: Feed) -> Feed:
        self._feeds.add(feed)
        if self._stopped:
            feed.stop()
        return feed

    def _reopen(self) -> Reopen:
        metadata = call_context.metadata()

        def watch(run_id: str, after: int) -> Call:
            request = gateway_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
            return self._stub.WatchRun(request, timeout=STREAM_SECONDS, metadata=metadata)

        return watch
